"""What another model would have answered stands beside the client's trajectory, never in it."""

from dataclasses import replace

from tests.trajectory.world import SYSTEM, World, asked, result, said, user
from trajectory.assembly import Assembler
from trajectory.assembly.result import Assembly
from trajectory.assembly.signals import harvest
from trajectory.call import Call
from trajectory.dialects.registry import read_exchange

KEY = b"k" * 32


def shadow_of(call: Call, world: World, text: str) -> Call:
    """The same request, answered by another version."""
    answered = world.chat([{"role": "user", "content": "-"}], said(text)).exchange
    exchange = replace(
        answered,
        request=call.exchange.request,
        served="shop@0002",
        shadow_of=call.exchange.exchange_id,
    )
    return read_exchange(exchange)


def session(world: World) -> list[Call]:
    opening = [SYSTEM, user("add 1 and 2")]
    first = world.chat(opening, asked("c1"))
    return [first, world.chat([*opening, asked("c1"), result("c1")], said("3"))]


def assemble(*batches: list[Call]) -> list[Assembly]:
    assembler = Assembler(KEY)
    return [assembler.assemble(batch) for batch in batches]


def test_the_clients_trajectory_is_the_same_with_and_without_shadows() -> None:
    world = World()
    calls = session(world)
    shadows = [shadow_of(calls[0], world, "7"), shadow_of(calls[1], world, "8")]
    alone = assemble(calls)[0]
    for found in (assemble([*calls, *shadows]), assemble([shadows[0], *calls], [shadows[1]])):
        placed = [one for assembly in found for one in assembly.placed]
        own = [one for one in placed if one.role_in_graph != "shadow"]
        assert [(o.step_id, o.parent_step_id, o.group_id, o.role_in_graph) for o in own] == [
            (o.step_id, o.parent_step_id, o.group_id, o.role_in_graph) for o in alone.placed
        ]


def test_a_shadow_names_the_step_that_was_copied_and_the_version_that_answered() -> None:
    world = World()
    first = session(world)[0]
    assembly = assemble([first], [shadow_of(first, world, "7")])[1]
    (placed,) = assembly.placed
    (link,) = assembly.links
    live = assemble([first])[0].placed[0]
    assert (link.kind, link.from_step_id, link.to_step_id) == (
        "shadow",
        live.step_id,
        placed.step_id,
    )
    assert placed.trajectory_id != live.trajectory_id
    assert placed.call.model_served == "shop@0002"
    assert placed.new_messages == placed.call.context == first.context
    assert (placed.session_hint, placed.group_id) == (None, None)


def test_nothing_goes_on_from_a_shadow_and_nobody_is_told_of_it() -> None:
    world = World()
    first = world.chat([SYSTEM, user("add 1 and 2")], said("3"))
    cut = replace(shadow_of(first, world, "7"), finish_reason="length")
    opening = [SYSTEM, user("add 1 and 2"), said("7"), user("and 4?")]
    after = world.chat(opening, said("11"))
    assembly = assemble([first, cut], [after])
    assert assembly[1].placed[0].parent_step_id != assembly[0].placed[1].step_id
    assembler = Assembler(KEY)
    again = assembler.assemble([first, cut])
    assert not [f for f in harvest(assembler, again) if f.step_id == again.placed[1].step_id]


def test_without_an_answer_no_version_answered() -> None:
    world = World()
    exchange = replace(world.chat([user("hi")], None).exchange, served="shop@0002")
    assert read_exchange(exchange).model_served == "shop@0002"
    assert read_exchange(replace(exchange, response=None)).model_served is None
