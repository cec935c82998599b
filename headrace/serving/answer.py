"""An answer as it grows: tokens become text and tool calls, written in the words of the request's API."""

import time
from collections.abc import Sequence
from typing import Any

from headrace.serving.request import ModelRequest
from train.generation import read_answer
from train.types import Token
from trajectory.call import Usage
from trajectory.dialects.registry import STREAMS, write_answer
from trajectory.dialects.writer import (
    CallPiece,
    CallStart,
    ModelAnswer,
    Piece,
    SampledToken,
    TextPiece,
    arguments_text,
    new_id,
)
from trajectory.message import Message, TextPart, ToolCallPart

RESPONSE_IDS = {
    "openai.chat": "chatcmpl-",
    "openai.responses": "resp_",
    "openai.completions": "cmpl-",
    "anthropic.messages": "msg_",
    "google.gemini": "",
    "ollama": "",
}
"""By the dialect's name: how the names of answers begin."""
CALL_IDS = {**dict.fromkeys(RESPONSE_IDS, "call_"), "anthropic.messages": "toolu_"}
"""By the dialect's name: how the names of tool calls begin."""


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
        self.stopped_by: str | None = None
        """The stop text that came."""

    @property
    def stopped(self) -> bool:
        """Whether a stop text came."""
        return self.stopped_by is not None

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
        found = ((self.text.find(stop), stop) for stop in self._stop)
        cut, stop = min((one for one in found if one[0] >= 0), default=(-1, ""))
        if cut >= 0:
            self.text, self.stopped_by, held = self.text[:cut], stop, 0
        end = max(self._given, len(self.text) - held)
        piece, self._given = self.text[self._given : end], end
        return piece

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))


class ServedAnswer:
    """The answer to one request, written whole or as it grows."""

    def __init__(self, request: ModelRequest, prompt: list[int], tokenizer: Any) -> None:
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
        body = request.asked.body
        self._spells = bool(request.sampling.top_logprobs) or (
            body.get("logprobs") not in (None, False) or "generationConfig" in body
        )
        """Whether the text of each token may be shown."""
        self._call_id = CALL_IDS[request.dialect]
        self.response_id = new_id(RESPONSE_IDS[request.dialect])
        self._created = int(time.time())
        self._stream = STREAMS[request.dialect](self._finished(()), request.asked)

    @property
    def content_type(self) -> str | None:
        """What the stream's bytes are; None where the answer is wanted whole."""
        return None if self._stream is None else self._stream.content_type

    @property
    def is_done(self) -> bool:
        """Whether the answer ends here: the model ended its turn, or a stop text came."""
        return self.text.stopped or bool(self._tokens and self._tokens[-1].last)

    def take(self, token: Token) -> bytes:
        """Take a token; return the bytes to send where the answer is streamed."""
        begins = not self._tokens
        self._tokens.append(token)
        self._sampled.append(self._to_show(token))
        piece = "" if token.last == "stop" else self.text.feed(token.id)
        pieces = [TextPiece(piece)] if piece and not self._reads_calls else []
        if self._stream is None:
            return b""
        start = self._stream.start() if begins else b""
        return start + self._stream.take(pieces, self._sampled[-1])

    def end(self) -> tuple[bytes, Message]:
        """Return the last bytes of the answer, all of them where it is not streamed, and what it says."""
        left = self.text.close()
        parts = self._parts()
        answer = self._finished(parts)
        if self._stream is None:
            wire = write_answer(
                self._request.dialect,
                answer,
                self._request.asked.body,
                path=self._request.asked.path,
                query=self._request.asked.query,
            )
            return b"".join(wire.pieces), answer.message
        pieces: list[Piece] = [TextPiece(left)] if left and not self._reads_calls else []
        for part in parts if self._reads_calls else ():
            if isinstance(part, ToolCallPart):
                pieces += (
                    CallStart(part.call_id, part.name),
                    CallPiece(arguments_text(part.arguments)),
                )
            elif part.text:
                pieces.append(TextPiece(part.text))
        return self._stream.take(pieces) + self._stream.end(answer), answer.message

    def _finished(self, parts: Sequence[TextPart | ToolCallPart]) -> ModelAnswer:
        last = self._tokens[-1].last if self._tokens else None
        return ModelAnswer(
            Message("assistant", tuple(parts)),
            self.response_id,
            self._request.model,
            finish_reason="stop" if self.text.stopped else last,
            usage=Usage(len(self._prompt), len(self._tokens)),
            created=self._created,
            prompt_ids=tuple(self._prompt),
            tokens=tuple(self._sampled),
            stop_text=self.text.stopped_by,
        )

    def _parts(self) -> list[TextPart | ToolCallPart]:
        """Return text and tool calls; what cannot be read as calls is text."""
        if not self._reads_calls or self.text.stopped:
            return [TextPart(self.text.text)] if self.text.text else []
        ids = [token.id for token in self._tokens]
        said = read_answer(self._tokenizer, ids, prompt=self._prompt, tools=self._request.tools)
        functions = [call["function"] for call in said.get("tool_calls", ())]
        calls = [
            ToolCallPart(new_id(self._call_id), one["name"], one["arguments"]) for one in functions
        ]
        return [*([TextPart(said["content"])] if said["content"] else []), *calls]

    def _to_show(self, token: Token) -> SampledToken:
        if not self._spells:
            return SampledToken(token.id, "", token.logprob)
        top = tuple((self._spelled(one), logprob) for one, logprob in token.top)
        return SampledToken(token.id, self._spelled(token.id), token.logprob, top)

    def _spelled(self, token: int) -> str:
        return str(self._tokenizer.decode([token]))
