"""What all wire formats share: the question, the answer, and the errors, in one shape."""

import json
import secrets
from dataclasses import dataclass, field
from typing import Any, Protocol

from examples.practice.engine import Sampling, Token
from examples.practice.turns import Piece, ToolCall

DEFAULT_MAX_TOKENS = 128


class WireError(Exception):
    """A request that is answered with an error in the provider's own shape."""

    def __init__(self, status: int, kind: str, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.code = code


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for one answer."""

    model: str
    messages: list[dict[str, Any]] = field(repr=False)
    """As the chat template takes them."""
    with_tools: bool
    sampling: Sampling
    stream: bool
    body: dict[str, Any] = field(repr=False)
    """The request as it came, for fields that the answer repeats."""


@dataclass(slots=True)
class Answer:
    """An answer as it grows."""

    model: str
    """The version that answers: ``practice@v2``."""
    prompt: list[int] = field(repr=False)
    tokens: list[Token] = field(default_factory=list, repr=False)
    text: str = field(default="", repr=False)
    calls: list[ToolCall] = field(default_factory=list)

    @property
    def ended_by(self) -> str | None:
        """``stop``, ``length``, or None while it grows."""
        return self.tokens[-1].last if self.tokens else None


class Writer(Protocol):
    """Writes one answer, whole or as a stream of server-sent events."""

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return the body of an answer that is not streamed."""
        ...

    def start(self, answer: Answer) -> bytes:
        """Return the events before the first token."""
        ...

    def token(self, token: Token, pieces: list[Piece], /) -> bytes:
        """Return the events of one token; may be empty."""
        ...

    def end(self, answer: Answer) -> bytes:
        """Return the events that close the stream."""
        ...


class Dialect(Protocol):
    """One wire format."""

    @property
    def name(self) -> str:
        """As the counts call it."""
        ...

    def read(self, body: dict[str, Any]) -> Ask:
        """Read a request.

        Raises:
            WireError: the request is not one that the API takes.
        """
        ...

    def writer(self, ask: Ask, tokenizer: Any, /) -> Writer:
        """Return what writes the answer."""
        ...

    def error(self, error: WireError) -> dict[str, Any]:
        """Return the body of an error."""
        ...


def new_id(prefix: str) -> str:
    """Return an identifier such as providers give."""
    return prefix + secrets.token_hex(12)


def event(data: Any, *, name: str | None = None) -> bytes:
    """Return one server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {text}\n\n".encode()


def sampling_of(body: dict[str, Any], *, max_tokens: Any, top_logprobs: int = 0) -> Sampling:
    """Read the sampling parameters that all formats share.

    Raises:
        WireError: a value is out of range.
    """
    temperature, top_p = body.get("temperature"), body.get("top_p")
    temperature = 1.0 if temperature is None else temperature
    top_p = 1.0 if top_p is None else top_p
    limit = DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
    if not _number(temperature) or not 0 <= temperature <= 2:
        raise WireError(400, "invalid_request_error", "temperature must be between 0 and 2")
    if not _number(top_p) or not 0 < top_p <= 1:
        raise WireError(400, "invalid_request_error", "top_p must be above 0 and at most 1")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise WireError(400, "invalid_request_error", "the token limit must be at least 1")
    seed = body.get("seed")
    return Sampling(
        temperature=float(temperature),
        top_p=float(top_p),
        max_tokens=limit,
        seed=seed if isinstance(seed, int) else None,
        top_logprobs=top_logprobs,
    )


def need(body: dict[str, Any], name: str, kind: type) -> Any:
    """Return a required field.

    Raises:
        WireError: it is missing or of another type.
    """
    value = body.get(name)
    if not isinstance(value, kind) or not value:
        raise WireError(400, "invalid_request_error", f"{name}: field required")
    return value


def text_of(content: Any, *, kinds: tuple[str, ...] = ("text",)) -> str:
    """Return content, given as text or as a list of text parts, as text.

    Raises:
        WireError: a part that a text model cannot read.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise WireError(400, "invalid_request_error", "content must be text or a list of parts")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") not in kinds:
            raise WireError(400, "invalid_request_error", "this model reads text only")
        texts.append(str(part.get("text", "")))
    return "\n".join(texts)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
