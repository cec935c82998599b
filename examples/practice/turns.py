"""Reads generated tokens as a turn: text and tool calls, piece by piece as they arrive."""

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from examples.practice.engine import Token
from examples.practice.tokenizer import CALL_CLOSE, CALL_OPEN

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True, slots=True)
class TextPiece:
    """More text of the answer."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call begins; its name is known."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallPiece:
    """More of a tool call's arguments."""

    index: int
    text: str = field(repr=False)


type Piece = TextPiece | CallStart | CallPiece


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as the model wrote it."""

    name: str
    arguments: str = field(repr=False)

    def parsed(self) -> dict[str, object] | None:
        """Return the arguments as an object; None when they are not one."""
        try:
            value = json.loads(self.arguments)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


class TurnReader:
    """Feed it tokens; it gives pieces. Without tools, tags are plain text."""

    def __init__(self, tokenizer: "PreTrainedTokenizerFast", *, with_tools: bool) -> None:
        self._tokenizer = tokenizer
        self._open = tokenizer.convert_tokens_to_ids(CALL_OPEN) if with_tools else None
        self._close = tokenizer.convert_tokens_to_ids(CALL_CLOSE) if with_tools else None
        self._ids: list[int] = []
        self._given = 0
        self._in_call = False
        self._named = False
        self.text = ""
        self.calls: list[ToolCall] = []

    def feed(self, token: Token) -> list[Piece]:
        """Return what this token adds; an end-of-turn token adds nothing."""
        if token.last == "stop":
            return []
        if token.id == self._open and not self._in_call:
            self._begin(in_call=True)
            return []
        if token.id == self._close and self._in_call:
            self._begin(in_call=False)
            return []
        self._ids.append(token.id)
        whole = self._tokenizer.decode(self._ids, skip_special_tokens=True)
        if whole.endswith("\N{REPLACEMENT CHARACTER}"):
            return []  # half of a character: the next token completes it
        return self._name(whole) if self._in_call and not self._named else self._more(whole)

    def _begin(self, *, in_call: bool) -> None:
        self._ids, self._given, self._in_call, self._named = [], 0, in_call, False

    def _name(self, whole: str) -> list[Piece]:
        name, space, _ = whole.partition(" ")
        if not space:
            return []
        self._named = True
        self._given = len(name) + 1
        self.calls.append(ToolCall(name, ""))
        return [CallStart(len(self.calls) - 1, name), *self._more(whole)]

    def _more(self, whole: str) -> list[Piece]:
        new, self._given = whole[self._given :], len(whole)
        if not new:
            return []
        if not self._in_call:
            self.text += new
            return [TextPiece(new)]
        last = self.calls[-1]
        self.calls[-1] = ToolCall(last.name, last.arguments + new)
        return [CallPiece(len(self.calls) - 1, new)]
