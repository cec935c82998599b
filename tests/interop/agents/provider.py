"""The far side of the agents' tests: a provider that follows a script and keeps the truth.

It recognises a session by a marker in the user's text where there is one, else by the ids of the
tool calls that it gave to it or by the response that a client names; a conversation without any
of these is a new one. Nobody tells the gateway.
"""

import asyncio
import itertools
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.interop.agents.wire import Asked, read
from trajectory.call import Usage
from trajectory.dialects.registry import write_answer
from trajectory.dialects.writing import ModelAnswer
from trajectory.message import Message, Part, TextPart, ToolCallPart

_CALL_ID = re.compile(r"(?:call|toolu)_[0-9a-f]{24}")
_ON_THE_WAY = ("agent", "compaction")
"""Roles of the answers that a conversation goes on from."""
MARKER = re.compile(r"\btask (\d+)\b")


@dataclass(frozen=True)
class Reply:
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
class Said:
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
    said: list[Said] = field(default_factory=list)
    failures: int = 0

    @property
    def turns(self) -> int:
        """Answers of the agent itself."""
        return sum((one.role, one.thread) == ("agent", "") for one in self.said)


type Script = Callable[[Session, Asked], Reply]


class Provider:
    """Speaks chat completions, responses and messages; whole and streamed."""

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

    def app(self) -> Starlette:
        """Return the ASGI app."""

        def route(path: str, dialect: str) -> Route:
            async def answer(request: Request) -> Response:
                return await self._answer(dialect, request)

            return Route(path, answer, methods=["POST"])

        async def other(request: Request) -> Response:
            self.unknown.append(f"{request.method} {request.url.path}")
            return JSONResponse({"error": {"message": "no such thing"}}, status_code=404)

        return Starlette(
            routes=[
                route("/v1/chat/completions", "chat"),
                route("/v1/responses", "responses"),
                route("/v1/messages", "messages"),
                Route("/{rest:path}", other, methods=["GET", "POST", "HEAD", "DELETE"]),
            ]
        )

    def name(self, prefix: str) -> str:
        """Return an identifier such as providers give: it tells nothing of the session."""
        return f"{prefix}{self._dice.getrandbits(96):024x}"

    async def _answer(self, dialect: str, request: Request) -> Response:
        data = await request.body()
        asked = read(dialect, await request.json())
        await asyncio.sleep(self._dice.uniform(0, self._pause))
        session = self._session(asked)
        reply = self._script(session, asked)
        if reply.fail and data not in self._failed:
            self._failed.add(data)
            session.failures += 1
            error = {"type": "server_error", "message": "overloaded, try again"}
            return JSONResponse({"type": "error", "error": error}, status_code=500)
        return self._say(session, asked, reply)

    def _session(self, asked: Asked) -> Session:
        given = asked.body.get("messages") or asked.body.get("input")
        names = (*asked.call_ids, *_CALL_ID.findall(json.dumps(given)))
        known = [self._by_call[name] for name in names if name in self._by_call]
        if asked.previous is not None:
            known = [self._by_response[asked.previous]]
        markers = [name for text in asked.said for name in MARKER.findall(text)]
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

    def _say(self, session: Session, asked: Asked, reply: Reply) -> Response:
        prefixes = {"openai.chat": ("chatcmpl-", "call_"), "openai.responses": ("resp_", "call_")}
        response_prefix, call_prefix = prefixes.get(asked.dialect, ("msg_", "toolu_"))
        parts: list[Part] = [TextPart(reply.text)] if reply.text else []
        for name, values in reply.calls:
            call = ToolCallPart(self.name(call_prefix), name, values)
            self._by_call[call.call_id] = session
            parts.append(call)
        response_id = self.name(response_prefix)
        self._by_response[response_id] = session
        before = [
            one.response_id
            for one in session.said
            if one.thread == reply.thread and one.role in _ON_THE_WAY
        ]
        parent = before[-1] if before and reply.role in _ON_THE_WAY else None
        session.said.append(Said(response_id, parent, reply.role, reply.thread, reply.calls))
        answer = ModelAnswer(
            Message("assistant", tuple(parts)),
            response_id,
            str(asked.body.get("model")),
            usage=Usage(reply.tokens, 10),
            created=1_760_000_000,
        )
        wire = write_answer(asked.dialect, answer, asked.body)
        if len(wire.pieces) == 1:
            return Response(wire.pieces[0], media_type=wire.content_type)
        return StreamingResponse(iter(wire.pieces), media_type=wire.content_type)
