"""Chat completions as OpenAI has them, with the token fields that a vLLM server adds on request."""

import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from headrace.serving.engine import Sampling, Token
from train.chat import UnrenderableError, to_chat, to_tools
from train.generation import read_answer
from trajectory.dialects.openai_chat.read import read_message

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "logit_bias": (None, {}),
    "response_format": (None, {"type": "text"}),
    "tool_choice": (None, "auto", "none"),
}
"""What would change the answer and is not done here, with the values that ask for nothing."""


class BadRequestError(ValueError):
    """The request cannot be answered; the text says which field and why."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A chat completion request, read."""

    model: str
    messages: list[dict[str, Any]] = field(repr=False)
    """As chat templates take them."""
    tools: list[dict[str, Any]] = field(repr=False)
    sampling: Sampling
    stop: tuple[str, ...]
    stream: bool
    with_usage: bool
    with_ids: bool
    with_logprobs: bool


def read_ask(body: Any) -> Ask:
    """Read a request's body.

    Raises:
        BadRequestError: it is not such a request, or asks for what is not done here.
    """
    if not isinstance(body, dict):
        raise BadRequestError("the body is not a JSON object")
    for name, neutral in _NEUTRAL.items():
        if body.get(name) not in neutral:
            raise BadRequestError(f"{name}: this server knows no other value than {neutral[-1]!r}")
    stop = body.get("stop") or ()
    options = body.get("stream_options")
    return Ask(
        model=str(body.get("model") or ""),
        messages=_messages(body.get("messages")),
        tools=[] if body.get("tool_choice") == "none" else to_tools(body.get("tools") or []),
        sampling=_sampling(body),
        stop=(stop,) if isinstance(stop, str) else tuple(str(text) for text in stop if text),
        stream=bool(body.get("stream")),
        with_usage=isinstance(options, dict) and bool(options.get("include_usage")),
        with_ids=bool(body.get("return_token_ids")),
        with_logprobs=bool(body.get("logprobs")),
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
            most_tokens=None if most is None else int(most),
            seed=None if body.get("seed") is None else int(body["seed"]),
            top_logprobs=int(body.get("top_logprobs") or 0),
        )
    except (TypeError, ValueError):
        raise BadRequestError("temperature, top_p, max_tokens and seed are numbers") from None
    if most is not None and int(most) < 1:
        raise BadRequestError("max_tokens must be at least 1")
    if not 0 <= sampling.temperature <= 2 or not 0 < sampling.top_p <= 1:
        raise BadRequestError("temperature lies between 0 and 2, top_p above 0 and at most at 1")
    if not 0 <= sampling.top_logprobs <= 20:
        raise BadRequestError("top_logprobs lies between 0 and 20")
    return sampling


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


class Writer:
    """Writes the answer to one request, whole or chunk by chunk."""

    def __init__(self, ask: Ask, label: str, prompt: list[int], tokenizer: Any) -> None:
        """Begin an answer of the version ``label``."""
        self._ask = ask
        self._prompt = prompt
        self._tokenizer = tokenizer
        self.text = Text(tokenizer, ask.stop)
        self._tokens: list[Token] = []
        self._parses = bool(ask.tools) and getattr(tokenizer, "response_template", None) is not None
        """Whether tool calls are to be read from the answer, which needs all of it."""
        self._common = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": label,
        }

    @property
    def done(self) -> bool:
        """Whether the answer ends here: the model ended its turn, or a stop text came."""
        return self.text.stopped or bool(self._tokens and self._tokens[-1].last)

    def take(self, token: Token) -> bytes:
        """Take a token; return the chunks to send where the answer is streamed."""
        first = not self._tokens
        self._tokens.append(token)
        piece = "" if token.last == "stop" else self.text.feed(token.id)
        delta: dict[str, Any] = {"role": "assistant", "content": ""} if first else {}
        if piece and not self._parses:
            delta["content"] = piece
        extra = self._extra([token], first=first)
        return self._chunk(delta, extra) if delta or extra else b""

    def end(self) -> bytes:
        """Return the last chunks of a stream."""
        content, calls = self._said()
        left = content if self._parses else self.text.close()
        delta: dict[str, Any] = {"content": left} if left else {}
        if calls:
            delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(calls)]
        chunks = self._chunk(delta, {}) if delta else b""
        chunks += self._chunk({}, {}, finish=self._finish(calls))
        if self._ask.with_usage:
            chunks += _event(
                {**self._named("chat.completion.chunk"), "choices": [], "usage": self._usage()}
            )
        return chunks + b"data: [DONE]\n\n"

    def whole(self) -> bytes:
        """Return the answer to a request that did not ask for a stream."""
        self.text.close()
        content, calls = self._said()
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content or (None if calls else ""),
        }
        if calls:
            message["tool_calls"] = calls
        choice = {
            "index": 0,
            "message": message,
            "logprobs": self._logprobs(self._tokens),
            "finish_reason": self._finish(calls),
        }
        if self._ask.with_ids:
            choice["token_ids"] = [token.id for token in self._tokens]
        answer: dict[str, Any] = {**self._named("chat.completion"), "choices": [choice]}
        if self._ask.with_ids:
            answer["prompt_token_ids"] = self._prompt
        return json.dumps({**answer, "usage": self._usage()}, ensure_ascii=False).encode(
            "utf-8", "replace"
        )

    def _said(self) -> tuple[str, list[dict[str, Any]]]:
        """Return text and tool calls; what cannot be read as calls is text."""
        if not self._parses or self.text.stopped:
            return self.text.text, []
        ids = [token.id for token in self._tokens]
        said = read_answer(self._tokenizer, ids, prompt=self._prompt, tools=self._ask.tools)
        return said["content"], [_call(call) for call in said.get("tool_calls", ())]

    def _finish(self, calls: list[dict[str, Any]]) -> str:
        if calls:
            return "tool_calls"
        ended = self.text.stopped or not self._tokens or self._tokens[-1].last != "length"
        return "stop" if ended else "length"

    def _extra(self, tokens: list[Token], *, first: bool) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        if self._ask.with_ids:
            extra["token_ids"] = [token.id for token in tokens]
            if first:
                extra["prompt_token_ids"] = self._prompt
        if self._ask.with_logprobs:
            extra["logprobs"] = self._logprobs(tokens)
        return extra

    def _chunk(
        self, delta: dict[str, Any], extra: dict[str, Any], finish: str | None = None
    ) -> bytes:
        prompt = extra.pop("prompt_token_ids", None)
        choice = {"index": 0, "delta": delta, "finish_reason": finish, **extra}
        chunk = {**self._named("chat.completion.chunk"), "choices": [choice]}
        return _event(chunk if prompt is None else {**chunk, "prompt_token_ids": prompt})

    def _named(self, kind: str) -> dict[str, Any]:
        return {**self._common, "object": kind}

    def _usage(self) -> dict[str, int]:
        made = len(self._tokens)
        prompt = len(self._prompt)
        return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}

    def _logprobs(self, tokens: list[Token]) -> dict[str, Any] | None:
        if not self._ask.with_logprobs:
            return None
        return {"content": [self._logprob(token) for token in tokens]}

    def _logprob(self, token: Token) -> dict[str, Any]:
        top = [self._named_token(one, logprob) for one, logprob in token.top]
        return {**self._named_token(token.id, token.logprob), "top_logprobs": top}

    def _named_token(self, token: int, logprob: float) -> dict[str, Any]:
        text = str(self._tokenizer.decode([token]))
        return {"token": text, "logprob": logprob, "bytes": list(text.encode("utf-8", "replace"))}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    named = {"name": function["name"], "arguments": arguments}
    return {"id": f"call_{secrets.token_hex(8)}", "type": "function", "function": named}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"
