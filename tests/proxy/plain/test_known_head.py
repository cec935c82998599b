"""A head that is said again means what reading it anew would find: in the parser, upstream and in the spool."""

import re
import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.plain.known_head import KnownHead
from proxy.plain.messages import MalformedMessageError, RequestHead
from tests.proxy.gateway_process import GatewayProcess
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json

SAID = [
    "method",
    "target",
    "version",
    "fields",
    "length",
    "keeps_alive",
    "expects",
    "upgrade",
    "chunked",
]

FIELDS = st.lists(
    st.sampled_from(
        [
            b"X-Length: 5",
            b"X-A: Content-Length",
            b"Accept: */*",
            b"Connection: keep-alive",
            b"Connection: close",
            b"Connection: content-length",
            b"Expect: 100-continue",
            b"Authorization: Bearer hr_a",
            b"X-Request-Id: 7-a",
            b"TraceParent:  00-11-22-01",
            b"Connection: x-request-id",
        ]
    ),
    max_size=4,
    unique_by=lambda line: line.partition(b":")[0],
)
LENGTHS = st.sampled_from([b"Content-Length", b"content-length", b"CONTENT-LENGTH"])
DIGITS = st.from_regex(rb"[0-9]{1,16}", fullmatch=True) | st.sampled_from(
    [b"", b" 5", b"5 ", b"+5", b"-5", b"5,5", b"0x5", b"5\r\nX: 1", b"1" * 30, b"\xb2"]
)


IDS = st.from_regex(rb"[0-9a-f-]{1,40}", fullmatch=True) | st.sampled_from(
    [b"", b" ", b"a b", b"a,b", b"a:b", b"\xb2", b"a\r\nX: 1", b"a\nX: 1", b"\0", b"-", b"a" * 200]
)


def head(fields: list[bytes], place: int, name: bytes, digits: bytes) -> bytes:
    lines = [*fields[:place], name + b": " + digits, *fields[place:]]
    return (
        b"POST /up/x HTTP/1.1\r\nHost: x\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"
    )


def read(text: bytes) -> dict[str, object] | None:
    """Return what the plain reading finds in a head; None where it refuses it."""
    try:
        found = RequestHead(text)
    except MalformedMessageError:
        return None
    return {name: getattr(found, name) for name in SAID}


@given(
    fields=FIELDS,
    place=st.integers(0, 4),
    name=LENGTHS,
    first=st.from_regex(rb"[0-9]{1,15}", fullmatch=True),
    second=DIGITS,
    rest=st.binary(max_size=20),
)
@example([], 0, b"Content-Length", b"1", b"1", b"")
@example([b"X-A: Content-Length"], 1, b"Content-Length", b"1", b"0002", b"body")
@example([b"X-A: Content-Length"], 1, b"Content-Length", b"1", b"20", b"body")
def test_what_is_remembered_is_what_is_read(
    fields: list[bytes], place: int, name: bytes, first: bytes, second: bytes, rest: bytes
) -> None:
    text, other = head(fields, place, name, first), head(fields, place, name, second)
    known = KnownHead.of(text, RequestHead(text))
    if known is None:
        assert b"Connection: content-length" in fields or first.startswith(b"0")
        return
    again = known.again(other + rest)
    if again is None:
        assert not re.fullmatch(rb"[1-9][0-9]{0,14}", second)
        return
    found, end = again
    assert end == len(other)
    assert {name: getattr(found, name) for name in SAID} == read(other)
    # What was found for that length holds for the first one again.
    back = known.again(text)
    assert back is not None
    assert {name: getattr(back[0], name) for name in SAID} == read(text)


@given(
    fields=FIELDS,
    first=st.tuples(IDS, IDS, DIGITS),
    second=st.tuples(IDS, IDS, DIGITS),
    rest=st.binary(max_size=20),
)
@example([], (b"a", b"b", b"1"), (b"c", b"d", b"22"), b"")
@example([b"X-Request-Id: 7-a"], (b"a", b"b", b"1"), (b"c", b"d", b"2"), b"")
def test_a_head_with_other_ids_means_what_is_read(
    fields: list[bytes],
    first: tuple[bytes, bytes, bytes],
    second: tuple[bytes, bytes, bytes],
    rest: bytes,
) -> None:
    def text(values: tuple[bytes, bytes, bytes]) -> bytes:
        traced, named, digits = values
        lines = [*fields, b"traceparent: " + traced, b"X-Request-Id: " + named]
        return head(lines, len(fields) + 1, b"Content-Length", digits)

    said = text(first)
    if read(said) is None:
        return
    known = KnownHead.of(said, RequestHead(said))
    again = known.again(text(second) + rest) if known is not None else None
    if again is not None:
        found, end = again
        assert end == len(text(second))
        assert {name: getattr(found, name) for name in SAID} == read(text(second))


def test_ids_that_change_are_remembered_as_such() -> None:
    text = b"GET /up/x HTTP/1.1\r\nHost: x\r\nX-Request-ID: %s\r\ntraceparent: %s\r\n\r\n"
    first = text % (b"1", b"00-1-2-01")
    known = KnownHead.of(first, RequestHead(first))
    assert known is not None
    for traced in (b"00-3-4-01", b"00-55-6-00"):
        again = known.again(text % (b"7f", traced))
        assert again is not None
        assert again[0].fields[1:] == ((b"X-Request-ID", b"7f"), (b"traceparent", traced))


@given(fields=FIELDS, place=st.integers(0, 4), at=st.integers(0, 200), byte=st.binary(max_size=2))
def test_one_other_byte_makes_another_head(
    fields: list[bytes], place: int, at: int, byte: bytes
) -> None:
    text = head(fields, place, b"Content-Length", b"12")
    other = text[:at] + byte + text[at + 1 :]
    known = KnownHead.of(text, RequestHead(text))
    again = known.again(other) if known is not None else None
    if again is not None:
        found, end = again
        assert {name: getattr(found, name) for name in SAID} == read(other[:end])


def test_a_head_without_a_length_and_one_of_chunks() -> None:
    text = b"GET /up/x HTTP/1.1\r\nHost: x\r\n\r\n"
    known = KnownHead.of(text, RequestHead(text))
    assert known is not None
    assert known.again(text[:-1]) is None
    again = known.again(text + b"more")
    assert again is not None
    assert again[1] == len(text)
    chunks = b"POST /up/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert KnownHead.of(chunks, RequestHead(chunks)) is None
    long = b"GET /up/x HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n" % (b"x" * 9000)
    assert KnownHead.of(long, RequestHead(long)) is None


# In a gateway.


def script(request: ReceivedRequest) -> Reply:
    return as_json([request.target, request.headers, request.body.decode()])


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream(script) as server:
        yield server


@pytest.fixture
def gateway(
    upstream: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("known")
    key = home / "provider.key"
    key.write_text("first")
    routes = [
        {"name": "up", "upstream": f"{upstream.url}/base"},
        {"name": "keyed", "upstream": upstream.url, "credential": {"file": str(key)}},
    ]
    with GatewayProcess(home, {"routes": routes, "forward_port": None}) as running:
        yield running


class Client:
    """One connection, on which requests are said one after the other."""

    def __init__(self, gateway: GatewayProcess) -> None:
        port = int(gateway.url.rpartition(":")[2])
        self._there = socket.create_connection(("127.0.0.1", port), 30)
        self._got = self._there.makefile("rb")

    def say(self, raw: bytes) -> tuple[bytes, bytes]:
        """Send a request; return the status line and the body of its answer."""
        self._there.sendall(raw)
        first, length = self._got.readline(), 0
        while (line := self._got.readline()) != b"\r\n":
            if line.lower().startswith(b"content-length: "):
                length = int(line.split()[1])
        return first, self._got.read(length)

    def close(self) -> None:
        self._got.close()
        self._there.close()


def post(
    gateway: GatewayProcess,
    body: bytes,
    route: str = "up",
    key: str = "",
    traced: str = "00-1-2-01",
) -> bytes:
    return (
        f"POST /{route}/v1/chat/completions?a=1 HTTP/1.1\r\nHost: h\r\nX-Headrace-Tag: t\r\n"
        f"X-A: content-length\r\nContent-Length: {len(body)}\r\nCookie: c=1\r\n"
        f"traceparent: {traced}\r\n"
        f"Authorization: Bearer {key or gateway.key}\r\n\r\n"
    ).encode() + body


def test_said_again_it_goes_upstream_and_into_the_spool_as_said_first(
    gateway: GatewayProcess,
) -> None:
    bodies = [b"x" * size for size in (1, 1, 20, 0, 300, 20)]
    traces = ["00-1-2-01", "00-1-2-01", "00-1-3-01", "00-4-5-01", "00-4-5-01", "00-66-7-00"]
    kept = Client(gateway)
    said = list(zip(bodies, traces, strict=True))
    heard = [kept.say(post(gateway, body, traced=traced)) for body, traced in said]
    kept.close()
    recorded = [each.request for each in gateway.exchanges(len(bodies))]
    fresh = []
    for body, traced in said:
        client = Client(gateway)
        fresh.append(client.say(post(gateway, body, traced=traced)))
        client.close()
    assert heard == fresh
    assert all(first.startswith(b"HTTP/1.1 200 ") for first, _ in heard)
    anew = [each.request for each in gateway.exchanges(len(bodies))]
    for one, other, (body, traced) in zip(recorded, anew, said, strict=True):
        assert ("traceparent", traced) in one.headers
        assert (one.method, one.path, one.query, one.headers) == (
            other.method,
            other.path,
            other.query,
            other.headers,
        )
        assert one.body == other.body == body
        assert ("content-length", str(len(body))) in [(n.lower(), v) for n, v in one.headers]
        assert gateway.key not in str(one)


def test_a_revoked_key_opens_nothing_on_the_connection_that_it_had_opened(
    gateway: GatewayProcess,
) -> None:
    created = gateway.registry.create(tenant_id="acme", app_id="short")
    client = Client(gateway)
    until(lambda: b" 200 " in client.say(post(gateway, b"x", key=created.secret))[0])
    gateway.registry.revoke(created.key.key_id)
    until(lambda: b" 401 " in client.say(post(gateway, b"x", key=created.secret))[0])
    client.close()


def test_a_renewed_credential_of_the_route_is_sent_on_the_next_call(
    gateway: GatewayProcess,
) -> None:
    client = Client(gateway)
    assert b"Bearer first" in client.say(post(gateway, b"x", "keyed"))[1]
    assert b"Bearer first" in client.say(post(gateway, b"xx", "keyed"))[1]
    (gateway.home / "provider.key").write_text("second")
    until(lambda: b"Bearer second" in client.say(post(gateway, b"x", "keyed"))[1])
    client.close()


def test_a_rotated_secret_ends_on_the_connection_that_it_had_opened(
    gateway: GatewayProcess,
) -> None:
    created = gateway.registry.create(tenant_id="acme", app_id="rotating")
    client = Client(gateway)
    until(lambda: b" 200 " in client.say(post(gateway, b"x", key=created.secret))[0])
    gateway.registry.rotate(created.key.key_id, grace_seconds=1)
    until(lambda: b" 401 " in client.say(post(gateway, b"x", key=created.secret))[0])
    client.close()


def test_limits_count_what_is_said_again(gateway: GatewayProcess) -> None:
    from proxy.clients.keys import KeyLimits

    created = gateway.registry.create(
        tenant_id="acme", app_id="limited", limits=KeyLimits(requests_per_minute=3)
    )
    client = Client(gateway)
    until(lambda: b" 200 " in client.say(post(gateway, b"x", key=created.secret))[0])
    heard = [client.say(post(gateway, b"x", key=created.secret))[0] for _ in range(4)]
    assert b" 429 " in heard[-1]
    client.close()


def until(done: object) -> None:
    assert callable(done)
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)
