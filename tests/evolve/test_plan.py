"""Which cause leads to which surface, what forbids a change, and that nothing else counts."""

from datetime import timedelta
from typing import Any

import pytest

from evolve.clusters import Grouped
from evolve.detectors import Counted, Series
from evolve.plan import EarlierDecision, EvolutionDecision, decide
from tests.evolve.worlds import (
    AS_OF,
    NIGHTS,
    QUIET,
    SPREAD,
    WORSE,
    FixedLookup,
    evidence,
    group,
    policy,
)
from trajectory.canonical import canonical_json


def decided(*groups: Grouped, nights: Any = WORSE, **changes: Any) -> EvolutionDecision:
    told = FixedLookup((*groups, *SPREAD) if groups else SPREAD)
    return decide(policy(), AS_OF, evidence(nights, **changes), told)


NEW = {"before": Counted(0, 0), "first_night": 38}
ALL = (800, 240)


@pytest.mark.parametrize(
    ("cause", "surface", "subject"),
    [
        (group("model_version", "m@5", (200, 180), **NEW), "rollback", "model_version m@5"),
        (group("harness_version", "a@2", ALL, **NEW), "rollback", "harness_version a@2"),
        (
            group("error_class", "pay: invalid_arguments", (170, 170), before=Counted(0, 0)),
            "tool_schema", "error_class pay: invalid_arguments",
        ),
        (group("tenant", "acme", (200, 180), tenants=1), "memory", "tenant acme"),
        (group("procedure", "find > pay > book", (200, 180)), "skill", "procedure find > pay > book"),
    ],
)  # fmt: skip
def test_a_cause_leads_to_its_surface(cause: Grouped, surface: str, subject: str) -> None:
    found = decided(cause)
    assert (found.surface, found.subject, found.status) == (surface, subject, "proposed")


def test_what_is_weak_everywhere_is_learned() -> None:
    assert (decided().surface, decided().subject) == ("weights", None)


def test_what_is_weak_everywhere_while_the_work_moved_is_left_alone() -> None:
    moved = {"shop acme": (100,) * NIGHTS, "desk acme": (0,) * 39 + (900,) * 3}
    found = decided(mix=moved)
    assert found.surface == "nothing"
    assert "the mix of work moved" in str(found.document["considered"])


def test_quiet_nights_change_nothing_and_say_what_is_expected() -> None:
    found = decided(nights=QUIET)
    assert (found.surface, found.status) == ("nothing", "nothing")
    expects: Any = found.document["expects"]
    assert expects["metric"] == "success rate"
    assert expects["at_least"] == pytest.approx(0.85)


def test_five_angry_users_in_an_hour_change_nothing() -> None:
    angry = (*QUIET[:41], Counted(200, 25))
    assert decided(nights=angry).surface == "nothing"


def test_a_proposal_says_what_it_expects_by_when() -> None:
    expects: Any = decided().document["expects"]
    assert expects["now"] == pytest.approx(0.7)
    assert expects["at_least"] == pytest.approx(0.8)
    assert expects["by"] == (AS_OF + timedelta(days=7)).isoformat()


def test_dearer_success_is_the_harness() -> None:
    dear = Series("cost_per_success", "", WORSE)
    quiet = Series("success", "", QUIET)
    assert decided(series=(quiet, dear)).surface == "harness"


@pytest.mark.parametrize(
    ("changes", "guard"),
    [
        (
            {"evaluators": {"success": {"judge 1": (200,) * 38 + (0,) * 4,
                                        "judge 2": (0,) * 38 + (200,) * 4}}}, "evaluator",
        ),
        ({"gold": (Counted(20, 1),) * 38 + (Counted(20, 12),) * 4}, "gold"),
        ({"on_trial": ("model shop@4 is a canary",)}, "on_trial"),
        (
            {"earlier": (EarlierDecision("d1", AS_OF - timedelta(days=3), "memory", "rejected"),)},
            "cooldown",
        ),
    ],
)  # fmt: skip
def test_a_guard_forbids_a_change(changes: dict[str, Any], guard: str) -> None:
    found = decided(**changes)
    decided_part: Any = found.document["decided"]
    assert found.surface == "nothing"
    assert decided_part["reason"].startswith(f"guard {guard}:")
    assert decided_part["rule"] == "everywhere", "what would have been changed is told"


CORRECTED = "human_implicit headrace:correction"


def corrections(**evaluators: tuple[int, ...]) -> dict[str, Any]:
    """Return a window whose case is one of corrections, with who said so night by night."""
    return {
        "series": (Series("correction_rate", "", (*(Counted(200, 0),) * 38, *(Counted(200, 40),) * 4)),),
        "evaluators": {"correction_rate": evaluators},
    }  # fmt: skip


def guard_of_evaluators(**evaluators: tuple[int, ...]) -> tuple[bool, str]:
    spec = policy(signals=["correction_rate"])
    found: Any = decide(spec, AS_OF, evidence(**corrections(**evaluators)), FixedLookup()).document
    (guard,) = (one for one in found["considered"]["guards"] if one["name"] == "evaluator")
    return guard["forbids"], guard["why"]


SINCE = (0,) * 38 + (40,) * 4
UNTIL = (2,) * 38 + (0,) * 4


def test_the_first_corrections_by_people_are_no_new_evaluator() -> None:
    assert guard_of_evaluators(**{f"{CORRECTED} 2": SINCE})[0] is False


def test_people_who_correct_for_the_first_time_beside_a_known_judge_are_none_either() -> None:
    known = {"judge house 1": (4,) * 42}
    assert guard_of_evaluators(**known, **{f"{CORRECTED} 2": SINCE})[0] is False


@pytest.mark.parametrize(
    "who", ["judge house 2", "verifier tests 2", "rule mine 1", "human_explicit app", "human_implicit app 1"]
)  # fmt: skip
def test_the_first_corrections_by_whom_nobody_knew_are_a_new_evaluator(who: str) -> None:
    forbids, why = guard_of_evaluators(**{who: SINCE})
    assert forbids
    assert why == f"{who} judges since the case began"


def test_another_version_of_the_rule_on_people_is_a_new_evaluator() -> None:
    forbids, why = guard_of_evaluators(**{f"{CORRECTED} 2": UNTIL, f"{CORRECTED} 3": SINCE})
    assert forbids
    assert why == f"{CORRECTED} 3 judges since the case began"


def test_too_little_that_training_may_use_forbids_training() -> None:
    found = decide(policy(), AS_OF, evidence(), FixedLookup(usable=5))
    assert found.surface == "nothing"
    assert "training may use 5 sessions" in str(found.document["decided"])


def test_few_sessions_forbid_a_change() -> None:
    scarce = (*(Counted(20, 1),) * 40, *(Counted(20, 19),) * 2)
    found = decided(nights=scarce)
    assert found.surface == "nothing"
    assert "40 sessions since the case began" in str(found.document["decided"])


def test_a_rollback_waits_for_no_trial_and_no_cooldown() -> None:
    canary = group("model_version", "m@5", (200, 180), **NEW)
    earlier = (EarlierDecision("d1", AS_OF - timedelta(days=1), "weights", "approved"),)
    assert (
        decided(canary, on_trial=("model m@5 is a canary",), earlier=earlier).surface == "rollback"
    )


def test_an_old_proposal_is_forgotten() -> None:
    earlier = (EarlierDecision("d1", AS_OF - timedelta(days=7), "memory", "proposed"),)
    assert decided(earlier=earlier).surface == "weights"


def test_without_rules_nothing_changes() -> None:
    found = decide(policy(rules=[]), AS_OF, evidence(), FixedLookup())
    assert found.surface == "nothing"
    assert "no rule holds" in str(found.document["decided"])


def test_the_first_rule_that_holds_decides() -> None:
    canary = group("model_version", "m@5", (200, 180), **NEW)
    tenant = group("tenant", "acme", (200, 180), tenants=1)
    found = decided(tenant, canary)
    considered: Any = found.document["considered"]
    assert found.surface == "rollback"
    assert [rule["name"] for rule in considered["rules"]] == ["canary"]


def test_the_same_input_gives_the_same_bytes() -> None:
    assert canonical_json(decided().document) == canonical_json(decided().document)
    later = decided(versions={"steps": 4})
    assert later.decision_id == decided().decision_id, "what decides is what was seen"
