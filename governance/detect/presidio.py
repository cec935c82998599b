"""Presidio as registry and engine: its recognisers, ours beside them, run behind gates on RE2.

``registry`` gives a Presidio ``RecognizerRegistry`` with what the policy needs, policy's own YAML
files included. ``PresidioDetector`` plans it once: recognisers that are patterns run on RE2 over
the normalised view, all others are asked as Presidio asks them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from governance.detect.finding import Finding, Unit
from governance.detect.gate import Gate
from governance.detect.matcher import Hit, Runner, compiled
from governance.detect.names.key_names import key_words
from governance.detect.normalized_text import TextView, view_of
from governance.detect.offline_imports import load
from governance.detect.phones import PhoneRunner
from governance.detect.prefilter import PatternRunner, Prefilter
from governance.detect.rules.catalog import has_checks, rules, rules_of
from governance.detect.rules.identity_numbers import identity_runners
from governance.detect.rules.rule import MONTHS, VERSION, Rule
from trajectory.errors import ConfigurationError

_presidio = load("presidio_analyzer")
_predefined = load("presidio_analyzer.predefined_recognizers")
_regex = load("regex")
import re2  # noqa: E402 - Presidio decides first what it finds installed

_LANGUAGE = "en"
_REGEX_SECONDS = 2.0
_CLASS = re.compile(r"\[[^\]]*\]")

STOCK = {
    "CryptoRecognizer": ("CRYPTO", None),
    "UsItinRecognizer": ("US_ITIN", ("taxpayer", "itin", "taxid", "tin", "tax")),
    "UsPassportRecognizer": ("US_PASSPORT", ("passport", "passport#")),
    "UsBankRecognizer": ("US_BANK_NUMBER", ("account", "acct", "bank", "checking", "savings")),
    "UsLicenseRecognizer": (
        "US_DRIVER_LICENSE",
        ("driver", "drivers", "driving", "dl"),
    ),
    "NhsRecognizer": ("UK_NHS", ("nhs", "health", "patient")),
    "MedicalLicenseRecognizer": (
        "MEDICAL_LICENSE",
        ("medical", "certificate", "dea", "doctor", "physician"),
    ),
    "DateRecognizer": ("DATE_TIME", None),
}
"""Presidio's own recognisers that we run, with context words where its own say too little."""

_NEEDS_CONTEXT = {"NhsRecognizer": 0.1, "MedicalLicenseRecognizer": 0.3}
"""Their checksum holds for one number in ten: with these scores they need context."""


class MinimumLength(NamedTuple):
    """What every match of a recogniser has at least."""

    characters: int = 1
    digits: int = 0
    digits_in_a_row: int = 0


LEAST = {
    "CryptoRecognizer": MinimumLength(26),
    "UsItinRecognizer": MinimumLength(9, 9, 4),
    "UsPassportRecognizer": MinimumLength(9, 8, 8),
    "UsBankRecognizer": MinimumLength(8, 8, 8),
    "NhsRecognizer": MinimumLength(10, 10, 3),
    "MedicalLicenseRecognizer": MinimumLength(9, 7, 7),
    "DateRecognizer": MinimumLength(4),
}
"""What there is to know of patterns whose text is not ours."""

_WITHOUT_RUN = frozenset({"CryptoRecognizer", "DateRecognizer"})
"""Those of them that find values without a run of digits: 05-MAR-21."""


class WordNlpEngine(_presidio.nlp_engine.NlpEngine):  # type: ignore[misc, name-defined]
    """An NLP engine of words alone: gives Presidio its context boost without any model."""

    def load(self) -> None:
        """Nothing to load."""

    def is_loaded(self) -> bool:
        """Always."""
        return True

    def process_text(self, text: str, language: str) -> Any:
        """Return words, their places and their lower-case forms as lemmas."""
        words = [(match.group(), match.start()) for match in re.finditer(r"\w+|[^\w\s]", text)]
        return _presidio.nlp_engine.NlpArtifacts(
            entities=[],
            tokens=[word for word, _ in words],
            tokens_indices=[start for _, start in words],
            lemmas=[word.lower() for word, _ in words],
            nlp_engine=self,
            language=language,
        )

    def process_batch(
        self, texts: Iterable[str], language: str, *_: Any, **__: Any
    ) -> Iterator[tuple[str, Any]]:
        """Process texts one by one."""
        for text in texts:
            yield text, self.process_text(text, language)

    def is_stopword(self, word: str, language: str) -> bool:  # noqa: ARG002 - Presidio's
        """No word is."""
        return False

    def is_punct(self, word: str, language: str) -> bool:  # noqa: ARG002 - Presidio's
        """Whether there is no letter or digit in it."""
        return not any(char.isalnum() for char in word)

    def get_supported_entities(self) -> list[str]:
        """None of its own."""
        return []

    def get_supported_languages(self) -> list[str]:
        """English context words."""
        return [_LANGUAGE]


class RunnerRecognizer(_presidio.LocalRecognizer):  # type: ignore[misc, name-defined]
    """One of our runners as a Presidio recogniser; stock engines can run it as well."""

    def __init__(self, runner: PatternRunner) -> None:
        self.runner = runner
        self._choice = Prefilter([runner])
        super().__init__(
            supported_entities=[runner.rule.entity],
            name=f"headrace.{runner.rule.name}",
            version=VERSION,
            context=[],
        )

    def load(self) -> None:
        """Nothing to load."""

    def analyze(self, text: str, *_: Any, **__: Any) -> list[Any]:
        """Find on the normalised view, context included; offsets are those of ``text``."""
        view = view_of(text)
        gate = Gate(view)
        result = _presidio.RecognizerResult
        return [
            result(
                hit.entity,
                *view.span(hit.start, hit.end),
                hit.score,
                recognition_metadata={
                    result.RECOGNIZER_NAME_KEY: self.name,
                    result.RECOGNIZER_IDENTIFIER_KEY: self.id,
                },
            )
            for runner in self._choice.of(gate)
            for hit in runner.run(gate, ())
        ]


def registry(entities: frozenset[str], files: Sequence[Path] = ()) -> Any:
    """Return a Presidio registry with the recognisers of these entities and of policy's files.

    Raises:
        ConfigurationError: a file of recognisers cannot be read.
    """
    own = [rule for file in files if has_checks(file) for rule in rules_of(file)]
    recognizers: list[Any] = [
        RunnerRecognizer(Runner.of(rule))
        for rule in (*rules(), *own)
        if rule.entity in entities and (rule.with_entity is None or rule.with_entity in entities)
    ]
    recognizers += map(RunnerRecognizer, identity_runners(entities))
    if "PHONE_NUMBER" in entities:
        recognizers.append(RunnerRecognizer(PhoneRunner()))
    for name, (entity, context) in STOCK.items():
        if entity in entities:
            recognizer = getattr(_predefined, name)()
            if context is not None:
                recognizer.context = list(context)
            recognizers.append(recognizer)
    built = _presidio.RecognizerRegistry(recognizers=recognizers, supported_languages=[_LANGUAGE])
    for file in files:
        if has_checks(file):
            continue
        try:
            built.add_recognizers_from_yaml(str(file))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigurationError(
                f"{file}: not a Presidio recogniser registry ({type(error).__name__}: {error}). "
                "See Presidio's 'no-code' recognisers for the format."
            ) from error
    return built


class StockRunner:
    """A pattern recogniser of Presidio (or of policy's YAML), run on RE2 where RE2 can run it."""

    def __init__(self, recognizer: Any, pattern: Any) -> None:
        self._recognizer = recognizer
        flags = recognizer.global_regex_flags
        kind = type(recognizer).__name__
        score = _NEEDS_CONTEXT.get(kind)
        self._checksum_decides = score is None
        least = LEAST.get(kind, MinimumLength())
        needs: tuple[str, ...] = ()
        fewest_digits = least.digits
        if kind == "DateRecognizer":
            needs, fewest_digits = _in_dates(pattern.regex)
        self.rule = Rule(
            recognizer.name,
            recognizer.supported_entities[0],
            "",
            pattern.score if score is None else score,
            needs=needs,
            digits=kind in STOCK and kind not in _WITHOUT_RUN,
            fewest_digits=fewest_digits,
            digits_in_a_row=least.digits_in_a_row,
            shortest=least.characters,
            context=tuple(word.strip().lower() for word in recognizer.context or ()),
            spans=self._spans,
        )
        self._ignore_case = bool(flags & _regex.IGNORECASE)
        self._slow: Any = None
        self._runner: Runner | None = None
        try:
            found = compiled(pattern.regex, ignore_case=self._ignore_case)
            self._runner = Runner(self.rule, found, None, None)
        except (re2.error, UnicodeEncodeError):
            self._slow = _regex.compile(pattern.regex, flags=flags)

    @property
    def pattern(self) -> Any:
        """What RE2 compiled; None for a pattern that it cannot run."""
        return None if self._runner is None else self._runner.pattern

    def _spans(self, gate: Gate, start: int, end: int) -> Iterator[tuple[int, int, bool | None]]:
        value = gate.view.text[start:end]
        verdict = self._recognizer.validate_result(value)
        if self._recognizer.invalidate_result(value):
            verdict = False
        if verdict and not self._checksum_decides:
            verdict = None
        yield start, end, None if verdict is None else bool(verdict)

    def run(self, gate: Gate, keys: tuple[str, ...]) -> Iterator[Hit]:
        """Yield the pattern's findings.

        Raises:
            TimeoutError: a pattern that RE2 cannot run took too long on this text.
        """
        if self._runner is not None:
            yield from self._runner.run(gate, keys)
            return
        judge = Runner(self.rule, None, None, None)
        for match in self._slow.finditer(gate.view.text, timeout=_REGEX_SECONDS):
            for start, end, verdict in self._spans(gate, *match.span()):
                score = judge._score(gate, start, verdict, keys)
                if end > start and score > 0:
                    yield Hit(self.rule.entity, start, end, score, self.rule.name)


def _in_dates(regex: str) -> tuple[tuple[str, ...], int]:
    """Return what a pattern of dates needs: a month or what stands between numbers, and so many digits."""
    if "JAN" in regex:
        return MONTHS, 1
    outside = _CLASS.sub("", regex)
    return tuple(mark for mark in "/-." if mark in outside), 3


class PresidioDetector:
    """Runs a Presidio registry over views."""

    name = "presidio"

    def __init__(self, built: Any) -> None:
        self.registry = built
        runners: list[PatternRunner] = []
        self._others: list[Any] = []
        self._nlp = WordNlpEngine()
        base = _presidio.PatternRecognizer
        for recognizer in built.recognizers:
            if isinstance(recognizer, RunnerRecognizer):
                runners.append(recognizer.runner)
            elif type(recognizer).analyze is base.analyze:
                runners += [StockRunner(recognizer, p) for p in recognizer.patterns]
            else:
                self._others.append(recognizer)
        self.entities = frozenset(
            entity for r in built.recognizers for entity in r.supported_entities
        )
        self.version = f"{VERSION}+{_presidio_version()}"
        self._choice = Prefilter(runners)

    def find(
        self,
        units: Sequence[Unit],
        known: Sequence[Sequence[Finding]] = (),  # noqa: ARG002 - looks at everything
    ) -> list[list[Finding]]:
        """Return scored findings, thresholds not applied yet.

        Raises:
            TimeoutError: a recogniser's pattern, one that RE2 cannot run, took too long.
        """
        words = {
            keys: tuple(word for key in key_words(keys) for word in key.split("_"))
            for keys in {unit.keys for unit in units}
        }
        return [self._found(unit.view, words[unit.keys]) for unit in units]

    def _found(self, view: TextView, words: tuple[str, ...]) -> list[Finding]:
        gate = Gate(view)
        out: list[Finding] = []
        for runner in self._choice.of(gate):
            for hit in runner.run(gate, words):
                start, end = view.span(hit.start, hit.end)
                out.append(Finding(hit.entity, start, end, hit.score, hit.source))
        if self._others:
            out.extend(self._asked(view))
        return out

    def _asked(self, view: TextView) -> Iterator[Finding]:
        artifacts = self._nlp.process_text(view.text, _LANGUAGE)
        for recognizer in self._others:
            wanted = list(recognizer.supported_entities)
            for result in recognizer.analyze(view.text, wanted, artifacts) or ():
                if result.end > result.start:
                    start, end = view.span(result.start, result.end)
                    yield Finding(result.entity_type, start, end, result.score, recognizer.name)


def _presidio_version() -> str:
    from importlib.metadata import version

    return f"presidio-{version('presidio-analyzer')}"
