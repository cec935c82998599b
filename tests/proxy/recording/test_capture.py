"""Capture: what passed comes out of the spool whole, whatever its pieces; a failing disk is counted."""

import asyncio
import os
import shutil
import tempfile
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.recording.capture import Capture, new_exchange_id
from proxy.recording.recorder import Recorder
from proxy.routes.route import JOURNAL, Level, UnroutedTerms
from proxy.spool import Cursor, SpoolReader, SpoolWriter, records
from proxy.telemetry.counters import Counters
from tests.golden.calls.replay import CONFIGURED, SCENARIOS, call_json, load
from tests.proxy.spool.scripts import CLIENT, KEY, open_segment
from trajectory.dialects.registry import read_calls
from trajectory.exchange import Exchange, ExchangeOutcome

HEADER = st.tuples(
    st.from_regex(rb"\A[a-z-]{1,12}\Z"),
    st.binary(max_size=20).filter(lambda value: b"\n" not in value),
)


def begin(
    recorder: Recorder, headers: tuple[tuple[bytes, bytes], ...] = (), *, batch: bool = False
) -> Capture:
    head = partial(
        records.request_head,
        origin=records.pack_origin(CLIENT, route="r", mode="base_url", upstream="http://u:1"),
        method=b"POST",
        path="/v1/ü".encode(),
        query=b"a=1",
        headers=headers,
    )
    return Capture(
        recorder, head, Level.FULL, "", UnroutedTerms(durability="batch") if batch else JOURNAL
    )


@settings(max_examples=60, deadline=None)
@given(
    request=st.lists(st.binary(min_size=1, max_size=50), max_size=4),
    response=st.lists(st.binary(min_size=1, max_size=50), max_size=4),
    headers=st.lists(HEADER, max_size=4).map(tuple),
    counted=st.booleans(),
)
def test_any_pieces_come_back_whole(
    tmp_path_factory: pytest.TempPathFactory,
    request: list[bytes],
    response: list[bytes],
    headers: tuple[tuple[bytes, bytes], ...],
    counted: bool,
) -> None:
    spool = tmp_path_factory.mktemp("spool")
    with SpoolWriter(spool, KEY, segment_bytes=300) as writer:
        capture = begin(Recorder(writer, Counters()), headers)
        for piece in request:
            assert capture.on_request(piece) is piece
        capture.request_done()
        size = sum(map(len, response))
        capture.response_head(200, headers, length=size if counted else -1)
        for piece in response:
            assert capture.on_response(piece) is piece
        capture.on_response(b"")
        (exchange,) = SpoolReader(spool, KEY).take(Cursor()).records
    assert isinstance(exchange, Exchange)
    assert exchange.outcome is ExchangeOutcome.COMPLETE
    assert exchange.request.body == b"".join(request)
    assert exchange.response is not None
    assert exchange.response.body == b"".join(response)
    assert (exchange.request.path, exchange.request.query) == ("/v1/ü", "a=1")
    expected = tuple((n.decode(), v.decode("utf-8", "surrogateescape")) for n, v in headers)
    assert exchange.request.headers == exchange.response.headers == expected


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_dialect_reads_the_same_whatever_the_pieces(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(SCENARIOS))
    whole, calls = data.draw(st.sampled_from(load(name)))
    assert whole.response is not None
    spool = tmp_path_factory.mktemp("spool")
    with SpoolWriter(spool, KEY) as writer:
        capture = begin(Recorder(writer, Counters()))
        for piece in cut(data, whole.request.body):
            capture.on_request(piece)
        capture.request_done()
        capture.response_head(200, ())
        for piece in cut(data, whole.response.body):
            capture.on_response(piece)
        capture.on_response(b"")
        (kept,) = SpoolReader(spool, KEY).take(Cursor()).records
    assert isinstance(kept, Exchange)
    assert kept.response is not None
    again = replace(
        whole,
        request=replace(whole.request, body=kept.request.body),
        response=replace(whole.response, body=kept.response.body),
    )
    assert [call_json(call) for call in read_calls(again, CONFIGURED)] == calls


def cut(data: st.DataObject, body: bytes) -> list[bytes]:
    """Cut a body anywhere."""
    places = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=5)))
    return [body[a:b] for a, b in pairwise([0, *places, len(body)]) if a != b]


def test_a_line_break_in_a_header_cannot_forge_another(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, KEY) as writer:
        begin(Recorder(writer, Counters()), ((b"a", b"x\nb\ny"),)).end(ExchangeOutcome.COMPLETE)
        (exchange,) = SpoolReader(tmp_path, KEY).take(Cursor()).records
    assert isinstance(exchange, Exchange)
    assert exchange.request.headers == (("a", "x b y"),)


def known(spool: Path) -> list[Exchange]:
    """Return what a reader would find had the writer died now."""
    copy = Path(tempfile.mkdtemp(dir=spool.parent))
    shutil.copytree(spool, copy / "spool")
    found = SpoolReader(copy / "spool", KEY).take(Cursor()).records
    return [record for record in found if isinstance(record, Exchange)]


def test_exchanges_of_one_turn_are_known_before_what_was_held_for_them_goes(tmp_path: Path) -> None:
    async def main(writer: SpoolWriter) -> list[Exchange]:
        recorder = Recorder(writer, Counters(), patient=True)
        before = writer.bytes_on_disk
        for number in range(3):
            capture = begin(recorder)
            capture.on_request(b"ask")
            capture.request_done()
            assert bool(recorder.waiting) == (number > 0)
            capture.response_head(200, ())
            capture.on_response(b"answer")
            capture.on_response(b"")
            assert recorder.waiting
        assert writer.bytes_on_disk == before
        went: asyncio.Future[list[Exchange]] = asyncio.get_running_loop().create_future()
        recorder.hold(lambda: went.set_result(known(tmp_path / "spool")))
        return await went

    with SpoolWriter(tmp_path / "spool", KEY) as writer:
        exchanges = asyncio.run(main(writer))
        assert SpoolReader(tmp_path / "spool", KEY).lag(Cursor()).records == 3
    assert [exchange.outcome for exchange in exchanges] == [ExchangeOutcome.COMPLETE] * 3
    assert {exchange.request.body for exchange in exchanges} == {b"ask"}
    assert len({exchange.position for exchange in exchanges}) == 3


def test_an_answer_waits_one_turn_while_other_requests_are_on_their_way(tmp_path: Path) -> None:
    async def main(writer: SpoolWriter) -> None:
        recorder = Recorder(writer, Counters(), patient=True)
        first, second, third = (begin(recorder) for _ in range(3))
        first.request_done()
        second.request_done()
        first.end(ExchangeOutcome.COMPLETE)
        await asyncio.sleep(0)
        assert recorder.waiting
        second.end(ExchangeOutcome.COMPLETE)
        await asyncio.sleep(0)
        assert (len(known(tmp_path / "spool")), recorder.waiting) == (2, [])
        third.request_done()
        third.end(ExchangeOutcome.COMPLETE)
        await asyncio.sleep(0)
        assert len(known(tmp_path / "spool")) == 3

    with SpoolWriter(tmp_path / "spool", KEY) as writer:
        asyncio.run(main(writer))


def test_no_client_gets_anything_of_what_the_spool_does_not_know(tmp_path: Path) -> None:
    async def main(writer: SpoolWriter) -> None:
        recorder = Recorder(writer, Counters(), patient=True)
        capture = begin(recorder)
        capture.request_done()
        recorder.settle()
        assert not known(tmp_path / "spool")
        capture.response_head(200, ())
        assert recorder.waiting  # so the fast path holds the head
        recorder.settle()
        assert not recorder.waiting
        (exchange,) = known(tmp_path / "spool")
        assert exchange.outcome is ExchangeOutcome.LOST_END
        assert exchange.response is not None
        assert exchange.response.status == 200

    with SpoolWriter(tmp_path / "spool", KEY) as writer:
        asyncio.run(main(writer))


def test_a_request_whose_answer_takes_its_time_is_written_soon(tmp_path: Path) -> None:
    async def main(writer: SpoolWriter) -> None:
        recorder = Recorder(writer, Counters(), patient=True)
        capture = begin(recorder)
        capture.on_request(b"ask")
        while not capture.begun:  # noqa: ASYNC110 - written by a timer
            await asyncio.sleep(0.01)
        (exchange,) = known(tmp_path / "spool")
        assert (exchange.outcome, exchange.request.body) == (ExchangeOutcome.LOST_END, b"ask")
        capture.response_head(200, ())
        capture.on_response(b"answer")
        capture.on_response(b"")
        recorder.settle()
        (exchange,) = known(tmp_path / "spool")
        assert exchange.outcome is ExchangeOutcome.COMPLETE

    with SpoolWriter(tmp_path / "spool", KEY) as writer:
        asyncio.run(main(writer))


def test_what_is_held_goes_whatever_fails_before_it(tmp_path: Path) -> None:
    went, counters = [], Counters()

    def fails(*_: object) -> bytes:
        raise ValueError("a head that cannot be made")

    async def main(writer: SpoolWriter) -> None:
        recorder = Recorder(writer, counters, patient=True)
        Capture(recorder, fails, Level.FULL, "", JOURNAL).end(ExchangeOutcome.COMPLETE)
        begin(recorder).end(ExchangeOutcome.COMPLETE)
        recorder.hold(fails)
        recorder.hold(lambda: went.append(len(known(tmp_path / "spool"))))
        recorder.settle()

    with SpoolWriter(tmp_path / "spool", KEY) as writer:
        asyncio.run(main(writer))
    assert (went, counters.faults) == ([1], 2)


def test_a_body_that_no_frame_holds_comes_back_whole(tmp_path: Path) -> None:
    body, counters = os.urandom(1024) * 20_000, Counters()
    with SpoolWriter(tmp_path, KEY) as writer:
        capture = begin(Recorder(writer, counters))
        capture.on_request(body)
        capture.response_head(200, ())
        capture.on_response(b"ok")
        capture.on_response(b"")
        (exchange,) = SpoolReader(tmp_path, KEY).take(Cursor()).records
    assert isinstance(exchange, Exchange)
    assert (exchange.outcome, exchange.request.body == body) == (ExchangeOutcome.COMPLETE, True)
    assert (counters.request_bytes, counters.response_bytes) == (len(body), 2)


def test_a_disk_that_fails_in_between_never_fails_the_call(tmp_path: Path) -> None:
    counters = Counters()
    with SpoolWriter(tmp_path, KEY) as writer:
        recorder = Recorder(writer, counters)
        capture = begin(recorder)
        capture.on_request(b"ask")
        broken = os.open(os.devnull, os.O_RDONLY)
        os.dup2(broken, open_segment(tmp_path))
        os.close(broken)
        capture.response_head(200, ())
        assert capture.on_response(b"part") == b"part"
        assert capture.on_response(b"") == b""
        assert counters.uncaptured["spool-unavailable"] == 2
        writer.breaker.mend()
        begin(recorder).end(ExchangeOutcome.COMPLETE)
        found = SpoolReader(tmp_path, KEY).take(Cursor()).records
    outcomes = [r.outcome for r in found if isinstance(r, Exchange)]
    assert sorted(outcomes) == [ExchangeOutcome.COMPLETE, ExchangeOutcome.LOST_END]


def test_a_lost_batch_is_counted_and_its_ends_are_owed(tmp_path: Path) -> None:
    counters = Counters()

    async def main(writer: SpoolWriter) -> None:
        recorder = Recorder(writer, counters)
        begin(recorder, batch=True).end(ExchangeOutcome.COMPLETE)
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, open_segment(tmp_path))
        os.close(full)
        recorder.flush()
        assert counters.uncaptured["batch-lost"] == 1
        writer.breaker.mend()
        begin(recorder, batch=True).end(ExchangeOutcome.COMPLETE)
        while not SpoolReader(tmp_path, KEY).take(Cursor()).records:  # noqa: ASYNC110 - written by a timer
            await asyncio.sleep(0.01)

    with SpoolWriter(tmp_path, KEY) as writer:
        asyncio.run(main(writer))
        batch = SpoolReader(tmp_path, KEY).take(Cursor())
    assert [r.outcome for r in batch.records if isinstance(r, Exchange)] == [
        ExchangeOutcome.COMPLETE
    ]
    assert counters.uncaptured["batch-lost"] == 1


def test_exchange_ids_begin_with_their_time() -> None:
    names = [new_exchange_id() for _ in range(1000)]
    assert len(set(names)) == 1000
    assert all(len(name) == 16 for name in names)
    assert sorted(name[:6] for name in names) == [name[:6] for name in names]
