"""The proposers that there are, and how their drafts become documents of kind ``Artifact``."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import cast

from pydantic import ValidationError

from evolve.proposers.corrections import Corrections
from evolve.proposers.procedures import Procedures
from evolve.proposers.proposer import ArtifactDraft, ProposalBounds, Proposer, TenantEvidence
from evolve.proposers.schemas import SchemaMends
from train.inspection.evidence import sessions_of, setup_of
from train.substrate.source import LearningSource
from trajectory.artifact import Artifact, ArtifactSurface
from trajectory.canonical import content_hash
from trajectory.errors import ConfigurationError
from trajectory.plugins import PROPOSERS, load_plugins

SHIPPED: tuple[Proposer, ...] = (Corrections(), Procedures(), SchemaMends())
SURFACES_DECIDED: dict[str, ArtifactSurface] = {
    "memory": "memory", "skill": "skill", "harness": "harness", "tool_schema": "tools",
}  # fmt: skip
"""What a decision names → what answers it."""

_LONGEST_NAME = 63


@dataclass(frozen=True, slots=True)
class ProposalRequest:
    """For whom candidates are drawn, and from how much."""

    tenant: str
    bounds: ProposalBounds
    surfaces: Collection[ArtifactSurface] = ()
    """Without any, all."""
    proposer: str | None = None
    sessions: int = 1000
    """The newest ones, at most so many."""
    decision: str | None = None
    licence: str = "LicenseRef-proprietary"


def propose(source: LearningSource, request: ProposalRequest) -> list[Artifact]:
    """Return candidates, in order of proposer and name.

    Raises:
        ConfigurationError: there is no such proposer, or a plugin gave something that is no artefact.
    """
    known = {one.name: one for one in (*SHIPPED, *cast(list[Proposer], load_plugins(PROPOSERS)))}
    if request.proposer is not None and request.proposer not in known:
        raise ConfigurationError(
            f"no proposer {request.proposer!r}; there are: {', '.join(sorted(known))}"
        )
    asked = [
        one
        for name, one in sorted(known.items())
        if request.proposer in (None, name) and (not request.surfaces or one.surface in request.surfaces)
    ]  # fmt: skip
    if not asked:
        return []
    evidence = TenantEvidence(
        sessions_of(source, request.tenant, most=request.sessions), setup_of(source, request.tenant)
    )
    return [
        document
        for one in asked
        for draft in one.propose(evidence, request.bounds)
        for document in _documents(one, draft, request)
    ]


def _name(tenant: str, draft: str) -> str:
    """Return a name that no other tenant and no other draft has; a hash stands for what it cannot hold.

    Only a plugin's draft could meet another tenant's, whose name goes on as the draft's begins: the registry
    refuses that one.
    """
    whose = re.sub(r"[^a-z0-9]+", "-", tenant.lower()).strip("-")
    name = f"{whose}-{draft}".lstrip("-")
    if whose == tenant and len(name) <= _LONGEST_NAME:
        return name
    told = content_hash([tenant, draft]).removeprefix("b2:")[:12]
    return f"{name[: _LONGEST_NAME - 13]}-{told}"


def _documents(
    proposer: Proposer, draft: ArtifactDraft, request: ProposalRequest
) -> Iterator[Artifact]:
    spec = {
        "tenant": request.tenant,
        "proposer": proposer.name,
        "licence": request.licence,
        "decision": request.decision,
        "evidence": list(draft.evidence),
        **draft.content,
    }
    value = {
        "apiVersion": "headrace/v1",
        "kind": "Artifact",
        "metadata": {"name": _name(request.tenant, draft.name), "description": draft.description},
        "spec": spec,
    }
    try:
        made = Artifact.model_validate(value)
    except ValidationError as error:
        raise ConfigurationError(
            f"proposer {proposer.name}: what it proposes is no artefact ({error.error_count()} errors, "
            f"the first: {error.errors()[0]['msg']}); mend the package that brings it"
        ) from None
    without = (
        [fact.id for fact in made.spec.memory.facts if not fact.evidence]
        if made.spec.memory
        else []
    )
    if without or not made.spec.all_evidence:
        raise ConfigurationError(
            f"proposer {proposer.name}: it names no steps for what it proposes; mend the package that "
            "brings it: only a person may say something without evidence"
        )
    yield made
