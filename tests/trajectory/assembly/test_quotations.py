"""Roots that quote an open trajectory: title makers before and after, hand-offs written out."""

import json
from typing import cast

import pytest

from tests.trajectory.corrections import corrected
from tests.trajectory.world import CLIENT, World, asked, result, said, user
from trajectory.assembly import Assembler, AssemblerState
from trajectory.assembly.quotations import extents
from trajectory.assembly.result import Assembly
from trajectory.call import Call

KEY = b"k" * 32
AGENT = {"role": "system", "content": "You keep the shelves in order."}
OTHER = {"role": "system", "content": "You give money back."}
TASKS = [f"My parcel of bolts arrived broken, I want my money back. Task {n}." for n in range(4)]


def assemble(*calls: Call, restart: bool = False) -> Assembly:
    """Assemble at once, or one call after the other with a restart between."""
    if not restart:
        return Assembler(KEY).assemble(calls)
    assemblies, saved = [], AssemblerState().to_json()
    for call in calls:
        assembler = Assembler(KEY, AssemblerState.from_json(json.loads(json.dumps(saved))))
        assemblies.append(assembler.assemble([call]))
        saved = assembler.state.to_json()
    found = corrected(assemblies)
    return Assembly(tuple(found.placed), (), tuple(found.links), ())


TITLE_PROMPTS = [
    "Write a title of at most five words for this:\n\n{}",
    "Title for: {}",
    "<message>\n{}\n</message>",
    "Name this conversation.\n{}\nAnswer with the name only.",
]


@pytest.mark.parametrize("prompt", TITLE_PROMPTS)
@pytest.mark.parametrize("title_first", [True, False])
@pytest.mark.parametrize("restart", [True, False])
def test_title_makers_of_tasks_that_differ_in_one_word(
    prompt: str, title_first: bool, restart: bool
) -> None:
    world = World()
    titles = [
        world.chat([user(prompt.format(task))], said("A title"), tools=None, seconds=0.1)
        for task in TASKS
    ]
    agents = [world.chat([AGENT, user(task)], asked(f"c{n}")) for n, task in enumerate(TASKS)]
    calls = [*titles, *agents] if title_first else [*agents, *titles]
    found = assemble(*calls, restart=restart)
    of = {item.call.exchange.exchange_id: item for item in found.placed}
    asides = {(link.from_step_id, link.to_step_id) for link in found.links}
    for title, agent in zip(titles, agents, strict=True):
        aside, main = of[title.exchange.exchange_id], of[agent.exchange.exchange_id]
        assert aside.trajectory_id == main.trajectory_id
        assert (main.step_id, aside.step_id) in asides
    assert len({item.trajectory_id for item in found.placed}) == len(TASKS)
    assert {link.kind for link in found.links} == {"auxiliary"}


LONG_ID = "call_9f3c17aa20b84e5591c6"


@pytest.mark.parametrize("restart", [True, False])
def test_a_history_written_out_as_text_is_a_hand_off(restart: bool) -> None:
    world = World()
    first = world.chat([AGENT, user(TASKS[0])], asked(LONG_ID))
    stranger = world.chat([AGENT, user(TASKS[0])], asked("call_0000000000000000000a"))
    history = f'1. user: help\n2. {{"call_id": "{LONG_ID}", "output": "3 boxes"}}'
    failed = world.chat([OTHER, said(history)], None)
    second = world.chat([OTHER, said(history)], said("done"))
    found = assemble(first, stranger, failed, second, restart=restart)
    start, other, attempt, after = found.placed
    assert start.trajectory_id == attempt.trajectory_id == after.trajectory_id
    assert other.trajectory_id != start.trajectory_id
    assert after.retry_of == attempt.step_id
    kinds = {(link.kind, link.from_step_id, link.to_step_id) for link in found.links}
    assert kinds == {
        ("retry", attempt.step_id, after.step_id),
        ("handoff", start.step_id, after.step_id),
    }


def test_a_quotation_under_another_key_is_no_evidence() -> None:
    from dataclasses import replace

    world = World()
    first = world.chat([AGENT, user(TASKS[0])], asked(LONG_ID))
    stranger = replace(CLIENT, key_id="key-2")
    second = world.chat([OTHER, user(f"it said {LONG_ID}")], said("done"), client=stranger)
    found = assemble(first, second)
    assert len({item.trajectory_id for item in found.placed}) == 2


def test_a_failed_first_attempt_leaves_the_quotation_to_its_repetition() -> None:
    world = World()
    title = world.chat([user(f"Title for: {TASKS[1]}")], said("A title"), tools=None, seconds=0.1)
    failed = world.chat([AGENT, user(TASKS[1])], None)
    agent = world.chat([AGENT, user(TASKS[1])], asked("c1"))
    after = world.chat([AGENT, user(TASKS[1]), asked("c1"), result("c1")], said("done"))
    found = assemble(title, failed, agent, after)
    assert len({item.trajectory_id for item in found.placed}) == 1
    assert [item.role_in_graph for item in found.placed] == [
        "auxiliary",
        "discarded",
        "agent",
        "agent",
    ]


def test_extents_are_bounded() -> None:
    assert extents("short") == []
    assert len(extents("a: b\n\n" + "word " * 5000)) <= 6


def test_a_state_of_the_first_version_is_read() -> None:
    world = World()
    assembler = Assembler(KEY)
    first = world.chat([AGENT, user(TASKS[0])], asked("c1"))
    assembler.assemble([first])
    for node in assembler.state.trajectories.values():
        node.settled = True  # as all were before facts were kept
    assembler.state.facts.clear()
    saved = assembler.state.to_json()
    saved["version"] = 1
    rows: list[list[object]] = saved["trajectories"]  # type: ignore[assignment]
    for row in rows:
        at = next(
            n
            for n, field in enumerate(row)
            if isinstance(field, list) and field and isinstance(field[0], list)
        )
        row[at] = row[at][0][1:]  # type: ignore[index]
        del row[-2]  # where names hold
        for step in cast(list[list[object]], row[-1]):
            del step[13]  # the conversation at the provider
    again = Assembler(KEY, AssemblerState.from_json(json.loads(json.dumps(saved))))
    title = world.chat([user(f"Title for: {TASKS[0]}")], said("A title"), tools=None)
    assert again.assemble([title]).placed[0].role_in_graph == "auxiliary"


ORDERS = "Count the files in this folder and report back in one sentence, please."


@pytest.mark.parametrize(
    ("own", "parent"),
    [
        ("x-headrace-session", "x-headrace-parent"),
        ("x-session-id", "x-parent-session-id"),
        ("x-claude-code-session-id", "x-claude-code-parent-session-id"),
    ],
)
def test_a_sub_agent_that_names_the_session_above_it(own: str, parent: str) -> None:
    world = World()
    arguments = json.dumps({"prompt": ORDERS})
    start = [AGENT, user(TASKS[0])]
    first = world.chat(start, asked("c1", "task", arguments), headers={own: "main"})
    beside = world.chat([AGENT, user("something else")], said("x"), headers={own: "main"})
    helper = world.chat([OTHER, user(ORDERS)], said("3"), headers={own: "sub", parent: "main"})
    free = world.chat([OTHER, user("Go.")], said("3"), headers={own: "sub2", parent: "main"})
    found = assemble(first, beside, helper, free)
    placed = {item.call.exchange.exchange_id: item for item in found.placed}
    ids = [placed[call.exchange.exchange_id] for call in (first, beside, helper, free)]
    assert len({item.trajectory_id for item in ids}) == 3
    links = {(link.kind, link.from_step_id, link.to_step_id) for link in found.links}
    assert links == {
        ("subagent_call", ids[0].step_id, ids[2].step_id),
        ("subagent_call", ids[1].step_id, ids[3].step_id),
    }


def test_a_sub_agent_within_one_named_session_is_linked_to_its_orders() -> None:
    world = World()
    named = {"x-claude-code-session-id": "s"}
    arguments = json.dumps({"prompt": ORDERS})
    first = world.chat([AGENT, user(TASKS[0])], asked("c1", "task", arguments), headers=named)
    helper = world.chat([OTHER, user(ORDERS)], said("3"), headers=named)
    found = assemble(first, helper)
    assert len({item.trajectory_id for item in found.placed}) == 1
    assert [link.kind for link in found.links] == ["subagent_call"]
