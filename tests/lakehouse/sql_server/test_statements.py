"""Prepared statements: their key's alone, few, and bound as a whole."""

import pytest

from lakehouse.errors import QueryError
from lakehouse.sql_server.statements import Statements


def test_a_statement_is_its_keys_alone() -> None:
    held = Statements()
    handle = held.add("a", "SELECT ?", ("1",))
    held.close("b", handle)
    with pytest.raises(QueryError, match="prepare it again"):
        held.get("b", handle)
    assert held.get("a", handle).sql == "SELECT ?"
    held.close("a", handle)
    with pytest.raises(QueryError):
        held.get("a", handle)
    with pytest.raises(QueryError):
        held.get("a", b"")


def test_values_are_bound_in_order_or_by_name() -> None:
    held = Statements()
    by_order, by_name = held.add("a", "…", ("1", "2")), held.add("a", "…", ("low", "high"))
    held.bind("a", by_order, [3, 4])
    held.bind("a", by_name, [3, 4])
    assert held.get("a", by_order).values == [3, 4]
    assert held.get("a", by_name).values == {"low": 3, "high": 4}
    with pytest.raises(QueryError, match="2 parameters, 1"):
        held.bind("a", by_order, [3])


def test_the_oldest_of_a_key_gives_way_and_nobody_elses() -> None:
    held = Statements()
    other = held.add("b", "theirs", ())
    handles = [held.add("a", f"SELECT {number}", ()) for number in range(60)]
    with pytest.raises(QueryError):
        held.get("a", handles[0])
    assert held.get("a", handles[-1]).sql == "SELECT 59"
    assert held.get("b", other).sql == "theirs"
