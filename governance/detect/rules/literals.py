"""The literals that a pattern cannot do without, read from the pattern itself.

A text without them holds no match, and need not be searched. After Russ Cox, "Regular Expression Matching with a
Trigram Index" (2012), and RE2's own prefilter. The strings that a part of a pattern matches exactly grow from its
parts. Where they can grow no further, they are a condition on the text.
"""

import re

# What ``re.compile`` reads patterns with: RE2 tells its own literals to nobody.
import re._constants as code  # type: ignore[import-not-found]
import re._parser as reader  # type: ignore[import-not-found]
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

type Literals = frozenset[str]
"""In small letters; each match has at least one of them."""

_MOST = 150
"""Literals of one condition, and texts that a part of a pattern is followed through."""
_MOST_IN_A_CLASS = 10
_READ_OTHERWISE = re.compile(r"\{,|\[\[:|\\[QEC]")
"""What RE2 reads in another way than Python."""
_LIKELY = {" ": 0.15, "\n": 0.02, **dict.fromkeys("0123456789", 0.02)}
_LETTER, _SIGN = 0.06, 0.01
_EVERYWHERE = 0.002
"""Two letters are: with them 150 literals were met in 360 characters, without them 48, for as many patterns."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What is known of a part of a pattern."""

    exact: Literals | None
    """All that it matches; None where that is too much to say."""
    conditions: tuple[Literals, ...] = ()

    def all_conditions(self) -> tuple[Literals, ...]:
        """Return what holds of each text that it matches in."""
        if self.exact is None or "" in self.exact:
            return self.conditions
        return (*self.conditions, self.exact)


_ANYTHING, _NOTHING = _Part(None), _Part(frozenset([""]))


@lru_cache(4096)
def required_literals(regex: str) -> tuple[Literals, ...]:
    """Return conditions on each text in which a pattern of RE2 on Latin-1 matches, the rarest first."""
    if _READ_OTHERWISE.search(regex):
        return ()
    try:
        parsed = reader.parse(regex)
    except (re.error, OverflowError, RecursionError):
        return ()
    found = {_shortest(one) for one in _sequence(parsed).all_conditions()}
    rare = [one for one in found if not any(map(_is_everywhere, one))]
    return tuple(sorted(rare, key=lambda one: (sum(map(_likelihood, one)), *sorted(one))))


def _sequence(parsed: Iterable[tuple[Any, Any]]) -> _Part:
    exact: Literals = frozenset([""])
    conditions: list[Literals] = []
    whole = True
    for operation, argument in parsed:
        part = _part(operation, argument)
        conditions += part.conditions
        if part.exact is not None and len(exact) * len(part.exact) <= _MOST:
            exact = frozenset(first + second for first in exact for second in part.exact)
        else:
            conditions += _Part(exact).all_conditions()
            whole, exact = False, part.exact or frozenset([""])
    if whole:
        return _Part(exact, tuple(conditions))
    return _Part(None, (*conditions, *_Part(exact).all_conditions()))


def _part(operation: Any, argument: Any) -> _Part:
    match operation:
        case code.LITERAL:
            return _one_of([chr(argument)])
        case code.IN:
            return _class(argument)
        case code.AT:
            return _NOTHING
        case code.SUBPATTERN:
            return _sequence(argument[-1])
        case code.BRANCH:
            return _either([_sequence(one) for one in argument[1]])
        case code.MAX_REPEAT | code.MIN_REPEAT:
            least, most, inner = argument
            part = _sequence(inner)
            if least == 0:
                may = most == 1 and part.exact is not None
                return _Part(part.exact | {""}) if may and part.exact else _ANYTHING
            return part if most == 1 else _Part(None, part.all_conditions())
    return _ANYTHING


def _one_of(characters: Iterable[str]) -> _Part:
    found = frozenset(one.lower() for one in characters)
    return _Part(found) if len(found) <= _MOST_IN_A_CLASS and max(found) <= "\xff" else _ANYTHING


def _class(members: Iterable[tuple[Any, Any]]) -> _Part:
    characters: list[str] = []
    for kind, said in members:
        if kind is code.LITERAL:
            characters.append(chr(said))
        elif kind is code.RANGE and said[1] - said[0] <= _MOST_IN_A_CLASS:
            characters += map(chr, range(said[0], said[1] + 1))
        else:
            return _ANYTHING
    return _one_of(characters)


def _either(parts: list[_Part]) -> _Part:
    exact = [part.exact for part in parts]
    known = [one for one in exact if one is not None]
    if len(known) == len(parts):
        together = frozenset[str]().union(*known)
        if len(together) <= _MOST:
            return _Part(together)
    conditions = [part.all_conditions() for part in parts]
    if not all(conditions):
        return _ANYTHING
    rarest = [min(one, key=lambda one: sum(map(_likelihood, one))) for one in conditions]
    return _Part(None, (frozenset[str]().union(*rarest),))


def _shortest(literals: Literals) -> Literals:
    """Return a condition without the literals that hold another one of it."""
    return frozenset(
        one for one in literals if not any(other != one and other in one for other in literals)
    )


def _likelihood(literal: str) -> float:
    """Return roughly how often a literal begins at a place of a text."""
    likely = 1.0
    for one in literal:
        likely *= _LIKELY.get(one, _LETTER if one.isalpha() else _SIGN)
    return likely


def _is_everywhere(literal: str) -> bool:
    """Whether a literal is met so often that looking for it costs more than it saves; a sign costs nothing."""
    return len(literal) > 1 and _likelihood(literal) > _EVERYWHERE
