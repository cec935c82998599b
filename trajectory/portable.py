"""A trajectory outside of any lake: the value that formats import to and export from.

It is one path from the first message to the last, without forks: a fork is a second value that
shares its beginning. Content may be raw or redacted; the value does not know.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import ClassVar

from trajectory.call import TokenCapture, Usage
from trajectory.canonical import JsonObject
from trajectory.message import Message
from trajectory.version import SCHEMA_VERSION

SOURCE_KINDS = ("env", "verifier", "human_explicit", "human_implicit", "judge", "rule")
"""Who may give a signal."""
SPAN_UNITS = ("characters", "tokens")
"""What the ends of a span that a signal is about are counted in."""
PSEUDONYM = re.compile(r"subject_[0-9a-f]{32}")
"""A data subject, as governance rows keep one."""


@dataclass(frozen=True, slots=True)
class PortableSignal:
    """A reward or piece of feedback about a step or about the whole."""

    name: str
    """Name of the measure, e.g. ``success``."""
    value: float | None = None
    label: str | None = None
    rationale: str | None = field(default=None, repr=False)
    source_kind: str = "rule"
    """env | verifier | human_explicit | human_implicit | judge | rule"""
    source: str = ""
    """Who judged."""
    source_version: str | None = None
    confidence: float | None = None
    """From 0 to 1."""
    observed_at: str | None = None
    """RFC 3339, as it came."""

    def to_json(self) -> JsonObject:
        """Return the fields that are set."""
        values = {name: getattr(self, name) for name in _SIGNAL_FIELDS}
        return {name: value for name, value in values.items() if value is not None}


_SIGNAL_FIELDS = tuple(field.name for field in fields(PortableSignal))
_NUMBERS = frozenset({"value", "confidence"})


@dataclass(frozen=True, slots=True)
class PortableStep:
    """One decision: what was observed since the decision before, and the answer."""

    observed: tuple[Message, ...]
    """What is new since the answer before: the person's words, tool results, the system prompt."""
    output: Message
    """The answer, with the tool calls it asks for."""
    step_id: str | None = None
    timestamp: str | None = None
    """When the step began, RFC 3339, as it came."""
    ended_at: str | None = None
    """When the answer was complete, RFC 3339, as it came."""
    model: str | None = None
    """The model that answered."""
    response_id: str | None = None
    """The id that the model API gave to the answer."""
    finish_reason: str | None = None
    """Why generation stopped, in the provider's own word."""
    sampling: JsonObject = field(default_factory=dict)
    """Sampling parameters as sent, in the dialect's own words."""
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    tokens: TokenCapture | None = None
    """Exact tokens of the engine."""
    loss_mask: tuple[bool, ...] | None = None
    """One per completion token; False where nothing may be learned from it."""
    signals: tuple[PortableSignal, ...] = ()
    """Rewards and feedback about this step."""
    purposes: tuple[str, ...] | None = None
    """What the lake that wrote the document allows the step for; an import allows no more. None: nobody says."""
    legal_basis: str | None = None
    """On which that lake keeps it."""
    subjects: tuple[str, ...] | None = None
    """Keyed pseudonyms, in that lake, of the people concerned."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One path of a trajectory."""

    steps: tuple[PortableStep, ...]
    """Decisions in their order."""
    trailing: tuple[Message, ...] = ()
    """What was observed after the last answer."""
    trajectory_id: str | None = None
    session_id: str | None = None
    agent_name: str | None = None
    agent_version: str | None = None
    model: str | None = None
    """The model of the whole, where steps do not say another."""
    tools: tuple[JsonObject, ...] = ()
    """Tool definitions as sent."""
    end_user: str | None = field(default=None, repr=False)
    """Who used the application, as an imported document names the person: a lake keeps a keyed pseudonym alone."""
    also_named: tuple[str, ...] | None = field(default=None, repr=False)
    """Whom a document names beside the end user: other ids of the same person, or other people."""
    signals: tuple[PortableSignal, ...] = ()
    """Rewards and feedback about the whole."""
    ext: JsonObject = field(default_factory=dict)
    """By format, what an imported document held beyond these fields (see ``formats.patch``)."""
    schema_version: ClassVar[int] = SCHEMA_VERSION

    def messages(self) -> tuple[Message, ...]:
        """Return the whole conversation."""
        listed: list[Message] = []
        for step in self.steps:
            listed += [*step.observed, step.output]
        return (*listed, *self.trailing)


def split_steps(
    messages: Iterable[Message],
) -> tuple[tuple[PortableStep, ...], tuple[Message, ...]]:
    """Return a conversation as steps, one for each answer of the model, and what trails."""
    steps: list[PortableStep] = []
    observed: list[Message] = []
    for message in messages:
        if message.role == "assistant":
            steps.append(PortableStep(tuple(observed), message))
            observed = []
        else:
            observed.append(message)
    return tuple(steps), tuple(observed)


def signals_of(value: object) -> tuple[PortableSignal, ...]:
    """Return the signals in a JSON list; what is no signal is left out."""
    found = value if isinstance(value, list) else ()
    return tuple(signal for item in found if (signal := _signal_of(item)) is not None)


def _signal_of(item: object) -> PortableSignal | None:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        return None
    values = {name: item[name] for name in _SIGNAL_FIELDS if item.get(name) is not None}
    for name, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number if name in _NUMBERS else isinstance(value, str)):
            return None
    return PortableSignal(**values)


__all__ = ["PSEUDONYM", "PortableSignal", "PortableStep", "Trajectory", "signals_of", "split_steps"]
