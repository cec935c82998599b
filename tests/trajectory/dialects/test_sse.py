"""Server-sent events: every way of splitting the bytes gives the same events."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tests.golden.trajectories.replay import SCENARIOS, load
from trajectory.dialects.sse import SseDecoder, SseEvent, decode_events

STREAM = (
    "\ufeffdata: one\n\n: comment\r\nevent: two\r\ndata: a\r\ndata:  b\r\rid: 7\ndata\n\n"
    "event: unheard\n\ndata: grüße 🙂\n\ndata: cut off"
).encode()
EVENTS = [
    SseEvent("one"),
    SseEvent("a\n b", "two"),
    SseEvent("", event_id="7"),
    SseEvent("grüße 🙂", event_id="7"),
    SseEvent("cut off", event_id="7", complete=False),
]


def feed(pieces: list[bytes]) -> list[SseEvent]:
    decoder = SseDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.close()


def test_the_rules_of_the_standard() -> None:
    assert decode_events(STREAM) == EVENTS


def test_every_split_point_gives_the_same_events() -> None:
    for position in range(len(STREAM) + 1):
        assert feed([STREAM[:position], STREAM[position:]]) == EVENTS
    assert feed([STREAM[i : i + 1] for i in range(len(STREAM))]) == EVENTS


@given(data=st.data())
def test_any_split_of_any_bytes_equals_the_whole(data: st.DataObject) -> None:
    alphabet = [
        b"data:",
        b"event:",
        b"id:",
        b"\n",
        b"\r",
        b"\r\n",
        b" x",
        b"\xff",
        b"\xf0\x9f",
        b"\0",
    ]
    stream = b"".join(data.draw(st.lists(st.sampled_from(alphabet), max_size=40)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert feed(pieces) == decode_events(stream)


def test_golden_streams_split_byte_by_byte() -> None:
    for name in SCENARIOS:
        for exchange in load(name):
            assert exchange.response is not None
            body = exchange.response.body
            assert feed([body[i : i + 1] for i in range(len(body))]) == decode_events(body)
