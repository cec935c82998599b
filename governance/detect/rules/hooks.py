"""The named checks that a rule in YAML may ask for: of the value (``validate``), of what is around it (``around``)."""

import re
from collections.abc import Callable, Mapping

from governance.detect.rules import account_checks, checks, name_checks, password_checks
from governance.detect.rules.identity_checks import CHECKS
from governance.names.words import everyday, first_names, programs

_NOT_A_PLACE = everyday() | {
    "i", "january", "production", "python", "docker", "linux", "am", "pm", "utc", "gmt",
}  # fmt: skip
_PAGES_OF_NOBODY = frozenset({"share", "sharer", "intent", "login", "home"})
_MARKS = re.compile(r"[^0-9A-Za-z\u00d1]")
_CHECKED = "80840"
"""Stands before a provider's number when its check digit is worked out."""
_YEAR = re.compile(r"(?:19|20)\d\d")
_DATE = re.compile(r"(\d{1,4})[-/.](\d{1,2})[-/.](\d{1,4})")
_MEASURE = re.compile(r"(?i)\d+(?:\.\d+)?(?:mg|mcg|ml|g|kg|cm|mm|bpm|mmhg|hrs?|min|days?|weeks?|x)")


def code(value: str) -> bool | None:
    """Return False for words, small numbers, years, dates and doses."""
    digits = sum(char.isdigit() for char in value)
    if digits < 3 and not (digits and len(value) >= 5 and value.isalnum()):
        return False
    if _YEAR.fullmatch(value) or _MEASURE.fullmatch(value) or _is_date(value):
        return False
    return None


def _is_date(value: str) -> bool:
    date = _DATE.fullmatch(value)
    if date is None:
        return False
    first, second, third = (int(part) for part in date.groups())
    day_first = (first <= 31 and second <= 12) or (first <= 12 and second <= 31)
    return day_first or (first > 31 and second <= 12 and third <= 31)


def biometric(value: str) -> bool | None:
    letters_of_hex = len(value) >= 6 and value.isupper() and set(value) <= set("ABCDEF")
    return None if letters_of_hex or any(char.isdigit() for char in value) else False


def surname_first(value: str) -> bool | None:
    first = value.partition(", ")[2].split()[0]
    return None if first.capitalize() in first_names() else False


def place(value: str) -> bool | None:
    """Return False for what begins with an everyday word, or is a program."""
    first = value.split()[0].lower()
    return False if first in _NOT_A_PLACE or first in programs() else None


def age(value: str) -> bool | None:
    """Return False for what no human being has reached."""
    return None if 0 < int(value) < 120 else False


def digits(value: str) -> bool | None:
    """Return False for what has fewer than four digits."""
    return None if sum(char.isdigit() for char in value) >= 4 else False


def provider(value: str) -> bool:
    """Whether the check digit of a provider's number (NPI) holds."""
    return checks.luhn(_CHECKED + value)


def told_address(value: str) -> bool | None:
    """Return False for what has no capital or does not end with a digit."""
    return None if any(map(str.isupper, value)) and value[-1].isdigit() else False


def profile(value: str) -> bool | None:
    """Return False for pages of a network that are nobody's."""
    return False if value.rsplit("/", 1)[-1].lower() in _PAGES_OF_NOBODY else None


def plate(value: str) -> bool | None:
    """Return False for what has no digit or no capital."""
    return None if any(map(str.isdigit, value)) and any(map(str.isupper, value)) else False


def three_digits(value: str) -> bool | None:
    """Return False for what has fewer than three digits."""
    return None if sum(map(str.isdigit, value)) >= 3 else False


type Check = Callable[[str], bool | None]


def _of_identity(check: Callable[[str], bool]) -> Check:
    return lambda value: check(_MARKS.sub("", value).upper())


_OWN: tuple[Check, ...] = (
    place, age, digits, provider, told_address, profile, plate, three_digits, code, biometric, surname_first,
    checks.issued_token, checks.long_token, checks.link_token, checks.path_token, checks.quoted_value,
    checks.email, checks.ssn, checks.mac,
    checks.user_name, checks.vin, checks.luhn, name_checks.surname_in_small,
)  # fmt: skip
_OF_PASSWORDS: tuple[Check, ...] = (
    password_checks.bare, password_checks.labelled, password_checks.letters, password_checks.literal, password_checks.noun,
    password_checks.option, password_checks.phrase, password_checks.quoted, password_checks.strong,
    password_checks.told, password_checks.unusual, password_checks.words,
)  # fmt: skip
_OF_NAMES: tuple[Check, ...] = (
    name_checks.told, name_checks.at_an_end, name_checks.titled, name_checks.unlisted, name_checks.in_query,
    name_checks.likely, name_checks.and_no_role,
    name_checks.spelled, name_checks.with_initials,
)  # fmt: skip
HOOKS: Mapping[str, Check] = {
    **{name: _of_identity(check) for name, check in CHECKS.items()},
    **{check.__name__: check for check in _OWN},
    **{f"password_{check.__name__}": check for check in _OF_PASSWORDS},
    **{f"name_{check.__name__}": check for check in _OF_NAMES},
    "account_of_a_person": account_checks.person_account,
    "account_told": account_checks.told_account,
    "account_mentioned": account_checks.mentioned,
    "account_of_ones_own": account_checks.of_ones_own,
    "account_named_after_somebody": account_checks.named_after_somebody,
}
"""Checks of a value by name: True makes a finding sure, False rejects it, None leaves it to the words around it."""
AROUND: Mapping[str, Callable[[str, int, int], bool]] = {
    "no_company": name_checks.no_company,
    "tells_a_password": password_checks.tells_one,
}
"""Checks of what stands around a match: whether it counts."""
