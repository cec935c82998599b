"""The session calls of AReaL's clients: what they send, what they get, and who may not."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from proxy.clients import session_keys
from proxy.clients.keys import KeyRegistry
from proxy.clients.session_keys import LIFE_SECONDS, SessionKeys, task_of
from proxy.clients.shared_counters import SharedCounters
from tests.proxy.gateway_process import GatewayProcess
from tests.support.provider import provider
from tests.support.upstream import Upstream
from trajectory.exchange import Exchange, Feedback


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with Upstream(provider) as upstream:
        base = f"{upstream.url}/v1"
        routes = [
            {"name": "rl", "upstream": base, "session_calls": True},
            {"name": "other", "upstream": base, "session_calls": True},
            {"name": "plain", "upstream": base},
        ]
        settings = {"routes": routes, "forward_port": None}
        with GatewayProcess(tmp_path_factory.mktemp("sessions"), settings) as running:
            yield running


class Client:
    """Sends what AReaL's client sends: JSON by POST, and a bearer key."""

    def __init__(self, gateway: GatewayProcess, route: str = "rl") -> None:
        self.base = f"{gateway.url}/{route}/"
        self.admin = gateway.key

    def post(self, path: str, body: Any, key: str | None) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.post(self.base + path, json=body, headers=headers, trust_env=False)

    def start(self, **body: Any) -> dict[str, Any]:
        answer = self.post("rl/start_session", {"task_id": "task-1", **body}, self.admin)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def ask(self, key: str, path: str = "") -> str:
        model = openai.OpenAI(base_url=self.base + path, api_key=key, max_retries=0)
        message: Any = {"role": "user", "content": "hello"}
        return model.chat.completions.create(model="m", messages=[message]).id


def test_a_session_from_its_start_to_its_end(gateway: GatewayProcess) -> None:
    client = Client(gateway)
    begun = client.start()
    key = begun["api_key"]
    answer_id = client.ask(key)
    rewarded = client.post("rl/set_reward", {"interaction_id": answer_id, "reward": 0.25}, key)
    assert (rewarded.status_code, rewarded.json()["message"]) == (200, "success")
    last = client.post("rl/set_reward", {"interaction_id": None, "reward": 1}, key)
    assert last.json()["interaction_count"] == 1
    ended = client.post("rl/end_session", {}, key)
    assert ended.json() == {"message": "success", "interaction_count": 1}
    assert client.post("rl/end_session", {}, key).status_code == 410
    assert client.post("rl/set_reward", {"reward": 1.0}, key).status_code == 410
    with pytest.raises(openai.AuthenticationError):
        client.ask(key)
    records = gateway.records(4)
    (call, refused) = (one for one in records if isinstance(one, Exchange))
    name = begun["session_id"].removeprefix("s/")
    headers = dict(call.request.headers)
    assert (headers["x-headrace-url-session"], headers["x-headrace-task"]) == (name, "task-1")
    assert call.client.key_id == gateway.key_id
    assert key not in str(call.request) + str(refused.request)
    said = [one for one in records if isinstance(one, Feedback)]
    assert [(one.target_kind, one.target_id, one.body["value"]) for one in said] == [
        ("response", answer_id, 0.25),
        ("session", name, 1.0),
    ]
    assert {(one.body["name"], one.body["source_kind"]) for one in said} == {("reward", "env")}


def test_each_call_of_an_open_connection_is_decided_anew(gateway: GatewayProcess) -> None:
    client = Client(gateway)
    key, older = client.start()["api_key"], client.start(task_id="path")["session_id"]
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    for bearer, place in ((key, ""), (gateway.key, f"{older}/")):
        headers = {"authorization": f"Bearer {bearer}"}
        with httpx.Client(base_url=client.base + place, headers=headers, trust_env=False) as kept:
            asked = [kept.post("chat/completions", json=body).status_code for _ in range(4)]
            assert asked == [200] * 4
            ended = client.post(f"{place}rl/end_session", {}, bearer)
            assert ended.json() == {"message": "success", "interaction_count": 4}
            assert kept.post("chat/completions", json=body).status_code == 401
    assert len(gateway.exchanges(10)) == 10


def test_older_clients_name_the_session_in_the_path(gateway: GatewayProcess) -> None:
    client = Client(gateway)
    session = client.start(task_id="old")["session_id"]
    client.ask(gateway.key, session)
    for path, body in (
        ("set_reward", {"interaction_id": None, "reward": 0.5}),
        ("end_session", {}),
    ):
        answer = client.post(f"{session}/rl/{path}", body, gateway.key)
        assert (answer.status_code, answer.json()["message"]) == (200, "success")
    assert client.post(f"{session}/rl/end_session", {}, gateway.key).status_code == 410
    call, reward = gateway.records(2)
    assert isinstance(call, Exchange)
    assert isinstance(reward, Feedback)
    assert dict(call.request.headers)["x-headrace-task"] == "old"
    assert reward.target_id == session.removeprefix("s/")


def test_ending_a_session_that_a_client_named_ends_no_other(gateway: GatewayProcess) -> None:
    client = Client(gateway)
    names = ["run.1", "run.2", f"{'r' * 70}-1", f"{'r' * 70}-2", "maria.lopez@example.org"]
    for name in names:
        client.ask(gateway.key, f"s/{name}")
    for name in (names[0], names[2], names[4]):
        assert client.post(f"s/{name}/rl/end_session", {}, gateway.key).json() == {
            "message": "success",
            "interaction_count": 1,
        }
    for name in (names[1], names[3]):
        client.ask(gateway.key, f"s/{name}")
    gateway.records(7)


def test_what_clients_call_their_sessions_is_not_in_the_file_of_counts(tmp_path: Path) -> None:
    registry = KeyRegistry.load(tmp_path / "keys.json")
    client = registry.create(tenant_id="t", app_id="a", environment="ci").key.identity
    ledger = SharedCounters(tmp_path / "limits.sqlite")
    keys = SessionKeys(b"k" * 32, registry, ledger)
    session = keys.named(client, b"maria.lopez@example.org")
    keys.note_call(session)
    keys.end(session)
    ledger.flush()
    assert (keys.calls(session), keys.ended(session)) == (1, True)
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("limits.sqlite*"))
    assert b"ended:" in kept
    assert b"maria" not in kept
    ledger.close()


def test_a_group_is_several_sessions_of_one_task(gateway: GatewayProcess) -> None:
    begun = Client(gateway).start(group_size=3)
    assert begun["group_id"] == "task-1"
    keys = {one["session_api_key"] for one in begun["sessions"]}
    names = {one["session_id"] for one in begun["sessions"]}
    assert (len(keys), len(names), begun["api_key"] in keys) == (3, 3, True)


def test_a_key_that_is_given_back_ends_its_session_and_gets_a_new_one(
    gateway: GatewayProcess,
) -> None:
    client = Client(gateway)
    first = client.start()["api_key"]
    second = client.start(api_key=first)["api_key"]
    assert second != first
    assert client.post("rl/end_session", {}, first).status_code == 410
    assert client.post("rl/end_session", {}, second).status_code == 200


def test_a_reward_that_is_said_again_is_kept_again(gateway: GatewayProcess) -> None:
    client = Client(gateway)
    key = client.start()["api_key"]
    for reward in (0.0, 1.0, 0.0):
        assert client.post("rl/set_reward", {"reward": reward}, key).status_code == 200
    said = [one for one in gateway.records(3) if isinstance(one, Feedback)]
    assert [one.body["value"] for one in said] == [0.0, 1.0, 0.0]
    assert len({one.feedback_id for one in said}) == 3


def test_a_session_key_opens_its_route_and_nothing_else(gateway: GatewayProcess) -> None:
    client = Client(gateway)
    key = client.start()["api_key"]
    assert client.post("rl/start_session", {"task_id": "x"}, key).status_code == 403
    assert Client(gateway, "other").post("rl/end_session", {}, key).status_code == 401
    for path in ("/other/chat/completions", "/plain/chat/completions", "/headrace/v1/feedback"):
        answer = httpx.post(gateway.url + path, json={}, headers={"authorization": f"Bearer {key}"})
        assert answer.status_code == 401
    assert len(gateway.exchanges(2)) == 2


def test_what_is_not_valid_is_refused(gateway: GatewayProcess) -> None:
    client = Client(gateway)
    key = client.start()["api_key"]
    broken = key[:-12] + ("0" if key[-12] != "0" else "1") + key[-11:]
    for given, status in ((None, 401), ("hr_nobody_0", 401), (broken, 401), (gateway.key, 401)):
        assert client.post("rl/set_reward", {"reward": 1.0}, given).status_code == status
    assert client.post("rl/start_session", {"task_id": "t"}, None).status_code == 401
    bodies: list[Any] = [
        [],
        {"reward": "1"},
        {"reward": True},
        {},
        {"reward": 1, "interaction_id": 7},
    ]
    for body in bodies:
        assert client.post("rl/set_reward", body, key).status_code == 422
    bearer = {"authorization": f"Bearer {key}"}
    for raw in (b"{", b'{"reward": NaN}', b'{"reward": 1e999}'):
        answer = httpx.post(f"{client.base}rl/set_reward", content=raw, headers=bearer)
        assert answer.status_code == 422
    for body in (
        {"task_id": 5},
        {"task_id": "a\nx-headrace-app: other"},
        {"task_id": "t" * 257},
        {"task_id": "t", "group_size": 0},
        {"task_id": "t", "group_size": 1000},
    ):
        assert client.post("rl/start_session", body, gateway.key).status_code == 422
    answer = client.post("rl/start_session", {"task_id": "t", "api_key": broken}, gateway.key)
    assert answer.status_code == 400
    assert httpx.get(f"{client.base}rl/start_session", headers=bearer).status_code == 405


def test_a_route_without_session_calls_passes_them_on(gateway: GatewayProcess) -> None:
    answer = Client(gateway, "plain").post("rl/start_session", {"task_id": "t"}, gateway.key)
    assert "detail" not in answer.json()
    assert gateway.exchange().request.path.endswith("/rl/start_session")


def test_a_revoked_client_key_takes_its_sessions_along(gateway: GatewayProcess) -> None:
    client = Client(gateway)
    created = gateway.registry.create(tenant_id="acme", app_id="rl", environment="ci")
    until = time.monotonic() + 30
    while (answer := client.post("rl/start_session", {}, created.secret)).status_code != 201:
        assert time.monotonic() < until
        time.sleep(0.05)
    key = answer.json()["api_key"]
    gateway.registry.revoke(created.key.key_id)
    while client.post("rl/set_reward", {}, key).status_code != 401:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_keys_are_proved_bound_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = KeyRegistry.load(tmp_path / "keys.json")
    made_for = registry.create(tenant_id="t", app_id="a", environment="ci")
    client, presented = made_for.key.identity, made_for.secret
    ledger = SharedCounters(tmp_path / "limits.sqlite")
    keys = SessionKeys(b"k" * 32, registry, ledger)
    begun = keys.begin(client, "rl", "täsk 1", presented=presented)
    assert begun is not None
    session, key = begun
    assert (session.task, task_of(session.name)) == ("täsk 1".encode(), "täsk 1".encode())
    again = SessionKeys(b"k" * 32, registry, ledger).read(key, "rl")
    assert again is not None
    assert (again.name, again.client) == (session.name, client)
    assert keys.read(key, "other") is None
    assert SessionKeys(b"x" * 32, registry, ledger).read(key, "rl") is None
    later = time.time() + LIFE_SECONDS + 1
    monkeypatch.setattr(time, "time", lambda: later)
    assert keys.read(key, "rl") is None
    monkeypatch.setattr(session_keys, "MOST_A_MINUTE", 2)
    made = [keys.begin(client, "rl", "", presented=presented) for _ in range(3)]
    assert [one is None for one in made] == [False, False, True]
    ledger.close()


def test_a_session_key_ends_with_the_secret_that_began_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = KeyRegistry.load(tmp_path / "keys.json")
    created = registry.create(tenant_id="t", app_id="a", environment="ci")
    ledger = SharedCounters(tmp_path / "limits.sqlite")
    keys, client = SessionKeys(b"k" * 32, registry, ledger), created.key.identity

    def begun(presented: str) -> str:
        found = keys.begin(client, "rl", "", presented=presented)
        assert found is not None
        return found[1]

    before = begun(created.secret)
    rotated = registry.rotate(created.key.key_id, grace_seconds=100)
    during, after = begun(created.secret), begun(rotated.secret)
    assert all(keys.read(key, "rl") for key in (before, during, after))
    later = time.time() + 101
    monkeypatch.setattr(time, "time", lambda: later)
    assert [keys.read(key, "rl") is None for key in (before, during, after)] == [True, True, False]
    registry.revoke(created.key.key_id)
    assert keys.read(after, "rl") is None
    ledger.close()


@pytest.mark.parametrize("name", [b"abc", b"abc.", b"abc.%%%", b"abc.CgB4", b"abc._w"])
def test_a_name_without_a_sound_task_has_none(name: bytes) -> None:
    assert task_of(name) is None


def test_session_keys_are_found_wherever_client_keys_are_looked_for(tmp_path: Path) -> None:
    from proxy.clients.credentials import holds_client_key

    registry = KeyRegistry.load(tmp_path / "keys.json")
    made_for = registry.create(tenant_id="t", app_id="a", environment="ci")
    client, presented = made_for.key.identity, made_for.secret
    ledger = SharedCounters(tmp_path / "limits.sqlite")
    begun = SessionKeys(b"k" * 32, registry, ledger).begin(client, "rl", "t", presented=presented)
    assert begun is not None
    assert holds_client_key(json.dumps({"key": begun[1]}).encode())
    ledger.close()
