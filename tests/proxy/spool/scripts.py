"""Writes exchanges into a spool without a gateway: what the tests of the spool share."""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from proxy.spool import RecordKind, SpoolWriter, records
from trajectory.exchange import ClientIdentity, ExchangeOutcome

KEY = b"k" * 32
CLIENT = ClientIdentity("tenant", "app", "test", "0123456789ab", ("train_sft",))


def open_segment(spool: Path) -> int:
    """Return the descriptor of the segment that this process writes to in a spool."""
    newest = max(spool.glob("*/*.spool"), key=lambda path: path.name).resolve()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that the folder itself was read by is gone
            if entry.readlink() == newest:
                return int(entry.name)
    raise AssertionError(f"{newest} is not open")


def name(number: int) -> bytes:
    """Return the sixteen bytes of an exchange id."""
    return number.to_bytes(16, "big")


@dataclass
class ExchangeScript:
    """Writes the records of one exchange, one call at a time."""

    writer: SpoolWriter
    number: int
    at: float = 1000.0
    sequence: int = field(default=0)
    batch: bool = False
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Of the request, beside its content type."""
    client: ClientIdentity = CLIENT

    def head(self) -> None:
        record = records.request_head(
            name(self.number),
            started_at=self.at,
            origin=records.pack_origin(
                self.client, route="r", mode="base_url", upstream="http://u:1"
            ),
            method=b"POST",
            path=b"/v1/chat/completions",
            query=b"",
            headers=((b"Content-Type", b"application/json"), *self.headers),
        )
        self.writer.append(RecordKind.REQUEST_HEAD, record, batch=self.batch)
        self.sequence = 1

    def request(self, data: bytes) -> None:
        record = records.request_chunk(name(self.number), self.sequence, data)
        self.writer.append(RecordKind.REQUEST_CHUNK, record, batch=self.batch)
        self.sequence += 1

    def answer(self, status: int = 200) -> None:
        record = records.response_head(
            name(self.number), self.sequence, at=self.at + 1, status=status, headers=()
        )
        self.writer.append(RecordKind.RESPONSE_HEAD, record, batch=self.batch)
        self.sequence += 1

    def response(self, data: bytes) -> None:
        record = records.response_chunk(name(self.number), self.sequence, at=self.at + 2, data=data)
        self.writer.append(RecordKind.RESPONSE_CHUNK, record, batch=self.batch)
        self.sequence += 1

    def end(self, outcome: ExchangeOutcome = ExchangeOutcome.COMPLETE) -> None:
        record = records.end(name(self.number), self.sequence, at=self.at + 3, outcome=outcome)
        self.writer.append(RecordKind.END, record, batch=self.batch)

    def whole(self, request: bytes = b"ask", response: bytes = b"answer") -> None:
        self.head()
        self.request(request)
        self.answer()
        self.response(response)
        self.end()


def feedback(writer: SpoolWriter, number: int, at: float = 1000.0) -> None:
    """Write one piece of feedback."""
    record = records.feedback(
        name(number),
        CLIENT,
        received_at=at,
        feedback_id=f"f{number}",
        target_kind="response",
        target_id="chatcmpl-1",
        body={"name": "success", "value": 1.0},
    )
    writer.append(RecordKind.FEEDBACK, record)
