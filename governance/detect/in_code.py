"""Whether a capitalised word belongs to a program or a term, and not to a person."""

import re

_REACH = 120
_SIGNS = re.compile(
    r"\w\([^\s()]{0,60}\)|[=!<>]=|->|\):|%\(|\{\w*\}|\bself\.\w|\w\[\w+\]"
    r"|^[ \t]*(?:def|class|return|import|elif|assert|raise|const|let|func|fn|public|private|static)\b"
)
_EPONYM = re.compile(
    r"(?:'s?)?[ \n]{1,2}(?:rank )?(?:series|distributions?|correlations?|coefficients?|transforms?|"
    r"theorems?|algorithms?|calendars?|ordinals?|days? of|twister|filters?|equations?|laws?|notation|sort|"
    r"bound|inequality|matrix|constants?|primes?|hash|cipher|kernel|estimator|statistic|regression|"
    r"classifier|expansion|polynomials?|sequences?|automaton|machine|polygon|curve|encoding|code)\b",
    re.IGNORECASE,
)
_MONTHS = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec)\b"
_DATE_BEFORE = re.compile(rf"(?:\d[ \-./]{{0,2}}|{_MONTHS}[\"', ]{{1,4}})\Z")
_DATE_AFTER = re.compile(rf"\.?(?:[ \-/]{{0,2}}\d|[\"', ]{{1,4}}{_MONTHS})")
_VERB_FOLLOWS = re.compile(
    r"[ \n]{1,2}(?:the|a|an|it|this|that|these|those|them|up|down|out|as|all|each|every|any|your|our|"
    r"its|whether|if|how|what|where|when|some|one|both|in|into|on|off|with|for|from|of|to)\b"
)


def in_program(text: str, begin: int, stop: int) -> bool:
    """Whether the line around a word is program text, or the word is an identifier near it."""
    start = text.rfind("\n", max(0, begin - _REACH), begin) + 1 or max(0, begin - _REACH)
    end = text.find("\n", stop, stop + _REACH)
    if _SIGNS.search(text[start : end if end >= 0 else stop + _REACH]):
        return True
    word = text[begin:stop]
    near = text[max(0, begin - 2000) : stop + 2000]
    return f".{word}" in near or f"{word}=" in near or f"{word}(" in near


def is_term(text: str, stop: int) -> bool:
    """Whether what follows makes a family name the name of a thing: Taylor series, Pearson's correlation."""
    return _EPONYM.match(text, stop) is not None


def is_plain_word(text: str, begin: int, stop: int) -> bool:
    """Whether a word that is also a name is used as the word: "Mark the node", "3 Jan 1994"."""
    if _DATE_AFTER.match(text, stop) or _DATE_BEFORE.search(text, max(0, begin - 10), begin):
        return True
    before = text[max(0, begin - 8) : begin].rstrip(" \t#>*\"'")
    sentence_begins = before[-1:] in ("", "\n", ".", "!", "?", ":")
    return sentence_begins and _VERB_FOLLOWS.match(text, stop) is not None
