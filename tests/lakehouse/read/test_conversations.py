"""Deltas over the parent chain give back exactly what each step saw."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from governance.records import GovernedBatch
from lakehouse.lake import Lake
from lakehouse.read.conversations import StepDelta, StepKey, rebuild
from tests.lakehouse import make


def test_each_step_sees_everything_before_it(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    lake.append(make.batch("t1", steps=3), app_id="a", version=0)
    first, second, third = lake.conversation("t1")
    assert [message.text() for message in third.context] == [
        "t1 asks 0", "t1 says 0", "t1 asks 1", "t1 says 1", "t1 asks 2",
    ]  # fmt: skip
    assert third.output is not None
    assert third.output.text() == "t1 says 2"
    assert len(first.context) == 1
    assert len(second.context) == 3
    assert all(one.complete for one in (first, second, third))


def test_steps_can_be_asked_for_alone(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    lake.append(make.batch("t1", steps=3), app_id="a", version=0)
    lake.append(make.batch("t2", steps=1), app_id="a", version=1)
    found = lake.conversations(step_ids=["t1-s2", "t2-s0"])
    assert {name: len(one.context) for name, one in found.items()} == {"t1-s2": 5, "t2-s0": 1}
    assert lake.conversations(step_ids=[]) == {}
    assert lake.conversation("nobody") == ()


def test_a_missing_ancestor_or_message_is_said(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    whole = make.batch("t1", steps=3)
    lake.append(
        GovernedBatch(steps=(whole.steps[0], whole.steps[2]), messages=whole.messages[:-1]),
        app_id="a",
        version=0,
    )
    assert [one.complete for one in lake.conversation("t1")] == [True, False]


def test_a_fork_in_another_trajectory_reads_its_ancestors(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    fork = make.step("t2", 1, parent_step_id="t1-s0", context_keep=2)
    said = make.batch("t2").messages
    lake.append(make.batch("t1", steps=2), app_id="a", version=0)
    lake.append(GovernedBatch(steps=(fork,), messages=said), app_id="a", version=1)
    (found,) = lake.conversation("t2")
    assert found.complete
    assert [message.text() for message in found.context] == ["t1 asks 0", "t1 says 0", "t2 asks 1"]


@st.composite
def trees(draw: st.DrawFn) -> tuple[dict[StepKey, StepDelta], dict[StepKey, tuple[str, ...]]]:
    """Draw a tree of steps that each keep a prefix of their parent's conversation."""
    deltas: dict[StepKey, StepDelta] = {}
    truth: dict[StepKey, tuple[str, ...]] = {}
    for number in range(draw(st.integers(1, 12))):
        parent = draw(st.none() | st.integers(0, number - 1)) if number else None
        above = ("t", f"s{parent}")
        whole = () if parent is None else (*truth[above], f"out{parent}")
        keep = draw(st.integers(0, len(whole)))
        new = tuple(f"m{number}.{i}" for i in range(draw(st.integers(0, 3))))
        key = ("t", f"s{number}")
        truth[key] = whole[:keep] + new
        deltas[key] = StepDelta(
            "t", "tr", key[1], number, None if parent is None else above[1], keep, new,
            f"out{number}",
        )  # fmt: skip
    order = draw(st.permutations(list(deltas)))
    return {key: deltas[key] for key in order}, truth


@given(trees())
def test_rebuild_inverts_the_delta(
    case: tuple[dict[StepKey, StepDelta], dict[StepKey, tuple[str, ...]]],
) -> None:
    deltas, truth = case
    assert rebuild(deltas) == {key: (ids, True) for key, ids in truth.items()}


def test_a_long_chain_needs_no_recursion() -> None:
    deltas = {
        ("t", f"s{i}"): StepDelta(
            "t", "tr", f"s{i}", i, f"s{i - 1}" if i else None, min(i, 1), (f"m{i}",), None
        )
        for i in reversed(range(5000))
    }
    assert rebuild(deltas)["t", "s4999"] == (("m0", "m4999"), True)


def test_a_loop_of_parents_ends_and_is_incomplete() -> None:
    deltas = {
        ("t", a): StepDelta("t", "tr", a, 0, b, 1, ("m",), None)
        for a, b in (("x", "y"), ("y", "x"))
    }
    assert {complete for _, complete in rebuild(deltas).values()} == {False}
