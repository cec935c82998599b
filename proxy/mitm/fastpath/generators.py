"""Faster versions of how mitmproxy's layers hand events down and commands up.

A layer is a generator in a generator: each command of the innermost is yielded by all around it.
"""

import logging
from collections.abc import Iterator
from typing import Any

from mitmproxy.proxy import commands, events, layer, layers
from mitmproxy.proxy.layers import tls
from mitmproxy.proxy.layers.http import SendHttp
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import RequestHeaders
from mitmproxy.proxy.tunnel import TunnelState

_SEALED_BYTES = 65535
"""As much of what TLS has made is taken at once; stock code takes as much."""
_WANT_READ: type[Exception] = tls.SSL.WantReadError  # type: ignore[attr-defined]  # pyOpenSSL's
_tls_event = tls.TLSLayer._handle_event
_event_to_server = tls.ServerTLSLayer.event_to_child
_event_to_client = tls.ClientTLSLayer.event_to_child


def handle_event(one: Any, event: events.Event) -> Iterator[commands.Command]:
    """Hand an event to a layer; stock asks at each of 170 commands a call whether it is to be told."""
    if one._paused is None:
        generator = one._handle_event(event)
        for command in generator:
            if command.blocking is True:
                command.blocking = one
                one._paused = layer.Paused(command, generator)
                yield command
                return
            yield command
    elif isinstance(event, events.CommandCompleted) and event.command is one._paused.command:
        yield from one._Layer__continue(event)
    else:
        one._paused_event_queue.append(event)


def event_to_child(http_layer: Any, child: Any, event: events.Event) -> Iterator[commands.Command]:
    """Hand an event on, and what comes of it; stock asks 245 times a call what a command is, 12 µs."""
    for command in child.handle_event(event):
        kind = type(command)
        if command.blocking or kind is commands.RequestWakeup:
            http_layer.command_sources[command] = child
        if kind is ReceiveHttp:
            event_ = command.event
            if isinstance(event_, RequestHeaders):
                yield from http_layer.make_stream(event_.stream_id)
            stream = http_layer.streams.get(event_.stream_id)
            if stream is not None:
                yield from http_layer.event_to_child(stream, event_)
        elif kind is SendHttp:
            receiver = http_layer.connections[command.connection]
            yield from http_layer.event_to_child(receiver, command.event)
        elif kind is commands.Log and command.level < logging.WARNING:
            pass  # nobody would see it
        elif kind is layers.http.DropStream:
            http_layer.streams.pop(command.stream_id, None)
        elif kind is layers.http.GetHttpConnection:
            yield from http_layer.get_connection(command)
        elif kind is layers.http.RegisterHttpConnection:
            yield from http_layer.register_connection(command)
        else:
            if kind is commands.OpenConnection:
                http_layer.connections[command.connection] = child
            yield command


def tls_event(one: tls.TLSLayer, event: events.Event) -> Iterator[commands.Command]:
    """Take an event; under TLS that stands most come from inside, or are data to be opened."""
    if one.tunnel_state is TunnelState.OPEN:
        if not isinstance(event, events.ConnectionEvent):
            return one.event_to_child(event)
        if type(event) is events.DataReceived and event.connection is one.tunnel_connection:
            return one.receive_data(event.data)
    return _tls_event(one, event)


def event_to_tls_client(one: tls.ClientTLSLayer, event: events.Event) -> Iterator[commands.Command]:
    """Hand an event to what a client's TLS protects."""
    return (_event_to_client if _is_beginning(one) else _event_under_tls)(one, event)


def event_to_tls_server(one: tls.ServerTLSLayer, event: events.Event) -> Iterator[commands.Command]:
    """Hand an event to what an upstream's TLS protects."""
    stock = one.wait_for_clienthello or _is_beginning(one)
    return (_event_to_server if stock else _event_under_tls)(one, event)


def _is_beginning(one: tls.TLSLayer) -> bool:
    return one.tunnel_state is TunnelState.ESTABLISHING and not one.command_to_reply_to


def _event_under_tls(one: tls.TLSLayer, event: events.Event) -> Iterator[commands.Command]:
    """Hand an event on; all that is sent because of it is sealed together, stock seals each part."""
    parts: list[bytes] = []
    for command in one.child_layer.handle_event(event):
        if type(command) is commands.SendData and command.connection is one.conn:
            parts.append(command.data)
        elif isinstance(command, commands.ConnectionCommand) and command.connection == one.conn:
            if parts:
                yield from one.send_data(b"".join(parts))
                parts.clear()
            yield from one._handle_command(command)
        else:
            yield command
    if parts:
        yield from one.send_data(b"".join(parts))


def tls_interact(one: tls.TLSLayer) -> Iterator[commands.Command]:
    """Send what TLS has made; stock reads on until an exception says that there is no more."""
    size = _SEALED_BYTES
    while size == _SEALED_BYTES:
        try:
            data = one.tls.bio_read(_SEALED_BYTES)
        except _WANT_READ:
            return
        size = len(data)
        yield commands.SendData(one.conn, data)
