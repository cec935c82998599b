"""The HTTP server of the versions that this process holds, in the words of six APIs and behind a key.

Its dialect's reader reads a request, one engine answers it, and the dialect's writer writes the answer. The same
conversation is the same tokens in each dialect. Nothing of what is said here is logged.
"""

import asyncio
import hmac
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from headrace.serving.answer import ServedAnswer
from headrace.serving.request import BadRequestError, ModelRequest, read_model_request
from train.chat_template import TemplateRefusedError
from train.generation import ChatNetwork, ContextFullError, Engine, EngineStoppedError, Generation
from train.types import Token
from trajectory.canonical import JsonObject
from trajectory.dialects.errors import Shape, error_body, shape_of
from trajectory.dialects.wire import as_text
from trajectory.errors import ConfigurationError
from trajectory.http_server import (
    BodiesFullError,
    BodyRoom,
    BodyTooLongError,
    HttpLimits,
    HttpServer,
    client_of,
    read_body,
)
from trajectory.message import Message

_BODY_LIMIT = 64 * 1024 * 1024
_BODIES_LIMIT = 512 * 1024 * 1024
"""Of all bodies that are being read: a thousand clients could else send half of 64 MiB each."""
_KEPT_BYTES = 64 * 1024 * 1024
_SILENT_SECONDS = 600.0
LIMITS = HttpLimits(request_seconds=120, write_seconds=120, waiting=1024, admitted=1024)
"""The gateway keeps connections open between calls, so many of one address wait."""
_ANSWERED = re.compile(
    r"/v1/(?:chat/completions|responses|completions|messages)|/api/(?:chat|generate)"
    r"|/v1(?:beta)?/models/[^/:]+:(?:g|streamG)enerateContent"
)
_KEY_HEADERS = ("x-api-key", "x-goog-api-key")
"""Beside ``authorization``, where the clients of Anthropic and Google put their key."""
_COUNTED = {"/count_tokens": "", "/input_tokens": "", ":countTokens": ":generateContent"}
"""How paths of token counts end, and the path of the request whose tokens are counted."""
_ELSEWHERE = (
    "there are /v1/chat/completions, /v1/responses, /v1/messages, /v1/completions, "
    "/v1beta/models/<model>:generateContent, /api/chat, /api/generate and the lists of models"
)


class _RequestError(Exception):
    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code, self.text = status, code, text


class UnknownResponseError(_RequestError):
    """A request goes on with a response that is not kept, or not any more."""

    def __init__(self) -> None:
        super().__init__(
            400,
            "previous_response_not_found",
            "previous_response_id: no such response is kept here; send the whole conversation",
        )


class ModelServer:
    """Answers for the versions that it is given; ``engines`` may change at any time."""

    def __init__(
        self,
        engines: Mapping[str, Engine[ChatNetwork[Any]]],
        *,
        key: str,
        aliases: Mapping[str, str] | None = None,
        bodies_bytes: int = _BODIES_LIMIT,
    ) -> None:
        """Keep the engines, by label, and the key that clients must present.

        ``aliases`` are further names of versions; answers name the version. ``bodies_bytes`` are held at most of
        the bodies that are being read.

        Raises:
            ConfigurationError: the key is empty, so that who sends none would have it.
        """
        if not key:
            raise ConfigurationError(
                "the models' server needs a key, and secrets/serving.key holds none"
            )
        self._engines = engines
        self._aliases = aliases or {}
        self._key = key.encode()
        self._previous = PreviousResponses()
        self._bodies = BodyRoom(bodies_bytes)

    def listen(self, host: str, port: int) -> HttpServer:
        """Return the server of this application; it answers within its context.

        Raises:
            OSError: the port is taken.
        """
        return HttpServer(self.app(), host=host, port=port, limits=LIMITS)

    def app(self) -> Starlette:
        """Return the application; it is to run in an :class:`HttpServer`."""
        return Starlette(
            routes=[
                Route("/health", self._health),
                Route("/v1/models", self._list),
                Route("/v1beta/models", self._list),
                Route("/api/tags", self._list),
                Route("/{path:path}", self._post, methods=["POST"]),
                Route("/{path:path}", self._elsewhere),
            ],
            exception_handlers={_RequestError: _refused},
        )

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _list(self, request: Request) -> Response:
        self._require_key(request)
        labels = sorted(self._engines)
        return JSONResponse(_LISTS[_shape(request)](labels))

    async def _elsewhere(self, request: Request) -> Response:
        self._require_key(request)
        raise _RequestError(404, "not_found", _ELSEWHERE)

    async def _post(self, request: Request) -> Response:
        self._require_key(request)
        path = _path(request)
        ending = next((one for one in _COUNTED if path.endswith(one)), "")
        if ending:
            path = path.removesuffix(ending) + _COUNTED[ending]
        if not _ANSWERED.fullmatch(path):
            raise _RequestError(404, "not_found", _ELSEWHERE)
        if not client_of(request).admit():
            raise _RequestError(503, "overloaded", "too many requests are under way; ask again")
        with self._bodies.entered() as take:
            body = await _body(request, take)
            # Reading and tokenising a long conversation takes seconds, and others are being answered.
            asked = await asyncio.to_thread(_read, path, request, body)
        asked = replace(asked, model=self._aliases.get(asked.model, asked.model))
        engine = self._engines.get(asked.model)
        if engine is None:
            raise _RequestError(
                404, "model_not_found", "no such version is loaded here (/v1/models)"
            )
        own = asked.context[_instructions(asked) :]
        asked = self._previous.continued(asked)
        prompt = await asyncio.to_thread(_prompt_of, asked, engine)
        if ending:
            return JSONResponse(_COUNTS[_shape(request)](len(prompt)))
        run = _PendingAnswer(asked, own, prompt, engine, self._previous)
        client_of(request).when_gone(run.cancel)
        first = await run.next()
        if first is None:
            raise _RequestError(500, "engine_error", "the engine could not go on")
        if run.content_type is not None:
            return StreamingResponse(run.events(first), media_type=run.content_type)
        return Response(await run.whole(first), media_type="application/json")

    def _require_key(self, request: Request) -> None:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        presented = [bearer, *(request.headers.get(name, "") for name in _KEY_HEADERS)]
        known = [
            hmac.compare_digest(key.encode("utf-8", "replace"), self._key) for key in presented
        ]
        if not any(known):
            raise _RequestError(401, "invalid_api_key", "the key of this server is needed")


class PreviousResponses:
    """Conversations that clients of the responses API go on with by name; the oldest are forgotten."""

    def __init__(self, limit_bytes: int = _KEPT_BYTES) -> None:
        """Keep so many bytes of messages."""
        self._limit = limit_bytes
        self.size = 0
        """Bytes that are kept."""
        self._kept: OrderedDict[str, tuple[str | None, tuple[Message, ...], int]] = OrderedDict()

    def continued(self, asked: ModelRequest) -> ModelRequest:
        """Return the request with the conversation that it goes on with.

        Raises:
            UnknownResponseError: that conversation is not known here.
        """
        name = _previous_of(asked)
        before: list[Message] = []
        while name is not None:
            if name not in self._kept:
                raise UnknownResponseError
            self._kept.move_to_end(name)
            name, messages, _ = self._kept[name]
            before[:0] = messages
        first = _instructions(asked)
        context = (*asked.context[:first], *before, *asked.context[first:])
        return replace(asked, context=context) if before else asked

    def keep(self, asked: ModelRequest, own: tuple[Message, ...], name: str) -> None:
        """Keep what one response adds; its instructions hold for it alone, as the API has it."""
        size = sum(len(message.canonical()) for message in own)
        self._kept[name] = (_previous_of(asked), own, size)
        self.size += size
        while self.size > self._limit:
            _, (_, _, gone) = self._kept.popitem(last=False)
            self.size -= gone


def _previous_of(asked: ModelRequest) -> str | None:
    responses = asked.dialect == "openai.responses"
    return as_text(asked.asked.body.get("previous_response_id")) if responses else None


def _instructions(asked: ModelRequest) -> int:
    """Return how many messages the instructions are."""
    return 1 if as_text(asked.asked.body.get("instructions")) else 0


class _PendingAnswer:
    """One answer on its way from the engine's thread into the server's event loop."""

    def __init__(
        self,
        asked: ModelRequest,
        own: tuple[Message, ...],
        prompt: list[int],
        engine: Engine[ChatNetwork[Any]],
        previous: PreviousResponses,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._tokens: asyncio.Queue[Token | None] = asyncio.Queue()
        self._asked, self._own = asked, own
        self._previous = previous
        self._answer = ServedAnswer(asked, prompt, engine.network.tokenizer)

        def emit(token: Token | None) -> None:
            loop.call_soon_threadsafe(self._tokens.put_nowait, token)

        try:
            self._generation: Generation = engine.submit(prompt, asked.sampling, emit)
        except ContextFullError as error:
            raise _RequestError(400, "context_length_exceeded", str(error)) from None
        except EngineStoppedError:
            text = "this version is being put away; ask again"
            raise _RequestError(503, "overloaded", text) from None

    @property
    def content_type(self) -> str | None:
        """What is streamed; None where the answer is sent whole."""
        return self._answer.content_type

    def _end(self) -> bytes:
        """Return the answer's last bytes; what may be gone on with by name is kept."""
        last, said = self._answer.end()
        if (
            self._asked.dialect == "openai.responses"
            and self._asked.asked.body.get("store") is not False
        ):
            self._previous.keep(self._asked, (*self._own, said), self._answer.response_id)
        return last

    def cancel(self) -> None:
        """End it: nobody waits for the answer any more."""
        self._generation.cancelled = True
        self._tokens.put_nowait(None)

    async def next(self) -> Token | None:
        """Return the next token; None when the engine could not go on, or nobody waits for it."""
        try:
            async with asyncio.timeout(_SILENT_SECONDS):
                return await self._tokens.get()
        except TimeoutError:
            self._generation.cancelled = True
            return None

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
            yield self._end()
        finally:
            self._generation.cancelled = True

    async def whole(self, token: Token | None) -> bytes:
        """Return the whole answer."""
        try:
            while True:
                if token is None:
                    raise _RequestError(500, "engine_error", "the engine could not go on")
                self._answer.take(token)
                if self._answer.is_done:
                    return self._end()
                token = await self.next()
        finally:
            self._generation.cancelled = True


async def _body(request: Request, take: Callable[[int], None]) -> bytes:
    try:
        return await read_body(request, _BODY_LIMIT, take)
    except BodiesFullError:
        raise _RequestError(503, "overloaded", "too many long requests; ask again") from None
    except BodyTooLongError:
        raise _RequestError(413, "bad_request", "a body of at most 64 MiB is taken") from None


def _read(path: str, request: Request, body: bytes) -> ModelRequest:
    headers = tuple((name.lower(), value) for name, value in request.headers.items())
    try:
        return read_model_request(path, request.url.query, headers, body)
    except BadRequestError as error:
        raise _RequestError(400, "bad_request", str(error)) from None


def _prompt_of(asked: ModelRequest, engine: Engine[ChatNetwork[Any]]) -> list[int]:
    tokenizer = engine.network.tokenizer
    try:
        if asked.raw is None:
            return engine.network.masker.prompt_ids(asked.messages, tools=asked.tools)
    except BadRequestError as error:
        raise _RequestError(400, "bad_request", str(error)) from None
    except TemplateRefusedError as error:
        text = f"messages: this model's chat template refuses them ({error})"
        raise _RequestError(400, "bad_request", text) from None
    if isinstance(asked.raw, str):
        # vLLM's word: whether a token that begins every text is added.
        special = asked.asked.body.get("add_special_tokens") is not False
        ids = list(tokenizer(asked.raw, add_special_tokens=special)["input_ids"])
    else:
        ids = list(asked.raw)
    if not ids or not all(0 <= one < len(tokenizer) for one in ids):
        raise _RequestError(
            400, "bad_request", "prompt: at least one token of this model is needed"
        )
    return ids


def _path(request: Request) -> str:
    return str(request.scope["raw_path"].decode("latin-1")).rstrip("/")


def _shape(request: Request) -> Shape:
    path = request.scope["raw_path"]
    if path.startswith(b"/v1beta/"):
        return Shape.GOOGLE
    return shape_of("auto", "model", path, frozenset(name for name, _ in request.scope["headers"]))


def _openai_list(labels: list[str]) -> JsonObject:
    models: list[Any] = [
        {"id": label, "object": "model", "created": 0, "owned_by": "headrace"} for label in labels
    ]
    return {"object": "list", "data": models}


def _anthropic_list(labels: list[str]) -> JsonObject:
    at = "1970-01-01T00:00:00Z"
    models: list[Any] = [
        {"type": "model", "id": label, "display_name": label, "created_at": at} for label in labels
    ]
    ends = {"first_id": labels[0] if labels else None, "last_id": labels[-1] if labels else None}
    return {"data": models, "has_more": False, **ends}


def _google_list(labels: list[str]) -> JsonObject:
    methods: list[Any] = ["generateContent", "countTokens"]
    models: list[Any] = [
        {"name": f"models/{label}", "displayName": label, "supportedGenerationMethods": methods}
        for label in labels
    ]
    return {"models": models}


def _ollama_list(labels: list[str]) -> JsonObject:
    at = "1970-01-01T00:00:00Z"
    models: list[Any] = [
        {"name": label, "model": label, "modified_at": at, "size": 0, "digest": "", "details": {}}
        for label in labels
    ]
    return {"models": models}


_LISTS = {
    Shape.OPENAI: _openai_list,
    Shape.ANTHROPIC: _anthropic_list,
    Shape.GOOGLE: _google_list,
    Shape.OLLAMA: _ollama_list,
}
_COUNTS: dict[Shape, Callable[[int], JsonObject]] = {
    Shape.OPENAI: lambda count: {"object": "response.input_tokens", "input_tokens": count},
    Shape.ANTHROPIC: lambda count: {"input_tokens": count},
    Shape.GOOGLE: lambda count: {"totalTokens": count},
}


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, _RequestError)  # noqa: S101 - registered for it alone
    body = error_body(_shape(request), error.status, error.code, error.text)
    return JSONResponse(body, status_code=error.status)
