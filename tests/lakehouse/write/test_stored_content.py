"""Known content follows the lake: own appends, other writers, deletions and compaction."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from governance.records import GovernedBatch, QuarantineRecord
from governance.stored_content import StepContent
from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import compact
from tests.lakehouse import make
from trajectory.errors import RetryableError


def test_what_is_stored_is_known_per_tenant(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    known = lake.known_content()
    ids = {message.message_id for message in make.batch("t1").messages}
    assert known.known_messages("acme", ids) == set()
    lake.append(make.batch("t1"), app_id="a", version=0)
    assert known.known_messages("acme", [*ids, "stranger"]) == ids
    assert known.known_messages("other", ids) == set()
    assert known.known_messages("acme", []) == set()
    assert known.known_steps("acme", ["t1-s0", "t9-s0"]) == {"t1-s0"}
    assert known.known_harnesses("acme", ["h-t1", "h-t2"]) == {"h-t1"}
    signals = {signal.signal_id for signal in make.batch("t1").signals}
    assert known.known_signals("acme", [*signals, "stranger"]) == signals
    assert known.known_signals("other", signals) == set()


def test_other_writers_and_deletions_are_seen(tmp_path: Path) -> None:
    lake, other = Lake.open(str(tmp_path)), Lake.open(str(tmp_path))
    known = lake.known_content()
    other.append(make.batch("t1"), app_id="b", version=0)
    assert known.known_steps("acme", ["t1-s0"]) == {"t1-s0"}
    assert known.known_trajectories("acme", ["t1", "t2"]) == {"t1"}
    assert (
        known.known_trajectories("globex", ["t1"]) == known.known_trajectories("acme", []) == set()
    )
    other.table("steps").delete("step_id = 't1-s0'")
    assert known.known_steps("acme", ["t1-s0", "t1-s1"]) == {"t1-s1"}


def test_many_files_compaction_and_strange_tenants_change_nothing(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    known = lake.known_content()
    tenants = ["acme", "a b/ç%", "acme"]
    for number in range(9):
        step = replace(make.step(f"t{number}", 0), tenant_id=tenants[number % 3])
        lake.append(GovernedBatch(steps=(step,)), app_id="a", version=number)
        if number % 4:
            known.known_steps("acme", ["t0-s0"])

    def all_are_known() -> None:
        for tenant in set(tenants):
            mine = {f"t{n}-s0" for n in range(9) if tenants[n % 3] == tenant}
            asked = [f"t{n}-s0" for n in range(12)]
            assert known.known_steps(tenant, asked) == mine

    all_are_known()
    compact(lake)
    all_are_known()
    lake.table("steps").delete("step_id = 't3-s0'")
    assert known.known_steps("acme", ["t0-s0", "t3-s0"]) == {"t0-s0"}
    with pytest.raises(RetryableError, match="could not be read"):
        list(lake.rows_of_file("steps", str(tmp_path / "gone.parquet"), ["step_id"]))


def test_what_a_step_said_is_known_with_its_whole_conversation(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    known = lake.known_content()
    steps = make.batch("t1", steps=3).steps
    whole = [
        row
        for one in steps
        for row in (*one.context_message_ids, one.output_message_id)
        if row is not None
    ]
    said = [StepContent("t1", whole[2 * at + 1], tuple(whole[: 2 * at + 1])) for at in range(3)]
    assert known.said_already("acme", said) == {}
    lake.append(make.batch("t1", steps=3), app_id="a", version=0)
    found = {one: f"t1-s{at}" for at, one in enumerate(said)}
    assert known.said_already("acme", said) == found
    assert known.said_already("globex", said) == {}
    others = [
        said[1]._replace(trajectory_id="t2"),
        said[1]._replace(context_message_ids=said[1].context_message_ids[1:]),
        said[1]._replace(output_message_id=said[0].output_message_id),
        said[2]._replace(output_message_id="b2:never"),
    ]
    assert known.said_already("acme", others) == {}
    again = replace(make.step("t1", 1), step_id="t1-again", started_at=make.NOON)
    lake.append(GovernedBatch(steps=(again,)), app_id="a", version=1)
    assert known.said_already("acme", said) == found | {said[1]: "t1-again"}, "the first of them"
    lake.table("steps").delete("step_id = 't1-again'")
    given_up = replace(again, role_in_graph="discarded")
    lake.append(GovernedBatch(steps=(given_up,)), app_id="a", version=2)
    assert known.said_already("acme", said) == found
    lake.table("steps").delete("step_id = 't1-s0'")
    assert known.said_already("acme", said) == {}, "a conversation with holes says nothing"


def test_what_headers_took_away_is_known_by_conversation(tmp_path: Path) -> None:
    lake, other = Lake.open(str(tmp_path)), Lake.open(str(tmp_path))
    known = lake.known_content()
    asked = ["t1", "t2", "t3"]
    assert known.withheld("acme", asked) == {}

    def decided(trajectory: str, *reasons: str) -> GovernedBatch:
        row = make.governed(make.step(trajectory, 0), reasons=("consent:key", *reasons))
        return GovernedBatch(governance=(row,))

    away = ("consent:conversation:train_sft", "consent:conversation:share")
    lake.append(decided("t1", *away), app_id="a", version=0)
    other.append(decided("t2", away[1]), app_id="b", version=0)
    other.append(decided("t3", "consent:header:opt-out"), app_id="b", version=1)
    found = {"t1": {"train_sft", "share"}, "t2": {"share"}}
    assert known.withheld("acme", asked) == found
    assert known.withheld("globex", asked) == {}
    compact(lake)
    assert known.withheld("acme", asked) == found
    lake.table("governance").delete("trajectory_id = 't1'")
    assert known.withheld("acme", asked) == {"t2": {"share"}}


def case(step: str, status: str, **changes: Any) -> QuarantineRecord:
    values: dict[str, Any] = {
        "tenant_id": "acme", "quarantine_id": f"q-{step}", "exchange_id": f"x-{step}",
        "trajectory_id": "t1", "step_id": step, "started_at": make.NOON,
        "recorded_at": make.NOON + timedelta(seconds=len(status)), "stage": "quality",
        "reason": "quality:cut", "detail": "{}", "policy_hash": "b2:policy", "status": status,
    }  # fmt: skip
    return QuarantineRecord(**{**values, **changes})


def test_a_call_counts_as_held_until_it_is_dropped_or_judged_again(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    known = lake.known_content()
    away = {"detail": '{"released_as": "y"}'}
    lake.append_rows(
        "quarantine",
        [
            case("s1", "held"),
            case("s2", "held", part_of="whole"),
            case("s3", "held"),
            case("s3", "dropped"),
            case("s4", "held"),
            case("s4", "released", **away),
        ],
    )
    held = {"s1": "x-s1", "s2": "whole", "s4": ""}
    assert known.held("acme", ["s1", "s3", "s4"]) == {"s1": {"s1": "x-s1"}, "s4": {"s4": ""}}
    assert known.held("acme", ["t1"]) == {"t1": held}
    assert known.held("globex", ["t1"]) == known.held("acme", []) == {}
    judged = make.ledger(make.step("t1", 9), exchange_id="y")
    lake.append(GovernedBatch(exchanges=(judged,)), app_id="a", version=0)
    del held["s4"]
    assert known.held("acme", ["t1"]) == {"t1": held}


@pytest.mark.parametrize("status", ["released", "dropped"])
def test_a_case_that_was_held_while_the_clock_was_ahead_is_closed_all_the_same(
    tmp_path: Path, status: str
) -> None:
    lake = Lake.open(str(tmp_path))
    known, reason = lake.known_content(), {"reason": "consent:awaits-answer"}
    ahead = make.NOON + timedelta(days=900)
    detail = '{"released_as": "y"}' if status == "released" else "{}"
    closed = case("s1", status, detail=detail, **reason)
    lake.append_rows("quarantine", [case("s1", "held", recorded_at=ahead, **reason), closed])
    assert lake.query("SELECT status FROM quarantined")["status"].to_pylist() == [status]
    on_its_way = {"s1": {"s1": ""}} if status == "released" else {}
    assert known.held("acme", ["s1"]) == on_its_way
    (waits,) = known.unanswered("acme", ["t1"])["t1"]
    assert waits.is_given_up == (status == "dropped")
