"""The near-duplicate index of an installation: goes on, is built again, forgets what was erased."""

import json
import shutil
import sqlite3
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from governance.near.store import NearStore
from governance.policy import PolicyBundle
from governance.policy.dedup import NearDuplicates
from governance.redact.pseudonym import subject_id
from headrace.app.home import Home
from headrace.app.master_key import load_secrets
from headrace.cli import run
from headrace.govern.near_duplicates import leave_near, open_near, sweep_near
from lakehouse.erasure.erase import erase_subject
from lakehouse.lake import Lake
from tests.governance.factories import (
    KEY,
    NOW,
    assembly,
    bundle,
    call,
    governor,
    placed,
    user,
)
from tests.governance.near.test_register import ANSWER, QUESTION, lamps
from trajectory.assembly.result import PlacedCall
from trajectory.errors import IntegrityError

SPEC = NearDuplicates()
OTHER = "Which screws hold a wooden shelf on a brick wall, and how deep must the holes be drilled{}"


class RestartedGovernor:
    """A home whose governor is started anew for each batch."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root / "home").create()
        self.lake = Lake.open(str(self.home.lake))
        (root / "policy").mkdir()
        self.policy: PolicyBundle = bundle(root / "policy", dedup="{near_duplicates: {}}")
        self.said: list[str] = []
        self.batches = 0

    def add(
        self, *calls: PlacedCall, crash: bool = False, spec: NearDuplicates = SPEC
    ) -> list[str]:
        self.batches += 1
        judge = governor(
            self.policy,
            known=self.lake.known_content(),
            near=open_near(self.home, spec, self.lake, self.said.append),
            clock=lambda: NOW + timedelta(minutes=self.batches),
        )
        leave_near(self.home, spec)
        batch = judge.judge(assembly(*calls))
        self.lake.append(batch, app_id="test", version=self.batches)
        if not crash:
            judge.stored(batch)
        return [step.step_id for step in batch.steps]

    @property
    def index(self) -> Path:
        (folder,) = (self.home.state / "near").iterdir()
        return folder


@pytest.fixture
def house(tmp_path: Path) -> RestartedGovernor:
    return RestartedGovernor(tmp_path)


def shelf(number: int, end: str = "?") -> PlacedCall:
    said = "Six of them, fifty millimetres deep, with plugs of nylon" + end
    return placed(call(number, [user(OTHER.format(end))], said), trajectory=f"t{number}")


def test_days_go_on_where_the_last_one_stopped(house: RestartedGovernor) -> None:
    assert house.add(lamps(1)) == ["step1"]
    assert house.add(shelf(2), lamps(3, "!")) == ["step2"]
    assert house.add(shelf(4, "!"), lamps(5, "?")) == []
    assert house.said == []
    lines = house.lake.query("SELECT step_id, disposition, reasons FROM exchanges ORDER BY step_id")
    assert [row["disposition"] for row in lines.to_pylist()] == [
        *("stored", "stored", "duplicate", "duplicate", "duplicate")
    ]


@pytest.mark.parametrize("damage", ["lost", "broken", "crash"])
def test_what_is_missing_is_read_again_from_the_lake(house: RestartedGovernor, damage: str) -> None:
    house.add(lamps(1))
    house.add(shelf(2), crash=damage == "crash")
    if damage == "lost":
        shutil.rmtree(house.index)
    if damage == "broken":
        for file in house.index.rglob("near.sqlite"):
            file.write_bytes(b"?" * 5000)
    assert house.add(lamps(3, "!"), shelf(4, "!")) == []
    assert bool(house.said) == (damage == "broken")
    assert house.add(lamps(5, "?")) == []


@pytest.mark.parametrize("table", ["band", "document", "said"])
def test_damage_that_is_met_in_a_batch_is_mended_by_the_next_start(
    house: RestartedGovernor, table: str
) -> None:
    house.add(lamps(1), shelf(2))
    (path,) = house.index.rglob("near.sqlite")
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (root,) = file.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,))
        (size,) = file.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((root[0] - 1) * size)
        file.write(b"?" * size)
    batches = house.batches
    with suppress(IntegrityError):
        house.add(lamps(3, "!"), shelf(4, "!"))
        assert table == "document", "it is read at the start"
    house.batches = batches
    assert house.add(lamps(3, "!"), shelf(4, "!")) == []
    assert "it is built again from the lake" in house.said[-1]


def test_a_full_disk_is_no_damage(
    house: RestartedGovernor, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.add(lamps(1))
    before = house.index.stat().st_ino

    def refuse(*_: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(NearStore, "_delete", refuse)
        with pytest.raises(sqlite3.OperationalError):
            house.add(shelf(2))
    house.add(shelf(3, "!"))
    assert (house.index.stat().st_ino, house.said) == (before, [])


def test_another_policy_compares_anew_and_leaves_no_old_index(house: RestartedGovernor) -> None:
    house.add(lamps(1))
    before = house.index
    assert house.add(lamps(2, "!"), spec=NearDuplicates(shingle=5)) == []
    assert house.index != before
    assert open_near(house.home, None, house.lake, print) is None
    assert house.index.is_dir()  # only a policy in force takes it away
    leave_near(house.home, None)
    assert list((house.home.state / "near").iterdir()) == []


def test_a_stored_step_that_was_beaten_is_no_longer_eligible(tmp_path: Path) -> None:
    house = RestartedGovernor(tmp_path)
    house.policy = bundle(tmp_path / "policy", dedup="{near_duplicates: {keep: latest}}")
    house.add(lamps(1), spec=NearDuplicates(keep="latest"))
    assert house.add(lamps(2, "!"), spec=NearDuplicates(keep="latest")) == ["step2"]
    eligible = house.lake.query("SELECT step_id FROM eligible_steps")["step_id"].to_pylist()
    assert eligible == ["step2"]
    refused = house.lake.query("SELECT refusal, steps FROM steps_refused").to_pylist()
    assert refused == [{"refusal": "decision:drop", "steps": 1}]


def test_an_erasure_takes_a_person_out_of_the_index(house: RestartedGovernor) -> None:
    mine = "My mail is jo@corp.io. " + QUESTION.format(".")
    house.add(placed(call(1, [user(mine)], ANSWER.format(".")), trajectory="t1"), shelf(2))
    person = subject_id(KEY, "acme", "jo@corp.io")
    report = erase_subject(house.lake, "acme", [person])
    assert report.rows["steps"] == 1
    assert sweep_near(house.home, house.lake) == 1
    assert b"step1" not in held_in(house.index)
    again = placed(call(3, [user(mine)], ANSWER.format("!")), trajectory="t3")
    assert house.add(again, shelf(4, "!")) == ["step3"]


def test_the_command_sweeps_what_it_erased(
    house: RestartedGovernor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(house.home.root))
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    load_secrets(house.home.secrets, create=True)
    house.add(lamps(1), placed(call(2, [user("jo@corp.io asks")], "what?"), trajectory="t2"))
    person = subject_id(KEY, "acme", "jo@corp.io")
    assert run(["erase", person, "--tenant", "acme", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"]["steps"] == 1
    held = held_in(house.index)
    assert (b"step1" in held, b"step2" in held) == (True, False)


def held_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("near.sqlite*"))
