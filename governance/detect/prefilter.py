"""Which patterns are worth trying on a text: one scan finds the literals of all of them.

A rule says what a text needs, and each pattern by itself has literals that it cannot do without: one of each set must
be there. By what rules say alone, 12 patterns were tried on 360 characters; one in 70 found anything. With both it
is 4, and texts of agents are redacted in four fifths of the time.
Those that need no literal are tried together, by RE2's automata for many patterns, which tell which of
them match. Forty of them cost 170 µs on 2,000 characters of new text alone, 210 in one automaton and 43 by
fourteens: bench-redaction's ``speedup_200`` is 8 without them and 10 with them. Those that count far
(``[A-Z0-9]{11,31}``) go alone. Together they need states for each place where a count may have begun:
33 characters of an identifier cost 63 µs with them and 20 without.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import batched
from operator import itemgetter
from typing import Any, Protocol

import ahocorasick

from governance.detect.gate import Gate
from governance.detect.matcher import Hit, compiled_together
from governance.detect.normalized_text import view_of
from governance.detect.rules.literals import required_literals
from governance.detect.rules.rule import Rule


class PatternRunner(Protocol):
    """Finds one entity in views that hold what its rule needs."""

    @property
    def rule(self) -> Rule:
        """What it looks for, and what must be in a text for that."""

    @property
    def pattern(self) -> Any:
        """What it looks for as RE2 compiled it; None where something else looks."""

    def run(self, gate: Gate, keys: tuple[str, ...]) -> Iterable[Hit]:
        """Yield what it finds; not asked where what it needs is missing."""


class Prefilter[R: PatternRunner]:
    """Chooses the runners that may find something in a view, in their order."""

    def __init__(self, runners: Sequence[R]) -> None:
        self._runners = tuple(runners)
        self._run_of_digits = self._spaced = self._wide = 0
        self._lane = len(self._runners)
        announced: dict[str, int] = {}
        announced_wide: dict[str, int] = {}
        self._without = 0
        """The bits of conditions that patterns do not have."""
        for place, runner in enumerate(self._runners):
            rule, bit = runner.rule, 1 << place
            if rule.digits:
                self._run_of_digits |= bit
            if rule.spaced:
                self._spaced |= bit
            if rule.wide:
                self._wide |= bit
            conditions = _conditions(runner)
            for number in range(_CONDITIONS):
                if number >= len(conditions):
                    self._without |= bit
                for literal in conditions[number] if number < len(conditions) else ():
                    of, read = announced, literal
                    if rule.wide:
                        of, read = announced_wide, view_of(literal).text.casefold()
                    of[read] = of.get(read, 0) | bit
                bit <<= self._lane
        rules = [runner.rule for runner in self._runners]
        self._fitting = _reached([rule.shortest for rule in rules])
        self._counting = _reached([rule.fewest_digits for rule in rules])
        self._in_a_row = _reached([rule.digits_in_a_row for rule in rules])
        self._signs = {one: bits for one, bits in announced.items() if len(one) == 1}
        longer = {one: bits for one, bits in announced.items() if len(one) > 1}
        self._literals, self._wide_literals = _Literals(longer), _Literals(announced_wide)
        free = [
            place
            for place, runner in enumerate(self._runners)
            if runner.pattern is not None and not runner.rule.needs and not runner.rule.wide
        ]
        alone = {
            place for place in free if _COUNTS_FAR.search(self._runners[place].pattern.pattern)
        }
        others = batched([place for place in free if place not in alone], _PATTERNS_TOGETHER)
        self._together = [
            _Together(self._runners, places)
            for places in (*others, *([place] for place in sorted(alone)))
        ]

    def of(self, gate: Gate) -> tuple[R, ...]:
        """Return the runners whose literals and digits are in the text, and that it is long enough for."""
        lowered = gate.lowered
        met = self._without | self._literals.within(lowered)
        for sign in set(lowered) if len(lowered) < len(self._signs) else self._signs:
            if sign in lowered:
                met |= self._signs.get(sign, 0)
        if gate.wide:
            met |= self._wide_literals.within(gate.view.text.casefold())
        bits = (1 << self._lane) - 1
        for _ in range(_CONDITIONS):
            bits &= met
            met >>= self._lane
        if not gate.digits:
            bits &= ~self._run_of_digits
        elif gate.digits_in_a_row < len(self._in_a_row):
            bits &= self._in_a_row[gate.digits_in_a_row]
        if not gate.wide:
            bits &= ~self._wide
        if " " not in lowered:
            bits &= ~self._spaced
        if gate.count_of_digits < len(self._counting):
            bits &= self._counting[gate.count_of_digits]
        size = len(lowered)
        if size < len(self._fitting):
            bits &= self._fitting[size]
        for together in self._together:
            if bits & together.bits:
                bits &= together.matching(gate.view.data)
        return self._of_bits(bits)

    def _of_bits(self, bits: int) -> tuple[R, ...]:
        places = []
        while bits:
            lowest = bits & -bits
            places.append(lowest.bit_length() - 1)
            bits ^= lowest
        return tuple(self._runners[place] for place in places)


_PLACE = itemgetter(1)
_CONDITIONS = 3
"""Sets of literals that are asked for at most."""
_COUNTS_FAR = re.compile(rb"\{\d{2,},\d+\}")
_PATTERNS_TOGETHER = 14
"""As many as RE2 keeps the states of, for texts it has not met, within its 8 MiB."""


class _Together:
    """Patterns without literals that one automaton tries at once."""

    def __init__(self, runners: Sequence[PatternRunner], places: Sequence[int]) -> None:
        self._set = compiled_together([runners[place].pattern for place in places])
        self._bits = [1 << place for place in places]
        self.bits = 0 if self._set is None else sum(self._bits)

    def matching(self, data: bytes) -> int:
        """Return the bits of all runners but of those patterns that match nothing."""
        found: list[int] = sorted(self._set.Match(data))
        *matching, last = found or (-1,)
        if last != len(self._bits):  # RE2 ran out of memory: nothing is known
            return -1
        return ~self.bits | sum(self._bits[place] for place in matching)


def _conditions(runner: PatternRunner) -> list[Collection[str]]:
    """Return sets of literals: of each of the first ones a text has at least one, or nothing is found."""
    rule = runner.rule
    said: list[Collection[str]] = [rule.needs] if rule.needs else []
    if runner.pattern is None or rule.wide:
        return said
    return [*said, *required_literals(runner.pattern.pattern.decode("latin-1"))]


class _Literals:
    """Literals with the bits of the conditions that each of them meets."""

    def __init__(self, announced: Mapping[str, int]) -> None:
        self._bits = [*announced.values()]
        self._automaton = ahocorasick.Automaton()
        for place, literal in enumerate(announced):
            self._automaton.add_word(literal, place)
        self._automaton.make_automaton()

    def within(self, text: str) -> int:
        """Return the bits of all literals in a text."""
        bits = 0
        if self._bits:
            for place in set(map(_PLACE, self._automaton.iter(text))):
                bits |= self._bits[place]
        return bits


def _reached(least: Sequence[int]) -> list[int]:
    """Return, for each number below the greatest of these, the bits of those that it reaches."""
    return [
        sum(1 << place for place, one in enumerate(least) if one <= number)
        for number in range(max(least, default=0))
    ]
