"""Recorded tools answer what was recorded, to the same tenant, and nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.evaluation.environment import (
    MissedCallError,
    RecordedCall,
    RecordedTools,
    canonical,
    has_missed,
    recorded_calls,
    replay_environment,
)
from train.evaluation.replay_env import Follower, RecordedPath

ARGUMENTS = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4)
TOOL = {"type": "function", "function": {"name": "price", "parameters": {"type": "object"}}}


def call(arguments: dict[str, Any], answer: str, tool: str = "price") -> RecordedCall:
    return RecordedCall(tool, canonical(arguments), answer)


@given(ARGUMENTS)
def test_arguments_match_whatever_their_order(arguments: dict[str, Any]) -> None:
    recorded = RecordedTools([("acme", call(arguments, "12"))])
    turned = dict(reversed(arguments.items()))
    assert recorded.answer("acme", "price", turned) == "12"


@pytest.mark.parametrize(
    ("tenant", "tool", "arguments"),
    [("umbra", "price", {"n": 1}), ("acme", "stock", {"n": 1}), ("acme", "price", {"n": "1"})],
)
def test_anything_else_is_a_miss(tenant: str, tool: str, arguments: dict[str, Any]) -> None:
    recorded = RecordedTools([("acme", call({"n": 1}, "12"))])
    with pytest.raises(MissedCallError):
        recorded.answer(tenant, tool, arguments)


def test_the_most_frequent_answer_is_served_and_ambiguity_is_counted() -> None:
    answers = ["busy", "12", "12", "13", "13"]
    recorded = RecordedTools([("acme", call({"n": 1}, answer)) for answer in answers])
    assert recorded.answer("acme", "price", {"n": 1}) == "12"
    assert (len(recorded), recorded.ambiguous) == (1, 1)


def test_calls_are_matched_to_answers_by_id_also_in_parallel() -> None:
    calls = [
        {"id": name, "function": {"name": "price", "arguments": {"n": number}}}
        for number, name in enumerate("abc")
    ]
    messages = [
        {"role": "user", "content": "three prices"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": "two"},
        {"role": "tool", "tool_call_id": "a", "content": "zero"},
        {"role": "assistant", "content": "done"},
    ]
    assert recorded_calls(messages) == [call({"n": 2}, "two"), call({"n": 0}, "zero")]


def test_environment_remembers_a_miss_until_it_is_reset() -> None:
    recorded = RecordedTools([("acme", call({"n": 1}, "12"))])
    world = environment(recorded, TOOL)()
    world.reset(tenant="acme")
    assert (world.price(n=1), has_missed(world)) == ("12", False)
    with pytest.raises(MissedCallError) as caught:
        world.price(n="a secret")
    assert "secret" not in str(caught.value)
    assert has_missed(world)
    world.reset(tenant="acme")
    assert not has_missed(world)


def environment(recorded: RecordedTools, *tools: dict[str, Any]) -> type:
    def begin(row: Any) -> Follower:
        return Follower(row.get("paths", ()), recorded, tenant=row["tenant"])

    return replay_environment(begin, tools)


def test_a_tool_that_changes_what_another_reads_answers_as_it_did() -> None:
    """A file is read, edited, and read again: the same call, answered in the recorded order."""
    calls = [
        call({"path": "a.py"}, "old", "read"),
        call({"path": "a.py"}, "done", "edit"),
        call({"path": "a.py"}, "new", "read"),
    ]
    recorded = RecordedTools([("acme", one) for one in [calls[0], *calls]])
    path = RecordedPath(tuple((one,) for one in calls), "It is mended.", True)
    tools = [{"type": "function", "function": {"name": name}} for name in ("read", "edit")]
    world = environment(recorded, *tools)()
    world.reset(tenant="acme", paths=[path])
    assert [world.read(path="a.py"), world.edit(path="a.py")] == ["old", "done"]
    assert world.read(path="a.py") == "new"
    assert recorded.ambiguous == 1


def test_tools_may_be_called_what_they_are() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("tenant", "missed")]
    recorded = RecordedTools([("acme", call({}, "Mrs. Smith", "tenant"))])
    world = environment(recorded, *tools)()
    world.reset(tenant="acme")
    assert world.tenant() == "Mrs. Smith"


@pytest.mark.parametrize("name", ["reset", "get_reward", "_hidden"])
def test_names_that_the_trainer_keeps_for_itself_are_refused(name: str) -> None:
    tool = {"type": "function", "function": {"name": name}}
    with pytest.raises(ValueError, match=name):
        environment(RecordedTools([]), tool)
