"""Playing a recording: any order, repeated requests, and the first place where a run leaves it."""

import re

import pytest

from trajectory.dialects.writer import ModelAnswer
from trajectory.message import Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from trajectory.replay import (
    Player,
    RecordedAnswer,
    RecordedTool,
    ReplayComparison,
    ReplayDivergence,
    TrajectoryRecording,
)

SYSTEM = Message("system", (TextPart("Today is Monday."),))
USER = Message("user", (TextPart("Add 1 and 2 for <EMAIL_ADDRESS_0a1b2c>"),))
ASKED = Message("assistant", (ToolCallPart("c1", "add", {"a": 1, "b": 2}),))
TOLD = Message("tool", (ToolResultPart("c1", "3"),))
DONE = Message("assistant", (TextPart("It is 3."),))
MARK = re.compile(r"<[A-Z_]+_[0-9a-f]{6}>")
RECORDING = TrajectoryRecording(
    "t",
    (
        RecordedAnswer("s0", 0, (SYSTEM, USER), ModelAnswer(ASKED, "r0", "m")),
        RecordedAnswer("s2", 1, (SYSTEM, USER, ASKED, TOLD), ModelAnswer(DONE, "r1", "m")),
    ),
    (RecordedTool("s1", "add", {"a": 1, "b": 2}, {"content": []}),),
)


def player(**options: bool) -> Player:
    return Player(RECORDING, ReplayComparison(mark=MARK), **options)


def step(found: RecordedAnswer | RecordedTool | ReplayDivergence) -> str | None:
    return found.step_id


def test_a_run_like_the_recorded_one_is_identical() -> None:
    play = player()
    other_day = Message("developer", (TextPart("Today is Tuesday."),))
    thinking = Message("assistant", (ReasoningPart("hm"), *ASKED.parts))
    assert step(play.answer((other_day, USER))) == "s0"
    assert not play.complete
    assert step(play.tool("add", {"b": 2, "a": 1})) == "s1"
    assert step(play.answer((USER, thinking, TOLD))) == "s2"
    assert play.complete
    report = play.report()
    assert report.identical
    assert (report.model_answers, report.tool_answers, report.unasked) == (2, 1, ())


def test_a_repeated_request_gets_the_same_answer() -> None:
    play = player()
    assert step(play.answer((USER,))) == step(play.answer((USER,))) == "s0"
    assert play.report().unasked == ("s2", "s1")
    assert not play.diverged


def test_a_mark_stands_for_what_was_redacted() -> None:
    play = player()
    raw = Message("user", (TextPart("Add 1 and 2 for ann@example.org"),))
    assert step(play.answer((raw,))) == "s0"
    assert isinstance(
        play.answer((Message("user", (TextPart("Add 1 and 3 for x"),)),)), ReplayDivergence
    )


@pytest.mark.parametrize(
    ("context", "where", "expected", "came"),
    [
        ((USER, ASKED, Message("tool", (ToolResultPart("c1", "4"),))),
         "messages[2].tool_result.content", "3", "4"),
        ((USER, Message("assistant", (ToolCallPart("c1", "add", {"a": 9, "b": 2}),)), TOLD),
         "messages[1].tool_calls[0].arguments.a", 1, 9),
        ((USER, ASKED, TOLD, DONE, USER), "messages[3]", "(nothing)",
         {"role": "assistant", "text": "It is 3."}),
    ],
)  # fmt: skip
def test_the_first_difference_is_named(
    context: tuple[Message, ...], where: str, expected: object, came: object
) -> None:
    play = player()
    play.answer((USER,))
    found = play.answer(context)
    assert isinstance(found, ReplayDivergence)
    assert (found.kind, found.step_id, found.where) == ("model", "s2", where)
    assert (found.expected, found.came) == (expected, came)
    assert play.report().divergence == found


def test_only_the_first_divergence_is_reported() -> None:
    play = player()
    first = play.tool("add", {"a": 1, "b": 3})
    play.tool("remove", {})
    assert isinstance(first, ReplayDivergence)
    assert (first.where, first.expected, first.came) == ("arguments.b", 2, 3)
    assert play.report().divergence == first


def test_requests_beyond_the_recording_and_an_early_end() -> None:
    play = player()
    play.answer((USER,))
    play.answer((USER, ASKED, TOLD))
    play.tool("add", {"a": 1, "b": 2})
    assert play.report().identical
    more = play.answer((USER, ASKED, TOLD, DONE, USER))
    assert isinstance(more, ReplayDivergence)
    assert more.step_id is None
    early = player()
    early.answer((USER,))
    ended = early.report().divergence
    assert ended is not None
    assert (ended.kind, ended.step_id) == ("ended", "s2")


def test_what_is_asked_for_real_is_not_missed() -> None:
    swapped = player(models=False)
    swapped.tool("add", {"a": 1, "b": 2})
    assert swapped.report().identical
    live = Player(RECORDING, ReplayComparison(blind_to_results=True), tools=False)
    live.answer((USER,))
    live.answer((USER, ASKED, Message("tool", (ToolResultPart("c1", "another"),))))
    assert live.report().identical


def test_a_response_that_is_named_brings_its_conversation() -> None:
    assert player().earlier("r0") == (SYSTEM, USER, ASKED)
    assert player().earlier("unknown") is None
