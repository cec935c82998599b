"""What an artefact says, beside what its evidence shows and what the owner of the agent wrote.

All of it compares words. A fact must be said by a person or an owner in a session of its evidence; a
sentence contradicts another one that is about the same if the two differ in a number or in a negation.
What says the same in wholly other words is not found.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from train.inspection.evidence import AgentSession, AgentSetup, ToolUse, people_of
from train.inspection.texts import is_about_one, visible
from trajectory.artifact import RememberedFact, SkillContent

_SUPPORT = 0.6
"""Share of a fact's words that one session's people must have said."""
_POISONED = 0.34
"""Share of a fact's words that come from tools alone, from which on the tool is its source."""
_SHARED = 2
_ALIKE = 0.6
"""Share of the words of the shorter of two sentences from which on both are about the same."""
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+|(?<=:)\s*\n")
_WORD = re.compile(r"[^\W_]+(?:['\u2019][a-z]+)?|\d+(?:[.,]\d+)*")
_ANSWER = re.compile(r"^\s*(?:no|nope|nein)\s*[,;:.!\u2013-]\s*")
"""Denies what was asked before, and nothing of what comes behind it."""
_STOP_WORDS = (
    "a an the and or of to in on at for from by with within as is are was were be been it its this that these those "
    "there their they them you your we our us i my me he she his her do does did has have had can may might will would "
    "shall should must need so if then than when where which who what how all any each every some please also only "
    "just about into over per via up out more less after before during"
)
_STOP = frozenset(_STOP_WORDS.split())
_DENYING = (
    "not no never none nothing neither nor cannot without optional unnecessary skip skipping waive waived exempt "
    "forbidden prohibited refuse refused unless except impossible"
)
_DENIALS = frozenset(_DENYING.split())
_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
)
_NUMBER_WORDS = {word: str(at) for at, word in enumerate(_NUMBERS.split())}
_ASKS = re.compile(
    r"\b(?:confirm|shall i|should i|do you want me to|would you like me to|are you sure|is that (?:right|correct|ok)|go ahead"
    r"|may i|proceed|bestätig\w*|soll ich)\b",
    re.IGNORECASE,
)
_CONFIRMS = re.compile(
    r"\b(?:confirm\w*|approv\w*|agree\w*|consent\w*|permission|go[- ]ahead|verif\w*|ask (?:the|for|them|whether)|says yes"
    r"|double[- ]check\w*|bestätig\w*)",
    re.IGNORECASE,
)
_GUARD_TOOL = re.compile(
    r"confirm|verif|approv|authenticat|authori[sz]|consent|identi(?:fy|ty)|double_?check|dry_?run|preview",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(r"(?<![\w.-])[A-Za-z][\w.-]*(?![\w-])")


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence as it is compared."""

    words: frozenset[str]
    numbers: frozenset[str]
    denies: bool


def sentences(text: str) -> list[str]:
    """Return the sentences of a text that say something: questions do not."""
    found = (one.strip() for one in _SENTENCE.split(visible(text)))
    return [one for one in found if one and not one.rstrip(" \"')").endswith("?")]


def claims(text: str) -> list[Claim]:
    """Return the sentences of a text; questions say nothing."""
    found = map(claim, sentences(text))
    return [one for one in found if one.words or one.numbers]


def claim(sentence: str) -> Claim:
    """Return a sentence as it is compared."""
    words, numbers, denials = set(), set(), 0
    for word in _WORD.findall(_ANSWER.sub("", sentence.casefold())):
        plain = _NUMBER_WORDS.get(word, word)
        if plain[0].isdigit():
            numbers.add(plain.replace(",", "").removesuffix(".00"))
        elif plain in _DENIALS or plain.endswith(("n't", "n\u2019t")):
            denials += 1
        elif plain not in _STOP and len(plain) > 2:
            words.add(_stem(plain))
    return Claim(frozenset(words), frozenset(numbers), denials % 2 == 1)


def _stem(word: str) -> str:
    """Return what stands for a word and its plain inflections."""
    for ending in ("ations", "ation", "ings", "ing", "ies", "ied", "ed", "es", "s", "y", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def fact_objections(
    fact: RememberedFact, sessions: Sequence[AgentSession]
) -> Iterator[tuple[str, str]]:
    """Yield rule and what is wrong where the evidence of a fact does not carry it.

    Args:
        fact: the candidate's.
        sessions: those of its evidence; a fact that a person wrote down has none.
    """
    stated = claims(fact.text)
    own = _terms(stated)
    supporting = []
    if fact.evidence and own:
        best, tools = 0.0, 0.0
        for session in sessions:
            told = _said(session, ("person", "owner"))
            said = _terms(told)
            share = len(own & said) / len(own)
            values = {one for one in own if one[0].isdigit()}
            if share >= _SUPPORT and values <= said and not _turned_round(stated, told):
                supporting.append(session)
            best = max(best, share)
            tools = max(tools, len((own & _terms(_said(session, ("tool",)))) - said) / len(own))
        if not supporting and tools >= _POISONED:
            yield (
                "untrusted_source",
                "only what a tool answered says it, and anybody may write there",
            )
        elif not supporting:
            yield "unsupported", "no person and no owner says it in the steps of its evidence"
    if people_of(supporting) < 2 and is_about_one(fact.text):
        yield "one_person", "tells of one person, or holds a number that only one can have"


def _terms(found: Iterable[Claim]) -> frozenset[str]:
    return frozenset(term for one in found for term in one.words | one.numbers)


def _said(session: AgentSession, speakers: Sequence[str]) -> list[Claim]:
    texts = [turn.text for turn in session.turns if turn.speaker in speakers]
    return [one for text in texts for one in claims(text)]


def _turned_round(stated: Iterable[Claim], told: Sequence[Claim]) -> bool:
    """Tell whether a sentence denies what was said, or says what was denied."""
    for one in stated:
        alike = [other for other in told if _are_alike(one, other)]
        if (alike or one.denies) and all(other.denies != one.denies for other in alike):
            return True
    return False


class OwnersWords:
    """The owner's sentences, read once for all texts that are compared with them."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._found: list[tuple[str, Claim]] = []
        self._holding: dict[str, list[int]] = defaultdict(list)
        for written in dict.fromkeys(texts):
            for sentence in _SENTENCE.split(visible(written)):
                theirs = claim(sentence)
                for word in theirs.words:
                    self._holding[word].append(len(self._found))
                self._found.append((" ".join(sentence.split()), theirs))

    def contradicted_by(self, text: str) -> Iterator[str]:
        """Yield the sentences that a text contradicts by a number or a negation."""
        own = claims(text)
        shared = Counter(
            at for one in own for word in one.words for at in self._holding.get(word, ())
        )
        for at in sorted(at for at, count in shared.items() if count >= _SHARED):
            sentence, theirs = self._found[at]
            if any(_contradict(one, theirs) for one in own):
                yield sentence


def _contradict(one: Claim, other: Claim) -> bool:
    if not _are_alike(one, other):
        return False
    if one.denies != other.denies:
        return True
    if not one.numbers or not other.numbers:
        return False
    return one.numbers.isdisjoint(other.numbers)


def _are_alike(one: Claim, other: Claim) -> bool:
    """Tell whether two sentences are about the same."""
    shared = len(one.words & other.words)
    return shared >= max(_SHARED, _ALIKE * min(len(one.words), len(other.words)))


def skill_objections(
    skill: SkillContent, sessions: Sequence[AgentSession], setup: AgentSetup, *, drawn: bool
) -> Iterator[tuple[str, str]]:
    """Yield rule and what is wrong where a procedure leaves out a check, or calls other tools.

    Args:
        skill: the candidate's.
        sessions: of its evidence, or else others that call its tools.
        setup: what the owner wrote.
        drawn: whether the sessions are its evidence.
    """
    text = visible(skill.procedure)
    named = _tools_named(text, {*setup.tools, *(use.name for one in sessions for use in one.uses)})
    order = list(named)
    prose = _IDENTIFIER.sub(lambda m: " " * len(m[0]) if m[0].rstrip(".-") in named else m[0], text)
    for tool in order:
        is_confirmed = _CONFIRMS.search(prose[: named[tool]]) is not None
        for guard in _guards_before(tool, sessions):
            if guard == "":
                missing = None if is_confirmed else "the person's confirmation"
            else:
                is_first = guard in named and named[guard] < named[tool]
                missing = None if is_first else guard
            if missing is not None:
                said = f"calls {tool} without {missing}, which comes before it in what was seen"
                yield "skipped_confirmation", said
        if not is_confirmed and _owner_asks(tool, setup.prompts):
            yield (
                "skipped_confirmation",
                f"calls {tool} unconfirmed, and the owner wants it confirmed",
            )
    if drawn:
        called = {use.name for one in sessions for use in one.uses}
        for tool in order:
            if tool not in called:
                yield "wider_permission", f"calls {tool}, which no session of its evidence calls"


def _tools_named(text: str, known: Iterable[str]) -> dict[str, int]:
    """Return where a text first names each tool, in that order."""
    names = {*known}
    found: dict[str, int] = {}
    for match in _IDENTIFIER.finditer(text):
        word = match.group().rstrip(".-")
        if word in names:
            found.setdefault(word, match.start())
    return found


def order_of_work(session: AgentSession) -> Iterator[ToolUse | None]:
    """Yield a session's calls in order; None stands for a person's yes to a question of the model."""
    asked = False
    for turn in session.turns:
        if turn.use is not None:
            yield turn.use
        elif turn.speaker == "model":
            asked = "?" in turn.text and bool(_ASKS.search(turn.text))
        elif turn.speaker == "person" and asked:
            asked = False
            yield None


def _guards_before(tool: str, sessions: Sequence[AgentSession]) -> list[str]:
    """Return which checks come before a tool in most sessions; the empty one is a person's yes."""
    counted: Counter[str] = Counter()
    calling = 0
    for session in sessions:
        seen: set[str] = set()
        for use in order_of_work(session):
            if use is not None and use.name == tool:
                calling += 1
                counted.update(seen)
                break
            if use is None or _GUARD_TOOL.search(use.name):
                seen.add("" if use is None else use.name)
    return sorted(guard for guard, count in counted.items() if 2 * count > calling)


def _owner_asks(tool: str, prompts: Iterable[str]) -> bool:
    """Tell whether a sentence of the owner names a tool and a confirmation."""
    for prompt in prompts:
        for sentence in _SENTENCE.split(prompt):
            if _CONFIRMS.search(sentence) and tool in _tools_named(sentence, [tool]):
                return True
    return False
