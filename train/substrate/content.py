"""Fetches the content of items from the lake: conversations and tools, by id, when a run needs them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from train.chat import ChatMessage, UnrenderableError, message_from_parts, to_chat, to_tools
from train.substrate.items import Item
from train.substrate.source import LearningSource
from trajectory.canonical import canonical_json
from trajectory.message import Message

_BATCH = 10_000
_EXACT = "exact"
_ENGINE_COLUMNS = "prompt_token_ids, completion_token_ids, logprobs, token_fidelity"


@dataclass(frozen=True, slots=True)
class View:
    """A conversation as the agent was shown it at some of its steps."""

    messages: tuple[ChatMessage, ...] = field(repr=False)
    trained: tuple[int, ...]
    """Indexes in ``messages`` of what the agent said at these steps."""
    tools: tuple[dict[str, Any], ...] = field(repr=False)
    leading: int
    """How many messages it begins with that are system prompts."""

    @property
    def prompt(self) -> tuple[ChatMessage, ...]:
        """What stood before the agent spoke first."""
        return self.messages[: self.trained[0]]


@dataclass(frozen=True, slots=True)
class Conversation:
    """An item's content in the form that chat templates take."""

    messages: tuple[ChatMessage, ...] = field(repr=False)
    """As the last step was shown it, and what it said."""
    trained: tuple[int, ...]
    """Indexes in ``messages`` of what the agent said."""
    tools: tuple[dict[str, Any], ...] = field(repr=False)
    views: tuple[View, ...] = ()
    """The same as each step was shown it: one for each system prompt and set of tools; the first
    step's first. What is learned is learned under these."""


@dataclass(frozen=True, slots=True)
class StepTokens:
    """The exact tokens of one step, as its engine reported them."""

    prompt_ids: tuple[int, ...] = field(repr=False)
    completion_ids: tuple[int, ...] = field(repr=False)
    logprobs: tuple[float, ...] = field(repr=False)
    """Of the completion's tokens under the model that sampled them."""


@dataclass(frozen=True, slots=True)
class CreditQuestion:
    """Which rows of the table ``credits`` a recipe learns from."""

    algorithm: str
    parameters: str
    """Canonical JSON of all parameters."""
    weights_hash: str
    """Of the substrate's own signal weights."""


@dataclass(frozen=True, slots=True)
class ContentStore:
    """The messages and tools of some items, held in memory while rows are made."""

    messages: dict[tuple[str, str], Message] = field(repr=False)
    """(tenant, message id) → message."""
    tools: dict[tuple[str, str], tuple[dict[str, Any], ...]] = field(repr=False)
    """(tenant, harness id) → tool definitions."""
    tokens: dict[tuple[str, str], StepTokens] = field(default_factory=dict, repr=False)
    """(tenant, step id) → exact tokens; only of steps that have all of them."""

    advantages: dict[tuple[str, str], float] = field(default_factory=dict, repr=False)
    """(tenant, step id) → credit; only when a recipe asked for it."""

    @classmethod
    def read(
        cls, source: LearningSource, items: Sequence[Item], *, credit: CreditQuestion | None = None
    ) -> "ContentStore":
        """Read what the items name; what the lake no longer has is simply absent."""
        framed = {name for item in items for frame in item.frames for name in frame[1:]}
        message_ids = sorted({name for item in items for name in item.message_ids} | framed)
        around = {frame[0] for item in items for frame in item.frames}
        harness_ids = sorted({item.harness_id or "" for item in items} | around - {""})
        messages = {
            (row["tenant_id"], row["message_id"]): message_from_parts(
                row["role"], row["parts"], row["name"]
            )
            for row in _rows(source, "messages", "message_id", "role, parts, name", message_ids)
        }
        tools = {
            (row["tenant_id"], row["harness_id"]): tuple(to_tools(json.loads(row["tools"])))
            for row in _rows(source, "harnesses", "harness_id", "tools", harness_ids)
        }
        step_ids = [
            step for item in items if item.capture_level == "tokens" for step in item.step_ids
        ]
        tokens = {
            (row["tenant_id"], row["step_id"]): StepTokens(
                prompt_ids=tuple(row["prompt_token_ids"]),
                completion_ids=tuple(row["completion_token_ids"]),
                logprobs=tuple(row["logprobs"]),
            )
            for row in _rows(source, "tokens", "step_id", _ENGINE_COLUMNS, sorted(step_ids))
            if row["token_fidelity"] == _EXACT and _is_whole(row)
        }
        advantages = {} if credit is None else _advantages(source, items, credit)
        return cls(messages=messages, tools=tools, tokens=tokens, advantages=advantages)

    def conversation(self, item: Item) -> Conversation:
        """Return an item's conversation.

        Raises:
            UnrenderableError: a message is gone or cannot be shown as text.
        """
        prompts = self._chat(item, item.message_ids[: item.leading])
        chat: list[ChatMessage] = []
        places: list[int] = []
        for index, message_id in enumerate(item.message_ids[item.leading :], item.leading):
            chat.extend(self._chat(item, (message_id,)))
            if index in item.trained:
                places.append(len(chat) - 1)
        tools = self._tools(item, item.harness_id or "")
        frames = item.frames or ((item.harness_id or "", *item.message_ids[: item.leading]),)
        shown: dict[bytes, tuple[list[ChatMessage], tuple[dict[str, Any], ...], list[int]]] = {}
        for at, place in enumerate(places):
            harness_id, *prompt_ids = frames[at if item.frames else 0]
            own, lent = self._chat(item, prompt_ids), self._tools(item, harness_id)
            key = canonical_json([prompt_ids, list(lent)])
            shown.setdefault(key, (own, lent, []))[2].append(place)
        return Conversation(
            messages=(*prompts, *chat),
            trained=tuple(len(prompts) + place for place in places),
            tools=tools,
            views=tuple(
                View(
                    messages=(*own, *chat[: spoken[-1] + 1]),
                    trained=tuple(len(own) + place for place in spoken),
                    tools=lent,
                    leading=len(own),
                )
                for own, lent, spoken in shown.values()
            ),
        )

    def _chat(self, item: Item, message_ids: Sequence[str]) -> list[ChatMessage]:
        chat: list[ChatMessage] = []
        for message_id in message_ids:
            message = self.messages.get((item.tenant_id, message_id))
            if message is None:
                raise UnrenderableError("content_gone")
            chat.extend(to_chat(message))
        return chat

    def _tools(self, item: Item, harness_id: str) -> tuple[dict[str, Any], ...]:
        return self.tools.get((item.tenant_id, harness_id), ())


def _is_whole(row: dict[str, Any]) -> bool:
    completion, logprobs = row["completion_token_ids"], row["logprobs"]
    return bool(row["prompt_token_ids"] and completion and logprobs) and len(completion) == len(
        logprobs
    )


def _rows(
    source: LearningSource, table: str, key: str, columns: str, ids: Sequence[str]
) -> Iterator[dict[str, Any]]:
    for start in range(0, len(ids), _BATCH):
        found = source.query(
            f"SELECT tenant_id, {key}, {columns} FROM {table} "  # noqa: S608 (fixed names)
            f"WHERE {key} IN (SELECT unnest(?::VARCHAR[]))",
            parameters=[list(ids[start : start + _BATCH])],
        )
        yield from found.to_pylist()


def _advantages(
    source: LearningSource, items: Sequence[Item], credit: CreditQuestion
) -> dict[tuple[str, str], float]:
    steps = {(item.tenant_id, step) for item in items for step in item.step_ids}
    table = source.query(
        "SELECT tenant_id, step_id, advantage FROM credits_latest "
        "WHERE algorithm = ? AND parameters = ? AND weights_hash = ?",
        parameters=[credit.algorithm, credit.parameters, credit.weights_hash],
    )
    rows = zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
    return {(tenant, step): value for tenant, step, value in rows if (tenant, step) in steps}


def message_sizes(source: LearningSource, items: Sequence[Item]) -> dict[str, int]:
    """Return item id → characters of its conversation, without reading content."""
    message_ids = sorted({name for item in items for name in item.message_ids})
    sizes = {
        (row["tenant_id"], row["message_id"]): int(row["characters"])
        for row in _rows(source, "messages", "message_id", "characters", message_ids)
    }
    return {
        item.item_id: sum(sizes.get((item.tenant_id, name), 0) for name in item.message_ids)
        for item in items
    }
