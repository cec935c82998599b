"""The HTTP server of the versions that this process holds: OpenAI's wire format, behind a key.

Nothing of what is said here is logged.
"""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from headrace.serving.chat import BadRequestError, ChatAnswer, ChatRequest, read_request
from train.chat_template import TemplateRefusedError
from train.generation import ContextFullError, Engine, EngineStoppedError, Generation, LanguageModel
from train.types import Token
from trajectory.dialects.openai_chat.write import error_body
from trajectory.http_server import BodyTooLongError, HttpLimits, HttpServer, client_of, read_body

_BODY_LIMIT = 64 * 1024 * 1024
_SILENT_SECONDS = 600.0
_LIMITS = HttpLimits(request_seconds=120, write_seconds=120, waiting=1024, admitted=1024)
"""The gateway keeps connections open between calls, so many of one address wait."""


class _RequestError(Exception):
    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code, self.text = status, code, text


class ModelServer:
    """Answers for the versions that it is given; ``engines`` may change at any time."""

    def __init__(self, engines: Mapping[str, Engine[LanguageModel]], *, key: str) -> None:
        """Keep the engines, by label, and the key that clients must present."""
        self._engines = engines
        self._key = key.encode()

    def listen(self, host: str, port: int) -> HttpServer:
        """Return the server of this application; it answers within its context.

        Raises:
            OSError: the port is taken.
        """
        app = Starlette(
            routes=[
                Route("/health", self._health),
                Route("/v1/models", self._list),
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
                Route("/{path:path}", self._elsewhere, methods=["GET", "POST"]),
            ],
            exception_handlers={_RequestError: _refused},
        )
        return HttpServer(app, host=host, port=port, limits=_LIMITS)

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _list(self, request: Request) -> Response:
        self._require_key(request)
        data = [
            {"id": label, "object": "model", "created": 0, "owned_by": "headrace"}
            for label in sorted(self._engines)
        ]
        return JSONResponse({"object": "list", "data": data})

    async def _elsewhere(self, request: Request) -> Response:
        self._require_key(request)
        raise _RequestError(404, "not_found", "there is /v1/models and /v1/chat/completions")

    async def _complete(self, request: Request) -> Response:
        self._require_key(request)
        if not client_of(request).admit():
            raise _RequestError(503, "overloaded", "too many requests are under way; ask again")
        # Reading and tokenising a long conversation takes seconds, and others are being answered.
        chat = await asyncio.to_thread(_read, await _body(request))
        engine = self._engines.get(chat.model)
        if engine is None:
            raise _RequestError(
                404, "model_not_found", "no such version is loaded here (/v1/models)"
            )
        prompt = await asyncio.to_thread(_prompt_of, chat, engine)
        run = _PendingAnswer(chat, prompt, engine)
        first = await run.next()
        if first is None:
            raise _RequestError(500, "engine_error", "the engine could not go on")
        if chat.stream:
            return StreamingResponse(run.events(first), media_type="text/event-stream")
        return Response(await run.whole(first, request), media_type="application/json")

    def _require_key(self, request: Request) -> None:
        presented = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(presented.encode("utf-8", "replace"), self._key):
            raise _RequestError(401, "invalid_api_key", "the key of this server is needed")


class _PendingAnswer:
    """One answer on its way from the engine's thread into the server's event loop."""

    def __init__(self, chat: ChatRequest, prompt: list[int], engine: Engine[LanguageModel]) -> None:
        loop = asyncio.get_running_loop()
        self._tokens: asyncio.Queue[Token | None] = asyncio.Queue()
        self._answer = ChatAnswer(chat, prompt, engine.network.tokenizer)

        def emit(token: Token | None) -> None:
            loop.call_soon_threadsafe(self._tokens.put_nowait, token)

        try:
            self._generation: Generation = engine.submit(prompt, chat.sampling, emit)
        except ContextFullError as error:
            raise _RequestError(400, "context_length_exceeded", str(error)) from None
        except EngineStoppedError:
            text = "this version is being put away; ask again"
            raise _RequestError(503, "overloaded", text) from None

    async def next(self) -> Token | None:
        """Return the next token; None when the engine could not go on."""
        async with asyncio.timeout(_SILENT_SECONDS):
            return await self._tokens.get()

    async def events(self, token: Token | None) -> AsyncIterator[bytes]:
        """Give the chunks of a stream; one that breaks off must not look whole."""
        try:
            while True:
                if token is None:
                    raise ConnectionAbortedError("generation failed")
                if chunks := self._answer.take(token):
                    yield chunks
                if self._answer.is_done:
                    break
                token = await self.next()
            yield self._answer.end()
        finally:
            self._generation.cancelled = True

    async def whole(self, token: Token | None, request: Request) -> bytes:
        """Return the whole answer; a client that went away ends it."""
        client = client_of(request)
        try:
            while True:
                if token is None:
                    raise _RequestError(500, "engine_error", "the engine could not go on")
                self._answer.take(token)
                if self._answer.is_done or client.is_gone:
                    return self._answer.whole()
                token = await self.next()
        finally:
            self._generation.cancelled = True


async def _body(request: Request) -> bytes:
    try:
        return await read_body(request, _BODY_LIMIT)
    except BodyTooLongError:
        raise _RequestError(413, "bad_request", "a body of at most 64 MiB is taken") from None


def _read(data: bytes) -> ChatRequest:
    try:
        body: Any = json.loads(data)
        return read_request(body)
    except BadRequestError as error:
        raise _RequestError(400, "bad_request", str(error)) from None
    except (ValueError, RecursionError):
        raise _RequestError(400, "bad_request", "the body is not JSON") from None


def _prompt_of(chat: ChatRequest, engine: Engine[LanguageModel]) -> list[int]:
    try:
        return engine.network.masker.prompt_ids(chat.messages, tools=chat.tools)
    except TemplateRefusedError as error:
        text = f"messages: this model's chat template refuses them ({error})"
        raise _RequestError(400, "bad_request", text) from None


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, _RequestError)  # noqa: S101 - registered for it alone
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return JSONResponse(error_body(kind, error.text, error.code), status_code=error.status)
