"""Pieces joined are what the bundle of the same records is."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.spool import RecordKind, pieces, records
from trajectory.exchange import ExchangeOutcome

NAME = b"n" * 16
BYTES = st.binary(max_size=40)


@given(
    head=BYTES, asked=BYTES, block=BYTES, answered=BYTES, outcome=st.sampled_from(ExchangeOutcome)
)
def test_they_are_the_bundle_of_the_records(
    head: bytes, asked: bytes, block: bytes, answered: bytes, outcome: ExchangeOutcome
) -> None:
    bundled = records.bundle(
        [
            (RecordKind.REQUEST_HEAD, head),
            (RecordKind.REQUEST_CHUNK, records.request_chunk(NAME, 1, asked)),
            (
                RecordKind.RESPONSE_HEAD,
                records.response_head(NAME, 2, at=1.5, status=200, headers=block),
            ),
            (RecordKind.RESPONSE_CHUNK, records.response_chunk(NAME, 3, at=2.5, data=answered)),
            (RecordKind.END, records.end(NAME, 4, at=3.5, outcome=outcome, note="spool-full")),
        ]
    )
    parts = (
        pieces.request_head(len(head)),
        head,
        pieces.request_chunk(pieces.REQUEST_CHUNK_BYTES + len(asked), NAME, 1),
        asked,
        pieces.response_head(pieces.RESPONSE_HEAD_BYTES + len(block), NAME, 2, 1.5, 200),
        block,
        pieces.response_chunk(pieces.RESPONSE_CHUNK_BYTES + len(answered), NAME, 3, 2.5),
        answered,
        pieces.end(pieces.END_BYTES + len(b"spool-full"), NAME, 4, 3.5, pieces.OUTCOMES[outcome]),
        b"spool-full",
    )
    assert bundled == (RecordKind.LAST_PART, b"".join(parts))
