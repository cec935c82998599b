"""Whatever comes, in whatever batches: the ledger is complete and every stored step can be rebuilt."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from governance.identifiers import tenant_key
from governance.records import GovernedBatch
from governance.stored_content import MemoryKnownContent
from tests.governance.factories import (
    KEY,
    MailRedactor,
    assembly,
    call,
    governor,
    placed,
    system,
    user,
)
from trajectory.assembly.result import PlacedCall
from trajectory.canonical import content_hash
from trajectory.exchange import ExchangeOutcome
from trajectory.message import Message
from trajectory.step import Step

FATES = ("fine", "fine", "fine", "cut", "opted_out", "broken", "failed", "repeated", "mail")


@st.composite
def worlds(draw: st.DrawFn) -> list[PlacedCall]:
    """Several trajectories that branch, with every fate that a call can have."""
    calls: list[PlacedCall] = []
    for number in range(draw(st.integers(1, 10))):
        fate = draw(st.sampled_from(FATES))
        parents = [one for one in calls if one.call.output is not None]
        parent = draw(st.sampled_from([None, *parents]))
        if fate == "repeated" and calls:
            first = draw(st.sampled_from(calls))
            again = replace(first.call, exchange=call(number + 1).exchange)
            calls.append(
                replace(first, call=again, step_id=f"step{number + 1}", duplicate_of=first.step_id)
            )
            continue
        calls.append(_placed(number + 1, fate, parent, draw(st.booleans())))
    return calls


def _placed(number: int, fate: str, parent: PlacedCall | None, rerender: bool) -> PlacedCall:
    word = {"broken": "BOOM", "mail": "jo@corp.io"}.get(fate, "word")
    new = user(f"{word} {number % 3}")
    before: list[Message] = [system("s")]
    if parent is not None and parent.call.output is not None:
        before = [*parent.call.context, parent.call.output]
        if rerender:
            before[0] = system(f"s at {number}")
    settings: dict[str, object] = {}
    if fate == "cut":
        settings = {"finish_reason": None, "outcome": ExchangeOutcome.UPSTREAM_ABORT}
    elif fate == "opted_out":
        settings = {"headers": [("x-headrace-opt-out", "all")]}
    elif fate == "failed":
        settings = {"output": None, "status": 500, "error": "jo@corp.io", "finish_reason": None}
    settings = {"output": f"answer {number % 2}", **settings}
    one = call(number, [*before, new], **settings)
    keep = 0 if rerender or parent is None else len(before)
    return placed(
        one,
        trajectory=parent.trajectory_id if parent else f"t{number}",
        parent_step_id=parent.step_id if parent else None,
        step_index=parent.step_index + 1 if parent else 0,
        context_keep=keep,
        new_messages=one.context[keep:],
        role_in_graph="discarded" if fate == "failed" else "agent",
    )


def _expected_ids(one: PlacedCall) -> list[str]:
    """Return the ids of a call's redacted context, worked out apart from the governor."""
    redactor = MailRedactor()
    from governance.redact.report import RedactionScope

    clean = redactor.redact_messages(one.call.context, scope=RedactionScope("acme", "t"))
    said = [redacted.message.to_json() for redacted in clean]
    key = tenant_key(KEY, "acme")
    return [content_hash({"role": m["role"], "parts": m["parts"]}, key=key) for m in said]


def _conversation(step: Step, steps: dict[str, Step]) -> list[str]:
    """Rebuild what a step saw from the deltas, as the lake's view does."""
    kept: list[str] = []
    if step.context_keep:
        parent = steps[step.parent_step_id or ""]
        output = [parent.output_message_id] if parent.output_message_id else []
        kept = [*_conversation(parent, steps), *output][: step.context_keep]
        assert len(kept) == step.context_keep
    return [*kept, *step.context_message_ids]


def _cut_off_after_the_same_answer(*, finished_first: bool) -> list[PlacedCall]:
    """A finished call and one that its upstream cut off, both with the same answer."""
    first = _placed(1, "fine", None, rerender=False)
    finished = _placed(2, "fine", first, rerender=False)
    cut = _placed(8, "cut", first, rerender=False)
    return [first, finished, cut] if finished_first else [first, cut, finished]


@settings(max_examples=80, deadline=None)
@given(world=worlds(), cuts=st.sets(st.integers(1, 9), max_size=3))
@example(world=_cut_off_after_the_same_answer(finished_first=True), cuts=set())
@example(world=_cut_off_after_the_same_answer(finished_first=True), cuts={2})
@example(world=_cut_off_after_the_same_answer(finished_first=False), cuts=set())
@example(world=_cut_off_after_the_same_answer(finished_first=False), cuts={2})
def test_the_ledger_is_complete_and_conversations_rebuild(
    world: list[PlacedCall], cuts: set[int]
) -> None:
    known = MemoryKnownContent()
    batches: list[GovernedBatch] = []
    for part in _split(world, sorted(cuts)):
        batches.append(governor(known=known).judge(assembly(*part)))
        known.add(batches[-1])
    lines = Counter(row.exchange_id for batch in batches for row in batch.exchanges)
    assert lines == Counter({one.call.exchange.exchange_id: 1 for one in world})
    steps = {row.step_id: row for batch in batches for row in batch.steps}
    messages = Counter(row.message_id for batch in batches for row in batch.messages)
    assert set(messages.values()) <= {1}
    by_step = {one.step_id: one for one in world}
    for step_id, step in steps.items():
        assert _conversation(step, steps) == _expected_ids(by_step[step_id])
        assert {*step.context_message_ids, step.output_message_id or step_id} <= {
            *messages,
            step_id,
        }
    stored = {row.step_id for b in batches for row in b.exchanges if row.disposition == "stored"}
    assert stored == set(steps)
    kept = {row.exchange_id for b in batches for row in b.exchanges if row.disposition in _KEPT}
    bound = {one.trajectory_id: at for at, one in reversed([*enumerate(world)]) if _opted_out(one)}
    deserving = [
        one
        for at, one in enumerate(world)
        if _deserves_storing(one) and at < bound.get(one.trajectory_id, len(world))
    ]
    names = {one.call.exchange.exchange_id for one in deserving}
    assert names <= kept
    said = {_said(one) for one in deserving}
    for one in world:
        if one.call.exchange.exchange_id in kept - names:
            assert _cut(one), "only a call that was cut off may pass for a duplicate"
            assert _said(one) in said, "a duplicate says what a stored call of its trajectory says"
    decided = Counter(row.step_id for batch in batches for row in batch.governance)
    assert all(decided[step_id] == 1 for step_id in steps)
    assert "jo@corp.io" not in json.dumps([asdict(batch) for batch in batches], default=str)
    assert "BOOM" not in json.dumps([asdict(batch) for batch in batches], default=str)


_KEPT = ("stored", "duplicate")


def _deserves_storing(one: PlacedCall) -> bool:
    """Return whether nothing speaks against a call, by looking at the raw call alone."""
    said = json.dumps([message.to_json() for message in one.call.context])
    return not _cut(one) and "BOOM" not in said and not _opted_out(one)


def _opted_out(one: PlacedCall) -> bool:
    """Return whether a call takes its conversation away by header, what comes after it too."""
    return bool(one.call.exchange.request.headers)


def _cut(one: PlacedCall) -> bool:
    return one.role_in_graph == "agent" and one.call.finish_reason is None


def _said(one: PlacedCall) -> tuple[str, str]:
    """Return what a call says within its trajectory: its conversation and its answer."""
    whole = [*one.call.context, one.call.output]
    said = [message.to_json() for message in whole if message is not None]
    return one.trajectory_id, json.dumps(said, sort_keys=True)


def _split(world: Sequence[PlacedCall], cuts: Sequence[int]) -> list[Sequence[PlacedCall]]:
    edges = [0, *(cut for cut in cuts if cut < len(world)), len(world)]
    return [world[a:b] for a, b in pairwise(edges)]
