"""What a rule asks of a call's arguments: it holds, it does not, or nobody can say.

Each test answers twice. *Possibly* is what a lenient receiver could see: rules that stop a call go by it.
*Surely* is what every receiver sees: rules that allow a call go by that. So doubt counts against
the call, whatever the rule says.
"""

import ipaddress
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from proxy.guard.json_path import FoundValue, JsonPath, UnsearchedValuesError
from proxy.guard.strict_json import ExactNumber, folded
from proxy.routes.paths import climbs
from trajectory.canonical import JsonValue

_EXACT = 2**53
"""From here on not every receiver has each whole number."""
_DECODED_TIMES = 4
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,251}[a-z0-9])?")
_BARE_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]{1,5})?(/[^:]*)?")
"""``www.example.com/a``, as people write URLs: lenient receivers put a scheme before it."""
_ODD_IN_URLS = re.compile(r"[\s\\\x00-\x20\x7f]|[^\x21-\x7e]")


class ArgumentTest(StrEnum):
    """What a value is compared by."""

    ONE_OF = "one_of"
    """It equals one of these."""
    NONE_OF = "none_of"
    """It equals none of these."""
    LIKE = "like"
    """It fits one of these patterns, in which ``*`` is any text and ``?`` one character."""
    UNLIKE = "unlike"
    """It fits none of these patterns."""
    CONTAINS = "contains"
    """One of these texts stands in it, in any case."""
    ABOVE = "above"
    """It is a number above this."""
    BELOW = "below"
    """It is a number below this."""
    LONGER = "longer"
    """It has more characters, or items, than this."""
    INSIDE = "inside"
    """It is a path in one of these folders."""
    OUTSIDE = "outside"
    """It is a path in none of these folders."""
    HOSTS = "hosts"
    """It is a URL of one of these hosts, or patterns of them."""
    OTHER_HOSTS = "other_hosts"
    """It is a URL of none of these hosts."""
    PRESENT = "present"
    """There is such an argument, or there is none."""


class Answer(NamedTuple):
    """Whether something holds: for a lenient receiver, and for every one."""

    possibly: bool
    surely: bool

    def negated(self) -> "Answer":
        """Return the answer to the opposite."""
        return Answer(not self.surely, not self.possibly)


YES, NO, DOUBT = Answer(True, True), Answer(False, False), Answer(True, False)

type TestedAgainst = tuple[JsonValue, ...]


@dataclass(frozen=True, slots=True)
class ArgumentCondition:
    """One condition on the values at a path."""

    path: JsonPath
    test: ArgumentTest
    against: TestedAgainst
    """What it is compared with."""

    def answer(self, arguments: JsonValue) -> Answer:
        """Return whether it holds: possibly of any value at the path, surely of all."""
        try:
            found = self.path.find(arguments)
        except UnsearchedValuesError:
            return DOUBT
        if self.test is ArgumentTest.PRESENT:
            there = Answer(bool(found), any(not one.loose for one in found))
            return there if self.against[0] is True else there.negated()
        if not found:
            # What is not there has a default of the tool's own, which may be outside of everything.
            return DOUBT if self.test in _OPPOSITES else NO
        answers = [self._of(one) for one in found]
        return Answer(any(one.possibly for one in answers), all(one.surely for one in answers))

    def _of(self, found: FoundValue) -> Answer:
        opposite = _OPPOSITES.get(self.test)
        test, value = opposite or self.test, found.value
        if isinstance(value, list | dict) and test in _OF_LEAVES:
            # Who expects one value may take any that is in a list.
            within = [_TESTS[test](leaf, self.against) for leaf in _leaves(value)]
            told = Answer(any(one.possibly for one in within), False)
        else:
            told = _TESTS[test](value, self.against)
        if opposite is not None:
            told = told.negated()
        return Answer(told.possibly, False) if found.loose else told


def fits(pattern: str, text: str) -> bool:
    """Tell whether a text fits a pattern of ``*`` and ``?``, in time that grows with both alone."""
    at = start = mark = 0
    star = -1
    while at < len(text):
        if start < len(pattern) and pattern[start] == "*":
            star, mark = start, at
            start += 1
        elif start < len(pattern) and pattern[start] in ("?", text[at]):
            start += 1
            at += 1
        elif star >= 0:
            mark += 1
            at, start = mark, star + 1
        else:
            return False
    return not pattern[start:].strip("*")


def _leaves(value: JsonValue) -> list[JsonValue]:
    """Return the values in a list or an object that are neither."""
    found: list[JsonValue] = []
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, list):
            rest += one
        elif isinstance(one, dict):
            rest += one.values()
        else:
            found.append(one)
    return found


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _exact(value: JsonValue) -> Decimal:
    if isinstance(value, ExactNumber):
        return value.exact
    assert isinstance(value, int | float)  # noqa: S101 - for the type checker
    return Decimal(value)


def _equal(value: JsonValue, wanted: JsonValue) -> Answer:
    if isinstance(value, str) and isinstance(wanted, str):
        if value == wanted:
            return YES
        return DOUBT if _loose(value) == _loose(wanted) else NO
    if isinstance(value, bool) or isinstance(wanted, bool) or value is None or wanted is None:
        if value is wanted:
            return YES
        return DOUBT if _loose(_written(value)) == _loose(_written(wanted)) else NO
    if _is_number(value) and _is_number(wanted):
        first, second = _exact(value), _exact(wanted)
        if first == second:
            return YES if abs(first) < _EXACT else DOUBT
        return DOUBT if float(first) == float(second) else NO
    if _is_number(wanted) and isinstance(value, str):
        number = _number_in(value)
        return NO if number is not None and float(number) != float(_exact(wanted)) else DOUBT
    return DOUBT if _loose(_written(value)) == _loose(_written(wanted)) else NO


def _written(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
    return str(value)


def _loose(text: str) -> str:
    return folded(text).strip()


def _any(answers: list[Answer]) -> Answer:
    return Answer(any(one.possibly for one in answers), any(one.surely for one in answers))


def _one_of(value: JsonValue, against: TestedAgainst) -> Answer:
    return _any([_equal(value, wanted) for wanted in against])


def _like(value: JsonValue, against: TestedAgainst) -> Answer:
    text = _written(value)
    patterns = [str(pattern) for pattern in against]
    loose = _loose(text)
    return Answer(
        any(fits(folded(pattern), loose) or fits(pattern, text) for pattern in patterns),
        isinstance(value, str) and any(fits(pattern, text) for pattern in patterns),
    )


def _contains(value: JsonValue, against: TestedAgainst) -> Answer:
    text = _written(value)
    loose, lower = " ".join(_loose(text).split()), text.lower()
    words = [str(word) for word in against]
    return Answer(
        any(" ".join(folded(word).split()) in loose for word in words),
        any(word.lower() in lower for word in words),
    )


def _number_in(text: str) -> Decimal | None:
    plain = folded(text).strip().replace("_", "").replace(",", "").replace(" ", "")
    try:
        number = Decimal(plain.lstrip("$€£¥"))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _compared(value: JsonValue, holds: Callable[[Decimal], bool]) -> Answer:
    if isinstance(value, str):
        number = _number_in(value)
        return DOUBT if number is None else Answer(holds(number), False)
    if not _is_number(value):
        return DOUBT
    exact = _exact(value)
    told = [holds(exact), holds(Decimal(float(exact)))]
    return Answer(any(told), all(told))


def _above(value: JsonValue, against: TestedAgainst) -> Answer:
    limit = _exact(against[0])
    return _compared(value, lambda number: number > limit)


def _below(value: JsonValue, against: TestedAgainst) -> Answer:
    limit = _exact(against[0])
    return _compared(value, lambda number: number < limit)


def _longer(value: JsonValue, against: TestedAgainst) -> Answer:
    limit = _exact(against[0])
    if isinstance(value, str | list | dict):
        return YES if len(value) > limit else NO
    return NO if value is None or isinstance(value, bool) else DOUBT


def _inside(value: JsonValue, against: TestedAgainst) -> Answer:
    """Tell whether a path lies in a folder; ``.`` is the folder that relative paths begin in."""
    if not isinstance(value, str):
        return DOUBT
    folders = [posixpath.normpath(str(folder)) for folder in against]
    path, odd = _plain_path(value)
    if path is None:
        return DOUBT  # it may be anywhere
    relative = not path.startswith("/")
    within = any(
        (folder == "/" and not relative)
        or (folder == "." and relative)
        or path == folder
        or path.startswith(folder + "/")
        for folder in folders
    )
    if relative and not within and "." not in folders:
        return DOUBT  # nobody said where it begins
    return Answer(within, within and not odd)


def _plain_path(text: str) -> tuple[str | None, bool]:
    """Return a path as most read it, and whether some could read another; None where that is open."""
    plainly = text.isascii() and text.isprintable() and ".." not in text and "%" not in text
    if "$" in text or (not plainly and climbs(text.encode("utf-8", "surrogatepass"))):
        return None, True
    plain, odd = text, False
    if plain.lower().startswith("file:"):
        plain = plain[5:]
        plain = plain.removeprefix("//")
        if not plain.startswith("/"):
            return None, True
    for _ in range(_DECODED_TIMES):
        decoded = unquote(plain)
        if decoded == plain:
            break
        plain, odd = decoded, True
    if plain.startswith(("~", "\\")) or "\\" in plain or re.match(r"[A-Za-z]:", plain):
        return None, True
    if "\x00" in plain:
        return None, True
    odd = odd or plain != plain.strip() or folded(plain) != plain.casefold()
    normal = posixpath.normpath(plain.strip())
    return "/" + normal.lstrip("/") if normal.startswith("/") else normal, odd


def _hosts(value: JsonValue, against: TestedAgainst) -> Answer:
    if not isinstance(value, str):
        return DOUBT
    bare = _BARE_HOST.fullmatch(value) is not None
    host = _host_of(f"http://{value}" if bare else value)
    if host is None:
        return DOUBT
    within = any(fits(str(one).lower(), host) for one in against)
    return Answer(within, within and not bare)


@lru_cache(1024)
def _host_of(text: str) -> str | None:
    """Return a URL's host; None where nobody can tell which one receivers see."""
    if _ODD_IN_URLS.search(text) or text.count("://") != 1:
        return None
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").lower().rstrip(".")
        _ = parts.port
    except ValueError:
        return None
    if not host or "@" in parts.netloc or "%" in parts.netloc:
        return None
    if parts.netloc.startswith("["):
        return str(ipaddress.ip_address(host))
    if not _HOST.fullmatch(host):
        return None
    # 0x7f.1, 2130706433 and 127.1 are addresses to some.
    last = host.rpartition(".")[2]
    if last.isdigit() or last.startswith("0x"):
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            return None
    return host


_TESTS: dict[ArgumentTest, Callable[[JsonValue, TestedAgainst], Answer]] = {
    ArgumentTest.ONE_OF: _one_of,
    ArgumentTest.LIKE: _like,
    ArgumentTest.CONTAINS: _contains,
    ArgumentTest.ABOVE: _above,
    ArgumentTest.BELOW: _below,
    ArgumentTest.LONGER: _longer,
    ArgumentTest.INSIDE: _inside,
    ArgumentTest.HOSTS: _hosts,
}
_OF_LEAVES = frozenset(
    {
        *(ArgumentTest.ONE_OF, ArgumentTest.LIKE, ArgumentTest.CONTAINS),
        *(ArgumentTest.INSIDE, ArgumentTest.HOSTS),
    }
)
"""Tests that are asked of what is in a list or an object."""
_OPPOSITES = {
    ArgumentTest.NONE_OF: ArgumentTest.ONE_OF,
    ArgumentTest.UNLIKE: ArgumentTest.LIKE,
    ArgumentTest.OUTSIDE: ArgumentTest.INSIDE,
    ArgumentTest.OTHER_HOSTS: ArgumentTest.HOSTS,
}
"""What is asked instead, where the answer is the opposite's."""
