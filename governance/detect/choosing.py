"""Which patterns are worth trying on a text: one scan finds the literals of all of them."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Protocol

import ahocorasick

from governance.detect.rule import ANY_DIGIT, Rule
from governance.detect.runners import Gate, Hit


class PatternRunner(Protocol):
    """Finds one entity in views that hold what its rule needs."""

    @property
    def rule(self) -> Rule:
        """What it looks for, and what must be in a text for that."""

    def run(self, gate: Gate, keys: tuple[str, ...]) -> Iterable[Hit]:
        """Yield what it finds; not asked where what it needs is missing."""


class Choice[R: PatternRunner]:
    """Chooses the runners that may find something in a view, in their order."""

    def __init__(self, runners: Sequence[R]) -> None:
        self._runners = tuple(runners)
        self._always = self._some_digit = self._run_of_digits = 0
        announced: dict[str, int] = {}
        for place, runner in enumerate(self._runners):
            rule, bit = runner.rule, 1 << place
            if rule.digits:
                self._run_of_digits |= bit
            if rule.needs is ANY_DIGIT:
                self._some_digit |= bit
            elif not rule.needs:
                self._always |= bit
            else:
                for literal in rule.needs:
                    announced[literal] = announced.get(literal, 0) | bit
        self._literals = ahocorasick.Automaton()
        for literal, bits in announced.items():
            self._literals.add_word(literal, bits)
        self._literals.make_automaton()
        self._chosen = lru_cache(maxsize=4096)(self._of_bits)

    def of(self, gate: Gate) -> tuple[R, ...]:
        """Return the runners whose literals and digits are in the text."""
        bits = self._always | (self._some_digit if gate.some_digit else 0)
        if self._literals:
            for announced in {value for _, value in self._literals.iter(gate.lowered)}:
                bits |= announced
        return self._chosen(bits if gate.digits else bits & ~self._run_of_digits)

    def _of_bits(self, bits: int) -> tuple[R, ...]:
        return tuple(one for place, one in enumerate(self._runners) if bits >> place & 1)
