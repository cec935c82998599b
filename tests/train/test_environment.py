"""Recorded tools answer what was recorded, to the same tenant, and nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.environment import (
    MissedCallError,
    RecordedCall,
    RecordedTools,
    canonical,
    recorded_calls,
    replay_environment,
)

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
    world = replay_environment(recorded, [TOOL])()
    world.reset(tenant="acme")
    assert (world.price(n=1), world.missed) == ("12", False)
    with pytest.raises(MissedCallError) as caught:
        world.price(n="a secret")
    assert "secret" not in str(caught.value)
    assert world.missed
    world.reset(tenant="acme")
    assert not world.missed


@pytest.mark.parametrize("name", ["reset", "get_reward", "_hidden", "missed", "tenant"])
def test_names_that_the_trainer_keeps_for_itself_are_refused(name: str) -> None:
    tool = {"type": "function", "function": {"name": name}}
    with pytest.raises(ValueError, match=name):
        replay_environment(RecordedTools([]), [tool])
