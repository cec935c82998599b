"""A model provider in small: the server of ``headrace serve`` in front of the practice model.

``python -m examples.practice.provider --port N --model PATH``. It speaks what ``headrace serve``
speaks, checks its own key (environment variable PRACTICE_PROVIDER_KEY) and can be told to fail in
a share of its answers.
"""

import argparse
import json
import os
import random
import signal
import ssl
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from examples.practice.network import load_network
from headrace.serving.server import LIMITS, ModelServer
from train.generation import Engine
from trajectory.dialects.errors import error_body, shape_of
from trajectory.http_server import HttpServer

KEY_VARIABLE = "PRACTICE_PROVIDER_KEY"
_FAULTS = ("error", "cut", "malformed")


class Provider:
    """One model behind a key, on one or more ports."""

    def __init__(
        self,
        model: Path,
        *,
        key: str,
        name: str = "practice",
        faults: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Load a model folder; clients ask for ``name`` and are told ``name@<folder's name>``."""
        self.label = f"{name}@{model.name}"
        self.engine = Engine(load_network(model))
        self.received: Counter[str] = Counter()
        """Requests for answers, by path."""
        self.faults: Counter[str] = Counter()
        self._name, self._key = name, key
        self._share = faults
        self._draw = random.Random(seed)  # noqa: S311 - which requests fail, not secret
        self._lock = threading.Lock()

    def listen(
        self, port: int = 0, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> HttpServer:
        """Return a server on a port; it answers within its context.

        Raises:
            OSError: the port is taken.
        """
        engines, aliases = {self.label: self.engine}, {self._name: self.label}
        app = ModelServer(engines, key=self._key, aliases=aliases).app()
        return HttpServer(_FaultyApp(app, self), host=host, port=port, tls=tls, limits=LIMITS)

    def receive(self, path: str) -> str | None:
        """Count a request; return the fault that its answer is to have."""
        with self._lock:  # each port has a thread
            self.received[path] += 1
            if self._draw.random() >= self._share:
                return None
            fault = self._draw.choice(_FAULTS)
            self.faults[fault] += 1
            return fault


class _FaultyApp:
    """An application whose answers are damaged as the provider says."""

    def __init__(self, app: ASGIApp, provider: Provider) -> None:
        self._app = app
        self._provider = provider

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = None
        if scope["type"] == "http" and scope["method"] == "POST":
            fault = self._provider.receive(scope["path"])
        if fault == "error":
            await _fail(scope, receive, send)
        else:
            await self._app(scope, receive, _Damage(send, fault).send if fault else send)


async def _fail(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass  # a provider reads a request before it fails
    names = frozenset(name for name, _ in scope["headers"])
    shape = shape_of("auto", "model", scope["raw_path"], names)
    text = "The server had an error while processing your request."
    body = json.dumps(error_body(shape, 500, "api_error", text)).encode()
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Damage:
    """Sends the beginning of an answer: of a stream the first event, of a body one half."""

    def __init__(self, send: Send, fault: str) -> None:
        self._send = send
        self._fault = fault
        self._start: Message = {}
        self._events = 0

    async def send(self, message: Message) -> None:
        """Pass a message on, or what is left of it.

        Raises:
            ConnectionAbortedError: the connection is to break here.
        """
        if message["type"] == "http.response.start":
            self._start = message
            return
        body: bytes = message.get("body", b"")
        whole = not message.get("more_body") and not self._events
        half = body[: len(body) // 2]
        if whole and self._fault == "malformed":
            length = (b"content-length", str(len(half)).encode())
            headers = [one for one in self._start["headers"] if one[0] != length[0]]
            await self._send({**self._start, "headers": [*headers, length]})
            await self._send({**message, "body": half})
            return
        if not self._events:
            await self._send(self._start)
        self._events += 1
        if not whole and self._events == 1:
            await self._send(message)
            return
        await self._send({**message, "body": half, "more_body": True})
        raise ConnectionAbortedError("an answer that was meant to break")


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tls-port", type=int, help="a second door with HTTPS")
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--model", type=Path, required=True, help="the model's folder")
    parser.add_argument("--name", default="practice", help="what it is called")
    parser.add_argument("--faults", type=float, default=0.0, help="share of requests that go wrong")
    parser.add_argument("--seed", type=int, default=0, help="which requests go wrong")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    key = os.environ.get(KEY_VARIABLE)
    if not key:
        parser.error(f"set {KEY_VARIABLE}: the key that clients must send")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads starve other work
    import torch

    torch.set_num_threads(options.threads)
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end.set())
    provider = Provider(
        options.model, key=key, name=options.name, faults=options.faults, seed=options.seed
    )
    with ExitStack() as doors:
        doors.enter_context(provider.listen(options.port, host=options.host))
        if options.tls_port is not None:
            if not (options.tls_cert and options.tls_key):
                parser.error("--tls-port needs --tls-cert and --tls-key")
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(options.tls_cert, options.tls_key)
            doors.enter_context(provider.listen(options.tls_port, host=options.host, tls=tls))
        end.wait()


if __name__ == "__main__":
    main()
