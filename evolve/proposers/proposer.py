"""What a proposer is given and gives back.

Proposers are pure functions over sessions; those of other packages are entry points of the group
``headrace.proposers``. What they propose passes the same inspection as any artefact.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from train.inspection.evidence import AgentSession, AgentSetup
from trajectory.artifact import MOST_STEPS, ArtifactSurface
from trajectory.canonical import content_hash


@dataclass(frozen=True, slots=True)
class ProposalBounds:
    """What is asked of proposers."""

    people: int = 2
    """Different people in whose sessions something must show; a session of nobody known counts as one."""
    tool: str | None = None
    """Only what concerns this tool."""


@dataclass(frozen=True, slots=True)
class ArtifactDraft:
    """A candidate without its tenant and its proposer."""

    name: str
    """Ends the artefact's name."""
    description: str
    content: dict[str, Any]
    """One of ``memory``, ``skill``, ``harness``, ``tools``, as the document has it."""
    evidence: tuple[str, ...] = ()
    """Ids of steps; facts name their own."""


@dataclass(frozen=True, slots=True)
class TenantEvidence:
    """What a proposer reads of one tenant."""

    sessions: Sequence[AgentSession]
    """Eligible ones, the newest first."""
    setup: AgentSetup
    """System prompts and definitions of tools."""


class Proposer(Protocol):
    """Draws candidates of one kind."""

    @property
    def name(self) -> str:
        """Stands in the artefact."""

    @property
    def surface(self) -> ArtifactSurface:
        """What it proposes."""

    def propose(self, evidence: TenantEvidence, bounds: ProposalBounds) -> Iterable[ArtifactDraft]:
        """Return candidates; the same evidence gives the same ones."""


def nameable[T](
    found: Iterable[T], steps_of: Callable[[T], Iterable[str]], most: int = MOST_STEPS
) -> list[T]:
    """Return what comes first, as much of it as so many steps name.

    Only such things may be drawn from: what others gave would outlive their erasure.
    """
    kept, named = [], set[str]()
    for one in found:
        more = named.union(steps_of(one))
        if len(more) <= most:
            kept.append(one)
            named = more
    return kept


def plain_name(text: str) -> str:
    """Return a tool's name as the name of an artefact holds it; a hash tells apart what else would be alike."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if plain.replace("-", "_") == text:
        return plain
    return f"{plain}-{content_hash(text).removeprefix('b2:')[:12]}".lstrip("-")
