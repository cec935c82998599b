"""The gate: Great Expectations and the plain row checks say the same, and results hold no values."""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from governance.policy import PolicyError, load_bundle
from governance.policy.quality import Between, Column, QualitySpec
from governance.quality import RowGate, StepFacts, build_gate, gate_of
from governance.quality.drift import ColumnDrift, drifted
from governance.quality.great_expectations import GateError, GreatExpectationsSuite
from governance.trial.dry_run import step_facts_of
from tests.governance.building import assembly, call, governor, placed, user
from trajectory.errors import RetryableError
from trajectory.exchange import ExchangeOutcome
from trajectory.formats.openenv import fatal_code

type Gate = GreatExpectationsSuite[StepFacts, Column]

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

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


def suite(spec: QualitySpec) -> Gate:
    return GreatExpectationsSuite("headrace-steps", spec.expectations, StepFacts)


@pytest.fixture(scope="module")
def gate() -> Gate:
    return suite(load_bundle().quality.spec)


def test_the_projection_has_the_columns_that_policy_may_name() -> None:
    assert {column.value for column in Column} == {*StepFacts.__dataclass_fields__}


def test_good_rows_pass(gate: Gate) -> None:
    assert gate.failures([GOOD, replace(GOOD, step_id="s1")]) == {}
    assert gate.failures([]) == {}


def test_failing_rows_are_named_with_all_their_reasons(gate: Gate) -> None:
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


def test_a_step_id_that_comes_twice_fails(gate: Gate) -> None:
    assert gate.failures([GOOD, GOOD]) == {"s0": ("step-once",)}


def test_row_gate_and_great_expectations_agree(gate: Gate) -> None:
    dice = random.Random(7)  # noqa: S311 (a fixed seed on purpose)
    rows = [
        replace(
            GOOD,
            step_id=f"s{number}",
            kind=dice.choice(["model", "tool"]),
            role_in_graph=dice.choice(["agent", "auxiliary", "discarded", "compaction"]),
            finished=dice.choice([0, 1, 1]),
            output_parts=dice.choice([None, 0, 1, 3]),
            invalid_tool_arguments=dice.choice([0, 0, 1]),
            leftover_findings=dice.choice([0, 0, 0, 2]),
            parent_missing=dice.choice([0, 0, 0, 1]),
            completion_tokens=dice.choice([None, 0, 2, 3]),
            logprobs=dice.choice([None, 0, 2, 3]),
            highest_logprob=dice.choice([None, -1.0, 0.0, 0.5, float("inf")]),
            token_code=dice.choice([None, None, None, "positive_logprob", "invalid_logprob"]),
            time_reversed=dice.choice([0, 0, 0, 1]),
        )
        for number in range(200)
    ]
    expected = RowGate(load_bundle().quality.spec).failures(rows)
    assert 50 < len(expected) < 200
    assert gate.failures(rows) == expected


def test_every_kind_of_expectation_means_the_same_in_both() -> None:
    spec = QualitySpec.model_validate(
        {
            "expectations": [
                {"name": "a", "expectation": "expect_column_values_to_not_be_null", "column": "http_status"},
                {"name": "b", "expectation": "expect_column_values_to_be_null", "column": "logprobs"},
                {"name": "c", "expectation": "expect_column_values_to_not_be_in_set", "column": "dialect", "value_set": ["mcp"]},
                {"name": "d", "expectation": "expect_column_values_to_be_unique", "column": "step_index", "where": {"kind": ["model"]}},
                {"name": "e", "expectation": "expect_column_values_to_be_between", "column": "latency_ms", "min_value": 1, "max_value": 100},
                {"name": "f", "expectation": "expect_column_values_to_be_in_set", "column": "http_status", "value_set": [200]},
            ]
        }
    )  # fmt: skip
    rows = [
        replace(GOOD, step_id="s1", http_status=None, logprobs=None),
        replace(GOOD, step_id="s2", dialect="mcp", step_index=4, latency_ms=None),
        replace(GOOD, step_id="s3", step_index=4, latency_ms=500.0, http_status=404),
        replace(GOOD, step_id="s4", step_index=4, kind="tool", logprobs=None),
    ]
    expected = RowGate(spec).failures(rows)
    assert expected["s1"] == ("a",)
    assert expected["s3"] == ("b", "d", "e", "f")
    assert suite(spec).failures(rows) == expected


def test_results_hold_no_values(gate: Gate) -> None:
    bad = replace(GOOD, step_id="s1", dialect="openai.chat", leftover_findings=987654)
    report = json.dumps(gate.report([bad]).to_json_dict())
    assert "987654" not in report
    assert "s1" in report


def unchecked(**fields: object) -> QualitySpec:
    """Return a spec with an expectation that nobody checked, as an older or newer one might let in."""
    odd = Between[Column].model_construct(
        name="odd",
        where={},
        expectation="expect_column_values_to_be_between",
        **{"column": Column.DIALECT, "min_value": 1, "max_value": None, **fields},
    )
    return load_bundle().quality.spec.model_copy(update={"expectations": (odd,)})


def test_an_expectation_that_cannot_be_evaluated_is_an_error() -> None:
    with pytest.raises(GateError, match="odd"):
        suite(unchecked()).failures([GOOD])


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "spec.expectations: the gate cannot be run: quality gate: Great Expectations could"),
        ({"min_value": None}, "spec.expectations.0: Great Expectations refuses it (ValidationError)"),
    ],
)  # fmt: skip
def test_a_gate_that_cannot_run_is_no_policy(fields: dict[str, object], says: str) -> None:
    bundle = load_bundle()
    quality = bundle.quality.model_copy(update={"spec": unchecked(**fields)})
    with pytest.raises(PolicyError) as caught:
        gate_of(bundle.model_copy(update={"quality": quality}))
    assert says in str(caught.value)
    assert "quality.yaml:" in str(caught.value)


def test_a_gate_that_fails_for_a_batch_holds_the_batch() -> None:
    held = governor(gate=suite(unchecked())).judge(assembly(placed(call(1)), placed(call(2))))
    assert {(row.stage, row.reason) for row in held.quarantine} == {
        ("quality", "quality:gate-failed:GateError")
    }
    assert len(held.quarantine) == 2
    assert held.steps == held.messages == ()
    assert [row.disposition for row in held.exchanges] == ["quarantined"] * 2


def test_a_gate_whose_reference_may_come_back_is_asked_again() -> None:
    class Away:
        def failures(self, rows: Sequence[StepFacts]) -> dict[str, tuple[str, ...]]:
            raise RetryableError("the lake does not answer")

    with pytest.raises(RetryableError):
        governor(gate=Away()).judge(assembly(placed(call(1))))


def test_the_governor_runs_the_real_gate(gate: Gate) -> None:
    cut = placed(call(1, finish_reason=None, outcome=ExchangeOutcome.CLIENT_ABORT))
    fine = placed(call(2, [user("x")]), trajectory="t2")
    batch = governor(gate=gate).judge(assembly(cut, fine))
    assert [row.reason for row in batch.quarantine] == ["quality:answer-not-cut"]
    assert [row.step_id for row in batch.steps] == ["step2"]


def test_a_projection_with_other_columns_stops_the_batch(gate: Gate) -> None:
    gate_columns = gate._columns
    gate._columns = [one for one in gate_columns if one.name != "http_status"]
    try:
        with pytest.raises(GateError, match="schema"):
            gate.failures([GOOD])
    finally:
        gate._columns = gate_columns


def test_data_docs_are_great_expectations_own_and_load_nothing(gate: Gate, tmp_path: Path) -> None:
    stored = step_facts_of({"step_id": "s2", "kind": "model", "http_status": 200})
    gate.write_docs(
        [GOOD, replace(GOOD, step_id="s1", leftover_findings=987654), stored], tmp_path / "docs"
    )
    pages = [path.read_text() for path in (tmp_path / "docs").rglob("*.html")]
    (result,) = [path.read_text() for path in (tmp_path / "docs" / "validations").rglob("*.html")]
    index = (tmp_path / "docs" / "index.html").read_text()
    links = re.findall(r'<li><a href="([^"]*)">(\w+)', index)
    assert [word for _, word in links] == ["Results", "Expectations"]
    assert all((tmp_path / "docs" / link).is_file() for link, _ in links)
    assert "leftover_findings" in result
    assert "987654" not in "".join(pages)
    loading = r"<(?:script|link|img|iframe)[^>]*(?:src|href)=[\"']?(?:https?:)?//"
    styles = [path.read_text() for path in (tmp_path / "docs").rglob("*.css")]
    assert [page for page in pages if re.search(loading, page)] == []
    assert [one for one in (*pages, *styles) if re.search(r"url\([\"']?(?:https?:)?//", one)] == []


def test_tokens_are_judged_in_openenvs_words() -> None:
    assert fatal_code((1,), (2, 3), (-0.1, 0.00001)) is None
    assert fatal_code(None, (2, 3), None) is None
    assert fatal_code((1,), (2, 3), (-0.1,)) == "logprob_misalign"
    assert fatal_code((1,), (2, -3), (-0.1, -0.2)) == "invalid_token_id"
    assert fatal_code((1,), (2,), (float("nan"),)) == "invalid_logprob"
    assert fatal_code((1,), (2,), (0.5,)) == "positive_logprob"
    assert fatal_code((), (2,), (-0.5,)) == "no_prompt_ids"


def test_a_batch_that_drifts_is_held_tenant_by_tenant(gate: Gate) -> None:
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
    judge = build_gate(spec.model_copy(update={"gate": "rows"}), reference=reference)
    held = judge.failures([*slow, *same, *few])
    assert held == {row.step_id: ("drift:latency_ms",) for row in slow}
    assert asked == [("slow", 14), ("same", 14)]
    assert build_gate(spec.model_copy(update={"gate": "rows"})).failures(slow) == {}


def test_great_expectations_tells_drift_too() -> None:
    found = [
        ColumnDrift("a", 0.25, 60, 60),
        ColumnDrift("b", 0.2, 60, 60),
        ColumnDrift("c", None, 1, 1),
    ]
    assert drifted(found, 0.25, "great_expectations") == drifted(found, 0.25, "rows") == ["a"]
    assert drifted(found, 0.3, "great_expectations") == []
