"""Paths into arguments: what is found strictly, and what only a lenient receiver finds."""

from typing import Any

import pytest

from proxy.guard.json_path import FoundValue, JsonPath

ARGUMENTS: Any = {
    "to": "a",
    "Cc": "b",
    "items": [{"price": 1}, {"price": 2, "more": {"price": 3}}],
    "odd-key": 4,
    "inner": '{"url": "x", "deep": "[{\\"url\\": \\"y\\"}]"}',
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$", [(ARGUMENTS, False)]),
        ("$.to", [("a", False)]),
        ("$['to']", [("a", False)]),
        ("$.cc", [("b", True)]),
        ("$.items[1].price", [(2, False)]),
        ("$.items[*].price", [(1, False), (2, False)]),
        ("$.items[7].price", []),
        ("$..price", [(1, False), (2, False), (3, False)]),
        ("$['odd-key']", [(4, False)]),
        ("$.odd-key", [(4, False)]),
        ("$.inner.url", [("x", True)]),
        ("$..url", [("x", True), ("y", True)]),
        ("$.missing", []),
        ("$.to.more", []),
    ],
)
def test_values_at_a_path(path: str, found: list[tuple[Any, bool]]) -> None:
    told = JsonPath.parse(path).find(ARGUMENTS)
    key = repr
    assert sorted(map(tuple, told), key=key) == sorted(found, key=key)


def test_everything_below() -> None:
    assert FoundValue(1, False) in JsonPath.parse("$..*").find({"a": [1]})
    assert JsonPath.parse("$.*").find({"a": 1, "b": 2}) == [(1, False), (2, False)]


@pytest.mark.parametrize(
    "path", ["to", "$to", "$.a[", "$.a[?(@.x)]", "$.", "$..", "$.a b", "", "$..['a']"]
)
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is no path"):
        JsonPath.parse(path)
