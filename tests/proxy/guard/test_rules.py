"""Rules on calls: the strictest decides, and doubt counts against the call."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.guard.document import Action, rules_of
from proxy.guard.rules import (
    STRICTEST,
    ActionRules,
    CallJudgement,
    RequestedCall,
    Ruling,
    is_sound_name,
)
from trajectory.assembly.effects import SideEffect


def rules(*listed: dict[str, Any], **spec: Any) -> ActionRules:
    document = {
        "apiVersion": "headrace/v1",
        "kind": "Action",
        "metadata": {"name": "test"},
        "spec": {"routes": ["*"], "rules": listed, **spec},
    }
    found = rules_of([Action.model_validate(document)])
    assert found is not None
    return found


def rule(decision: str, name: str = "", **match: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name or decision, "decision": decision, "match": match}
    if decision == "limit":
        found["budget"] = {"calls": 1}
    return found


def told(judgement: CallJudgement) -> str:
    return f"{judgement.ruling}:{judgement.rule.name if judgement.rule else ''}"


def call(tool: str, **arguments: Any) -> RequestedCall:
    return RequestedCall(tool, arguments, tenant="acme", app="shop", environment="prod")


def test_the_strictest_that_matches_decides_whatever_the_order() -> None:
    listed = [rule(one, tools="x") for one in ("allow", "limit", "hold", "deny")]
    for some in (listed, listed[::-1]):
        assert told(rules(*some).judge(call("x"))) == "deny:deny"
    assert told(rules(*listed[:3]).judge(call("x"))) == "hold:hold"
    assert told(rules(*listed[:2]).judge(call("x"))) == "limit:limit"
    assert told(rules(*listed[:1], otherwise="deny").judge(call("x"))) == "allow:allow"
    assert told(rules(*listed[:1], otherwise="deny").judge(call("y"))) == "deny:"


def test_where_one_rule_asks_an_operator_a_client_s_user_does_not_decide() -> None:
    client = {**rule("hold", "client", tools="x"), "approver": "client"}
    operator = rule("hold", "operator", tools="x")
    for some in ((client, operator), (operator, client)):
        assert told(rules(*some).judge(call("x"))) == "hold:operator"
    inner = rule("hold", "operator", tools="y")
    assert told(rules(client, inner).judge(call("x", name="y"))) == "hold:operator"
    assert told(rules(client, otherwise="hold").judge(call("x"))) == "hold:client"


def test_a_rule_on_trial_is_noted_and_changes_nothing() -> None:
    found = rules(rule("dry-run", tools="x"), otherwise="allow").judge(call("x"))
    assert (told(found), [one.name for one in found.watched]) == ("allow:", ["dry-run"])


@pytest.mark.parametrize(
    "tool",
    ["delete_file", "DELETE_FILE", "delete-file", "delete.file", "delete__file", "delete/file"],
)
def test_names_that_a_lenient_server_takes_for_one_are_stopped_as_one(tool: str) -> None:
    assert told(rules(rule("deny", tools="delete_*")).judge(call(tool))) == "deny:deny"
    allowed = rules(rule("allow", tools="delete_file"), otherwise="deny")
    assert told(allowed.judge(call(tool))) == ("allow:allow" if tool == "delete_file" else "deny:")


@pytest.mark.parametrize(
    "name", ["delete_fіle", "delete file", "delete\u200b_file", "", "a\n", "x" * 257]
)
def test_names_that_look_like_others_are_not_sound(name: str) -> None:
    assert not is_sound_name(name)


def test_a_tool_of_unknown_effect_counts_as_any_where_it_stops_and_as_none_where_it_allows() -> (
    None
):
    stops = rules(rule("deny", effects="destructive"), effects={"read_*": "read"})
    assert told(stops.judge(call("odd"))) == "deny:deny"
    assert told(stops.judge(call("read_file"))) == "allow:"
    allows = rules(rule("allow", effects="read"), effects={"read_*": "read"}, otherwise="deny")
    assert told(allows.judge(call("odd"))) == "deny:"
    assert told(allows.judge(call("read_file"))) == "allow:allow"
    known = call("odd")._replace(effect=SideEffect.READ)
    assert told(stops.judge(known)) == "allow:"


def test_calls_within_calls_are_stopped_and_never_allowed() -> None:
    stops = rules(rule("deny", tools="delete_file"))
    for arguments in (
        {"name": "delete_file", "arguments": {"path": "/"}},
        {"steps": [{"tool_name": "Delete-File", "input": {}}]},
        {"request": '{"tool": "delete_file", "args": "{}"}'},
        {"a": {"function": "delete_file"}},
    ):
        assert told(stops.judge(call("run", **arguments))) == "deny:deny"
    allows = rules(rule("allow", tools="read_file"), otherwise="deny")
    assert told(allows.judge(call("run", name="read_file", arguments={}))) == "deny:"


def test_a_person_named_in_arguments_is_no_call_that_is_stopped_for_its_effect() -> None:
    stops = rules(rule("hold", effects=["write", "destructive"]), effects={"find_*": "read"})
    assert told(stops.judge(call("find_person", name="Ada", args={"x": 1}))) == "allow:"


def test_arguments_of_inner_calls_are_compared() -> None:
    above = {"path": "$.amount", "above": 1000}
    stops = rules(rule("deny", tools="transfer", arguments=[above]))
    inner = {"tool": "transfer", "params": {"amount": 5000}}
    assert told(stops.judge(call("batch", calls=[inner]))) == "deny:deny"
    assert told(stops.judge(call("batch", calls=[{**inner, "params": {"amount": 5}}]))) == "allow:"


@pytest.mark.parametrize("first", [True, False])
def test_a_call_cannot_hide_behind_many_values(first: bool) -> None:
    stops = rules(rule("deny", tools="transfer"))
    inner: list[Any] = [{"tool": "transfer"}]
    for many in ([{"a": 1}] * 20_000, [1] * 200_000):
        hidden = [*inner, *many] if first else [*many, *inner]
        assert stops.judge(call("batch", rows=hidden)).ruling is Ruling.DENY
    # Numbers hold no call, however many there are.
    assert told(stops.judge(call("upsert", vectors=[[0.5] * 1_000] * 100))) == "allow:"
    many_rows = call("insert", rows=[{"a": 1}] * 20_000)
    assert stops.judge(many_rows).ruling is Ruling.DENY  # nobody looked through all of it
    assert told(rules(rule("deny", tools="x"), on_failure="pass").judge(many_rows)) == "allow:"


@pytest.mark.parametrize("path", ["$..url", "$.rows[*].url"])
@pytest.mark.parametrize("first", [True, False])
def test_an_argument_cannot_hide_behind_many_others(path: str, first: bool) -> None:
    elsewhere = {"path": path, "other_hosts": "example.com"}
    stops = rules(rule("deny", tools="get", arguments=[elsewhere]), on_failure="pass")
    bad, good = {"url": "https://evil.test"}, {"url": "https://example.com"}
    rows = [bad, *[good] * 12_000] if first else [*[good] * 12_000, bad]
    assert told(stops.judge(call("get", rows=rows))) == "deny:deny"
    lets = rules(
        rule("allow", tools="get", arguments=[{"path": path, "hosts": "example.com"}]),
        otherwise="deny", on_failure="pass",
    )  # fmt: skip
    assert told(lets.judge(call("get", rows=rows))) == "deny:"
    assert told(lets.judge(call("get", rows=[good]))) == "allow:allow"
    # Numbers hold no argument.
    assert told(stops.judge(call("get", rows=[good], data=[0.5] * 200_000))) == "allow:"


def test_whose_call_it_is_narrows_a_rule() -> None:
    found = rules(rule("deny", tenants="acme", apps="shop*", environments="prod"))
    assert told(found.judge(call("x"))) == "deny:deny"
    assert told(found.judge(call("x")._replace(app="other"))) == "allow:"


def test_documents_stand_together_and_the_stricter_word_holds() -> None:
    documents = [
        Action.model_validate(
            {
                "apiVersion": "headrace/v1",
                "kind": "Action",
                "metadata": {"name": "one"},
                "spec": {"routes": "*", "otherwise": otherwise, "on_failure": failure},
            }
        )
        for otherwise, failure in (("allow", "pass"), ("hold", "refuse"))
    ]
    found = rules_of(documents)
    assert found is not None
    assert (found.otherwise, found.passes) == (Ruling.HOLD, False)


SOME = st.sampled_from(["deny", "hold", "limit", "allow", "dry-run"])
TOOLS = st.sampled_from(["read_file", "write_file", "*_file", "send", "*"])
ARGUMENTS = st.dictionaries(
    st.sampled_from(["path", "amount", "name", "args"]),
    st.sampled_from(["/data/a", "/data/../a", "send", 5, 5000, "5000", None, {"name": "send"}]),
)
CONDITIONS = st.sampled_from(
    [
        {},
        {"arguments": [{"path": "$.path", "inside": "/data"}]},
        {"arguments": [{"path": "$.amount", "above": 1000}]},
    ]
)


@given(st.lists(st.tuples(SOME, TOOLS, CONDITIONS), max_size=5), TOOLS, ARGUMENTS)
def test_one_more_rule_that_stops_never_lets_more_through(
    listed: list[tuple[str, str, dict[str, Any]]], tool: str, arguments: dict[str, Any]
) -> None:
    asked = call(tool.replace("*", "x"), **arguments)
    written = [
        rule(decision, f"r{at}", tools=tools, **conditions)
        for at, (decision, tools, conditions) in enumerate(listed)
    ]
    before = rules(*written, otherwise="deny").judge(asked)
    for more in ("deny", "hold", "limit"):
        extra = rule(more, "extra", tools="*")
        after = rules(*written, extra, otherwise="deny").judge(asked)
        if before.rule is not None:
            assert STRICTEST.index(after.ruling) <= STRICTEST.index(before.ruling)
    assert rules(*written[::-1], otherwise="deny").judge(asked).ruling is before.ruling
