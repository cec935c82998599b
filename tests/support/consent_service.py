"""A company's consent service: says what each end user agreed to, and fails in the ways that services do."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

FAILURES = ("nothing", "status", "cut", "chunks", "other", "words")
"""Ways of not answering: hanging up, 503, a body or its chunks cut off, another body, words that are no text."""


class ConsentService(HTTPServer):
    """Answers what each end user agreed to, and counts the questions."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Question)
        self.asked: list[dict[str, str]] = []
        self.failure = ""
        """One of :data:`FAILURES`, while it is down."""
        self.silent_for: set[str] = set()
        """End users of whom it says nothing."""
        self.granted: dict[str, list[str]] = {}

    @property
    def url(self) -> str:
        """Where it is asked."""
        return f"http://127.0.0.1:{self.server_port}/"

    def names(self) -> list[str]:
        """Return whom it was asked about."""
        return [one["end_user"] for one in self.asked]


class _Question(BaseHTTPRequestHandler):
    """One question."""

    server: ConsentService

    def do_POST(self) -> None:
        said = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(said | {"token": self.headers.get("authorization", "")})
        failure = self.server.failure
        if said["end_user"] in self.server.silent_for:
            failure = "nothing"
        purposes: list[object] = [*self.server.granted.get(said["end_user"], ["eval"])]
        if failure == "words":
            purposes.append(7)
        body = b"{}" if failure == "other" else json.dumps({"purposes": purposes}).encode()
        if failure == "nothing":
            return
        self.send_response(503 if failure == "status" else 200)
        if failure == "chunks":
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n" % len(body) + body)
            return
        self.send_header("content-length", str(len(body) + (failure == "cut")))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@contextmanager
def consent_service() -> Iterator[ConsentService]:
    """Run one in a thread."""
    with ConsentService() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
