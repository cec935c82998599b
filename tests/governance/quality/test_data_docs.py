"""Data Docs: Great Expectations tells of each suite what Headrace tells, without values."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from governance.policy import load_bundle
from governance.policy.quality import Column, ExpectationOf, QualitySpec
from governance.quality import StepFacts
from governance.quality.data_docs import DocumentedSuite, write_data_docs
from governance.quality.drift import ColumnDrift, drift_expectations, drifted
from governance.quality.suite import Suite
from governance.trial.dry_run import step_facts_of
from tests.governance.quality.test_gate import GOOD

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def documented(
    folder: Path, expectations: Sequence[ExpectationOf[Column]], rows: Sequence[StepFacts]
) -> list[str]:
    """Return what Great Expectations holds for not met."""
    return sorted(
        write_data_docs(folder, [DocumentedSuite("steps", expectations, StepFacts, rows)])
    )


def failed(expectations: Sequence[ExpectationOf[Column]], rows: Sequence[StepFacts]) -> list[str]:
    """Return what Headrace holds for not met."""
    return sorted(one.name for one in Suite(expectations).results(rows) if one.failed)


def test_great_expectations_and_the_gate_agree_row_by_row(tmp_path: Path) -> None:
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
        for number in range(6)
    ]
    expectations = load_bundle().quality.spec.expectations
    found = [failed(expectations, [row]) for row in rows]
    assert any(found)
    assert not all(found)
    for number, row in enumerate(rows):
        assert documented(tmp_path / str(number), expectations, [row]) == found[number]


def test_every_kind_of_expectation_means_the_same_in_both(tmp_path: Path) -> None:
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
    for number, row in enumerate([[*rows], *([row] for row in rows)]):
        expected = failed(spec.expectations, row)
        assert documented(tmp_path / str(number), spec.expectations, row) == expected
    assert failed(spec.expectations, rows) == ["a", "b", "c", "d", "e", "f"]


def test_data_docs_are_great_expectations_own_and_load_nothing(tmp_path: Path) -> None:
    stored = step_facts_of({"step_id": "s2", "kind": "model", "http_status": 200})
    rows = [GOOD, replace(GOOD, step_id="s1", leftover_findings=987654), stored]
    documented(tmp_path / "docs", load_bundle().quality.spec.expectations, rows)
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


def test_data_docs_tell_of_drift(tmp_path: Path) -> None:
    found = [
        ColumnDrift("a", 0.25, 60, 60),
        ColumnDrift("b", 0.2, 60, 60),
        ColumnDrift("c", None, 1, 1),
    ]
    suite = DocumentedSuite("drift", drift_expectations(found, 0.25), ColumnDrift, found)
    assert write_data_docs(tmp_path, [suite]) == drifted(found, 0.25) == ["a"]


def test_what_else_lies_in_the_folder_stays_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / "guide" / "page.html"
    page.parent.mkdir()
    theirs = "<html><head></head><body>text<footer>imprint</footer></body></html>"
    page.write_text(theirs)
    for _ in range(2):
        documented(tmp_path, load_bundle().quality.spec.expectations, [GOOD])
    assert page.read_text() == theirs
    index = (tmp_path / "index.html").read_text()
    assert "guide" not in index
    assert index.count(">Results of steps") == 2
    results = [path.read_text() for path in (tmp_path / "validations").rglob("*.html")]
    assert [result.count("<style>body") for result in results] == [1, 1]
