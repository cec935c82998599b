"""A provider that follows a script for agents and keeps the truth.

It recognises a session by a marker in the user's text where there is one, else by the ids of the
tool calls that it gave to it or by the response that a client names; a conversation without any
of these is a new one. Nobody tells the gateway.
"""

import itertools
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.provider.answer import Answer, ToolUse, named_sse
from tests.support.provider.anthropic import message, message_events
from tests.support.provider.openai import (
    chat_completion,
    chat_stream,
    response_events,
    response_object,
)
from tests.support.upstream import ReceivedRequest, Reply, as_json, plain, stream

_CALL_ID = re.compile(r"(?:call|toolu)_[0-9a-f]{24}")
_ON_THE_WAY = ("agent", "compaction")
"""Roles of the answers that a conversation goes on from."""
MARKER = re.compile(r"\btask (\d+)\b")


@dataclass(frozen=True)
class ModelRequest:
    """What a script knows of a request, in one shape for all dialects."""

    system: str
    said: tuple[str, ...]
    """The user's texts, in order."""
    turns: int
    """Turns of the model in the conversation as sent."""
    call_ids: tuple[str, ...]
    """Of all tool calls in the conversation."""
    tools: tuple[str, ...]
    previous: str | None
    body: dict[str, Any]


@dataclass(frozen=True)
class ModelTurn:
    """What the script has the model say."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Name and arguments of each tool call."""
    role: str = "agent"
    thread: str = ""
    """Another conversation of the same session, such as a sub-agent's."""
    fail: bool = False
    """Answer the first attempt with an error that SDKs repeat."""
    tokens: int = 20
    """How long the prompt was, as the answer says."""


@dataclass
class TrueAnswer:
    """One answer, as the truth has it."""

    response_id: str
    parent: str | None
    """The response that the session's conversation went on from."""
    role: str
    thread: str
    calls: tuple[tuple[str, dict[str, Any]], ...]


@dataclass
class Session:
    """One agent's session."""

    number: int
    said: list[TrueAnswer] = field(default_factory=list)
    failures: int = 0

    @property
    def turns(self) -> int:
        """Answers of the agent itself."""
        return sum((one.role, one.thread) == ("agent", "") for one in self.said)


type Script = Callable[[Session, ModelRequest], ModelTurn]


class SessionProvider:
    """Speaks chat completions, responses and messages; whole and streamed. A script of ``Upstream``."""

    def __init__(self, script: Script, *, seed: int = 0, pause: float = 0.02) -> None:
        self._script = script
        self._dice = random.Random(seed)  # noqa: S311 - a script, not a secret
        self._pause = pause
        self._numbers = itertools.count()
        self.sessions: list[Session] = []
        self._by_call: dict[str, Session] = {}
        self._by_response: dict[str, Session] = {}
        self._by_marker: dict[str, Session] = {}
        self._failed: set[bytes] = set()
        self.unknown: list[str] = []
        """Requests outside the script."""

    def __call__(self, request: ReceivedRequest) -> Reply:
        """Answer one request, after a while."""
        path = request.target.partition("?")[0]
        wire = _WIRES.get(path) if request.method == "POST" else None
        if wire is None:
            self.unknown.append(f"{request.method} {path}")
            return plain(404, b"")
        reply = self._answer(wire, request.body)
        return Reply([self._dice.uniform(0, self._pause), *reply.pieces])

    def _answer(self, wire: "_Wire", data: bytes) -> Reply:
        request = wire.read(json.loads(data))
        session = self._session(request)
        turn = self._script(session, request)
        if turn.fail and data not in self._failed:
            self._failed.add(data)
            session.failures += 1
            error = {"type": "server_error", "message": "overloaded, try again"}
            return as_json({"type": "error", "error": error}, 500)
        answer = self._say(session, turn, wire, str(request.body.get("model")))
        return wire.write(answer, bool(request.body.get("stream")))

    def _name(self, prefix: str) -> str:
        """Return an identifier such as providers give: it tells nothing of the session."""
        return f"{prefix}{self._dice.getrandbits(96):024x}"

    def _session(self, request: ModelRequest) -> Session:
        given = request.body.get("messages") or request.body.get("input")
        names = (*request.call_ids, *_CALL_ID.findall(json.dumps(given)))
        known = [self._by_call[name] for name in names if name in self._by_call]
        if request.previous is not None:
            known = [self._by_response[request.previous]]
        markers = [name for text in request.said for name in MARKER.findall(text)]
        marker = markers[-1] if markers else None
        if marker is not None:
            known = [self._by_marker[marker]] if marker in self._by_marker else []
        if known:
            return known[-1]
        session = Session(next(self._numbers))
        self.sessions.append(session)
        if marker is not None:
            self._by_marker[marker] = session
        return session

    def _say(self, session: Session, turn: ModelTurn, wire: "_Wire", model: str) -> Answer:
        uses = [ToolUse(self._name(wire.call_prefix), *call) for call in turn.calls]
        for use in uses:
            self._by_call[use.call_id] = session
        name = self._name(wire.response_prefix)
        self._by_response[name] = session
        before = [
            one.response_id
            for one in session.said
            if one.thread == turn.thread and one.role in _ON_THE_WAY
        ]
        parent = before[-1] if before and turn.role in _ON_THE_WAY else None
        session.said.append(TrueAnswer(name, parent, turn.role, turn.thread, turn.calls))
        usage = (turn.tokens, 10)
        return Answer(name, turn.text, tuple(uses), model, usage, items=self._name(""))


@dataclass(frozen=True)
class _Wire:
    """One wire format: how its requests are read and its answers are written."""

    response_prefix: str
    call_prefix: str
    read: Callable[[dict[str, Any]], ModelRequest]
    write: Callable[[Answer, bool], Reply]


def _chat(body: dict[str, Any]) -> ModelRequest:
    messages = body["messages"]
    return ModelRequest(
        " ".join(_text(m["content"]) for m in messages if m["role"] in ("system", "developer")),
        tuple(_text(m["content"]) for m in messages if m["role"] == "user"),
        sum(m["role"] == "assistant" for m in messages),
        tuple(call["id"] for m in messages for call in m.get("tool_calls") or ()),
        tuple(tool["function"]["name"] for tool in body.get("tools") or ()),
        None,
        body,
    )


def _responses(body: dict[str, Any]) -> ModelRequest:
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    calls = [item for item in items if item.get("type") == "function_call"]
    return ModelRequest(
        body.get("instructions") or "",
        tuple(_text(item["content"]) for item in items if item.get("role") == "user"),
        len(calls) + sum(item.get("role") == "assistant" for item in items),
        tuple(call["call_id"] for call in calls),
        tuple(tool.get("name", tool["type"]) for tool in body.get("tools") or ()),
        body.get("previous_response_id"),
        body,
    )


def _messages(body: dict[str, Any]) -> ModelRequest:
    messages = body["messages"]
    blocks = [block for m in messages if isinstance(m["content"], list) for block in m["content"]]
    return ModelRequest(
        _text(body.get("system") or ""),
        tuple(_text(m["content"]) for m in messages if m["role"] == "user"),
        sum(m["role"] == "assistant" for m in messages),
        tuple(block["id"] for block in blocks if block["type"] == "tool_use"),
        tuple(tool["name"] for tool in body.get("tools") or ()),
        None,
        body,
    )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [part.get("text", "") for part in content if isinstance(part, dict)]
    return "\n".join(part for part in parts if isinstance(part, str))


def _write_chat(answer: Answer, streamed: bool) -> Reply:
    return chat_stream(answer) if streamed else as_json(chat_completion(answer))


def _write_response(answer: Answer, streamed: bool) -> Reply:
    whole = response_object(answer)
    return stream(named_sse(response_events(whole))) if streamed else as_json(whole)


def _write_message(answer: Answer, streamed: bool) -> Reply:
    return stream(named_sse(message_events(answer))) if streamed else as_json(message(answer))


_WIRES = {
    "/v1/chat/completions": _Wire("chatcmpl-", "call_", _chat, _write_chat),
    "/v1/responses": _Wire("resp_", "call_", _responses, _write_response),
    "/v1/messages": _Wire("msg_", "toolu_", _messages, _write_message),
}
