"""Calls that each hold their whole conversation, as paths: which call goes on from which."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trajectory.canonical import canonical_json
from trajectory.message import Message, ReasoningPart, TextPart
from trajectory.portable import PortableStep


@dataclass(frozen=True, slots=True)
class ChainTurn:
    """One call: everything that was sent, and the step it makes (its ``observed`` is filled in here)."""

    context: tuple[Message, ...]
    step: PortableStep
    position: int = 0
    """Where the call stood in the document."""


def chain(turns: Sequence[ChainTurn]) -> list[tuple[ChainTurn, ...]]:
    """Return the calls as paths, each call with what it observed since the one before.

    A call goes on from the longest conversation that leads its context. What several calls go on
    from stands in each of their paths; a call that goes on from nothing begins one.
    """
    paths: list[tuple[ChainTurn, ...]] = []
    for turn in turns:
        candidates = [path[: at + 1] for path in paths for at in range(len(path))]
        candidates.sort(key=lambda path: len(path[-1].context), reverse=True)
        before = next((path for path in candidates if _kept(path, turn)), ())
        observed = turn.context[_kept(before, turn) :]
        placed = replace(turn, step=replace(turn.step, observed=observed))
        paths = [path for path in paths if path != before]
        paths.append((*before, placed))
    return paths


def _kept(path: Sequence[ChainTurn], turn: ChainTurn) -> int:
    """Return how many messages of a path's conversation lead the turn's context; 0 when not all do."""
    if not path:
        return 0
    conversation = (*path[-1].context, path[-1].step.output)
    if len(conversation) > len(turn.context):
        return 0
    pairs = zip(conversation, turn.context, strict=False)
    return len(conversation) if all(_alike(mine, theirs) for mine, theirs in pairs) else 0


def _alike(one: Message, other: Message) -> bool:
    """Tell whether two messages say the same; clients drop reasoning and change white space."""
    return one == other or _essence(one) == _essence(other)


def _essence(message: Message) -> bytes:
    parts = [
        replace(part, text=part.text.strip()) if isinstance(part, TextPart) else part
        for part in message.parts
        if not isinstance(part, ReasoningPart)
    ]
    return canonical_json(replace(message, parts=tuple(parts), name=None).to_json())


__all__ = ["ChainTurn", "chain"]
