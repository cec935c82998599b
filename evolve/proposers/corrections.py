"""Facts: what people said when they corrected an answer, in sessions that then ended well."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from evolve.proposers.proposer import ArtifactDraft, ProposalBounds, TenantEvidence, nameable
from train.inspection.claims import Claim, claim, sentences
from train.inspection.evidence import AgentSession, SessionTurn, people_of
from train.inspection.texts import is_about_one, objections
from trajectory.artifact import ArtifactSurface
from trajectory.assembly.signals import clues_of_message
from trajectory.canonical import content_hash
from trajectory.message import Message, TextPart

_ALIKE = 0.6
"""Share of common words from which on two statements are the same one."""
_WORDS = 2
"""A statement has so many at least."""
_CHARACTERS = 300
_SAID = 2000
"""Characters of a correction that are read: a longer text is no statement, whoever sends it."""
_FACTS = 200
_ALL_STEPS = 15_000
"""Of all facts together: with more a document would be too long."""
_LEADS = (
    "no", "nope", "wrong", "incorrect", "actually", "sorry", "well", "but", "and", "that's wrong", "that is wrong",
    "that's not right", "that is not right", "that's incorrect", "that is incorrect", "i said that", "i said",
    "i meant that", "i meant", "you forgot that", "you missed that", "as i said",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Statement:
    text: str
    claim: Claim
    session: AgentSession
    steps: tuple[str, ...]


class Corrections:
    """Proposes facts from corrections that later success confirmed."""

    name = "headrace:corrections"
    surface: ArtifactSurface = "memory"

    def propose(self, evidence: TenantEvidence, bounds: ProposalBounds) -> Iterator[ArtifactDraft]:
        """Yield the facts on which enough people agree, and which nobody as often denies."""
        sessions = evidence.sessions
        groups: list[list[_Statement]] = []
        for session in sessions:
            if session.success is not True:
                continue
            if bounds.tool is not None and bounds.tool not in {use.name for use in session.uses}:
                continue
            for statement in _statements(session):
                same = next(
                    (group for group in groups if all(_same(one, statement) for one in group)), None
                )
                if same is None:
                    groups.append([statement])
                else:
                    same.append(statement)
        groups = [nameable(group, lambda one: one.steps) for group in groups]
        support = [people_of(one.session for one in group) for group in groups]
        agreed = [
            group
            for group, own in zip(groups, support, strict=True)
            if own >= bounds.people
            and all(
                2 * other < own
                for rival, other in zip(groups, support, strict=True)
                if _rivals(group[0].claim, rival[0].claim)
            )
        ]
        told = nameable(agreed, _steps_of, _ALL_STEPS)[:_FACTS]
        facts = sorted(map(_fact, told), key=lambda fact: fact["id"])
        if facts:
            said = f"What people corrected, in sessions that ended well; {len(facts)} facts."
            yield ArtifactDraft("corrections", said, {"memory": {"facts": facts}})


def _statements(session: AgentSession) -> Iterator[_Statement]:
    """Yield what corrections of a session state, but for what was corrected again."""
    corrections = [turn for turn in session.turns if _is_correction(turn)]
    told = [sentences(turn.text[:_SAID]) for turn in corrections]
    claimed = [[claim(one) for one in each] for each in told]
    last = session.steps[-1]
    for at, turn in enumerate(corrections):
        later = [one for each in claimed[at + 1 :] for one in each]
        for sentence in told[at]:
            text = _plain(sentence)
            found = claim(text)
            if len(found.words) < _WORDS or len(text) > _CHARACTERS:
                continue
            if is_about_one(text) or any(objections(text, is_fact=True)):
                continue
            if not any(_rivals(found, one) for one in later):
                steps = tuple(dict.fromkeys((turn.step_id, last)))
                yield _Statement(text, found, session, steps)


def _is_correction(turn: SessionTurn) -> bool:
    if turn.speaker != "person":
        return False
    clues = clues_of_message(Message("user", (TextPart(turn.text),)))
    return any(clue.rule == "correction" for clue in clues)


def _plain(sentence: str) -> str:
    """Return a statement without the words that reject what was said before."""
    text = sentence.strip()
    while True:
        lead = next((one for one in _LEADS if _begins(text, one)), None)
        if lead is None:
            break
        text = text[len(lead) :].lstrip(" ,.:;!-\u2013\u2014")
    return text[:1].upper() + text[1:].rstrip(" .!;,") + "." if text else ""


def _begins(text: str, lead: str) -> bool:
    plain = text.lower().replace("\u2019", "'")
    return plain.startswith(lead) and not plain[len(lead) : len(lead) + 1].isalnum()


def _overlap(one: Claim, other: Claim) -> float:
    return len(one.words & other.words) / max(1, len(one.words | other.words))


def _same(one: _Statement, other: _Statement) -> bool:
    """Tell whether one says what the other says, or less of it.

    With a word in the place of another they are two facts: of bakeries, and of schools.
    """
    first, second = one.claim, other.claim
    alike = (first.numbers, first.denies) == (second.numbers, second.denies)
    holds = first.words <= second.words or second.words <= first.words
    return alike and holds and _overlap(first, second) >= _ALIKE


def _rivals(one: Claim, other: Claim) -> bool:
    """Tell whether two statements are about the same and differ in a number or a denial."""
    differ = (one.numbers, one.denies) != (other.numbers, other.denies)
    return differ and _overlap(one, other) >= _ALIKE


def _steps_of(group: Sequence[_Statement]) -> set[str]:
    return {step for one in group for step in one.steps}


def _fact(group: Sequence[_Statement]) -> dict[str, Any]:
    text = min((one.text for one in group), key=lambda said: (len(said), said))
    steps = sorted(_steps_of(group))
    name = f"f-{content_hash(text).removeprefix('b2:')[:12]}"
    return {"id": name, "text": text, "evidence": steps}
