"""The HTTP door of the transformers engine: OpenAI's wire format, streamed and not, behind a key.

On the standard library: generation costs far more than threads do, and a server framework would be
one more thing that an installation needs. Nothing of what is said here is logged.
"""

import hmac
import json
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headrace.serving.chat import Ask, BadRequestError, Writer, read_ask
from headrace.serving.engine import (
    ContextFullError,
    Engine,
    EngineStoppedError,
    Token,
)
from train.chat_template import TemplateRefusedError

_BODY_LIMIT = 64 * 1024 * 1024
_SILENT_SECONDS = 600.0


class Door:
    """Answers for the versions that it is given; ``engines`` may change at any time."""

    def __init__(self, engines: Mapping[str, Engine], *, key: str) -> None:
        """Keep the engines, by label, and the key that clients must present."""
        self.engines = engines
        self._key = key.encode()

    def knows(self, presented: str) -> bool:
        """Tell whether a bearer token is the key."""
        return hmac.compare_digest(presented.encode("utf-8", "replace"), self._key)


@contextmanager
def opened(door: Door, host: str, port: int) -> Iterator[int]:
    """Listen until the context ends; give the port.

    Raises:
        OSError: the port is taken.
    """
    handler = type("Handler", (_Handler,), {"door": door})
    server = _Server((host, port), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join(5)
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that hangs up is no fault, and a traceback could hold content."""


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "headrace-serve"
    door: Door

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Keep quiet."""

    def do_GET(self) -> None:
        """List the versions, or say that somebody is here."""
        if self.path == "/health":
            self._send(200, b'{"status":"ok"}')
        elif self._allowed():
            if self.path.partition("?")[0] != "/v1/models":
                self._problem(404, "not_found", "there is /v1/models and /v1/chat/completions")
                return
            data = [
                {"id": label, "object": "model", "created": 0, "owned_by": "headrace"}
                for label in sorted(self.door.engines)
            ]
            self._send(200, json.dumps({"object": "list", "data": data}).encode())

    def do_POST(self) -> None:
        """Answer a chat completion."""
        size = self.headers.get("content-length", "")
        if not size.isdigit() or int(size) > _BODY_LIMIT:
            self.close_connection = True
            self._problem(411, "bad_request", "a Content-Length of at most 64 MiB is needed")
            return
        body = self.rfile.read(int(size))
        if not self._allowed():
            return
        if self.path.partition("?")[0] != "/v1/chat/completions":
            self._problem(404, "not_found", "there is /v1/models and /v1/chat/completions")
            return
        try:
            ask = read_ask(json.loads(body))
            self._answer(ask)
        except (BadRequestError, ContextFullError) as error:
            full = isinstance(error, ContextFullError)
            self._problem(400, "context_length_exceeded" if full else "bad_request", str(error))
        except (ValueError, RecursionError):
            self._problem(400, "bad_request", "the body is not JSON")

    def _answer(self, ask: Ask) -> None:
        engine = self.door.engines.get(ask.model)
        if engine is None:
            self._problem(404, "model_not_found", "no such version is loaded here (/v1/models)")
            return
        prompt = _prompt(engine, ask)
        writer = Writer(ask, ask.model, prompt, engine.tokenizer)
        tokens: queue.SimpleQueue[Token | None] = queue.SimpleQueue()
        try:
            generation = engine.submit(prompt, ask.sampling, tokens.put)
        except EngineStoppedError:
            self._problem(503, "overloaded", "this version is being put away; ask again")
            return
        try:
            if ask.stream:
                self._stream(writer, tokens)
            else:
                self._whole(writer, tokens)
        finally:
            generation.cancelled = True

    def _whole(self, writer: Writer, tokens: "queue.SimpleQueue[Token | None]") -> None:
        while not writer.done:
            token = tokens.get(timeout=_SILENT_SECONDS)
            if token is None:
                self._problem(500, "engine_error", "the engine could not go on")
                return
            writer.take(token)
        self._send(200, writer.whole())

    def _stream(self, writer: Writer, tokens: "queue.SimpleQueue[Token | None]") -> None:
        token = tokens.get(timeout=_SILENT_SECONDS)
        if token is None:
            self._problem(500, "engine_error", "the engine could not go on")
            return
        self.send_response_only(200, "OK")
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while token is not None:
            self._write(writer.take(token))
            if writer.done:
                self._write(writer.end())
                self.wfile.write(b"0\r\n\r\n")
                return
            token = tokens.get(timeout=_SILENT_SECONDS)
        self.close_connection = True  # a stream that breaks off must not look whole

    def _write(self, data: bytes) -> None:
        if data:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

    def _allowed(self) -> bool:
        if self.door.knows(self.headers.get("authorization", "").removeprefix("Bearer ")):
            return True
        self._problem(401, "invalid_api_key", "the key of this server is needed")
        return False

    def _problem(self, status: int, code: str, text: str) -> None:
        kind = "invalid_request_error" if status < 500 else "server_error"
        error = {"message": text, "type": kind, "param": None, "code": code}
        self._send(status, json.dumps({"error": error}).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response_only(status, HTTPStatus(status).phrase)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _prompt(engine: Engine, ask: Ask) -> list[int]:
    try:
        return engine.masker.prompt_ids(ask.messages, tools=ask.tools)
    except TemplateRefusedError as error:
        raise BadRequestError(
            f"messages: this model's chat template refuses them ({error})"
        ) from None
