"""Customers who ask when things arrive, and an agent without tools that lets a chat model answer.

Each shop has days of its own, so that no weight holds them. On a day of corrections a customer who was told
something else says the days, and asks again.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from openai import AsyncOpenAI

from benchmarks.artifact_gains import Agents, Day, Worked
from examples.practice.planted_values import generator
from examples.practice.provider import KEY_VARIABLE
from examples.practice.shop import PRICES
from examples.practice.stage import Stage
from examples.practice.verifier import post_rewards
from headrace.serving.server import ModelServer
from train.evaluation.evaluate import TaskResult
from train.generation import Engine, LanguageModel

_SYSTEM = "You work for a shop. Answer the customer in one short sentence."
_ITEMS = tuple(PRICES)
_ASKED = ("Within how many days do {} arrive?", "Within how many days will {} arrive?")
"""On the day of corrections."""
_ASKED_FRESH = ("Tell me within how many days {} arrive.", "In how many days do {} arrive?")
_DAYS = range(11, 90)
_AT_ONCE = 4
_TOKENS = 24
_LABEL = "chat"


@dataclass(frozen=True, slots=True)
class Question:
    """What a customer wants to know, and the truth."""

    name: str
    item: str
    text: str
    days: int

    @property
    def rule(self) -> str:
        """The truth in words."""
        return f"{self.item} arrive within {self.days} days."

    def answered(self, answer: str) -> bool:
        """Tell whether an answer says the right days and no other number."""
        words = answer.replace(".", " ").replace(",", " ").split()
        return {word for word in words if word.isdigit()} == {str(self.days)}


def questions(day: Day) -> list[Question]:
    """Return the questions of a day, each item as often as another."""
    wordings = _ASKED if day.corrects else _ASKED_FRESH
    asked = []
    for number in range(day.sessions):
        draw = generator(day.shop.seed, "asked" if day.corrects else "asked fresh", number)
        item = _ITEMS[number % len(_ITEMS)]
        days = generator(day.shop.seed, "days", item).choice(_DAYS)
        name = f"{day.shop.seed}-{number}"
        asked.append(Question(name, item, draw.choice(wordings).format(item), days))
    return asked


async def _ask(day: Day) -> Worked:
    asked = questions(day)
    waiting, rewards, calls = iter(asked), [], 0
    found: dict[str, bool] = {}
    transport = httpx.AsyncClient(trust_env=False, timeout=600)
    sdk = AsyncOpenAI(http_client=transport, base_url=day.base_url, api_key=day.shop.key)

    async def answer(messages: list[Any]) -> tuple[str, str]:
        nonlocal calls
        calls += 1
        answered = await sdk.chat.completions.create(
            model=_LABEL, messages=messages, temperature=0, max_completion_tokens=_TOKENS
        )
        return answered.id, answered.choices[0].message.content or ""

    async def work() -> None:
        for one in waiting:
            messages: list[Any] = [
                {"role": "system", "content": _SYSTEM},
                {"role": "user", "content": one.text},
            ]
            call, said = await answer(messages)
            if day.corrects and not one.answered(said):
                correction = f"No, {one.rule} So when do they arrive?"
                messages += [
                    {"role": "assistant", "content": said},
                    {"role": "user", "content": correction},
                ]
                call, said = await answer(messages)
            found[one.name] = one.answered(said)
            rewards.append(_reward(call, right=found[one.name]))

    await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
    if day.corrects:
        await post_rewards(transport, day.gateway, day.shop.key, rewards)
    await sdk.close()
    results = [
        TaskResult(one.name, 0, found[one.name], float(found[one.name]), one.item) for one in asked
    ]
    return Worked(results, calls)


def _reward(call: str, *, right: bool) -> dict[str, Any]:
    return {
        "response_id": call,
        "name": "success",
        "value": float(right),
        "source_kind": "verifier",
        "source": "delivery-verifier",
        "source_version": "1",
        "observed_at": datetime.now(UTC).isoformat(),
        "idempotency_key": f"delivery-{call}",
    }


@contextmanager
def _serve(stage: Stage, model: Path) -> Iterator[None]:
    """Serve a chat model with the server of ``headrace serve``, in this process."""
    engine = Engine(LanguageModel(model))
    server = ModelServer({_LABEL: engine}, key=os.environ[KEY_VARIABLE])
    try:
        with server.listen("127.0.0.1", stage.ports.provider):
            yield
    finally:
        engine.stop()


ASKED = Agents(_serve, lambda day: asyncio.run(_ask(day)))
"""Agents that a chat model answers for."""
