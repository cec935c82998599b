"""WebSocket conversations: each message is framed into the capture, and turns become exchanges.

A connection may live for hours. An exchange ends when the model's turn is over and the client speaks again.
Another begins under the same heads. So each turn is governed soon, and nobody holds a whole conversation in
memory.
"""

import re
import time

from proxy.recording.capture import Capture
from trajectory.dialects.websocket import pack_message
from trajectory.exchange import ExchangeOutcome

_HEAD = 256
_TURN_ENDS = (b"response.completed", b"response.incomplete", b"response.failed")
"""OpenAI responses: each turn stands by itself or names the one before."""
_TALK_ENDS = b"response.done"
"""OpenAI Realtime: turns build on what was said before on this connection."""
_TURN = re.compile(rb'(?<!\\)"(?:type"\s*:\s*"response\.created"|turnComplete"\s*:\s*true)')
"""OpenAI says when a turn begins, Gemini when it is over."""
TALK_BYTES = 16 * 1024 * 1024
"""A conversation whose turns build on each other is cut at this size, at the end of a turn."""
CONVERSATION_BYTES = 64 * 1024 * 1024
"""Any conversation is cut here."""


class WebSocketCapture:
    """The messages of one connection."""

    __slots__ = ("_bytes", "_cut_at", "_number", "capture")

    def __init__(self, capture: Capture) -> None:
        """Begin with the capture that holds the heads."""
        self.capture = capture
        self._number = 0
        self._bytes = 0
        self._cut_at = CONVERSATION_BYTES

    def message(self, content: bytes, *, is_text: bool, from_client: bool) -> None:
        """Record a message; a fault of ours costs the capture, never the message."""
        try:
            if self._bytes >= (self._cut_at if from_client else CONVERSATION_BYTES):
                self._next_exchange()
            frame = pack_message(self._number, time.time(), content, is_text=is_text)
            self._number += 1
            self._bytes += len(frame)
        except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
            self.capture.abandon(error)
            return
        if from_client:
            self.capture.on_request(frame)
        else:
            self._cut_at = cut_after(content[:_HEAD], self._cut_at)
            self.capture.on_response(frame)

    def _next_exchange(self) -> None:
        self.capture.end(ExchangeOutcome.COMPLETE)
        self.capture = self.capture.again()
        self._number = self._bytes = 0
        self._cut_at = CONVERSATION_BYTES


def cut_after(head: bytes, before: int) -> int:
    """Return from which size on the conversation may be cut after this message of the server."""
    if any(word in head for word in _TURN_ENDS):
        return 1
    if _TALK_ENDS in head:
        return TALK_BYTES
    # Within a turn only the last bound counts; what merely follows one (limits) changes nothing.
    return CONVERSATION_BYTES if b"response.created" in head else before


def tells_a_turn(content: bytes) -> bool:
    """Tell whether a message of the server stands for one turn of the model."""
    return _TURN.search(content[:_HEAD]) is not None
