"""Corrections of mitmproxy's HTTP/1 layer, fed with events: no socket, any boundaries."""

import logging
import warnings

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of mitmproxy's own imports
    from mitmproxy import connection, options, version
    from mitmproxy.http import Headers, Request
    from mitmproxy.proxy import commands, context, events
    from mitmproxy.proxy.layers import http as http_layer
    from mitmproxy.proxy.layers.http._http1 import ReceiveHttp
    from mitmproxy.test import tflow

    from proxy.mitm import wire
    from proxy.mitm.wire import PatientClient, TrailerReader, raw_answer
    from proxy.responses import LocalReply

HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
FINAL = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"


def answered(pieces: list[bytes], *, version: bytes = b"HTTP/1.1") -> tuple[bytes, list[int]]:
    """Feed an upstream's bytes; return what goes to the client at once, and the final statuses."""
    client = tflow.tclient_conn()
    surroundings = context.Context(client, options.Options())
    server = tflow.tserver_conn()
    server.state = connection.ConnectionState.OPEN
    surroundings.server = server
    layer = PatientClient(surroundings)
    request: Request = tflow.treq(http_version=version, headers=Headers())
    layer.request, layer.stream_id, layer.state = request, 1, layer.read_headers
    sent, statuses = b"", []
    for piece in pieces:
        for command in layer.handle_event(events.DataReceived(server, piece)):
            if isinstance(command, commands.SendData):
                assert command.connection is client
                sent += command.data
            elif isinstance(command, ReceiveHttp) and hasattr(command.event, "response"):
                statuses.append(command.event.response.status_code)
    return sent, statuses


@given(cuts=st.lists(st.integers(0, len(HINTS + CONTINUE + HINTS + FINAL)), max_size=6))
def test_informational_answers_pass(cuts: list[int]) -> None:
    whole = HINTS + CONTINUE + HINTS + FINAL
    at = sorted(cuts)
    pieces = [whole[a:b] for a, b in zip([0, *at], [*at, len(whole)], strict=True) if a != b]
    assert answered(pieces) == (HINTS + CONTINUE + HINTS, [200])


def test_clients_of_http_1_0_get_only_the_final_one() -> None:
    assert answered([HINTS + FINAL], version=b"HTTP/1.0") == (b"", [200])


@given(cut=st.integers(0, 60))
def test_trailers_are_kept_aside(cut: int) -> None:
    data = b"3\r\nabc\r\n0\r\nX-Checksum: 1\r\nx-more: 2\r\n\r\n"
    reader, buffer, body = TrailerReader(), h11._receivebuffer.ReceiveBuffer(), b""
    for piece in (data[:cut], data[cut:]):
        buffer += piece
        while (event := reader(buffer)) is not None:
            if isinstance(event, h11.EndOfMessage):
                assert not event.headers
                assert body == b"abc"
                assert bytes(reader.trailers or b"") == b"X-Checksum: 1\r\nx-more: 2\r\n"
                return
            body += bytes(event.data)
    raise AssertionError("the end did not come")


def test_another_version_runs_as_it_comes_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = http_layer.HttpStream
    monkeypatch.setattr(version, "VERSION", "99.0")
    with caplog.at_level(logging.WARNING, "proxy.mitm.wire"):
        assert not wire.install()
    assert "corrections off: made for mitmproxy" in caplog.text
    assert http_layer.HttpStream is before


def test_an_answer_as_bytes_ends_the_connection() -> None:
    raw = raw_answer(LocalReply(502, ((b"content-length", b"2"),), b"{}"))
    assert raw == b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
