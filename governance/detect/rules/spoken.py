"""Phone numbers that somebody says digit by digit, as transcripts of calls have them, in nine languages."""

import re
from itertools import pairwise

from governance.detect.rules.rule import Rule

_DIGITS = {
    "en": "zero|oh one two three four five six seven eight nine",
    "de": "null eins zwei|zwo drei vier fünf sechs sieben acht neun",
    "fr": "zéro un deux trois quatre cinq six sept huit neuf",
    "es": "cero uno dos tres cuatro cinco seis siete ocho nueve",
    "it": "zero uno due tre quattro cinque sei sette otto nove",
    "pt": "zero um dois três quatro cinco seis|meia sete oito nove",
    "nl": "nul een twee drie vier vijf zes zeven acht negen",
    "pl": "zero jeden dwa trzy cztery pięć sześć siedem osiem dziewięć",
    "sv": "noll ett två tre fyra fem sex sju åtta nio",
}
_VALUES = {
    word: value
    for words in _DIGITS.values()
    for value, either in enumerate(words.split())
    for word in either.split("|")
}
_SEVERAL = {"double": 2, "triple": 3, "doppel": 2, "doble": 2, "doppio": 2, "dobbel": 2}
_FEWEST = 8
_WORD = re.compile(r"[^\W\d_]+")


def _in_pattern(word: str) -> str:
    """Return a word as the view in Latin-1 shows it."""
    return "".join(
        char if char.isascii() else f"\\x{ord(char):02x}" if ord(char) < 0x100 else r"\xe0"
        for char in word
    )


def spoken_number(value: str) -> bool | None:
    """Whether digits in words are a phone number: so many as one has, and no counting up or down."""
    digits: list[int] = []
    times = 1
    for word in _WORD.findall(value.lower()):
        if word in _SEVERAL:
            times = _SEVERAL[word]
            continue
        digits += [_VALUES.get(word, 0)] * times
        times = 1
    if not _FEWEST <= len(digits) <= 15:
        return False
    steps = {second - first for first, second in pairwise(digits)}
    return len(steps) > 2 or None


_ONE = "|".join(sorted(map(_in_pattern, _VALUES), key=len, reverse=True))
_TIMES = "|".join(_SEVERAL)
SPOKEN: tuple[Rule, ...] = (
    Rule(
        "phone_spoken",
        "PHONE_NUMBER",
        rf"\b(?:(?:{_TIMES}) )?(?:{_ONE})(?:[ ,\-]{{1,2}}(?:(?:{_TIMES}) )?(?:{_ONE})){{5,}}\b",
        0.3,
        needs=(
            "zero ", "oh ", "double ", "null ", "zéro ", "cero ", "nul ", "noll ", "five ", "fünf ", "cinco ",
            "cinq ", "cinque ", "vijf ", "fem ",
        ),
        check=spoken_number,
        right=r"\w",
    ),
)  # fmt: skip
