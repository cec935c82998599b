"""What redaction writes itself, and never redacts again: its marks, and surrogates of the wire."""

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from governance.policy.redaction import DEFAULT_ENTITIES, Operator, RedactionSpec
from governance.redact.pseudonym import ENCODED_DATA
from trajectory.realistic_surrogate import own_spans
from trajectory.surrogate import FORM
from trajectory.surrogate import PATTERN as SURROGATE

_WITH_A_LETTER = r"(?=[0-9]{0,31}[a-f])[0-9a-f]"
"""A hexadecimal digit of a mark: one of them is a letter, so that no number passes for a mark."""


def own_marks(operators: Mapping[str, Operator]) -> re.Pattern[str]:
    """Return what a policy's redaction writes itself, and what is never redacted again.

    A mark names an entity that is looked for; sealed values count where the policy seals them, and
    ``****`` where it stands alone. Surrogates that the gateway put in are marks too.
    """
    known = "|".join(sorted({*operators, *DEFAULT_ENTITIES, ENCODED_DATA}))
    sealed = "|".join(sorted(one for one, how in operators.items() if how is Operator.ENCRYPT))
    marks = [
        rf"<(?:{known})(?:_{_WITH_A_LETTER}{{6,32}}|:{_WITH_A_LETTER}{{16}})?>",
        r"(?<![0-9A-Za-z*])\*{4}(?![0-9A-Za-z*])",
        SURROGATE,
    ]
    if sealed:
        marks.append(rf"<(?:{sealed})~(?:[0-9a-f]{{32}}|0)\.[A-Za-z0-9_\-]{{20,4000}}>")
    return re.compile("|".join(marks))


class OwnMarks:
    """Where in a text there is something that redaction wrote itself."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]

    def leave_free(self, start: int, end: int) -> bool:
        """Whether a span has nothing in common with any of them."""
        place = bisect_left(self._starts, end) - 1
        return place < 0 or self._ends[place] <= start


@dataclass(frozen=True, slots=True)
class MarkFinder:
    """Finds what redaction wrote itself."""

    pattern: re.Pattern[str]
    check: bytes | None = None
    """By which realistic surrogates are known; None where policy makes none."""

    @classmethod
    def of(cls, spec: RedactionSpec, subject_key: bytes) -> "MarkFinder":
        """Return the finder of a policy."""
        is_realistic = spec.inline is not None and spec.inline.surrogates == "realistic"
        check = check_key(subject_key) if is_realistic else None
        return cls(own_marks(spec.operators()), check)

    def within(self, text: str) -> OwnMarks | None:
        """Return those of a text; None when there are none."""
        spans = [] if self.check is None else [*own_spans(text, self.check)]
        if "<" in text or "****" in text or FORM.search(text) is not None:
            spans = sorted([*spans, *(match.span() for match in self.pattern.finditer(text))])
        return OwnMarks(spans) if spans else None


def check_key(subject_key: bytes) -> bytes:
    """Return the key by which an installation knows its realistic surrogates, on the wire and at rest."""
    return blake2b(b"realistic surrogates", key=subject_key, digest_size=32).digest()
