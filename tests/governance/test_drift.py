"""Drift against a reference window."""

import dataclasses
import random
from typing import Any

from governance.policy import load_bundle
from governance.quality.drift import drift
from governance.quality.facts import StepFacts
from governance.quality.suite import Suite, asking
from governance.trial.dry_run import STORED

_BLANK: dict[str, Any] = {one.name: None for one in dataclasses.fields(StepFacts)}


def steps(count: int, seed: int, **more: Any) -> list[StepFacts]:
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    rows = []
    for number in range(count):
        said = {
            "step_id": f"s{number}",
            "kind": "model",
            "role_in_graph": "agent",
            "dialect": draw.choice(("openai.chat", "anthropic.messages")),
            "finished": 1,
            "latency_ms": draw.gauss(800, 100),
            "tool_calls": draw.randrange(3),
        }
        rows.append(StepFacts(**{**_BLANK, **said, **more}))
    return rows


def test_the_same_traffic_does_not_drift() -> None:
    found = {one.column: one.index for one in drift(steps(2000, 1), steps(4000, 2))}
    assert all(index is None or index < 0.05 for index in found.values())
    assert found["completion_tokens"] is None


def test_slower_answers_and_a_new_dialect_show() -> None:
    now = steps(500, 1, latency_ms=1500.0, dialect="mcp")
    found = {one.column: one.index or 0.0 for one in drift(now, steps(500, 2))}
    assert found["latency_ms"] > 0.25
    assert found["dialect"] > 0.25
    assert found["kind"] == 0.0
    assert drift(now[:10], steps(500, 2))[0].index is None


def test_results_count_the_rows_that_were_asked_and_those_that_fail() -> None:
    spec = load_bundle().quality.spec
    rows = [*steps(60, 1), *steps(3, 2, finished=0)]
    found = Suite(asking(spec.expectations, STORED)).results(rows)
    cut = next(one for one in found if one.name == "answer-not-cut")
    assert (cut.asked, cut.failed) == (63, 3)
    assert "messages-present" not in {one.name for one in found}
