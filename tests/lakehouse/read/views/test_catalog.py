"""The views answer what a person asks: rewards, success, tools, eligibility, reasons."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from governance.records import GovernedBatch
from lakehouse.lake import Lake
from lakehouse.read.views.catalog import VIEWS
from tests.lakehouse import make
from trajectory.step import Link, Signal, ToolCall, ToolResult


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.open(str(tmp_path))


def put(lake: Lake, *batches: GovernedBatch) -> None:
    for one in batches:
        lake.append(one, app_id="t", version=lake.committed_version("t") + 1)


def rows(lake: Lake, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.query(sql).to_pylist()
    return found


def test_every_view_has_a_comment_and_a_name_of_its_own() -> None:
    assert len({view.name for view in VIEWS}) == len(VIEWS)
    assert all(view.comment for view in VIEWS)


def test_trajectories_have_steps_tokens_models_and_reward(lake: Lake) -> None:
    put(
        lake, make.batch("t1", steps=3), make.batch("t2", reward=0.0), make.batch("t3", reward=None)
    )
    found = rows(lake, "SELECT * FROM trajectories ORDER BY trajectory_id")
    assert [(r["steps"], r["reward"], r["success"]) for r in found] == [
        (3, 1.0, True), (2, 0.0, False), (2, None, None),
    ]  # fmt: skip
    assert found[0]["model_served"] == "m@1"
    assert (found[0]["input_tokens"], found[0]["output_tokens"]) == (30, 15)


def test_a_shadow_counts_as_nobodys_trajectory_and_nobodys_tool_call(lake: Lake) -> None:
    shadow = make.step(
        "s1",
        0,
        role_in_graph="shadow",
        model_served="m@2",
        tool_calls=(ToolCall("c", "buy", "{}"),),
    )
    put(
        lake,
        make.batch("t1"),
        GovernedBatch(
            exchanges=(make.ledger(shadow),), steps=(shadow,), governance=(make.governed(shadow),)
        ),
    )
    assert [r["trajectory_id"] for r in rows(lake, "SELECT * FROM trajectories")] == ["t1"]
    assert [r["model_served"] for r in rows(lake, "SELECT * FROM success_by_model")] == ["m@1"]
    assert rows(lake, "SELECT * FROM tool_events") == []
    assert rows(lake, "SELECT * FROM agent_steps WHERE trajectory_id = 's1'") == []


def test_the_latest_signal_holds_and_superseded_ones_go(lake: Lake) -> None:
    later = make.NOON + timedelta(hours=1)
    put(
        lake,
        make.batch("t1", reward=1.0),
        GovernedBatch(signals=(make.signal("t1", 0.0, recorded_at=later),)),
    )
    assert [r["value"] for r in rows(lake, "SELECT value FROM rewards_latest")] == [0.0]
    # A correction takes the later value back: what it replaced earlier holds no more either.
    withdrawal = make.signal(
        "t1", 0.5, recorded_at=make.NOON, supersedes="sig-t1-0.0", signal_id="corrected"
    )
    put(lake, GovernedBatch(signals=(withdrawal,)))
    assert [r["value"] for r in rows(lake, "SELECT value FROM rewards_latest")] == [1.0]
    assert rows(lake, "SELECT reward FROM trajectories") == [{"reward": 1.0}]


def test_a_repeated_signal_counts_once(lake: Lake) -> None:
    put(lake, make.batch("t1"), GovernedBatch(signals=(make.signal("t1", 1.0),)))
    assert len(rows(lake, "SELECT * FROM rewards_latest")) == 1


def test_late_feedback_on_a_response_finds_its_step(lake: Lake) -> None:
    late = make.signal(
        "t1", 1.0, target_kind="response", target_id="chatcmpl-t1-1", trajectory_id=None
    )
    put(lake, GovernedBatch(signals=(late,)))
    assert rows(lake, "SELECT step_id FROM rewards_latest") == [{"step_id": None}]
    put(lake, make.batch("t1", reward=None))
    assert rows(lake, "SELECT step_id, trajectory_id FROM rewards_latest") == [
        {"step_id": "t1-s1", "trajectory_id": "t1"}
    ]
    assert rows(lake, "SELECT success FROM trajectories") == [{"success": True}]


def test_late_feedback_on_a_response_stays_with_the_application_that_gives_it(lake: Lake) -> None:
    """Small servers number their responses."""

    def of(app: str, seconds: int) -> GovernedBatch:
        began = make.NOON + timedelta(seconds=seconds)
        one = make.step(app, 0, app_id=app, response_id="chatcmpl-7", started_at=began)
        return GovernedBatch(steps=(one,), governance=(make.governed(one),))

    def by(name: str, app: str | None, environment: str | None = "test") -> Signal:
        return make.signal(
            "x", 1.0, signal_id=name, target_kind="response", target_id="chatcmpl-7",
            trajectory_id=None, app_id=app, environment=environment,
        )  # fmt: skip

    given = (by("1", "shop"), by("2", "desk"), by("3", "judge"), by("4", "shop", "staging"))
    before = by("5", None, None)  # stored before signals named who gives them
    put(lake, GovernedBatch(signals=(*given, before)), of("shop", 5), of("desk", 1))
    found = rows(lake, "SELECT signal_id, trajectory_id FROM signals_placed ORDER BY ALL")
    assert [row["trajectory_id"] for row in found] == ["shop", "desk", "desk", "desk", "desk"]


def test_the_first_late_feedback_is_found_by_who_asked_before(lake: Lake) -> None:
    put(lake, make.batch("t1", reward=None))
    asked = "SELECT step_id FROM rewards_latest"
    assert rows(lake, asked) == []
    late = make.signal("t1", 1.0, target_kind="step", target_id="t1-x1", trajectory_id=None)
    put(lake, make.batch("t2"), GovernedBatch(signals=(late,)))
    assert rows(lake, f"{asked} ORDER BY ALL") == [{"step_id": "t1-s1"}, {"step_id": None}]


def test_late_feedback_by_the_step_header_finds_its_step(lake: Lake) -> None:
    late = make.signal("t1", 1.0, target_kind="step", target_id="t1-x1", trajectory_id=None)
    put(lake, GovernedBatch(signals=(late,)), make.batch("t1", reward=None))
    assert rows(lake, "SELECT step_id, trajectory_id FROM rewards_latest") == [
        {"step_id": "t1-s1", "trajectory_id": "t1"}
    ]


@pytest.mark.parametrize(("kind", "target"), [("session", "hint"), ("group", "g-t1")])
def test_signals_on_sessions_and_groups_reach_their_trajectories(
    lake: Lake, kind: str, target: str
) -> None:
    one = make.batch("t1", reward=None)
    one = replace(one, steps=tuple(replace(step, session_hint="hint") for step in one.steps))
    aimed = make.signal("t1", 1.0, target_kind=kind, target_id=target, trajectory_id=None)
    put(lake, one, GovernedBatch(signals=(aimed,)), make.batch("t2", reward=None))
    found = rows(lake, "SELECT trajectory_id, success FROM trajectories ORDER BY ALL")
    assert found == [
        {"trajectory_id": "t1", "success": True}, {"trajectory_id": "t2", "success": None},
    ]  # fmt: skip


@pytest.mark.parametrize("wire_id", ["c1", "named-by-the-tool-server"])
def test_tool_failures_count_each_call_once(lake: Lake, wire_id: str) -> None:
    asked = make.step("t1", 0, tool_calls=(ToolCall("c1", "lookup", "{}"),))
    wire = replace(
        make.tool_step("t1", 1, failed=True),
        parent_step_id=asked.step_id,
        tool_calls=(ToolCall(wire_id, "lookup", "{}"),),
        tool_results=(ToolResult(wire_id, '"x"', True),),
    )
    told = make.step("t1", 2, tool_results=(ToolResult("c1", '"no"', True),))
    alone = make.step("t2", 0, tool_calls=(ToolCall("c1", "lookup", "{}"),))
    put(lake, GovernedBatch(steps=(asked, wire, told, alone)))
    found = rows(lake, "SELECT tool, calls, answered, failures, failure_rate FROM tool_failures")
    assert found == [
        {"tool": "lookup", "calls": 2, "answered": 1, "failures": 1, "failure_rate": 1.0}
    ]
    assert rows(
        lake, "SELECT tool_calls, tool_failures FROM trajectories WHERE trajectory_id = 't1'"
    ) == [{"tool_calls": 1, "tool_failures": 1}]


def test_success_by_model_has_wilsons_interval(lake: Lake) -> None:
    put(lake, *(make.batch(f"t{i}", steps=1, reward=float(i < 8)) for i in range(10)))
    (found,) = rows(lake, "SELECT * FROM success_by_model")
    assert (found["judged"], found["successes"], found["success_rate"]) == (10, 8, 0.8)
    assert found["rate_low"] == pytest.approx(0.49016, abs=1e-4)
    assert found["rate_high"] == pytest.approx(0.94332, abs=1e-4)


def test_the_nearest_and_then_the_latest_signal_says_whether_a_trajectory_succeeded(
    lake: Lake,
) -> None:
    later = {"recorded_at": make.NOON + timedelta(hours=1)}
    of_step = {"target_kind": "step", "target_id": "a-s0", "step_id": "a-s0"}
    signals = (
        make.signal("a", 0.0),
        make.signal("a", 1.0, signal_id="a-step", **of_step, **later),  # later, but of a step only
        *(
            make.signal(
                "b", value, signal_id=f"b{value}", target_kind="step", target_id=f"b-s{number}",
                step_id=f"b-s{number}", observed_at=make.NOON + timedelta(minutes=minutes),
            )
            for number, (value, minutes) in enumerate([(1.0, 5), (0.0, 1)])
        ),
        make.signal("c", 1.0, signal_id="c-new", supersedes="c-old"),
        make.signal("c", 0.0, signal_id="c-old", **later),
        make.signal("d", 0.0),
        replace(make.signal("d", 0.0, signal_id="d-label", label="Pass", **later), value=None),
        make.signal("e", 1.0, target_kind="session", target_id="tab", trajectory_id=None),
    )  # fmt: skip
    steps = [make.step(name, index) for name in "abcd" for index in range(2)]
    put(lake, GovernedBatch(steps=(*steps, make.step("e", 0, session_hint="tab")), signals=signals))
    found = rows(lake, "SELECT trajectory_id, success FROM trajectories ORDER BY 1")
    assert [(row["trajectory_id"], row["success"]) for row in found] == [
        ("a", False), ("b", True), ("c", True), ("d", True), ("e", True)
    ]  # fmt: skip
    (counted,) = rows(lake, "SELECT judged, successes FROM success_by_model")
    assert counted == {"judged": 5, "successes": 4}


def test_eligible_steps_honour_decision_expiry_quarantine_and_purpose(lake: Lake) -> None:
    made = [make.step(f"t{i}", 0) for i in range(6)]
    hold = make.batch("x").quarantine[0]
    put(
        lake,
        GovernedBatch(
            steps=tuple(made),
            governance=(
                make.governed(made[0]),
                make.governed(made[1], decision="quarantine"),
                make.governed(made[2], expires_at=make.NOON - timedelta(days=900)),
                make.governed(made[3]),
                make.governed(made[4], purposes=()),
            ),
            quarantine=(replace(hold, step_id="t3-s0"),),
            signals=(make.signal("t0", 1.0),),
        ),
    )
    (found,) = rows(lake, "SELECT step_id, purposes, reward, success FROM eligible_steps")
    assert found == {
        "step_id": "t0-s0", "purposes": ["train_sft", "debug"], "reward": 1.0, "success": True,
    }  # fmt: skip
    refused = {r["refusal"]: r["steps"] for r in rows(lake, "SELECT * FROM steps_refused")}
    assert refused == {"decision:quarantine": 1, "expired": 1, "quarantined": 1, "no_purpose": 1}
    released = replace(
        hold, step_id="t3-s0", status="released", recorded_at=hold.recorded_at + timedelta(1)
    )
    put(lake, GovernedBatch(quarantine=(released,)))
    assert len(rows(lake, "SELECT * FROM eligible_steps")) == 2


def test_withdrawn_consent_takes_purposes_away_and_a_grant_gives_them_back(lake: Lake) -> None:
    one, other = make.step("t1", 0), make.step("t2", 0)
    put(
        lake,
        GovernedBatch(
            steps=(one, other),
            governance=(make.governed(one, subjects=("p1",)), make.governed(other)),
        ),
    )

    def consent(subject: str, purpose: str, granted: bool, minutes: int) -> None:
        moment = make.NOON + timedelta(minutes=minutes)
        lake.append_rows("consents", [{
            "tenant_id": "acme", "subject": subject, "purpose": purpose, "granted": granted,
            "source": "cli", "recorded_at": moment,
        }])  # fmt: skip

    def purposes() -> dict[str, list[str]]:
        found = rows(lake, "SELECT step_id, purposes FROM eligible_steps")
        return {r["step_id"]: r["purposes"] for r in found}

    consent("p1", "train_sft", False, 1)
    assert purposes() == {"t1-s0": ["debug"], "t2-s0": ["train_sft", "debug"]}
    consent("p1", "debug", False, 2)
    assert purposes() == {"t2-s0": ["train_sft", "debug"]}
    consent("p1", "debug", True, 3)
    consent("p1", "train_sft", True, 3)
    consent("p1", "eval", True, 3)
    assert purposes()["t1-s0"] == ["train_sft", "debug"]
    consent("*", "train_sft", False, 4)
    assert purposes() == {"t1-s0": ["debug"], "t2-s0": ["debug"]}


def test_who_is_named_once_is_in_the_conversation_of_all_later_steps(lake: Lake) -> None:
    steps = tuple(make.step("t1", index) for index in range(3))
    named = ((), ("p1",), ())
    rows_of = tuple(make.governed(one, subjects=who) for one, who in zip(steps, named, strict=True))
    put(lake, GovernedBatch(steps=steps, governance=rows_of), make.batch("t2", steps=1))
    lake.append_rows("consents", [{
        "tenant_id": "acme", "subject": "p1", "purpose": purpose, "granted": False,
        "source": "cli", "recorded_at": make.NOON,
    } for purpose in ("train_sft", "debug")])  # fmt: skip
    left = rows(lake, "SELECT step_id FROM eligible_steps ORDER BY ALL")
    assert [row["step_id"] for row in left] == ["t1-s0", "t2-s0"]
    refused = rows(lake, "SELECT step_id FROM permissions WHERE refusal = 'consent_withdrawn'")
    assert {row["step_id"] for row in refused} == {"t1-s1", "t1-s2"}
    lake.append_rows("erasures", [{
        "tenant_id": "acme", "erasure_id": "e1", "subject": "p1", "status": "requested",
        "recorded_at": make.NOON, "report": "{}",
    }])  # fmt: skip
    refused = rows(lake, "SELECT step_id FROM permissions WHERE refusal = 'erased'")
    assert {row["step_id"] for row in refused} == {"t1-s1", "t1-s2"}


def test_what_a_person_takes_back_goes_with_what_was_handed_on_since_and_with_its_shadows(
    lake: Lake,
) -> None:
    first, spoke = make.step("t1", 0), make.step("t1", 1)
    early, resumed, helper, shadow, retried = (
        make.step(f"t{2 + place}", 0, started_at=make.NOON + timedelta(seconds=seconds))
        for place, seconds in enumerate((0, 5, 6, 7, 8))
    )
    links = (
        ("prefix", first, early),
        ("prefix", first, resumed),
        ("subagent_call", resumed, helper),
        ("shadow", helper, shadow),
        ("retry", spoke, retried),
    )
    steps = (first, spoke, early, resumed, helper, shadow, retried)
    put(
        lake,
        GovernedBatch(
            steps=steps,
            links=tuple(
                Link("acme", kind, start.step_id, end.step_id, end.trajectory_id, make.NOON)
                for kind, start, end in links
            ),
            governance=tuple(
                make.governed(one, subjects=("p1",) if one is spoke else ()) for one in steps
            ),
        ),
    )
    lake.append_rows("consents", [{
        "tenant_id": "acme", "subject": "p1", "purpose": purpose, "granted": False,
        "source": "cli", "recorded_at": make.NOON,
    } for purpose in ("train_sft", "debug")])  # fmt: skip
    left = rows(lake, "SELECT step_id FROM eligible_steps ORDER BY ALL")
    assert [row["step_id"] for row in left] == ["t1-s0", "t2-s0", "t6-s0"]


def test_a_step_that_a_clock_dated_ahead_is_taken_for_the_first_of_its_trajectory(
    lake: Lake,
) -> None:
    hour = make.NOON + timedelta(hours=1)
    ahead, after = make.step("t1", 1, started_at=hour), make.step("t1", 2)
    helper, beside = make.step("t2", 1, started_at=hour), make.step("t2", 2)
    decided = make.NOON + timedelta(seconds=9)
    link = Link("acme", "subagent_call", after.step_id, helper.step_id, "t2", make.NOON)
    rows_of = [
        make.governed(one, decided_at=decided, subjects=("p1",) if one is ahead else ())
        for one in (ahead, after, helper, beside)
    ]
    again = replace(rows_of[0], decided_at=hour + timedelta(hours=1))
    put(
        lake,
        GovernedBatch(
            steps=(ahead, after, helper, beside), links=(link,), governance=(*rows_of, again)
        ),
        make.batch("t3", steps=1),
    )
    lake.append_rows("consents", [{
        "tenant_id": "acme", "subject": "p1", "purpose": purpose, "granted": False,
        "source": "cli", "recorded_at": make.NOON,
    } for purpose in ("train_sft", "debug")])  # fmt: skip
    assert rows(lake, "SELECT step_id FROM eligible_steps") == [{"step_id": "t3-s0"}]


def test_a_requested_erasure_blocks_at_once(lake: Lake) -> None:
    one = make.step("t1", 0)
    put(lake, GovernedBatch(steps=(one,), governance=(make.governed(one, subjects=("p1",)),)))
    lake.append_rows("erasures", [{
        "tenant_id": "acme", "erasure_id": "e1", "subject": "p1", "status": "requested",
        "recorded_at": make.NOON, "report": "{}",
    }])  # fmt: skip
    assert rows(lake, "SELECT * FROM eligible_steps") == []
    assert rows(lake, "SELECT refusal FROM permissions") == [{"refusal": "erased"}]


def test_one_step_never_appears_twice_among_the_eligible(lake: Lake) -> None:
    one = make.step("t1", 0)
    again = make.governed(one, decided_at=one.started_at + timedelta(1), purposes=("eval",))
    put(
        lake,
        GovernedBatch(
            steps=(one,),
            governance=(make.governed(one), again),
            signals=(
                make.signal("t1", 1.0),
                make.signal("t1", 0.0, target_kind="step", target_id="t1-s0", step_id="t1-s0"),
            ),
        ),
    )
    (found,) = rows(lake, "SELECT purposes, reward, step_reward FROM eligible_steps")
    assert found == {"purposes": ["eval"], "reward": 1.0, "step_reward": 0.0}


def test_reasons_and_redactions_are_counted(lake: Lake) -> None:
    one = make.step("t1", 0)
    put(
        lake,
        make.batch("t0"),
        GovernedBatch(
            exchanges=(
                make.ledger(one, disposition="left_out", reasons=("consent:no-purpose",)),
                make.ledger(make.step("t1", 1), disposition="control"),
            )
        ),
    )
    left = rows(lake, "SELECT disposition, reason, exchanges FROM left_out_by_reason ORDER BY ALL")
    assert [tuple(r.values()) for r in left] == [
        ("control", "-", 1), ("left_out", "consent:no-purpose", 1),
    ]  # fmt: skip
    (found,) = rows(lake, "SELECT entity_type, redactions, steps FROM redactions_by_type")
    assert found == {"entity_type": "EMAIL_ADDRESS", "redactions": 2, "steps": 2}


def test_conversation_gives_each_message_once_in_order(lake: Lake) -> None:
    put(lake, make.batch("t1", steps=2))
    found = rows(
        lake,
        "SELECT role, step_index FROM conversation WHERE trajectory_id = 't1' "
        "ORDER BY step_index, position",
    )
    assert [(r["role"], r["step_index"]) for r in found] == [
        ("user", 0), ("assistant", 0), ("user", 1), ("assistant", 1),
    ]  # fmt: skip


def test_what_two_ingesters_stored_at_a_time_and_what_was_decided_again_shows_once(
    lake: Lake,
) -> None:
    put(lake, make.batch("t1", steps=2))
    asked = "SELECT role, parts FROM conversation WHERE trajectory_id = 't1' ORDER BY ALL"
    before = rows(lake, asked)
    assert len(before) == 4
    lake.append_rows(
        "messages", lake.query("SELECT * EXCLUDE (event_date) FROM messages").to_pylist()
    )
    assert rows(lake, asked) == before
    assert rows(lake, "SELECT count(*) AS n FROM messages_once") == [{"n": 4}]

    decided = "SELECT decision, count(*) AS n FROM permissions GROUP BY ALL ORDER BY ALL"
    assert rows(lake, decided) == [{"decision": "redact", "n": 2}]
    first = make.step("t1", 0)
    later = make.governed(first, decided_at=first.started_at + timedelta(days=1), decision="drop")
    lake.append_rows("governance", [later])
    assert rows(lake, decided) == [{"decision": "drop", "n": 1}, {"decision": "redact", "n": 1}]


def test_rules_on_tool_calls_are_summed_up(lake: Lake) -> None:
    steps = tuple(make.step("t1", at) for at in range(4))
    told = [
        *((steps[0], "guard", "deny", 1.0), (steps[1], "guard", "hold", 0.75)),
        *((steps[1], "approval", "approved", 1.0), (steps[2], "guard", "hold", 0.75)),
        *((steps[2], "approval", "denied", 0.0), (steps[3], "guard", "dry-run", 0.5)),
    ]
    signals = tuple(
        make.signal(
            "t1", value, signal_id=f"s{at}", target_kind="step", target_id=step.step_id,
            step_id=step.step_id, name=name, label=label, source="action:payments",
        )
        for at, (step, name, label, value) in enumerate(told)
    )  # fmt: skip
    put(lake, GovernedBatch(steps=steps, signals=signals))
    (rule,) = rows(lake, "SELECT * FROM guardrail_effectiveness")
    assert rule == {
        "tenant_id": "acme", "rule": "payments", "decisions": 4, "denied": 1,
        "limited": 0, "held": 2, "approved": 1, "watched": 1, "approval_rate": 0.5,
    }  # fmt: skip
    (trajectory,) = rows(lake, "SELECT * FROM action_severity")
    assert trajectory == {
        "tenant_id": "acme", "trajectory_id": "t1", "decisions": 4, "stopped": 3, "worst": 1.0,
        "severity": 3.0,
    }  # fmt: skip
