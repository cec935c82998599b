"""Fetches the content of items from the lake: conversations and tools, by id, when a run needs them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

import polars as pl

from lakehouse.credit.sql import PERMITTED
from train.chat import ChatMessage, UnrenderableError, message_from_parts, to_chat, to_tools
from train.substrate.source import LearningSource, frame_of, rows_by_id
from train.types import Item
from trajectory.canonical import canonical_json
from trajectory.message import Message

CORRECTION = "corrected_answer"
"""Name of the signal that says what a step should have answered: its rationale."""
_TOKENS = ("prompt_token_ids", "completion_token_ids", "logprobs", "token_fidelity")
_EXACT = (
    pl.col("token_fidelity").is_in(["exact", "pseudonymised_inline"])
    & (pl.col("prompt_token_ids").list.len() > 0)
    & (pl.col("completion_token_ids").list.len() > 0)
    & (pl.col("completion_token_ids").list.len() == pl.col("logprobs").list.len())
)


@dataclass(frozen=True, slots=True)
class View:
    """A conversation as the agent was shown it at some of its steps."""

    messages: tuple[ChatMessage, ...] = field(repr=False)
    trained: tuple[int, ...]
    """Indexes in ``messages`` of what the agent said at these steps."""
    tools: tuple[dict[str, Any], ...] = field(repr=False)
    leading: int
    """How many messages it begins with that are system prompts."""
    step_ids: tuple[str, ...] = ()
    """The steps that said what stands at ``trained``."""

    @property
    def prompt(self) -> tuple[ChatMessage, ...]:
        """Messages before the agent's first answer."""
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
class CreditSelection:
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
    corrections: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)
    """(tenant, step id) → what a person says that the step should have answered; only when asked for."""

    @classmethod
    def read(
        cls,
        source: LearningSource,
        items: Sequence[Item],
        *,
        credit: CreditSelection | None = None,
        corrected: bool = False,
    ) -> "ContentStore":
        """Read what the items name; what the lake no longer has is simply absent."""
        framed = (name for item in items for frame in item.frames for name in frame[1:])
        named = (name for item in items for name in item.message_ids)
        harnesses = (item.harness_id for item in items)
        around = (frame[0] for item in items for frame in item.frames)
        exact = (s for item in items if item.capture_level == "tokens" for s in item.step_ids)
        said = rows_by_id(
            source, "messages", "message_id", ("role", "parts", "name"), chain(named, framed)
        )
        given = rows_by_id(source, "harnesses", "harness_id", ("tools",), chain(harnesses, around))
        tokens = rows_by_id(source, "tokens", "step_id", _TOKENS, exact).filter(_EXACT)
        return cls(
            messages={
                (tenant, name): message_from_parts(role, parts, speaker)
                for tenant, name, role, parts, speaker in said.iter_rows()
            },
            tools={
                (tenant, name): tuple(to_tools(json.loads(tools)))
                for tenant, name, tools in given.iter_rows()
            },
            tokens={
                (tenant, step): StepTokens(tuple(prompt), tuple(completion), tuple(logprobs))
                for tenant, step, prompt, completion, logprobs, _ in tokens.iter_rows()
            },
            advantages={} if credit is None else _advantages(source, items, credit),
            corrections=corrections_of(source, items) if corrected else {},
        )

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
        shown: dict[
            bytes, tuple[list[ChatMessage], tuple[dict[str, Any], ...], list[tuple[int, str]]]
        ] = {}
        for at, place in enumerate(places):
            harness_id, *prompt_ids = frames[at if item.frames else 0]
            own, lent = self._chat(item, prompt_ids), self._tools(item, harness_id)
            key = canonical_json([prompt_ids, list(lent)])
            shown.setdefault(key, (own, lent, []))[2].append((place, item.step_ids[at]))
        return Conversation(
            messages=(*prompts, *chat),
            trained=tuple(len(prompts) + place for place in places),
            tools=tools,
            views=tuple(
                View(
                    messages=(*own, *chat[: spoken[-1][0] + 1]),
                    trained=tuple(len(own) + place for place, _ in spoken),
                    tools=lent,
                    leading=len(own),
                    step_ids=tuple(step for _, step in spoken),
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


_CREDITS = f"""
SELECT tenant_id, step_id, advantage FROM credits_latest
WHERE algorithm = $algorithm AND parameters = $parameters AND weights_hash = $weights_hash
AND (tenant_id, computation_id) NOT IN (
    SELECT c.tenant_id, c.computation_id FROM credits c
    LEFT JOIN permissions p ON p.tenant_id = c.tenant_id AND p.step_id = c.step_id
    WHERE c.algorithm = $algorithm AND NOT {PERMITTED})
"""  # noqa: S608 - fixed text
"""Credits but for those that compare with an attempt which may be learned from no more."""


def _advantages(
    source: LearningSource, items: Sequence[Item], credit: CreditSelection
) -> dict[tuple[str, str], float]:
    table = source.query(_CREDITS, parameters=asdict(credit))
    steps = _named(items, "step_ids").rename({"name": "step_id"})
    found = frame_of(table).join(steps, on=["tenant_id", "step_id"], how="semi")
    return {(tenant, step): value for tenant, step, value in found.iter_rows()}


def corrections_of(
    source: LearningSource, items: Sequence[Item], *, as_of: Mapping[str, int] | None = None
) -> dict[tuple[str, str], str]:
    """Return (tenant, step id) → the correction that holds of it, for those steps that have one."""
    table = source.query(
        "SELECT tenant_id, step_id, rationale FROM rewards_latest "
        "WHERE name = ? AND source_kind = 'human_explicit' AND step_id IS NOT NULL",
        parameters=[CORRECTION],
        as_of=as_of,
    )
    steps = _named(items, "step_ids").rename({"name": "step_id"})
    found = frame_of(table).join(steps, on=["tenant_id", "step_id"], how="semi")
    return {(tenant, step): text for tenant, step, text in found.iter_rows() if text}


def message_sizes(source: LearningSource, items: Sequence[Item]) -> dict[str, int]:
    """Return item id → characters of its conversation, without reading content."""
    named = _named(items, "message_ids").rename({"name": "message_id"})
    sizes = rows_by_id(source, "messages", "message_id", ("characters",), named["message_id"])
    found = named.join(sizes, on=["tenant_id", "message_id"], how="left")
    return dict(found.group_by("item_id").agg(pl.col("characters").sum()).iter_rows())


def _named(items: Sequence[Item], column: str) -> pl.DataFrame:
    """Return a row (item_id, tenant_id, name) for each name that the items' ``column`` holds."""
    rows = [(item.item_id, item.tenant_id, getattr(item, column)) for item in items]
    schema = {"item_id": pl.String(), "tenant_id": pl.String(), "name": pl.List(pl.String)}
    return pl.DataFrame(rows, schema=schema, orient="row").explode("name")
