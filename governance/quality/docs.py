"""Data Docs: one HTML page on the quality of a stretch of time; counts and fixed words, no values.

The page loads nothing from anywhere: no script, no style sheet, no font.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape

from governance.policy.quality import ExpectationOf
from governance.quality.drift import ColumnDrift
from governance.quality.rows import Row, failing_rows

_STYLE = (
    ":root{color-scheme:light dark;--bad:light-dark(#a40000,#ff9a8f);--good:light-dark(#1b6e20,#8fd694);"
    "--line:light-dark(#ddd,#444)}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code{overflow-wrap:anywhere}div{overflow-x:auto}"
    "table{border-collapse:collapse;width:100%;margin:1rem 0}td,th{padding:.3rem .6rem;text-align:left;"
    "border-bottom:1px solid var(--line)}td.n,th.n{text-align:right}"
    "td{overflow-wrap:anywhere}td:first-child{width:1em}td.n{white-space:nowrap}"
    ".bad{color:var(--bad)}.good{color:var(--good)}"
)
_TOO_FEW = "too few"
_MARKS = {"good": "✓", "bad": "✗", "open": "–"}
"""What a row's state looks like without its colour."""


@dataclass(frozen=True, slots=True)
class ExpectationResult:
    """How many rows met one expectation."""

    name: str
    expectation: str
    columns: tuple[str, ...]
    asked: int
    failed: int


def results[C: StrEnum](
    expectations: Sequence[ExpectationOf[C]], rows: Sequence[Row]
) -> list[ExpectationResult]:
    """Return the result of every expectation."""
    out = []
    for expectation in expectations:
        columns = columns_of(expectation)
        asked = sum(
            all(getattr(row, column) in wanted for column, wanted in expectation.where.items())
            for row in rows
        )
        failed = len(failing_rows(expectation, rows))
        out.append(
            ExpectationResult(expectation.name, expectation.expectation, columns, asked, failed)
        )
    return out


def page(
    *,
    title: str,
    policy_hash: str,
    rows: str,
    expectations: Sequence[ExpectationResult],
    quarantine: Sequence[tuple[str, int]],
    drifts: Sequence[ColumnDrift],
    drift_from: float,
) -> str:
    """Return the page."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style><h1>{escape(title)}</h1>",
        f"<p>{escape(rows)}. Policy <code>{escape(policy_hash)}</code>.</p>",
        "<h2>Expectations on what is stored</h2>",
        _table(
            ("expectation", "of", "rows asked", "not met"),
            [
                (one.name, f"{one.expectation} ({', '.join(one.columns)})", one.asked, one.failed)
                for one in expectations
            ],
            state=lambda row: "bad" if row[3] else "good" if row[2] else "open",
        ),
        "<h2>Held back</h2>",
        _table(("reason", "exchanges"), list(quarantine), state=lambda _: "bad"),
        "<h2>Drift</h2>",
        f"<p>Population stability index; from {drift_from:g} on something changed.</p>",
        _table(
            ("column", "index", "rows", "reference"),
            [
                (
                    one.column,
                    _TOO_FEW if one.index is None else f"{one.index:.3f}",
                    one.now,
                    one.reference,
                )
                for one in drifts
            ],
            state=lambda row: _drift_state(row[1], drift_from),
        ),
    ]
    return "\n".join(parts) + "\n"


def _drift_state(index: object, drift_from: float) -> str:
    if index == _TOO_FEW:
        return "open"
    return "bad" if float(str(index)) >= drift_from else "good"


def _table(
    heads: Sequence[str],
    rows: Sequence[tuple[object, ...]],
    *,
    state: Callable[[tuple[object, ...]], str],
) -> str:
    if not rows:
        return "<p class=good>Nothing.</p>"
    numbers = [isinstance(cell, int | float) for cell in rows[0]]
    head = "".join(
        f"<th{' class=n' if number else ''}>{escape(name)}"
        for name, number in zip(heads, numbers, strict=True)
    )
    body = "".join(
        f"<tr class={state(row)}><td>{_MARKS[state(row)]}"
        + "".join(
            f"<td{' class=n' if number else ''}>{escape(str(cell))}"
            for cell, number in zip(row, numbers, strict=True)
        )
        for row in rows
    )
    return f"<div><table><tr><th>{head}{body}</table></div>"


def asking[C: StrEnum](
    expectations: Sequence[ExpectationOf[C]], known: frozenset[str]
) -> tuple[ExpectationOf[C], ...]:
    """Return the expectations that ask of ``known`` columns only."""
    return tuple(one for one in expectations if {*columns_of(one), *map(str, one.where)} <= known)


def columns_of[C: StrEnum](expectation: ExpectationOf[C]) -> tuple[str, ...]:
    """Return the columns that an expectation is about."""
    found = [
        str(value)
        for name in ("column", "column_A", "column_B")
        if (value := getattr(expectation, name, None)) is not None
    ]
    return tuple(found)
