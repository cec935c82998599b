"""Suites as real Great Expectations suites over pandas projections without text, and their Data Docs.

Its pages lean on styles and scripts of other hosts, also for the tables of the index. What is left
gets a plain style of its own, the index a list of its pages.

Results name failing rows by key and count; values are excluded from them, so that nothing that GX
prints, keeps or renders could hold content even if a column ever did.
"""

import dataclasses
import os
import re
import warnings
from collections.abc import Sequence
from enum import StrEnum
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from governance.errors import FieldError
from governance.policy.quality import ExpectationOf
from governance.quality.rows import Row
from governance.quality.suite import Failures
from trajectory.errors import WorkError

_ELEMENTS = re.compile(
    r"<script\b[^>]*\bsrc\s*=\s*[\"']?(?:https?:)?//[^>]*>\s*</script>"
    r"|<(?:link|img|iframe)\b[^>]*\b(?:href|src)\s*=\s*[\"']?(?:https?:)?//[^>]*>",
    re.IGNORECASE,
)
_IMPORTS = re.compile(r"@import\s+url\([^)]*//[^)]*\)\s*;?", re.IGNORECASE)
_IMAGES = re.compile(r"url\(\s*[\"']?(?:https?:)?//[^)]*\)", re.IGNORECASE)
_FOOTERS = re.compile(r"<footer\b.*?</footer>", re.IGNORECASE | re.DOTALL)
"""They advertise, and nothing else."""
_FILTERS = re.compile(r"<button\b[^>]*>\s*Clear Filters\s*</button>", re.IGNORECASE)
_STYLE = (
    "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;"
    "color:#222}table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{padding:.3rem .6rem;"
    "text-align:left;vertical-align:top;border-bottom:1px solid #ddd}"
    ".text-success::before{content:'\\2713 met';color:#1b6e20}"
    ".text-danger::before{content:'\\2717 not met';color:#a40000}"
    ".text-warning::before{content:'! not told';color:#8a6d00}</style></head>"
)


def offline(page: str) -> str:
    """Return a page or style without scripts, styles and images of other hosts; links stay."""
    for found in (_ELEMENTS, _IMPORTS):
        page = found.sub("", page)
    return _IMAGES.sub("none", page)


def make_readable(folder: Path) -> None:
    """Rewrite the pages of Data Docs in place, so that they load nothing and can be read."""
    pages = sorted(path for path in folder.rglob("*.html") if path.name != "index.html")
    listed = "".join(
        f'<li><a href="{escape(str(path.relative_to(folder)))}">{escape(_called(path, folder))}</a>'
        for path in reversed(pages)
    )
    for path in (*folder.rglob("*.html"), *folder.rglob("*.css")):
        text = offline(path.read_text(encoding="utf-8"))
        if path.suffix == ".html":
            text = _FOOTERS.sub("", _FILTERS.sub("", text)).replace("</head>", _STYLE, 1)
        if path == folder / "index.html":
            text = text.replace("</body>", f"<ul>{listed}</ul></body>", 1)
        path.write_text(text, encoding="utf-8")


def _called(path: Path, folder: Path) -> str:
    """Return what to call a page in a list."""
    kind, *rest = path.relative_to(folder).parts
    when = f", {rest[-2]}" if len(rest) > 2 else ""
    return f"{'Results' if kind == 'validations' else 'Expectations'} of {rest[0].removesuffix('.html')}{when}"


_RESULT_FORMAT = {
    "result_format": "COMPLETE",
    "unexpected_index_column_names": ["key", "row"],
    "exclude_unexpected_values": True,
    "partial_unexpected_count": 0,
}
_NULLABLE_NUMBERS = {"int | None": "Int64", "float | None": "float64", "int": "int64"}
_SCHEMA = "schema"


class GateError(WorkError):
    """An expectation could not be evaluated; the rows must not pass without it."""


class GreatExpectationsSuite[R: Row, C: StrEnum]:
    """Runs expectations as one suite; the same context serves every batch.

    Beside what policy expects, the projection itself must have exactly its columns.
    """

    def __init__(self, name: str, expectations: Sequence[ExpectationOf[C]], row: type[R]) -> None:
        """Build the suite; imports Great Expectations.

        Args:
            name: of the suite, as Data Docs show it.
            expectations: what is expected.
            row: the dataclass whose fields are the columns.
        """
        os.environ.setdefault("GX_ANALYTICS_ENABLED", "False")
        self._gx: Any = import_module("great_expectations")
        self._pandas: Any = import_module("pandas")
        self._name = name
        self._columns: Any = dataclasses.fields(row)  # type: ignore[arg-type]
        self._context = self._gx.get_context(mode="ephemeral")
        self._context.variables.progress_bars = {"globally": False}
        self._suite = self._context.suites.add(self._gx.ExpectationSuite(name=name))
        classes = import_module("great_expectations.expectations")
        self._suite.add_expectation(
            classes.ExpectTableColumnsToMatchSet(
                column_set=[*(one.name for one in self._columns), "key", "row"],
                exact_match=True,
                meta={"name": _SCHEMA},
            )
        )
        for number, expectation in enumerate(expectations):
            self._suite.add_expectation(_build(classes, expectation, number))
        asset = self._context.data_sources.add_pandas("headrace").add_dataframe_asset(name)
        self._batch = asset.add_batch_definition_whole_dataframe("batch")
        self._names = [expectation.name for expectation in expectations]

    def failures(self, rows: Sequence[R]) -> Failures:
        """See :class:`~governance.quality.suite.Suite`.

        Raises:
            GateError: Great Expectations could not evaluate an expectation.
        """
        if not rows or not self._names:
            return {}
        found: dict[str, list[str]] = {}
        for result in self.report(rows).results:
            name = result.expectation_config.meta["name"]
            raised = result.exception_info and _raised(result.exception_info)
            if raised or (name == _SCHEMA and not result.success):
                raise GateError(
                    f"quality gate: Great Expectations could not evaluate {name!r}; see the "
                    "Quality policy"
                )
            if not result.success:
                for key in _keys(result.result):
                    found.setdefault(key, []).append(name)
        return {
            key: tuple(name for name in dict.fromkeys(self._names) if name in names)
            for key, names in found.items()
        }

    def report(self, rows: Sequence[R]) -> Any:
        """Return Great Expectations' own validation result; the context does not keep it."""
        frame = self._frame(rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            batch = self._batch.get_batch(batch_parameters={"dataframe": frame})
            return batch.validate(self._suite, result_format=_RESULT_FORMAT)

    def write_docs(self, rows: Sequence[R], folder: Path) -> None:
        """Write Great Expectations' own Data Docs of one validation into ``folder``.

        Only whether an expectation held is written. What its pages would load from elsewhere
        is taken out of them, so that nobody learns who opens them.
        """
        self._context.add_data_docs_site(
            site_name=self._name,
            site_config={
                "class_name": "SiteBuilder",
                "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
                "store_backend": {
                    "class_name": "TupleFilesystemStoreBackend",
                    "base_directory": str(folder.absolute()),
                },
            },
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            definition = self._context.validation_definitions.add(
                self._gx.ValidationDefinition(name=self._name, data=self._batch, suite=self._suite)
            )
            checkpoint = self._gx.Checkpoint(
                name=self._name,
                validation_definitions=[definition],
                result_format={"result_format": "BOOLEAN_ONLY"},
            )
            self._context.checkpoints.add(checkpoint).run(
                batch_parameters={"dataframe": self._frame(rows)}
            )
            self._context.build_data_docs(site_names=[self._name])
        make_readable(folder)

    def _frame(self, rows: Sequence[R]) -> Any:
        columns: dict[str, Any] = {}
        for field in self._columns:
            values = [getattr(row, field.name) for row in rows]
            kind = _NULLABLE_NUMBERS.get(_type_name(field.type), "object")
            if kind == "int64" and None in values:  # what a stored row cannot tell
                kind = "Int64"
            columns[field.name] = self._pandas.Series(values, dtype=kind)
        columns["key"] = self._pandas.Series([row.key for row in rows], dtype="object")
        columns["row"] = range(len(rows))
        return self._pandas.DataFrame(columns)


def _type_name(kind: Any) -> str:
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def _build[C: StrEnum](classes: Any, expectation: ExpectationOf[C], number: int) -> Any:
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
    try:
        built = getattr(classes, name)
        return built(meta={"name": expectation.name, "number": number}, **arguments)
    except Exception as error:
        raise FieldError(
            f"Great Expectations refuses it ({type(error).__name__})",
            ("spec", "expectations", number),
        ) from error


def _raised(info: Any) -> bool:
    """Return whether an expectation raised; one may report on several of its metrics."""
    if "raised_exception" in info:
        return bool(info["raised_exception"])
    return any(one.get("raised_exception") for one in info.values() if isinstance(one, dict))


def _keys(result: dict[str, Any]) -> list[str]:
    """Return the keys in an index list, whichever of its two shapes GX used."""
    found: list[str] = []
    for entry in result.get("unexpected_index_list") or []:
        value = entry["key"]
        found += value if isinstance(value, list) else [value]
    return found
