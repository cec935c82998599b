"""Hosts of versions: this process, one vLLM server each, or the user's own servers."""

import importlib.util
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import httpx

from headrace.serving.server import ModelServer
from train.generation import Engine, LanguageModel
from trajectory.child_process import ChildProcess, environment_of_others, free_port, open_log
from trajectory.errors import ConfigurationError

_ASK_SECONDS = 2.0
_END_SECONDS = 20.0
_VLLM = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # At INFO some versions write whole prompts into the log.
    "VLLM_LOGGING_LEVEL": "WARNING",
}


class Host(Protocol):
    """Brings versions up and puts them away; no call blocks for long."""

    def begin(self, label: str, folder: Path) -> None:
        """Begin to load a version."""

    def ready(self, label: str) -> str | None:
        """Return where a version answers; None while it does not."""

    def problem(self, label: str) -> str | None:
        """Return why a version cannot be loaded."""

    def end(self, label: str) -> None:
        """Put a version away; what is under way ends first, as far as the host knows of it."""


class TransformersHost:
    """Serves versions with the transformers library behind one port of this process."""

    def __init__(self, url: str, engines: dict[str, Engine[LanguageModel]]) -> None:
        self._url = url
        self._engines = engines
        self._loading: dict[str, threading.Thread] = {}
        self._problems: dict[str, str] = {}

    @classmethod
    @contextmanager
    def open(
        cls, host: str, port: int, key: str, *, address: str = ""
    ) -> "Iterator[TransformersHost]":
        """Listen until the context ends; ``address`` is published instead of host and port.

        Raises:
            ConfigurationError: the port is taken.
        """
        engines: dict[str, Engine[LanguageModel]] = {}
        try:
            with ModelServer(engines, key=key).listen(host, port) as server:
                yield cls(address.rstrip("/") or f"http://{reachable(host)}:{server.port}", engines)
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another serve.port"
            ) from None
        finally:
            for engine in engines.values():
                engine.stop()

    def begin(self, label: str, folder: Path) -> None:
        """Load in a separate thread."""
        thread = threading.Thread(target=self._load, args=(label, folder), daemon=True)
        self._problems.pop(label, None)
        self._loading[label] = thread
        thread.start()

    def _load(self, label: str, folder: Path) -> None:
        try:
            engine = Engine(LanguageModel(folder))
        except Exception as error:  # noqa: BLE001 - told; what serves goes on
            known = isinstance(error, ConfigurationError)
            self._problems[label] = str(error) if known else type(error).__name__
            return
        if self._loading.get(label) is threading.current_thread():
            self._engines[label] = engine
        else:  # it was put away while it was being loaded
            engine.stop()

    def ready(self, label: str) -> str | None:
        """Return the address of the port that all versions share."""
        return self._url if label in self._engines else None

    def problem(self, label: str) -> str | None:
        """Return why it could not be loaded."""
        return self._problems.get(label)

    def end(self, label: str) -> None:
        """Let the engine end after what is under way."""
        self._loading.pop(label, None)
        self._problems.pop(label, None)
        engine = self._engines.pop(label, None)
        if engine is not None:
            engine.stop()


@dataclass(slots=True)
class _VllmServer:
    process: ChildProcess
    url: str
    ready: bool = False


@dataclass(slots=True)
class VllmServers:
    """Serves each version with a separate vLLM server on this machine."""

    arguments: tuple[str, ...]
    """Further arguments of ``vllm serve``."""
    logs: Path
    key: str = field(repr=False)
    _servers: dict[str, _VllmServer] = field(default_factory=dict)

    def begin(self, label: str, folder: Path) -> None:
        """Start a server; it is ready when it lists the version."""
        port = free_port()
        program = (sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(folder))
        place = ("--host", "127.0.0.1", "--port", str(port), "--served-model-name", label)
        with open_log(self.logs / f"vllm-{label.replace('@', '-')}.log") as log:
            process = ChildProcess(
                [*program, *place, *tool_arguments(folder, self.arguments), *self.arguments],
                stdout=log,
                stderr=log,
                environment=environment_of_others() | _VLLM | {"VLLM_API_KEY": self.key},
                stop_seconds=_END_SECONDS,
            )
        self._servers[label] = _VllmServer(process, f"http://127.0.0.1:{port}")

    def ready(self, label: str) -> str | None:
        """Return the server's address once it lists the version; None again when it has ended."""
        server = self._servers.get(label)
        if server is None or server.process.poll() is not None:
            return None
        server.ready = server.ready or label in listed(server.url, self.key)
        return server.url if server.ready else None

    def problem(self, label: str) -> str | None:
        """Tell when its server has ended."""
        server = self._servers.get(label)
        if server is None or (code := server.process.poll()) is None:
            return None
        return f"vLLM ended with {code}; see {self.logs}"

    def end(self, label: str) -> None:
        """Stop its server, which lets requests under way finish."""
        server = self._servers.pop(label, None)
        if server is not None:
            server.process.stop()

    def close(self) -> None:
        """Stop all servers."""
        for label in list(self._servers):
            self.end(label)


@dataclass(slots=True)
class ExternalServers:
    """Versions on servers that somebody else runs: asked whether they list a version."""

    url: str
    key: str = field(repr=False)
    _seen: dict[str, float] = field(default_factory=dict)
    """When each version was last listed."""

    def begin(self, label: str, folder: Path) -> None:
        """Wait for it."""

    def ready(self, label: str) -> str | None:
        """Return the address while the version is listed there; a short silence changes nothing."""
        if label in listed(self.url, self.key):
            self._seen[label] = time.monotonic()
        last = self._seen.get(label)
        return self.url if last is not None and time.monotonic() - last < 60 else None

    def problem(self, label: str) -> str | None:
        """Tell that it is not there yet."""
        return None if label in self._seen else f"{self.url}/v1/models does not list it"

    def end(self, label: str) -> None:
        """Forget it."""
        self._seen.pop(label, None)


def listed(url: str, key: str) -> set[str]:
    """Return the models that a server lists; none when it does not answer."""
    try:
        answer = httpx.get(
            f"{url.rstrip('/')}/v1/models",
            headers={"authorization": f"Bearer {key}"},
            timeout=_ASK_SECONDS,
            trust_env=False,
        )
        return {str(model["id"]) for model in answer.json()["data"]}
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return set()


_PARSERS = (
    (("<function=",), "qwen3_xml"),
    (("<arg_key>",), "glm45"),
    (("<|channel|>", "commentary"), "openai"),
    (("[TOOL_CALLS]",), "mistral"),
    (("<tool_call>",), "hermes"),
    (("<|start_header_id|>", '"parameters": '), "llama3_json"),
)
"""What a chat template writes around a call, and the name of vLLM's parser that reads it; first match."""


def tool_arguments(folder: Path, given: Sequence[str]) -> tuple[str, ...]:
    """Return what vLLM must be told before agents may send tools to a model; nothing where they say it.

    Without it a call with tools is answered with code 400. For a template that is none of the known
    ones nothing is told: who serves such a model names a parser in ``serve.vllm_arguments``.
    """
    if any(one.partition("=")[0] == "--tool-call-parser" for one in given):
        return ()
    template = _chat_template(folder)
    for marks, parser in _PARSERS:
        if all(mark in template for mark in marks):
            return "--enable-auto-tool-choice", "--tool-call-parser", parser
    return ()


def _chat_template(folder: Path) -> str:
    """Return the text of a model folder's chat template, without loading its tokenizer."""
    beside, config = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    if config.is_file():
        return str(json.loads(config.read_bytes()).get("chat_template") or "")
    return ""


def has_vllm() -> bool:
    """Tell whether vLLM is installed."""
    return importlib.util.find_spec("vllm") is not None


def reachable(host: str) -> str:
    """Return the host as clients on this machine reach it."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"[{host}]" if ":" in host else host
