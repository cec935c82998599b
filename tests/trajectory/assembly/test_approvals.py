"""A person's answer is linked to its step once, whichever of them comes first."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.trajectory.world import CLIENT, World
from trajectory.assembly import Assembler, AssemblerState
from trajectory.assembly.result import Assembly
from trajectory.call import Call
from trajectory.exchange import ASKED_BY, ClientIdentity, Feedback

KEY = b"k" * 32


def answer(
    world: World, call: Call, asked_by: Call, *, client: ClientIdentity | None = None
) -> Feedback:
    """Return what the guard says of a person's answer."""
    told = world.feedback("step", call.exchange.exchange_id, client=client)
    body = {"name": "approval", "value": 1.0, ASKED_BY: asked_by.exchange.exchange_id}
    return replace(told, body=body)


def assemble(*batches: tuple[Sequence[Call], Sequence[Feedback]]) -> list[Assembly]:
    """Assemble batches, with a restart after each."""
    saved, found = AssemblerState().to_json(), []
    for calls, feedback in batches:
        assembler = Assembler(KEY, AssemblerState.from_json(json.loads(json.dumps(saved))))
        found.append(assembler.assemble(calls, feedback))
        saved = assembler.state.to_json()
    return found


def links(assemblies: Sequence[Assembly]) -> list[tuple[str, str, str]]:
    return [
        (link.from_step_id, link.to_step_id, link.trajectory_id)
        for assembly in assemblies
        for link in assembly.links
        if link.kind == "approval"
    ]


def test_an_answer_and_its_step_come_in_any_order() -> None:
    world = World()
    first, second = (world.tool("pay", {"to": "ada"}, "done") for _ in range(2))
    said = answer(world, second, first)
    whole = assemble(([first, second], [said]))
    ids = {one.call.exchange.exchange_id: one for one in whole[0].placed}
    start, end = (ids[one.exchange.exchange_id] for one in (first, second))
    expected = [(start.step_id, end.step_id, end.trajectory_id)]
    for batches in (
        [([first, second], [said])],
        [([first, second], []), ([], [said])],
        [([first], [said]), ([second], [])],
        [([], [said]), ([], []), ([first, second], [])],
        [([first, second], [said]), ([], [said])],
    ):
        assert links(assemble(*batches)) == expected


def test_who_waited_for_the_answer_is_linked_to_itself() -> None:
    world = World()
    call = world.tool("pay", {"to": "ada"}, "done")
    ((start, end, _),) = links(assemble(([call], [answer(world, call, call)])))
    assert start == end


def test_feedback_of_another_tenant_links_nothing() -> None:
    world = World()
    call = world.tool("pay", {"to": "ada"}, "done")
    said = answer(world, call, call, client=replace(CLIENT, tenant_id="other"))
    assert links(assemble(([call], [said]))) == links(assemble(([], [said]), ([call], []))) == []


def test_a_correction_keeps_the_link() -> None:
    world = World()
    calls = [world.tool("pay", {"to": "ada"}, "done", session=one) for one in ("a", "a", "b")]
    said = answer(world, calls[1], calls[1])
    for late in calls[:1]:
        found = assemble((calls[1:], [said]), ([late], []))
        told = [one for assembly in found for one in assembly.corrections]
        assert told
        assert all(
            any(link.kind == "approval" for link in one.links)
            for one in told
            if one.step_id == links(found)[0][1]
        )


@pytest.mark.parametrize("seconds", [5.0, 1e9])
def test_an_answer_whose_step_never_comes_is_forgotten(seconds: float) -> None:
    world = World()
    lost, *others = (world.tool("pay", {"n": n}, "done", session=str(n)) for n in range(9))
    assembler = Assembler(KEY, AssemblerState(idle_seconds=seconds))
    assembler.assemble(
        [], [replace(answer(world, lost, lost), received_at=lost.exchange.started_at)]
    )
    for one, _ in pairwise(others):
        assembler.assemble([one])
    assert bool(assembler.state.approvals) == (seconds > 5)
