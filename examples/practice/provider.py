"""A model provider in small: a real HTTP(S) server in front of the practice model.

``python -m examples.practice.provider --port N (--models-dir DIR | --model PATH)``. It speaks
OpenAI chat completions and responses and Anthropic messages, streamed and not, checks its own key
(environment variable PRACTICE_PROVIDER_KEY) and can be told to fail in a share of its answers.
"""

import argparse
import asyncio
import hmac
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from examples.practice.loaded_models import LoadedModel, ModelLoader
from examples.practice.serving import Listener, serve
from examples.practice.tokenizer import render
from examples.practice.turns import TurnReader
from examples.practice.wire import (
    AnthropicMessages,
    CompletionRequest,
    Dialect,
    OpenAIChat,
    OpenAIResponses,
    WireError,
)
from train.chat import to_tools
from train.generation import EngineStoppedError, Generation
from train.types import Token
from trajectory.call import Usage
from trajectory.dialects.writer import (
    AnswerStream,
    ModelAnswer,
    Piece,
    SampledToken,
    json_bytes,
    new_id,
)
from trajectory.message import Message

KEY_VARIABLE = "PRACTICE_PROVIDER_KEY"
_FAULTS = ("error", "cut", "malformed")


class Provider:
    """The provider's state and its handlers."""

    def __init__(
        self, models: ModelLoader, *, key: str, faults: float = 0.0, seed: int = 0
    ) -> None:
        self._models = models
        self._key = key.encode()
        self._faults = faults
        self._draw = random.Random(seed)  # noqa: S311 - which requests fail, not secret
        self.received: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()

    def app(self) -> Starlette:
        """Return the ASGI app."""
        dialects: dict[str, Dialect] = {
            "/v1/chat/completions": OpenAIChat(),
            "/v1/responses": OpenAIResponses(),
            "/v1/messages": AnthropicMessages(),
        }
        routes = [
            Route(path, self._handler(dialect), methods=["POST"])
            for path, dialect in dialects.items()
        ]
        routes.append(Route("/v1/models", self._list, methods=["GET"]))
        routes.append(Route("/stats", self._stats, methods=["GET"]))
        return Starlette(routes=routes, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        yield
        self._models.stop()

    def _handler(self, dialect: Dialect) -> Any:
        async def handle(request: Request) -> Response:
            self.received[dialect.name] += 1
            try:
                self._authenticate(request)
                return await self._answer(dialect, await _body(request))
            except WireError as error:
                return JSONResponse(dialect.error(error), status_code=error.status)

        return handle

    def _authenticate(self, request: Request) -> None:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = request.headers.get("x-api-key") or bearer
        if not hmac.compare_digest(given.encode(), self._key):
            self.received["unauthorized"] += 1
            message = "Incorrect API key provided."
            raise WireError(401, "authentication_error", message, code="invalid_api_key")

    async def _answer(self, dialect: Dialect, body: dict[str, Any]) -> Response:
        ask = _read(dialect, body)
        fault = self._fault()
        if fault == "error":
            message = "The server had an error while processing your request."
            raise WireError(500, "api_error", message)
        run = await self._begin(ask, dialect)
        self.answered[run.label] += 1
        if ask.stream:
            events = _events(run, dialect, cut=fault is not None)
            return StreamingResponse(events, media_type="text/event-stream")
        async for _token, _pieces in run.tokens():
            pass
        text = json_bytes(dialect.whole(run.answer(), ask))
        dialect.answered(run.answer(), ask)
        if fault == "malformed":
            text = text[: len(text) // 2]
        if fault == "cut":
            return StreamingResponse(_half(text), media_type="application/json")
        return Response(text, media_type="application/json")

    async def _begin(self, ask: CompletionRequest, dialect: Dialect) -> "_Run":
        """Begin an answer; a version that stops to serve in this moment is followed by the next."""
        while True:
            served = await asyncio.to_thread(self._models.find, ask.model)
            try:
                return _Run(ask, served, dialect)
            except EngineStoppedError:
                continue

    def _fault(self) -> str | None:
        if self._draw.random() >= self._faults:
            return None
        fault = self._draw.choice(_FAULTS)
        self.faults[fault] += 1
        return fault

    async def _list(self, request: Request) -> Response:
        self.received["models"] += 1
        try:
            self._authenticate(request)
        except WireError as error:
            return JSONResponse(OpenAIChat().error(error), status_code=error.status)
        data = [
            {"id": name, "object": "model", "created": 0, "owned_by": "practice"}
            for name in self._models.names()
        ]
        return JSONResponse({"object": "list", "data": data})

    async def _stats(self, _: Request) -> Response:
        engines = self._models.engines()
        return JSONResponse(
            {
                "received": dict(self.received),
                "answered_by": dict(self.answered),
                "faults": dict(self.faults),
                "generated_tokens": sum(engine.generated for engine in engines),
                "engine_cpu_seconds": round(sum(engine.cpu_seconds for engine in engines), 3),
            }
        )


class _Run:
    """One answer on its way from the engine's thread into this event loop."""

    def __init__(self, ask: CompletionRequest, served: LoadedModel, dialect: Dialect) -> None:
        loop = asyncio.get_running_loop()
        self.ask = ask
        self.label = served.label
        self._tokens: asyncio.Queue[Token | None] = asyncio.Queue()
        tools = to_tools(ask.body["tools"]) if ask.with_tools else []
        self._prompt = render(served.tokenizer, ask.messages, tools=tools, ask=True)
        self._said: list[SampledToken] = []
        self._ended_by: str | None = None
        self._response_id = new_id(dialect.response_id)
        self._created = int(time.time())
        self._tokenizer = served.tokenizer
        self._reader = TurnReader(
            served.tokenizer, with_tools=ask.with_tools, call_id=dialect.call_id
        )

        def emit(token: Token | None) -> None:
            loop.call_soon_threadsafe(self._tokens.put_nowait, token)

        try:
            self._generation: Generation = served.engine.submit(self._prompt, ask.sampling, emit)
        except ValueError as error:
            code = "context_length_exceeded"
            raise WireError(400, "invalid_request_error", str(error), code=code) from None

    async def tokens(self) -> AsyncIterator[tuple[SampledToken, list[Piece]]]:
        """Give tokens with what they add to the turn; ends the generation when nobody listens."""
        try:
            while self._ended_by is None:
                token = await self._tokens.get()
                if token is None:
                    raise ConnectionAbortedError("generation failed")
                self._ended_by = token.last
                pieces = self._reader.feed(token)
                self._said.append(self._sampled(token))
                yield self._said[-1], pieces
        finally:
            self._generation.cancelled = True

    def answer(self) -> ModelAnswer:
        """Return the answer as far as it has come."""
        return ModelAnswer(
            self._reader.message if self._said else Message("assistant", ()),
            self._response_id,
            self.label,
            finish_reason=self._ended_by,
            usage=Usage(len(self._prompt), len(self._said), 0),
            created=self._created,
            prompt_ids=tuple(self._prompt),
            tokens=tuple(self._said),
        )

    def _sampled(self, token: Token) -> SampledToken:
        if not self.ask.body.get("logprobs"):
            return SampledToken(token.id, "", token.logprob)
        top = tuple((self._text(one), logprob) for one, logprob in token.top)
        return SampledToken(token.id, self._text(token.id), token.logprob, top)

    def _text(self, token_id: int) -> str:
        return str(self._tokenizer.decode([token_id]))


async def _events(run: _Run, dialect: Dialect, *, cut: bool) -> AsyncIterator[bytes]:
    """Give the events of a stream; ``cut`` breaks the connection in the middle."""
    stream: AnswerStream = dialect.stream(run.answer(), run.ask)
    yield stream.start()
    left = 6
    async for token, pieces in run.tokens():
        if cut and left == 0:
            raise ConnectionAbortedError("a stream that was meant to break")
        left -= 1
        events = stream.take(pieces, token)
        if events:
            yield events
    dialect.answered(run.answer(), run.ask)
    yield stream.end(run.answer())


async def _half(body: bytes) -> AsyncIterator[bytes]:
    """Give half of a body and break the connection."""
    yield body[: len(body) // 2]
    await asyncio.sleep(0)
    raise ConnectionAbortedError("a body that was meant to break")


def _read(dialect: Dialect, body: dict[str, Any]) -> CompletionRequest:
    """Read a request; whatever the dialect stumbles over is the client's mistake."""
    try:
        return dialect.read(body)
    except (AttributeError, KeyError, TypeError) as error:
        message = f"The request is malformed ({type(error).__name__})."
        raise WireError(400, "invalid_request_error", message) from None


async def _body(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body())
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise WireError(400, "invalid_request_error", "The body is not a JSON object.")
    return body


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tls-port", type=int, help="a second door with HTTPS")
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument(
        "--models-dir", type=Path, help="registry: <name>/live.json, <name>/<version>/"
    )
    parser.add_argument("--model", type=Path, help="one model folder")
    parser.add_argument("--name", default="practice", help="what --model is called")
    parser.add_argument("--faults", type=float, default=0.0, help="share of requests that go wrong")
    parser.add_argument("--seed", type=int, default=0, help="which requests go wrong")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    key = os.environ.get(KEY_VARIABLE)
    if not key:
        parser.error(f"set {KEY_VARIABLE}: the key that clients must send")
    if (options.models_dir is None) == (options.model is None):
        parser.error("give either --models-dir or --model")
    doors = [Listener(options.port, options.host)]
    if options.tls_port is not None:
        if not (options.tls_cert and options.tls_key):
            parser.error("--tls-port needs --tls-cert and --tls-key")
        cert, tls_key = str(options.tls_cert), str(options.tls_key)
        doors.append(Listener(options.tls_port, options.host, cert, tls_key))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch

    torch.set_num_threads(options.threads)
    models = ModelLoader(root=options.models_dir, fixed=options.model, name=options.name)
    for name in models.names():
        models.find(name)  # loaded before the first request, and refused now if it cannot be
    provider = Provider(models, key=key, faults=options.faults, seed=options.seed)
    serve(provider.app(), tuple(doors))
    sys.exit(0)


if __name__ == "__main__":
    main()
