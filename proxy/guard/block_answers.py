"""Tool calls in the answers of Anthropic's messages and Bedrock's converse: blocks among blocks."""

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from proxy.guard.answer_calls import (
    AnswerForm,
    Event,
    FoundCall,
    Texts,
    UnreadableAnswerError,
    is_call_of_client,
    objects,
)

_TYPES = frozenset(
    {
        *("message_start", "message_delta", "message_stop", "ping"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)
_EVENTS = (
    *("messageStart", "messageStop", "metadata"),
    *("contentBlockStart", "contentBlockDelta", "contentBlockStop"),
)


class _Piece(NamedTuple):
    """What an event says of a block."""

    at: Hashable
    begins: dict[str, Any] | None = None
    """The call that begins here."""
    more: str | None = None
    """More of a call's arguments."""


class BlockAnswers(AnswerForm):
    """Answers of numbered blocks, some of which are calls."""

    def __init__(self) -> None:
        super().__init__()
        self._others: set[Hashable] = set()
        """Blocks that are no calls of the client's, of those that it has."""

    @abstractmethod
    def _blocks(self, value: Event) -> list[dict[str, Any]] | None:
        """Return the blocks of a whole answer; None for an event."""

    @abstractmethod
    def _call(self, block: dict[str, Any]) -> dict[str, Any] | None:
        """Return the call that a block is, for the client to make."""

    @abstractmethod
    def _piece(self, event: Event) -> _Piece | None:
        """Return what an event says of a block; None where that is nothing."""

    @abstractmethod
    def _text_block(self, text: str) -> dict[str, Any]:
        """Return a block of text."""

    @abstractmethod
    def _text_events(self, at: Hashable, text: str) -> list[Event]:
        """Return the events that begin a block of text and fill it."""

    @abstractmethod
    def _stopped(self, event: Event) -> Event:
        """Return an event, or a whole answer, that does not say that calls follow."""

    def known(self, value: Event) -> Iterator[Any]:
        """Yield the calls."""
        blocks = self._blocks(value)
        if blocks is not None:
            yield from (call for one in blocks if (call := self._call(one)) is not None)
        elif (piece := self._piece(value)) is not None and piece.begins is not None:
            yield piece.begins

    def begins(self, value: Event) -> bool:
        """Tell by the block that begins, or by arguments that belong to no other."""
        blocks = self._blocks(value)
        if blocks is not None:
            return any(self._call(one) is not None for one in blocks)
        piece = self._piece(value)
        if piece is None:
            return False
        return piece.begins is not None or (piece.more is not None and piece.at not in self._others)

    def note(self, value: Event) -> None:
        """Note which blocks have begun."""
        if self._blocks(value) is None and (piece := self._piece(value)) is not None:
            self._others.add(piece.at)

    def calls(self, values: Sequence[Event]) -> dict[Hashable, FoundCall]:
        """Return the calls, joined of their pieces."""
        begun: dict[Hashable, dict[str, Any]] = {}
        others = {*self._others}
        said: dict[Hashable, str] = {}
        for event in values:
            blocks = self._blocks(event)
            for at, block in enumerate(blocks or ()):
                if (call := self._call(block)) is not None:
                    begun[at] = call
            piece = self._piece(event) if blocks is None else None
            if piece is None:
                continue
            if piece.begins is not None:
                if piece.at in begun:
                    raise UnreadableAnswerError("a block twice")
                begun[piece.at] = piece.begins
            elif piece.more is None:
                others.add(piece.at)
            elif piece.at not in others:
                said[piece.at] = said.get(piece.at, "") + piece.more
        if said.keys() - begun.keys():
            raise UnreadableAnswerError("arguments of no call")
        return {at: _found(call, said.get(at)) for at, call in begun.items()}

    def without(self, values: Sequence[Event], texts: Texts) -> list[Event]:
        """Put a block of text in the place of a call's block."""
        left = self.calls(values).keys() - texts.keys()
        out: list[Event] = []
        for event in values:
            blocks = self._blocks(event)
            if blocks is not None:
                told = [
                    self._text_block(texts[at]) if at in texts else one
                    for at, one in enumerate(blocks)
                ]
                out.append(self._with_blocks(event, told))
                continue
            piece = self._piece(event)
            if piece is None or piece.at not in texts:
                out.append(event)
            elif piece.begins is not None:
                out += self._text_events(piece.at, texts[piece.at])
        return out if left else [self._stopped(event) for event in out]

    @abstractmethod
    def _with_blocks(self, value: Event, blocks: list[dict[str, Any]]) -> Event:
        """Return a whole answer with other blocks."""


def _found(call: dict[str, Any], said: str | None) -> FoundCall:
    name = call.get("name")
    tool = name if isinstance(name, str) else None
    given = call.get("input")
    if said and given:
        raise UnreadableAnswerError("arguments in two places")
    if said is not None:
        return FoundCall(tool, said)
    return FoundCall(tool, {} if given is None else given, isinstance(given, str))


class MessagesAnswers(BlockAnswers):
    """Anthropic's messages."""

    named = True

    @staticmethod
    def takes(value: Event) -> bool:
        """Tell by the type."""
        if value.get("type") in _TYPES:
            return True
        return value.get("type") == "message" and "stop_reason" in value

    def _blocks(self, value: Event) -> list[dict[str, Any]] | None:
        return objects(value.get("content")) if value.get("type") == "message" else None

    def _with_blocks(self, value: Event, blocks: list[dict[str, Any]]) -> Event:
        return {**value, "content": blocks}

    def _call(self, block: dict[str, Any]) -> dict[str, Any] | None:
        return block if is_call_of_client(str(block.get("type"))) else None

    def _piece(self, event: Event) -> _Piece | None:
        at = event.get("index")
        match event.get("type"):
            case "content_block_start":
                block = event.get("content_block")
                return _Piece(at, self._call(block) if isinstance(block, dict) else None)
            case "content_block_delta":
                delta = event.get("delta")
                if isinstance(delta, dict) and delta.get("type") == "input_json_delta":
                    return _Piece(at, more=str(delta.get("partial_json")))
        return None

    def _text_block(self, text: str) -> dict[str, Any]:
        return {"type": "text", "text": text}

    def _text_events(self, at: Hashable, text: str) -> list[Event]:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": text}
        return [
            {"type": "content_block_start", "index": at, "content_block": block},
            {"type": "content_block_delta", "index": at, "delta": delta},
        ]

    def _stopped(self, event: Event) -> Event:
        if event.get("stop_reason") == "tool_use":
            return {**event, "stop_reason": "end_turn"}
        delta = event.get("delta")
        if isinstance(delta, dict) and delta.get("stop_reason") == "tool_use":
            return {**event, "delta": {**delta, "stop_reason": "end_turn"}}
        return event

    def keep_alive(self) -> Event:
        """Return the protocol's own word for it."""
        return {"type": "ping"}


class ConverseAnswers(BlockAnswers):
    """Bedrock's converse, and Nova's bodies: an event is an object with its type as the key."""

    @staticmethod
    def takes(value: Event) -> bool:
        """Tell by the type of an event, or by the message."""
        if any(name in value for name in _EVENTS):
            return True
        output = value.get("output")
        return isinstance(output, dict) and isinstance(output.get("message"), dict)

    def _blocks(self, value: Event) -> list[dict[str, Any]] | None:
        output = value.get("output")
        message = output.get("message") if isinstance(output, dict) else None
        return objects(message.get("content")) if isinstance(message, dict) else None

    def _with_blocks(self, value: Event, blocks: list[dict[str, Any]]) -> Event:
        output = value["output"]
        return {**value, "output": {**output, "message": {**output["message"], "content": blocks}}}

    def _call(self, block: dict[str, Any]) -> dict[str, Any] | None:
        use = block.get("toolUse")
        if not isinstance(use, dict) or use.get("type") == "server_tool_use":
            return None
        return use

    def _piece(self, event: Event) -> _Piece | None:
        start, delta = event.get("contentBlockStart"), event.get("contentBlockDelta")
        if isinstance(start, dict) and isinstance(block := start.get("start"), dict):
            return _Piece(start.get("contentBlockIndex"), self._call(block))
        if isinstance(delta, dict) and isinstance(said := delta.get("delta"), dict):
            use = said.get("toolUse")
            if isinstance(use, dict):
                return _Piece(delta.get("contentBlockIndex"), more=str(use.get("input")))
        return None

    def known(self, value: Event) -> Iterator[Any]:
        """Yield the calls, and what fills them."""
        yield from super().known(value)
        delta = value.get("contentBlockDelta")
        if isinstance(delta, dict) and isinstance(said := delta.get("delta"), dict):
            yield said.get("toolUse")

    def _text_block(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def _text_events(self, at: Hashable, text: str) -> list[Event]:
        return [{"contentBlockDelta": {"contentBlockIndex": at, "delta": {"text": text}}}]

    def _stopped(self, event: Event) -> Event:
        if event.get("stopReason") == "tool_use":
            return {**event, "stopReason": "end_turn"}
        stop = event.get("messageStop")
        if isinstance(stop, dict) and stop.get("stopReason") == "tool_use":
            return {**event, "messageStop": {**stop, "stopReason": "end_turn"}}
        return event
