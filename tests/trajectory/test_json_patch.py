"""JSON patches do what RFC 6902 says; each case is one of its appendix A, or of a corner that it names."""

import copy
from typing import Any

import pytest

from trajectory.json_patch import PatchError, PatchTestError, apply_patch, check_patch

ADD: dict[str, Any] = {"op": "add", "path": "/child", "value": {"grandchild": {}}}


@pytest.mark.parametrize(
    ("document", "operation", "expected"),
    [
        ({"foo": "bar"}, {"op": "add", "path": "/baz", "value": "qux"}, {"baz": "qux", "foo": "bar"}),
        ({"foo": ["a", "c"]}, {"op": "add", "path": "/foo/1", "value": "b"}, {"foo": ["a", "b", "c"]}),
        ({"foo": ["a"]}, {"op": "add", "path": "/foo/-", "value": ["b"]}, {"foo": ["a", ["b"]]}),
        ({"a": 1, "b": 2}, {"op": "remove", "path": "/a"}, {"b": 2}),
        ({"a": [1, 2, 3]}, {"op": "remove", "path": "/a/1"}, {"a": [1, 3]}),
        ({"a": 1}, {"op": "replace", "path": "/a", "value": 2}, {"a": 2}),
        ({"a": [1, 2]}, {"op": "replace", "path": "/a/0", "value": 3}, {"a": [3, 2]}),
        ({"a": {"b": 1}, "c": {}}, {"op": "move", "from": "/a/b", "path": "/c/d"}, {"a": {}, "c": {"d": 1}}),
        ({"a": [1, 2, 3]}, {"op": "move", "from": "/a/0", "path": "/a/2"}, {"a": [2, 3, 1]}),
        ({"a": 1}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": 1, "b": 1}),
        ({"a": ["x"]}, {"op": "test", "path": "/a/0", "value": "x"}, {"a": ["x"]}),
        ({"/": 9, "~1": 10}, {"op": "test", "path": "/~01", "value": 10}, {"/": 9, "~1": 10}),
        ({"foo": "bar"}, ADD, {"foo": "bar", "child": {"grandchild": {}}}),
        ({"foo": None}, {"op": "replace", "path": "", "value": 1}, 1),
    ],
)  # fmt: skip
def test_an_operation(document: Any, operation: dict[str, Any], expected: Any) -> None:
    check_patch([operation])
    before = copy.deepcopy(document)
    assert apply_patch(document, [operation]) == expected
    assert document == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/a/b/c", "value": 1},
        {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/list/2", "value": 1},
        {"op": "add", "path": "/list/3", "value": 1},
        {"op": "add", "path": "/list/01", "value": 1},
        {"op": "remove", "path": "/list/-"},
        {"op": "add", "path": f"/list/1{'0' * 5000}", "value": 1},
        {"op": "move", "from": "/a", "path": "/a/b"},
        {"op": "copy", "from": "/nowhere", "path": "/b"},
    ],
)
def test_what_leads_nowhere_changes_nothing(operation: dict[str, Any]) -> None:
    document = {"a": {"x": 1}, "list": [1, 2]}
    with pytest.raises(PatchError):
        apply_patch(document, [{"op": "remove", "path": "/a/x"}, operation])
    assert document == {"a": {"x": 1}, "list": [1, 2]}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("times", [40, 200])
def test_copies_of_a_part_into_itself_end_before_they_fill_memory(times: int) -> None:
    patch = [{"op": "copy", "from": "/a", "path": f"/a/x{at}"} for at in range(times)]
    check_patch(patch)
    with pytest.raises(PatchError, match="copies at most"):
        apply_patch({"a": {"x": 1}}, patch)


@pytest.mark.parametrize(
    ("there", "asked"), [(1, True), ("1", 1), ([1], [True]), ({"a": 0}, {"a": False})]
)
def test_a_test_tells_types_apart(there: Any, asked: Any) -> None:
    with pytest.raises(PatchTestError):
        apply_patch({"a": there}, [{"op": "test", "path": "/a", "value": asked}])


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "grow", "path": "/a"},
        {"op": "add", "path": "/a"},
        {"op": "move", "path": "/a"},
        {"op": "remove"},
        {"op": "remove", "path": "a"},
        {"op": "copy", "path": "/a", "from": "/~2"},
    ],
)
def test_what_is_no_operation_is_refused(operation: dict[str, Any]) -> None:
    with pytest.raises(PatchError):
        check_patch([operation])
