"""The inspection of an artefact: every guard over every text, before the artefact may be live or a canary.

The guards are deterministic, and read the eligible steps of its evidence. Each objection says what is
wrong, where, and what to do; a person may let an artefact pass all the same, with a reason.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from governance.policy.quality import Leftover
from governance.quality.leftovers import LeftoverCheck
from train.inspection.claims import OwnersWords, fact_objections, skill_objections
from train.inspection.evidence import AgentSession, AgentSetup, sessions_of, setup_of
from train.inspection.permissions import text_objections, tool_objections
from train.inspection.texts import objections, order_over_both, visible
from train.substrate.source import LearningSource
from trajectory.artifact import ArtifactSpec
from trajectory.json_patch import pointer

type FindPersonalData = Callable[[str], Collection[str]]
"""Returns the types of personal data and secrets that a text holds."""

REMEDIES: Mapping[str, str] = {
    "untrusted_source": "leave the fact out, or have a person confirm it and name that step as evidence",
    "unsupported": "name the steps in which somebody says it, or leave the evidence out and answer for it",
    "one_person": "say what holds for everybody, or keep it in that person's own records",
    "personal_data": "write it without the value, or allow it in the Redaction policy (`allow`)",
    "hidden_characters": "write the text anew, from what can be seen",
    "role_mark": "take the mark out",
    "own_mark": "take the mark out",
    "instruction": "say what is the case; orders belong into the owner's system prompt",
    "link_with_data": "name the address without a place for values, or leave it out",
    "encoded_text": "write in plain words what it says, or leave it out",
    "skipped_confirmation": "put the check back before the call",
    "wider_permission": "keep the limit; a wider one needs a person who answers for it",
    "unknown_tool": "wait until agents that offer the tool were seen, or have a person look at it",
    "contradiction": "follow the owner's sentence, or have its owner change it first",
}
"""Rule → what to do about it."""
_SEEN = 100
"""Sessions that a procedure without evidence is compared with."""


@dataclass(frozen=True, slots=True)
class Objection:
    """Something that keeps an artefact from agents until a person lets it pass."""

    rule: str
    where: str
    """Place in the document."""
    what: str
    beside: str = field(default="", repr=False)
    """What it is compared with, as it is stored: for a person's eyes, not for errors and logs."""

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return REMEDIES[self.rule]


def plain_data(text: str) -> Collection[str]:
    """Return what the second pass of governance finds: secrets and values with a shape, no names."""
    return {entity for entity, check in _CHECKS.items() if check.count(text)}


_CHECKS = {entity.value: LeftoverCheck([entity]) for entity in Leftover}


def inspect(
    spec: ArtifactSpec,
    source: LearningSource,
    *,
    live: ArtifactSpec | None = None,
    about: str | None = None,
    find: FindPersonalData = plain_data,
) -> list[Objection]:
    """Return all objections to an artefact, in the order of its parts.

    Args:
        spec: the candidate.
        source: the lake with its evidence.
        live: what serves under its name.
        about: its description, which exported skills show.
        find: finds personal data and secrets.
    """
    setup = setup_of(source, spec.tenant)
    steps = spec.all_evidence
    sessions = [] if spec.tenant is None or not steps else sessions_of(
        source, spec.tenant, steps=steps, most=len(steps)
    )  # fmt: skip
    found = [*_in_texts(spec, setup, about, find)]
    for fact in () if spec.memory is None else spec.memory.facts:
        own = [one for one in sessions if not {*fact.evidence}.isdisjoint(one.steps)]
        found += [Objection(r, f"facts/{fact.id}", what) for r, what in fact_objections(fact, own)]
    if spec.skill is not None:
        compared = sessions or _sessions_like(spec, source, setup)
        objected = skill_objections(spec.skill, compared, setup, drawn=bool(sessions))
        found += [Objection(rule, "procedure", what) for rule, what in objected]
    if spec.tools is not None:
        before = None if live is None else live.tools
        found += [Objection(*one) for one in tool_objections(spec.tools, setup.tools, before)]
    if spec.harness is not None and spec.harness.replace is not None:
        edit = spec.harness.replace
        found += [Objection(*one) for one in text_objections("replace/new", edit.old, edit.new)]
    return list(dict.fromkeys(found))


def _in_texts(
    spec: ArtifactSpec, setup: AgentSetup, about: str | None, find: FindPersonalData
) -> Iterator[Objection]:
    policy = [*setup.prompts]
    for name, versions in setup.tools.items():
        if spec.tools is None or name not in spec.tools.names:
            policy += [one["description"] for one in versions]
    owner = OwnersWords(policy)
    replaced = spec.harness.replace.old if spec.harness and spec.harness.replace else None
    for where, text in _texts(spec, about):
        is_fact = spec.memory is not None
        for rule, what in objections(text, is_fact=is_fact):
            yield Objection(rule, where, what)
        for entity in sorted({*find(text), *find(visible(text))}):
            yield Objection("personal_data", where, f"holds {entity}")
        for sentence in owner.contradicted_by(text):
            if replaced is None or sentence not in " ".join(replaced.split()):
                said = "the owner of the agent says otherwise"
                yield Objection("contradiction", where, said, sentence)
    for one, other in pairwise(() if spec.memory is None else spec.memory.facts):
        if order_over_both(one.text, other.text):
            yield Objection("instruction", f"facts/{other.id}", "ends an order that another begins")


def _texts(spec: ArtifactSpec, about: str | None) -> Iterator[tuple[str, str]]:
    """Yield each text of an artefact that an agent may see, and where it stands."""
    if about is not None:
        yield "description", about
    for fact in () if spec.memory is None else spec.memory.facts:
        yield f"facts/{fact.id}", fact.text
    if spec.skill is not None:
        yield "title", spec.skill.title
        yield "procedure", spec.skill.procedure
        for at, phrase in enumerate(spec.skill.trigger.phrases):
            yield f"trigger/phrases/{at}", phrase
    if spec.harness is not None:
        yield from (("append", spec.harness.append),) if spec.harness.append else ()
        yield from (("replace/new", spec.harness.replace.new),) if spec.harness.replace else ()
    for at, operation in enumerate(() if spec.tools is None else spec.tools.patch):
        if operation["op"] != "test":  # the names of properties are in paths too
            for text in (*pointer(operation["path"])[2:], *_strings(operation.get("value"))):
                yield f"patch/{at}", text


def _strings(value: Any) -> Iterator[str]:
    """Yield all texts of a JSON value, names of keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _strings(key)
            yield from _strings(one)


def _sessions_like(
    spec: ArtifactSpec, source: LearningSource, setup: AgentSetup
) -> list[AgentSession]:
    """Return sessions that call the tools which a procedure without evidence names."""
    if spec.tenant is None or spec.skill is None:
        return []
    tools = {name for name in setup.tools if name in spec.skill.procedure}
    return sessions_of(source, spec.tenant, tools=tools, most=_SEEN) if tools else []
