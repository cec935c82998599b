"""Data Docs: Great Expectations' own pages of what rows without text meet and what not.

The pages lean on styles and scripts of other hosts, also for the tables of the index. What is left
gets a plain style of its own, the index a list of its pages. Only whether an expectation held is
written, so that nothing could hold content even if a column ever did.
"""

import dataclasses
import os
import re
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from governance.policy.quality import ExpectationOf
from governance.quality.suite import Row

_NULLABLE_NUMBERS = {"int | None": "Int64", "float | None": "float64", "int": "int64"}
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


@dataclass(frozen=True, slots=True)
class DocumentedSuite[R: Row, C: StrEnum]:
    """A suite as Data Docs show it."""

    name: str
    expectations: Sequence[ExpectationOf[C]]
    row: type[R]
    """The dataclass whose fields are the columns."""
    rows: Sequence[R]


def write_data_docs(folder: Path, suites: Sequence[DocumentedSuite[Any, Any]]) -> list[str]:
    """Write Data Docs of suites into ``folder``; return the expectations that are not met.

    Importing Great Expectations takes seconds. What else lies in the folder stays as it is.

    What its pages would load from elsewhere is taken out, so that nobody learns who opens them.
    """
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "False")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of modules that it imports; nobody here can mend them
        gx: Any = import_module("great_expectations")
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    source = context.data_sources.add_pandas("headrace")
    with TemporaryDirectory() as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context.add_data_docs_site(
            site_name="headrace",
            site_config={
                "class_name": "SiteBuilder",
                "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
                "store_backend": {
                    "class_name": "TupleFilesystemStoreBackend",
                    "base_directory": made,
                },
            },
        )
        failed = [name for suite in suites for name in _validate(gx, context, source, suite)]
        context.build_data_docs(site_names=["headrace"])
        _publish(Path(made), folder)
    return failed


def _validate[R: Row, C: StrEnum](
    gx: Any, context: Any, source: Any, suite: DocumentedSuite[R, C]
) -> list[str]:
    """Run a suite, whose result the context keeps for its pages; return what is not met."""
    classes = import_module("great_expectations.expectations")
    described = context.suites.add(gx.ExpectationSuite(name=suite.name))
    for expectation in suite.expectations:
        described.add_expectation(_build(classes, expectation))
    asset = source.add_dataframe_asset(suite.name)
    batch = asset.add_batch_definition_whole_dataframe("batch")
    definition = context.validation_definitions.add(
        gx.ValidationDefinition(name=suite.name, data=batch, suite=described)
    )
    checkpoint = gx.Checkpoint(
        name=suite.name,
        validation_definitions=[definition],
        result_format={"result_format": "BOOLEAN_ONLY"},
    )
    frame = _frame(import_module("pandas"), suite.rows, suite.row)
    done = context.checkpoints.add(checkpoint).run(batch_parameters={"dataframe": frame})
    return [
        one.expectation_config.meta["name"]
        for result in done.run_results.values()
        for one in result.results
        if not one.success
    ]


def _frame(pandas: Any, rows: Sequence[Row], kind: type[Row]) -> Any:
    columns: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        values = [getattr(row, field.name) for row in rows]
        dtype = _NULLABLE_NUMBERS.get(_type_name(field.type), "object")
        if dtype == "int64" and None in values:  # what a stored row cannot tell
            dtype = "Int64"
        columns[field.name] = pandas.Series(values, dtype=dtype)
    return pandas.DataFrame(columns)


def _type_name(kind: Any) -> str:
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def _build[C: StrEnum](classes: Any, expectation: ExpectationOf[C]) -> Any:
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
    return getattr(classes, name)(meta={"name": expectation.name}, **arguments)


def _offline(page: str) -> str:
    """Return a page or style without scripts, styles and images of other hosts; links stay."""
    for found in (_ELEMENTS, _IMPORTS):
        page = found.sub("", page)
    return _IMAGES.sub("none", page)


def _publish(made: Path, folder: Path) -> None:
    """Copy Data Docs into a folder, changed so that they load nothing and can be read."""
    index = made / "index.html"
    for path in sorted(made.rglob("*"), key=index.__eq__):  # it lists the others, so it comes last
        if path.is_dir():
            continue
        target = folder / path.relative_to(made)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix not in (".html", ".css"):
            shutil.copyfile(path, target)
            continue
        text = _offline(path.read_text(encoding="utf-8"))
        if path.suffix == ".html":
            text = _FOOTERS.sub("", _FILTERS.sub("", text)).replace("</head>", _STYLE, 1)
        if path == index:
            text = text.replace("</body>", f"<ul>{_list(folder)}</ul></body>", 1)
        target.write_text(text, encoding="utf-8")


def _list(folder: Path) -> str:
    """Return links to all pages of Data Docs in a folder, also those of earlier days."""
    kinds = (folder / "validations", folder / "expectations")
    pages = (path for kind in kinds for path in sorted(kind.rglob("*.html"), reverse=True))
    return "".join(
        f'<li><a href="{escape(str(path.relative_to(folder)))}">{escape(_called(path, folder))}</a>'
        for path in pages
    )


def _called(path: Path, folder: Path) -> str:
    """Return what to call a page in a list."""
    kind, *rest = path.relative_to(folder).parts
    when = f", {rest[-2]}" if len(rest) > 2 else ""
    return f"{'Results' if kind == 'validations' else 'Expectations'} of {rest[0].removesuffix('.html')}{when}"
