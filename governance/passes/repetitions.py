"""Which calls repeat one that is stored, or one of the same batch."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from governance.passes.calls import RedactedCall
from governance.policy.dedup import DedupSpec, Repetition
from governance.stored_content import KnownContent, StepContent


class RepeatedCall(NamedTuple):
    """A call that repeats a stored one."""

    call: RedactedCall
    original: str
    """step_id of what it repeats."""
    reason: str


def find_repetitions(
    spec: DedupSpec, calls: Sequence[RedactedCall], known: KnownContent
) -> list[RepeatedCall]:
    """Return the calls that policy leaves out as repetitions.

    An identical retry (as assembly recognised it) counts when its original is stored. A repeated step has the same
    conversation and answer as an earlier one of *its own* trajectory, in this batch or stored. Equal attempts in
    different trajectories are different evidence. A call that was cut off after it had said what a finished one
    said is a repetition too: nothing of it is lost.
    """
    here = {one.step_id for one in calls}
    stored = _stored_originals(calls, known)
    found: list[RepeatedCall] = []
    first = _said_before(calls, known) if spec.repeated_steps is Repetition.LEAVE_OUT else {}
    for one in calls:
        original = one.placed.duplicate_of
        if (
            spec.identical_retries is Repetition.LEAVE_OUT
            and original is not None
            and (original in here or original in stored)
        ):
            found.append(RepeatedCall(one, original, "dedup:identical-retry"))
            continue
        said = _said(one)
        if spec.repeated_steps is Repetition.KEEP or said is None:
            continue
        earlier = first.setdefault((one.tenant_id, said), one.step_id)
        if earlier != one.step_id:
            found.append(RepeatedCall(one, earlier, "dedup:repeated-step"))
    return found


def _said_before(
    calls: Iterable[RedactedCall], known: KnownContent
) -> dict[tuple[str, StepContent], str]:
    """Return what these calls say and a stored step said before them, with that step."""
    asked: dict[str, set[StepContent]] = defaultdict(set)
    for one in calls:
        if (said := _said(one)) is not None:
            asked[one.tenant_id].add(said)
    return {
        (tenant, said): step
        for tenant, all_said in asked.items()
        for said, step in known.said_already(tenant, all_said).items()
    }


def _said(one: RedactedCall) -> StepContent | None:
    """Return what identifies a step's content; None for what is neither original nor repetition.

    A tool may be asked the same twice. An abandoned attempt counts for nothing. A call that sent only new
    messages does not tell its conversation.
    """
    clean, placed = one.clean, one.placed
    if clean.output is None or placed.role_in_graph == "discarded":
        return None
    if placed.context_is_delta:
        return None
    context = tuple(message.message_id for message in clean.context)
    return StepContent(placed.trajectory_id, clean.output.message_id, context)


def _stored_originals(calls: Iterable[RedactedCall], known: KnownContent) -> set[str]:
    asked: dict[str, set[str]] = defaultdict(set)
    for one in calls:
        if one.placed.duplicate_of is not None:
            asked[one.tenant_id].add(one.placed.duplicate_of)
    return {step for tenant, steps in asked.items() for step in known.known_steps(tenant, steps)}
