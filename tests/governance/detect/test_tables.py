"""Cells and labelled values are asked about once, and only those who can tell; the work grows with the text."""

import sys
from collections.abc import Callable, Sequence

import pytest

from governance.detect.finding import Finding, Unit
from governance.detect.normalized_text import view_of
from governance.detect.tables import TableCells
from tests.governance.redaction_support import text


class Asked:
    """A detector that finds nothing and keeps what it is asked."""

    name, version = "asked", "1"

    def __init__(self, *entities: str) -> None:
        self.entities = frozenset(entities)
        self.values: list[str] = []

    def find(
        self,
        units: Sequence[Unit],
        known: Sequence[Sequence[Finding]] = (),
    ) -> list[list[Finding]]:
        """Return nothing."""
        self.values += [unit.view.original for unit in units]
        return [[] for _ in units]


def asked(given: str, *entities: str) -> list[str]:
    """Return what a detector of these entities is asked about a text."""
    detector = Asked(*entities)
    TableCells([detector]).find([Unit(view_of(given))])
    return detector.values


def test_only_who_can_find_what_a_label_says_is_asked() -> None:
    given = "DOB: Apt 4\nPassport: YB4471902"
    assert asked(given, "PERSON") == []
    assert asked(given, "DATE_OF_BIRTH") == ["Apt 4"]
    assert asked(given, "US_PASSPORT", "PERSON") == ["YB4471902"]
    assert asked("total,dob\n1,03/04/1931\n", "PERSON") == ["03/04/1931"], (
        "what is in a cell, all are"
    )


def test_cells_that_are_the_same_are_looked_at_once_and_found_everywhere() -> None:
    given = "total,dob\n1,03/04/1931\n2,03/04/1931\n"
    assert asked(given, "DATE_OF_BIRTH") == ["03/04/1931"]
    assert "1931" not in text(given)


HEADS = ["NAME         DOB", "EMAIL        PHONE", "PASSPORT     MRN"]


def test_a_line_is_read_under_the_heads_above_it_up_to_an_empty_line() -> None:
    lines = [*HEADS, "Quillon      03/04/1931", "", "Berit        03/04/1932"]
    values = asked("\n".join(lines), "PERSON")
    assert "Quillon" in values
    assert "Berit" not in values
    assert "Zed" not in asked("\n".join([HEADS[0], *["-    -"] * 199, "Zed          4"]), "PERSON")
    assert "Zed" in asked("\n".join([HEADS[0], *["-    -"] * 198, "Zed          4"]), "PERSON")


def test_a_row_in_capitals_does_not_end_its_table() -> None:
    rows = [f"{name:13}EMAIL" for name in ("ADA", "BERIT", "CY", "DAG", "EVE", "FAY", "GUS")]
    rows.append("Zed          4")
    assert "Zed" in asked("\n".join([HEADS[0], *rows]), "PERSON")


def test_what_is_copied_into_one_table_ends_where_the_next_one_begins() -> None:
    given = "COPY a (dob) FROM stdin;\n03/04/1931\nCOPY b (passport) FROM stdin;\nYB4471902\n"
    cells = asked(given, "DATE_OF_BIRTH")
    assert cells.count("03/04/1931") == cells.count("YB4471902") == 1


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (r"('O''Neil', '03/04/1931')", ["03/04/1931"]), ("('', '03/04/1931')", ["03/04/1931"]),
        (r"('a\'b', '03/04/1931')", ["03/04/1931"]), ("(now(), '03/04/1931')", ["03/04/1931"]),
        ("('''', ''''),  ('x', '03/04/1931')", ["''", "03/04/1931"]),
        ("(lower('x'), '03/04/1931')", ["03/04/1931"]), ("(3, date '03/04/1931')", ["03/04/1931"]),
        ("(3, to_date('03/04/1931', 'DD/MM/YYYY'))", ["03/04/1931"]), ("('a' || 'b', N'03/04/1931')", ["03/04/1931"]),
    ],
)  # fmt: skip
def test_quotes_within_values_of_sql_are_read(row: str, found: list[str]) -> None:
    assert asked("INSERT INTO t (total, dob) VALUES " + row, "DATE_OF_BIRTH") == found  # noqa: S608 - read, not run


@pytest.mark.parametrize("open_", ["'" * 4000, "''x" * 1500 + "'", r"'a\'" * 1000, '"' * 999])
def test_a_value_of_sql_that_does_not_end_costs_no_more(open_: str) -> None:
    """Each quote once began a value or ended one: so many ways to read them that none ended."""
    assert asked("insert into t(dob) values (" + open_, "DATE_OF_BIRTH") == []  # noqa: S608 - read, not run


def test_quotes_that_never_end_within_brackets_are_tried_once() -> None:
    """From each of them the rest of the value was read: minutes for half a megabyte."""
    brackets = r"(\'\'\'\'\'\'\'\')" * 30_000
    assert asked(f"insert into t(dob) values ({brackets})", "DATE_OF_BIRTH") == []  # noqa: S608 - read, not run


def calls(work: Callable[[], object]) -> int:
    """Return how many functions are called."""
    counted = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize(
    "piece",
    [
        "DOB: Apt 4 ", "\n|", "\n ", "\n | ", "-|-\n", "NAME   DOB\n", "copy a (dob) from stdin\n", "dob,n\n4,5\n", "insert into t(dob) values ('4')",
        r"insert into t(dob) values ((\'\'\'))",
    ],
)  # fmt: skip
def test_twice_the_text_is_about_twice_the_work(piece: str) -> None:
    def work(times: int) -> int:
        unit = Unit(view_of(piece * times))
        return calls(lambda: TableCells([Asked("DATE_OF_BIRTH")]).find([unit]))

    work(1)  # what is kept for the next time
    assert work(800) <= 2.6 * work(400)
