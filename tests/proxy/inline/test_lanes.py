"""Lanes: a tenant that sends much holds up nobody else, nor its own short requests."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from threading import Event
from typing import Any

import pytest

from proxy.inline.kept_histories import HistoryOwner
from proxy.inline.lanes import SHORT, FairLanes
from proxy.inline.openai import ChatRequest
from proxy.inline.route import InlineTerms, PseudonymisedCall, RouteInline
from proxy.telemetry.counters import Counters
from trajectory.surrogate import PseudonymisedText, surrogate

LONG = SHORT + 1
KEY = b"k" * 32


@dataclass(eq=False)
class Worker:
    """Says what it was asked; what it is told to hold it holds until the gate opens."""

    began: list[str]
    events: dict[str, Event]
    gate: Event

    def do(self, what: str) -> str:
        self.began.append(what)
        self.events[what].set()
        if what.startswith("held"):
            assert self.gate.wait(60)
        return what


class Scene:
    def __init__(self, count: int) -> None:
        self.began: list[str] = []
        self.events = dict[str, Event]()
        self.gate = Event()
        self.workers = [Worker(self.began, self.events, self.gate) for _ in range(count)]
        self.lanes = FairLanes(self.workers)

    def ask(self, tenant: str, what: str, size: int = 1) -> asyncio.Task[str]:
        self.events[what] = Event()
        return asyncio.create_task(self.lanes.run(tenant, size, lambda one: one.do(what)))

    async def begun(self, *what: str) -> None:
        for one in what:
            assert await asyncio.to_thread(self.events[one].wait, 60)


def run(count: int, story: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        scene = Scene(count)
        try:
            await story(scene)
        finally:
            scene.gate.set()
            scene.lanes.close()

    asyncio.run(main())


def test_a_flood_of_one_tenant_takes_one_lane() -> None:
    async def story(scene: Scene) -> None:
        flood = [scene.ask("mallory", f"held {at}", LONG) for at in range(50)]
        await scene.begun("held 0")
        assert await scene.ask("ada", "long", LONG) == "long"
        assert await scene.ask("ada", "short") == "short"
        assert await scene.ask("mallory", "its own short") == "its own short"
        assert sum(one.startswith("held") for one in scene.began) == 1
        scene.gate.set()
        assert await asyncio.gather(*flood) == [f"held {at}" for at in range(50)]

    run(3, story)


def test_long_requests_leave_a_lane_to_short_ones() -> None:
    async def story(scene: Scene) -> None:
        for tenant in "abc":
            scene.ask(tenant, f"held {tenant}", LONG)
        await scene.begun("held a", "held b")
        assert await scene.ask("d", "short") == "short"
        assert "held c" not in scene.began

    run(3, story)


def test_tenants_take_turns() -> None:
    async def story(scene: Scene) -> None:
        first = scene.ask("a", "held")
        await scene.begun("held")
        rest = [scene.ask("a", f"a{at}") for at in range(3)] + [
            scene.ask("b", "b"),
            scene.ask("c", "c"),
        ]
        await asyncio.sleep(0)
        scene.gate.set()
        await asyncio.gather(first, *rest)
        assert scene.began.index("b") <= 2
        assert scene.began.index("c") <= 3
        assert [one for one in scene.began if one[0] == "a"] == ["a0", "a1", "a2"]

    run(1, story)


def test_what_nobody_waits_for_any_more_is_not_begun() -> None:
    async def story(scene: Scene) -> None:
        scene.ask("a", "held")
        await scene.begun("held")
        left = scene.ask("a", "left")
        await asyncio.sleep(0)
        left.cancel()
        scene.gate.set()
        assert await scene.ask("a", "after") == "after"
        assert "left" not in scene.began

    run(1, story)


def test_errors_go_to_whom_they_belong() -> None:
    async def story(scene: Scene) -> None:
        def fails(_: Worker) -> str:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await scene.lanes.run("a", 1, fails)
        assert await scene.ask("a", "next") == "next"

    run(1, story)


class Pseudonymizer:
    """Takes as long for big bodies as the test says."""

    def __init__(self, gate: Event) -> None:
        self._gate = gate

    def pseudonymise(self, body: str, *_: Any, key: bytes, **__: Any) -> PseudonymisedText:
        if "AdaAda" in body:
            assert self._gate.wait(60)
        name = surrogate(key, "PERSON", "Ada")
        return PseudonymisedText(body.replace("Ada", name), {name: "Ada"}, {}, frozenset(), ())


def test_where_what_fails_may_pass_a_flood_lets_nothing_of_others_pass() -> None:
    gate = Event()
    makers = tuple(Pseudonymizer(gate) for _ in range(3))
    terms = InlineTerms(("model",), makers, KEY, passes=True, seconds=3600)
    counters = Counters()

    async def main() -> None:
        inline = RouteInline(terms, counters)

        def ask(tenant: str, said: str) -> asyncio.Future[PseudonymisedCall | None]:
            body = json.dumps({"messages": [{"role": "user", "content": said}]}).encode()
            return asyncio.ensure_future(
                inline.pseudonymise(
                    ChatRequest,
                    body,
                    head=None,
                    owner=HistoryOwner(tenant, "key", "model"),
                    session=None,
                )
            )

        flood = [ask("mallory", "Ada" * SHORT) for _ in range(20)]
        for said in ("I am Ada", "I am Ada" + " " * SHORT):
            told = await ask("ada", said)
            assert told is not None
            assert b"Ada" not in told.body
        assert not any(one.done() for one in flood)
        assert counters.inline == {("model", "replaced"): 2}
        gate.set()
        await asyncio.gather(*flood)
        inline.close()

    asyncio.run(main())
