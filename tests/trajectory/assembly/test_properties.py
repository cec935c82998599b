"""Assembly over generated worlds: order, repetition, restarts and lossless differences."""

import json
import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.assembly import exact_share, pairwise_f1
from benchmarks.assembly_worlds import Mixture, World, generate
from tests.trajectory.corrections import corrected
from trajectory.assembly import Assembler, AssemblerState
from trajectory.assembly.result import Assembly, PlacedCall
from trajectory.call import Call
from trajectory.message import Message

KEY = b"k" * 32
BUSY = Mixture(
    tasks=3, steps=(1, 5), sdk_retry=0.2, application_retry=0.2, fork=0.2, compaction=0.2
)


def rows(assembly: Assembly) -> list[object]:
    """Everything that assembly decided, without the calls themselves."""
    placed: list[object] = [
        (item.call.exchange.exchange_id, replace(item, call=NO_CALL)) for item in assembly.placed
    ]
    return [*placed, *assembly.links]


NO_CALL: Call = generate(1, seed=0).calls[0]


def in_batches(world: World, sizes: list[int], *, restart: bool) -> list[object]:
    found: list[object] = []
    for assembly in batches(world.calls, sizes, restart=restart):
        found += [rows(assembly), assembly.corrections]
    return found


def batches(calls: list[Call], sizes: list[int], *, restart: bool) -> list[Assembly]:
    assembler = Assembler(KEY)
    found: list[Assembly] = []
    rest = list(calls)
    for size in [*sizes, len(rest)]:
        batch, rest = rest[:size], rest[size:]
        found.append(assembler.assemble(batch))
        saved = json.loads(json.dumps(assembler.state.to_json()))
        again = Assembler(KEY, AssemblerState.from_json(saved))
        assert again.state.to_json() == saved
        assembler = again if restart else assembler
    return found


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 8), st.randoms(use_true_random=False))
def test_order_and_repetition_within_a_batch_do_not_matter(
    seed: int, sessions: int, dice: random.Random
) -> None:
    world = generate(sessions, seed=seed, mixture=BUSY)
    sorted_once = Assembler(KEY).assemble(world.calls)
    shuffled = world.calls + dice.sample(world.calls, len(world.calls) // 2)
    dice.shuffle(shuffled)
    assert rows(Assembler(KEY).assemble(shuffled)) == rows(sorted_once)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 8), st.lists(st.integers(1, 30), max_size=5))
def test_a_restart_between_batches_changes_nothing(
    seed: int, sessions: int, sizes: list[int]
) -> None:
    world = generate(sessions, seed=seed, mixture=BUSY)
    assert in_batches(world, sizes, restart=True) == in_batches(world, sizes, restart=False)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.booleans())
def test_every_context_can_be_rebuilt_from_the_differences(
    seed: int, sessions: int, hints: bool
) -> None:
    world = generate(sessions, seed=seed, mixture=BUSY, hints=hints)
    placed = {item.step_id: item for item in Assembler(KEY).assemble(world.calls).placed}
    assert len(placed) == len(world.calls)
    for item in placed.values():
        assert rebuilt(placed, item) == list(item.call.context)
        if item.parent_step_id is not None:
            assert placed[item.parent_step_id].trajectory_id == item.trajectory_id
            assert placed[item.parent_step_id].step_index == item.step_index - 1


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 8),
    st.randoms(use_true_random=False),
    st.lists(st.integers(1, 30), max_size=6),
    st.booleans(),
)
def test_any_order_in_any_batches_gives_what_sorted_unique_calls_give(
    seed: int, sessions: int, dice: random.Random, sizes: list[int], restart: bool
) -> None:
    world = generate(sessions, seed=seed, mixture=BUSY)
    sorted_once = corrected([Assembler(KEY).assemble(world.calls)])
    shuffled = world.calls + dice.sample(world.calls, len(world.calls) // 2)
    dice.shuffle(shuffled)
    found = corrected(batches(shuffled, sizes, restart=restart))
    assert plain(found.placed) == plain(sorted_once.placed)
    assert found.links == sorted_once.links


def plain(placed: list[PlacedCall]) -> list[PlacedCall]:
    """What the lake would hold; which answer was replaced is told by signals of the first look."""
    return [replace(item, call=NO_CALL, answer_replaced=False) for item in placed]


def rebuilt(placed: dict[str, PlacedCall], step: PlacedCall) -> list[Message]:
    if step.parent_step_id is None or step.context_keep == 0:
        return list(step.new_messages)
    parent = placed[step.parent_step_id]
    output = [parent.call.output] if parent.call.output else []
    whole = [*rebuilt(placed, parent), *output]
    return [*whole[: step.context_keep], *step.new_messages]


def test_no_single_session_falls_apart() -> None:
    for seed in range(60):
        world = generate(1, seed=seed, mixture=BUSY)
        placed = Assembler(KEY).assemble(world.calls).placed
        assert len({item.trajectory_id for item in placed}) == 1, seed


def test_interleaved_sessions_reach_the_promised_accuracy() -> None:
    world = generate(150, seed=5, mixture=Mixture(tasks=120))
    for hints, least_f1, least_exact in ((False, 0.99, 0.97), (True, 1.0, 1.0)):
        world = generate(150, seed=5, mixture=Mixture(tasks=120), hints=hints)
        placed = {
            item.call.exchange.exchange_id: item.trajectory_id
            for item in Assembler(KEY).assemble(world.calls).placed
        }
        assert pairwise_f1(world.truth, placed) >= least_f1
        assert exact_share(world.truth, placed) >= least_exact


def test_what_was_placed_before_is_not_placed_again() -> None:
    world = generate(3, seed=1, mixture=Mixture(dispatches=0.0))
    assembler = Assembler(KEY)
    assembler.assemble(world.calls)
    assert assembler.assemble(world.calls[-5:]).placed == ()
