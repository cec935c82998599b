"""Implicit signals, rule by rule."""

from typing import Any

import pytest

from tests.trajectory.world import World, asked, result, said, user
from trajectory.assembly import Assembler
from trajectory.call import Call
from trajectory.exchange import ExchangeOutcome
from trajectory.signals import SIGNAL_RULES, harvest

KEY = b"k" * 32


def signals(*calls: Call) -> list[tuple[Any, ...]]:
    """Return name, value, confidence and the position of the step that each signal is about."""
    assembly = Assembler(KEY).assemble(calls)
    places = {item.step_id: position for position, item in enumerate(assembly.placed)}
    found = harvest(assembly)
    assert found == harvest(assembly)
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


def test_rules_have_names_versions_and_confidences() -> None:
    assert len({rule.name for rule in SIGNAL_RULES}) == len(SIGNAL_RULES)
    for rule in SIGNAL_RULES:
        assert rule.version
        assert 0 < rule.confidence <= 1
        assert rule.source_kind in ("rule", "human_implicit")
