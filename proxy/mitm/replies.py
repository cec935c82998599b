"""The gateway's own answers as mitmproxy's responses."""

import time

from mitmproxy import http
from mitmproxy.net.http import status_codes

from proxy.heads import content_length, names
from proxy.mitm.wire.stream import DRAINED_BYTES
from proxy.responses import LocalReply

_ENDLESS = frozenset({b"transfer-encoding", b"expect"})
"""Bodies that may never end, or never come."""


def response_of(reply: LocalReply) -> http.Response:
    """Return an answer as mitmproxy's response."""
    now = time.time()
    return http.Response(
        b"HTTP/1.1",
        reply.status,
        status_codes.RESPONSES.get(reply.status, "").encode(),
        http.Headers(reply.headers),
        reply.body,
        None,
        now,
        now,
    )


def answer_at_head(flow: http.HTTPFlow, response: http.Response) -> None:
    """Answer a request before its body has come; the body is not kept."""
    fields = flow.request.headers.fields
    if content_length(fields) > DRAINED_BYTES or not names(fields).isdisjoint(_ENDLESS):
        response.headers["connection"] = "close"
    flow.response = response
    flow.request.stream = True
