"""WebSocket conversations through the gateway: unchanged for both sides, kept turn by turn."""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from proxy.clients.keys import KeyLimits
from proxy.recording.websocket import CONVERSATION_BYTES, TALK_BYTES, cut_after, tells_a_turn
from tests.interop.clients.conversations import CONVERSATIONS, conversing
from tests.interop.clients.drivers import Wire
from tests.proxy.gateway_process import GatewayProcess
from trajectory.dialects.registry import read_calls
from trajectory.dialects.websocket import read_messages
from trajectory.exchange import Exchange, ExchangeOutcome

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with conversing() as address:
        yield address


@pytest.fixture(scope="module")
def gateway(upstream: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    home: Path = tmp_path_factory.mktemp("websocket")
    with GatewayProcess(home, {"routes": [{"name": "openai", "upstream": upstream}]}) as running:
        yield running


@contextlib.contextmanager
def talking(gateway: GatewayProcess, key: str) -> Iterator[ClientConnection]:
    """Open a conversation with a server that repeats what it is told."""
    address = gateway.url.replace("http", "ws") + "/openai/echo"
    headers = {"Authorization": f"Bearer {key}"}
    with connect(address, additional_headers=headers, proxy=None) as connection:
        yield connection


def refused(connection: ClientConnection, message: str) -> int:
    """Say what may not be said; return the code with which the connection ends."""
    connection.send(message)
    with pytest.raises(ConnectionClosed) as told:
        connection.recv(timeout=10)
    assert told.value.rcvd is not None
    return told.value.rcvd.code


def repeat(connection: ClientConnection, turn: str) -> None:
    """Take turns; a minute may begin among them."""
    for _ in range(7):
        connection.send(turn)
        connection.recv(timeout=30)


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_official_sdk_sees_what_it_sees_directly(
    name: str, upstream: str, gateway: GatewayProcess
) -> None:
    driver = CONVERSATIONS[name]
    through = driver(Wire(f"{gateway.url}/openai", gateway.key))
    assert through == driver(Wire(upstream, "none"))
    calls = [
        call
        for record in gateway.records(9, seconds=0.5)
        if isinstance(record, Exchange)
        for call in read_calls(record)
    ]
    assert [call.dialect for call in calls] == [f"openai.{name.split('_')[1]}"] * len(calls)
    assert [call.response_id for call in calls][:2] == ["resp_1", "resp_2"]
    assert len({call.exchange.exchange_id for call in calls}) == len(calls)


def test_any_message_passes_and_is_kept_in_order(gateway: GatewayProcess) -> None:
    sent: list[str | bytes] = ["Grüße 🙂", b"\x00\xff" * 9, "", os.urandom(300_000), "x" * 70_000]
    with talking(gateway, gateway.key) as connection:
        for message in sent:
            connection.send(message)
            assert connection.recv() == message
    exchange = gateway.exchange()
    assert exchange.outcome is ExchangeOutcome.COMPLETE
    assert exchange.response is not None
    messages = read_messages(exchange.request.body, exchange.response.body)
    plain = [m.encode() if isinstance(m, str) else m for m in sent]
    assert [m.content for m in messages if m.from_client] == plain
    assert [m.content for m in messages if not m.from_client] == plain
    assert [m.is_text for m in messages if m.from_client] == [isinstance(m, str) for m in sent]
    assert [m.from_client for m in messages] == [True, False] * len(sent)
    (call,) = read_calls(exchange)
    assert call.problem == "dialect:unknown-websocket"


@pytest.mark.parametrize("how", ["revoked", "rotated"])
def test_a_key_that_ended_says_no_more_on_an_open_connection(
    gateway: GatewayProcess, how: str
) -> None:
    created = gateway.registry.create(tenant_id="acme", app_id="leaving", purposes=("debug",))
    with talking(gateway, created.secret) as connection:
        connection.send("before")
        assert connection.recv() == "before"
        if how == "revoked":
            gateway.registry.revoke(created.key.key_id)
        else:
            gateway.registry.rotate(created.key.key_id, grace_seconds=0)
        time.sleep(0.6)  # a running gateway follows within half a second
        assert refused(connection, "after") == 1008
    exchange = gateway.exchange()
    assert exchange.response is not None
    assert b"before" in exchange.response.body
    assert b"after" not in exchange.request.body + exchange.response.body


def test_a_budget_is_spent_turn_by_turn(gateway: GatewayProcess) -> None:
    limits = KeyLimits(tokens_per_day=14)
    created = gateway.registry.create(tenant_id="acme", app_id="limited", limits=limits)
    turn = json.dumps({"usage": {"input_tokens": 3, "output_tokens": 4}})
    with talking(gateway, created.secret) as connection:
        for said in (turn, "x" * 400, turn):  # what reports nothing is part of a turn
            connection.send(said)
            assert connection.recv() == said
        assert refused(connection, turn) == 1008
    with pytest.raises(InvalidStatus, match="429"), talking(gateway, created.secret):
        pass
    gateway.exchanges(2)


def test_turns_count_as_requests_of_a_minute(gateway: GatewayProcess) -> None:
    limits = KeyLimits(requests_per_minute=2)
    created = gateway.registry.create(tenant_id="acme", app_id="hasty", limits=limits)
    turn = json.dumps({"type": "response.created", "response": {}})
    with talking(gateway, created.secret) as connection:
        for said in ("x", turn, "y"):  # the first turn goes with the connection's own request
            connection.send(said)
            assert connection.recv() == said
        with pytest.raises(ConnectionClosed) as told:
            repeat(connection, turn)
        assert told.value.rcvd is not None
        assert told.value.rcvd.code == 1008
    gateway.exchange()


def test_what_stands_for_a_turn() -> None:
    for said in (
        b'{"type": "response.created", "response": {"id": "resp_1"}}',
        b'{"event_id":"e","type":"response.created"}',
        b'{"serverContent":{"turnComplete":true}}',
    ):
        assert tells_a_turn(said)
    for said in (
        b'{"type":"response.output_text.delta","delta":"\\"type\\":\\"response.created\\""}',
        b'{"type":"response.create"}',
        b'{"type":"response.completed"}',
    ):
        assert not tells_a_turn(said)


def test_a_client_that_goes_without_a_word_aborts(gateway: GatewayProcess) -> None:
    address = gateway.url.replace("http", "ws") + "/openai/echo"
    headers = {"Authorization": f"Bearer {gateway.key}"}
    connection = connect(address, additional_headers=headers, proxy=None)
    connection.send("x")
    assert connection.recv() == "x"
    connection.socket.shutdown(socket.SHUT_RDWR)
    assert gateway.exchange().outcome is ExchangeOutcome.CLIENT_ABORT


def test_where_conversations_may_be_cut() -> None:
    assert cut_after(b'{"type":"response.completed","response":', CONVERSATION_BYTES) == 1
    assert cut_after(b'{"event_id":"e","type":"response.done"', CONVERSATION_BYTES) == TALK_BYTES
    assert cut_after(b'{"type":"rate_limits.updated"', TALK_BYTES) == TALK_BYTES
    assert cut_after(b'{"type":"response.created"', TALK_BYTES) == CONVERSATION_BYTES
