"""Lineages: which versions of a harness are one agent's, and which number each has.

An agent that says who it is keeps that name, whatever its prompt says. Any other harness belongs to
the lineage that it resembles most, within its tenant and application; what resembles none begins a
lineage. Versions count from 1 in the order of their first sight and never change.

Resemblance is the Jaccard index of two sets: all runs of three words of the prompt, and the names
of the tools. It is estimated from the smallest keyed hashes of each set (Broder 1997). Two prompts
that say "You are …" of different agents never belong together: agents of one company share much of
their text.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from itertools import takewhile

from trajectory.harness.normal_form import NormalForm

ALIKE = 0.3
"""A harness that resembles a version at least so much belongs to its lineage."""
_SKETCH = 64
_CANDIDATES = 8
_TOOL_WEIGHT = 4
"""How many runs of words the name of a tool counts for."""
_RUN = 3
_NAME_DIGITS = 6
_WHO = re.compile(
    r"\b(?:you are|you're|act as|du bist|sie sind)\s+(?:now\s+)?((?:[\w'’-]+[ \t]*){1,8})",
    re.IGNORECASE,
)
_ENDS = frozenset(
    [
        "for",
        "of",
        "at",
        "in",
        "to",
        "and",
        "that",
        "who",
        "which",
        "with",
        "inside",
        "für",
        "von",
        "bei",
        "im",
        "mit",
        "und",
    ]
)
"""The words before these say who, those behind them for whom: one company has many agents."""
_SAYS_NOTHING = frozenset(
    [
        "a",
        "an",
        "the",
        "agent",
        "assistant",
        "bot",
        "ai",
        "llm",
        "model",
        "language",
        "large",
        "helpful",
        "friendly",
        "kind",
        "expert",
        "professional",
        "senior",
        "skilled",
        "working",
        "your",
        "our",
        "my",
        "ein",
        "eine",
        "einen",
        "der",
        "die",
        "das",
        "assistent",
    ]
)


@dataclass(frozen=True, slots=True)
class Sketch:
    """What tells whether two harnesses are one agent's; it holds hashes only."""

    smallest: tuple[int, ...]
    """The smallest hashes of the words and tools, ascending."""
    who: tuple[int, ...]
    """Hashes of the words by which the prompt says who the agent is; empty when it does not."""

    @classmethod
    def of(cls, form: NormalForm, key: bytes) -> "Sketch":
        """Return the sketch of a normal form; other keys give hashes that cannot be compared."""
        words = " ".join(form.lines).split()
        runs = {" ".join(words[at : at + _RUN]) for at in range(max(1, len(words) - _RUN + 1))}
        names = [json.loads(tool).get("name") or "" for tool in form.tools]
        runs |= {f"\0{name}\0{at}" for name in names for at in range(_TOOL_WEIGHT)}
        runs.discard("")
        said = _WHO.search(" ".join(form.lines[:8]))
        phrase = said[1].lower().split() if said else []
        who = set(takewhile(lambda word: word not in _ENDS, phrase)) - _SAYS_NOTHING
        return cls(tuple(sorted(_hashed(runs, key))[:_SKETCH]), tuple(sorted(_hashed(who, key))))

    def likeness(self, other: "Sketch") -> float:
        """Return the estimated share of what both have; 0 when they say that they are others."""
        if self.who and other.who and set(self.who).isdisjoint(other.who):
            return 0.0
        union = sorted({*self.smallest, *other.smallest})[:_SKETCH]
        both = {*self.smallest} & {*other.smallest}
        return sum(one in both for one in union) / len(union) if union else 1.0


def _hashed(words: Iterable[str], key: bytes) -> set[int]:
    return {
        int.from_bytes(
            blake2b(word.encode("utf-8", "replace"), key=key, digest_size=8).digest(), signed=True
        )
        for word in words
    }


@dataclass(frozen=True, slots=True)
class HarnessVersion:
    """One version of an agent's harness: a row of the table ``harness_versions``."""

    tenant_id: str
    app_id: str
    harness_name: str
    harness_version: int
    form_id: str
    """Keyed hash of the normal form."""
    is_declared: bool
    """The agent said its name itself."""
    harness_id: str
    """The harness that was seen first in this form."""
    first_seen_at: datetime
    smallest: tuple[int, ...]
    who: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sighting:
    """A harness as some step had it."""

    tenant_id: str
    app_id: str
    agent: str | None
    """What the agent calls itself, redacted; None when it does not say."""
    form_id: str
    harness_id: str
    seen_at: datetime
    sketch: Callable[[], Sketch]

    @property
    def key(self) -> "FormKey":
        """What versions are looked up by."""
        return self.tenant_id, self.app_id, self.agent or "", self.form_id


type FormKey = tuple[str, str, str, str]
"""Tenant, application, the agent's own name or nothing, and the form."""


def _age(version: HarnessVersion) -> tuple[datetime, str, int]:
    return version.first_seen_at, version.harness_name, version.harness_version


class Lineages:
    """The versions that are known, and the numbers of new ones."""

    def __init__(self, versions: Iterable[HarnessVersion] = ()) -> None:
        self._by_form: dict[FormKey, HarnessVersion] = {}
        self._latest: dict[tuple[str, str, str], int] = {}
        self._inferred: dict[tuple[str, str], list[HarnessVersion]] = defaultdict(list)
        self._having: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        for version in versions:
            self._add(version)

    def find(self, key: FormKey) -> HarnessVersion | None:
        """Return a version that is known."""
        return self._by_form.get(key)

    def number(self, sightings: Sequence[Sighting]) -> list[HarnessVersion]:
        """Return the versions that are seen for the first time, numbered in order of time."""
        fresh: list[HarnessVersion] = []
        for one in sorted(sightings, key=lambda one: (one.seen_at, one.harness_id)):
            if one.key not in self._by_form:
                fresh.append(self._first(one))
                self._add(fresh[-1])
        return fresh

    def _first(self, one: Sighting) -> HarnessVersion:
        sketch = one.sketch()
        name = one.agent or self._name(one, sketch)
        return HarnessVersion(
            tenant_id=one.tenant_id,
            app_id=one.app_id,
            harness_name=name,
            harness_version=self._latest.get((one.tenant_id, one.app_id, name), 0) + 1,
            form_id=one.form_id,
            is_declared=one.agent is not None,
            harness_id=one.harness_id,
            first_seen_at=one.seen_at,
            smallest=sketch.smallest,
            who=sketch.who,
        )

    def _name(self, one: Sighting, sketch: Sketch) -> str:
        """Return the name of the lineage that a harness resembles most, or a new one."""
        known = self._inferred[one.tenant_id, one.app_id]
        shared = Counter(
            place
            for value in sketch.smallest
            for place in self._having.get((one.tenant_id, one.app_id, value), ())
        )
        likely = sorted(shared, key=lambda place: (-shared[place], _age(known[place])))
        best = max(
            (
                (sketch.likeness(Sketch(known[at].smallest, known[at].who)), _age(known[at]))
                for at in likely[:_CANDIDATES]
            ),
            default=None,  # of equals the latest: an edit follows an edit
        )
        if best is not None and best[0] >= ALIKE:
            return best[1][1]
        digits = one.form_id.removeprefix("b2:")
        for length in range(_NAME_DIGITS, len(digits)):
            name = f"agent-{digits[:length]}"
            if (one.tenant_id, one.app_id, name) not in self._latest:
                return name
        return f"agent-{digits}"

    def _add(self, version: HarnessVersion) -> None:
        agent = version.harness_name if version.is_declared else ""
        tenant, app = version.tenant_id, version.app_id
        self._by_form[tenant, app, agent, version.form_id] = version
        of_name = tenant, app, version.harness_name
        self._latest[of_name] = max(self._latest.get(of_name, 0), version.harness_version)
        if not version.is_declared:
            place = len(self._inferred[tenant, app])
            self._inferred[tenant, app].append(version)
            for value in version.smallest:
                self._having[tenant, app, value].append(place)
