"""Corrections to mitmproxy's HTTP layers: what a client would notice that it is there.

Stock 12.2 answers its own errors as HTML that may quote the upstream. It takes an informational
response for the final one and answers ``Expect`` itself. It hangs on chunked trailers, which AWS
SDKs send with their checksums. It lets heads through that others read differently, and reads whole
what it will refuse. It holds WebSocket messages and TLS greetings of any size. It gives up when one
upstream of several cannot be reached, and one name that cannot be looked up holds up all. All corrections are subclasses that :func:`install` puts in
the place of the originals, once per process, for exactly the version that they were made for.
"""

import logging

from mitmproxy.net.http import http1 as stock_http1
from mitmproxy.proxy import server
from mitmproxy.proxy.layers import http as http_layer
from mitmproxy.proxy.layers import tls
from mitmproxy.proxy.layers import websocket as stock_websocket
from mitmproxy.proxy.layers.http import _http1

from proxy.mitm.fastpath import MITMPROXY_VERSION, fits
from proxy.mitm.wire.client_hello import receive_greeting
from proxy.mitm.wire.http1 import (
    PatientClient,
    ShapedServer,
    TrailerReader,
    own_words,
    raw_answer,
    read_request_head,
    read_response_head,
)
from proxy.mitm.wire.http2 import StrictStreams, client_left, get_connection
from proxy.mitm.wire.stream import (
    RequestDestination,
    RoutedStream,
    forget_expectation,
    forget_way,
    mark_shape,
    mark_way,
    shape_of_errors,
)
from proxy.mitm.wire.upstream_socket import connecting_asyncio
from proxy.mitm.wire.websocket import BoundedRelay

_log = logging.getLogger(__name__)


def install() -> bool:
    """Put the corrections in place; tell whether they are. Calling it again changes nothing."""
    if not fits():
        _log.warning(
            "corrections off: made for mitmproxy %s; trailers and 1xx answers are treated as "
            "that version treats them",
            MITMPROXY_VERSION,
        )
        return False
    for owner, name, value in (
        (http_layer, "HttpStream", RoutedStream),
        (http_layer, "Http1Server", ShapedServer),
        (http_layer, "Http1Client", PatientClient),
        (http_layer, "Http2Server", StrictStreams),
        (http_layer.HttpLayer, "get_connection", get_connection),
        (stock_http1, "read_request_head", read_request_head),
        (stock_http1, "read_response_head", read_response_head),
        (_http1, "make_error_response", own_words),
        (_http1, "ChunkedReader", TrailerReader),
        (stock_websocket, "WebsocketLayer", BoundedRelay),
        (tls.ClientTLSLayer, "receive_handshake_data", receive_greeting),
        (server, "asyncio", connecting_asyncio()),
    ):
        setattr(owner, name, value)
    return True


__all__ = [
    "PatientClient",
    "RequestDestination",
    "RoutedStream",
    "ShapedServer",
    "TrailerReader",
    "client_left",
    "forget_expectation",
    "forget_way",
    "install",
    "mark_shape",
    "mark_way",
    "raw_answer",
    "shape_of_errors",
]
