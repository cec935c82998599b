"""Items: what can be learned from as one piece, made of steps by walking each trajectory's tree.

An item is the longest conversation that some step saw and answered, with the places in it where
the agent itself spoke. It names messages by id and holds no content.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from train.types import Item
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
    leading: int = 0
    """How many system prompts its own context begins with."""
    tools_id: str | None = None
    """Hash of the tools that it was given; None for none."""


@dataclass(frozen=True, slots=True)
class ItemExtraction:
    """Items of some steps, and why the other steps gave none."""

    items: tuple[Item, ...]
    fallen: Mapping[str, str]
    """step_id → fixed reason."""


type _Spoken = tuple[str, str | None]
"""A message id and the step that said it (None: it came from outside)."""


class _Dialogue(NamedTuple):
    """A step's conversation, its output last."""

    spoken: tuple[_Spoken, ...]
    leading: int
    """How many system prompts it begins with."""

    @property
    def body(self) -> tuple[str, ...]:
        return tuple(message for message, _ in self.spoken[self.leading :])


def walk(steps: Sequence[StepRow]) -> ItemExtraction:
    """Make the items of one trajectory.

    A step's conversation covers an earlier step when it begins with exactly what that step saw
    and said, system prompts left out; then one item teaches both, each under its own prompt. A
    step that no later one covers gets its own item.
    """
    by_id = {step.step_id: step for step in steps}
    conversations, incomplete = _conversations(steps)
    fallen = {step.step_id: step.refusal for step in steps if step.refusal is not None}
    for step_id, reason in incomplete.items():
        fallen.setdefault(step_id, reason)
    taught: set[str] = set()
    items: list[Item] = []
    for step in sorted(steps, key=lambda step: (-step.step_index, step.step_id)):
        if step.step_id in fallen or step.step_id in taught:
            continue
        talk = conversations[step.step_id]
        body = talk.body
        places = [
            (index, by_id[speaker])
            for index, (_, speaker) in enumerate(talk.spoken)
            if speaker is not None
            and speaker not in fallen
            and speaker not in taught
            and conversations[speaker].body == body[: index + 1 - talk.leading]
        ]
        taught.update(speaker.step_id for _, speaker in places)
        items.append(_item(step, talk, places, conversations, by_id))
    return ItemExtraction(items=tuple(reversed(items)), fallen=fallen)


def walk_all(steps: Iterable[StepRow]) -> Iterator[ItemExtraction]:
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
) -> tuple[dict[str, _Dialogue], dict[str, str]]:
    """Return each step's conversation, its output last, and why some steps have none."""
    by_id = {step.step_id: step for step in steps}
    known: dict[str, _Dialogue] = {}
    missing: dict[str, str] = {}
    outputs: dict[str, str] = {}
    for step in sorted(steps, key=lambda step: (step.step_index, step.step_id)):
        parent = known.get(step.parent_step_id or "", _Dialogue((), 0))
        if step.forbidden or missing.get(step.parent_step_id or "") == "ancestor_forbidden":
            missing[step.step_id] = "ancestor_forbidden"
            continue
        if len(parent.spoken) < step.context_keep:
            missing[step.step_id] = "context_incomplete"
            continue
        said = outputs | dict(_said_before(step, by_id))
        resent = tuple((message, said.get(message)) for message in step.context_message_ids)
        output: tuple[_Spoken, ...] = ()
        if step.output_message_id is None:
            missing[step.step_id] = "no_output"
        else:
            output = ((step.output_message_id, step.step_id),)
            outputs[step.output_message_id] = step.step_id
        kept = parent.spoken[: step.context_keep]
        leading = min(parent.leading, len(kept)) if kept else step.leading
        known[step.step_id] = _Dialogue((*kept, *resent, *output), leading)
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


def _item(
    step: StepRow,
    talk: _Dialogue,
    places: Sequence[tuple[int, StepRow]],
    conversations: Mapping[str, _Dialogue],
    by_id: Mapping[str, StepRow],
) -> Item:
    messages = tuple(message for message, _ in talk.spoken)
    trained = [index for index, _ in places]
    in_body = [index - talk.leading for index in trained]
    frames = tuple(_frame(speaker, conversations[speaker.step_id]) for _, speaker in places)
    return Item(
        item_id=content_hash([step.tenant_id, step.step_id, list(messages), trained]),
        content_id=content_hash([step.tenant_id, list(talk.body), in_body]),
        tenant_id=step.tenant_id,
        trajectory_id=step.trajectory_id,
        group_id=step.group_id or step.trajectory_id,
        session_hint=step.session_hint,
        harness_id=step.harness_id,
        started_at=step.started_at,
        key_source=step.key_source,
        capture_level=step.capture_level,
        model_served=step.model_served,
        step_ids=tuple(speaker.step_id for _, speaker in places),
        message_ids=messages,
        trained=tuple(trained),
        leading=talk.leading,
        tools_id=places[0][1].tools_id,
        frames=frames if len(set(frames)) > 1 else (),
        context_step_ids=_context_steps([speaker for _, speaker in places], by_id),
        first_said=next(at for at, (_, speaker) in enumerate(talk.spoken) if speaker is not None),
    )


def _frame(step: StepRow, talk: _Dialogue) -> tuple[str, ...]:
    """Return what stood around a step: its harness and its system prompts."""
    return (step.harness_id or "", *(message for message, _ in talk.spoken[: talk.leading]))


def _context_steps(learned: Sequence[StepRow], by_id: Mapping[str, StepRow]) -> tuple[str, ...]:
    """Return the steps that some steps go on from, those themselves left out."""
    found: set[str] = set()
    for step in learned:
        ancestor = by_id.get(step.parent_step_id or "")
        while ancestor is not None and ancestor.step_id not in found:
            found.add(ancestor.step_id)
            ancestor = by_id.get(ancestor.parent_step_id or "")
    return tuple(sorted(found.difference(step.step_id for step in learned)))
