"""Client keys: hashed at rest, checked whole, revoked at once."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proxy.clients.keys import KeyRegistry
from trajectory.errors import ConfigurationError


def test_a_key_names_its_client(tmp_path: Path) -> None:
    registry = KeyRegistry.load(tmp_path / "keys.json")
    created = registry.create(
        tenant_id="acme", app_id="bot", environment="test", purposes=("debug", "eval")
    )
    client = KeyRegistry.load(tmp_path / "keys.json").authenticate(created.secret)
    assert client is not None
    assert (client.tenant_id, client.app_id, client.environment) == ("acme", "bot", "test")
    assert client.purposes == ("debug", "eval")
    assert client.key_id == created.key.key_id


def test_the_secret_is_nowhere_at_rest(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    created = KeyRegistry.load(path).create(tenant_id="a", app_id="b")
    secret = created.secret.rpartition("_")[2]
    assert secret not in path.read_text()
    assert secret not in repr(created)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("change", ["", "x", "hr_", "hr__", "sk-123", None])
def test_anything_else_is_nobody(tmp_path: Path, change: str | None) -> None:
    registry = KeyRegistry.load(tmp_path / "keys.json")
    created = registry.create(tenant_id="a", app_id="b")
    assert registry.authenticate(change) is None
    assert registry.authenticate(created.secret + "0") is None
    assert registry.authenticate(created.secret[:-1]) is None


def test_a_revoked_key_is_nobody(tmp_path: Path) -> None:
    registry = KeyRegistry.load(tmp_path / "keys.json")
    created = registry.create(tenant_id="a", app_id="b")
    assert registry.valid(created.key.key_id)
    assert registry.revoke(created.key.key_id).revoked_at is not None
    assert registry.authenticate(created.secret) is None
    assert not registry.valid(created.key.key_id)
    assert len(registry.list()) == 1
    with pytest.raises(ConfigurationError, match="headrace keys list"):
        registry.revoke("nobody")


def test_a_key_that_another_process_made_opens_at_once(tmp_path: Path) -> None:
    running = KeyRegistry.load(tmp_path / "keys.json")
    made = KeyRegistry.load(tmp_path / "keys.json").create(tenant_id="a", app_id="b")
    assert running.authenticate(made.secret) is not None
    rotated = KeyRegistry.load(tmp_path / "keys.json").rotate(made.key.key_id, grace_seconds=60)
    assert running.authenticate(rotated.secret) is not None
    assert running.authenticate(made.secret) is not None, "in its grace"


def test_a_damaged_registry_keeps_the_keys_that_were_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    running = KeyRegistry.load(path)
    made = running.create(tenant_id="a", app_id="b")
    path.write_text("{")
    assert running.authenticate("hr_no_key") is None
    assert running.authenticate(made.secret) is not None


def test_wrong_input_is_explained(tmp_path: Path) -> None:
    registry = KeyRegistry.load(tmp_path / "keys.json")
    with pytest.raises(ConfigurationError, match="Valid purposes: debug"):
        registry.create(tenant_id="a", app_id="b", purposes=("everything",))
    with pytest.raises(ConfigurationError, match="printable"):
        registry.create(tenant_id="", app_id="b")
    with pytest.raises(ConfigurationError, match="means no tenant"):
        registry.create(tenant_id="__HIVE_DEFAULT_PARTITION__", app_id="b")
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [{"x": 1}]}))
    with pytest.raises(ConfigurationError, match="headrace keys create"):
        KeyRegistry.load(tmp_path / "keys.json")


def test_a_key_opens_only_what_its_roles_say(tmp_path: Path) -> None:
    registry = KeyRegistry.load(tmp_path / "keys.json")
    caller = registry.create(tenant_id="acme", app_id="bot").secret
    reader = registry.create(tenant_id="acme", app_id="bi", roles=("lake",)).secret
    assert registry.authenticate(caller) is not None
    assert registry.authenticate(caller, role="lake") is None
    assert registry.authenticate(reader) is None
    again = KeyRegistry.load(tmp_path / "keys.json")
    assert again.authenticate(reader, role="lake") is not None
    assert again.authenticate(reader, role="tokens") is None


@pytest.mark.parametrize(
    ("tenant", "roles"),
    [("acme", ("admin",)), ("acme", ()), ("acme", ("tokens",)), ("*", ("gateway", "lake"))],
)
def test_roles_that_mean_nothing_are_refused(
    tmp_path: Path, tenant: str, roles: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigurationError):
        KeyRegistry.load(tmp_path / "k.json").create(tenant_id=tenant, app_id="a", roles=roles)


def test_two_who_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"

    def write(app: str) -> None:
        registry = KeyRegistry.load(path)
        for _ in range(10):
            created = registry.create(tenant_id="acme", app_id=app)
            registry.revoke(created.key.key_id)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, "abcd"))
    found = KeyRegistry.load(path).list()
    assert len(found) == 40
    assert all(key.revoked_at is not None for key in found)


@pytest.mark.parametrize(
    "broken",
    [
        {"keys": ["x"]},
        {"keys": [{"secret_hash": 5}]},
        {"keys": [{"purposes": [1]}]},
        {"keys": {"a": 1}},
        [],
        "deep",
        "pipe",
        "folder",
    ],
)
def test_a_registry_that_is_broken_while_it_is_used_changes_nothing(
    tmp_path: Path, broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.clients.keys._LOOK_SECONDS", 0.0)
    path = tmp_path / "keys.json"
    registry = KeyRegistry.load(path)
    created = registry.create(tenant_id="a", app_id="b")
    row = json.loads(path.read_text())["keys"][0]
    path.unlink()
    match broken:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "deep":
            path.write_text("[" * 200_000)
        case {"keys": [dict() as change]}:
            path.write_text(json.dumps({"keys": [{**row, **change}]}))
        case _:
            path.write_text(json.dumps(broken))
    for _ in range(2):
        assert registry.authenticate(created.secret) == created.key.identity
        assert registry.authenticate("hr_x_y") is None
    path.rmdir() if broken == "folder" else path.unlink()
    path.write_text(json.dumps({"keys": [row]}))
    registry.revoke(created.key.key_id)
    assert registry.authenticate(created.secret) is None


def test_a_tenant_whose_name_no_folder_of_the_lake_can_have_gets_no_key(tmp_path: Path) -> None:
    """Such a folder cannot be made, and every later batch would wait for it."""
    registry = KeyRegistry.load(tmp_path / "keys.json")
    for name in ("a" * 201, "\u6f22" * 30, "\U0001f600" * 20):
        with pytest.raises(ConfigurationError, match="too long"):
            registry.create(tenant_id=name, app_id="b")
    for name in ("a" * 200, "\u6f22" * 22):
        registry.create(tenant_id=name, app_id="b")
