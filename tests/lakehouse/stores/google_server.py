"""Google's XML interface in front of an S3 server: it is S3's but for the names of some headers.

Usage: python -m tests.lakehouse.stores.google_server PORT S3_ADDRESS. For tests of ``gs://`` only: no emulator on
the package index speaks that interface.
"""

import sys
from contextlib import suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_SIGNED = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
"""The server behind asks for a signature and does not check it."""

_NOT_SENT = frozenset(
    {"host", "connection", "authorization", "content-length", "transfer-encoding"}
)


class Translator(BaseHTTPRequestHandler):
    """Hands each request on with S3's names, and its answer back with Google's."""

    protocol_version = "HTTP/1.1"
    upstream: str

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        sent = {"content-length": str(len(body)), "authorization": _SIGNED}
        for name, value in self.headers.items():
            lower = name.lower()
            if lower == "x-goog-if-generation-match":
                sent["if-none-match"] = "*"  # Delta asks for generation 0 only: not there yet
            elif lower not in _NOT_SENT:
                sent[lower.replace("x-goog-", "x-amz-")] = value
        connection = HTTPConnection(self.upstream, timeout=60)
        try:
            connection.request(self.command, self.path, body, sent)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in (
                "connection",
                "transfer-encoding",
                "content-length",
                "date",
                "server",
            ):
                self.send_header(name, value)
        length = answer.getheader("content-length") if self.command == "HEAD" else None
        self.send_header("content-length", length or str(len(data)))
        if etag := answer.getheader("etag"):
            self.send_header(
                "x-goog-generation", str(int(etag.strip('"').partition("-")[0][:15], 16))
            )
        self.end_headers()
        if self.command != "HEAD":
            with suppress(BrokenPipeError, ConnectionResetError):  # who asked may have gone
                self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _hand_on  # noqa: N815 - the names are given

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main(port: int, upstream: str) -> None:
    """Serve until killed."""
    Translator.upstream = urlsplit(upstream).netloc
    ThreadingHTTPServer(("127.0.0.1", port), Translator).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
