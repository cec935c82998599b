"""The gate: what holds a step back, and what a policy that cannot be run says."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from governance.policy import PolicyError, load_bundle
from governance.policy.quality import Between, Column, QualitySpec
from governance.quality import RowGate, StepFacts, build_gate, gate_of
from governance.quality.drift import ColumnDrift, drifted
from tests.governance.factories import assembly, call, governor, placed, user
from trajectory.errors import RetryableError
from trajectory.exchange import ExchangeOutcome
from trajectory.formats.openenv import fatal_code

GOOD = StepFacts(
    step_id="s0",
    tenant_id="acme",
    kind="model",
    role_in_graph="agent",
    dialect="openai.chat",
    key_source="prefix",
    outcome="complete",
    http_status=200,
    step_index=0,
    finished=1,
    context_messages=2,
    output_parts=1,
    output_characters=5,
    tool_calls=0,
    invalid_tool_arguments=0,
    unanswered_tool_results=0,
    leftover_findings=0,
    missing_messages=0,
    parent_missing=0,
    completion_tokens=3,
    logprobs=3,
    highest_logprob=-0.1,
    token_code=None,
    latency_ms=10.0,
    time_reversed=0,
)


@pytest.fixture(scope="module")
def gate() -> RowGate:
    return RowGate(load_bundle().quality.spec)


def test_the_projection_has_the_columns_that_policy_may_name() -> None:
    assert {column.value for column in Column} == {*StepFacts.__dataclass_fields__}


def test_good_rows_pass(gate: RowGate) -> None:
    assert gate.failures([GOOD, replace(GOOD, step_id="s1")]) == {}
    assert gate.failures([]) == {}


def test_failing_rows_are_named_with_all_their_reasons(gate: RowGate) -> None:
    rows = [
        GOOD,
        replace(GOOD, step_id="s1", finished=0, leftover_findings=2),
        replace(GOOD, step_id="s2", token_code="logprob_misalign"),
        replace(GOOD, step_id="s3", logprobs=None, completion_tokens=None, highest_logprob=None),
        replace(GOOD, step_id="s4", role_in_graph="discarded", finished=0, output_parts=None),
    ]
    assert gate.failures(rows) == {
        "s1": ("nothing-personal-left", "answer-not-cut"),
        "s2": ("logprob_misalign",),
    }


def test_a_step_id_that_comes_twice_fails(gate: RowGate) -> None:
    assert gate.failures([GOOD, GOOD]) == {"s0": ("step-once",)}


def unchecked() -> QualitySpec:
    """Return a spec with an expectation that nobody checked, as an older or newer one might let in."""
    odd = Between[Column].model_construct(
        name="odd",
        where={},
        expectation="expect_column_values_to_be_between",
        column=Column.DIALECT,
        min_value=1,
        max_value=None,
    )
    return load_bundle().quality.spec.model_copy(update={"expectations": (odd,)})


def test_a_gate_that_cannot_run_is_no_policy() -> None:
    bundle = load_bundle()
    quality = bundle.quality.model_copy(update={"spec": unchecked()})
    with pytest.raises(PolicyError) as caught:
        gate_of(bundle.model_copy(update={"quality": quality}))
    assert "spec.expectations: the gate cannot be run: TypeError" in str(caught.value)
    assert "quality.yaml:" in str(caught.value)


def test_a_gate_that_fails_for_a_batch_holds_the_batch() -> None:
    held = governor(gate=RowGate(unchecked())).judge(assembly(placed(call(1)), placed(call(2))))
    assert {(row.stage, row.reason) for row in held.quarantine} == {
        ("quality", "quality:gate-failed:TypeError")
    }
    assert len(held.quarantine) == 2
    assert held.steps == held.messages == ()
    assert [row.disposition for row in held.exchanges] == ["quarantined"] * 2


def test_a_gate_whose_reference_may_come_back_is_asked_again() -> None:
    class UnreachableEvaluator:
        def failures(self, rows: Sequence[StepFacts]) -> dict[str, tuple[str, ...]]:
            raise RetryableError("the lake does not answer")

    with pytest.raises(RetryableError):
        governor(gate=UnreachableEvaluator()).judge(assembly(placed(call(1))))


def test_the_governor_runs_the_real_gate(gate: RowGate) -> None:
    cut = placed(call(1, finish_reason=None, outcome=ExchangeOutcome.CLIENT_ABORT))
    fine = placed(call(2, [user("x")]), trajectory="t2")
    batch = governor(gate=gate).judge(assembly(cut, fine))
    assert [row.reason for row in batch.quarantine] == ["quality:answer-not-cut"]
    assert [row.step_id for row in batch.steps] == ["step2"]


def test_tokens_are_judged_in_openenvs_words() -> None:
    assert fatal_code((1,), (2, 3), (-0.1, 0.00001)) is None
    assert fatal_code(None, (2, 3), None) is None
    assert fatal_code((1,), (2, 3), (-0.1,)) == "logprob_misalign"
    assert fatal_code((1,), (2, -3), (-0.1, -0.2)) == "invalid_token_id"
    assert fatal_code((1,), (2,), (float("nan"),)) == "invalid_logprob"
    assert fatal_code((1,), (2,), (0.5,)) == "positive_logprob"
    assert fatal_code((), (2,), (-0.5,)) == "no_prompt_ids"


def test_a_batch_that_drifts_is_held_tenant_by_tenant(gate: RowGate) -> None:
    spec = QualitySpec.model_validate({"drift": {"columns": ["latency_ms", "dialect"]}})
    asked: list[tuple[str, int]] = []

    def reference(tenant: str, days: int) -> list[StepFacts]:
        asked.append((tenant, days))
        return [replace(GOOD, step_id=f"r{at}", latency_ms=float(at)) for at in range(100)]

    def rows(tenant: str, count: int, latency: float) -> list[StepFacts]:
        return [
            replace(GOOD, step_id=f"{tenant}{at}", tenant_id=tenant, latency_ms=latency * at)
            for at in range(count)
        ]

    slow, same, few = rows("slow", 60, 50.0), rows("same", 60, 1.6), rows("few", 49, 50.0)
    judge = build_gate(spec, reference=reference)
    held = judge.failures([*slow, *same, *few])
    assert held == {row.step_id: ("drift:latency_ms",) for row in slow}
    assert asked == [("slow", 14), ("same", 14)]
    assert build_gate(spec).failures(slow) == {}


def test_a_column_drifts_from_the_index_that_policy_names() -> None:
    found = [
        ColumnDrift("a", 0.25, 60, 60),
        ColumnDrift("b", 0.2, 60, 60),
        ColumnDrift("c", None, 1, 1),
    ]
    assert drifted(found, 0.25) == ["a"]
    assert drifted(found, 0.3) == []
