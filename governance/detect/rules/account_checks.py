"""Whether an account is a person's: service accounts, words and pieces of programs are nobody's."""

import re
from functools import cache

from governance.names.words import (
    common,
    family_names,
    first_names,
    foreign,
    is_plain,
    last_names,
    parts_of_programs,
    service_accounts,
    things,
)

_PARTS = re.compile(r"[^\W\d_]+")
_FILE = re.compile(
    r"(?i).*\.(?:html?|php|jsp|aspx?|[jt]sx?|css|vue|py|rb|go|java|png|jpe?g|svg|json|ya?ml|txt|md|sh|log|conf|com|org|net|io|dev)\Z"
)


@cache
def _plain() -> frozenset[str]:
    return common() | service_accounts() | parts_of_programs()


def person_account(value: str) -> bool | None:
    """False for service accounts, words and pieces of programs; True for what is left."""
    lower = value.lower().rstrip("$")
    if (
        len(lower) < 2
        or lower in service_accounts()
        or lower.startswith(("_", "systemd-", "svc-", "svc_", "sa-"))
    ):
        return False
    if lower.endswith(
        (
            "-runner",
            "-agent",
            "-user",
            "_user",
            "-svc",
            "_svc",
            "-bot",
            "-robot",
            "[bot]",
            "-service",
            "_service",
            "daemon",
            "user",
        )
    ):
        return False
    parts = _PARTS.findall(lower)
    if parts and sum(map(str.isdigit, lower)) >= 3 and len(lower) <= 24:
        return not lower.startswith("ip-")
    if not parts or _FILE.match(lower):
        return False
    if len(parts) == 1 and len(parts[0]) == len(lower):
        return lower not in common() or _is_a_name(lower.capitalize())
    return not all(part in _plain() or len(part) == 1 for part in parts)


def _is_a_name(word: str) -> bool:
    return word in first_names() or word in last_names()


def told_account(value: str) -> bool | None:
    """The same where only a word like "user" stands before it: no capitals, no piece of a program.

    What stands behind "Usuario:" in a chat is a sentence: no word that begins one, in any language.
    """
    if not value[:1].islower() or not person_account(value):
        return False
    plain = value.lower()
    return plain not in common() and (plain not in foreign() or plain.capitalize() in first_names())


def mentioned(value: str) -> bool:
    """The same for what stands behind an at sign in prose: no decorator, team or package."""
    plain = value.lower().rstrip(".-_")
    return person_account(plain) is True and not is_plain(plain) and plain not in things()


_OF_A_PERSON = re.compile(r"[a-z]{2,}.*(?:_[a-z\d]|\d{2})")
_VERSION = re.compile(r"(?:v|version|rev|step|type|level|phase|part)[_.\-]?\d")


def of_ones_own(value: str) -> bool:
    """Whether what somebody calls their account is one, of plain words too: an underscore or digits are in it."""
    plain = value.lower()
    return (
        _OF_A_PERSON.match(plain) is not None
        and plain not in service_accounts()
        and _VERSION.match(plain) is None
        and (any(map(str.isdigit, plain)) or person_account(plain) is True)
    )


@cache
def _names() -> frozenset[str]:
    return first_names() | family_names()


_SHE = ("ska", "cka", "dzka")
"""How family names end that a woman has, where a list has a man's: Kowalska."""


def named_after_somebody(value: str) -> bool:
    """Whether an account is made of somebody's name: ``hkobayashi``, ``annikas``, ``marta.nowak``."""
    plain = value.lower().rstrip(".-_0123456789")
    if not mentioned(plain):
        return False
    names = _names()
    parts = _PARTS.findall(plain)
    if len(parts) > 1:
        return any(len(part) > 2 and part.capitalize() in names for part in parts)
    made = [plain, plain[1:], plain[2:], plain[:-1]]
    if plain.endswith(_SHE):
        made.append(plain[1:-1] + "i")
    return any(len(part) > 3 and part.capitalize() in names for part in made)
