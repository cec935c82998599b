"""Reads generated tokens as a turn: text and tool calls, piece by piece as they arrive."""

from typing import TYPE_CHECKING

from examples.practice.tokenizer import CALL_CLOSE, CALL_OPEN
from train.types import Token
from trajectory.dialects.writer import CallPiece, CallStart, Piece, TextPiece, new_id
from trajectory.message import Message, TextPart, ToolCallPart

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class TurnReader:
    """Feed it tokens; it gives pieces. Without tools, tags are plain text."""

    def __init__(
        self, tokenizer: "PreTrainedTokenizerFast", *, with_tools: bool, call_id: str = "call_"
    ) -> None:
        """Begin a turn; ids of tool calls begin with ``call_id``."""
        self._tokenizer = tokenizer
        self._call_id = call_id
        self._open = tokenizer.convert_tokens_to_ids(CALL_OPEN) if with_tools else None
        self._close = tokenizer.convert_tokens_to_ids(CALL_CLOSE) if with_tools else None
        self._ids: list[int] = []
        self._given = 0
        self._in_call = False
        self._named = False
        self.text = ""
        self.calls: list[ToolCallPart] = []
        """Arguments stay the text that the model wrote."""

    @property
    def message(self) -> Message:
        """The turn as far as it has come."""
        text = (TextPart(self.text),) if self.text or not self.calls else ()
        return Message("assistant", (*text, *self.calls))

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
        call_id = new_id(self._call_id)
        self.calls.append(ToolCallPart(call_id, name, ""))
        return [CallStart(call_id, name), *self._more(whole)]

    def _more(self, whole: str) -> list[Piece]:
        new, self._given = whole[self._given :], len(whole)
        if not new:
            return []
        if not self._in_call:
            self.text += new
            return [TextPiece(new)]
        last = self.calls[-1]
        self.calls[-1] = ToolCallPart(last.call_id, last.name, f"{last.arguments}{new}")
        return [CallPiece(new)]
