"""Documents of kind Action: what is wrong is told, and what is meant is applied."""

from typing import Any

import pytest
from pydantic import ValidationError

from proxy.guard.document import ActionSpec, rules_of


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "routes"),
        ({"routes": "*", "rules": [{"name": "a", "decision": "block"}]}, "decision"),
        ({"routes": "*", "rules": [{"name": "a", "decision": "limit"}]}, "limit has a budget"),
        (
            {"routes": "*", "rules": [{"name": "a", "decision": "deny", "budget": {"calls": 1}}]},
            "limit has a budget",
        ),
        (
            {"routes": "*", "rules": [{"name": "a", "decision": "deny"}] * 2},
            "two rules have the name a",
        ),
        (
            {"routes": "*", "rules": [{"name": "a", "decision": "deny", "approver": "client"}]},
            "approver: client is for calls that are held",
        ),
        (
            {"routes": "*", "rules": [{"name": "a", "decision": "hold", "approver": "agent"}]},
            "approver",
        ),
        ({"routes": "*", "effects": {"x": "huge"}}, "effects"),
        ({"routes": "*", "effects": {"[x]": "read"}}, "pattern"),
        ({"routes": " *"}, "pattern"),
        ({"routes": "*", "otherwise": "limit"}, "otherwise"),
    ],
)
def test_what_is_wrong_is_refused(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ActionSpec.model_validate(spec)


@pytest.mark.parametrize(
    ("match", "said"),
    [
        ({}, "says nothing"),
        ({"tools": []}, "at least 1 item"),
        ({"effects": []}, "at least 1 item"),
        ({"arguments": []}, "at least 1 item"),
        ({"tools": "pay", "arguments": []}, "at least 1 item"),
        ({"tools": "pay", "tenants": []}, "at least 1 item"),
        ({"tools": "pay", "apps": []}, "at least 1 item"),
        ({"tools": "pay", "environments": []}, "at least 1 item"),
    ],
)
def test_a_rule_says_which_calls_it_is_about(match: dict[str, Any], said: str) -> None:
    rule = {"name": "a", "decision": "allow", "match": match}
    with pytest.raises(ValidationError, match=said):
        ActionSpec.model_validate({"routes": "*", "otherwise": "deny", "rules": [rule]})


def test_a_rule_that_allows_without_a_match_would_undo_what_holds_otherwise() -> None:
    rule = {"name": "a", "decision": "allow"}
    with pytest.raises(ValidationError, match="allow needs a match"):
        ActionSpec.model_validate({"routes": "*", "otherwise": "deny", "rules": [rule]})


@pytest.mark.parametrize(
    "condition",
    [
        {"path": "$.a"},
        {"path": "a", "above": 1},
        {"path": "$.a", "above": 1, "below": 2},
        {"path": "$.a", "one_of": []},
        {"path": "$.a", "like": [""]},
        {"path": "$.a", "matches": "x"},
    ],
)
def test_a_condition_is_one_test_on_one_path(condition: dict[str, Any]) -> None:
    rule = {"name": "a", "decision": "deny", "match": {"arguments": [condition]}}
    with pytest.raises(ValidationError):
        ActionSpec.model_validate({"routes": "*", "rules": [rule]})


def test_without_documents_there_are_no_rules() -> None:
    assert rules_of([]) is None
