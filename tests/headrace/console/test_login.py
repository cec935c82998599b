"""``headrace login``: the command line is who the provider says, in the audit log and for four eyes."""

import json
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from headrace.app.context import AppContext
from headrace.cli import run
from headrace.console.login import log_in, session_file
from headrace.console.sessions import SessionStore
from headrace.console.users import is_name, system_user
from headrace.services.changes import model_registry
from tests.headrace.services.test_four_eyes import candidate
from tests.support.identity_provider import Person, TestProvider, identity_provider
from trajectory.errors import ConfigurationError

type Told = Callable[..., tuple[str, str]]


@pytest.fixture(scope="module")
def provider() -> Iterator[TestProvider]:
    with identity_provider() as served:
        served.register("headrace-cli", "", "http://127.0.0.1/callback")
        yield served


@pytest.fixture
def home(tmp_path: Path, provider: TestProvider, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    home = tmp_path / "home"
    home.mkdir()
    settings = {
        "console": {
            "oidc": {"issuer": provider.issuer, "client_id": "console", "login_client_id": "headrace-cli"},
            "groups": [{"group": "trainers", "role": "trainer"}],
        },
        "policy": {"four_eyes": ["promote"]},
    }  # fmt: skip
    (home / "headrace.yaml").write_text(json.dumps(settings))
    return home


@pytest.fixture
def told(home: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    def headrace(*arguments: str, code: int = 0) -> tuple[str, str]:
        ended = run(["--home", str(home), *arguments])
        streams = capsys.readouterr()
        assert ended == code, streams.err
        return streams.out, streams.err

    return headrace


def sign_in(home: Path, provider: TestProvider, sub: str, name: str) -> None:
    """Sign somebody in at the command line, with a browser that goes where it is told."""
    provider.person = Person(sub, {"email": name, "groups": ["trainers"]})

    def browse(address: str) -> None:
        def go() -> None:
            with httpx.Client(follow_redirects=True, timeout=60) as client:
                client.get(address)

        threads.append(threading.Thread(target=go))
        threads[0].start()

    threads: list[threading.Thread] = []
    assert log_in(AppContext(home, debug=False), 0, browse).name == name
    threads[0].join()


def test_who_is_the_same_everywhere(home: Path, provider: TestProvider, told: Told) -> None:
    assert json.loads(told("whoami", "--json")[0])["name"] == system_user().name
    sign_in(home, provider, "17", "ida@example.com")
    who = json.loads(told("whoami", "--json")[0])
    assert who == {
        "name": "ida@example.com", "authority": provider.issuer, "roles": ["trainer in every tenant"]
    }  # fmt: skip
    kept = session_file(home)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert kept.read_bytes() not in (home / "state" / "console.sqlite").read_bytes()
    told("keys", "create", "--tenant", "acme", "--app", "app")
    (row,) = json.loads(told("console", "sessions", "--json")[0])
    assert (row["name"], row["door"]) == ("ida@example.com", "command line")
    entries = [(one.actor, one.action) for one in AppContext(home, debug=False).audit.entries()]
    assert ("ida@example.com", "console.signed_in") in entries
    assert "ida@example.com" in {actor for actor, action in entries if action.startswith("key")}
    assert "signed out" in told("logout")[0]
    assert json.loads(told("whoami", "--json")[0])["name"] == system_user().name


def test_a_session_that_was_ended_is_nobody_until_it_is_left(
    home: Path, provider: TestProvider, told: Told
) -> None:
    sign_in(home, provider, "17", "ida@example.com")
    app = AppContext(home, debug=False)
    store = SessionStore.of(app.home.sessions, app.settings.console)
    (one,) = store.list()
    store.revoke(one.session)
    assert "headrace login" in told("whoami", code=2)[1]
    told("logout")
    told("whoami")


def test_two_people_of_the_provider_promote_at_the_command_line(
    home: Path, provider: TestProvider, told: Told
) -> None:
    version = candidate(AppContext(home, debug=False))
    promote = ("train", "promote", "shop", version)
    assert "headrace login" in told(*promote, code=2)[1], "a user of this machine is nobody here"
    sign_in(home, provider, "17", "ida@example.com")
    request = told(*promote, code=1)[1].split("headrace requests approve ")[1].split()[0]
    approve = ("requests", "approve", request, "--reason", "looked at it")
    assert "somebody else" in told(*approve, code=2)[1]
    sign_in(home, provider, "17", "ida.new.name@example.com")
    assert "somebody else" in told(*approve, code=2)[1], "another name of the same person"
    sign_in(home, provider, "18", "oda@example.com")
    told(*approve)
    live = model_registry(AppContext(home, debug=False), "test").live("shop")
    assert live is not None
    assert live.version == version


def test_without_a_provider_there_is_nowhere_to_sign_in(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"console\.oidc"):
        log_in(AppContext(tmp_path, debug=False), 0, lambda _address: None)


def test_what_a_process_of_headrace_starts_is_in_its_own_name(
    home: Path, provider: TestProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_in(home, provider, "17", "ida@example.com")
    for process in ("schedule", "governor"):
        monkeypatch.setenv("HEADRACE_PROCESS", process)
        user = AppContext(home, debug=False).user
        assert user.name == f"headrace:{process}"
        assert user.is_same(system_user()), "who sets the variable is still no second person"
        assert not user.is_known_to_differ(system_user())
    monkeypatch.setenv("HEADRACE_PROCESS", "ida@example.com")
    assert AppContext(home, debug=False).user.name == "ida@example.com", "whom she signed in as"


def test_a_night_does_not_wait_for_a_person_whose_sign_in_ended(
    home: Path, provider: TestProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_in(home, provider, "17", "ida@example.com")
    session_file(home).write_text("gone", encoding="ascii")
    with pytest.raises(ConfigurationError, match="your sign-in has ended"):
        _ = AppContext(home, debug=False).user
    monkeypatch.setenv("HEADRACE_PROCESS", "schedule")
    assert AppContext(home, debug=False).user.name == "headrace:schedule"


@pytest.mark.parametrize("name", ["headrace:schedule", "client:k7"])
def test_no_person_has_the_name_of_a_process_or_a_program(name: str) -> None:
    assert not is_name(name)
    assert is_name("ida@example.com")
