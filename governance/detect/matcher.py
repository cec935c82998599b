"""Running one pattern over a view: RE2 first, then the check of what it found."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import re2

from governance.detect.gate import Gate
from governance.detect.normalized_text import view_of
from governance.detect.rules.rule import Rule

CONTEXT_BOOST = 0.35
CONTEXT_FLOOR = 0.4


def compiled(regex: str, *, ignore_case: bool = True) -> Any:
    """Compile for RE2 on Latin-1 bytes.

    Raises:
        re2.error: RE2 cannot run it (lookaround, backreference).
    """
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.dot_nl = True
    return re2.compile(b"(?m)" + regex.encode("latin-1"), options)


def compiled_together(patterns: Sequence[Any]) -> Any:
    """Return a set of compiled patterns; the place behind the last one matches every text.

    None where they are too large for RE2 together.
    """
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    together = re2.Set.SearchSet(options)
    for pattern in patterns:
        flags = b"s" if pattern.options.case_sensitive else b"si"
        together.Add(b"(?" + flags + b")" + pattern.pattern)
    together.Add(b"")
    try:
        together.Compile()
    except re2.error:
        return None
    return together


def compiled_wide(regex: str, *, ignore_case: bool = True) -> Any:
    """Compile for RE2 on text of any script, read as views read it."""
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    return re2.compile("(?m)" + view_of(regex).text, options)


def supported(words: tuple[str, ...], context: tuple[str, ...]) -> bool:
    """Whether a word around speaks for the entity: short context words whole, longer ones within."""
    if not words:
        return False
    joined = " ".join(words)
    for wanted in context:
        if " " in wanted or len(wanted) > 3 or wanted > "\u0e00":
            if wanted in joined:
                return True
        elif wanted in words:
            return True
    return False


@dataclass(frozen=True, slots=True)
class Hit:
    """A span of the view with its score, before thresholds."""

    entity: str
    start: int
    end: int
    score: float
    source: str


@dataclass(frozen=True, slots=True)
class Runner:
    """One compiled pattern."""

    rule: Rule
    pattern: Any
    left: re.Pattern[str] | None
    right: re.Pattern[str] | None

    @classmethod
    def of(cls, rule: Rule) -> "Runner":
        """Compile a rule."""
        return cls(
            rule=rule,
            pattern=(compiled_wide if rule.wide else compiled)(
                rule.regex, ignore_case=rule.ignore_case
            ),
            left=re.compile(f"[{rule.left}]") if rule.left else None,
            right=re.compile(f"[{rule.right}]") if rule.right else None,
        )

    def run(self, gate: Gate, keys: tuple[str, ...]) -> Iterator[Hit]:
        """Yield what the pattern finds, scores raised by context."""
        rule = self.rule
        text = gate.view.text
        searched = _HALF.sub("\ufffd", text) if rule.wide else gate.view.data
        for match in self.pattern.finditer(searched):
            start, end = match.span(rule.group)
            if start >= end or not self._free(text, start, end):
                continue
            if rule.around is not None and not rule.around(text, start, end):
                continue
            if rule.not_in_queries and QUERY_PARAMETER.search(text, max(0, start - 40), start):
                continue
            if rule.spans is not None:
                candidates = rule.spans(gate, start, end)
            else:
                verdict = rule.check(text[start:end]) if rule.check is not None else None
                candidates = iter(((start, end, verdict),))
            for begin, stop, verdict in candidates:
                score = self._score(gate, begin, verdict, keys)
                if score > 0:
                    yield Hit(rule.entity, begin, stop, score, rule.name)

    def _free(self, text: str, start: int, end: int) -> bool:
        if self.left is not None and start and self.left.match(text, start - 1):
            return False
        return self.right is None or self.right.match(text, end) is None

    def _score(self, gate: Gate, start: int, verdict: bool | None, keys: tuple[str, ...]) -> float:
        rule = self.rule
        if verdict is False or (rule.against and not set(keys).isdisjoint(rule.against)):
            return 0.0
        if rule.against and any(w in rule.against for w in gate.words_before(start)[-3:-1]):
            return 0.0
        score = 1.0 if verdict is True and rule.score < 1 else rule.score
        if score == 1 or not rule.context:
            return score
        if supported(gate.words_before(start), rule.context) or supported(keys, rule.context):
            return min(1.0, max(score + CONTEXT_BOOST, CONTEXT_FLOOR))
        return score


_HALF = re.compile("[\ud800-\udfff]")
"""Half of a character, which RE2 cannot read."""
QUERY_PARAMETER = re.compile(r"[?&][\w.\-\[\]]{1,36}=\Z")
