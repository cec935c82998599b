"""Writes the lists of names and of foreign words that come out of the packages Faker and Mimesis.

``python -m scripts.names_model.given FOLDER`` in an environment that also has both (MIT licence) writes
``given_names.txt``, ``family_names.txt`` and ``gathered_words.txt``. Names leave out words that people
write in lower case, forms that look like English words, and places. Words leave out what is a name.
FOLDER holds spelling dictionaries (``en.dic``, ``de.dic``, …): their words are no names of Mimesis.
"""

import importlib
import json
import pkgutil
import re
import sys
from pathlib import Path
from typing import Any

from governance.names import words
from governance.names.words import (
    ambiguous_names,
    common,
    foreign,
    hand_written_first_names,
    last_names,
    things,
)

_HEADER = "# {} names of 80 locales from Faker and Mimesis (MIT licence), gathered by scripts/names_model/given.py.\n"
_NAME = re.compile(r"[^\W\d_a-z][^\W\d_]{3,}(?:-[^\W\d_]+)?\Z")
_LIKE_A_WORD = re.compile(r"(?:er|ed|ing|ly|able|est|ment|ness|tion|ive)\Z")


_FAMILY_NAME = re.compile(r"[^\W\d_a-z][^\W\d_]{2,}(?:['-][^\W\d_]+)?\Z")
_ENDING = re.compile(r"(?:er|ers|ed|ing|s|man|ly|y|son)\Z")


def listed(provider: Any, kind: str) -> set[str]:
    """Return all names of one locale whose attributes begin with ``kind``."""
    names: set[str] = set()
    for attribute in dir(provider):
        if attribute.startswith(kind):
            value = getattr(provider, attribute)
            if isinstance(value, list | tuple | dict | set):
                names |= {name for name in value if isinstance(name, str)}
    return names


def places() -> set[str]:
    """Return the words in the names of places that the phone number library knows."""
    data = importlib.import_module("phonenumbers.geodata").GEOCODE_DATA
    return {
        word for names in data.values() for word in re.findall(r"[^\W\d_]+", names.get("en", ""))
    }


def of_all_locales(kind: str) -> set[str]:
    """Return the names of one kind of all locales."""
    person = importlib.import_module("faker.providers.person")
    names: set[str] = set()
    for module in pkgutil.iter_modules(person.__path__):
        if module.ispkg:
            locale = importlib.import_module(f"{person.__name__}.{module.name}")
            names |= listed(locale.Provider, kind)
    return names


def spelled(folder: Path, *, nouns: bool) -> set[str]:
    """Return the words of spelling dictionaries in small letters, and German nouns where asked."""
    found: set[str] = set()
    for path in sorted(folder.glob("*.dic")):
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            word = line.split("/")[0].split("\t")[0]
            if word.islower() or (nouns and path.stem == "de"):
                found.add(word.lower())
    return found


def of_mimesis(kind: str, spelled_words: set[str]) -> set[str]:
    """Return the names under one key of all locales of Mimesis, without words of any language."""
    sets = Path(importlib.import_module("mimesis").__file__ or "").parent / "datasets"
    names: set[str] = set()

    def gather(held: Any) -> None:
        if isinstance(held, str):
            names.add(held)
        else:
            for value in held.values() if isinstance(held, dict) else held:
                gather(value)

    for path in sorted(sets.glob("*/person.json")):
        gather(json.loads(path.read_text(encoding="utf-8")).get(kind, ()))
    plain = words.plain_words() | spelled_words
    return {name for name in names if plain.isdisjoint(_stems(name.lower()))}


def _stems(word: str) -> set[str]:
    """Return a word, and what it may be a form of."""
    return {word, *(word.removesuffix(ending) for ending in ("s", "es", "n", "en", "e"))}


def _derived(name: str) -> bool:
    """Whether a name is an everyday word with an ending: Farmer, Walking, Cars."""
    plain = name.lower()
    stem = _ENDING.sub("", plain)
    return stem != plain and (stem in common() or stem + "e" in common())


def given_names(spelled_words: set[str]) -> list[str]:
    """Return the given names that may stand for a person by themselves."""
    families = of_all_locales("last_name")
    known = hand_written_first_names() | last_names() | ambiguous_names() | places()
    return sorted(
        name
        for name in (of_all_locales("first_name") | of_mimesis("names", spelled_words)) - known
        if _NAME.match(name)
        and name[0].isupper()
        and name.lower() not in common()
        and not (_LIKE_A_WORD.search(name) and (name in families or _derived(name)))
    )


def family_names(spelled_words: set[str]) -> list[str]:
    """Return the family names that are no words in lower case and no things."""
    return sorted(
        name
        for name in (of_all_locales("last_name") | of_mimesis("surnames", spelled_words))
        - last_names()
        if _FAMILY_NAME.match(name)
        and name[0].isupper()
        and name.lower() not in common() | foreign() | things()
        and not _derived(name)
    )


_WORD_LOCALES = (
    "cs_CZ", "da_DK", "de_AT", "de_DE", "en_US", "es", "es_ES", "fi_FI", "fr_CH", "fr_FR", "hu_HU", "it_IT",
    "nl_BE", "nl_NL", "pl_PL", "pt_BR", "pt_PT", "ro_RO", "sk_SK",
)  # fmt: skip


_TRADE = re.compile(r"[^\W\d_]{2,8}(?:er|mann|metz|ier|ero|aro|ari|eri|ini)\Z")
"""How short names of trades end, which are family names as often: Steinmetz, Kürschner."""


def foreign_words() -> list[str]:
    """Return words of other languages: sample texts and names of trades, without people's names."""
    found: set[str] = set()
    for kind in ("lorem", "job"):
        for locale in _WORD_LOCALES:
            try:
                module = importlib.import_module(f"faker.providers.{kind}.{locale}")
            except ImportError:
                continue
            for attribute in ("word_list", "jobs"):
                for text in getattr(module.Provider, attribute, ()):
                    found.update(re.findall(r"[^\W\d_]{3,}", text.lower()))
    names = words.first_names() | words.family_names() | words.ambiguous_names()
    known = common() | foreign() | words.office_words()
    return sorted(
        word for word in found - known if word.capitalize() not in names and not _TRADE.match(word)
    )


def main() -> None:
    """Write the lists beside the module that reads them."""
    out = Path(words.__file__).parent / "gathered_words.txt"
    out.write_text(
        "# Words of fourteen languages from Faker (MIT licence), gathered by scripts/names_model/given.py.\n"
        + "\n".join(foreign_words())
        + "\n",
        encoding="utf-8",
    )
    folder = Path(sys.argv[1])
    given = given_names(spelled(folder, nouns=False))
    family = family_names(spelled(folder, nouns=True))
    for kind, names in (("Given", given), ("Family", family)):
        out = Path(words.__file__).parent / f"{kind.lower()}_names.txt"
        out.write_text(_HEADER.format(kind) + "\n".join(names) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
