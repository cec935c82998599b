"""What a span says, whatever its convention: a model call, a tool call, a judgement."""

from dataclasses import dataclass, field

from trajectory.call import Usage
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import as_id, as_text, clean_text, parse_json_or_none
from trajectory.message import Message
from trajectory.portable import PortableSignal

USERS = ("user.id", "enduser.id")
"""Attributes that name who used the application, the strongest first."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One call of a model."""

    context: tuple[Message, ...]
    output: Message | None
    tools: tuple[JsonObject, ...] = ()
    sampling: JsonObject = field(default_factory=dict)
    model_requested: str | None = None
    model_served: str | None = None
    response_id: str | None = None
    finish_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    streamed: bool = False
    first_chunk_seconds: float | None = None
    """From the request to the first piece of a streamed answer."""


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """One execution of a tool, or of what an agent's program does beside its tools."""

    name: str
    call_id: str
    arguments: JsonValue = field(repr=False)
    result: JsonValue = field(repr=False)
    event: str | None = None
    """retrieval | memory | guardrail | evaluator; None for a tool that the model asked for."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """An evaluation of a model's answer, or of the session."""

    signal: PortableSignal
    response_id: str | None = None
    of_session: bool = False


@dataclass(frozen=True, slots=True)
class SpanFacts:
    """What one span says."""

    convention: str
    """otel.genai | openinference"""
    what: ModelFacts | ToolFacts | None
    """None for a span around others (an agent, a chain)."""
    judgements: tuple[Judgement, ...] = ()
    conversation: str | None = None
    """Name of the session."""
    conversation_source: str = ""
    """Attribute that named it."""
    agent_name: str | None = None
    agent_version: str | None = None


def structured(value: JsonValue | None) -> JsonValue | None:
    """Return a value that instrumentations write as JSON text, as a list of such texts, or as it is."""
    if isinstance(value, str):
        return parse_json_or_none(value)
    if isinstance(value, list):
        return [parse_json_or_none(item) if isinstance(item, str) else item for item in value]
    return value


def number(value: JsonValue | None) -> float | None:
    """Return a number, also from text; None when it is none."""
    if isinstance(value, str):
        value = parse_json_or_none(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def text_of(attributes: JsonObject, *names: str) -> str | None:
    """Return the first attribute of these that is text."""
    found = next((text for name in names if (text := as_text(attributes.get(name)))), None)
    return None if found is None else clean_text(found)


def people_of(attributes: JsonObject) -> tuple[str, ...]:
    """Return the ids of the end user that a span names, the strongest first."""
    found = (as_id(attributes.get(name)) for name in USERS)
    return tuple(clean_text(one) for one in found if one and one.strip())


def nest(attributes: JsonObject, prefix: str) -> JsonValue:
    """Return attributes with dotted names below ``prefix`` as lists and objects.

    ``a.0.b.c = 1`` below ``a.`` gives ``[{"b": {"c": 1}}]``. A name that is both a value and a
    prefix of others keeps the others.
    """
    root: JsonObject = {}
    for name, value in attributes.items():
        if not name.startswith(prefix):
            continue
        *path, leaf = name.removeprefix(prefix).split(".")
        at = root
        for step in path[:16]:
            inner = at.get(step)
            if not isinstance(inner, dict):
                inner = at[step] = {}
            at = inner
        if not isinstance(at.get(leaf), dict):
            at[leaf] = value
    return _lists(root)


def _lists(value: JsonValue) -> JsonValue:
    if not isinstance(value, dict):
        return value
    if value and all(name.isascii() and name.isdecimal() and len(name) < 7 for name in value):
        return [_lists(value[name]) for name in sorted(value, key=int)]
    return {name: _lists(item) for name, item in value.items()}


__all__ = [
    "Judgement",
    "ModelFacts",
    "SpanFacts",
    "ToolFacts",
    "nest",
    "number",
    "structured",
    "text_of",
]
