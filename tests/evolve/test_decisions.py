"""Decisions are recorded once, wait for a person, are scored, and outlive their evidence."""

import shutil
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.evolve_traffic import T0, Traffic, lake_of
from evolve.decisions import DecisionBook
from evolve.policy import Evolution
from lakehouse.erasure.erase import erase_subject
from lakehouse.lake import Lake
from tests.evolve.test_evidence import CHANGE, policy
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError

TRAFFIC = Traffic(3, "tool_renamed", CHANGE, sessions=150)
QUICK = {"promotion": {"recovers": 0.5, "within_nights": 2}, "cooldown": {"nights": 1}}


class Book:
    """A book with a clock and an audit log that a test reads."""

    def __init__(self, lake: Lake) -> None:
        self.now = T0 + timedelta(days=CHANGE + 2, hours=9)
        self.audited: list[tuple[str, str, Any]] = []
        self.book = DecisionBook(
            lake, lambda *entry: self.audited.append(entry), actor="anna", clock=self.tick
        )

    def tick(self) -> datetime:
        """Return a moment a second later."""
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    lake_of(str(folder), TRAFFIC, CHANGE + 2).close()
    return folder


@pytest.fixture
def lake(written: Path, tmp_path: Path) -> Lake:
    """A copy of its own for each test."""
    shutil.copytree(written, tmp_path / "lake")
    return Lake.open(str(tmp_path / "lake"), create=False)


def day(night: int) -> datetime:
    return T0 + timedelta(days=night)


def quick() -> Evolution:
    return policy(**QUICK)


def test_a_night_is_decided_once_and_a_proposal_is_audited(lake: Lake) -> None:
    book = Book(lake)
    first = book.book.run(quick(), day(CHANGE + 2))
    again = book.book.run(quick(), day(CHANGE + 2))
    assert (first.row["surface"], first.row["status"]) == ("tool_schema", "proposed")
    assert canonical_json(first.decision.document) == canonical_json(again.decision.document)
    assert len(book.book.history()) == 1
    assert [entry[0] for entry in book.audited] == ["evolution.decided"]
    assert book.audited[0][1] == first.decision.decision_id


def test_a_recorded_decision_is_replayed_to_the_same_bytes(lake: Lake) -> None:
    book = Book(lake)
    recorded = book.book.run(quick(), day(CHANGE + 2))
    TRAFFIC.nights(CHANGE + 2, CHANGE + 3).write(lake)
    assert canonical_json(book.book.replayed(recorded).document) == canonical_json(
        recorded.decision.document
    )


def test_what_is_approved_is_on_trial_until_it_is_scored(lake: Lake) -> None:
    book = Book(lake)
    proposed = book.book.run(quick(), day(CHANGE + 2)).decision.decision_id
    approved = book.book.approve(proposed[:6], reason="the tool's owner is told")
    due = approved.row["due_at"]
    assert due == day(CHANGE + 5)
    (begun,) = lake.query("FROM interventions_latest").to_pylist()
    assert (begun["status"], begun["surface"]) == ("begun", "tool_schema")
    mended = Traffic(3, None, CHANGE, sessions=150)
    TRAFFIC.nights(CHANGE + 2, CHANGE + 3).write(lake)
    mended.nights(CHANGE + 3, CHANGE + 6).write(lake)
    waiting = book.book.run(quick(), day(CHANGE + 4))
    assert waiting.row["status"] == "nothing"
    assert "tool_schema follows decision" in str(waiting.decision.document["decided"])
    book.book.run(quick(), day(CHANGE + 5))
    row = book.book.get(proposed).row
    assert row["met"] is True
    assert row["measured"] >= row["at_least"]
    (ended,) = lake.query("FROM interventions_latest").to_pylist()
    assert (ended["status"], ended["met"], ended["begun_at"]) == ("ended", True, begun["begun_at"])
    assert {entry[0] for entry in book.audited} == {
        "evolution.decided", "evolution.approved", "evolution.scored",
    }  # fmt: skip


def test_a_change_that_no_session_tells_of_when_due_blocks_no_other(lake: Lake) -> None:
    book = Book(lake)
    proposed = book.book.run(quick(), day(CHANGE + 2)).decision.decision_id
    assert book.book.approve(proposed).row["due_at"] == day(CHANGE + 5)
    TRAFFIC.nights(CHANGE + 7, CHANGE + 9).write(lake)  # nobody worked before
    later = book.book.run(quick(), day(CHANGE + 9))
    row = book.book.get(proposed).row
    assert (row["status"], row["measured"], row["met"]) == ("unmeasured", None, None)
    (ended,) = lake.query("FROM interventions_latest").to_pylist()
    assert (ended["status"], ended["met"]) == ("ended", None)
    assert "follows decision" not in str(later.decision.document["decided"]), "nothing is under way"
    book.book.run(quick(), day(CHANGE + 10))
    scored = [entry for entry in book.audited if entry[0] == "evolution.scored"]
    assert len(scored) == 1


def test_a_change_that_did_not_help_is_scored_so(lake: Lake) -> None:
    book = Book(lake)
    proposed = book.book.run(quick(), day(CHANGE + 2)).decision.decision_id
    book.book.approve(proposed)
    TRAFFIC.nights(CHANGE + 2, CHANGE + 6).write(lake)
    book.book.run(quick(), day(CHANGE + 5))
    assert book.book.get(proposed).row["met"] is False


def test_what_was_rejected_is_not_proposed_again_during_the_cooldown(lake: Lake) -> None:
    book = Book(lake)
    rested = policy(cooldown={"nights": 3})
    proposed = book.book.run(rested, day(CHANGE + 2)).decision.decision_id
    book.book.reject(proposed, reason="known")
    TRAFFIC.nights(CHANGE + 2, CHANGE + 5).write(lake)
    assert book.book.run(rested, day(CHANGE + 3)).row["status"] == "nothing"
    assert book.book.run(rested, day(CHANGE + 5)).row["status"] == "proposed"


def test_only_an_open_proposal_can_be_approved_or_rejected(lake: Lake) -> None:
    book = Book(lake)
    quiet = book.book.run(quick(), day(CHANGE)).decision.decision_id
    with pytest.raises(ConfigurationError, match="proposes nothing"):
        book.book.approve(quiet)
    proposed = book.book.run(quick(), day(CHANGE + 2)).decision.decision_id
    book.book.reject(proposed)
    with pytest.raises(ConfigurationError, match="is rejected already"):
        book.book.approve(proposed)
    with pytest.raises(ConfigurationError, match="there is no decision"):
        book.book.get("zzz")
    with pytest.raises(ConfigurationError, match="several decisions"):
        book.book.get("")


@pytest.mark.parametrize("first", ["approve", "reject"])
def test_of_two_people_who_settle_a_proposal_at_once_one_wins(lake: Lake, first: str) -> None:
    fast = Book(lake)
    proposed = fast.book.run(quick(), day(CHANGE + 2)).decision.decision_id
    settle, audited = {"approve": fast.book.approve, "reject": fast.book.reject}, []

    def meanwhile(action: str, subject: str, detail: Any) -> None:
        if not audited:  # the slower one has read the proposal, and has written nothing so far
            settle[first](proposed)
        audited.append(action)

    slow = DecisionBook(lake, meanwhile, actor="ben", clock=fast.tick)
    other = {"approve": slow.reject, "reject": slow.approve}[first]
    with pytest.raises(ConfigurationError, match=f"is {first}e?d already"):
        other(proposed)
    row = fast.book.get(proposed).row
    assert (row["status"], row["actor"]) == (first.removesuffix("e") + "ed", "anna")
    assert len(lake.query("FROM interventions").to_pylist()) == (first == "approve")
    assert audited[-1] == "evolution.overtaken"


def test_of_two_runs_of_a_night_one_is_recorded(lake: Lake) -> None:
    fast, audited = Book(lake), []

    def meanwhile(action: str, subject: str, detail: Any) -> None:
        if not audited:
            fast.book.run(quick(), day(CHANGE + 2))
        audited.append(action)

    slow = DecisionBook(lake, meanwhile, actor="ben", clock=fast.tick)
    shown = slow.run(quick(), day(CHANGE + 2))
    assert (shown.row["actor"], shown.row["status"]) == ("anna", "proposed")
    assert len(lake.query("FROM decisions").to_pylist()) == 1


def test_an_approval_that_was_killed_before_its_trial_began_is_finished(lake: Lake) -> None:
    book = Book(lake)
    proposed = book.book.run(quick(), day(CHANGE + 2))
    approved = {**proposed.row, "status": "approved", "recorded_at": book.tick()}
    lake.append_rows("decisions", [approved])
    book.book.run(quick(), day(CHANGE + 3))
    (begun,) = lake.query("FROM interventions_latest").to_pylist()
    assert (begun["decision_id"], begun["status"]) == (proposed.decision.decision_id, "begun")
    assert begun["begun_at"] == approved["recorded_at"]


def test_a_quiet_decision_is_scored_by_what_it_expected(lake: Lake) -> None:
    book = Book(lake)
    quiet = book.book.run(quick(), day(CHANGE - 3)).decision.decision_id
    book.book.run(quick(), day(CHANGE - 1))
    row = book.book.get(quiet).row
    assert row["met"] is True
    assert row["status"] == "nothing"


def test_the_detectors_states_are_those_of_the_last_decision(lake: Lake) -> None:
    book = Book(lake)
    book.book.run(quick(), day(CHANGE))
    book.book.run(quick(), day(CHANGE + 2))
    rows = lake.query("FROM detector_states WHERE signal = 'invalid_arguments'").to_pylist()
    assert [(row["as_of"], row["confirmed"]) for row in rows] == [(day(CHANGE + 2), True)]


def test_erased_evidence_leaves_later_explanations_and_the_decision_stays(lake: Lake) -> None:
    book = Book(lake)
    recorded = book.book.run(quick(), day(CHANGE + 2))
    before = book.book.evidence_left(recorded)
    assert before.present
    assert not before.gone
    assert any("unknown field" in text for text in before.messages.values())
    lost = before.present[0]
    allowed = TRAFFIC.nights(CHANGE, CHANGE + 2).governance
    about = next(one for one in allowed if one.trajectory_id == lost)
    later = about.decided_at + timedelta(hours=1)
    lake.append_rows("governance", [replace(about, subjects=("p1",), decided_at=later)])
    assert erase_subject(lake, about.tenant_id, ["p1"]).reach.trajectories == (lost,)
    after = book.book.evidence_left(recorded)
    assert after.gone == (lost,)
    assert set(after.present) == set(before.present) - {lost}
    assert book.book.get(recorded.decision.decision_id).decision.document == (
        recorded.decision.document
    )
    with pytest.raises(ConfigurationError, match=r"removed since|no version"):
        book.book.replayed(recorded)
