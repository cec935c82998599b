"""The gateway's own answers as mitmproxy's responses."""

import time

from mitmproxy import http
from mitmproxy.net.http import status_codes

from proxy.answers import Answer


def response_of(reply: Answer) -> http.Response:
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


def proxy_refusal() -> http.Response:
    """Return what a client of the forward proxy hears that presents no key."""
    text = b"Headrace: this proxy needs a client key in Proxy-Authorization; see `headrace env --proxy`.\n"
    headers = (
        (b"proxy-authenticate", b'Basic realm="headrace"'),
        (b"content-type", b"text/plain"),
        (b"content-length", b"%d" % len(text)),
    )
    return response_of(Answer(407, headers, text))
