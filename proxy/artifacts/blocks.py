"""Artefacts as they are applied to one request: what each adds, and how much of that there may be."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from math import log
from typing import NamedTuple

from proxy.artifacts.bodies import ModelBody
from trajectory.artifact import (
    MARK,
    ArtifactSpec,
    HarnessContent,
    MemoryContent,
    SkillContent,
    ToolsContent,
)
from trajectory.json_patch import PatchTestError, apply_patch

_BYTES_PER_TOKEN = 3
"""Prose has four or more: so a count of tokens is rather too high than too low."""
_WORD = re.compile(r"\w+")
_K1, _B = 1.2, 0.75
"""The usual parameters of BM25."""


class NoRoomError(Exception):
    """What an artefact adds is more than there is room for."""


class MalformedArtifactError(Exception):
    """An artefact cannot be applied to any request, or not to this one."""


class Addition(NamedTuple):
    """What one artefact added to one request."""

    tokens: int
    facts: tuple[str, ...] = ()
    """Ids of the facts that were shown."""


def tokens_of(data: bytes) -> int:
    """Return as how many tokens an added text counts."""
    return -(-len(data) // _BYTES_PER_TOKEN)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


class FactIndex:
    """Finds the facts that fit a conversation best, by Okapi BM25."""

    def __init__(self, texts: Iterable[str]) -> None:
        documents = [Counter(_words(text)) for text in texts]
        mean = sum(map(Counter.total, documents)) / max(1, len(documents)) or 1.0
        holding = Counter(word for words in documents for word in words)
        self._weights: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for at, words in enumerate(documents):
            norm = _K1 * (1 - _B + _B * words.total() / mean)
            for word, count in words.items():
                rare = log(1 + (len(documents) - holding[word] + 0.5) / (holding[word] + 0.5))
                self._weights[word].append((at, rare * count * (_K1 + 1) / (count + norm)))

    def best(self, text: str, most: int) -> list[int]:
        """Return the places of the facts that share a word with a text, the best first."""
        scores: dict[int, float] = defaultdict(float)
        for word in {*_words(text)}:
            for at, weight in self._weights.get(word, ()):
                scores[at] += weight
        return sorted(scores, key=lambda at: (-scores[at], at))[:most]


class PreparedArtifact:
    """One version, ready to be applied."""

    def __init__(self, label: str, spec: ArtifactSpec) -> None:
        self.label = label
        self.tenant = spec.tenant
        self._spec = spec
        facts = () if spec.memory is None else spec.memory.facts
        self._index = FactIndex(fact.text for fact in facts)
        phrases = () if spec.skill is None else spec.skill.trigger.phrases
        self._phrases = tuple(phrase.casefold() for phrase in phrases)

    def apply(self, body: ModelBody, agent: str | None, room: int) -> Addition | None:
        """Change a request; None where the artefact does not fit it. A failure changes nothing.

        Args:
            body: of the request.
            agent: what the calling agent says that it is.
            room: tokens that may be added.

        Raises:
            NoRoomError: more would be added.
            MalformedArtifactError: it cannot be applied.
        """
        spec = self._spec
        if spec.harness is not None:
            return self._edit(spec.harness, body, agent, room)
        if spec.memory is not None:
            return self._remind(spec.memory, body, room)
        if spec.skill is not None:
            return self._show(spec.skill, body, room)
        assert spec.tools is not None  # noqa: S101 - the document has one of the four
        return self._define(spec.tools, body, room)

    def _block(self, text: str) -> str:
        return f'<{MARK} name="{self.label}">\n{text}\n</{MARK}>'

    def _append(self, body: ModelBody, text: str, room: int) -> int:
        block = self._block(text)
        cost = _cost(block)
        if cost > room:
            raise NoRoomError
        body.append(block)
        return cost

    def _edit(
        self, edit: HarnessContent, body: ModelBody, agent: str | None, room: int
    ) -> Addition | None:
        if edit.agent is not None and edit.agent != agent:
            return None
        if edit.prompt_holds is not None and edit.prompt_holds not in body.system:
            return None
        if edit.append is not None:
            return Addition(self._append(body, edit.append, room))
        assert edit.replace is not None  # noqa: S101 - the document has one of both
        old, new = edit.replace.old, edit.replace.new
        cost = tokens_of(new.encode()[len(old.encode()) :])
        if old not in body.system:
            return None
        if cost > room:
            raise NoRoomError
        return Addition(cost) if body.replace(old, new) else None

    def _remind(self, memory: MemoryContent, body: ModelBody, room: int) -> Addition | None:
        chosen = [memory.facts[at] for at in self._index.best(body.said(), memory.best)]
        if not chosen:
            return None
        while chosen:
            text = "Known facts:\n" + "\n".join(f"- {fact.text}" for fact in chosen)
            if _cost(self._block(text)) <= room:
                tokens = self._append(body, text, room)
                return Addition(tokens, tuple(fact.id for fact in chosen))
            chosen.pop()  # the one that fits least
        raise NoRoomError

    def _show(self, skill: SkillContent, body: ModelBody, room: int) -> Addition | None:
        offered = skill.trigger.tools
        if offered and body.tools().keys().isdisjoint(offered):
            return None
        said = body.said().casefold()
        if not any(phrase in said for phrase in self._phrases):
            return None
        return Addition(self._append(body, f"{skill.title}\n\n{skill.procedure}", room))

    def _define(self, tools: ToolsContent, body: ModelBody, room: int) -> Addition | None:
        names, offered = tools.names, body.tools()
        if not names <= offered.keys():
            return None
        before = {name: offered[name] for name in names}
        try:
            after = apply_patch(before, tools.patch)
        except PatchTestError:
            return None  # the patch says itself which definitions it is for
        cost = tokens_of(_dump(after)[len(_dump(before)) :])
        if not all(_is_definition(after.get(name)) for name in names):
            raise MalformedArtifactError
        if cost > room:
            raise NoRoomError
        body.define(after)
        return Addition(cost)


def _cost(block: str) -> int:
    """Return what a block counts, with the empty line before it."""
    return tokens_of(block.encode()) + 1


def _is_definition(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and value.keys() == {"description", "parameters"}
        and isinstance(value["description"], str)
        and isinstance(value["parameters"], dict)
    )


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
