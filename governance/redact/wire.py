"""Redaction on the wire: surrogates in a request's body, before its provider sees it.

It finds what redaction at rest would find, by the same policy and detectors. What differs: each
value, as it is written, gets a surrogate from which the gateway restores it.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import batched
from types import MappingProxyType

from governance.detect.questions import LONGEST_ANSWER, key_of_answer
from governance.policy.redaction import RedactionSpec
from governance.redact.json_text import encoded, literals
from governance.redact.numbers import BareNumbers
from governance.redact.places import AnswerKey
from governance.redact.redactor import Redactor
from governance.redact.report import RedactionError, RedactionScope
from governance.redact.segments import Path, Visitor, rewritten_text
from governance.redact.substitution import StandIn, Substitution
from trajectory.realistic_surrogate import drawn, name_units
from trajectory.surrogate import PseudonymisedText, surrogate

type Place = Callable[[Path, str, str], Path | None]
"""Takes a literal's key path in the body, its kind and what it says; returns the path that detectors are
told, None where the literal belongs to the protocol and stays."""

_ATTEMPTS = 8
"""Realistic surrogates that a value may have: there are but so many telephones of nobody."""
_TELLING = re.compile(r"[^\W\d_]{3}")
"""Letters that a value must have to be known again: a number of four digits is not always a PIN."""
_NOTHING: Mapping[str, str] = MappingProxyType({})
_QUESTION = 200
"""So many characters at the end of a message may ask for something."""


class WireRedactor(Redactor):
    """Puts surrogates into requests by one policy. Not for several threads at once."""

    def pseudonymise(
        self,
        body: str,
        place: Place,
        said: Sequence[tuple[Path, str]],
        *,
        tenant: str,
        key: bytes,
        seconds: float = float("inf"),
        known: Mapping[str, str] = _NOTHING,
        people: Sequence[str] = (),
    ) -> PseudonymisedText:
        """Return a JSON body with surrogates for all that is found; all else stays byte for byte.

        Args:
            body: valid JSON.
            place: tells what belongs to the protocol.
            said: the conversation's texts in order, each with its place in the body.
            tenant: whose request it is.
            key: the key of its scope.
            seconds: how long it may take, at most what policy says.
            known: surrogates that the conversation got before, and what they stand for. Such a value
                gets its surrogate again even where no detector finds it.
            people: ids of who uses the application: whom the text concerns, too.

        Raises:
            RedactionError: a detector failed or time ran out; the body must not be sent.
        """
        scope = RedactionScope(tenant_id=tenant, trajectory_id="")
        again = _Again(known)
        answers = _answers(said)

        looked_at = [
            (start, end, where, kind, value)
            for start, end, path, kind, value in literals(body)
            if (where := _where(path, place(path, kind, value), kind, answers)) is not None
        ]

        def walk(text: str, visitor: Visitor) -> str:
            pieces: list[str] = []
            at = 0
            for start, end, where, kind, value in looked_at:
                old = new = text[start:end]
                if kind == "number":
                    number = visitor.number(value, where)
                    new = old if number is None else str(number)
                else:
                    told = again.put(rewritten_text(value, where, visitor))
                    if told != value:
                        new = encoded(told, like=old)
                if new != old:
                    pieces += (text[at:start], new)
                    at = end
            return "".join((*pieces, text[at:])) if pieces else text

        self._detections.seconds = min(seconds, self._spec.timeout_seconds)
        surrogates = _SurrogateSubstitution(self, scope, key, known)
        ((told, report),), _ = self._redact([body], scope, walk, surrogates)
        named = [name for one in people for name in self._pseudonyms.people(tenant, one)]
        subjects = tuple(dict.fromkeys((*report.subjects, *named)))
        return PseudonymisedText(
            told,
            surrogates.issued,
            surrogates.entities,
            frozenset(surrogates.numbers),
            subjects,
        )


class _Again:
    """Puts surrogates that a conversation has into texts in which no detector finds their values."""

    def __init__(self, known: Mapping[str, str]) -> None:
        told = {value: name for name, value in known.items() if _TELLING.search(value)}
        longest = sorted(map(re.escape, told), key=len, reverse=True)
        self._names = told
        self._pattern = re.compile(rf"(?<!\w)(?:{'|'.join(longest)})(?!\w)") if told else None

    def put(self, text: str) -> str:
        """Return a text with them."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._names[found[0]], text)


class _SurrogateSubstitution(Substitution):
    """Decides as redaction at rest does, and gives each value a surrogate."""

    def __init__(
        self, redactor: WireRedactor, scope: RedactionScope, key: bytes, known: Mapping[str, str]
    ) -> None:
        super().__init__(redactor._spec, redactor._pseudonyms, redactor._marks, scope)
        self._key = key
        self._check = redactor._marks.check
        self.issued: dict[str, str] = {**known}
        self.entities: dict[str, str] = {}
        self._named = {value: name for name, value in known.items()}
        self.numbers: set[str] = set()

    def _issue(self, entity: str, written: str) -> str:
        name = self._named.get(written) or surrogate(self._key, entity, written)
        if self.issued.setdefault(name, written) != written:
            raise RedactionError("two values of a request would have one surrogate")
        self.entities.setdefault(name, entity)
        return name

    def _stand_in(self, entity: str, value: str, written: str = "") -> StandIn:
        written = written or value
        name = self._realistic(entity, written) if self._check is not None else None
        return name or self._issue(entity, written), self._subjects(entity, value)

    def _realistic(self, entity: str, written: str) -> str | None:
        """Return a realistic surrogate; None where a value has none. Of a name each word has its own."""
        if entity != "PERSON":
            return self._drawn(entity, written)
        units = name_units(written)
        edges = [0, *(at for unit in units for at in unit), len(written)]
        gaps = [written[start:end] for start, end in batched(edges, 2)]
        if not units or any(one.isalnum() for gap in gaps for one in gap):
            return None
        words = [self._drawn(entity, written[start:end]) or "" for start, end in units]
        if not all(words):
            return None
        return gaps[0] + "".join(f"{word}{gap}" for word, gap in zip(words, gaps[1:], strict=True))

    def _drawn(self, entity: str, written: str) -> str | None:
        """Return the first surrogate of a value that stands for no other one in this request."""
        if written in self._named:
            return self._issue(entity, written)
        for attempt in range(_ATTEMPTS):
            name = drawn(self._key, entity, written, check=self._check or b"", attempt=attempt)
            if name is None:
                return None
            if self.issued.setdefault(name, written) == written:
                self.entities.setdefault(name, entity)
                return name
        return None

    def _for_digits(self, entity: str, written: str) -> str:
        return self._issue(entity, written)

    def of_number(self, entity: str, written: str, numbers: BareNumbers) -> str:  # noqa: ARG002
        """Return a string in the number's place: no number could be told from another one."""
        name = self._issue(entity, written)
        self.numbers.add(name)
        return f'"{name}"'


def _answers(said: Sequence[tuple[Path, str]]) -> dict[Path, str]:
    """Return what short texts answer, by their places: what the one before asks for."""
    out: dict[Path, str] = {}
    question = ""
    for path, text in said:
        if question and len(text) <= LONGEST_ANSWER:
            key = key_of_answer(question, text)
            if key is not None:
                out[path] = AnswerKey(key)
        question = text[-_QUESTION:]
    return out


def _where(path: Path, where: Path | None, kind: str, answers: dict[Path, str]) -> Path | None:
    """Return the path that detectors are told of a literal."""
    if where is None:
        return None
    if kind == "key":
        return (*where[:-1], "*")
    return (*where[:-1], answers[path]) if path in answers else where


def wire_spec(spec: RedactionSpec, entities: Collection[str]) -> RedactionSpec:
    """Return a policy's ``spec`` that looks for these entity types alone."""
    others = tuple(name for name in spec.operators() if name not in entities)
    return spec.model_copy(update={"disabled": (*spec.disabled, *others)})
