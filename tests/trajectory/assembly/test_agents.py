"""Sub-agents side by side, asynchronous ones, compactions, conversations, sessions of several apps."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.trajectory.corrections import corrected
from tests.trajectory.world import CLIENT, World, asked, result, said, user
from trajectory.assembly import Assembler, AssemblerState
from trajectory.assembly.result import Assembly, PlacedCall
from trajectory.call import Call
from trajectory.dialects.registry import read_exchange

KEY = b"k" * 32
THREADS = [f"019f0000-0000-7000-8000-00000000000{n}" for n in range(3)]
AGENT = {"role": "system", "content": "You are a coding agent."}
HELPER = {"role": "system", "content": "You explore."}


def orders(number: int) -> str:
    return (
        f"Explore part number {number} of the repository and report every place where the word"
        f" lamp{number} or table{number} or chair{number} is used in detail."
    )


def assemble(*calls: Call) -> Assembly:
    return Assembler(KEY).assemble(calls)


def by_call(assembly: Assembly, *calls: Call) -> list[PlacedCall]:
    placed = {item.call.exchange.exchange_id: item for item in assembly.placed}
    return [placed[call.exchange.exchange_id] for call in calls]


def links(assembly: Assembly) -> set[tuple[str, str, str]]:
    return {(link.kind, link.from_step_id, link.to_step_id) for link in assembly.links}


def spawning(*numbers: int, name: str = "task") -> dict[str, Any]:
    calls = [
        {
            "id": f"call_main_{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps({"prompt": orders(number)})},
        }
        for number in numbers
    ]
    return {"role": "assistant", "content": "I start.", "tool_calls": calls}


@pytest.mark.parametrize("headers", [{"x-claude-code-session-id": "s"}, {}], ids=["named", "not"])
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(("late", "batch"), [(None, 10), (59, 59), (58, 60)])
def test_sub_agents_of_many_steps_do_not_cut_the_main_agent_off(
    headers: dict[str, str], restart: bool, late: int | None, batch: int
) -> None:
    world = World()
    opening = [AGENT, user("Refactor the whole shop so that prices come from the new service.")]
    start = spawning(0, 1, 2)
    calls = [world.chat(opening, start, headers=headers)]
    talks = [[HELPER, user(orders(number))] for number in range(3)]
    for turn in range(30):
        for number, talk in enumerate(talks):
            name = f"call_sub_{number}_{turn}"
            answer = said(f"Found {number}.") if turn == 29 else asked(name, "bash")
            calls.append(world.chat(talk, answer, headers=headers))
            talk += [answer, result(name, f"{number} {turn}")]
    told = [result(f"call_main_{number}", f"Found {number}.") for number in range(3)]
    calls.append(world.chat([*opening, start, *told], said("Done."), headers=headers))
    thanks = [*opening, start, *told, said("Done."), user("thanks, now a test")]
    calls.append(world.chat(thanks, said("Added."), headers=headers))
    if late is not None:  # one call comes behind the two that began after it
        calls[late - 1 : late + 2] = [*calls[late : late + 2], calls[late - 1]]
    placed: list[PlacedCall] = []
    state = AssemblerState()
    for at in range(0, len(calls), batch):
        placed += Assembler(KEY, state).assemble(calls[at : at + batch]).placed
        if restart:
            state = AssemblerState.from_json(json.loads(json.dumps(state.to_json())))
    first, done, added = placed[0], placed[-2], placed[-1]
    assert (done.parent_step_id, added.parent_step_id) == (first.step_id, done.step_id)
    assert len({item.trajectory_id for item in placed}) == 1


def test_open_ends_of_one_trajectory_are_bounded_too() -> None:
    world = World()
    state = AssemblerState(max_steps=4)
    assembler = Assembler(KEY, state)
    for number in range(100):
        headers = {"x-headrace-session": "s"}
        assembler.assemble([world.chat([user(f"q {number}")], said("a"), headers=headers)])
    (node,) = state.trajectories.values()
    assert len(node.steps) == 4 + 4 * 16


@pytest.mark.parametrize("headers", [{"session-id": "s"}, {}], ids=["named", "not"])
def test_sub_agents_that_begin_after_their_order_was_confirmed_are_joined(
    headers: dict[str, str],
) -> None:
    world = World()
    opening = [AGENT, user("Count all the lamps and chairs in this repository for me, please.")]
    first = world.chat(opening, spawning(0), headers=headers)
    told = [*opening, spawning(0), result("call_main_0", '{"agent_id": "a"}')]
    second = world.chat(told, spawning(1), headers=headers)
    left = world.chat([HELPER, user(orders(0))], said("l"), headers=headers)
    told = [*told, spawning(1), result("call_main_1", '{"agent_id": "b"}')]
    third = world.chat(told, asked("call_wait", "wait"), headers=headers)
    right = world.chat([HELPER, user(orders(1))], said("r"), headers=headers)
    found = assemble(first, second, left, third, right)
    one, two, sub_left, three, sub_right = by_call(found, first, second, left, third, right)
    assert {
        ("subagent_call", one.step_id, sub_left.step_id),
        ("subagent_call", two.step_id, sub_right.step_id),
    } <= links(found)
    assert len({item.trajectory_id for item in found.placed}) == 1
    assert three.parent_step_id == two.step_id


@pytest.mark.parametrize(
    ("main", "sub"),
    [
        (
            {"session-id": "s", "thread-id": THREADS[1]},
            {"session-id": "s", "thread-id": THREADS[2], "x-codex-parent-thread-id": THREADS[1]},
        ),
        (
            {"session-id": "s", "thread-id": THREADS[1]},
            {"session-id": "s", "thread-id": THREADS[2], "x-openai-subagent": "review"},
        ),
        (
            {"x-claude-code-session-id": "s"},
            {"x-claude-code-session-id": "s", "x-claude-code-agent-id": "a"},
        ),
    ],
    ids=["codex", "codex-review", "claude-code"],
)
def test_a_sub_agent_that_only_headers_name_is_linked_to_the_step_that_waits(
    main: dict[str, str], sub: dict[str, str]
) -> None:
    world = World()
    opening = [AGENT, user("Look at it.")]
    first = world.chat(opening, asked("c1", "spawn"), headers=main)
    helper = world.chat([HELPER, user("Go.")], asked("c2", "bash"), headers=sub)
    longer = [HELPER, user("Go."), asked("c2", "bash"), result("c2")]
    after = world.chat(longer, said("It is fine."), headers=sub)
    cut = world.chat([HELPER, user("On.")], said("Fine."), headers=sub)
    again = world.chat([*opening, asked("c1", "spawn"), result("c1")], said("x"), headers=main)
    found = assemble(first, helper, after, cut, again)
    one, two, three, _, last = by_call(found, first, helper, after, cut, again)
    assert len({item.trajectory_id for item in found.placed}) == 1
    assert [link for link in found.links if link.kind == "subagent_call"] == [
        link
        for link in found.links
        if (link.from_step_id, link.to_step_id) == (one.step_id, two.step_id)
    ]
    assert ("subagent_call", one.step_id, two.step_id) in links(found)
    assert (three.parent_step_id, last.parent_step_id) == (two.step_id, one.step_id)


def test_a_sub_agent_of_a_thread_without_a_session_is_linked() -> None:
    world = World()
    first = world.chat(
        [AGENT, user("Look.")], asked("c1", "spawn"), headers={"thread-id": THREADS[1]}
    )
    named = {"thread-id": THREADS[2], "x-codex-parent-thread-id": THREADS[1]}
    helper = world.chat([HELPER, user("Go.")], said("x"), headers=named)
    found = assemble(first, helper)
    one, two = by_call(found, first, helper)
    assert links(found) == {("subagent_call", one.step_id, two.step_id)}


@pytest.mark.parametrize("vendor", ["acme", "a-b2", "claude-code"])
def test_any_vendor_s_parent_session_is_a_parent_and_no_name(vendor: str) -> None:
    world = World()
    own, parent = f"x-{vendor}-session-id", f"x-{vendor}-parent-session-id"
    first = world.chat([AGENT, user("go")], said("ok"), headers={own: "P"})
    subs = [
        world.chat([HELPER, user(f"look {n}")], said("x"), headers={parent: "P", own: f"C{n}"})
        for n in range(2)
    ]
    found = assemble(first, *subs)
    placed = by_call(found, first, *subs)
    assert len({item.trajectory_id for item in placed}) == 3
    assert links(found) == {("subagent_call", placed[0].step_id, one.step_id) for one in placed[1:]}


def claude(
    world: World,
    messages: list[Any],
    content: list[Any],
    name: str,
    *,
    billing: str = "",
    **more: Any,
) -> Call:
    system: list[Any] = [{"type": "text", "text": "You are Claude Code."}]
    if billing:
        head = f"x-anthropic-billing-header: cc_version=2.1.197.{billing}; cc_entrypoint=cli;"
        system.insert(0, {"type": "text", "text": head})
    body = {"model": "m", "max_tokens": 9, "system": system, "messages": messages, **more}
    answer = {
        "id": name,
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": content,
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    return read_exchange(world.exchange("/v1/messages", body, answer))


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_a_vendor_s_billing_header_makes_no_other_harness_and_no_hand_off() -> None:
    world = World()
    summary = (
        "The user wants the prices of the shop to be read from the new service; the files cart.py"
        " and order.py were changed, tests are still to be written for both of them."
    )
    opening = user("Read the prices of the shop from the new service, please.")
    first = claude(world, [opening], [text("Done so far.")], "m1", billing="abc")
    history = [opening, {"role": "assistant", "content": [text("Done so far.")]}]
    told = [*history, user("Summarise the conversation.")]
    compact = claude(world, told, [text(summary)], "m2", billing="abc")
    after = claude(world, [user(summary), user("Go on.")], [text("Yes.")], "m3", billing="0f1")
    assert first.context[0] == after.context[0]
    assert json.dumps(first.context[0].to_json()).count("billing") == 0
    assert (
        first.ext["billing"]
        == "x-anthropic-billing-header: cc_version=2.1.197.abc; cc_entrypoint=cli;"
    )
    found = assemble(first, compact, after)
    one, two, three = by_call(found, first, compact, after)
    assert links(found) == {("compaction", two.step_id, three.step_id)}
    assert [item.role_in_graph for item in (one, two, three)] == ["agent", "compaction", "agent"]


def test_a_summary_comes_back_without_the_analysis_before_it() -> None:
    world = World()
    analysis = "The user first asked for prices, which took three files and two runs of the tests. "
    summary = "The prices of the shop are read from the new service now, tests are to be written."
    opening = user("Read the prices of the shop from the new service, please.")
    first = claude(world, [opening], [text("Done so far.")], "m1", billing="abc")
    told = [opening, {"role": "assistant", "content": [text("Done so far.")]}]
    said = f"<analysis>{analysis * 9}</analysis>\n\n<summary>{summary}</summary>"
    compact = claude(world, [*told, user("Summarise.")], [text(said)], "m2", billing="abc")
    again = user(f"This session is being continued.\n\nSummary:\n{summary}\n\nResume directly.")
    after = claude(world, [again, user("Go on.")], [text("Yes.")], "m3", billing="0f1")
    found = assemble(first, compact, after)
    _, two, three = by_call(found, first, compact, after)
    assert links(found) == {("compaction", two.step_id, three.step_id)}
    assert two.role_in_graph == "compaction"


def cited(words: str) -> list[Any]:
    source = {"type": "web_search_result_location", "cited_text": words, "url": "https://x"}
    return [text("I read: "), {"type": "text", "text": words, "citations": [source]}, text(" So.")]


def searched(words: str) -> list[Any]:
    name = f"srvtoolu_{words}"
    found = {"type": "web_search_result", "title": words, "url": "https://x"}
    return [
        {"type": "server_tool_use", "id": name, "name": "web_search", "input": {"query": words}},
        {"type": "web_search_tool_result", "tool_use_id": name, "content": [found]},
    ]


@pytest.mark.parametrize("content", [cited, searched])
def test_attempts_that_differ_in_cited_text_or_searches_go_on_each_from_its_own(
    content: Any,
) -> None:
    world = World()
    question = user("Who won the cup last year? Search the web for it.")
    attempts = [claude(world, [question], content(team), team) for team in ("red", "blue")]
    goes_on = [
        claude(
            world,
            [question, {"role": "assistant", "content": content(team)}, user("By how much?")],
            [text(team)],
            f"{team} 2",
        )
        for team in ("red", "blue")
    ]
    found = assemble(*attempts, *goes_on)
    red, blue, red_2, blue_2 = by_call(found, *attempts, *goes_on)
    assert (red_2.parent_step_id, blue_2.parent_step_id) == (red.step_id, blue.step_id)
    assert red.trajectory_id != blue.trajectory_id


def conversation_turn(
    world: World, given: Any, output: Any, name: str, conversation: Any = "conv_1", **more: Any
) -> Call:
    body = {"model": "m", "instructions": "Be kind.", "input": given, **more}
    body["conversation"] = conversation
    answer = {"id": name, "model": "m", "status": "completed", "output": [output]}
    return read_exchange(world.exchange("/v1/responses", body, answer))


def test_turns_of_a_conversation_go_on_from_each_other() -> None:
    world = World()
    asks = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'}
    words = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "3"}],
    }
    told = {"type": "function_call_output", "call_id": "c1", "output": "3"}
    first = conversation_turn(world, "one plus two?", asks, "r1")
    other = conversation_turn(world, "something else", words, "r2", "conv_2")
    second = conversation_turn(world, [told], words, "r3", {"id": "conv_1"})
    third = conversation_turn(world, [user("and four?")], words, "r4")
    found = assemble(first, other, second, third)
    one, two, three, four = by_call(found, first, other, second, third)
    assert (three.parent_step_id, four.parent_step_id) == (one.step_id, three.step_id)
    assert [item.step_index for item in (one, three, four)] == [0, 1, 2]
    assert one.trajectory_id == four.trajectory_id != two.trajectory_id
    assert (four.context_keep, four.context_is_delta) == (5, True)
    assert {item.key_source for item in (three, four)} == {"client:conversation"}


@pytest.mark.parametrize("restart", [False, True])
def test_equal_session_names_of_two_apps_are_two_sessions(restart: bool) -> None:
    world = World()
    other = replace(CLIENT, app_id="other", key_id="key-2")
    staging = replace(CLIENT, environment="staging", key_id="key-3")
    again = replace(CLIENT, key_id="key-4")
    headers = {"x-session-id": "42"}
    calls = [
        world.chat([user(f"question {n}")], said("x"), headers=headers, client=client)
        for n, client in enumerate((CLIENT, other, staging, again))
    ]
    assembler = Assembler(KEY)
    placed = list(assembler.assemble(calls[:3]).placed)
    if restart:
        state = AssemblerState.from_json(json.loads(json.dumps(assembler.state.to_json())))
        assembler = Assembler(KEY, state)
    feedback = [world.feedback("session", "42", client=c) for c in (CLIENT, other, staging)]
    assembly = assembler.assemble(calls[3:], feedback)
    placed += assembly.placed
    trajectories = [item.trajectory_id for item in placed]
    assert len(set(trajectories[:3])) == 3
    assert trajectories[3] == trajectories[0]
    assert [item.trajectory_id for item in assembly.feedback] == trajectories[:3]
    assert len({item.session_hint for item in placed[:3]}) == 3


def test_a_trace_and_a_parent_may_lead_from_app_to_app() -> None:
    world = World()
    other = replace(CLIENT, app_id="other", key_id="key-2")
    trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    first = world.chat([user("a")], said("x"), headers={**trace, "x-headrace-session": "s"})
    second = world.chat([user("b")], said("x"), headers=trace, client=other)
    named = {"x-headrace-session": "t", "x-headrace-parent": "s"}
    third = world.chat([user("c")], said("x"), headers=named, client=other)
    found = assemble(first, second, third)
    one, two, three = by_call(found, first, second, third)
    assert one.trajectory_id == two.trajectory_id != three.trajectory_id
    assert any(
        link.kind == "subagent_call" and link.to_step_id == three.step_id for link in found.links
    )


def test_feedback_of_another_app_is_not_about_this_one_s_session() -> None:
    world = World()
    judge = replace(CLIENT, app_id="judge", key_id="key-9")
    call = world.chat([user("a")], said("x"), headers={"x-session-id": "42"})
    assembly = Assembler(KEY).assemble([call], [world.feedback("session", "42", client=judge)])
    (found,) = assembly.feedback
    assert found.trajectory_id is None
    assert found.target not in (None, assembly.placed[0].session_hint)


def test_parallel_tool_calls_that_share_an_index_stay_apart() -> None:
    def chunk(*calls: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": {"tool_calls": list(calls)}, "finish_reason": finish}
        return (
            b"data: "
            + json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode()
            + b"\n\n"
        )

    def part(name: str, arguments: str, index: int = 0) -> dict[str, Any]:
        function = {"name": name, "arguments": arguments}
        return {"index": index, "id": f"fn-{name}", "type": "function", "function": function}

    rest = {"index": 0, "function": {"arguments": "2}"}}
    body = chunk(part("a", '{"x": 1}')) + chunk(part("b", '{"y": ')) + chunk(rest)
    body += chunk(part("c", "{}", 1), finish="tool_calls")
    request = {"model": "m", "stream": True, "messages": [user("hi")]}
    call = read_exchange(World().exchange("/v1/chat/completions", request, body))
    assert call.output is not None
    found = [(one.call_id, one.arguments) for one in call.output.tool_calls()]
    assert found == [("fn-a", {"x": 1}), ("fn-b", {"y": 2}), ("fn-c", {})]


def test_equal_response_ids_of_two_apps_are_two_responses() -> None:
    world = World()
    other = replace(CLIENT, app_id="other", key_id="key-2")
    words = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "3"}],
    }

    def turn(given: str, name: str, client: Any, **more: Any) -> Call:
        body = {"model": "m", "input": given, **more}
        answer = {"id": name, "model": "m", "status": "completed", "output": [words]}
        return read_exchange(world.exchange("/v1/responses", body, answer, client=client))

    first = turn("one plus two?", "resp_7", CLIENT)
    beside = turn("something else", "resp_7", other)
    second = turn("and four?", "resp_8", CLIENT, previous_response_id="resp_7")
    found = assemble(first, beside, second)
    one, two, three = by_call(found, first, beside, second)
    assert three.parent_step_id == one.step_id
    assert three.trajectory_id != two.trajectory_id


def test_a_conversation_goes_on_with_another_key_of_its_app() -> None:
    world = World()
    words = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "3"}],
    }
    first = conversation_turn(world, "one plus two?", words, "r1")
    answer = {"id": "r2", "model": "m", "status": "completed", "output": [words]}
    body = {"model": "m", "input": "and four?", "conversation": "conv_1"}
    client = replace(CLIENT, key_id="key-2")
    second = read_exchange(world.exchange("/v1/responses", body, answer, client=client))
    one, two = by_call(assemble(first, second), first, second)
    assert two.parent_step_id == one.step_id


def test_a_header_that_counts_threads_names_no_session() -> None:
    world = World()
    calls = [
        world.chat([user(f"question {n} about lamps")], said("x"), headers={"thread-id": "7"})
        for n in range(2)
    ]
    placed = assemble(*calls).placed
    assert len({item.trajectory_id for item in placed}) == 2


def helped(world: World, headers: dict[str, str], apart: dict[str, str]) -> list[Call]:
    """A main agent with two sub-agents of two steps each, whose results come back at once."""
    opening = [AGENT, user("Refactor the whole shop so that prices come from the new service.")]
    start = spawning(0, 1)
    calls = [world.chat(opening, start, headers=headers)]
    for number in range(2):
        talk = [HELPER, user(orders(number))]
        own = {name: value.format(number) for name, value in apart.items()}
        calls.append(world.chat(talk, asked(f"call_sub_{number}", "bash"), headers=own))
        talk += [asked(f"call_sub_{number}", "bash"), result(f"call_sub_{number}", "x")]
        calls.append(world.chat(talk, said(f"Found {number}."), headers=own))
    told = [result(f"call_main_{number}", f"Found {number}.") for number in range(2)]
    return [*calls, world.chat([*opening, start, *told], said("Done."), headers=headers)]


@pytest.mark.parametrize(
    ("headers", "apart"),
    [
        ({"x-claude-code-session-id": "s"}, {"x-claude-code-session-id": "s"}),
        ({}, {}),
        ({"x-session-id": "s"}, {"x-session-id": "t{}", "x-parent-session-id": "s"}),
    ],
    ids=["one session", "nameless", "sessions of their own"],
)
@pytest.mark.parametrize("late", [None, 1, 2, 4])
def test_a_sub_agents_last_answer_returns_to_who_asked(
    headers: dict[str, str], apart: dict[str, str], late: int | None
) -> None:
    calls = helped(World(), headers, apart)
    first, _, left, _, right, done = calls
    batches = [calls] if late is None else [calls[:late] + calls[late + 1 :], [calls[late]]]
    assembler = Assembler(KEY)
    found = [assembler.assemble(batch) for batch in batches]
    links_now = {
        (link.kind, link.from_step_id)
        for link in corrected(found).links
        if link.to_step_id == by_exchange(found, done)
    }
    assert links_now == {
        ("subagent_return", by_exchange(found, left)),
        ("subagent_return", by_exchange(found, right)),
    }
    assert by_exchange(found, first) not in {name for _, name in links_now}


def by_exchange(found: list[Assembly], call: Call) -> str:
    (step,) = {
        item.step_id
        for one in found
        for item in one.placed
        if item.call.exchange.exchange_id == call.exchange.exchange_id
    }
    return step


REFUNDS = {"role": "system", "content": "You are the refund agent."}


@pytest.mark.parametrize("tool", ["transfer_to_refunds", "handoff_to_refunds", "look_up"])
@pytest.mark.parametrize("other", [REFUNDS, AGENT], ids=["another prompt", "the same prompt"])
def test_a_hand_off_within_a_conversation_is_a_link(tool: str, other: dict[str, Any]) -> None:
    world = World()
    turns = [user("I want my money back, please."), asked("call_1", tool), result("call_1", "{}")]
    calls = [
        world.chat([AGENT, turns[0]], turns[1]),
        world.chat([other, *turns], said("What is the number of your order?")),
        world.chat([other, *turns, said("What is the number of your order?"), user("7")], said("Done.")),
    ]  # fmt: skip
    found = assemble(*calls)
    first, second, _ = by_call(found, *calls)
    handed = {("handoff", first.step_id, second.step_id)}
    assert links(found) == (handed if tool != "look_up" and other is REFUNDS else set())
