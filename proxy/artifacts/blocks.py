"""Artefacts as they are applied to one request: what each adds, and how much of that there may be."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import log
from typing import NamedTuple

from proxy.artifacts.bodies import ModelBody, OfferedTools
from proxy.artifacts.placed_json import dumped
from proxy.artifacts.said_texts import SaidText, SaidTexts
from proxy.artifacts.system_prompt import SystemPrompt
from trajectory.artifact import (
    MARK,
    ArtifactSpec,
    HarnessContent,
    SkillContent,
)
from trajectory.json_patch import PatchTestError, apply_patch

_FACTS = "Known facts:"
_BYTES_PER_TOKEN = 3
"""Prose has four or more: so a count of tokens is rather too high than too low."""
_WORD = re.compile(r"\w+")
_K1, _B = 1.2, 0.75
"""The usual parameters of BM25."""

type Cue = frozenset[str] | bool
"""What of a conversation decides whether an artefact is applied, and which facts are shown."""


class NoRoomError(Exception):
    """What an artefact adds is more than there is room for."""


class MalformedArtifactError(Exception):
    """An artefact cannot be applied to any request, or not to this one."""


class Addition(NamedTuple):
    """What one artefact added to one request."""

    tokens: int
    label: str
    """``name@version``, with ``=id+id`` behind it where facts were shown."""


def tokens_of(length: int) -> int:
    """Return as how many tokens a text counts that adds so many bytes."""
    return max(0, -(-length // _BYTES_PER_TOKEN))


class FactIndex:
    """Finds the facts that fit a conversation best, by Okapi BM25."""

    def __init__(self, texts: Iterable[str]) -> None:
        documents = [Counter(_WORD.findall(text.casefold())) for text in texts]
        mean = sum(map(Counter.total, documents)) / max(1, len(documents)) or 1.0
        holding = Counter(word for words in documents for word in words)
        self.vocabulary = frozenset(holding)
        self._weights: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for at, words in enumerate(documents):
            norm = _K1 * (1 - _B + _B * words.total() / mean)
            for word, count in words.items():
                rare = log(1 + (len(documents) - holding[word] + 0.5) / (holding[word] + 0.5))
                self._weights[word].append((at, rare * count * (_K1 + 1) / (count + norm)))

    def shared(self, said: SaidTexts, before: frozenset[str] | None = None) -> frozenset[str]:
        """Return the words that were said and are those of a fact.

        Args:
            said: the end of a conversation.
            before: the same of its last call; then only what has come and gone is looked at.
        """
        vocabulary = self.vocabulary
        if before is None:
            return frozenset().union(*[one.words_among(vocabulary) for one in said.texts])
        shared = before
        for one in said.come:
            found = one.words_among(vocabulary)
            if not found <= shared:
                shared = shared.union(found)
        for one in said.gone:
            lost = one.words_among(vocabulary)
            for other in said.texts:
                if not lost:
                    break
                lost = lost.difference(other.words_among(vocabulary))
            if lost:
                shared = shared.difference(lost)
        return shared

    def ranked(self, shared: frozenset[str]) -> list[int]:
        """Return the places of the facts that have one of the shared words, the best first."""
        scores: dict[int, float] = defaultdict(float)
        for word in sorted(shared):
            for at, weight in self._weights[word]:
                scores[at] += weight
        return sorted(scores, key=lambda at: (-scores[at], at))


class Reminder(NamedTuple):
    """A block of facts."""

    block: str
    """As JSON, without its quotes."""
    addition: Addition


class EditedPrompt(NamedTuple):
    """The system prompt of a request after an edit."""

    prompt: SystemPrompt
    tokens: int


class Redefinition(NamedTuple):
    """The tools of a request after a patch."""

    tools: OfferedTools
    tokens: int


class PreparedArtifact:
    """One version, ready to be applied."""

    def __init__(self, label: str, spec: ArtifactSpec) -> None:
        self.label = label
        self.tenant = spec.tenant
        self.spec = spec
        facts = () if spec.memory is None else spec.memory.facts
        self._index = FactIndex(fact.text for fact in facts)
        self._lines = [f"\n- {fact.text}" for fact in facts]
        self._lengths = [len(line.encode()) for line in self._lines]
        self._lines = [_escaped(line) for line in self._lines]
        phrases = () if spec.skill is None else spec.skill.trigger.phrases
        self._phrases = tuple(phrase.casefold() for phrase in phrases)
        block = f'<{MARK} name="{label}">\n{_standing(spec)}\n</{MARK}>'
        self._length = len(block.encode())
        self._block = _escaped(block)
        self._facts_end = len(self._block) - len(_escaped(f"\n</{MARK}>"))
        self._appended = Addition(_cost(self._length), label)
        self._reminder = lru_cache(maxsize=256)(self._make_reminder)
        """A conversation's calls mostly share their words with the same facts."""
        self._edited = lru_cache(maxsize=64)(self._make_edited)
        """A conversation's calls mostly have the same prompt, and the same tools."""
        self._redefined = lru_cache(maxsize=64)(self._redefine)

    def cue(self, said: SaidTexts, before: Cue | None = None) -> Cue:
        """Return what of a conversation decides about this artefact.

        Args:
            said: the end of the conversation.
            before: the same of its last call, where that is known.
        """
        if self.spec.memory is not None:
            return self._index.shared(said, before if isinstance(before, frozenset) else None)
        if self.spec.skill is None:
            return True
        if before is None or (before and said.gone):
            return self._is_asked_for(said.texts)
        return bool(before) or self._is_asked_for(said.come)

    def _is_asked_for(self, texts: Sequence[SaidText]) -> bool:
        for one in texts:
            for phrase in self._phrases:
                if phrase in one.text:
                    return True
        return False

    def apply(
        self, body: ModelBody, agent: str | None, room: int, cue: Cue | None = None
    ) -> Addition | None:
        """Change a request; None where the artefact does not fit it. A failure changes nothing.

        Args:
            body: of the request.
            agent: what the calling agent says that it is.
            room: tokens that may be added.
            cue: of the request's conversation, where it is known.

        Raises:
            NoRoomError: more would be added.
            MalformedArtifactError: it cannot be applied.
        """
        spec = self.spec
        if cue is None:
            cue = self.cue(body.said)
        if spec.harness is not None:
            return self._edit(spec.harness, body, agent, room)
        if spec.memory is not None:
            return self._remind(body, room, cue)
        if spec.skill is not None:
            return self._show(spec.skill, body, room, cue)
        return self._define(body, room)

    def _append(self, body: ModelBody, room: int) -> Addition:
        if self._appended.tokens > room:
            raise NoRoomError
        body.append(self._block)
        return self._appended

    def _edit(
        self, edit: HarnessContent, body: ModelBody, agent: str | None, room: int
    ) -> Addition | None:
        if edit.agent is not None and edit.agent != agent:
            return None
        if edit.prompt_holds is not None and edit.prompt_holds not in body.prompt.text:
            return None
        if edit.append is not None:
            return self._append(body, room)
        found = self._edited(body.prompt)
        if found is None:
            return None
        if found.tokens > room:
            raise NoRoomError
        body.prompt = found.prompt
        return Addition(found.tokens, self.label)

    def _make_edited(self, prompt: SystemPrompt) -> EditedPrompt | None:
        edit = self.spec.harness
        assert edit is not None  # noqa: S101 - for the type checker
        assert edit.replace is not None  # noqa: S101 - the document has one of both
        old, new = edit.replace.old, edit.replace.new
        edited = prompt.replace(old, new)
        if edited is None:
            return None
        return EditedPrompt(edited, tokens_of(len(new.encode()) - len(old.encode())))

    def _remind(self, body: ModelBody, room: int, shared: Cue) -> Addition | None:
        if not shared:
            return None
        found = self._reminder(shared, room)
        if found is None:
            raise NoRoomError
        body.append(found.block)
        return found.addition

    def _make_reminder(self, shared: frozenset[str], room: int) -> Reminder | None:
        """Return the facts that fit best; None where there is no room for any."""
        memory = self.spec.memory
        assert memory is not None  # noqa: S101 - for the type checker
        length, chosen, most = self._length, [], (room - 1) * _BYTES_PER_TOKEN
        for at in self._index.ranked(shared)[: memory.best]:
            if length + self._lengths[at] > most:
                break
            length += self._lengths[at]
            chosen.append(at)
        if not chosen:
            return None
        lines = "".join([self._lines[at] for at in chosen])
        block = self._block[: self._facts_end] + lines + self._block[self._facts_end :]
        ids = "+".join([memory.facts[at].id for at in chosen])
        return Reminder(block, Addition(_cost(length), f"{self.label}={ids}"))

    def _show(
        self, skill: SkillContent, body: ModelBody, room: int, asked_for: Cue
    ) -> Addition | None:
        needed = skill.trigger.tools
        if not asked_for or (needed and body.offered.definitions.keys().isdisjoint(needed)):
            return None
        return self._append(body, room)

    def _define(self, body: ModelBody, room: int) -> Addition | None:
        found = self._redefined(body.offered)
        if found is None:
            return None
        if found.tokens > room:
            raise NoRoomError
        body.offered = found.tools
        return Addition(found.tokens, self.label)

    def _redefine(self, offered: OfferedTools) -> Redefinition | None:
        tools = self.spec.tools
        assert tools is not None  # noqa: S101 - for the type checker
        names, definitions = tools.names, offered.definitions
        if not names <= definitions.keys():
            return None
        before = {name: definitions[name] for name in names}
        try:
            after = apply_patch(before, tools.patch)
        except PatchTestError:
            return None  # the patch says itself which definitions it is for
        if not all(_is_definition(after.get(name)) for name in names):
            raise MalformedArtifactError
        cost = tokens_of(len(_dump(after)) - len(_dump(before)))
        return Redefinition(offered.defined(after), cost)


def _standing(spec: ArtifactSpec) -> str:
    """Return what stands in each block of an artefact."""
    if spec.skill is not None:
        return f"{spec.skill.title}\n\n{spec.skill.procedure}"
    if spec.harness is not None:
        return spec.harness.append or ""
    return _FACTS


def _escaped(text: str) -> str:
    """Return a text as JSON, without its quotes."""
    return dumped(text)[1:-1]


def _cost(length: int) -> int:
    """Return what a block of so many bytes counts, with the empty line before it."""
    return tokens_of(length) + 1


def _is_definition(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and value.keys() == {"description", "parameters"}
        and isinstance(value["description"], str)
        and isinstance(value["parameters"], dict)
    )


def _dump(value: object) -> bytes:
    """Return a definition's bytes; escapes would make what it was longer than what it becomes."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")
