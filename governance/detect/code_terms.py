"""Whether a capitalised word belongs to a program or a term, and not to a person."""

import re
from bisect import bisect_left

_REACH = 120
_NEAR = 2000
_OFTEN = 3
"""An identifier that is met so often is one in all of its text."""
_STATEMENT = (
    r"[ \t]*(?:def|class|return|import|elif|assert|raise|const|let|func|fn|public|private|static)\b"
)
_SIGNS = re.compile(
    r"\w\([^\s()]{0,60}\)|[=!<>]=|->|\):|%\(|\{\w*\}|\bself\.\w|\w\[\w+\]"
    rf"|^{_STATEMENT}",
    re.MULTILINE,
)
_BEGINS_AS_CODE = re.compile(_STATEMENT)
_MAY_BE_CODE = re.compile(
    r"\.\w|=(?<=\w=)|\((?<=\w\()|\[(?<=\w\[)|==|!=|<=|>=|->|\):|%\(|\{" rf"|\n{_STATEMENT}"
)
"""What is in every other text with a sign of a program or an identifier. Where each alternative begins
with a character, what is none of these is skipped eight times as fast."""
_IDENTIFIER = re.compile(r"\.[^\W\d_]\w*|\b[^\W\d_]\w*+[=(]")
_EPONYM = re.compile(
    r"(?:'s?)?[ \n]{1,2}(?:rank )?(?:alpha|kappa|d (?:was|of|is|=)|rules?|cages?|effects?|radius|criteri(?:on|a)|limits?|cycles?|syndrome|diseases?|scores?|palsy|reflex|maneuver|lymphoma|stain|scale|series|distributions?|correlations?|coefficients?|transforms?|"
    r"theorems?|algorithms?|calendars?|ordinals?|days? of|twister|filters?|equations?|laws?|notation|sort|"
    r"bound|inequality|matrix|constants?|primes?|hash|cipher|kernel|estimator|statistic|regression|"
    r"classifier|expansion|polynomials?|sequences?|automaton|machine|trees?|heaps?|sieve|diagrams?|graphs?|paradox|principle|process|method|test|polygon|curve|attractors?|dynasty|gambit|encoding|code)\b",
    re.IGNORECASE,
)
_BEFORE_TERM = frozenset(" \n'")
_MONTHS = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec)\b"
_DATE_BEFORE = re.compile(rf"(?:\d[ \-./]{{0,2}}|{_MONTHS}[\"', ]{{1,4}})\Z")
_DATE_AFTER = re.compile(rf"\.?(?:[ \-/]{{0,2}}\d|[\"', ]{{1,4}}{_MONTHS})")
_VERB_FOLLOWS = re.compile(
    r"[ \n]{1,2}(?:the|a|an|it|this|that|these|those|them|up|down|out|as|all|each|every|any|your|our|"
    r"its|whether|if|how|what|where|when|some|one|both|in|into|on|off|with|for|from|of|to)\b"
)


_DECLARED = re.compile(
    r"\b(?:struct|enum|impl|trait|interface|namespace|extends|implements|class|typedef|mod|record)[ \t]{1,4}\Z"
)


def is_declared(text: str, begin: int) -> bool:
    """Whether a word of a program language right before makes it a type: ``struct Harper``."""
    return _DECLARED.search(text, max(0, begin - 16), begin) is not None


class ProgramSigns:
    """Tells of words of one text whether they stand in a program; looks for its signs once."""

    _any: bool | None = None
    _spans: tuple[list[int], list[int]] | None = None
    _named: dict[str, list[int]] | None = None

    def __init__(self, text: str) -> None:
        self._text = text

    def may_be(self) -> bool:
        """Whether there may be any; a quick look at what is no program."""
        if self._any is None:
            text = self._text
            self._any = bool(_MAY_BE_CODE.search(text) or _BEGINS_AS_CODE.match(text))
        return self._any

    def around(self, begin: int, stop: int) -> bool:
        """Whether the line around a word is program text, or the word is an identifier near it."""
        if not self.may_be():
            return False
        text = self._text
        if self._spans is None:
            spans = [match.span() for match in _SIGNS.finditer(text)]
            self._spans = [start for start, _ in spans], [end for _, end in spans]
        if self._spans[0]:
            start = text.rfind("\n", max(0, begin - _REACH), begin) + 1 or max(0, begin - _REACH)
            end = text.find("\n", stop, stop + _REACH)
            if self._within(*self._spans, start, end if end >= 0 else stop + _REACH):
                return True
        places = self._identifiers().get(text[begin:stop])
        if places is None:
            return False
        if len(places) >= _OFTEN:
            return True
        place = bisect_left(places, begin - _NEAR)
        return place < len(places) and places[place] <= stop + _NEAR

    def _identifiers(self) -> dict[str, list[int]]:
        if self._named is None:
            self._named = {}
            for match in _IDENTIFIER.finditer(self._text):
                self._named.setdefault(match[0].strip(".=("), []).append(match.start())
        return self._named

    @staticmethod
    def _within(starts: list[int], ends: list[int], start: int, end: int) -> bool:
        place = bisect_left(starts, start)
        if place < len(starts) and starts[place] < end:
            return True
        return place > 0 and ends[place - 1] > start


_HEADING = re.compile(r"[ \t\n]{0,8}#{1,2} (\w+)[ \t]*\n")


def is_heading(text: str, word: str) -> bool:
    """Whether a text in Markdown has a word by itself as its title: the name of a project."""
    if text.lstrip()[:1] != "#":
        return False
    title = _HEADING.match(text)
    return title is not None and title[1] == word


def is_term(text: str, stop: int) -> bool:
    """Whether what follows makes a family name the name of a thing: Taylor series, Pearson's correlation."""
    return text[stop : stop + 1] in _BEFORE_TERM and _EPONYM.match(text, stop) is not None


def is_plain_word(text: str, begin: int, stop: int) -> bool:
    """Whether a word that is also a name is used as the word: "Mark the node", "3 Jan 1994"."""
    if _DATE_AFTER.match(text, stop) or _DATE_BEFORE.search(text, max(0, begin - 10), begin):
        return True
    before = text[max(0, begin - 8) : begin].rstrip(" \t#>*\"'")
    sentence_begins = before[-1:] in ("", "\n", ".", "!", "?", ":")
    return sentence_begins and _VERB_FOLLOWS.match(text, stop) is not None
