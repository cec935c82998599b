"""The replay's HTTP server: it serves one agent on this machine.

The address carries a random word: who does not know it is refused.
"""

import hmac
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any
from urllib.parse import quote

import httpx
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from headrace.replay.replies import ReplayResponse, Replies, problem
from trajectory.http_server import BodyTooLongError, HttpLimits, HttpServer, client_of, read_body

_BODY_LIMIT = 64 * 1024 * 1024
_LIMITS = HttpLimits(request_seconds=600, write_seconds=600, waiting=512, admitted=512)
_MODEL_IN_PATH = re.compile(r"(?<=/models/)[^/:]+(?=:)|(?<=/model/)[^/]+(?=/(?:converse|invoke))")
"""Where Gemini and Bedrock name the model."""
_NOT_FORWARDED = frozenset(
    {"host", "content-length", "connection", "transfer-encoding", "accept-encoding", "keep-alive"}
)
_RETURNED = ("content-type", "mcp-session-id", "retry-after")


@dataclass(frozen=True, slots=True)
class LiveUpstreams:
    """What is not replayed but asked for real."""

    model_upstream: str | None = None
    """Base URL of a model API, without ``/v1`` for Anthropic's and as ``OPENAI_BASE_URL`` is without
    its last ``/v1``."""
    model: str | None = None
    """The model to ask there instead of the one that the agent names."""
    tools_upstream: str | None = None
    """URL of an MCP server."""


@dataclass(slots=True)
class RunningReplay:
    """A running replay."""

    port: int
    word: str = field(repr=False)
    finished: Event
    """Set once everything recorded was asked for, or the run has diverged."""
    calls_upstream: dict[str, int] = field(default_factory=lambda: {"model": 0, "tools": 0})

    @property
    def root(self) -> str:
        """The address, with its secret word."""
        return f"http://127.0.0.1:{self.port}/{self.word}"

    @property
    def environment(self) -> dict[str, str]:
        """What points an agent at the replay."""
        return {
            "OPENAI_BASE_URL": f"{self.root}/v1",
            "ANTHROPIC_BASE_URL": self.root,
            "GOOGLE_GEMINI_BASE_URL": self.root,
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": self.root,
            "OLLAMA_HOST": self.root,
            "HEADRACE_REPLAY_MCP_URL": f"{self.root}/mcp",
        }


@contextmanager
def serving(replies: Replies, live: LiveUpstreams, *, port: int = 0) -> Iterator[RunningReplay]:
    """Serve on the loopback interface until the context ends.

    Raises:
        OSError: the port is taken.
    """
    state = RunningReplay(0, secrets.token_urlsafe(12), Event())
    with httpx.Client(timeout=httpx.Timeout(600, connect=10)) as client:
        app = _ReplayApp(replies, live, state, client)
        with HttpServer(app, port=port, limits=_LIMITS) as server:
            state.port = server.port
            yield state


class _ReplayApp:
    """The ASGI application."""

    def __init__(
        self, replies: Replies, live: LiveUpstreams, state: RunningReplay, client: httpx.Client
    ) -> None:
        self._replies = replies
        self._live = live
        self._state = state
        self._client = client

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Answer one request."""
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = self._path(request)
        if path is None:
            return _sent(problem(401, "this is not the address that the replay printed"))
        client_of(request).admit()
        if request.method == "POST":
            return await self._post(request, path)
        is_tools = path.rstrip("/").endswith("/mcp")
        if request.method == "GET" and path.rstrip("/").endswith("/models"):
            return self._models()
        if request.method == "GET":  # There is no stream of a tool server's own messages.
            return Response(status_code=405 if is_tools else 404)
        return Response(status_code=200 if request.method in ("HEAD", "DELETE") else 405)

    def _path(self, request: Request) -> str | None:
        """Return the path after the secret word, as it was sent; None without the word."""
        _, word, rest = [*request.scope["raw_path"].decode("latin-1").split("/", 2), "", ""][:3]
        known = hmac.compare_digest(word.encode(), self._state.word.encode())
        return "/" + rest if known else None

    def _models(self) -> Response:
        names = {one.answer.model for one in self._replies.player.recording.answers}
        models = [{"id": name, "object": "model"} for name in sorted(names)]
        return Response(json.dumps({"data": models}), media_type="application/json")

    async def _post(self, request: Request, path: str) -> Response:
        """Answer a model or tool request."""
        try:
            body = await read_body(request, _BODY_LIMIT)
        except BodyTooLongError:
            return _sent(problem(413, "a replay takes bodies of at most 64 MiB"))
        query = request.url.query
        headers = tuple((name.lower(), value) for name, value in request.headers.items())
        if path.rstrip("/").endswith("/mcp"):
            if self._live.tools_upstream is not None:
                response = await self._forward("tools", self._live.tools_upstream, request, body)
            else:
                response = _sent(await run_in_threadpool(self._replies.tools, body))
        elif self._live.model_upstream is not None:
            path = f"{path}?{query}" if query else path
            if self._live.model is not None:
                path, body = _with_model(path, body, self._live.model)
            url = self._live.model_upstream.rstrip("/") + path
            response = await self._forward("model", url, request, body)
        else:
            response = _sent(
                await run_in_threadpool(self._replies.model, path, query, headers, body)
            )
        response.background = BackgroundTask(self._finish)
        return response

    async def _forward(self, kind: str, url: str, request: Request, body: bytes) -> Response:
        """Ask for real, and pass the answer on as it comes."""
        self._state.calls_upstream[kind] += 1
        headers = [
            (name, value) for name, value in request.headers.items() if name not in _NOT_FORWARDED
        ]
        asked = self._client.build_request("POST", url, headers=headers, content=body)
        try:
            answer = await run_in_threadpool(self._client.send, asked, stream=True)
        except httpx.TransportError:
            return _sent(problem(502, f"nobody answers at the {kind} upstream"))
        returned = {name: answer.headers[name] for name in _RETURNED if name in answer.headers}
        return StreamingResponse(_pieces(answer), answer.status_code, returned)

    def _finish(self) -> None:
        player = self._replies.player
        if self._live.model_upstream is None and (player.complete or player.diverged):
            self._state.finished.set()


def _sent(response: ReplayResponse) -> Response:
    """Return what goes back; an answer in several pieces is streamed."""
    headers = dict(response.headers)
    if response.pieces:
        headers["content-type"] = response.content_type
    if len(response.pieces) > 1:
        return StreamingResponse(iter(response.pieces), response.status, headers)
    return Response(b"".join(response.pieces), response.status, headers)


def _pieces(answer: httpx.Response) -> Iterator[bytes]:
    try:
        yield from answer.iter_bytes()
    finally:
        answer.close()


def _with_model(path: str, body: bytes, model: str) -> tuple[str, bytes]:
    """Return a request to another model: it is named in the path, else in the body."""
    changed, found = _MODEL_IN_PATH.subn(lambda _: quote(model, safe=""), path, count=1)
    if found:
        return changed, body
    try:
        value = json.loads(body)
    except ValueError:
        return path, body
    return path, json.dumps({**value, "model": model}).encode() if isinstance(value, dict) else body
