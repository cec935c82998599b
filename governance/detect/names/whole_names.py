"""Names of which a part was found, grown to the whole: what stands right beside it is written as names are."""

import re
from collections.abc import Iterator, Sequence

from governance.detect.finding import Finding, Unit
from governance.detect.names.patterns import PARTICLE
from governance.names.words import everyday, family_names, first_names, is_plain, things

_JOINT = r"(?:[ \u00a0+]|%20)"
_LETTERS = r"[^\W\d_](?:[^\W\d_]|['\u2019\-](?=[^\W\d_])){1,24}"
_RIGHT = re.compile(
    rf"(?P<joint>{_JOINT})(?P<particles>(?:{PARTICLE}{_JOINT}){{0,3}})(?P<word>{_LETTERS})(?![\w@=(\[/]|[.:]\w)"
)
_LEFT = re.compile(rf"(?<![\w@./\-])(?P<word>{_LETTERS}){_JOINT}\Z")
_ENDS_IN_PARTICLE = re.compile(rf"(?:\A|[ +]){PARTICLE}\Z")
_REACH = 28


class WholeNames:
    """Grows names of people that other detectors found in part."""

    name = "whole_names"
    version = "whole-1"
    entities = frozenset({"PERSON"})

    def find(
        self, units: Sequence[Unit], known: Sequence[Sequence[Finding]] = ()
    ) -> list[list[Finding]]:
        """Return names that go further than what was found of them."""
        return [
            [*self._grown(unit.view.original, findings)] if not unit.is_digits else []
            for unit, findings in zip(units, known or [()] * len(units), strict=True)
        ]

    def _grown(self, text: str, findings: Sequence[Finding]) -> Iterator[Finding]:
        for one in findings:
            if one.entity == "PERSON":
                start, end = _from(text, one.start, one.end), _to(text, one.start, one.end)
                if (start, end) != (one.start, one.end):
                    yield Finding("PERSON", start, end, one.score, self.name)


def _from(text: str, start: int, end: int) -> int:
    """Return where a name begins: a word in capitals before one, or before a plus sign."""
    if start < 3:
        return start
    found = _LEFT.search(text, max(0, start - _REACH), start)
    if found is None or not text[start:end].replace("-", "").isalpha():
        return start
    word, own = found["word"], text[start:end]
    if not _may_belong(word):
        return start
    in_capitals = word.isupper() and own.isupper() and own.title() in first_names()
    in_query = text[start - 1] == "+" and word[0].isupper()
    return found.start("word") if in_capitals or in_query else start


def _to(text: str, start: int, end: int) -> int:
    """Return where a name ends: behind a particle its family name, behind a given name one in small letters."""
    found = _RIGHT.match(text, end)
    if found is None:
        return end
    word, own = found["word"], text[start:end]
    if word[0].isupper() and (found["particles"] or _ENDS_IN_PARTICLE.search(own)):
        return found.end("word") if own[0].isupper() and word.lower() not in everyday() else end
    given = own.rpartition(" ")[2]
    if given.islower() and given.replace("-", "").isalpha() and not found["particles"]:
        listed = given.split("-")[0].capitalize() in first_names()
        grows = listed and word.islower() and len(word) >= 5 and _may_belong(word)
        return found.end("word") if grows and " " not in own else end
    in_title = given[:1].isupper() and word[0].isupper() and not word.isupper()
    if in_title and " " not in own and given.split("-")[0] in first_names() and text[end] == " ":
        known = word in family_names() or _may_belong(word)
        return found.end("word") if known and word not in first_names() else end
    if text[end] == "+" and word[0].isupper() and _may_belong(word):
        return found.end("word")
    return end


def _may_belong(word: str) -> bool:
    """Whether a word is none of any language, and no thing."""
    plain = word.lower()
    return not is_plain(plain) and plain not in things()
