"""An exchange that is written into the spool again is read back as it was."""

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.govern.quarantine_store import CALLS_AT_ONCE
from proxy.spool.exchanges import OpenExchange, exchange_records
from proxy.spool.records import RecordKind
from tests.trajectory.world import World
from trajectory.exchange import Exchange, ExchangeOutcome, HttpRequest, HttpResponse

RAW = st.binary(max_size=12).map(
    lambda raw: raw.replace(b"\n", b" ").decode("utf-8", "surrogateescape")
)
NAMES = st.sampled_from(["x-a", "content-type"])
HEADERS = st.lists(st.tuples(NAMES, RAW), max_size=3).map(tuple)


def exchange(
    request: HttpRequest, response: HttpResponse | None, outcome: ExchangeOutcome
) -> Exchange:
    one = World().exchange("/v1/chat/completions", {}, b"{}")
    at = datetime(2026, 1, 2, 3, 4, 5, 250000, UTC)
    return replace(
        one,
        request=request,
        response=response,
        outcome=outcome,
        started_at=at,
        first_byte_at=at if response is not None else None,
        ended_at=at,
    )


def read_back(one: Exchange) -> Exchange:
    gathered = OpenExchange(one.position)
    *rest, (kind, last) = exchange_records(one)
    for inner, record in rest:
        gathered.add(inner, record)
    assert kind == RecordKind.END
    return gathered.build(last)


@given(RAW, RAW, HEADERS, HEADERS, st.binary(max_size=40), st.booleans())
@example("/a/€", "q=ü", (("x-a", "Ünïcödé €"),), (("x-a", "€"),), b"", True)
@settings(max_examples=100, deadline=None)
def test_what_is_written_is_read_back(
    path: str,
    query: str,
    asked: tuple[tuple[str, str], ...],
    answered: tuple[tuple[str, str], ...],
    body: bytes,
    responded: bool,
) -> None:
    request = HttpRequest("POST", path, query, asked, body)
    response = HttpResponse(200, answered, body) if responded else None
    one = exchange(request, response, ExchangeOutcome.COMPLETE)
    assert read_back(one) == one


def test_whom_surrogates_name_is_read_back() -> None:
    request = HttpRequest("POST", "/a", "", (), b"{}")
    for subjects in (None, (), ("subject_1", "subject_2")):
        one = replace(exchange(request, None, ExchangeOutcome.COMPLETE), subjects=subjects)
        assert read_back(one) == one


def test_which_calls_were_released_is_read_back() -> None:
    request = HttpRequest("POST", "/a", "", (), b"{}")
    whole = exchange(request, None, ExchangeOutcome.COMPLETE)
    for count in (0, 2, CALLS_AT_ONCE):
        calls = tuple((f"{number:032x}", f"{number:032d}") for number in range(count))
        one = replace(whole, released_of="0" * 32, released_calls=calls)
        assert read_back(one) == one
