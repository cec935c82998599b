"""Four eyes: one asks, another one approves, it is done once; whatever is killed in between."""

import json
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from governance.policy import load_bundle
from governance.policy.bundle import SHIPPED
from governance.redact.pseudonym import installation_seal
from governance.redact.reversible import seal
from headrace.app.context import AppContext
from headrace.app.setting_sources import load_settings
from headrace.cli import run as headrace
from headrace.console.users import User, local_user, system_user
from headrace.services import four_eyes
from headrace.services.acts import ERASE, POLICY, PROMOTE, REVEAL
from headrace.services.changes import model_registry
from headrace.services.erasure import ErasureRequest, erasure_of
from headrace.services.policy_copies import adopt, copy_bundle
from headrace.services.request_store import ActRequest, RequestStore
from tests.lakehouse.power import Power
from tests.train.lakes import Session, lake_of
from trajectory.errors import ConfigurationError, HeadraceError, IntegrityError

IDA, ODA = local_user("ida"), local_user("oda")
VIEWER = User("vera", frozenset({("viewer", "*"), ("trainer", "acme")}))
AT_THE_PROVIDER = replace(ODA, authority="https://id.example", key="17")


def quiet(_done: int, _total: int) -> None:
    """Tell nobody how far it is."""


@pytest.fixture
def app(tmp_path: Path) -> AppContext:
    home = tmp_path / "home"
    home.mkdir()
    acts = ["promote", "erase", "reveal", "release", "policy"]
    settings = {"policy": {"four_eyes": acts, "reveal_users": ["ida"]}}
    (home / "headrace.yaml").write_text(json.dumps(settings))
    return AppContext(home, debug=False)


def candidate(app: AppContext) -> str:
    """Register a version of the model ``shop``, without weights."""
    folder = app.home.create().root / "made"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    registry = model_registry(app, "night")
    return registry.register("shop", folder, {"origin": "adopted"}, passed=True).version


def ask_to_promote(app: AppContext, user: User = IDA) -> ActRequest:
    given = {"kind": "model", "name": "shop", "version": candidate(app), "override": None}
    made = four_eyes.perform(app, user, PROMOTE, given, subject="shop@0001", why="better")
    assert isinstance(made, ActRequest)
    return made


def live(app: AppContext) -> str | None:
    found = model_registry(app, "test").live("shop")
    return None if found is None else found.version


def audited(app: AppContext) -> list[tuple[str, str]]:
    return [(one.actor, one.action) for one in app.audit.entries()]


def test_another_person_approves_and_it_is_done_once(app: AppContext) -> None:
    made = ask_to_promote(app)
    assert (made.status, live(app)) == ("waiting", None)
    again = four_eyes.ask(
        app, IDA, PROMOTE, made.parameters, subject=made.subject, why="", tenant="*"
    )
    assert again.request_id == made.request_id, "the same waits once"
    for user, problem in (
        (IDA, "somebody else"),
        (AT_THE_PROVIDER, "nobody can tell"),
        (VIEWER, "is for admin, operator, trainer"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            four_eyes.approve(app, user, made.request_id, reason="fine", progress=quiet)
    with pytest.raises(ConfigurationError, match="reason"):
        four_eyes.approve(app, ODA, made.request_id, reason=" ", progress=quiet)
    with pytest.raises(ConfigurationError, match="is waiting"):
        four_eyes.run(app, IDA, made.request_id, quiet)
    assert live(app) is None
    done = four_eyes.approve(app, ODA, made.request_id, reason="looked at it", progress=quiet)
    assert (done.status, done.decided_by, done.reason) == ("done", ODA, "looked at it")
    assert live(app) == made.parameters["version"]
    for attempt in (
        lambda: four_eyes.approve(app, ODA, made.request_id, reason="again", progress=quiet),
        lambda: four_eyes.run(app, IDA, made.request_id, quiet),
    ):
        with pytest.raises(ConfigurationError, match="is done"):
            attempt()
    said = audited(app)
    assert said.count(("ida", "model.promote")) == 1
    assert [one for one in said if one[1].startswith("request.")] == [
        ("ida", "request.made"), ("oda", "request.approved"), ("ida", "request.done")
    ]  # fmt: skip


@pytest.mark.parametrize("typed", ["Ida", "IDA", "\uff49da", "ida"])
def test_who_types_another_name_of_their_own_at_a_proxy_is_nobody_else(
    app: AppContext, typed: str
) -> None:
    by_proxy = replace(IDA, authority="proxy")
    request = ask_to_promote(app, by_proxy)
    with pytest.raises(ConfigurationError, match="somebody else must approve it"):
        four_eyes.accept(app, replace(by_proxy, name=typed), request.request_id, reason="good")
    four_eyes.accept(app, replace(by_proxy, name="oda"), request.request_id, reason="good")


def test_an_act_is_done_at_once_where_policy_wants_nobody_else(tmp_path: Path) -> None:
    app = AppContext(tmp_path, debug=False)
    given = {"kind": "model", "name": "shop", "version": candidate(app), "override": None}
    assert four_eyes.perform(app, IDA, PROMOTE, given, subject="shop") == {"serves": "shop@0001"}


def test_a_rejected_request_is_not_done(app: AppContext) -> None:
    made = ask_to_promote(app)
    four_eyes.reject(app, ODA, made.request_id, reason="too early")
    with pytest.raises(ConfigurationError, match="waits no more"):
        four_eyes.approve(app, ODA, made.request_id, reason="well", progress=quiet)
    assert live(app) is None
    fresh = ask_to_promote(app)
    assert fresh.request_id != made.request_id
    assert four_eyes.reject(app, IDA, fresh.request_id, reason="mistaken").status == "rejected"


def test_of_many_who_approve_at_once_one_does_it(app: AppContext) -> None:
    made = ask_to_promote(app)
    ends: list[str] = []

    def approve(name: str) -> None:
        try:
            four_eyes.approve(app, local_user(name), made.request_id, reason="fine", progress=quiet)
            ends.append("did it")
        except ConfigurationError:
            ends.append("came late")

    threads = [threading.Thread(target=approve, args=(f"p{number}",)) for number in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(ends) == ["came late"] * 5 + ["did it"]
    assert [action for _, action in audited(app)].count("model.promote") == 1


_KILLED = """
import os, signal, sys
from pathlib import Path
from headrace.app.context import AppContext
from headrace.console.users import local_user
from headrace.services import four_eyes
app = AppContext(Path(sys.argv[1]), debug=False)
if sys.argv[2] == "ask":
    from tests.headrace.services.test_four_eyes import ask_to_promote
    print(ask_to_promote(app).request_id, flush=True)
elif sys.argv[2] == "approve":
    four_eyes.accept(app, local_user("oda"), sys.argv[3], reason="fine")
else:
    store = four_eyes.requests_of(app)
    with store.alone(sys.argv[3]) as alone:
        assert alone
        os.kill(os.getpid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_request_outlives_kill_9_and_is_done_once(app: AppContext) -> None:
    def killed(*arguments: str) -> str:
        command = [sys.executable, "-c", _KILLED, str(app.home.root), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        return ended.stdout.strip()

    request_id = killed("ask")
    assert four_eyes.requests_of(app).get(request_id).status == "waiting"
    killed("approve", request_id)
    killed("do", request_id)
    found = four_eyes.requests_of(app).get(request_id)
    assert (found.status, live(app)) == ("approved", None)
    assert four_eyes.run(app, IDA, request_id, quiet) == {"serves": "shop@0001"}
    with pytest.raises(ConfigurationError, match="is done"):
        four_eyes.run(app, ODA, request_id, quiet)
    assert [action for _, action in audited(app)].count("model.promote") == 1


def test_what_fails_has_failed_and_what_may_go_well_later_stays_approved(
    app: AppContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ask_to_promote(app)
    shutil.rmtree(app.home.models / "shop")
    with pytest.raises(HeadraceError):
        four_eyes.approve(app, ODA, made.request_id, reason="fine", progress=quiet)
    failed = four_eyes.requests_of(app).get(made.request_id)
    assert failed.status == "failed"
    assert failed.outcome is not None
    assert "shop" in str(failed.outcome["problem"])


def test_a_value_is_seen_once_by_who_asked(app: AppContext) -> None:
    key = app.secrets.derive(b"pseudonym")
    mark = seal(installation_seal(key), "EMAIL_ADDRESS", "jo@corp-mail.com", "acme", None)
    given = {"mark": mark, "reason": "T-1"}
    shutil.copytree(SHIPPED / "default", app.home.policies / "in-force")

    def reveal(user: User) -> Any:
        return four_eyes.perform(app, user, REVEAL, given, subject="EMAIL_ADDRESS", why="T-1")

    with pytest.raises(ConfigurationError, match="reveal_users"):
        reveal(ODA)
    made = reveal(IDA)
    assert made.status == "waiting"
    approved = four_eyes.approve(app, ODA, made.request_id, reason="T-1", progress=quiet)
    assert (approved.status, approved.outcome) == ("approved", None)
    with pytest.raises(ConfigurationError, match="only ida"):
        four_eyes.run(app, ODA, made.request_id, quiet)
    assert reveal(IDA) == {"entity": "EMAIL_ADDRESS", "value": "jo@corp-mail.com"}
    assert reveal(IDA).status == "waiting", "for a second look a second person is asked anew"
    assert b"jo@corp-mail.com" not in (app.home.requests / "requests.sqlite").read_bytes()
    assert [action for _, action in audited(app)].count("value.revealed") == 1


def test_an_erasure_waits_without_the_persons_name(app: AppContext) -> None:
    lake_of(app.home.create().lake, Session(1), Session(2, tenant="globex"))
    shutil.copytree(SHIPPED / "default", app.home.policies / "in-force")
    name = "jo.frame@corp-mail.com"
    given, who = erasure_of(app, ErasureRequest("acme", [name], "ida", "T-9"))
    made = four_eyes.ask(app, IDA, ERASE, given, subject=who, why="T-9", tenant="acme")
    kept = (app.home.requests / "requests.sqlite").read_bytes()
    assert name.encode() not in kept
    assert not list(app.home.audit.glob("certificates/*"))
    other = User("pia", frozenset({("privacy", "globex")}))
    with pytest.raises(ConfigurationError, match="the data of acme"):
        four_eyes.approve(app, other, made.request_id, reason="T-9", progress=quiet)
    own = replace(other, roles=frozenset({("privacy", "acme")}))
    done = four_eyes.approve(app, own, made.request_id, reason="T-9", progress=quiet)
    assert done.status == "done"
    (certificate,) = app.home.certificates.glob("*.json")
    assert '"T-9"' in certificate.read_text()


def test_a_policy_is_in_force_when_two_adopted_it(app: AppContext, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(SHIPPED / "default", folder)

    def ask() -> ActRequest:
        given, content_hash = four_eyes.adoption(app, folder)
        made = four_eyes.perform(app, IDA, POLICY, given, subject=content_hash)
        assert isinstance(made, ActRequest)
        return made

    def in_force() -> str:
        return load_bundle(load_settings(home=app.home.root).policy.folder).content_hash

    with pytest.raises(ConfigurationError, match="headrace policy adopt"):
        in_force()
    first = ask()
    four_eyes.approve(app, ODA, first.request_id, reason="read it", progress=quiet)
    assert in_force() == load_bundle(SHIPPED / "default").content_hash
    (folder / "retention.yaml").write_text(
        (folder / "retention.yaml").read_text().replace("365", "364", 1)
    )
    changed = load_bundle(folder).content_hash
    assert changed != in_force(), "an edit changes nothing"
    second = ask()
    copy = app.home.policies / str(second.parameters["copy"])
    (copy / "retention.yaml").write_text("# nobody looked at this\n")
    with pytest.raises(IntegrityError):
        four_eyes.approve(app, ODA, second.request_id, reason="read it", progress=quiet)
    shutil.rmtree(copy)
    third = ask()
    four_eyes.approve(app, ODA, third.request_id, reason="read it", progress=quiet)
    assert in_force() == changed


def test_a_request_that_nobody_decided_expires(tmp_path: Path) -> None:
    now = [1000.0]
    store = RequestStore(tmp_path, clock=lambda: now[0])
    made, _ = store.ask(IDA, PROMOTE, tenant="*", subject="s", parameters={"a": 1}, why="")
    now[0] += 15 * 86400
    assert not store.decide(made.request_id, ODA, approve=True, reason="late")
    assert store.get(made.request_id).status == "expired"


def test_no_power_cut_undoes_what_a_second_person_decided(tmp_path: Path) -> None:
    store = RequestStore(tmp_path)
    made, _ = store.ask(IDA, PROMOTE, tenant="*", subject="s", parameters={"a": 1}, why="")
    assert store.decide(made.request_id, ODA, approve=False, reason="no")
    # SQLite would delete it and not sync the folder: there again, it would undo the last transaction.
    assert (tmp_path / "requests.sqlite-journal").read_bytes() == b""


def test_the_command_line_asks_and_does_not_approve_for_the_same_person(
    app: AppContext, capsys: pytest.CaptureFixture[str]
) -> None:
    version = candidate(app)

    def told(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert headrace(["--home", str(app.home.root), *arguments]) == code
        streams = capsys.readouterr()
        return streams.out, streams.err

    _, err = told("train", "promote", "shop", version, code=1)
    assert "headrace requests approve " in err
    request_id = err.split("headrace requests approve ")[1].split()[0]
    (row,) = json.loads(told("requests", "list", "--json")[0])
    assert (row["request"], row["act"], row["asked_by"]) == (
        request_id, "promote", system_user().name
    )  # fmt: skip
    _, err = told("requests", "approve", request_id, "--reason", "mine", code=2)
    assert "somebody else must approve it" in err
    assert live(app) is None
    four_eyes.approve(app, local_user("the-other"), request_id, reason="fine", progress=quiet)
    shown = json.loads(told("requests", "show", request_id, "--json")[0])
    assert (shown["status"], shown["decided_by"]) == ("done", "the-other")
    assert live(app) == version


def test_after_a_power_cut_what_was_asked_for_can_be_adopted(app: AppContext) -> None:
    home = app.home.create()
    with Power(home.root) as power:
        name, bundle = copy_bundle(home, SHIPPED / "default")
    power.cut()
    assert adopt(home, name).content_hash == bundle.content_hash


def test_a_damaged_file_of_requests_is_named(app: AppContext) -> None:
    folder = app.home.create().requests
    RequestStore(folder)
    (folder / "requests.sqlite").write_bytes(b"no database at all, and long enough for one" * 100)
    with pytest.raises(IntegrityError, match=r"requests\.sqlite is damaged .*move it away"):
        RequestStore(folder).list()
