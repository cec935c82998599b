"""A route with ``pin: trajectory``: one version answers a trajectory, whatever is promoted meanwhile."""

import json
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from proxy.config import GatewayConfig
from proxy.routes import pins
from proxy.routes.pins import Pins, pinned_labels, trajectory_name
from tests.proxy.gateway_process import GatewayProcess
from tests.proxy.routes.test_model_versions import engine
from tests.support.ports import free_port
from tests.support.upstream import Upstream
from trajectory.dialects.registry import read_exchange

OLD, NEW, TRIED = "shop@0001", "shop@0002", "shop@0003"
ROUTES = [
    {"name": "kept", "model": "shop", "pin": "trajectory", "canary": 0.5},
    {"name": "moving", "model": "shop", "canary": 0.5},
]


class Deployment:
    """A gateway with a pinned and a moving route, and what its clients do."""

    def __init__(self, home: Path, behind: Upstream, gateway: GatewayProcess) -> None:
        self.file = home / "serving.json"
        self.url = behind.url
        self.gateway = gateway

    def publish(self, former: tuple[str, ...] = (), **places: str) -> None:
        """Publish versions; return once every worker goes by it."""
        models: dict[str, object] = {
            place: {"label": label, "url": self.url} for place, label in places.items()
        }
        models["former"] = [{"label": label, "url": self.url} for label in former]
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps({"models": {"shop": models}}))
        fresh.replace(self.file)
        if self.gateway.admin:
            wait_until(lambda: self.serving() == places)

    def serving(self) -> dict[str, str]:
        text = httpx.get(f"{self.gateway.admin}/metrics", trust_env=False).text
        lines = [line for line in text.splitlines() if line.startswith("headrace_serving{")]
        return {line.split('"')[3]: line.split('"')[5] for line in lines}

    def ask(self, session: str = "", route: str = "kept", path: str = "", **headers: str) -> str:
        named = {"x-headrace-session": session} if session else {}
        answer = httpx.post(
            f"{self.gateway.url}{path}/{route}/v1/chat/completions",
            json={"model": "m", "messages": [{"role": "user", "content": "hi"}]},
            headers={"authorization": f"Bearer {self.gateway.key}", **named, **headers},
            trust_env=False,
        )
        answer.raise_for_status()
        return str(answer.json()["choices"][0]["message"]["content"])


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Deployment]:
    with Upstream(engine) as behind:
        settings = {
            "routes": ROUTES,
            "forward_port": None,
            "serving": str(tmp_path / "serving.json"),
        }
        with GatewayProcess(tmp_path, settings) as gateway:
            yield Deployment(tmp_path, behind, gateway)


def test_a_promotion_leaves_a_trajectory_its_version_and_gives_new_ones_the_new(
    shop: Deployment,
) -> None:
    shop.publish(live=OLD)
    assert [shop.ask("one"), shop.ask("one", "moving")] == [OLD, OLD]
    shop.publish(live=NEW, former=(OLD,))
    assert [shop.ask("one"), shop.ask("two"), shop.ask("one", "moving")] == [OLD, NEW, NEW]
    shop.publish(live=TRIED, former=(OLD, NEW))
    assert [shop.ask(name) for name in ("one", "two", "three")] == [OLD, NEW, TRIED]
    calls = [read_exchange(exchange) for exchange in shop.gateway.exchanges(8)]
    assert {call.model_served for call in calls} == {OLD, NEW, TRIED}


def test_a_canary_keeps_what_it_began_when_its_trial_ends_or_it_is_promoted(
    shop: Deployment,
) -> None:
    shop.publish(live=OLD, canary=NEW)
    names = [f"s{number}" for number in range(20)]
    first = {name: shop.ask(name) for name in names}
    assert set(first.values()) == {OLD, NEW}
    shop.publish(live=OLD, former=(NEW,))
    assert {name: shop.ask(name) for name in names} == first
    shop.publish(live=NEW, canary=TRIED, former=(OLD,))
    assert {name: shop.ask(name) for name in names} == first


def test_a_version_that_is_gone_loses_its_trajectories_once(shop: Deployment) -> None:
    shop.publish(live=OLD)
    assert shop.ask("one") == OLD
    shop.publish(live=NEW)
    assert shop.ask("one") == NEW
    shop.publish(live=TRIED, former=(OLD, NEW))
    assert shop.ask("one") == NEW


@pytest.mark.parametrize(
    "headers",
    [
        {"x-claude-code-session-id": "9d2c"},
        {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
        {"baggage": "session.id=abc"},
    ],
)
def test_what_clients_send_on_their_own_names_a_trajectory(
    shop: Deployment, headers: dict[str, str]
) -> None:
    shop.publish(live=OLD)
    assert shop.ask(**headers) == OLD
    shop.publish(live=NEW, former=(OLD,))
    assert shop.ask(**headers) == OLD


def test_the_path_names_a_trajectory_and_without_a_name_there_is_no_pin(shop: Deployment) -> None:
    shop.publish(live=OLD)
    assert [shop.ask(path="/s/mine"), shop.ask()] == [OLD, OLD]
    shop.publish(live=NEW, former=(OLD,))
    assert [shop.ask(path="/s/mine"), shop.ask()] == [OLD, NEW]


def test_the_file_holds_no_name_and_other_tenants_have_pins_of_their_own(
    shop: Deployment, tmp_path: Path
) -> None:
    shop.publish(live=OLD)
    assert shop.ask("ann@example.org") == OLD
    held = b"".join(path.read_bytes() for path in tmp_path.glob("pins.sqlite*"))
    assert b"ann@" not in held
    other = shop.gateway.registry.create(
        tenant_id="other", app_id="a", environment="ci", purposes=()
    )
    shop.publish(live=NEW, former=(OLD,))
    shop.gateway.key = other.secret
    wait_until(lambda: _admits(shop))
    assert shop.ask("ann@example.org") == NEW


def _admits(shop: Deployment) -> bool:
    try:
        shop.ask("warm")
    except httpx.HTTPStatusError:
        return False
    return True


def test_pins_outlive_a_restart(tmp_path: Path) -> None:
    settings = {
        "routes": ROUTES,
        "forward_port": None,
        "serving": str(tmp_path / "serving.json"),
    }
    with Upstream(engine) as behind:
        with GatewayProcess(tmp_path, settings) as gateway:
            shop = Deployment(tmp_path, behind, gateway)
            shop.publish(live=OLD)
            assert shop.ask("one") == OLD
            shop.publish(live=NEW, former=(OLD,))
            assert gateway.stop(signal.SIGKILL) != 0
        with GatewayProcess(tmp_path, settings) as gateway:
            again = Deployment(tmp_path, behind, gateway)
            assert [again.ask("one"), again.ask("two")] == [OLD, NEW]


@pytest.mark.slow
def test_workers_share_pins(tmp_path: Path) -> None:
    with Upstream(engine) as behind:
        settings = {
            "routes": ROUTES,
            "serving": str(tmp_path / "serving.json"),
            "workers": 2,
            "port": free_port(),
            "forward_port": None,
            "admin_port": None,
        }
        with GatewayProcess(tmp_path, settings) as gateway:
            shop = Deployment(tmp_path, behind, gateway)
            names = [f"s{number}" for number in range(10)]
            shop.publish(live=OLD)
            wait_until(lambda: all(_admits(shop) for _ in range(20)))
            assert {shop.ask(name) for name in names} == {OLD}
            shop.publish(live=NEW, former=(OLD,))
            # A new trajectory gets the new version wherever it comes in once both workers know.
            fresh = iter(range(10_000))
            wait_until(lambda: all(shop.ask(f"n{next(fresh)}", "moving") == NEW for _ in range(20)))
            assert {shop.ask(name) for name in names for _ in range(4)} == {OLD}


def test_a_pin_goes_after_silence_and_a_call_puts_that_off(tmp_path: Path) -> None:
    kept = Pins(tmp_path / "pins.sqlite")
    able = {OLD: 1, NEW: 1}
    assert kept.keep(b"a", OLD, able, 3600) == OLD
    assert kept.keep(b"b", OLD, able, -1) == OLD
    assert kept.keep(b"a", NEW, able, 7200) == OLD
    assert kept.keep(b"b", NEW, able, 3600) == NEW
    with closing(sqlite3.connect(tmp_path / "pins.sqlite")) as file:
        (expires,) = file.execute("SELECT expires FROM pins WHERE name = ?", (b"a",)).fetchone()
    assert expires > time.time() + 3700
    assert pinned_labels(tmp_path / "pins.sqlite") == {OLD, NEW}
    kept.close()


def test_the_file_is_bounded_and_the_quietest_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pins, "MOST", 5)
    kept = Pins(tmp_path / "pins.sqlite")
    kept.sweep()
    assert not (tmp_path / "pins.sqlite").exists()
    for number in range(20):
        kept.keep(b"%d" % number, OLD, {OLD: 1}, 1000 + number)
    kept.keep(b"over", OLD, {OLD: 1}, -1)
    kept.sweep()
    with closing(sqlite3.connect(tmp_path / "pins.sqlite")) as file:
        left = {name for (name,) in file.execute("SELECT name FROM pins")}
    assert left == {b"15", b"16", b"17", b"18", b"19"}
    kept.close()


def test_two_workers_that_draw_differently_agree(tmp_path: Path) -> None:
    one, other = Pins(tmp_path / "pins.sqlite"), Pins(tmp_path / "pins.sqlite")
    able = {OLD: 1, NEW: 1}
    assert one.keep(b"a", OLD, able, 3600) == OLD
    assert other.keep(b"a", NEW, able, 3600) == OLD
    one.close()
    other.close()


def test_a_damaged_file_changes_no_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "pins.sqlite").write_bytes(b"no database at all, but some bytes" * 100)
    kept = Pins(tmp_path / "pins.sqlite")
    assert [kept.keep(b"a", NEW, {NEW: 1}, 60) for _ in range(3)] == [NEW] * 3
    kept.sweep()
    assert caplog.text.count("versions are drawn anew") == 1
    assert "move the file away" in caplog.text
    with pytest.raises(OSError, match=r"pins\.sqlite: DatabaseError; .*move the file away"):
        pinned_labels(tmp_path / "pins.sqlite")


def test_the_strongest_name_counts() -> None:
    fields = ((b"Session-Id", b"weak"), (b"X-Headrace-Session", b"strong"))
    assert trajectory_name(fields, b"url") == b"strong"
    assert trajectory_name(fields[:1], b"url") == b"url"
    assert trajectory_name(fields[:1], None) == b"weak"
    assert trajectory_name(((b"x-headrace-task", b"t"),), None) is None


def test_only_a_route_with_a_model_pins() -> None:
    with pytest.raises(ValueError, match="pin belongs to a route with a model"):
        GatewayConfig.model_validate(
            {"routes": [{"name": "r", "upstream": "http://a", "pin": "trajectory"}]}
        )
