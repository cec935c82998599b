"""The replay's HTTP server, on the standard library: it serves one agent on this machine.

A server framework would be one more thing that a deployed installation needs; one agent's calls
are few, each in a thread, and streams are written piece by piece. The address carries a random
word: who does not know it is refused.
"""

import hmac
import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import quote

import httpx

from headrace.replay.answering import Replies, Response, problem

_BODY_LIMIT = 64 * 1024 * 1024
_MODEL_IN_PATH = re.compile(r"(?<=/models/)[^/:]+(?=:)|(?<=/model/)[^/]+(?=/(?:converse|invoke))")
"""Where Gemini and Bedrock name the model."""
_HOP_BY_HOP = frozenset(
    {"host", "content-length", "connection", "transfer-encoding", "accept-encoding", "keep-alive"}
)


@dataclass(frozen=True, slots=True)
class Live:
    """What is not replayed but asked for real."""

    model_upstream: str | None = None
    """Base URL of a model API, without ``/v1`` for Anthropic's and as ``OPENAI_BASE_URL`` is without
    its last ``/v1``."""
    model: str | None = None
    """The model to ask there instead of the one that the agent names."""
    tools_upstream: str | None = None
    """URL of an MCP server."""


@dataclass(slots=True)
class Serving:
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
def serving(replies: Replies, live: Live, *, port: int = 0) -> Iterator[Serving]:
    """Serve on the loopback interface until the context ends."""
    state = Serving(0, secrets.token_urlsafe(12), Event())
    with httpx.Client(timeout=httpx.Timeout(600, connect=10)) as client:
        handler = type("Handler", (_Handler,), {"parts": (replies, live, state, client)})
        server = _Server(("127.0.0.1", port), handler)
        state.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join(5)
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: an agent that hangs up is no fault, and a traceback could hold content."""


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "headrace-replay"
    parts: tuple[Replies, Live, Serving, httpx.Client]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Keep quiet: paths hold the secret word."""

    def do_POST(self) -> None:
        """Answer a model or tool request."""
        replies, live, _, _ = self.parts
        body, path = self._body(), self._path()
        if path is None or body is None:
            return
        if path.rstrip("/").endswith("/mcp"):
            if live.tools_upstream is not None:
                self._forward("tools", live.tools_upstream, body)
            else:
                self._send(replies.tools(body))
        elif live.model_upstream is not None:
            if live.model is not None:
                path, body = _with_model(path, body, live.model)
            self._forward("model", live.model_upstream.rstrip("/") + path, body)
        else:
            headers = tuple((name.lower(), value) for name, value in self.headers.items())
            path, _, query = path.partition("?")
            self._send(replies.model(path, query, headers, body))
        self._look()

    def do_GET(self) -> None:
        """List the recorded models; there is no stream of a tool server's own messages."""
        path = self._path()
        if path is None:
            return
        if path.rstrip("/").endswith("/models"):
            names = {one.answer.model for one in self.parts[0].player.recording.answers}
            models = [{"id": name, "object": "model"} for name in sorted(names)]
            self._send(Response(200, pieces=(json.dumps({"data": models}).encode(),)))
        else:
            self._send(Response(405 if path.rstrip("/").endswith("/mcp") else 404))

    def do_DELETE(self) -> None:
        """End a tool session."""
        if self._path() is not None:
            self._send(Response(200))

    def do_HEAD(self) -> None:
        """Say that somebody is here."""
        if self._path() is not None:
            self._send(Response(200))

    def _path(self) -> str | None:
        """Return the path after the secret word; refuse who does not know it."""
        _, word, rest = [*self.path.split("/", 2), "", ""][:3]
        if not hmac.compare_digest(word.encode(), self.parts[2].word.encode()):
            self._send(problem(401, "this is not the address that the replay printed"))
            return None
        return "/" + rest

    def _body(self) -> bytes | None:
        size = self.headers.get("content-length", "")
        if not size.isdigit() or int(size) > _BODY_LIMIT:
            self.close_connection = True
            self._send(problem(411, "a replay needs a Content-Length of at most 64 MiB"))
            return None
        return self.rfile.read(int(size))

    def _send(self, response: Response) -> None:
        self.send_response_only(response.status, HTTPStatus(response.status).phrase)
        if response.pieces:
            self.send_header("Content-Type", response.content_type)
        for name, value in response.headers:
            self.send_header(name, value)
        if len(response.pieces) > 1:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(sum(map(len, response.pieces))))
        self.end_headers()
        if self.command == "HEAD":
            return
        for piece in response.pieces:
            self._write(piece, chunked=len(response.pieces) > 1)
        if len(response.pieces) > 1:
            self.wfile.write(b"0\r\n\r\n")

    def _write(self, piece: bytes, *, chunked: bool) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        self.wfile.flush()

    def _forward(self, kind: str, url: str, body: bytes) -> None:
        """Ask for real, and pass the answer on as it comes."""
        _, _, state, client = self.parts
        state.calls_upstream[kind] += 1
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP
        }
        try:
            with client.stream("POST", url, headers=headers, content=body) as answer:
                self.send_response_only(answer.status_code, answer.reason_phrase)
                for name in ("content-type", "mcp-session-id", "retry-after"):
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for piece in answer.iter_bytes():
                    if piece:
                        self._write(piece, chunked=True)
                self.wfile.write(b"0\r\n\r\n")
        except httpx.ConnectError:
            self._send(problem(502, f"nobody answers at the {kind} upstream"))

    def _look(self) -> None:
        replies, live, state, _ = self.parts
        player = replies.player
        if live.model_upstream is None and (player.complete or player.diverged):
            state.finished.set()


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
