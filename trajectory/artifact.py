"""Artefacts: what an agent is given beside its weights, as documents of kind ``Artifact``.

One document is one of four kinds: facts, a procedure, an edit of the system prompt, or an edit of the tools'
definitions. A registry makes numbered versions of it.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from trajectory.documents.document import NAME_PATTERN, Document, StrictModel
from trajectory.json_patch import PatchError, check_patch, pointer

type ArtifactSurface = Literal["memory", "skill", "harness", "tools"]

SURFACES: tuple[ArtifactSurface, ...] = ("memory", "skill", "harness", "tools")
MARK = "headrace-artifact"
"""Name of the marks around a block; no text may hold it."""
ARM = "~"
"""Begins what a capture says of a session's arm in an artefact's trial, among the names of what was added."""
MODEL_ARM = "^"
"""The same in a model's trial: what was drawn, which is not what answers while the candidate is down."""
MOST_STEPS = 1000
"""An artefact, or one fact of it, names no more steps as its evidence."""
_ALL_CHARACTERS = 1_000_000
_BLOCK = re.compile(rf"\s*<{MARK} [^>]*>.*?</{MARK}>", re.DOTALL)


def without_blocks(text: str) -> str:
    """Return a text without the blocks that artefacts added to it."""
    return _BLOCK.sub("", text)


def _unmarked(value: str) -> str:
    if MARK in value.lower():
        raise ValueError(f"{MARK} marks blocks, so no text may hold it")
    return value


type BlockText = Annotated[str, Field(min_length=1, max_length=20_000)]
type Steps = Annotated[tuple[str, ...], Field(max_length=MOST_STEPS)]
"""Ids of steps."""


class RememberedFact(StrictModel):
    """One fact of a tenant."""

    id: str = Field(pattern=NAME_PATTERN)
    """Names the fact within its artefact; steps that were shown it say so."""
    text: str = Field(min_length=1, max_length=2000)
    evidence: Steps = ()
    """Ids of the steps that it was drawn from."""

    _marks = field_validator("text")(_unmarked)


class MemoryContent(StrictModel):
    """Facts; a call is shown those that fit the open conversation best (BM25)."""

    best: int = Field(default=5, ge=1, le=50)
    """Facts that one call is shown at most."""
    facts: tuple[RememberedFact, ...] = Field(min_length=1, max_length=5000)

    @model_validator(mode="after")
    def _ids_once(self) -> Self:
        if len({fact.id for fact in self.facts}) < len(self.facts):
            raise ValueError("two facts have the same id")
        return self


class SkillTrigger(StrictModel):
    """When a procedure is shown: one of the phrases occurs, and one of the tools is offered."""

    phrases: tuple[Annotated[str, Field(min_length=2, max_length=200)], ...] = Field(
        min_length=1, max_length=200
    )
    """Looked for in the open conversation; upper and lower case are alike."""
    tools: tuple[str, ...] = Field(default=(), max_length=200)
    """Names of tools; without any, what the call offers does not count."""


class SkillContent(StrictModel):
    """A procedure that is shown when its trigger fits."""

    title: str = Field(min_length=1, max_length=200, pattern=r"^[^\n\r]*$")
    """What the procedure is for, in one line."""
    trigger: SkillTrigger
    procedure: BlockText

    _marks = field_validator("title", "procedure")(_unmarked)


class TemplateEdit(StrictModel):
    """A part of a known system prompt, and its replacement."""

    old: BlockText
    """Must stand in the prompt as it is written here; else nothing is changed."""
    new: str = Field(max_length=20_000)

    _marks = field_validator("old", "new")(_unmarked)


class HarnessContent(StrictModel):
    """An edit of the system prompt: a block at its end, or another text for a part of it."""

    agent: str | None = Field(default=None, min_length=1, max_length=128)
    """Only calls of the agent that calls itself so (header ``x-headrace-agent``)."""
    prompt_holds: str | None = Field(default=None, min_length=1, max_length=2000)
    """Only calls whose system prompt holds this text: what tells a version from others."""
    append: BlockText | None = None
    replace: TemplateEdit | None = None

    @field_validator("append")
    @classmethod
    def _marks(cls, value: str | None) -> str | None:
        return None if value is None else _unmarked(value)

    @model_validator(mode="after")
    def _one_edit(self) -> Self:
        if (self.append is None) == (self.replace is None):
            raise ValueError("give one of: append, replace")
        return self


class ToolsContent(StrictModel):
    """A patch (RFC 6902) on ``{tool: {"description": …, "parameters": …}}``, whatever the dialect."""

    patch: tuple[dict[str, Any], ...] = Field(min_length=1, max_length=200)

    @field_validator("patch")
    @classmethod
    def _sound(cls, value: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        try:
            check_patch(value)
        except PatchError as error:
            raise ValueError(f"no JSON patch (RFC 6902): {error}") from None
        for operation in value:
            for place in (operation[key] for key in ("path", "from") if key in operation):
                parts = pointer(place)
                if len(parts) < 2 or parts[1] not in ("description", "parameters"):
                    raise ValueError(
                        "a path leads into /TOOL/description or /TOOL/parameters: a patch changes "
                        "definitions, and neither adds nor removes a tool"
                    )
                if operation.get("op") in ("remove", "move") and len(parts) == 2:
                    raise ValueError("description and parameters stay: replace them instead")
        return value

    @property
    def names(self) -> frozenset[str]:
        """Names of the tools that the patch touches."""
        places = [each[key] for each in self.patch for key in ("path", "from") if key in each]
        return frozenset(pointer(place)[0] for place in places)


class ArtifactSpec(StrictModel):
    """The ``spec`` of an artefact: where it comes from, and one content."""

    tenant: str | None = Field(default=None, min_length=1)
    """Whose calls it is for; without it everybody's. Facts and evidence are always one tenant's."""
    proposer: str = Field(min_length=1, max_length=200)
    """Who or what proposes it."""
    licence: str = Field(min_length=1, max_length=100)
    """Under which its text may be used, such as an SPDX identifier."""
    decision: str | None = Field(default=None, max_length=200)
    """The decision of ``headrace evolve`` that it answers."""
    evidence: Steps = ()
    """Ids of the steps that the whole of it was drawn from."""
    memory: MemoryContent | None = None
    skill: SkillContent | None = None
    harness: HarnessContent | None = None
    tools: ToolsContent | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        given = [name for name in SURFACES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of: {', '.join(SURFACES)}")
        if self.tenant is None and (self.memory is not None or self.evidence):
            raise ValueError("facts and evidence are one tenant's: name the tenant")
        if len(self.model_dump_json()) > _ALL_CHARACTERS:
            raise ValueError(f"holds more than {_ALL_CHARACTERS} characters; make several of it")
        return self

    @property
    def surface(self) -> ArtifactSurface:
        """Which of the four it is."""
        return next(name for name in SURFACES if getattr(self, name) is not None)

    @property
    def all_evidence(self) -> frozenset[str]:
        """Ids of all steps that anything of it was drawn from."""
        facts = () if self.memory is None else self.memory.facts
        return frozenset(self.evidence).union(*(fact.evidence for fact in facts))


class Artifact(Document):
    """A document of kind ``Artifact``."""

    kind: Literal["Artifact"]
    spec: ArtifactSpec
