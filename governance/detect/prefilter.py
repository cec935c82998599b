"""Which patterns are worth trying on a text: one scan finds the literals of all of them.

Those that need no literal are tried together, by RE2's automata for many patterns, which tell which of
them match. Forty of them cost 170 µs on 2,000 characters of new text alone, 210 in one automaton and 43 by
fourteens: bench-redaction's ``speedup_200`` is 8 without them and 10 with them. Those that count far
(``[A-Z0-9]{11,31}``) go alone. Together they need states for each place where a count may have begun:
33 characters of an identifier cost 63 µs with them and 20 without.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import batched
from typing import Any, Protocol

import ahocorasick

from governance.detect.gate import Gate
from governance.detect.matcher import Hit, compiled_together
from governance.detect.normalized_text import view_of
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
        self._always = self._run_of_digits = self._spaced = self._wide = 0
        announced: dict[str, int] = {}
        announced_wide: dict[str, int] = {}
        for place, runner in enumerate(self._runners):
            rule, bit = runner.rule, 1 << place
            if rule.digits:
                self._run_of_digits |= bit
            if rule.spaced:
                self._spaced |= bit
            if rule.wide:
                self._wide |= bit
            if not rule.needs:
                self._always |= bit
            for literal in rule.needs:
                if rule.wide:
                    read = view_of(literal).text.casefold()
                    announced_wide[read] = announced_wide.get(read, 0) | bit
                else:
                    announced[literal] = announced.get(literal, 0) | bit
        rules = [runner.rule for runner in self._runners]
        self._fitting = _reached([rule.shortest for rule in rules])
        self._counting = _reached([rule.fewest_digits for rule in rules])
        self._in_a_row = _reached([rule.digits_in_a_row for rule in rules])
        self._literals, self._wide_literals = _automaton(announced), _automaton(announced_wide)
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
        bits = self._always
        if self._literals:
            for _, announced in self._literals.iter(gate.lowered):
                bits |= announced
        if gate.wide and self._wide_literals:
            for _, announced in self._wide_literals.iter(gate.view.text.casefold()):
                bits |= announced
        if not gate.digits:
            bits &= ~self._run_of_digits
        elif gate.digits_in_a_row < len(self._in_a_row):
            bits &= self._in_a_row[gate.digits_in_a_row]
        if not gate.wide:
            bits &= ~self._wide
        if " " not in gate.lowered:
            bits &= ~self._spaced
        if gate.count_of_digits < len(self._counting):
            bits &= self._counting[gate.count_of_digits]
        size = len(gate.lowered)
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


def _automaton(announced: Mapping[str, int]) -> ahocorasick.Automaton:
    automaton = ahocorasick.Automaton()
    for literal, bits in announced.items():
        automaton.add_word(literal, bits)
    automaton.make_automaton()
    return automaton


def _reached(least: Sequence[int]) -> list[int]:
    """Return, for each number below the greatest of these, the bits of those that it reaches."""
    return [
        sum(1 << place for place, one in enumerate(least) if one <= number)
        for number in range(max(least, default=0))
    ]
