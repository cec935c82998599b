"""Steps become items: each step is taught exactly once, in the context that it really saw."""

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from train.substrate.items import StepRow, walk, walk_all


def step(number: int, parent: int | None, keep: int, new: str, out: str | None) -> StepRow:
    return StepRow(
        tenant_id="acme",
        trajectory_id="t",
        step_id=f"s{number}",
        parent_step_id=None if parent is None else f"s{parent}",
        step_index=number,
        started_at=datetime(2026, 11, 1, tzinfo=UTC),
        context_keep=keep,
        context_message_ids=tuple(new.split()),
        output_message_id=out,
        harness_id=None,
        group_id=None,
        session_hint=None,
        key_source="url",
        capture_level="text",
        model_served=None,
    )


CHAIN = [
    step(0, None, 0, "sys u1", "a1"),
    step(1, 0, 3, "tool1", "a2"),
    step(2, 1, 5, "tool2", "a3"),
]


def test_chain_is_one_item() -> None:
    (item,) = walk(CHAIN).items
    assert item.message_ids == ("sys", "u1", "a1", "tool1", "a2", "tool2", "a3")
    assert (item.trained, item.step_ids) == ((2, 4, 6), ("s0", "s1", "s2"))


def test_fork_teaches_the_shared_beginning_once() -> None:
    fork = [*CHAIN[:2], step(3, 0, 3, "other", "b2")]
    items = {item.step_ids for item in walk(fork).items}
    assert items == {("s1",), ("s0", "s3")} or items == {("s0", "s1"), ("s3",)}


def test_an_item_names_the_steps_that_it_goes_on_from() -> None:
    (whole,) = walk(CHAIN).items
    assert whole.context_step_ids == ()
    fork = [*CHAIN, step(3, 0, 3, "other", "b2")]
    found = {item.step_ids: item.context_step_ids for item in walk(fork).items}
    assert found == {("s0", "s3"): (), ("s1", "s2"): ("s0",)}
    (rest,) = walk([replace(CHAIN[0], refusal="where"), *CHAIN[1:]]).items
    assert (rest.step_ids, rest.context_step_ids) == (("s1", "s2"), ("s0",))
    assert (rest.trained, rest.first_said) == ((4, 6), 2), "it was asked before its first answer"


def test_rewritten_history_gives_each_answer_its_own_context() -> None:
    rewritten = [CHAIN[0], step(1, 0, 0, "sys2 u1 a1 tool1", "a2")]
    items = walk(rewritten).items
    assert [item.step_ids for item in items] == [("s0",), ("s1",)]
    assert items[1].trained == (4,)


def test_a_prompt_that_names_the_time_makes_no_other_conversation() -> None:
    first = replace(CHAIN[0], leading=1, harness_id="h0")
    timed = [first, replace(step(1, 0, 0, "sys2 u1 a1 tool1", "a2"), leading=1, harness_id="h1")]
    (item,) = walk(timed).items
    assert (item.step_ids, item.trained) == (("s0", "s1"), (2, 4))
    assert (item.leading, item.beginning) == (1, ("u1",))
    assert item.frames == (("h0", "sys"), ("h1", "sys2"))
    later = [replace(first, context_message_ids=("sys3", "u1")), timed[1]]
    assert walk(later).items[0].content_id == item.content_id
    (same,) = walk([replace(CHAIN[0], leading=1), *CHAIN[1:]]).items
    assert (same.leading, same.frames) == (1, ())
    # Known by what was said, where the session alone says that they belong together.
    (known,) = walk([first, replace(timed[1], parent_step_id=None)]).items
    assert known.step_ids == ("s0", "s1")


def test_history_sent_again_unchanged_is_recognised() -> None:
    resent = [CHAIN[0], step(1, 0, 0, "sys u1 a1 tool1", "a2")]
    (item,) = walk(resent).items
    assert item.trained == (2, 4)


def test_refused_answer_stays_as_context() -> None:
    steps = [replace(CHAIN[0], refusal="where"), *CHAIN[1:]]
    found = walk(steps)
    assert found.fallen == {"s0": "where"}
    assert found.items[0].trained == (4, 6)


def test_nothing_goes_on_from_what_is_forbidden() -> None:
    steps = [CHAIN[0], replace(CHAIN[1], refusal="not_eligible", forbidden=True), CHAIN[2]]
    found = walk(steps)
    assert found.fallen == {"s1": "not_eligible", "s2": "ancestor_forbidden"}
    assert [item.step_ids for item in found.items] == [("s0",)]


def test_missing_parent_is_counted() -> None:
    assert walk([CHAIN[1]]).fallen == {"s1": "context_incomplete"}


def test_answer_of_a_failed_attempt_is_not_needed_by_its_retry() -> None:
    steps = [CHAIN[0], step(1, 0, 3, "tool1", None), step(2, 0, 3, "tool1", "a2")]
    found = walk(steps)
    assert found.fallen == {"s1": "no_output"}
    assert [item.step_ids for item in found.items] == [("s0", "s2")]


@st.composite
def trees(draw: st.DrawFn) -> list[StepRow]:
    steps: list[StepRow] = []
    lengths: list[int] = []
    for number in range(draw(st.integers(1, 8))):
        parent = draw(st.none() | st.integers(0, number - 1)) if number else None
        keep = 0 if parent is None else draw(st.integers(0, lengths[parent]))
        new = " ".join(f"m{number}-{i}" for i in range(draw(st.integers(1, 3))))
        out = draw(st.sampled_from([f"a{number}", None]))
        refusal = draw(st.sampled_from([None, None, None, "where"]))
        made = step(number, parent, keep, new, out)
        depth = 0 if parent is None else steps[parent].step_index + 1
        steps.append(replace(made, step_index=depth, refusal=refusal))
        lengths.append(keep + len(new.split()) + (out is not None))
    return steps


@given(trees())
def test_property_each_step_is_taught_once_or_has_its_reason(steps: list[StepRow]) -> None:
    found = walk(steps)
    taught = [step_id for item in found.items for step_id in item.step_ids]
    assert sorted([*taught, *found.fallen]) == sorted(step.step_id for step in steps)
    outputs = {step.step_id: step.output_message_id for step in steps}
    for item in found.items:
        assert [item.message_ids[place] for place in item.trained] == [
            outputs[step_id] for step_id in item.step_ids
        ]


def test_trajectories_are_walked_one_by_one() -> None:
    other = [
        replace(
            s,
            trajectory_id="t2",
            step_id=f"x{s.step_id}",
            parent_step_id=None if s.parent_step_id is None else f"x{s.parent_step_id}",
        )
        for s in CHAIN
    ]
    walks = list(walk_all([*CHAIN, *other]))
    assert [len(found.items) for found in walks] == [1, 1]
    assert walks[0].items[0].content_id == walks[1].items[0].content_id
    assert walks[0].items[0].item_id != walks[1].items[0].item_id
