"""The gate as a real Great Expectations suite over a pandas projection without text.

Results name failing rows by step id and count; values are excluded from them, so that nothing
that GX prints, keeps or renders could hold content even if a column ever did.
"""

import dataclasses
import os
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from governance.policy.quality import Expectation, QualitySpec
from governance.quality.facts import StepFacts
from governance.quality.gate import Failures
from trajectory.errors import WorkError

_RESULT_FORMAT = {
    "result_format": "COMPLETE",
    "unexpected_index_column_names": ["step_id", "row"],
    "exclude_unexpected_values": True,
    "partial_unexpected_count": 0,
}
_NULLABLE_NUMBERS = {"int | None": "Int64", "float | None": "float64", "int": "int64"}


class GateError(WorkError):
    """An expectation could not be evaluated; the batch must not pass without it."""


class GreatExpectationsGate:
    """Runs the policy's expectations as one suite; the same context serves every batch."""

    def __init__(self, spec: QualitySpec) -> None:
        """Build the suite; imports Great Expectations."""
        os.environ.setdefault("GX_ANALYTICS_ENABLED", "False")
        self._gx: Any = import_module("great_expectations")
        self._pandas: Any = import_module("pandas")
        context = self._gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}
        suite = context.suites.add(self._gx.ExpectationSuite(name="headrace-steps"))
        classes = import_module("great_expectations.expectations")
        for number, expectation in enumerate(spec.expectations):
            suite.add_expectation(_build(classes, expectation, number))
        asset = context.data_sources.add_pandas("headrace").add_dataframe_asset("steps")
        self._names = [expectation.name for expectation in spec.expectations]
        self._definition = context.validation_definitions.add(
            self._gx.ValidationDefinition(
                name="headrace-steps",
                data=asset.add_batch_definition_whole_dataframe("batch"),
                suite=suite,
            )
        )

    def failures(self, rows: Sequence[StepFacts]) -> Failures:
        """See :class:`~governance.quality.gate.QualityGate`.

        Raises:
            GateError: Great Expectations could not evaluate an expectation.
        """
        if not rows or not self._names:
            return {}
        found: dict[str, list[str]] = {}
        for result in self.report(rows).results:
            if result.exception_info and _raised(result.exception_info):
                raise GateError(
                    f"quality gate: Great Expectations could not evaluate "
                    f"{result.expectation_config.meta['name']!r}; see the Quality policy"
                )
            if not result.success:
                name = result.expectation_config.meta["name"]
                for step_id in _step_ids(result.result):
                    found.setdefault(step_id, []).append(name)
        return {
            step_id: tuple(name for name in dict.fromkeys(self._names) if name in names)
            for step_id, names in found.items()
        }

    def report(self, rows: Sequence[StepFacts]) -> Any:
        """Return Great Expectations' own validation result, for Data Docs and records."""
        frame = self._frame(rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._definition.run(
                batch_parameters={"dataframe": frame}, result_format=_RESULT_FORMAT
            )

    def _frame(self, rows: Sequence[StepFacts]) -> Any:
        columns: dict[str, Any] = {}
        for field in dataclasses.fields(StepFacts):
            values = [getattr(row, field.name) for row in rows]
            kind = _NULLABLE_NUMBERS.get(_type_name(field.type), "object")
            columns[field.name] = self._pandas.Series(values, dtype=kind)
        columns["row"] = range(len(rows))
        return self._pandas.DataFrame(columns)


def _type_name(kind: Any) -> str:
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def _build(classes: Any, expectation: Expectation, number: int) -> Any:
    """Return the expectation as Great Expectations' own class of that name."""
    arguments = expectation.model_dump(
        mode="json", exclude={"name", "where", "expectation"}, exclude_none=True
    )
    if expectation.where:
        conditions = import_module("great_expectations.expectations.row_conditions")
        terms = [
            conditions.Column(column.value).is_in(list(wanted))
            for column, wanted in expectation.where.items()
        ]
        arguments["row_condition"] = terms[0]
        for term in terms[1:]:
            arguments["row_condition"] &= term
    if expectation.expectation == "expect_column_pair_values_to_be_equal":
        arguments["ignore_row_if"] = "either_value_is_missing"
    name = "".join(part.capitalize() for part in expectation.expectation.split("_"))
    return getattr(classes, name)(meta={"name": expectation.name, "number": number}, **arguments)


def _raised(info: Any) -> bool:
    """Return whether an expectation raised; one may report on several of its metrics."""
    if "raised_exception" in info:
        return bool(info["raised_exception"])
    return any(one.get("raised_exception") for one in info.values() if isinstance(one, dict))


def _step_ids(result: dict[str, Any]) -> list[str]:
    """Return the ids in an index list, whichever of its two shapes GX used."""
    found: list[str] = []
    for entry in result.get("unexpected_index_list") or []:
        value = entry["step_id"]
        found += value if isinstance(value, list) else [value]
    return found
