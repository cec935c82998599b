"""What reading a call means in every dialect, and what a dialect says of itself."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from trajectory.artifact import MARK, without_blocks
from trajectory.call import Call, CallKind, SessionHint
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.hints import common_hints, retry_count
from trajectory.dialects.resends import same_message
from trajectory.dialects.response import ModelResponse
from trajectory.dialects.wire import names, without
from trajectory.exchange import Exchange
from trajectory.message import Message, OpaquePart, Part, ReasoningPart, TextPart


@dataclass(frozen=True, slots=True)
class DialectOutput:
    """What a dialect gives; the table in the documents is made from these."""

    requests: str
    """The requests that it reads."""
    kind: CallKind
    """What they become."""
    streams: str = ""
    """How answers are streamed; empty where they are not."""
    text: bool = False
    reasoning: bool = False
    tool_calls: bool = False
    usage: bool = False
    tokens: str = ""
    """Who gives exact token ids; empty where nobody does."""
    logprobs: str = ""
    """What it gives of log probabilities; empty where there are none."""
    errors: str = "status and body"
    """In what errors come."""
    identity: str = ""
    """What names a session or an end user, beside headers and URL."""


def posted_to(exchange: Exchange, *endings: str) -> bool:
    """Tell whether this is a POST whose path ends in one of ``endings``."""
    return exchange.request.method == "POST" and exchange.request.path.rstrip("/").endswith(endings)


PIECES = names(
    "logprobs logprobsResult avgLogprobs prompt_logprobs completion_probabilities token_ids"
    " prompt_token_ids"
)
"""Response fields that repeat the answer in pieces: no detector finds a person in them."""
_ROUNDING = 1e-4


def mean_logprob(values: Iterable[JsonValue]) -> float | None:
    """Return the mean of natural log probabilities; None where one of them is none."""
    listed = list(values)
    found = [
        float(one)
        for one in listed
        if isinstance(one, int | float) and not isinstance(one, bool)
        if math.isfinite(one) and one <= _ROUNDING
    ]
    if not found or len(found) < len(listed):
        return None
    return min(math.fsum(found) / len(found), 0.0)


def without_pieces(value: JsonValue) -> JsonValue:
    """Return response fields without those that repeat the answer in pieces."""
    if isinstance(value, dict):
        return {name: without_pieces(item) for name, item in value.items() if name not in PIECES}
    return [without_pieces(item) for item in value] if isinstance(value, list) else value


def model_call(
    dialect: str,
    exchange: Exchange,
    response: ModelResponse,
    *,
    ext: JsonObject,
    rest: JsonObject,
    hints: tuple[SessionHint, ...] = (),
) -> Call:
    """Return a model call with what every dialect fills in alike.

    Args:
        dialect: its name.
        exchange: what was captured.
        response: what came back.
        ext: request fields without a place.
        rest: response fields without a place; those that repeat the answer in pieces are left out, and so
            is what artefacts added to the question where an answer repeats it: no client wrote that.
        hints: what only this dialect knows of the session.
    """
    unread = _without_block(without_pieces(rest))
    return Call(
        exchange=exchange,
        dialect=dialect,
        kind=CallKind.MODEL,
        streamed=response.streamed,
        hints=(*common_hints(exchange), *hints),
        retry_count=retry_count(exchange),
        error=response.error,
        ext={**ext, "response": unread} if unread else ext,
    )


def _without_blocks(fields: JsonObject) -> JsonObject:
    """Return fields without the blocks of artefacts; what was nothing else is left out."""
    told = {name: _without_block(value) for name, value in fields.items()}
    return {name: value for name, value in told.items() if value != "" or fields[name] == ""}


def _without_block(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return without_blocks(value) if MARK in value else value
    if isinstance(value, list):
        return [_without_block(item) for item in value]
    return _without_blocks(value) if isinstance(value, dict) else value


def with_fields(part: Part, unread: JsonObject) -> list[Part]:
    """Return a part with what else is said of it (a file's name, a picture's detail) as a note."""
    fields: JsonObject = {k: v for k, v in unread.items() if v not in ("", [], {})}
    return [part, OpaquePart({"type": "media_fields", **fields})] if fields else [part]


def call_fields(call_id: str, unread: JsonObject) -> list[Part]:
    """Return a provider's further fields of a tool call or result, as an opaque part."""
    fields: JsonObject = {k: v for k, v in unread.items() if v not in ("", [], {})}
    if not fields:
        return []
    return [OpaquePart({"type": "call_fields", "call_id": call_id, "fields": fields})]


def unread_usage(usage: JsonObject, read: frozenset[str]) -> JsonObject:
    """Return counts without a place that are not zero, in the shape of response fields."""
    rest = _told(without(usage, read))
    return {"usage": rest} if rest else {}


def _told(value: JsonObject) -> JsonObject:
    """Leave out what counts nothing."""
    inner = {k: _told(v) if isinstance(v, dict) else v for k, v in value.items()}
    return {k: v for k, v in inner.items() if v not in (None, 0, "", [], {})}


def assistant(parts: list[Part]) -> Message | None:
    """Return the model's answer; None when nothing came."""
    return same_message(Message("assistant", tuple(parts))) if parts else None


def joined(parts: list[Part]) -> list[Part]:
    """Return the parts with neighbouring texts made one: streams and histories cut them anywhere."""
    out: list[Part] = []
    for part in parts:
        last = out[-1] if out else None
        if isinstance(part, TextPart) and isinstance(last, TextPart):
            out[-1] = TextPart(last.text + part.text)
        elif (
            isinstance(part, ReasoningPart)
            and isinstance(last, ReasoningPart)
            and part.text
            and last.signature is None
        ):
            out[-1] = ReasoningPart(last.text + part.text, part.signature)
        else:
            out.append(part)
    return out


class CallNames:
    """Names for tool calls in dialects that give them none: the tool and how often it was called.

    Calls and results are counted apart, in the order of the conversation. So a result gets the name of
    its call, and a resent history gets the same names again.
    """

    def __init__(self) -> None:
        """Begin before the first message."""
        self._calls: dict[str, int] = {}
        self._results: dict[str, int] = {}

    def call(self, tool: str) -> str:
        """Return the name of the next call of ``tool``."""
        self._calls[tool] = number = self._calls.get(tool, 0) + 1
        return f"{tool}:{number}"

    def result(self, tool: str) -> str:
        """Return the name of the call that the next result of ``tool`` answers."""
        self._results[tool] = number = self._results.get(tool, 0) + 1
        return f"{tool}:{number}"
