"""Limits: shared by workers, remembered over restarts, answered in the client's shape."""

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from proxy.clients.keys import KeyLimits, KeyRegistry
from proxy.clients.limits import Budgets, session_of
from proxy.clients.shared_counters import SharedCounters
from proxy.clients.usage import SpentTokens
from proxy.responses import Reason
from tests.proxy.gateway_process import GatewayProcess
from tests.support.ports import free_port
from tests.support.provider import provider
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json, stream
from trajectory.exchange import ExchangeOutcome
from trajectory.prices import PriceTable

CHAT = {"messages": [{"role": "user", "content": "hello"}]}


PRICES = PriceTable.model_validate({
    "apiVersion": "headrace/v1", "kind": "Prices", "metadata": {"name": "ours"},
    "spec": {"as_of": "2026-11-01", "currency": "EUR", "prices": [
        {"models": ["cheap*"], "input": 1, "cached_input": 0.5, "output": 2, "up_to_input_tokens": 1000},
        {"models": ["dear"], "input": 100, "output": 500},
    ]},
})  # fmt: skip


@pytest.fixture
def budgets(tmp_path: Path) -> Iterator[Budgets]:
    with closing(SharedCounters(tmp_path / "counts")) as ledger:
        yield Budgets(ledger, PRICES)


def test_each_limit_stands_for_itself(budgets: Budgets, monkeypatch: pytest.MonkeyPatch) -> None:
    half_past = time.time() // 60 * 60 + 30
    monkeypatch.setattr("proxy.clients.limits.time", SimpleNamespace(time=lambda: half_past))
    limits = KeyLimits(requests_per_minute=4, tokens_per_day=10, steps_per_session=2)

    def ask(session: str | None = "s", *, step: bool = True) -> Reason | None:
        denial = budgets.admit("key", limits, session=session, step=step)
        return denial.reason if denial else None

    assert [ask(), ask(), ask()] == [None, None, Reason.SESSION_STEPS]
    assert ask("other") is None
    assert ask(step=False) is None
    assert ask(step=False) is Reason.RATE
    budgets.spend("key", 10)
    assert ask(None) is Reason.TOKENS
    assert budgets.admit("stranger", limits, session="s", step=True) is None


def test_money_counts_by_the_model_and_what_has_no_price_counts_as_the_dearest(
    budgets: Budgets,
) -> None:
    def left(spent: float) -> bool:
        """Tell whether a key that may spend a little more than this passes, and one that may not does not."""
        more, less = KeyLimits(money_per_day=spent + 1e-8), KeyLimits(money_per_day=spent - 1e-8)
        return (
            budgets.admit("key", more, session=None, step=True) is None
            and (denial := budgets.admit("key", less, session=None, step=True)) is not None
            and denial.reason is Reason.MONEY
        )

    assert budgets.charge("key", "cheap-1", SpentTokens(1000, 400, 10))
    spent = (600 * 1 + 400 * 0.5 + 10 * 2) / 1e6
    assert left(spent)
    for model, usage in (
        ("strange", SpentTokens(10, 0, 1)), (None, SpentTokens(10, 0, 1)), ("cheap-1", SpentTokens(1001, 0, 1))
    ):  # fmt: skip
        assert not budgets.charge("key", model, usage)
        spent += (usage.input_tokens * 100 + usage.output_tokens * 500) / 1e6
        assert left(spent)
    assert budgets.charge("key", "eu.maker.cheap-1-v1:0", SpentTokens(10, 0, 1))
    spent += (10 * 1 + 1 * 2) / 1e6
    assert left(spent)
    assert budgets.admit("key", KeyLimits(money_per_day=0), session=None, step=True) is not None
    assert budgets.admit("other", KeyLimits(money_per_day=1), session=None, step=True) is None


def test_the_session_is_what_the_client_names() -> None:
    assert session_of(((b"X-Headrace-Session", b"a"), (b"session_id", b"b")), b"u") == b"a"
    assert session_of(((b"X-Claude-Code-Session-Id", b"c"),), None) == b"c"
    assert session_of(((b"X-Parent-Session-Id", b"c"),), b"u") == b"u"
    assert session_of(((b"x-other", b"c"),), None) is None


@pytest.fixture(scope="module")
def gateway(
    upstream: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    routes = [{"name": "openai", "upstream": upstream.url}]
    with GatewayProcess(
        tmp_path_factory.mktemp("limits"), {"routes": routes, "forward_port": None}
    ) as running:
        yield running


@contextmanager
def caller(gateway: GatewayProcess, limits: KeyLimits) -> Iterator[httpx.Client]:
    """Give a client with a limited key of its own, once the gateway knows it."""
    created = gateway.registry.create(tenant_id="acme", app_id="limited", limits=limits)
    headers = {"authorization": f"Bearer {created.secret}"}
    time.sleep(0.6)
    with httpx.Client(base_url=gateway.url, headers=headers) as client:
        yield client


def ask(client: httpx.Client, path: str = "/openai/v1/chat/completions", **more: Any) -> int:
    return client.post(path, json={**CHAT, **more}).status_code


def test_steps_of_a_session(gateway: GatewayProcess, upstream: Upstream) -> None:
    with caller(gateway, KeyLimits(steps_per_session=2)) as client:
        one = "/s/run-1/openai/v1/chat/completions"
        assert [ask(client, one) for _ in range(3)] == [200, 200, 429]
        before = len(upstream.seen)
        refused = client.post(one, json=CHAT)
        assert refused.json()["error"]["code"] == "insufficient_quota"
        assert refused.headers["x-should-retry"] == "false"
        shaped = client.post(
            "/s/run-1/openai/v1/messages", json=CHAT, headers={"anthropic-version": "2023-06-01"}
        )
        assert shaped.json()["error"]["type"] == "rate_limit_error"
        assert len(upstream.seen) == before
        assert ask(client, "/s/run-2/openai/v1/chat/completions") == 200
        assert ask(client) == 200
        assert client.get("/openai/nothing", headers={"x-headrace-session": "run-1"}).is_error
        text = httpx.get(f"{gateway.admin}/metrics").text
        assert 'headrace_unlimited_total{reason="no-session"} 1' in text
        assert 'headrace_refusals_total{reason="session_steps"} 3' in text
    exchanges = [e for e in gateway.exchanges(8) if e.outcome is ExchangeOutcome.REFUSED]
    assert {e.client.app_id for e in exchanges[-3:]} == {"limited"}
    assert "run-1" not in (gateway.home / "limits.sqlite").read_bytes().decode("latin-1")


@pytest.mark.slow
def test_limits_hold_over_workers(upstream: Upstream, tmp_path: Path) -> None:
    settings = {
        "routes": [{"name": "openai", "upstream": upstream.url}],
        "workers": 2,
        "port": free_port(),
        "forward_port": None,
        "admin_port": None,
    }
    with GatewayProcess(tmp_path, settings) as gateway:

        def answers(key: str, count: int, session: str) -> list[int]:
            def one(_: int) -> int:
                headers = {"authorization": f"Bearer {key}", "x-headrace-session": session}
                url = f"{gateway.url}/openai/v1/chat/completions"
                return httpx.post(url, json=CHAT, headers=headers, timeout=30).status_code

            with ThreadPoolExecutor(8) as pool:
                return sorted(pool.map(one, range(count)))

        def key(limits: KeyLimits) -> str:
            return gateway.registry.create(tenant_id="acme", app_id="x", limits=limits).secret

        steps, tokens = key(KeyLimits(steps_per_session=5)), key(KeyLimits(tokens_per_day=6))
        time.sleep(0.6)
        assert answers(steps, 24, "run-1") == [200] * 5 + [429] * 19
        assert answers(steps, 3, "run-2") == [200] * 3
        assert answers(tokens, 1, "a") == [200]  # what it costs is counted once it has ended
        deadline = time.monotonic() + 60
        while answers(tokens, 16, "b") != [429] * 16:
            assert time.monotonic() < deadline
        writers = [place for place in (tmp_path / "spool").iterdir() if place.is_dir()]
        assert len(writers) == 2


def test_requests_of_a_minute_and_changed_limits(gateway: GatewayProcess) -> None:
    with caller(gateway, KeyLimits(requests_per_minute=3)) as client:
        answers = [ask(client) for _ in range(7)]  # a minute may begin among them
        assert 429 in answers
        key_id = client.headers["authorization"].split("_")[1]
        KeyRegistry.load(gateway.home / "keys.json").limit(key_id, KeyLimits())
        deadline = time.monotonic() + 60
        while ask(client) != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_rotated_key_is_accepted_for_its_grace(gateway: GatewayProcess) -> None:
    before = gateway.key
    registry = KeyRegistry.load(gateway.home / "keys.json")
    created = registry.rotate(gateway.key_id, grace_seconds=2)
    answers = {}
    deadline = time.monotonic() + 60
    while answers.get(before) != 401:
        assert time.monotonic() < deadline
        for key in (created.secret, before):
            answers[key] = httpx.post(
                f"{gateway.url}/openai/v1/chat/completions",
                json=CHAT,
                headers={"authorization": f"Bearer {key}"},
            ).status_code
        time.sleep(0.1)
    assert answers[created.secret] == 200


def test_tokens_of_a_day_outlive_a_restart(gateway: GatewayProcess, upstream: Upstream) -> None:
    with caller(gateway, KeyLimits(tokens_per_day=14)) as client:
        assert [ask(client), ask(client), ask(client)] == [200, 200, 429]
        assert upstream.seen[-1].header("accept-encoding") == "identity"
        key = client.headers["authorization"]
    gateway.stop()
    with GatewayProcess(gateway.home, gateway.settings) as again, httpx.Client() as client:
        refused = client.post(
            f"{again.url}/openai/v1/chat/completions", json=CHAT, headers={"authorization": key}
        )
        assert refused.status_code == 429
        assert 0 < int(refused.headers["retry-after"]) <= 86_400


def test_money_of_a_day_is_counted_by_the_models_that_answer(tmp_path: Path) -> None:
    def script(seen: ReceivedRequest) -> Reply:
        usage = {"prompt_tokens": 500_000, "completion_tokens": 250_000}
        return as_json({"model": seen.target.rpartition("/")[2], "choices": [], "usage": usage})

    own = tmp_path / "prices.yaml"
    (tmp_path / "home").mkdir()
    own.write_text(
        "apiVersion: headrace/v1\nkind: Prices\nmetadata: {name: ours}\n"
        "spec: {as_of: 2026-11-01, currency: EUR, prices: [{models: [cheap], input: 1, output: 2}]}\n"
    )
    with Upstream(script) as upstream:
        settings = {
            "routes": [{"name": "openai", "upstream": upstream.url}],
            "forward_port": None,
            "prices": str(own),
        }
        with (
            GatewayProcess(tmp_path / "home", settings) as gateway,
            caller(gateway, KeyLimits(money_per_day=2.5)) as client,
        ):
            for model, spent in (("cheap", 1.0), ("strange", 2.0), ("cheap", 3.0)):
                assert ask(client, f"/openai/v1/{model}") == 200
                deadline, found = time.monotonic() + 60, 0.0
                while found != spent:
                    assert time.monotonic() < deadline, found
                    time.sleep(0.1)
                    with closing(sqlite3.connect(tmp_path / "home" / "limits.sqlite")) as counts:
                        told = counts.execute("SELECT used FROM counts WHERE name LIKE 'money:%'")
                        found = sum(row[0] for row in told) / 1e9
            refused = client.post("/openai/v1/cheap", json=CHAT)
            assert refused.status_code == 429
            assert refused.json()["error"]["code"] == "insufficient_quota"
            text = httpx.get(f"{gateway.admin}/metrics").text
            assert 'headrace_unlimited_total{reason="unpriced"} 1' in text
            assert 'headrace_refusals_total{reason="money"} 1' in text


def test_only_what_costs_tokens_is_taken_off_the_budget(tmp_path: Path) -> None:
    """Listings, uploads and failures of the upstream are free; a retry storm burns no day."""
    failing = {"error": {"message": "overloaded", "usage": {"total_tokens": 999}}}

    def script(seen: ReceivedRequest) -> Reply:
        if "/fails/" in seen.target:
            return as_json(failing, int(seen.target.rpartition("/")[2]))
        if "count_tokens" in seen.target:
            return as_json({"input_tokens": 2095})
        if "/silent" in seen.target:
            return as_json({"text": "x" * 34})
        if seen.method == "GET" or "/files" in seen.target:
            return as_json({"data": [{"id": f"model-{n}"} for n in range(600)], "total_tokens": 9})
        return provider(seen)

    with Upstream(script) as upstream:
        settings = {"routes": [{"name": "openai", "upstream": upstream.url}], "forward_port": None}
        with GatewayProcess(tmp_path, settings) as gateway:

            def comes_to(tokens: int) -> None:
                """Make a call of seven tokens, and wait until that is what has been counted."""
                assert ask(client) == 200
                deadline, found = time.monotonic() + 60, -1
                while found != tokens:
                    assert time.monotonic() < deadline, found
                    time.sleep(0.1)
                    with closing(sqlite3.connect(tmp_path / "limits.sqlite")) as counts:
                        told = counts.execute("SELECT used FROM counts WHERE name LIKE 'tokens:%'")
                        found = sum(row[0] for row in told)

            with caller(gateway, KeyLimits(tokens_per_day=10_000)) as client:
                for status in (400, 401, 404, 429, 500, 503, 529):
                    assert ask(client, f"/openai/fails/{status}", x="x" * 40_000) == status
                assert ask(client, "/openai/v1/messages/count_tokens") == 200
                assert client.get("/openai/v1/models").status_code == 200
                assert client.get("/openai/v1/responses/resp_1").status_code == 200
                body = b"x" * 1_000_000
                assert client.post("/openai/v1/files", content=body).status_code == 200
                comes_to(7)
                answer = len(json.dumps({"text": "x" * 34}))
                upload = {"file": body}
                assert client.post("/openai/v1/silent", files=upload).status_code == 200
                comes_to(14 + answer // 4)
                silent = b'{"a": "%s"}' % (b"x" * 400)
                assert client.post("/openai/v1/silent", content=silent).status_code == 200
                comes_to(21 + answer // 4 + answer // 4 + len(silent) // 4)


def test_a_response_in_the_background_is_spent_once_when_its_usage_is_told(tmp_path: Path) -> None:
    def script(seen: ReceivedRequest) -> Reply:
        name = seen.target.rpartition("/")[2]
        told: dict[str, Any] = {"id": f"resp_{name}", "background": name != "before"}
        if seen.method == "GET":
            return as_json({**told, "status": "completed", "usage": {"total_tokens": 100}})
        return as_json({**told, "status": "queued", "usage": None})

    with Upstream(script) as upstream:
        settings = {"routes": [{"name": "openai", "upstream": upstream.url}], "forward_port": None}
        with (
            GatewayProcess(tmp_path, settings) as gateway,
            caller(gateway, KeyLimits(tokens_per_day=180)) as client,
        ):
            for name in ("before", "1", "1", "1"):
                assert client.get(f"/openai/v1/responses/{name}").status_code == 200
            assert client.post("/openai/v1/responses", content=b"").status_code == 200
            assert client.get("/openai/v1/responses/2").status_code == 200
            assert ask(client, "/openai/v1/responses") == 429


def test_a_deferred_chat_is_spent_once_when_its_usage_is_told(tmp_path: Path) -> None:
    def script(seen: ReceivedRequest) -> Reply:
        if seen.method == "POST":
            return as_json({"request_id": "f15c114e"})
        return as_json({"id": "c0", "choices": [], "usage": {"total_tokens": 100}})

    with Upstream(script) as upstream:
        settings = {"routes": [{"name": "xai", "upstream": upstream.url}], "forward_port": None}
        with (
            GatewayProcess(tmp_path, settings) as gateway,
            caller(gateway, KeyLimits(tokens_per_day=150)) as client,
        ):
            chat = {"model": "m", "deferred": True, "messages": [{"content": "x" * 2000}]}
            look_up = "/xai/v1/chat/deferred-completion/"
            assert client.post("/xai/v1/chat/completions", json=chat).status_code == 200
            for name in ("a", "a", "b"):
                assert client.get(look_up + name).status_code == 200
            assert client.post("/xai/v1/chat/completions", json=chat).status_code == 429


def test_what_is_paid_later_is_refused_under_a_budget(tmp_path: Path, upstream: Upstream) -> None:
    batch = {"input_file_id": "file-1", "endpoint": "/v1/responses", "completion_window": "24h"}
    settings = {"routes": [{"name": "openai", "upstream": upstream.url}], "forward_port": None}
    with GatewayProcess(tmp_path, settings) as gateway:
        with caller(gateway, KeyLimits(money_per_day=5)) as client:
            before = len(upstream.seen)
            for name in ("batches", "fine_tuning/jobs", "b%61tches"):
                refused = client.post(f"/openai/v1/{name}", json=batch)
                assert refused.status_code == 400
                assert "budget" in refused.json()["error"]["message"]
            assert len(upstream.seen) == before
            assert ask(client) == 200
        with caller(gateway, KeyLimits(requests_per_minute=100)) as client:
            client.post("/openai/v1/batches", json=batch)
    assert upstream.seen[-1].target == "/v1/batches"


def test_conversations_and_interactions_in_the_background_are_counted(tmp_path: Path) -> None:
    def script(seen: ReceivedRequest) -> Reply:
        if "/conversations" in seen.target:
            told: dict[str, Any] = {"conversation_id": "c", "usage": {"total_tokens": 100}}
            return as_json(told if "/asked" in seen.target else {"id": "conv_1"})
        told = {"id": "v1_a", "status": "in_progress"}
        if seen.method == "GET":
            told = {**told, "status": "completed", "usage": {"total_tokens": 50}}
        return as_json(told)

    with Upstream(script) as upstream:
        settings = {"routes": [{"name": "any", "upstream": upstream.url}], "forward_port": None}
        with (
            GatewayProcess(tmp_path, settings) as gateway,
            caller(gateway, KeyLimits(tokens_per_day=150)) as client,
        ):
            assert client.post("/any/v1/conversations", json={}).status_code == 200
            assert client.post("/any/v1beta/interactions", json={}).status_code == 200
            for _ in range(3):
                assert client.get("/any/v1beta/interactions/v1_a").status_code == 200
            # The look-ups took 50 of the 150, once; this takes the rest.
            assert client.post("/any/v1/conversations/asked", json={}).status_code == 200
            assert client.post("/any/v1/conversations/asked", json={}).status_code == 429


@pytest.mark.parametrize(
    ("limit", "status", "told"),
    [("calls", 503, "gateway.calls allows"), ("calls_per_key", 429, "gateway.calls_per_key")],
)
def test_calls_in_flight_are_bounded(tmp_path: Path, limit: str, status: int, told: str) -> None:
    go_on = threading.Event()
    slow = stream([b"data: 1\n\n", b"data: 2\n\n"], pause=go_on)
    with Upstream(lambda _: slow) as upstream:
        routes = [{"name": "openai", "upstream": upstream.url}]
        with GatewayProcess(tmp_path, {"routes": routes, limit: 1}) as gateway:
            url = f"{gateway.url}/openai/v1/chat/completions"
            headers = {"authorization": f"Bearer {gateway.key}"}
            with httpx.stream("POST", url, json={}, headers=headers, timeout=60) as first:
                refused = httpx.post(url, json={}, headers=headers)
                assert refused.status_code == status
                assert refused.headers["retry-after"] == "1"
                assert told in refused.json()["error"]["message"]
                go_on.set()
                assert first.read().endswith(b"data: 2\n\n")
            assert httpx.post(url, json={}, headers=headers, timeout=60).status_code == 200


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, Upstream]]:
    """Give a gateway whose requests may have bodies of 100,000 bytes."""
    with Upstream(lambda _: as_json({})) as upstream:
        routes = [
            {"name": "openai", "upstream": upstream.url},
            {"name": "tokens", "upstream": upstream.url, "capture": "tokens"},
        ]
        settings = {"routes": routes, "body_bytes": 100_000}
        with GatewayProcess(tmp_path_factory.mktemp("narrow"), settings) as gateway:
            yield gateway, upstream


def in_pieces(size: int) -> Iterator[bytes]:
    yield from [b"x" * 10_000] * (size // 10_000)


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunks"])
@pytest.mark.parametrize("route", ["openai", "tokens"])
def test_a_body_beyond_its_limit_is_refused(
    narrow: tuple[GatewayProcess, Upstream], route: str, chunked: bool
) -> None:
    gateway, upstream = narrow
    url = f"{gateway.url}/{route}/v1/chat/completions"
    headers = {"authorization": f"Bearer {gateway.key}", "content-type": "application/json"}

    def post(size: int, **more: str) -> httpx.Response:
        content = in_pieces(size) if chunked else b"x" * size
        return httpx.post(url, content=content, headers={**headers, **more}, timeout=60)

    assert post(100_000).status_code == 200
    before = len(upstream.seen)
    refused = post(2_000_000)
    assert refused.status_code == 413
    assert "gateway.body_bytes" in refused.json()["error"]["message"]
    shaped = post(2_000_000, **{"anthropic-version": "2023-06-01"}).json()
    assert shaped["error"]["type"] == "request_too_large"
    assert len(upstream.seen) == before
    assert post(100_000).status_code == 200
    counted = httpx.get(f"{gateway.admin}/metrics").text
    assert 'headrace_refusals_total{reason="body_too_large"}' in counted


@pytest.mark.parametrize("how", ["revoked", "used up"])
def test_a_stream_of_events_ends_with_its_key_and_no_budget_cuts_it(
    tmp_path: Path, how: str
) -> None:
    go_on, done = threading.Event(), threading.Event()

    def script(seen: ReceivedRequest) -> Reply:
        if not seen.target.endswith("/events"):
            return provider(seen)
        events = stream([b"data: before\n\n", b"data: after\n\n"]).pieces
        return Reply([*events[:2], go_on, events[3], done, events[-1]])

    with Upstream(script) as upstream:
        settings = {"routes": [{"name": "openai", "upstream": upstream.url}], "forward_port": None}
        with (
            GatewayProcess(tmp_path, settings) as gateway,
            caller(gateway, KeyLimits(tokens_per_day=7)) as client,
        ):
            with client.stream("POST", "/openai/v1/events", json=CHAT, timeout=60) as answer:
                pieces = answer.iter_raw()
                heard = [next(pieces)]
                if how == "revoked":
                    key_id = client.headers["authorization"].split("_")[1]
                    gateway.registry.revoke(key_id)
                else:
                    assert ask(client) == 200
                until = time.monotonic() + 60
                while how == "revoked" and client.get("/headrace/v1/artifacts").status_code != 401:
                    assert time.monotonic() < until, "the key is still taken"
                time.sleep(0.6)  # streams are looked at twice a second
                go_on.set()
                if how == "revoked":
                    with pytest.raises(httpx.TransportError):
                        heard += pieces
                else:
                    heard.append(next(pieces))
                    done.set()
                    heard += pieces
            done.set()
            after = b"" if how == "revoked" else b"data: after\n\n"
            assert b"".join(heard) == b"data: before\n\n" + after
            exchanges = gateway.exchanges(1 if how == "revoked" else 2)
            kept = next(one for one in exchanges if one.request.path.endswith("/events"))
            assert kept.response is not None
            assert kept.response.body.endswith(after or b"before\n\n")
