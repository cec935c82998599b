"""Implicit signals, rule by rule."""

import json
import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from tests.trajectory.world import World, asked, result, said, user
from trajectory.assembly import Assembler, AssemblerState
from trajectory.assembly.signals import SIGNAL_RULES, harvest
from trajectory.call import Call
from trajectory.dialects.registry import read_exchange
from trajectory.exchange import ExchangeOutcome

KEY = b"k" * 32


def signals(*calls: Call) -> list[tuple[Any, ...]]:
    """Return name, value, confidence and the position of the step that each signal is about."""
    assembler = Assembler(KEY)
    assembly = assembler.assemble(calls)
    places = {item.step_id: position for position, item in enumerate(assembly.placed)}
    found = harvest(assembler, assembly)
    assert found == harvest(assembler, assembly)
    ids = [item.feedback.feedback_id for item in found]
    assert len(set(ids)) == len(ids)
    return [
        (body["name"], body["value"], body["confidence"], places[item.step_id or ""])
        for item in found
        if (body := item.feedback.body)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", []),
        ("Error: no such file", [("tool_error", 1.0, 0.6, 0)]),
        ("3 passed, 1 failed in 2s", [("test_run", 0.75, 0.9, 0)]),
        ("ok\nProcess exited with code 0", [("test_run", 1.0, 0.7, 0)]),
        ("exit_code: 2", [("test_run", 0.0, 0.7, 0)]),
        ("Process returned with code 3", []),
        ("return code: 1", [("test_run", 0.0, 0.7, 0)]),
        ('{"exit_code": 0, "stdout": "built"}', [("test_run", 1.0, 0.7, 0)]),
        ("test result: ok. 8 passed; 2 failed; 0 ignored", [("test_run", 0.8, 0.9, 0)]),
        ("1 passed, 1 failed\n4 passed, 0 failed", [("test_run", 1.0, 0.9, 0)]),
        ("Ran 4 tests in 0.01s\n\nOK", [("test_run", 1.0, 0.9, 0)]),
        ("Ran 4 tests in 0.01s\n\nFAILED (failures=1, errors=1)", [("test_run", 0.5, 0.9, 0)]),
        ("ok  \tgo/a\t0.2s\nFAIL\tgo/b\t0.1s", [("test_run", 0.5, 0.9, 0)]),
        ("Traceback (most recent call last):\n ...", [("tool_error", 1.0, 0.6, 0)]),
        ("Error rate: 0.2 %", []),
        ("errors: none", []),
        ("3 items passed to the next station", []),
        ("the exit code book", []),
        ("a note about 404 errors that passed by", []),
    ],
)
def test_tool_results(text: str, expected: list[Any]) -> None:
    world = World()
    opening = [user("do it")]
    first = world.chat(opening, asked("c1"))
    second = world.chat([*opening, asked("c1"), result("c1", text)], said("done"))
    assert signals(first, second) == expected


def test_a_failed_dispatch_is_told_to_the_step_that_asked() -> None:
    world = World()
    first = world.chat([user("do it")], asked("c1"))
    tool = world.tool("add", {"a": 1, "b": 2}, "x", status=500)
    assert signals(first, tool) == [("tool_error", 1.0, 1.0, 0)]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("No, that is not it", "correction"),
        ("It doesn't work", "correction"),
        ("I meant the other one", "correction"),
        ("that's wrong", "correction"),
        ("You forgot the accent", "correction"),
        ("No thanks, that is all", None),
        ("No, thank you", None),
        ("no problem at all", None),
        ("That is not bad", None),
        ("Northern France, please", None),
        ("What is the capital of Spain?", None),
        ("ok", None),
        ("what is the capital of  France?", "repeated_question"),
        ("Thanks! Now the next one", None),
        ("Nothing else", None),
    ],
)
def test_what_a_person_says_next(words: str, name: str | None) -> None:
    world = World()
    opening = [user("What is the capital of France?")]
    first = world.chat(opening, said("Lyon"))
    second = world.chat([*opening, said("Lyon"), user(words)], said("Paris"))
    found = signals(first, second)
    assert [(item[0], item[3]) for item in found] == ([(name, 0)] if name else [])


def test_retry_abandonment_truncation_and_edits() -> None:
    world = World()
    opening = [user("Tell me a story")]
    failed = world.cut_stream(opening, "On")
    cut = world.cut_stream(opening, "Once", outcome=ExchangeOutcome.CLIENT_ABORT)
    assert signals(failed, cut) == [("retry", 1.0, 1.0, 0), ("abandoned", 1.0, 0.5, 1)]
    first = world.chat(opening, said("Once upon a time"))
    second = world.chat([*opening, said("Twice upon a time"), user("go on")], said("x"))
    assert signals(first, second) == [("edited_output", 1.0, 0.7, 0)]


def test_a_flagged_tool_error_is_certain_and_a_good_result_is_none() -> None:
    world = World()
    opening = [{"role": "user", "content": [{"type": "text", "text": "do it"}]}]
    call = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}
    answers = [{"type": "tool_result", "tool_use_id": "c1", "content": "no"}]
    first = anthropic(world, opening, call)
    for flagged in (True, False):
        told = {"role": "user", "content": [{**answers[0], "is_error": flagged}]}
        said_so = {"role": "assistant", "content": [call]}
        second = anthropic(world, [*opening, said_so, told], {"type": "text", "text": "done"})
        assert signals(first, second) == ([("tool_error", 1.0, 1.0, 0)] if flagged else [])


def anthropic(world: World, messages: list[dict[str, Any]], block: dict[str, Any]) -> Call:
    answer = {
        "id": f"msg_{next(world.responses)}", "type": "message", "role": "assistant", "model": "m",
        "content": [block], "stop_reason": "end_turn", "usage": {},
    }  # fmt: skip
    request = {"model": "m", "max_tokens": 9, "messages": messages}
    return read_exchange(world.exchange("/v1/messages", request, answer))


def batches(*parts: Sequence[Call]) -> list[list[tuple[Any, ...]]]:
    """Return per batch name, value, step, id and what is superseded, with a restart after each."""
    saved, found = AssemblerState().to_json(), []
    for calls in parts:
        assembler = Assembler(KEY, AssemblerState.from_json(json.loads(json.dumps(saved))))
        feedback = harvest(assembler, assembler.assemble(calls))
        saved = assembler.state.to_json()
        found.append([
            (one.feedback.body["name"], one.feedback.body.get("value"), one.step_id,
             one.feedback.feedback_id, one.feedback.body.get("supersedes"))
            for one in feedback
        ])  # fmt: skip
    return found


def in_force(parts: Iterable[Sequence[Call]]) -> list[tuple[Any, ...]]:
    """Return name, value and step of the signals that no later one takes back."""
    said = [signal for batch in batches(*parts) for signal in batch]
    names = [signal[3] for signal in said]
    assert len(set(names)) == len(names)
    superseded = {signal[4] for signal in said if signal[4] is not None}
    assert superseded <= set(names)
    return sorted(
        signal[:3] for signal in said if signal[3] not in superseded and signal[4] is None
    )


def test_an_abandoned_answer_that_is_asked_for_again_later_is_taken_back() -> None:
    world = World()
    opening = [user("Hello"), said("Hi"), user("Tell me a story")]
    first = world.chat(opening[:1], said("Hi"))
    cut = world.cut_stream(opening, "Once", outcome=ExchangeOutcome.CLIENT_ABORT)
    again = world.chat(opening, said("Once upon a time"))
    (abandoned,), second = batches([first, cut], [again])
    assert abandoned[:2] == ("abandoned", 1.0)
    retried = {name: (value, step, replaced) for name, value, step, _, replaced in second}
    assert retried["retry"][:2] == (1.0, abandoned[2])
    assert retried["abandoned"] == (None, abandoned[2], abandoned[3])
    assert in_force([[first, cut], [again]]) == in_force([[first, cut, again]])


def test_an_answer_that_ended_is_not_abandoned_and_a_new_question_is_no_retry() -> None:
    world = World()
    opening = [user("Tell me a story")]
    first = world.chat(opening, said("Once upon a time"))
    second = world.chat([*opening, said("Once upon a time"), user("more")], said("The end"))
    assert signals(first, second) == []


def test_a_client_that_hangs_up_at_the_last_word_has_not_abandoned_the_answer() -> None:
    """OpenAI's SDK closes at ``[DONE]``, before the end of the body."""
    world = World()
    opening = [user("Tell me a story")]
    ended = world.ended_stream(opening, "Once", outcome=ExchangeOutcome.CLIENT_ABORT)
    assert ended.finish_reason == "stop"
    assert signals(ended) == []


@pytest.mark.parametrize(
    ("resent", "edited"),
    [
        ("Twice upon a time", True),
        ("Once upon a time", False),
        ("  Once upon a time\n", False),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_an_edited_answer_is_seen_across_batches_too(
    resent: str, edited: bool, together: bool
) -> None:
    world = World()
    opening = [user("Tell me a story")]
    first = world.chat(opening, said("Once upon a time"))
    second = world.chat([*opening, said(resent), user("go on")], said("x"))
    found = batches([first, second]) if together else batches([first], [second])
    names = [name for batch in found for name, *_ in batch]
    assert names == (["edited_output"] if edited else [])


def test_an_answer_that_was_dropped_is_not_an_edited_one() -> None:
    world = World()
    opening = [user("Tell me a story"), said("Once"), user("longer")]
    first = world.chat(opening, said("Once upon a time"))
    second = world.chat([*opening, user("and shorter")], said("x"))
    assert signals(first, second) == []


def test_truncation_needs_the_token_limit() -> None:
    world = World()
    whole = world.chat([user("Tell me a story")], said("The end"))
    assert signals(whole) == []
    limit = {
        "id": "c", "model": "m",
        "choices": [{"index": 0, "message": said("Once upo"), "finish_reason": "length"}],
    }  # fmt: skip
    request = {"model": "m", "messages": [user("Tell me another")]}
    cut = read_exchange(world.exchange("/v1/chat/completions", request, limit))
    assert signals(cut) == [("truncated", 1.0, 1.0, 0)]


def test_rules_have_names_versions_and_confidences() -> None:
    assert len({rule.name for rule in SIGNAL_RULES}) == len(SIGNAL_RULES)
    for rule in SIGNAL_RULES:
        assert rule.version
        assert 0 < rule.confidence <= 1
        assert rule.source_kind in ("rule", "human_implicit")


def conversation(world: World) -> list[Call]:
    """Return the calls of a conversation that shows something of nearly every kind."""
    told = [user("What is the capital of France?"), asked("c1")]
    calls = [world.chat(told[:1], asked("c1"))]
    for number, text in enumerate(("Error: no such tool", "3 passed, 1 failed", "fine"), 1):
        told.append(result(f"c{number}", text))
        calls.append(world.chat(told, asked(f"c{number + 1}")))
        told.append(asked(f"c{number + 1}"))
    told.append(result("c4", "Process exited with code 0"))
    calls.append(world.cut_stream(told, "Ly", outcome=ExchangeOutcome.CLIENT_ABORT))
    calls.append(world.chat(told, said("Lyon")))
    told += [said("Lyon"), user("No, that is not it")]
    calls.append(world.chat(told, said("Marseille")))
    told += [said("Marseille"), user("what is the capital of  France?")]
    calls.append(world.chat(told, said("Paris")))
    story = [user("Tell me a story of the sea")]
    calls.append(world.chat(story, said("Once upon a time")))
    story += [said("Twice upon a time"), user("Go on, please")]
    calls.append(world.chat(story, said("There was a fish")))
    left = [user("Tell me all about mountains")]
    calls.append(world.cut_stream(left, "The", outcome=ExchangeOutcome.CLIENT_ABORT))
    return calls


@pytest.mark.parametrize("seed", range(12))
def test_late_and_repeated_calls_give_the_same_signals_as_sorted_ones(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 (no secret)
    calls = conversation(World())
    wanted = in_force([calls])
    assert {name for name, _, _ in wanted} >= {
        "tool_error", "test_run", "retry", "correction", "repeated_question", "edited_output",
        "abandoned",
    }  # fmt: skip
    late = [*calls, *dice.sample(calls, 3)]
    dice.shuffle(late)
    cuts = sorted(dice.sample(range(1, len(late)), dice.randint(2, len(late) - 1)))
    parts = [late[a:b] for a, b in zip([0, *cuts], [*cuts, len(late)], strict=True)]
    assert in_force(parts) == wanted
    assert in_force([[one] for one in reversed(calls)]) == wanted
