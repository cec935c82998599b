"""Chat completions as OpenAI has them, with the token fields that a vLLM server adds on request."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from train.chat import UnrenderableError, to_chat, to_tools
from train.generation import read_answer
from train.types import Sampling, Token
from trajectory.call import Usage
from trajectory.canonical import JsonObject
from trajectory.dialects.openai_chat.read import read_message
from trajectory.dialects.openai_chat.write import CALL_ID, RESPONSE_ID, ChatStream, whole
from trajectory.dialects.writer import (
    CallPiece,
    CallStart,
    ModelAnswer,
    Piece,
    SampledToken,
    TextPiece,
    arguments_text,
    json_bytes,
    new_id,
)
from trajectory.message import Message, TextPart, ToolCallPart

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "logit_bias": (None, {}),
    "response_format": (None, {"type": "text"}),
    "tool_choice": (None, "auto", "none"),
}
"""What would change the answer and is not done here, with the values that ask for nothing."""
_MOST_STOPS = 16
"""Each is looked for at every token, while others wait."""


class BadRequestError(ValueError):
    """The request cannot be answered; the text says which field and why."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat completion request, read."""

    body: JsonObject = field(repr=False)
    """The request as it came: its answer's writer looks there for what the client wants to see."""
    messages: list[dict[str, Any]] = field(repr=False)
    """As chat templates take them."""
    tools: list[dict[str, Any]] = field(repr=False)
    sampling: Sampling
    stop: tuple[str, ...]

    @property
    def model(self) -> str:
        """The version that is to answer."""
        return str(self.body.get("model") or "")

    @property
    def stream(self) -> bool:
        """Whether the answer is sent as it grows."""
        return self.body.get("stream") is True


def read_request(body: Any) -> ChatRequest:
    """Read a request's body.

    Raises:
        BadRequestError: it is not such a request, or asks for what is not done here.
    """
    if not isinstance(body, dict):
        raise BadRequestError("the body is not a JSON object")
    for name, neutral in _NEUTRAL.items():
        if body.get(name) not in neutral:
            raise BadRequestError(f"{name}: this server knows no other value than {neutral[-1]!r}")
    stop, tools = body.get("stop") or (), body.get("tools") or []
    if not isinstance(stop, str | list | tuple):
        raise BadRequestError("stop: a text or a list of texts is needed")
    if not isinstance(stop, str) and len(stop) > _MOST_STOPS:
        raise BadRequestError(f"stop: at most {_MOST_STOPS} texts are taken")
    if not isinstance(tools, list):
        raise BadRequestError("tools: a list of tools is needed")
    return ChatRequest(
        body=body,
        messages=_messages(body.get("messages")),
        tools=[] if body.get("tool_choice") == "none" else to_tools(tools),
        sampling=_sampling(body),
        stop=(stop,) if isinstance(stop, str) else tuple(str(text) for text in stop if text),
    )


def _messages(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value or not all(isinstance(m, dict) for m in value):
        raise BadRequestError("messages: a list of messages is needed")
    try:
        return [chat for message in value for chat in to_chat(read_message(message))]
    except UnrenderableError as error:
        raise BadRequestError(f"messages: {error.reason} cannot be shown to this model") from None


def _sampling(body: dict[str, Any]) -> Sampling:
    most = body.get("max_completion_tokens", body.get("max_tokens"))
    try:
        sampling = Sampling(
            temperature=float(_or(body.get("temperature"), 1.0)),
            top_p=float(_or(body.get("top_p"), 1.0)),
            max_tokens=None if most is None else _whole(most),
            seed=None if body.get("seed") is None else _whole(body["seed"]),
            top_logprobs=_whole(_or(body.get("top_logprobs"), 0)),
        )
    except (TypeError, ValueError, OverflowError):
        raise BadRequestError(
            "temperature and top_p are numbers; max_tokens, seed and top_logprobs are whole ones"
        ) from None
    if sampling.max_tokens is not None and sampling.max_tokens < 1:
        raise BadRequestError("max_tokens must be at least 1")
    if not 0 <= sampling.temperature <= 2 or not 0 < sampling.top_p <= 1:
        raise BadRequestError("temperature lies between 0 and 2, top_p above 0 and at most at 1")
    if not 0 <= sampling.top_logprobs <= 20:
        raise BadRequestError("top_logprobs lies between 0 and 20")
    return sampling


def _whole(value: Any) -> int:
    """Return a whole number; true and 2.7 are none.

    Raises:
        TypeError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise TypeError
    return int(value)


def _or(value: Any, default: float) -> Any:
    return default if value is None else value


class Text:
    """The text of an answer as it grows: whole characters only, cut at the first stop text."""

    def __init__(self, tokenizer: Any, stop: tuple[str, ...]) -> None:
        """Begin with nothing."""
        self._tokenizer = tokenizer
        self._stop = stop
        self._held = max((len(text) - 1 for text in stop), default=0)
        self._ids: list[int] = []
        self._from = self._read = 0
        self._given = 0
        self.text = ""
        self.stopped = False

    def feed(self, token: int) -> str:
        """Take a token; return what can be given now."""
        self._ids.append(token)
        before = self._decode(self._ids[self._from : self._read])
        now = self._decode(self._ids[self._from :])
        if len(now) > len(before) and not now.endswith("\ufffd"):
            self.text += now[len(before) :]
            self._from, self._read = self._read, len(self._ids)
        return self._give(self._held)

    def close(self) -> str:
        """Return what is left when generation has ended."""
        if not self.stopped:
            before = self._decode(self._ids[self._from : self._read])
            self.text += self._decode(self._ids[self._from :])[len(before) :]
        return self._give(0)

    def _give(self, held: int) -> str:
        cut = min((at for stop in self._stop if (at := self.text.find(stop)) >= 0), default=-1)
        if cut >= 0:
            self.text, self.stopped, held = self.text[:cut], True, 0
        end = max(self._given, len(self.text) - held)
        piece, self._given = self.text[self._given : end], end
        return piece

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))


class ChatAnswer:
    """The answer to one request, written whole or as it grows."""

    def __init__(self, request: ChatRequest, prompt: list[int], tokenizer: Any) -> None:
        """Begin an answer."""
        self._request = request
        self._prompt = prompt
        self._tokenizer = tokenizer
        self.text = Text(tokenizer, request.stop)
        self._tokens: list[Token] = []
        self._sampled: list[SampledToken] = []
        self._reads_calls = bool(request.tools) and (
            getattr(tokenizer, "response_template", None) is not None
        )
        """Whether tool calls are to be read from the answer, which needs all of it."""
        self._response_id = new_id(RESPONSE_ID)
        self._created = int(time.time())
        self._stream = ChatStream(self._answer(()), request.body)

    @property
    def is_done(self) -> bool:
        """Whether the answer ends here: the model ended its turn, or a stop text came."""
        return self.text.stopped or bool(self._tokens and self._tokens[-1].last)

    def take(self, token: Token) -> bytes:
        """Take a token; return the chunks to send where the answer is streamed."""
        start = b"" if self._tokens else self._stream.start()
        self._tokens.append(token)
        self._sampled.append(self._to_show(token))
        piece = "" if token.last == "stop" else self.text.feed(token.id)
        pieces = [TextPiece(piece)] if piece and not self._reads_calls else []
        return start + self._stream.take(pieces, self._sampled[-1])

    def end(self) -> bytes:
        """Return the last chunks of a stream."""
        left = self.text.close()
        parts = self._parts()
        pieces: list[Piece] = [TextPiece(left)] if left and not self._reads_calls else []
        for part in parts if self._reads_calls else ():
            if isinstance(part, ToolCallPart):
                pieces += (
                    CallStart(part.call_id, part.name),
                    CallPiece(arguments_text(part.arguments)),
                )
            elif part.text:
                pieces.append(TextPiece(part.text))
        return self._stream.take(pieces) + self._stream.end(self._answer(parts))

    def whole(self) -> bytes:
        """Return the answer to a request that did not ask for a stream."""
        self.text.close()
        return json_bytes(whole(self._answer(self._parts()), self._request.body))

    def _answer(self, parts: Sequence[TextPart | ToolCallPart]) -> ModelAnswer:
        last = self._tokens[-1].last if self._tokens else None
        return ModelAnswer(
            Message("assistant", tuple(parts)),
            self._response_id,
            self._request.model,
            finish_reason="stop" if self.text.stopped else last,
            usage=Usage(len(self._prompt), len(self._tokens)),
            created=self._created,
            prompt_ids=tuple(self._prompt),
            tokens=tuple(self._sampled),
        )

    def _parts(self) -> list[TextPart | ToolCallPart]:
        """Return text and tool calls; what cannot be read as calls is text."""
        if not self._reads_calls or self.text.stopped:
            return [TextPart(self.text.text)]
        ids = [token.id for token in self._tokens]
        said = read_answer(self._tokenizer, ids, prompt=self._prompt, tools=self._request.tools)
        functions = [call["function"] for call in said.get("tool_calls", ())]
        calls = [ToolCallPart(new_id(CALL_ID), one["name"], one["arguments"]) for one in functions]
        return [TextPart(said["content"]), *calls]

    def _to_show(self, token: Token) -> SampledToken:
        if not self._request.body.get("logprobs"):
            return SampledToken(token.id, "", token.logprob)
        top = tuple((self._spelled(one), logprob) for one, logprob in token.top)
        return SampledToken(token.id, self._spelled(token.id), token.logprob, top)

    def _spelled(self, token: int) -> str:
        return str(self._tokenizer.decode([token]))
