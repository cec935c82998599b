"""WebSocket connections without compression, whose messages have a bound.

A message is held until its last frame has come. Compressed, a few kilobytes of one would be
gigabytes; so the extension is offered to no upstream and agreed to with no client.
"""

import time
from collections.abc import Generator, Sequence
from typing import Any

from mitmproxy import http, websocket
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.websocket import (
    WebsocketConnection,
    WebsocketEndHook,
    WebsocketLayer,
    WebsocketMessageHook,
)
from wsproto.connection import ConnectionState
from wsproto.events import BytesMessage, CloseConnection, TextMessage
from wsproto.frame_protocol import CloseReason

type Commands = Generator[commands.Command, Any, None]

MESSAGE_BYTES = 32 * 1024 * 1024
"""Bytes that a message may have; each of its frames counts as some more."""
_FRAME_BYTES = 64
_TO_CLIENT, _TO_SERVER = "headrace_to_client", "headrace_to_server"
_ENDS = "headrace_ends"


def put_instead(
    flow: http.HTTPFlow,
    message: websocket.WebSocketMessage,
    *,
    to_client: Sequence[bytes] = (),
    to_server: Sequence[bytes] = (),
) -> None:
    """Have these messages sent in the place of the latest one, each in one frame.

    The library would cut a message that has another length than before within its characters.
    """
    message.dropped = True
    flow.metadata[_TO_CLIENT], flow.metadata[_TO_SERVER] = to_client, to_server


def end_instead(flow: http.HTTPFlow, message: websocket.WebSocketMessage) -> None:
    """Have the connection ended in the place of the latest message: who says it may say no more."""
    message.dropped = True
    flow.metadata[_ENDS] = True


class BoundedRelay(WebsocketLayer):
    """Relays messages; who sends one that is too large, or may send none, is told so, and the connection ends."""

    def start(self, event: events.Event) -> Commands:
        """Begin without extensions, whatever the upstream says."""
        if self.flow.response is not None:
            self.flow.response.headers.pop("Sec-WebSocket-Extensions", None)
        yield from super().start(event)

    _handle_event = start

    def relay_messages(self, event: events.Event) -> Commands:
        """Relay what came, and look at what is held of a message that has not ended."""
        for command in super().relay_messages(event):
            yield command
            if isinstance(command, WebsocketMessageHook):
                if _ENDS in self.flow.metadata:
                    yield from self._end(self.client_ws, CloseReason.POLICY_VIOLATION)
                    return
                yield from self._instead()
        for source in (self.client_ws, self.server_ws):
            held = source.frame_buf
            if sum(map(len, held)) + _FRAME_BYTES * len(held) > MESSAGE_BYTES:
                yield from self._end(source, CloseReason.MESSAGE_TOO_BIG)
                return

    def _instead(self) -> Commands:
        """Send what goes in the place of the message that the hook was told of."""
        assert self.flow.websocket is not None  # noqa: S101 - for the type checker, as in stock code
        is_text = self.flow.websocket.messages[-1].is_text
        for side, name in ((self.server_ws, _TO_SERVER), (self.client_ws, _TO_CLIENT)):
            for content in self.flow.metadata.pop(name, ()):
                text = TextMessage(content.decode()) if is_text else BytesMessage(content)
                yield side.send2(text)

    def _end(self, source: WebsocketConnection, reason: CloseReason) -> Commands:
        """Close both sides."""
        talk = self.flow.websocket
        assert talk is not None  # noqa: S101 - for the type checker, as in stock code
        talk.timestamp_end = time.time()
        talk.closed_by_client = source is self.client_ws
        talk.close_code = reason
        for side in (self.server_ws, self.client_ws):
            if side.state is ConnectionState.OPEN:
                yield side.send2(CloseConnection(code=reason))
            side.frame_buf = [b""]
            yield commands.CloseConnection(side.conn)
        yield WebsocketEndHook(self.flow)
        self.flow.live = False
        self._handle_event = self.done  # type: ignore[method-assign]
