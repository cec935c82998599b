"""Selects and walks the trajectories of a lake, whole or in parts that give the same items together.

A part holds whole trajectories, told apart by a hash of their id. What comes of a trajectory
depends on nothing outside it, so parts can be walked anywhere and in any order.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from train.substrate.items import StepRow, walk_all
from train.substrate.selection import Part, refusals_elsewhere, steps_of
from train.substrate.source import LearningSource
from train.substrate.spec import SubstrateSpec
from train.types import Item


class Origin(NamedTuple):
    """Origin of an eligible step."""

    policy_hash: str | None
    """The policy that allowed it."""
    exchange_id: str


@dataclass(frozen=True, slots=True)
class SelectedPart:
    """Result of one part of the trajectories."""

    items: Sequence[Item]
    origins: Mapping[str, Origin]
    """step_id → where it came from."""
    left_out: Counter[str]
    """Reason → steps that gave no item."""


type Walker = Callable[[SubstrateSpec, Mapping[str, int]], Iterable[SelectedPart]]
"""Walks all parts of a lake at given table versions."""


def walk_part(
    source: LearningSource,
    spec: SubstrateSpec,
    *,
    as_of: Mapping[str, int],
    part: Part | None = None,
) -> SelectedPart:
    """Select and walk the trajectories of one part; of all when ``part`` is None."""
    origins: dict[str, Origin] = {}
    left_out = refusals_elsewhere(source, spec, as_of=as_of, part=part)

    def rows() -> Iterator[StepRow]:
        for selected in steps_of(source, spec, as_of=as_of, part=part):
            if selected.step.refusal is None:
                origin = Origin(selected.policy_hash, selected.exchange_id)
                origins[selected.step.step_id] = origin
            yield selected.step

    items: list[Item] = []
    for walked in walk_all(rows()):
        items.extend(walked.items)
        left_out.update(walked.fallen.values())
    return SelectedPart(items, origins, left_out)
