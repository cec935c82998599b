"""An episode is answered as the record was, and the first step off it is told without its values."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.evaluation.environment import MissedCallError, RecordedCall, RecordedTools, canonical
from train.evaluation.replay_env import DivergentCall, Follower, RecordedPath, recorded_path


def call(n: int, answer: str, tool: str = "price") -> RecordedCall:
    return RecordedCall(tool, canonical({"n": n}), answer)


def path(*turns: tuple[RecordedCall, ...], rewarded: bool = True) -> RecordedPath:
    return RecordedPath(turns, "done", rewarded)


def follower(*paths: RecordedPath, elsewhere: tuple[RecordedCall, ...] = ()) -> Follower:
    recorded = RecordedTools(("acme", one) for one in elsewhere)
    return Follower(paths, recorded, tenant="acme")


def test_the_same_call_is_answered_as_often_as_it_was_and_in_that_order() -> None:
    tools = follower(path((call(1, "busy"),), (call(1, "12"),)))
    assert [tools.call("price", {"n": 1}) for _ in range(2)] == ["busy", "12"]
    tools.close()
    assert (tools.calls, tools.diverged) == (2, None)


@given(st.permutations([1, 2, 3]))
def test_calls_of_one_message_may_come_in_any_order(order: list[int]) -> None:
    tools = follower(path(tuple(call(n, str(n)) for n in (1, 2, 3)), (call(4, "last"),)))
    assert [tools.call("price", {"n": n}) for n in (*order, 4)] == [*map(str, order), "last"]
    assert tools.diverged is None


def test_the_attempt_that_was_rewarded_answers_first() -> None:
    tools = follower(path((call(1, "wrong"),), rewarded=False), path((call(1, "right"),)))
    assert tools.call("price", {"n": 1}) == "right"


def test_any_recorded_attempt_may_be_followed() -> None:
    tools = follower(path((call(1, "a"),), (call(2, "b"),)), path((call(1, "c"),), (call(3, "d"),)))
    assert [tools.call("price", {"n": n}) for n in (1, 3)] == ["a", "d"]
    assert tools.diverged is None
    with pytest.raises(MissedCallError):
        tools.call("price", {"n": 2})
    assert tools.diverged == DivergentCall(2, "further_call")


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("a secret", {"n": 1}, DivergentCall(0, "tool", "price")),
        ("price", {"n": 2}, DivergentCall(0, "arguments", "price", ("n",))),
        ("price", {"n": 1, "a secret": 0}, DivergentCall(0, "arguments", "price")),
        ("price", {}, DivergentCall(0, "arguments", "price", ("n",))),
    ],
)
def test_the_first_divergence_names_tool_and_arguments_not_values(
    tool: str, arguments: dict[str, Any], expected: DivergentCall
) -> None:
    tools = follower(path((call(1, "12"),)))
    with pytest.raises(MissedCallError):
        tools.call(tool, arguments)
    assert tools.diverged == expected


def test_what_was_recorded_elsewhere_answers_after_a_divergence_which_stays_the_first() -> None:
    tools = follower(path((call(1, "12"),)), elsewhere=(call(2, "24"), call(3, "36")))
    assert [tools.call("price", {"n": n}) for n in (2, 3)] == ["24", "36"]
    tools.close()
    assert tools.diverged == DivergentCall(0, "arguments", "price", ("n",))


def test_an_answer_before_the_recorded_calls_is_a_divergence() -> None:
    tools = follower(path((call(1, "12"),)))
    tools.close()
    assert tools.diverged == DivergentCall(0, "answered_early")
    either = follower(path((call(1, "12"),)), path())
    either.close()
    assert either.diverged is None


def asked(*numbers: int) -> dict[str, Any]:
    calls = [{"id": f"c{n}", "function": {"name": "price", "arguments": {"n": n}}} for n in numbers]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def told(n: int, *, by_id: bool = True) -> dict[str, Any]:
    answer = {"role": "tool", "content": str(n)}
    return {**answer, "tool_call_id": f"c{n}"} if by_id else answer


SAID = {"role": "assistant", "content": "done"}


def test_a_path_is_read_turn_by_turn_whatever_the_order_of_answers() -> None:
    found = recorded_path([asked(1, 2), told(2), told(1), asked(3), told(3), SAID], rewarded=True)
    assert found == path((call(1, "1"), call(2, "2")), (call(3, "3"),))
    without = recorded_path(
        [asked(1, 2), told(1, by_id=False), told(2, by_id=False), SAID], rewarded=True
    )
    assert without == path((call(1, "1"), call(2, "2")))


def test_a_call_without_an_answer_is_no_path_and_a_talk_that_goes_on_has_no_last_words() -> None:
    assert recorded_path([asked(1)], rewarded=True) is None
    assert recorded_path([asked(1, 2), told(1), SAID], rewarded=True) is None
    more = [SAID, {"role": "user", "content": "and?"}, SAID]
    assert recorded_path(more, rewarded=True) == RecordedPath((), None, True)


def test_a_tool_that_does_not_exist_is_an_error_to_the_model_and_no_unknown() -> None:
    """As in training: the model is told so, and its episode goes on."""
    recorded = RecordedTools([("acme", call(1, "12"))])
    tools = Follower([path((call(1, "12"),))], recorded, tenant="acme", names=["price"])
    assert tools.call("prices", {"n": 1}) == "{'error': 'Tool prices not found.'}"
    assert tools.diverged == DivergentCall(0, "tool", "price")
    assert tools.call("price", {"n": 1}) == "12"
    with pytest.raises(MissedCallError):
        tools.call("price", {"n": 2})
