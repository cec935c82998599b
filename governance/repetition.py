"""Repetitions: what says nothing new goes; several attempts at one task stay."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from governance.judged import Judged
from governance.known import KnownContent
from governance.policy.dedup import DedupSpec, Repetition


class Repeated(NamedTuple):
    """A call that repeats a stored one."""

    judged: Judged
    original: str
    """step_id of what it repeats."""
    reason: str


def find_repetitions(
    spec: DedupSpec, judged: Sequence[Judged], known: KnownContent
) -> list[Repeated]:
    """Return the calls that policy leaves out as repetitions.

    An identical retry (as assembly recognised it) counts when its original is stored. A repeated
    step has the same conversation and the same answer as an earlier one of *its own* trajectory:
    equal attempts in different trajectories are different evidence. A call that was cut off after
    it had said what a finished one said is a repetition too: nothing of it is lost.
    """
    here = {one.step_id for one in judged}
    stored = _stored_originals(judged, known)
    found: list[Repeated] = []
    first: dict[tuple[str, ...], str] = {}
    for one in judged:
        original = one.placed.duplicate_of
        if (
            spec.identical_retries is Repetition.LEAVE_OUT
            and original is not None
            and (original in here or original in stored)
        ):
            found.append(Repeated(one, original, "dedup:identical-retry"))
            continue
        said = _said(one)
        if spec.repeated_steps is Repetition.KEEP or said is None:
            continue
        if said in first:
            found.append(Repeated(one, first[said], "dedup:repeated-step"))
        else:
            first[said] = one.step_id
    return found


def _said(one: Judged) -> tuple[str, ...] | None:
    """Return what identifies a step's content; None for what is neither original nor repetition.

    A tool may be asked the same twice, and an attempt that was given up stands for nothing.
    """
    clean = one.clean
    if clean is None or clean.output is None or one.placed.role_in_graph == "discarded":
        return None
    context = (message.message_id for message in clean.context)
    return (one.tenant_id, one.placed.trajectory_id, clean.output.message_id, *context)


def _stored_originals(judged: Iterable[Judged], known: KnownContent) -> set[str]:
    asked: dict[str, set[str]] = defaultdict(set)
    for one in judged:
        if one.placed.duplicate_of is not None:
            asked[one.tenant_id].add(one.placed.duplicate_of)
    return {step for tenant, steps in asked.items() for step in known.known_steps(tenant, steps)}
