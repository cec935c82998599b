"""Items: what can be learned from as one piece, made of steps by walking each trajectory's tree.

An item is the longest conversation that some step saw and answered, with the places in it where
the agent itself spoke. It names messages by id and holds no content.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from trajectory.canonical import content_hash


@dataclass(frozen=True, slots=True)
class StepRow:
    """The columns of a step from which items are made."""

    tenant_id: str
    trajectory_id: str
    step_id: str
    parent_step_id: str | None
    step_index: int
    started_at: datetime
    context_keep: int
    context_message_ids: tuple[str, ...]
    output_message_id: str | None
    harness_id: str | None
    group_id: str | None
    session_hint: str | None
    key_source: str
    capture_level: str
    """``tokens`` only where they are exact, for governance keeps none of a prompt that it redacted."""
    model_served: str | None
    refusal: str | None = None
    """Why this step's output is not to be learned; None when it is. Fixed words."""
    forbidden: bool = False
    """Policy, consent or expiry forbid it: then nothing that goes on from it is learned either."""


@dataclass(frozen=True, slots=True)
class Item:
    """One conversation to learn from."""

    item_id: str
    """Hash of tenant, last step, messages and trained places."""
    content_id: str
    """Hash without the step: two items that would teach the same have the same one."""
    tenant_id: str
    trajectory_id: str
    group_id: str
    """Task or group that several attempts share; the trajectory itself when it has none."""
    session_hint: str | None
    harness_id: str | None
    started_at: datetime
    key_source: str
    capture_level: str
    model_served: str | None
    step_ids: tuple[str, ...]
    """The steps whose outputs are learned, in order."""
    message_ids: tuple[str, ...]
    """The conversation, from its first message to the last output."""
    trained: tuple[int, ...]
    """Indexes in ``message_ids`` of the outputs of ``step_ids``."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Items of some steps, and why the other steps gave none."""

    items: tuple[Item, ...]
    fallen: Mapping[str, str]
    """step_id → fixed reason."""


type _Spoken = tuple[str, str | None]
"""A message id and the step that said it (None: it came from outside)."""


def walk(steps: Sequence[StepRow]) -> Walk:
    """Make the items of one trajectory.

    A step's conversation covers an earlier step when it begins with exactly what that step saw
    and said; then one item teaches both. A step that no later one covers gets its own item.
    """
    conversations, incomplete = _conversations(steps)
    fallen = {step.step_id: step.refusal for step in steps if step.refusal is not None}
    for step_id, reason in incomplete.items():
        fallen.setdefault(step_id, reason)
    taught: set[str] = set()
    items: list[Item] = []
    for step in sorted(steps, key=lambda step: (-step.step_index, step.step_id)):
        if step.step_id in fallen or step.step_id in taught:
            continue
        spoken = conversations[step.step_id]
        places = [
            index
            for index, (_, speaker) in enumerate(spoken)
            if speaker is not None
            and speaker not in fallen
            and speaker not in taught
            and conversations[speaker] == spoken[: index + 1]
        ]
        taught.update(speaker for index in places if (speaker := spoken[index][1]) is not None)
        items.append(_item(step, spoken, places))
    return Walk(items=tuple(reversed(items)), fallen=fallen)


def walk_all(steps: Iterable[StepRow]) -> Iterator[Walk]:
    """Walk steps that come ordered by trajectory, one trajectory at a time."""
    current: list[StepRow] = []
    for step in steps:
        if current and current[0].trajectory_id != step.trajectory_id:
            yield walk(current)
            current = []
        current.append(step)
    if current:
        yield walk(current)


def _conversations(
    steps: Sequence[StepRow],
) -> tuple[dict[str, tuple[_Spoken, ...]], dict[str, str]]:
    """Return each step's conversation, its output last, and why some steps have none."""
    by_id = {step.step_id: step for step in steps}
    known: dict[str, tuple[_Spoken, ...]] = {}
    missing: dict[str, str] = {}
    for step in sorted(steps, key=lambda step: (step.step_index, step.step_id)):
        parent = known.get(step.parent_step_id or "", ())
        if step.forbidden or missing.get(step.parent_step_id or "") == "ancestor_forbidden":
            missing[step.step_id] = "ancestor_forbidden"
            continue
        if len(parent) < step.context_keep:
            missing[step.step_id] = "context_incomplete"
            continue
        said = dict(_said_before(step, by_id))
        resent = tuple((message, said.get(message)) for message in step.context_message_ids)
        output: tuple[_Spoken, ...] = ()
        if step.output_message_id is None:
            missing[step.step_id] = "no_output"
        else:
            output = ((step.output_message_id, step.step_id),)
        known[step.step_id] = (*parent[: step.context_keep], *resent, *output)
    return known, missing


def _said_before(step: StepRow, by_id: Mapping[str, StepRow]) -> Iterator[tuple[str, str]]:
    """Yield what the ancestors of a step said, so that a history sent anew is recognised."""
    if not step.context_message_ids:
        return
    ancestor = by_id.get(step.parent_step_id or "")
    while ancestor is not None:
        if ancestor.output_message_id is not None:
            yield ancestor.output_message_id, ancestor.step_id
        ancestor = by_id.get(ancestor.parent_step_id or "")


def _item(step: StepRow, spoken: Sequence[_Spoken], places: Sequence[int]) -> Item:
    messages = tuple(message for message, _ in spoken)
    return Item(
        item_id=content_hash([step.tenant_id, step.step_id, list(messages), list(places)]),
        content_id=content_hash([step.tenant_id, list(messages), list(places)]),
        tenant_id=step.tenant_id,
        trajectory_id=step.trajectory_id,
        group_id=step.group_id or step.trajectory_id,
        session_hint=step.session_hint,
        harness_id=step.harness_id,
        started_at=step.started_at,
        key_source=step.key_source,
        capture_level=step.capture_level,
        model_served=step.model_served,
        step_ids=tuple(speaker for index in places if (speaker := spoken[index][1]) is not None),
        message_ids=messages,
        trained=tuple(places),
    )
