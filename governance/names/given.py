"""Writes ``given_names.txt``: given names of many countries, out of the lists of the package Faker.

``python -m governance.names.given`` in an environment that also has Faker (MIT licence). Words that
people write in lower case, names of places and forms that look like English words are left out.
"""

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

from governance.names.words import ambiguous_names, common, hand_written_first_names, last_names

_HEADER = (
    "# Given names of 80 locales from Faker (MIT licence), gathered by governance/names/given.py.\n"
)
_NAME = re.compile(r"[^\W\d_a-z][^\W\d_]{3,}(?:-[^\W\d_]+)?\Z")
_LIKE_A_WORD = re.compile(r"(?:er|ed|ing|ly|able|est|ment|ness|tion|ive)\Z")


def listed(provider: Any) -> set[str]:
    """Return all given names of one locale."""
    names: set[str] = set()
    for attribute in dir(provider):
        if attribute.startswith("first_name"):
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


def gathered() -> list[str]:
    """Return the names that may stand for a person by themselves."""
    person = importlib.import_module("faker.providers.person")
    names: set[str] = set()
    for module in pkgutil.iter_modules(person.__path__):
        if module.ispkg:
            names |= listed(importlib.import_module(f"{person.__name__}.{module.name}").Provider)
    known = hand_written_first_names() | last_names() | ambiguous_names() | places()
    return sorted(
        name
        for name in names - known
        if _NAME.match(name)
        and name[0].isupper()
        and name.lower() not in common()
        and not _LIKE_A_WORD.search(name)
    )


def main() -> None:
    """Write the list beside this module."""
    out = Path(__file__).parent / "given_names.txt"
    out.write_text(_HEADER + "\n".join(gathered()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
