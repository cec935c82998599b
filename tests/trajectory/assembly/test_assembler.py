"""What assembly makes of scripted sessions."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.trajectory.world import CLIENT, SYSTEM, World, asked, result, said, user
from trajectory.assembly import Assembler, AssemblerState
from trajectory.assembly.result import Assembly, PlacedCall
from trajectory.call import Call
from trajectory.errors import IntegrityError
from trajectory.exchange import feedback_name

KEY = b"k" * 32


def assemble(*calls: Call) -> tuple[PlacedCall, ...]:
    return Assembler(KEY).assemble(calls).placed


def conversation(placed: tuple[PlacedCall, ...], step: PlacedCall) -> list[object]:
    """Rebuild the context of a step from deltas, as the lake does."""
    if step.parent_step_id is None:
        return list(step.new_messages)
    parent = next(item for item in placed if item.step_id == step.parent_step_id)
    whole = conversation(placed, parent)
    if parent.call.output is not None:
        whole.append(parent.call.output)
    return [*whole[: step.context_keep], *step.new_messages]


def test_a_two_step_loop_is_one_trajectory_and_stores_only_the_difference() -> None:
    world = World()
    opening = [SYSTEM, user("add 1 and 2")]
    first = world.chat(opening, asked("c1"))
    second = world.chat([*opening, asked("c1"), result("c1")], said("3"))
    placed = assemble(first, second)
    assert placed[0].trajectory_id == placed[1].trajectory_id
    assert placed[1].parent_step_id == placed[0].step_id
    assert (placed[1].step_index, placed[1].branch, placed[1].context_keep) == (1, 0, 3)
    assert [message.role for message in placed[1].new_messages] == ["tool"]
    assert (placed[0].key_source, placed[1].key_source) == ("none", "prefix")
    assert conversation(placed, placed[1]) == list(second.context)


def test_respaced_arguments_and_a_rerendered_system_prompt_do_not_hide_the_parent() -> None:
    world = World()
    opening = [SYSTEM, user("add")]
    first = world.chat(opening, asked("c1", arguments='{"a": 1, "b": 2}'))
    changed = [{"role": "system", "content": "It is noon."}, user("add")]
    again = asked("c1", arguments='{"b":2,"a":1}')
    second = world.chat([*changed, again, result("c1")], said("3"))
    placed = assemble(first, second)
    assert placed[1].parent_step_id == placed[0].step_id
    assert placed[1].context_keep == 0
    assert conversation(placed, placed[1]) == list(second.context)


def test_an_edited_answer_still_finds_its_parent_and_nothing_is_lost() -> None:
    world = World()
    opening = [SYSTEM, user("add")]
    first = world.chat(opening, {**asked("c1"), "content": "thinking aloud"})
    second = world.chat([*opening, asked("c1"), result("c1")], said("3"))
    placed = assemble(first, second)
    assert placed[1].parent_step_id == placed[0].step_id
    assert placed[1].context_keep == 2
    assert conversation(placed, placed[1]) == list(second.context)


def test_attempts_at_one_task_are_trajectories_of_one_group() -> None:
    world = World()
    opening = [SYSTEM, user("add")]
    calls = [world.chat(opening, asked(f"c{n}")) for n in range(3)]
    calls += [world.chat([*opening, asked(f"c{n}"), result(f"c{n}")], said("3")) for n in (2, 0, 1)]
    placed = assemble(*calls)
    assert len({item.trajectory_id for item in placed}) == 3
    assert len({item.group_id for item in placed}) == 1
    parents = [item.parent_step_id for item in placed[3:]]
    assert parents == [placed[2].step_id, placed[0].step_id, placed[1].step_id]
    assert all(item.duplicate_of is None for item in placed)


def test_an_sdk_retry_joins_the_failed_attempt_that_it_repeats() -> None:
    world = World()
    opening = [SYSTEM, user("add")]
    headers = [{"x-stainless-retry-count": str(n)} for n in range(3)]
    failed_a = world.chat(opening, None, headers=headers[0])
    failed_b = world.chat(opening, None, headers=headers[0])
    fresh = world.chat(opening, asked("c0"), headers=headers[0])
    failed_again = world.chat(opening, None, headers=headers[1])
    good = world.chat(opening, asked("c1"), headers=headers[2])
    placed = assemble(failed_a, failed_b, fresh, failed_again, good)
    assert [item.role_in_graph for item in placed] == [
        "discarded",
        "discarded",
        "agent",
        "discarded",
        "agent",
    ]
    assert placed[2].retry_of is None
    assert placed[3].retry_of == placed[1].step_id
    assert placed[4].retry_of == placed[3].step_id
    assert placed[4].trajectory_id == placed[1].trajectory_id != placed[2].trajectory_id
    assert placed[4].branch == 0


def test_an_application_repeats_a_call_whose_stream_was_cut() -> None:
    world = World()
    opening = [SYSTEM, user("add")]
    first = world.chat(opening, asked("c1"))
    longer = [*opening, asked("c1"), result("c1")]
    cut = world.cut_stream(longer, "The an")
    again = world.chat(longer, said("The answer is 3"))
    assembly = Assembler(KEY).assemble([first, cut, again])
    placed = assembly.placed
    assert placed[1].role_in_graph == "discarded"
    assert placed[2].retry_of == placed[1].step_id
    assert placed[2].parent_step_id == placed[1].parent_step_id == placed[0].step_id
    assert placed[2].branch == 0
    assert [link.kind for link in assembly.links] == ["retry"]


def test_the_same_response_twice_is_a_duplicate() -> None:
    world = World()
    opening = [SYSTEM, user("add")]
    calls = [world.chat(opening, asked("c1"), response_id="r1") for _ in range(2)]
    placed = assemble(*calls)
    assert placed[1].duplicate_of == placed[0].step_id
    assert placed[1].trajectory_id == placed[0].trajectory_id


def test_a_tool_dispatch_joins_the_step_that_asked_for_it() -> None:
    world = World()
    opening = [SYSTEM, user("add")]
    calls = [world.chat(opening, asked(f"c{n}", name="mcp__calc__add")) for n in range(2)]
    tools = [world.tool("add", {"b": 2, "a": 1}, "3", session=f"s{n}") for n in range(2)]
    strange = world.tool("add", {"a": 5}, "5", session="elsewhere")
    assembly = Assembler(KEY).assemble([*calls, *tools, strange])
    placed = assembly.placed
    assert {placed[2].trajectory_id, placed[3].trajectory_id} == {
        placed[0].trajectory_id,
        placed[1].trajectory_id,
    }
    assert placed[2].key_source == "tool_call"
    assert placed[2].step_index == 1
    assert [link.kind for link in assembly.links] == ["tool_dispatch", "tool_dispatch"]
    assert placed[4].key_source == "client:mcp-session-id"
    assert placed[4].parent_step_id is None


def test_another_key_or_tenant_is_never_joined() -> None:
    world = World()
    opening = [SYSTEM, user("add")]
    first = world.chat(opening, asked("c1"))
    longer = [*opening, asked("c1"), result("c1")]
    for other in (replace(CLIENT, tenant_id="other"), replace(CLIENT, key_id="key-2")):
        second = world.chat(longer, said("3"), client=other)
        tool = world.tool("add", {"a": 1, "b": 2}, "3", client=other)
        placed = assemble(first, second, tool)
        assert len({item.trajectory_id for item in placed}) == 3


def test_a_session_header_beats_the_prefix() -> None:
    world = World()
    opening = [SYSTEM, user("add")]
    first = world.chat(opening, said("a"), headers={"x-headrace-session": "one"})
    other = world.chat([user("else")], said("b"), headers={"x-headrace-session": "one"})
    longer = [*opening, said("a"), user("go on")]
    resumed = world.chat(longer, said("c"), headers={"x-headrace-session": "two"})
    assembly = Assembler(KEY).assemble([first, other, resumed])
    placed = assembly.placed
    assert placed[0].trajectory_id == placed[1].trajectory_id != placed[2].trajectory_id
    assert {item.key_source for item in placed} == {"header:x-headrace-session"}
    assert [link.kind for link in assembly.links] == ["prefix"]
    assert placed[2].context_keep == 0
    known = placed[0].trajectory_id
    assert [item.source_trajectory_id for item in placed] == [None, None, known]


def test_a_fork_counts_up_and_is_linked() -> None:
    world = World()
    opening = [SYSTEM, user("hello")]
    first = world.chat(opening, said("hi"))
    left = world.chat([*opening, said("hi"), user("left")], said("l"))
    right = world.chat([*opening, said("hi"), user("right")], said("r"))
    assembly = Assembler(KEY).assemble([first, left, right])
    assert [item.branch for item in assembly.placed] == [0, 0, 1]
    assert [link.kind for link in assembly.links] == ["fork"]


def test_feedback_finds_its_step_also_batches_later() -> None:
    world = World()
    call = world.chat([user("add")], said("3"), response_id="r-9")
    assembler = Assembler(KEY)
    placed = assembler.assemble([call]).placed[0]
    state = AssemblerState.from_json(assembler.state.to_json())
    later = Assembler(KEY, state).assemble(
        [],
        [
            world.feedback("response", "r-9"),
            world.feedback("response", "unknown"),
            world.feedback("step", placed.step_id),
            world.feedback("step", call.exchange.exchange_id),
            world.feedback("trajectory", placed.trajectory_id),
            world.feedback("response", "r-9", client=replace(CLIENT, tenant_id="other")),
            world.feedback("step", placed.step_id, client=replace(CLIENT, tenant_id="other")),
        ],
    )
    found = [(item.trajectory_id, item.step_id) for item in later.feedback]
    here = (placed.trajectory_id, placed.step_id)
    assert found == [
        here,
        (None, None),
        here,
        here,
        (placed.trajectory_id, None),
        (None, None),
        (None, None),
    ]


def test_of_feedback_under_one_name_the_first_stands_and_unnamed_counts_from_the_last() -> None:
    world = World()
    call = world.chat([user("add")], said("3"), response_id="r-9")
    first, later = world.feedback("response", "r-9"), world.feedback("response", "r-9")
    again = replace(later, feedback_id=first.feedback_id, body={"name": "success", "value": 0.0})
    made = feedback_name(CLIENT.tenant_id, "response", "r-9", first.body)
    up = replace(world.feedback("response", "r-9"), feedback_id=made)
    down = world.feedback("response", "r-9")
    anew = replace(world.feedback("response", "r-9"), feedback_id=made)
    found = Assembler(KEY).assemble([call], [anew, again, down, up, first])
    assert [one.feedback for one in found.feedback] == [first, down, anew]


def test_feedback_on_a_response_stays_with_the_application_that_gives_it() -> None:
    world = World()
    other = replace(CLIENT, app_id="other", key_id="key-2")
    judge = replace(CLIENT, app_id="judge", key_id="key-3")
    own = world.chat([user("add")], said("3"), response_id="chatcmpl-7")
    beside = world.chat([user("sing")], said("la"), response_id="chatcmpl-7", client=other)
    found = Assembler(KEY).assemble(
        [own, beside],
        [world.feedback("response", "chatcmpl-7", client=one) for one in (CLIENT, other, judge)],
    )
    first, second = found.placed
    # One who judges with a key of its own means the latest.
    assert [one.step_id for one in found.feedback] == [
        first.step_id,
        second.step_id,
        second.step_id,
    ]


def test_the_state_holds_no_content_and_forgets_what_rests() -> None:
    world = World()
    assembler = Assembler(KEY, AssemblerState(idle_seconds=5, max_trajectories=3))
    calls = [world.chat([user(f"secret-{n}")], asked(f"c{n}", "find")) for n in range(9)]
    assembler.assemble(calls)
    assert len(assembler.state.trajectories) == 3
    text = repr(assembler.state.to_json())
    for word in ("secret", "find", "acme", "key-1", "'c8'"):
        assert word not in text


def test_a_clock_that_was_ahead_once_ends_no_later_conversation() -> None:
    world = World()
    assembler = Assembler(KEY, AssemblerState(idle_seconds=60))
    early = world.chat([user("once")], said("yes"))
    year = timedelta(days=365)
    leapt = replace(
        early.exchange,
        started_at=early.exchange.started_at + year,
        ended_at=early.exchange.started_at + year,
    )
    assembler.assemble([replace(early, exchange=leapt)])
    told, found = [user("add")], set[str]()
    for turn in range(3):
        (placed,) = assembler.assemble([world.chat(told, said(str(turn)))]).placed
        found.add(placed.trajectory_id)
        told = [*told, said(str(turn)), user("more")]
    assert len(found) == 1


def test_so_many_calls_are_remembered_whatever_their_trajectories() -> None:
    world = World()
    state = AssemblerState(max_calls=12, max_steps=3)
    assembler = Assembler(KEY, state)
    for talk in range(6):  # those of five calls are settled: their latest steps are kept alone
        told = [user(f"task {talk}")]
        for turn in range(5 if talk % 2 else 2):
            assembler.assemble([world.chat(told, said(f"{talk} {turn}"))])
            told = [*told, said(f"{talk} {turn}"), user(f"more {turn}")]
            held = [node for node in state.trajectories.values() if node.settled]
            assert len(state.facts) + sum(len(node.steps) for node in held) <= 12
    assert [len(node.steps) for node in state.trajectories.values()] == [2, 3, 2, 3]


def released(call: Call) -> Call:
    """Return a call as a release from quarantine brings it again."""
    name = call.exchange.exchange_id
    return replace(
        call, exchange=replace(call.exchange, exchange_id="f" + name[1:], released_of=name)
    )


def test_a_released_call_has_the_step_and_the_place_of_the_held_one() -> None:
    world = World()
    told, calls = [user("task")], []
    for turn in range(3):
        calls.append(world.chat(told, said(str(turn))))
        told = [*told, said(str(turn)), user(f"more {turn}")]
    for batches in ([calls], [[one] for one in calls], []):
        assembler = Assembler(KEY)
        before = [one for batch in batches for one in assembler.assemble(batch).placed]
        for number, call in enumerate(calls):
            (placed,) = assembler.assemble([released(call)]).placed
            assert placed.call.exchange.exchange_id != call.exchange.exchange_id
            if before:
                assert replace(placed, call=call) == before[number]
            again = Assembler(KEY, AssemblerState.from_json(assembler.state.to_json()))
            assert again.assemble([released(call)]).placed == (placed,)


def test_a_released_call_of_a_settled_trajectory_repeats_nobody() -> None:
    world = World()
    state = AssemblerState(max_steps=3)
    assembler = Assembler(KEY, state)
    told, calls, before = [user("task")], [], []
    for turn in range(5):
        calls.append(world.chat(told, said(str(turn))))
        before += assembler.assemble(calls[-1:]).placed
        told = [*told, said(str(turn)), user(f"more {turn}")]
    (node,) = state.trajectories.values()
    assert node.settled
    for call, held in zip(calls, before, strict=True):
        (placed,) = assembler.assemble([released(call)]).placed
        assert (placed.step_id, placed.trajectory_id) == (held.step_id, held.trajectory_id)
        assert (placed.parent_step_id, placed.step_index) == (held.parent_step_id, held.step_index)
        assert (placed.retry_of, placed.duplicate_of) == (None, None)
    assert [*state.trajectories.values()] == [node]
    names = [step.step_id for step in node.steps]
    assert len(names) == len(set(names))


def responses(
    world: World,
    given: list[dict[str, object]] | str,
    output: list[dict[str, object]],
    name: str,
    **more: object,
) -> Call:
    from trajectory.dialects.registry import read_exchange

    request = {"model": "m", "input": given, "instructions": "Be kind.", **more}
    answer = {"id": name, "model": "m", "status": "completed", "output": output}
    return read_exchange(world.exchange("/v1/responses", request, answer))


FUNCTION_CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'}
FUNCTION_RESULT = {"type": "function_call_output", "call_id": "c1", "output": "3"}
ANSWER = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "It is 3", "annotations": []}],
}


def test_responses_go_on_by_resending_or_by_naming_the_response_before() -> None:
    world = World()
    first = responses(world, "add", [FUNCTION_CALL], "resp_1")
    whole = responses(
        world,
        [{"role": "user", "content": "add"}, FUNCTION_CALL, FUNCTION_RESULT],
        [ANSWER],
        "resp_2",
    )
    named = responses(world, [FUNCTION_RESULT], [ANSWER], "resp_3", previous_response_id="resp_1")
    after = responses(
        world,
        [{"role": "user", "content": "thanks"}],
        [ANSWER],
        "resp_4",
        previous_response_id="resp_3",
    )
    for second in (whole, named):
        placed = assemble(first, second)
        assert placed[1].parent_step_id == placed[0].step_id
        assert placed[1].context_keep == 3
        assert [message.role for message in placed[1].new_messages] == ["tool"]
    placed = assemble(first, named, after)
    assert placed[2].parent_step_id == placed[1].step_id
    assert placed[2].context_keep == 5
    assert placed[2].key_source == "previous_response_id"
    assert [m.role for m in conversation(placed, placed[2])] == [  # type: ignore[attr-defined]
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]


def summary(assembly: Assembly) -> list[object]:
    return [replace(item, call=None) for item in assembly.placed]  # type: ignore[arg-type]


def test_a_saved_state_does_not_change_when_the_assembler_goes_on() -> None:
    world = World()
    opening = [user("What is the capital of France, please?")]
    assembler = Assembler(KEY)
    assembler.assemble([world.chat(opening, asked("c1"), headers={"x-session-id": "s"})])
    saved = assembler.state.to_json()
    before = repr(saved)
    Assembler(KEY, AssemblerState.from_json(saved)).assemble(
        [
            world.tool("add", {"a": 1, "b": 2}, "3"),
            world.chat(
                [*opening, asked("c1"), result("c1")], said("3"), headers={"traceparent": TRACE}
            ),
        ]
    )
    assembler.assemble([world.tool("add", {"a": 1, "b": 2}, "3", session="other")])
    assert repr(saved) == before


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    "value", [{"version": 0}, {"version": 2}, {"version": 2, "trajectories": [[1]]}]
)
def test_a_damaged_state_is_named(value: dict[str, object]) -> None:
    with pytest.raises(IntegrityError, match="assembly state"):
        AssemblerState.from_json(value)  # type: ignore[arg-type]
    assert AssemblerState.from_json({}).trajectories == {}


def test_equal_tool_calls_go_to_the_step_that_has_ended() -> None:
    world = World()
    opening = [SYSTEM, user("add")]
    ended = world.chat(opening, asked("c0", name="add"), seconds=0.5)
    streaming = world.chat(opening, asked("c1", name="add"), seconds=1.5)
    used = world.tool("add", {"a": 1, "b": 2}, "3")
    placed = {item.call.exchange.exchange_id: item for item in assemble(ended, streaming, used)}
    of_ended = placed[ended.exchange.exchange_id]
    assert placed[used.exchange.exchange_id].parent_step_id == of_ended.step_id


def test_a_tool_may_run_while_the_answer_is_still_streaming() -> None:
    world = World()
    streaming = world.chat([SYSTEM, user("add")], asked("c1", name="add"), seconds=9.0)
    used = world.tool("add", {"a": 1, "b": 2}, "3")
    first, second = assemble(streaming, used)
    assert second.parent_step_id == first.step_id
