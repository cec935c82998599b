"""OpenAI chat completions, with the fields that a vLLM server adds on request."""

import time
from typing import Any

from examples.practice.engine import Token
from examples.practice.turns import CallPiece, CallStart, Piece, TextPiece
from examples.practice.wire.shape import (
    Answer,
    Ask,
    WireError,
    event,
    need,
    new_id,
    sampling_of,
    text_of,
)

_ROLES = ("system", "developer", "user", "assistant", "tool")


class OpenAIChat:
    """``POST /v1/chat/completions``."""

    name = "openai.chat"

    def read(self, body: dict[str, Any]) -> Ask:
        """Read a request."""
        if body.get("n") not in (None, 1):
            raise WireError(400, "invalid_request_error", "n: only one choice is supported")
        top = body.get("top_logprobs") or 0
        if not isinstance(top, int) or not 0 <= top <= 20:
            raise WireError(400, "invalid_request_error", "top_logprobs must be between 0 and 20")
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        return Ask(
            model=need(body, "model", str),
            messages=[_message(m) for m in need(body, "messages", list)],
            with_tools=bool(body.get("tools")) and body.get("tool_choice") != "none",
            sampling=sampling_of(body, max_tokens=limit, top_logprobs=top),
            stream=bool(body.get("stream")),
            body=body,
        )

    def writer(self, ask: Ask, tokenizer: Any) -> "_ChatWriter":
        """Return what writes the answer."""
        return _ChatWriter(ask, tokenizer)

    def error(self, error: WireError) -> dict[str, Any]:
        """Return OpenAI's error body."""
        return openai_error(error)


def openai_error(error: WireError) -> dict[str, Any]:
    """Return the error body of both OpenAI formats."""
    body = {"message": error.message, "type": error.kind, "param": None, "code": error.code}
    return {"error": body}


def _message(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise WireError(400, "invalid_request_error", f"role must be one of {', '.join(_ROLES)}")
    read: dict[str, Any] = {"role": message["role"], "content": text_of(message.get("content"))}
    if message.get("tool_calls"):
        read["tool_calls"] = [
            {
                "function": {
                    "name": call["function"]["name"],
                    "arguments": call["function"]["arguments"],
                }
            }
            for call in message["tool_calls"]
        ]
    return read


class _ChatWriter:
    """Writes chat completions."""

    def __init__(self, ask: Ask, tokenizer: Any) -> None:
        self._body = ask.body
        self._tokenizer = tokenizer
        self._with_ids = bool(ask.body.get("return_token_ids"))
        self._with_logprobs = bool(ask.body.get("logprobs"))
        self._common: dict[str, Any] = {"id": new_id("chatcmpl-"), "created": int(time.time())}

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return a ``chat.completion``."""
        calls = [
            {
                "id": new_id("call_"),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in answer.calls
        ]
        text = answer.text or (None if calls else "")
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message["tool_calls"] = calls
        choice = {
            "index": 0,
            "message": message,
            "logprobs": self._logprobs(answer.tokens),
            "finish_reason": _finish(answer),
        }
        if self._with_ids:
            choice["token_ids"] = [token.id for token in answer.tokens]
        whole = {
            **self._common,
            "object": "chat.completion",
            "model": answer.model,
            "choices": [choice],
            "usage": _usage(answer),
        }
        return {**whole, "prompt_token_ids": answer.prompt} if self._with_ids else whole

    def start(self, answer: Answer) -> bytes:
        """Return the chunk that names the role."""
        self._common |= {"object": "chat.completion.chunk", "model": answer.model}
        chunk = self._chunk({"role": "assistant", "content": ""})
        if self._with_ids:
            chunk["prompt_token_ids"] = answer.prompt
        return event(chunk)

    def token(self, token: Token, pieces: list[Piece]) -> bytes:
        """Return one chunk for each piece; the token's own facts go with the first."""
        deltas = [_delta(piece) for piece in pieces]
        if not deltas and (self._with_ids or self._with_logprobs):
            deltas = [{}]
        chunks = [self._chunk(delta) for delta in deltas]
        if chunks:
            choice = chunks[0]["choices"][0]
            choice["logprobs"] = self._logprobs([token])
            if self._with_ids:
                choice["token_ids"] = [token.id]
        return b"".join(event(chunk) for chunk in chunks)

    def end(self, answer: Answer) -> bytes:
        """Return the finish reason, the usage when asked for, and the end mark."""
        last = self._chunk({})
        last["choices"][0]["finish_reason"] = _finish(answer)
        events = [event(last)]
        if (self._body.get("stream_options") or {}).get("include_usage"):
            events.append(event({**self._common, "choices": [], "usage": _usage(answer)}))
        return b"".join([*events, event("[DONE]")])

    def _chunk(self, delta: dict[str, Any]) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return {**self._common, "choices": [choice]}

    def _logprobs(self, tokens: list[Token]) -> dict[str, Any] | None:
        if not self._with_logprobs:
            return None
        content = [
            {
                **self._named(token.id, token.logprob),
                "top_logprobs": [self._named(other, logprob) for other, logprob in token.top],
            }
            for token in tokens
        ]
        return {"content": content, "refusal": None}

    def _named(self, token_id: int, logprob: float) -> dict[str, Any]:
        text = self._tokenizer.decode([token_id])
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def _delta(piece: Piece) -> dict[str, Any]:
    match piece:
        case TextPiece(text=text):
            return {"content": text}
        case CallStart(index=index, name=name):
            function = {"name": name, "arguments": ""}
            call = {"index": index, "id": new_id("call_"), "type": "function", "function": function}
            return {"tool_calls": [call]}
        case CallPiece(index=index, text=text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def _finish(answer: Answer) -> str | None:
    return "tool_calls" if answer.calls and answer.ended_by == "stop" else answer.ended_by


def _usage(answer: Answer) -> dict[str, Any]:
    prompt, completion = len(answer.prompt), len(answer.tokens)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
