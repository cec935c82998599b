"""Two homes on one lake: a hold of either keeps rows, and an erasure of either reaches the keys of both."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from errno import EACCES
from pathlib import Path

import pytest

from governance.policy.bundle import SHIPPED
from headrace.app.context import AppContext
from headrace.govern.quarantine_store import quarantine_of
from headrace.services.consent import pseudonyms_of
from headrace.services.erasure import ErasureRequest, erase_person
from headrace.services.homes import Homes
from headrace.services.quarantine import cases, release
from lakehouse.lake import Lake
from lakehouse.storage.notes import Notes
from tests.headrace.installations import PlantedInstallation, chat
from tests.lakehouse import make
from tests.lakehouse.erasure.test_erase import about
from trajectory.errors import ConfigurationError, RetryableError
from trajectory.exchange import Exchange

MAIL = "leonie.hartwig@corp-mail.de"
HOLD = '[{name: case-7, match: {tenant: acme}, reference: "AZ 7/26"}]'
RETENTION = """apiVersion: headrace/v1
kind: Retention
metadata: {name: holds}
spec:
  classes: {standard: 365}
  default: standard
  legal_holds: %s
"""

READ = Notes.get

type Make = Callable[..., PlantedInstallation]


@pytest.fixture
def make_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setenv("HEADRACE_LAKE_PATH", str(tmp_path / "lake"))
    monkeypatch.setenv("HEADRACE_MASTER_KEY", "ab" * 32)

    def made(name: str, *, key: str = "ab" * 32) -> PlantedInstallation:
        policy = tmp_path / f"policy-{name}"
        policy.mkdir()
        for file in (SHIPPED / "gdpr").glob("*.yaml"):
            (policy / file.name).write_text(file.read_text())
        monkeypatch.setenv("HEADRACE_MASTER_KEY", key)
        return PlantedInstallation(tmp_path / name, str(policy))

    return made


def app_of(home: PlantedInstallation) -> AppContext:
    return AppContext(home.home.root, debug=False)


def said_by(number: int) -> Exchange:
    return chat(number, [{"role": "user", "content": f"Write to {MAIL}, my mail address."}])


def test_an_erasure_reaches_the_keys_and_sealed_copies_of_the_other_home(make_home: Make) -> None:
    one, two = make_home("one"), make_home("two")
    one.govern(said_by(1))
    two.govern(said_by(2))
    person = pseudonyms_of(two.secrets, "acme", MAIL)[0]
    assert app_of(one).subject_keys.known(person)
    assert app_of(two).subject_keys.known(person)
    held = quarantine_of(two.home, two.secrets)
    held.keep([said_by(3)])
    erase_person(app_of(one), ErasureRequest("acme", [MAIL], "oda"), lambda *_: None)
    assert app_of(one).subject_keys.known(person) is None
    two.govern()
    assert app_of(two).subject_keys.known(person) is None
    assert held.names() == frozenset()
    (entry,) = [
        entry for entry in app_of(two).audit.entries() if entry.action == "erasure.carried_out"
    ]
    assert json.loads(entry.detail)["keys_destroyed"] == 1
    assert [e for e in app_of(one).audit.entries() if e.action == "erasure.carried_out"] == []


def test_the_key_of_who_came_back_stays(make_home: Make) -> None:
    """Carried out once, and not again at the next start."""
    one, two = make_home("one"), make_home("two")
    two.govern(said_by(1))
    erase_person(app_of(one), ErasureRequest("acme", [MAIL], "oda"), lambda *_: None)
    two.govern()
    person = pseudonyms_of(two.secrets, "acme", MAIL)[0]
    key = app_of(two).subject_keys.key(person)
    two.begin_again()
    two.govern()
    assert app_of(two).subject_keys.known(person) == key


def test_a_home_that_is_told_of_erasures_for_the_first_time_leaves_its_keys(
    make_home: Make,
) -> None:
    one = make_home("one")
    erase_person(app_of(one), ErasureRequest("acme", [MAIL], "oda"), lambda *_: None)
    person = pseudonyms_of(one.secrets, "acme", MAIL)[0]
    two = make_home("two")
    key = app_of(two).subject_keys.key(person)
    two.govern()
    assert app_of(two).subject_keys.known(person) == key


def expired(app: AppContext) -> int:
    """Run the retention sweep of a home; return how many steps the lake has left."""
    from headrace.govern.maintenance import swept
    from headrace.services.holds import holds_of

    swept(app.lake, app.audit, app.home, actor="oda", holds=holds_of(app))
    return int(app.lake.query("SELECT 1 FROM steps").num_rows)


def test_a_hold_of_one_home_keeps_rows_from_the_sweep_of_the_other(
    make_home: Make, tmp_path: Path
) -> None:
    one, two = make_home("one"), make_home("two")
    past = make.NOON - timedelta(days=1000)
    Lake.open(str(tmp_path / "lake")).append(
        about("t0", "p0", expires_at=past), app_id="a", version=0
    )
    retention = tmp_path / "policy-two" / "retention.yaml"
    shipped = retention.read_text()
    retention.write_text(RETENTION % HOLD)
    two.govern()
    assert expired(app_of(one)) == 2
    retention.write_text(shipped)
    two.govern()
    assert expired(app_of(one)) == 0


@pytest.mark.parametrize("act", ["erase", "expire", "tidy"])
def test_nothing_is_deleted_before_every_home_told_its_holds(
    make_home: Make, tmp_path: Path, act: str
) -> None:
    one, two = make_home("one"), make_home("two")
    one.govern(said_by(1))
    two.govern(said_by(2))
    name = Homes.of(app_of(two)).name
    (tmp_path / "lake" / "_notes" / f"home-{name}").unlink()  # as an older program left it
    acts: dict[str, Callable[[], object]] = {
        "erase": lambda: erase_person(
            app_of(one), ErasureRequest("acme", [MAIL], "oda"), lambda *_: None
        ),
        "expire": lambda: expired(app_of(one)),
        "tidy": lambda: one.tidy(0.0),
    }
    with pytest.raises(RetryableError, match=f"home {name} of this lake never told"):
        acts[act]()
    assert app_of(one).lake.query("SELECT 1 FROM steps").num_rows == 2
    two.begin_again()
    two.govern()
    acts[act]()


def test_a_home_tells_its_holds_before_its_first_row_and_before_it_follows_an_erasure(
    make_home: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = make_home("one"), make_home("two")
    two.govern(said_by(2))
    two.begin_again()
    one.govern(said_by(1))
    erase_person(app_of(one), ErasureRequest("acme", [MAIL], "oda"), lambda *_: None)
    note = tmp_path / "lake" / "_notes" / f"home-{Homes.of(app_of(two)).name}"
    note.unlink()
    told: list[bool] = []
    monkeypatch.setattr(
        "headrace.govern.shared_lake.carry_out", lambda *_: told.append(note.exists())
    )
    two.govern()
    assert told == [True]


def test_whom_a_hold_of_another_home_keeps_is_not_erased_and_keeps_the_keys(
    make_home: Make, tmp_path: Path
) -> None:
    one, two = make_home("one"), make_home("two")
    one.govern(said_by(1))
    two.govern(said_by(2))
    (tmp_path / "policy-two" / "retention.yaml").write_text(RETENTION % HOLD)
    two.govern()
    done = erase_person(app_of(one), ErasureRequest("acme", [MAIL], "oda"), lambda *_: None)
    assert done.report.held == 2
    two.govern()
    person = pseudonyms_of(two.secrets, "acme", MAIL)[0]
    assert app_of(one).subject_keys.known(person)
    assert app_of(two).subject_keys.known(person)


def test_an_erasure_by_name_is_refused_where_another_home_names_people_otherwise(
    make_home: Make,
) -> None:
    other = make_home("other", key="cd" * 32)
    other.govern()
    one = make_home("one")
    app = app_of(one)
    with pytest.raises(ConfigurationError, match="another master key"):
        erase_person(app, ErasureRequest("acme", [MAIL], "oda"), lambda *_: None)
    pseudonym = pseudonyms_of(app.secrets, "acme", MAIL)[0]
    erase_person(app, ErasureRequest("acme", [pseudonym], "oda"), lambda *_: None)
    (gone,) = Homes.of(app).with_another_key()
    Homes.of(app).forget(gone.name)
    erase_person(app, ErasureRequest("acme", [MAIL], "oda"), lambda *_: None)


def test_a_note_of_another_home_that_cannot_be_read_stops_no_governor(
    make_home: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """A power cut may damage the latest note; nothing may be deleted then, but calls are governed."""
    one = make_home("one")
    app_of(one).lake.notes().put("home-two", b"{")
    one.begin_again()
    assert "what home two says of its legal holds cannot be read" in capsys.readouterr().err
    assert one.govern(said_by(1)) == {"stored": 1}
    with pytest.raises(RetryableError, match="nothing may be deleted"):
        expired(app_of(one))


def denied(self: Notes, name: str) -> bytes | None:
    """Refuse to read the note of home three, as where another user wrote it."""
    if name == "home-three":
        raise PermissionError(EACCES, "Permission denied", name)
    return READ(self, name)


@pytest.mark.parametrize("harm", ["cut", "denied"])
def test_an_erasure_waits_for_a_note_that_cannot_be_read_and_goes_on_by_itself(
    make_home: Make, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    """A hold may keep what it would destroy; the calls wait sealed meanwhile."""
    one, two = make_home("one"), make_home("two")
    two.govern(said_by(1))
    erase_person(app_of(one), ErasureRequest("acme", [MAIL], "oda"), lambda *_: None)
    person = pseudonyms_of(two.secrets, "acme", MAIL)[0]
    notes = app_of(one).lake.notes()
    three = Homes(notes, "three", "k")
    three.publish([])
    with monkeypatch.context() as patch:
        if harm == "cut":
            notes.put("home-three", b"{")
        else:
            patch.setattr(Notes, "get", denied)
        two.begin_again()
        for number in (2, 3):
            with pytest.raises(RetryableError, match=r"home three .*lake forget three"):
                two.govern(chat(number, [{"role": "user", "content": f"order {number}"}]))
        assert app_of(two).subject_keys.known(person)
    three.publish([])
    assert two.govern() == {"stored": 2}
    assert app_of(two).subject_keys.known(person) is None


def test_a_damaged_file_of_histories_holds_up_no_erasure_of_another_home(
    make_home: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody can tell whom it names: it goes whole, and the governor goes on."""
    one, two = make_home("one"), make_home("two")
    two.govern(said_by(1))
    erase_person(app_of(one), ErasureRequest("acme", [MAIL], "oda"), lambda *_: None)
    two.home.histories.write_bytes(b"no database at all, and longer than a header of one" * 100)
    assert two.govern(chat(2, [{"role": "user", "content": "order 2"}])) == {"stored": 1}
    assert not two.home.histories.exists()
    assert f"warning: {two.home.histories} was damaged" in capsys.readouterr().err
    (entry,) = [
        entry for entry in app_of(two).audit.entries() if entry.action == "erasure.carried_out"
    ]
    said = json.loads(entry.detail)["provider_histories_removed"]
    assert said == "all: the file was damaged"


@pytest.mark.parametrize("tells", [True, False])
def test_what_a_hold_of_another_home_keeps_stays_in_quarantine_where_policy_leaves_it_out(
    make_home: Make, tmp_path: Path, tells: bool
) -> None:
    one, two = make_home("one"), make_home("two")
    whole = said_by(2)
    assert whole.response is not None
    body = whole.response.body.replace(b'"stop"', b"null")
    assert two.govern(replace(whole, response=replace(whole.response, body=body))) == {
        "quarantined": 1
    }
    (tmp_path / "policy-one" / "retention.yaml").write_text(RETENTION % HOLD)
    one.govern(said_by(1))
    if not tells:  # as an older program left it
        (tmp_path / "lake" / "_notes" / f"home-{Homes.of(app_of(one)).name}").unlink()
    capture = tmp_path / "policy-two" / "capture.yaml"
    capture.write_text(capture.read_text().replace("level: content", "level: metadata"))
    app = app_of(two)
    assert len(release(app, cases(app), "una")) == 1
    assert two.govern() == {"quarantined": 1}
    (case,) = cases(app)
    assert case["reason"] == "retention:legal-hold"
    assert quarantine_of(two.home, two.secrets).names() == {case["exchange_id"]}
