"""What homes that share a lake say of themselves, and how long it counts."""

import json
from pathlib import Path

import pytest

from governance.policy import Facts
from governance.policy.retention import LegalHold
from headrace.app.context import AppContext
from headrace.cli import run
from headrace.services.homes import Homes
from lakehouse.storage.location import Location
from lakehouse.storage.notes import Notes
from trajectory.errors import ConfigurationError, RetryableError


def hold(name: str, **match: str) -> LegalHold:
    return LegalHold.model_validate({"name": name, "match": match, "reference": "AZ 7/26"})


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(Location.parse(str(tmp_path)))


def test_a_home_reads_the_holds_of_the_others_until_they_are_taken_back(notes: Notes) -> None:
    one, two = Homes(notes, "one", "k"), Homes(notes, "two", "k")
    two.publish([hold("case", tenant="acme", app="shop-*")])
    assert two.others() == ()
    (said,) = one.others()
    (found,) = said.legal_holds
    assert found.match.fits(Facts(tenant="acme", app="shop-1"))
    assert not found.match.fits(Facts(tenant="acme", app="desk"))
    assert found.match.model_fields_set == {"tenant", "app"}
    two.publish([])
    assert [one.legal_holds for one in one.others()] == [()]


def test_a_home_is_forgotten_by_its_name(notes: Notes) -> None:
    one, two = Homes(notes, "one", "k"), Homes(notes, "two", "k")
    two.publish([hold("case", tenant="acme")])
    with pytest.raises(ConfigurationError, match="no home 'three'"):
        one.forget("three")
    forgotten = one.forget("two")
    assert forgotten is not None
    assert [one.name for one in forgotten.legal_holds] == ["case"]
    assert one.others() == ()


@pytest.mark.parametrize(
    "said", ["", "{}", '{"seen_at": "2026-11-01", "legal_holds": [{"name": "x"}]}']
)
def test_what_a_home_says_and_nobody_can_read_stops_what_would_delete(
    notes: Notes, said: str
) -> None:
    one = Homes(notes, "one", "k")
    notes.put("home-two", said.encode())
    with pytest.raises(RetryableError, match="home two"):
        one.others()
    assert one.forget("two") is None
    assert one.others() == ()


@pytest.mark.parametrize("end", ["batches", "checkpoint"])
def test_a_home_that_governs_and_never_told_its_holds_stops_what_would_delete(
    notes: Notes, end: str
) -> None:
    one, two = Homes(notes, "one", "k"), Homes(notes, "two", "k")
    notes.put("one-batches", b"{}")
    notes.put("four-state", b"{}")  # a governor that wrote no row yet
    notes.put("three-audit", b"{}")  # who only reads has an audit log, too
    assert one.legal_holds_of_others() == ()
    notes.put(f"two-{end}", b"{}")
    assert one.untold() == ("two",)
    with pytest.raises(RetryableError, match="home two of this lake never told its legal holds"):
        one.legal_holds_of_others()
    one.publish([])
    assert two.legal_holds_of_others() == ()
    two.publish([hold("case", tenant="acme")])
    assert [found.name for found in one.legal_holds_of_others()] == ["case"]
    forgotten = one.forget("two")
    assert forgotten is not None
    assert one.legal_holds_of_others() == ()
    notes.put(f"two-{end}", b"{}")  # its governor runs still
    assert one.untold() == ("two",)
    assert one.forget("two") is None
    assert one.untold() == ()


def test_the_status_and_the_doctor_name_a_home_that_never_told_its_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = AppContext(tmp_path, debug=False)
    app.home.create()
    Homes.of(app).publish([])
    app.lake.notes().put("elder-batches", b"{}")
    home = ["--home", str(tmp_path)]
    assert run([*home, "lake", "status", "--json"]) == 0
    homes = json.loads(capsys.readouterr().out)["homes"]
    assert ("elder", None) in [(one["home"], one["legal_holds"]) for one in homes]
    assert run([*home, "lake", "status"]) == 0
    assert "elder" in capsys.readouterr().out
    run([*home, "doctor", "--json"])
    found = [one for one in json.loads(capsys.readouterr().out) if one["check"] == "homes"]
    assert [one["status"] for one in found] == ["failure"]


def test_homes_with_another_key_are_told_apart(notes: Notes) -> None:
    one, two = Homes(notes, "one", "k"), Homes(notes, "two", "another")
    one.publish([])
    two.publish([])
    assert [home.name for home in one.with_another_key()] == ["two"]


def test_the_status_lists_homes_and_one_that_is_gone_is_forgotten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = AppContext(tmp_path, debug=False)
    app.home.create()
    own = Homes.of(app)
    own.publish([])
    Homes(app.lake.notes(), "gone", "another").publish([hold("case", tenant="acme")])
    home = ["--home", str(tmp_path)]
    assert run([*home, "lake", "status", "--json"]) == 0
    homes = json.loads(capsys.readouterr().out)["homes"]
    assert [(one["home"], one["legal_holds"], one["same_master_key"]) for one in homes] == sorted(
        [(own.name, [], True), ("gone", ["case"], False)]
    )
    assert run([*home, "doctor", "--json"]) in (0, 1)
    found = [one for one in json.loads(capsys.readouterr().out) if one["check"] == "homes"]
    assert [one["status"] for one in found] == ["failure", "ok"]
    assert run([*home, "lake", "forget", "gone", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["legal holds"] == ["case"]
    assert own.others() == ()
    assert [one.action for one in AppContext(tmp_path, debug=False).audit.entries()] == [
        "lake.home_forgotten"
    ]
