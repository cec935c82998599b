"""What a policy reads from a lake, and that the same versions give the same bytes."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.evolve_traffic import T0, Rows, Traffic, lake_of, prices
from evolve.evidence import measure, plan
from evolve.plan import EvolutionDecision
from evolve.policy import Evolution, load_evolution
from lakehouse.lake import Lake
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError
from trajectory.step import ToolResult

CHANGE = 14
POLICY = load_evolution()


def policy(**spec: Any) -> Evolution:
    said = POLICY.model_dump(mode="json")
    window = {"reference_nights": 10, "case_nights": 5}
    return Evolution.model_validate({**said, "spec": {**said["spec"], "window": window, **spec}})


@pytest.fixture(scope="module")
def traffic() -> Traffic:
    return Traffic(3, "tool_renamed", CHANGE, sessions=150)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, traffic: Traffic) -> Lake:
    return lake_of(str(tmp_path_factory.mktemp("lake")), traffic, CHANGE + 2)


@pytest.fixture(scope="module")
def rows(traffic: Traffic) -> Rows:
    return traffic.nights(0, CHANGE + 2)


def day(night: int) -> Any:
    return T0 + timedelta(days=night)


def test_a_renamed_field_is_found_with_its_argument(lake: Lake) -> None:
    found = plan(lake, policy(), as_of=day(CHANGE + 2))
    assert found.surface == "tool_schema"
    assert found.subject == "argument_path refund: invalid_arguments: order_id"
    considered: Any = found.document["considered"]
    examples = considered["examples"][found.subject]
    assert 0 < len(examples) <= 5
    assert all(name.startswith(f"w3-{CHANGE}") for name in examples)


def test_no_text_of_a_session_stands_in_a_decision(lake: Lake) -> None:
    said = canonical_json(plan(lake, policy(), as_of=day(CHANGE + 2)).document).decode()
    assert "unknown field" not in said
    assert "timed out" not in said


def test_the_night_before_nothing_is_wrong(lake: Lake) -> None:
    found = plan(lake, policy(), as_of=day(CHANGE))
    assert found.surface == "nothing"
    saw: Any = found.document["saw"]
    assert not any(one["confirmed"] for one in saw["signals"])


def test_the_signals_are_what_the_sessions_tell(lake: Lake, rows: Rows) -> None:
    """Counted in plain Python over the rows that were written."""
    begun = {one.trajectory_id: one.started_at for one in rows.steps if one.step_index == 0}
    wanted = {name for name, at in begun.items() if day(CHANGE - 10) <= at < day(CHANGE)}
    failed = [
        one.value < 0.5 for one in rows.signals
        if one.name == "success" and one.trajectory_id in wanted and one.value is not None
    ]  # fmt: skip
    found: Any = plan(lake, policy(), as_of=day(CHANGE + 5)).document
    success = next(one for one in found["saw"]["signals"] if one["signal"] == "success")
    assert success["reference"]["sessions"] == len(failed)
    assert success["reference"]["rate"] == pytest.approx(1 - sum(failed) / len(failed))


def test_the_view_counts_tool_errors_per_session_that_called_the_tool(
    lake: Lake, rows: Rows
) -> None:
    calls, errors = Counter[str](), Counter[str]()
    for one in rows.steps:
        calls.update(call.name for call in one.tool_calls)
        errors.update(
            one.trajectory_id for result in one.tool_results
            if isinstance(result, ToolResult) and result.is_error and "unknown" in result.content
        )  # fmt: skip
    (found,) = lake.query(
        "SELECT sum(sessions) AS sessions, sum(events) AS events FROM evolution_signals "
        "WHERE signal = 'tool_errors' AND subject = 'refund: invalid_arguments'"
    ).to_pylist()
    assert (found["sessions"], found["events"]) == (calls["refund"], len(errors))


def test_the_day_of_the_newest_step_is_left_out(lake: Lake) -> None:
    found = plan(lake, policy(), now=day(CHANGE + 3))
    assert found.document["as_of"] == day(CHANGE + 1).isoformat()


def test_a_step_that_is_dated_ahead_is_not_the_newest(tmp_path: Path, traffic: Traffic) -> None:
    lake = lake_of(str(tmp_path), traffic, CHANGE + 2)
    ahead = replace(
        traffic.nights(CHANGE, CHANGE + 1).steps[0], step_id="ahead", started_at=day(400)
    )
    lake.append_rows("steps", [ahead])
    found = plan(lake, policy(), now=day(CHANGE + 3))
    assert found.document["as_of"] == day(CHANGE + 1).isoformat()
    with pytest.raises(ConfigurationError, match="no step from before now"):
        plan(lake, policy(), now=day(-1))


def test_only_the_sessions_of_the_target_count(lake: Lake) -> None:
    whole: Any = plan(lake, policy(), as_of=day(CHANGE + 2)).document
    part: Any = plan(
        lake, policy(target={"tenants": ["birch"], "apps": ["shop"]}), as_of=day(CHANGE + 2)
    ).document
    other: Any = plan(lake, policy(target={"apps": ["desk"]}), as_of=day(CHANGE + 2)).document
    counts = [one["saw"]["signals"][0]["reference"]["sessions"] for one in (whole, part)]
    assert 0 < counts[1] < counts[0] / 2
    assert other["saw"]["signals"] == []
    assert "too few nights" in other["decided"]["reason"]


def test_the_same_versions_give_the_same_bytes_whatever_came_since(
    tmp_path: Path, traffic: Traffic
) -> None:
    lake = lake_of(str(tmp_path), traffic, CHANGE + 2)
    versions = lake.versions()
    before = plan(lake, policy(), as_of=day(CHANGE + 2))
    traffic.nights(CHANGE + 2, CHANGE + 3).write(lake)
    late = [
        replace(one, signal_id=f"late-{one.signal_id}", value=0.0, recorded_at=day(60))
        for one in traffic.nights(8, 10).signals
    ]
    lake.append_rows("signals", late)
    again = plan(lake, policy(), as_of=day(CHANGE + 2), versions=versions)
    assert canonical_json(again.document) == canonical_json(before.document)
    now = plan(lake, policy(), as_of=day(CHANGE + 2))
    assert canonical_json(now.document) != canonical_json(before.document)


def test_costs_that_double_are_found_though_success_stays(tmp_path: Path) -> None:
    lake = lake_of(str(tmp_path), Traffic(5, "cost_doubled", CHANGE, sessions=150), CHANGE + 2)
    found = plan(lake, policy(), as_of=day(CHANGE + 2))
    assert found.surface == "harness"
    considered: Any = found.document["considered"]
    assert considered["case"] == "cost_per_success"


def test_an_empty_lake_has_nothing_to_look_at(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    lake.append_rows("prices", list(prices()))
    with pytest.raises(ConfigurationError, match="no step"):
        plan(lake, policy())


def test_a_measure_is_the_share_of_the_last_nights(lake: Lake, rows: Rows) -> None:
    begun = {one.trajectory_id: one.started_at for one in rows.steps if one.step_index == 0}
    values = [
        one.value for one in rows.signals
        if one.name == "success" and one.value is not None
        and day(10) <= begun[str(one.trajectory_id)] < day(13)
    ]  # fmt: skip
    found = measure(lake, policy(), signal="success", subject="", nights=3, end=day(13))
    assert found == pytest.approx(sum(values) / len(values))
    assert measure(lake, policy(), signal="success", subject="", nights=3, end=day(90)) is None


def test_what_is_read_once_is_what_the_views_tell(tmp_path: Path, traffic: Traffic) -> None:
    """Judgements that came by response or session, superseded ones, shadows, and a session that goes on."""
    lake = lake_of(str(tmp_path), traffic, CHANGE + 2)
    night = traffic.nights(CHANGE, CHANGE + 1)
    first, second, third = (one for one in night.signals[:40:13] if one.name == "success")
    whose = {one.trajectory_id: one for one in night.steps}
    steps = [replace(whose[first.trajectory_id], step_id="by-response", response_id="r-1"),
             replace(whose[second.trajectory_id], step_id="by-session", session_hint="s-1"),
             replace(whose[third.trajectory_id], step_id="shadow", role_in_graph="shadow",
                     started_at=day(0))]  # fmt: skip
    old = traffic.nights(0, 1).steps[0]
    steps.append(replace(old, step_id="goes-on", started_at=day(CHANGE), model_served="other"))
    lake.append_rows("steps", steps)
    unplaced = {"trajectory_id": None, "recorded_at": day(60)}
    lake.append_rows("signals", [
        replace(first, signal_id="l-1", target_kind="response", target_id="r-1",
                value=1 - (first.value or 0), **unplaced),
        replace(second, signal_id="l-2", target_kind="session", target_id="s-1",
                value=1 - (second.value or 0), **unplaced),
        replace(third, signal_id="l-3", value=None, label="withdrawn",
                supersedes=third.signal_id),
    ])  # fmt: skip
    found: Any = plan(lake, policy(), as_of=day(CHANGE + 2)).document
    told = lake.query(
        "SELECT signal, subject, sum(sessions)::INT AS sessions, sum(events)::INT AS events "
        "FROM evolution_signals WHERE signal NOT IN ('mix', 'cost_per_success') "
        "AND day >= $first AND day < $last GROUP BY ALL",
        {"first": day(CHANGE + 2 - 15).date(), "last": day(CHANGE + 2).date()},
    ).to_pylist()
    expected = {(one["signal"], one["subject"]): (one["sessions"], one["events"]) for one in told}
    for one in found["saw"]["signals"]:
        parts = [one["reference"], one["case"]]
        events = sum(part["sessions"] * (1 - part["rate"]) for part in parts)
        counted = sum(part["sessions"] for part in parts), round(events)
        if one["signal"] != "cost_per_success":
            assert counted == expected.pop((one["signal"], one["subject"])), one
    assert not expected


def guards(found: EvolutionDecision) -> dict[str, tuple[bool, str]]:
    considered: Any = found.document["considered"]
    return {one["name"]: (one["forbids"], one["why"]) for one in considered["guards"]}


def trouble(folder: Path, cause: str, **changes: Any) -> tuple[Lake, Traffic]:
    """Return a lake with two nights of a cause."""
    made = Traffic(3, cause, CHANGE, sessions=150, **changes)
    return lake_of(str(folder), made, CHANGE + 2), made


def test_a_judge_that_nobody_knew_forbids_a_change(tmp_path: Path) -> None:
    lake, _ = trouble(tmp_path, "judge_changed", drop=0.2)
    found = plan(lake, policy(), as_of=day(CHANGE + 2))
    assert found.surface == "nothing"
    assert guards(found)["evaluator"] == (True, "verifier tests 2 judges since the case began")


def test_the_first_corrections_that_people_make_forbid_nothing(tmp_path: Path) -> None:
    lake, made = Lake.open(str(tmp_path)), Traffic(3, "fact_missing", CHANGE, sessions=150)
    whose = {"birch": CHANGE}  # nobody else ever corrects, and they not before
    for night in range(CHANGE + 2):
        rows = made.nights(night, night + 1)
        rows.signals[:] = [
            one for one in rows.signals
            if one.name != "correction" or whose.get(one.tenant_id, night + 1) <= night
        ]  # fmt: skip
        rows.write(lake)
    found = plan(lake, policy(signals=["correction_rate"]), as_of=day(CHANGE + 2))
    considered: Any = found.document["considered"]
    assert considered["case"] == "correction_rate"
    assert guards(found)["evaluator"] == (False, "the same evaluators judge as before")
    assert found.surface == "memory"


def test_gold_signals_that_disagree_since_forbid_a_change(tmp_path: Path) -> None:
    lake, made = trouble(tmp_path, "tool_renamed")
    gold = [
        replace(one, signal_id=f"gold-{one.signal_id}", is_gold=True, source_kind="human_explicit",
                value=1.0 if night >= CHANGE else one.value, source="experts")
        for night in range(CHANGE + 2)
        for one in made.nights(night, night + 1).signals[:60] if one.name == "success"
    ]  # fmt: skip
    lake.append_rows("signals", [one for one in gold if one.signal_id.startswith("gold-w3-1")])
    found = plan(lake, policy(), as_of=day(CHANGE + 2))
    assert found.surface == "nothing"
    forbids, why = guards(found)["gold"]
    assert forbids
    assert why.startswith("gold signals disagree in ")


def test_a_model_on_trial_forbids_a_change_until_its_trial_ends(tmp_path: Path) -> None:
    lake, _ = trouble(tmp_path, "tool_renamed")
    row = {"name": "shop", "version": "5", "run_id": "r", "path": "models/shop/5", "gate": "{}"}
    lake.append_rows("models", [{**row, "status": "canary", "recorded_at": day(CHANGE)}])
    found = plan(lake, policy(), as_of=day(CHANGE + 2))
    assert found.surface == "nothing"
    assert guards(found)["on_trial"] == (True, "model shop@5 is a canary")
    ended = {**row, "status": "retired", "recorded_at": day(CHANGE + 1)}
    lake.append_rows("models", [ended])
    assert plan(lake, policy(), as_of=day(CHANGE + 2)).surface == "tool_schema"


def test_what_training_may_not_use_forbids_training(tmp_path: Path) -> None:
    made = Traffic(3, "weak", CHANGE, sessions=150, drop=0.2)
    rows = made.nights(0, CHANGE + 2)
    lake = Lake.open(str(tmp_path))
    lake.append_rows("prices", list(prices()))
    none = [replace(one, purposes=("evaluate",)) for one in rows.governance]
    replace(rows, governance=none).write(lake)
    found = plan(lake, policy(), as_of=day(CHANGE + 2))
    assert found.surface == "nothing"
    assert guards(found)["eligible"] == (True, "training may use 0 sessions, fewer than 100")
    lake.append_rows("governance", [
        replace(one, decided_at=one.decided_at + timedelta(hours=1)) for one in rows.governance
    ])  # fmt: skip
    assert plan(lake, policy(), as_of=day(CHANGE + 2)).surface == "weights"
