"""A rule that nobody told: its logs are documents, people's acts are counted, and the ladder carries its facts."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evolve.policy import load_evolution
from examples.practice.stage import ROOT
from examples.practice.story import Result, RuleFound
from examples.practice.untold_rule import TOLD, UNTOLD, acts_of_people, former_session
from examples.practice.verifier import SOURCE, VERSION
from governance.records import AuditRecord
from trajectory.assembly.signals import clues_of_message
from trajectory.formats.headrace import import_document
from trajectory.json_form import to_json

DAY = datetime(2026, 11, 2, tzinfo=UTC)


def entry(action: str, minutes: int = 1, actor: str = "ann") -> AuditRecord:
    at = DAY + timedelta(minutes=minutes)
    return AuditRecord(minutes, at, actor, action, "birch-corrections@0001", "{}", "b2:0", "b2:1")


def test_what_a_night_and_the_ladder_write_is_no_act_of_a_person() -> None:
    entries = [
        entry("artifact.add", actor="headrace:schedule"),
        entry("artifact.promote", actor="headrace:governor"),
        entry("lake.asked", actor="client:k7"),
    ]
    assert acts_of_people(entries, DAY, DAY + timedelta(hours=1)) == []


@pytest.mark.parametrize("action", ["trial.approved", "artifact.rollback", "artifact.promote"])
def test_whatever_else_stands_in_the_audit_log_a_person_did(action: str) -> None:
    entries = [entry(action, 1), entry(action, 90), entry("trial.moved", actor="headrace:governor")]
    assert acts_of_people(entries, DAY, DAY + timedelta(hours=1)) == entries[:1]


def test_a_former_session_is_a_document_of_its_night() -> None:
    made = former_session(3, UNTOLD, 7, DAY, "reading@one")
    read = import_document(json.loads(json.dumps(to_json(made))))
    assert read == made
    assert made == former_session(3, UNTOLD, 7, DAY, "reading@one")
    assert {step.model for step in made.steps} == {"reading@one"}
    times = [datetime.fromisoformat(str(step.timestamp)) for step in made.steps]
    assert times == sorted(times)
    assert {time.date() for time in times} == {DAY.date()}
    (judged,) = made.signals
    assert (judged.source, judged.source_version) == (SOURCE, VERSION), "the same one judges today"


def test_some_former_customers_corrected_too_so_that_who_finds_corrections_is_known() -> None:
    texts = [
        message
        for step in former_session(3, UNTOLD, 90, DAY, "m").steps
        for message in step.observed
        if message.role == "user"
    ]
    assert [bool([*clues_of_message(one)]) for one in texts] == [False, True]


def test_most_former_sessions_went_well() -> None:
    judged = [former_session(3, TOLD[0], at, DAY, "m").signals[0].value for at in range(200)]
    assert 0.88 < sum(value or 0 for value in judged) / len(judged) < 0.99


def test_the_ladder_asks_nobody() -> None:
    policy = load_evolution(ROOT / "examples" / "practice" / "evolution.yaml")
    assert policy.spec.promotion.ladder.ask == ()


def found(**changes: Any) -> RuleFound:
    values: dict[str, Any] = {
        "decision": "d", "artifact": "birch-corrections@0001", "success_before": 0.4,
        "success_before_ci": (0.3, 0.5), "success_after": 0.9, "success_after_ci": (0.8, 0.95),
        "gain_ci_low": 0.3, "sessions_until_live": 96, "human_actions": 0, "seconds_until_live": 60.0,
    }  # fmt: skip
    return RuleFound(**{**values, **changes})


def test_the_demo_fails_where_facts_gain_nothing_go_not_live_or_somebody_had_to_act() -> None:
    kept = {*Result(1).failures}
    assert {*Result(1, rule=found()).failures} == kept
    assert len({*Result(1, rule=found(gain_ci_low=0.0)).failures} - kept) == 1
    assert len({*Result(1, rule=found(human_actions=1)).failures} - kept) == 1
    missed = Result(1, rule_missed="the night drew no facts: too few sessions").failures
    assert {*missed} - kept == {"no facts of the night went live"}
