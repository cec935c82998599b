"""Each algorithm's SQL equals a direct implementation of its paper, degenerate worlds included."""

from typing import Any

import pyarrow as pa
import pytest

from lakehouse.credit.algorithms import ALGORITHMS, Value, algorithm_named
from lakehouse.credit.compute import Scope, credit_rows
from lakehouse.rewards import RewardWeights
from tests.lakehouse.credit.reference import REFERENCES, total
from tests.lakehouse.credit.worlds import Attempt, Decision, draw_world, session_of
from trajectory.errors import ConfigurationError

DENSE = RewardWeights({"success": 1.0, "progress": 1.0}, combine="sum", missing="zero")
JUDGED = RewardWeights({"success": 1.0})
"""Steps' signals do not count, and unjudged attempts fall out."""

SETTINGS: list[tuple[str, dict[str, Value]]] = [
    ("return_to_go", {}), ("return_to_go", {"gamma": 0.9}),
    ("grpo", {}), ("grpo", {"scale": "none"}),
    ("leave_one_out", {}),
    ("ema_baseline", {}), ("ema_baseline", {"decay": 0.5, "by": "tenant"}),
    ("ema_baseline", {"decay": 1.0, "by": "task"}),
    ("gigpo", {}), ("gigpo", {"scale": "none", "weight": 0.3, "gamma": 1.0}),
    ("hgpo", {}), ("hgpo", {"history": 4, "alpha": 0.5, "scale": "none"}),
    ("grouped_gae", {}), ("grouped_gae", {"trace": 0.0}), ("grouped_gae", {"trace": 1.0, "gamma": 1.0}),
    ("grouped_gae", {"scale": "std"}),
    ("process_grpo", {}), ("process_grpo", {"scale": "none"}),
    ("hindsight", {}), ("hindsight", {"gamma": 0.8, "passing": 1.0}),
]  # fmt: skip


class SessionLake:
    """A lake of one session."""

    def __init__(self, attempts: list[Attempt]) -> None:
        self._session = session_of(attempts)

    def query(self, sql: str, *, parameters: Any = None) -> pa.Table:
        return self._session.query(sql, parameters)

    def append_rows(self, table: str, rows: list[dict[str, Any]]) -> int:
        raise AssertionError("nothing is written here")


def computed(
    held: SessionLake, name: str, given: dict[str, Value], weights: RewardWeights
) -> dict[str, float]:
    rows = credit_rows(held, algorithm_named(name), given, weights, Scope()).to_pylist()
    found = {row["step_id"]: row["advantage"] for row in rows}
    assert len(found) == len(rows)
    return found


def judged(attempts: list[Attempt]) -> list[Attempt]:
    """The attempts as ``JUDGED`` sees them."""
    return [
        Attempt(a.trajectory_id, a.tenant, a.task, a.app, a.outcome,
                tuple(Decision(d.step_id, d.state, 0.0, d.action) for d in a.decisions))
        for a in attempts if a.outcome is not None
    ]  # fmt: skip


def check(
    held: SessionLake,
    attempts: list[Attempt],
    weights: RewardWeights,
    settings: list[tuple[str, dict[str, Value]]],
) -> None:
    for name, given in settings:
        settled = algorithm_named(name).settle(given)
        expected = REFERENCES[name](attempts, **settled)
        found = computed(held, name, given, weights)
        assert found == pytest.approx(expected, abs=1e-9), (name, given)


def test_sql_equals_the_papers() -> None:
    """Forty worlds at once: each has tenants of its own, and nothing is compared across tenants."""
    attempts = [attempt for seed in range(40) for attempt in draw_world(seed)]
    held = SessionLake(attempts)
    check(held, attempts, DENSE, SETTINGS)
    check(held, judged(attempts), JUDGED, [(name, given) for name, given in SETTINGS if not given])


def test_long_attempts_do_not_leave_the_range_of_a_double() -> None:
    long = Attempt(
        "t00", "acme", "a", "shop", 1.0,
        tuple(Decision(f"t00-s{i}", "x", 0.5 * (i % 3)) for i in range(900)),
    )  # fmt: skip
    short = Attempt("t01", "acme", "a", "shop", 0.0, (Decision("t01-s0", "x"),))
    held = SessionLake([long, short])
    for name in ("return_to_go", "gigpo", "grouped_gae"):
        for gamma in (0.01, 0.99):
            settled = algorithm_named(name).settle({"gamma": gamma})
            expected = REFERENCES[name]([long, short], **settled)
            found = computed(held, name, {"gamma": gamma}, DENSE)
            assert found == pytest.approx(expected, abs=1e-9), (name, gamma)


def test_a_long_line_of_attempts_keeps_its_fading_mean() -> None:
    attempts = [
        Attempt(f"t{i:04d}", "acme", None, "shop", float(i % 7), (Decision(f"t{i:04d}-s0", None),))
        for i in range(700)
    ]
    held = SessionLake(attempts)
    for decay in (0.3, 0.9):
        expected = REFERENCES["ema_baseline"](attempts, decay=decay, by="app")
        found = computed(held, "ema_baseline", {"decay": decay}, DENSE)
        assert found == pytest.approx(expected, abs=1e-9)


def test_step_rewards_add_up_to_the_reward() -> None:
    attempts = draw_world(3)
    for combine in ("mean", "minimum", "sum"):
        weights = RewardWeights({"success": 2.0, "progress": -1.0}, combine, "zero")
        rows = credit_rows(
            SessionLake(attempts), algorithm_named("grpo"), {}, weights, Scope()
        ).to_pylist()
        summed: dict[str, float] = {}
        for row in rows:
            summed[row["trajectory_id"]] = (
                summed.get(row["trajectory_id"], 0.0) + row["step_reward"]
            )
        assert summed == pytest.approx({row["trajectory_id"]: row["reward"] for row in rows})


def test_one_attempt_says_nothing_but_to_a_baseline_over_time() -> None:
    attempts = [
        Attempt(f"t{i}", "acme", f"task{i}", "shop", float(i % 2), (Decision(f"t{i}-s0", "x"),))
        for i in range(4)
    ]
    held = SessionLake(attempts)
    for name in ("grpo", "leave_one_out", "gigpo", "hgpo", "grouped_gae"):
        assert set(computed(held, name, {}, JUDGED).values()) == {0.0}
    assert any(computed(held, "ema_baseline", {}, JUDGED).values())
    assert total(attempts[1]) == 1.0


def test_a_tenant_can_be_taken_alone() -> None:
    attempts = draw_world(5)
    rows = credit_rows(
        SessionLake(attempts), algorithm_named("grpo"), {}, DENSE, Scope(tenant="beta-5")
    ).to_pylist()
    assert {row["tenant_id"] for row in rows} == {"beta-5"}


@pytest.mark.parametrize(
    ("given", "said"),
    [({"gama": 1}, "no parameter 'gama'"), ({"gamma": 2.0}, "not between"),
     ({"gamma": "x"}, "no number"), ({"scale": "sd"}, "not one of std, none")],
)  # fmt: skip
def test_wrong_parameters_are_told(given: dict[str, Value], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        algorithm_named("gigpo").settle(given)


def test_an_unknown_algorithm_names_those_that_exist() -> None:
    with pytest.raises(ConfigurationError, match="return_to_go"):
        algorithm_named("shadow")


def test_every_algorithm_has_a_reference_and_names_its_source() -> None:
    assert set(ALGORITHMS) == set(REFERENCES) == {name for name, _ in SETTINGS}
    assert all(algorithm.source and algorithm.comment for algorithm in ALGORITHMS.values())


GATED = RewardWeights({"success": 1.0, "progress": 1.0}, "sum", "zero", gate="success")


def gated(attempts: list[Attempt], least: float = 0.5) -> list[Attempt]:
    """The attempts as a gate at ``success`` sees them."""
    return [
        Attempt(a.trajectory_id, a.tenant, a.task, a.app, a.outcome,
                a.decisions if (a.outcome or 0.0) >= least and a.outcome is not None else
                tuple(Decision(d.step_id, d.state, 0.0, d.action) for d in a.decisions))
        for a in attempts
    ]  # fmt: skip


def test_with_a_gate_steps_earn_only_where_the_outcome_passed() -> None:
    attempts = [attempt for seed in range(40, 60) for attempt in draw_world(seed)]
    held = SessionLake(attempts)
    names = ["return_to_go", "grpo", "gigpo", "process_grpo", "hindsight"]
    check(held, gated(attempts), GATED, [(name, {}) for name in names])
    strict = RewardWeights({"progress": 1.0}, "mean", "zero", gate="success", gate_at_least=1.5)
    rows = credit_rows(held, algorithm_named("return_to_go"), {}, strict, Scope()).to_pylist()
    passed = {a.trajectory_id for a in attempts if (a.outcome or 0.0) >= 1.5}
    assert {row["trajectory_id"] for row in rows if row["step_reward"]} <= passed
    assert any(row["step_reward"] for row in rows)


def test_a_gate_is_part_of_the_weights_name_and_no_gate_changes_none() -> None:
    plain = RewardWeights({"a": 1.0})
    assert RewardWeights({"a": 1.0}, gate_at_least=0.9).weights_hash == plain.weights_hash
    one = RewardWeights({"a": 1.0}, gate="success")
    assert len({plain.weights_hash, one.weights_hash,
                RewardWeights({"a": 1.0}, gate="success", gate_at_least=0.9).weights_hash}) == 3  # fmt: skip


def test_hindsight_credits_what_success_and_failure_differ_in() -> None:
    """Both attempts look at the same thing; one pays and passes, the other waits and fails."""
    attempts = [
        Attempt("t0", "acme", "a", "shop", 1.0,
                (Decision("t0-s0", "x", 0.0, "find"), Decision("t0-s1", "y", 0.0, "pay"))),
        Attempt("t1", "acme", "a", "shop", 0.0,
                (Decision("t1-s0", "x", 0.0, "find"), Decision("t1-s1", "y", 0.0, "wait"))),
    ]  # fmt: skip
    found = computed(SessionLake(attempts), "hindsight", {}, JUDGED)
    assert found == pytest.approx({"t0-s0": 0.0, "t0-s1": 0.5, "t1-s0": 0.0, "t1-s1": 0.0})
