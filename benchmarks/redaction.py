"""Measures redaction: leaks, speed against stock Presidio, false alarms, hostile input, labelled sets.

    python -m benchmarks.redaction [--quick] [--pii FOLDER] [--seed N]

The last line is one JSON object. ``worst_vs_stock`` is what the worst text costs over what stock Presidio
takes for as much ordinary text: the same on slow machines and fast ones.
"""

import argparse
import json
import random
import re
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import policies
from benchmarks.labelled_texts import report_on
from benchmarks.planting import planted, spellings
from governance.detect.finding import Unit
from governance.detect.normalized_text import view_of
from governance.detect.offline_imports import load
from governance.detect.presidio import PresidioDetector, WordNlpEngine, registry
from governance.policy.bundle import load_bundle
from governance.policy.redaction import DEFAULT_ENTITIES, NamesSpec, RedactionSpec
from governance.redact import RedactionScope, Redactor, build_redactor, settle
from governance.redact.build import redactor_of
from governance.redact.redactor import DEFAULT_THRESHOLD, DEFAULT_THRESHOLDS
from governance.redact.subject_keys import FileSubjectKeys
from tests.governance.hostile import HOSTILE, dense, drawn, tried

KEY = bytes(32)
_ROUNDS = _DEAREST = 12
"""How often texts are measured, and how many of them again."""
STOCK = (
    "CreditCardRecognizer", "CryptoRecognizer", "EmailRecognizer", "IbanRecognizer", "IpRecognizer",
    "MacAddressRecognizer", "MedicalLicenseRecognizer", "NhsRecognizer", "PhoneRecognizer",
    "UsBankRecognizer", "UsItinRecognizer", "UsLicenseRecognizer", "UsPassportRecognizer",
    "UsSsnRecognizer", "UrlRecognizer",
)  # fmt: skip

JUDGED_WRONG: dict[str, str] = {
    "URL": "a plain address on the web names nobody; addresses with credentials are found",
    "UK_NHS": "one number of ten digits in eleven has this checksum; context is asked for",
    "MEDICAL_LICENSE": "one word in ten of two letters and seven digits has it; context is asked for",
    "US_PASSPORT": "its context words hold 'us', which is in 'user' and 'status'; 'passport' is asked for",
    "US_DRIVER_LICENSE": "any word of a letter and digits near 'lic' in 'duplicate'; words are asked for whole",
    "US_BANK_NUMBER": "any 8 to 17 digits near 'save' in 'saved' or 'check' in 'checked'",
    "PHONE_NUMBER:plain": "digits without separators, plus or context: epoch seconds, ids, floats",
    "PHONE_NUMBER:shape": "groups of digits without the shape of a number and without context: tables, dates",
    "CREDIT_CARD:issuer": "satisfies Luhn, but nobody issues this prefix or length, and no context",
    "IP_ADDRESS:nobody": "loopback, unspecified and broadcast addresses, `a::b` of a program",
    "EMAIL_ADDRESS:git": "git@ of a code host is nobody's",
}
"""Classes of stock findings that are held for wrong, with the reason; all others must be found."""

_SENTENCES = (
    "Could you look at order {n} again, the {n} lamps have not arrived yet.",
    "I checked the price list: {n} mugs at {n}.50 each come to {n}.00 in total.",
    "Thanks! Let me call the tool get_quote with quantity {n} and account premium.",
    'The tool answered {{"status": "ok", "total_cents": {n}, "currency": "EUR", "items": [{n}, {n}]}}.',
    "Step {n}: open the settings page, choose billing and press save.",
    "The build failed at line {n} of main.py with ValueError: invalid value for option --retries.",
    "On 2024-05-{d} at 10:{d} the request took {n} ms and returned status 200.",
    "Here is what I would do next: first read the file, then write the test, then run it.",
    "def total(self, items):\n    return sum(item.price * item.quantity for item in items)  # {n}",
    "https://docs.example.com/guide/{n}?page={d} explains how the cache works.",
)


def chat(draw: random.Random, length: int) -> str:
    """Return text as agents and people write it, one sentence in eight with something personal."""
    pieces: list[str] = []
    size = 0
    secrets = planted(draw.randrange(10**9), 10**9)
    while size < length:
        if draw.random() < 0.125:
            sentence = next(secrets)[0].sentence
        else:
            sentence = draw.choice(_SENTENCES).format(
                n=draw.randrange(2, 9000), d=draw.randrange(10, 28)
            )
        pieces.append(sentence)
        size += len(sentence) + 1
    return " ".join(pieces)[:length]


def stock_engine() -> Any:
    """Return Presidio's own engine with its own recognisers and our engine of words."""
    presidio = load("presidio_analyzer")
    predefined = load("presidio_analyzer.predefined_recognizers")
    recognizers = [getattr(predefined, name)() for name in STOCK]
    return presidio.AnalyzerEngine(
        registry=presidio.RecognizerRegistry(recognizers=recognizers, supported_languages=["en"]),
        nlp_engine=WordNlpEngine(),
        supported_languages=["en"],
    )


def speed(stock: Any, ours: PresidioDetector, length: int, seconds: float) -> tuple[float, float]:
    """Return characters per CPU second of stock and ours on the same texts, measured in turns.

    Two hundred texts go before: what either loads and compiles once is not its speed.
    """
    draw = random.Random(length)  # noqa: S311 - reproducible, not secret
    for text in [chat(draw, 200) for _ in range(200)]:
        _stock(stock)(text)
        _ours(ours)(text)
    spent = [0.0, 0.0]
    characters = 0
    while sum(spent) < seconds:
        texts = [chat(draw, length) for _ in range(max(1, 2000 // length))]
        characters += sum(map(len, texts))
        for place, look in enumerate((_stock(stock), _ours(ours))):
            start = time.process_time()
            for text in texts:
                look(text)
            spent[place] += time.process_time() - start
    return characters / spent[0], characters / spent[1]


def _stock(stock: Any) -> Callable[[str], Any]:
    return lambda text: stock.analyze(text, "en")


def _ours(ours: PresidioDetector) -> Callable[[str], Any]:
    return lambda text: ours.find([Unit(view_of(text))])


def differential(
    stock: Any, ours: PresidioDetector, texts: list[str]
) -> tuple[Counter[str], Counter[str]]:
    """Return stock findings that we miss: by entity, and those of a class that is judged wrong."""
    missing: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    for text in texts:
        (mine,) = ours.find([Unit(view_of(text))])
        covered = [
            (f.start, f.end)
            for f in mine
            if f.score >= DEFAULT_THRESHOLDS.get(f.entity, DEFAULT_THRESHOLD)
        ]
        for result in stock.analyze(text, "en"):
            if result.score < DEFAULT_THRESHOLDS.get(result.entity_type, DEFAULT_THRESHOLD):
                continue
            if any(start < result.end and end > result.start for start, end in covered):
                continue
            reason = judged_wrong(result.entity_type, text[result.start : result.end])
            (judged if reason else missing)[reason or result.entity_type] += 1
    return missing, judged


def judged_wrong(entity: str, value: str) -> str | None:
    """Return the class of :data:`JUDGED_WRONG` that a stock finding belongs to."""
    from governance.detect.rules import checks

    if entity in JUDGED_WRONG:
        return entity
    if entity == "PHONE_NUMBER":
        return _phone_class(value)
    if entity == "CREDIT_CARD" and checks.card(value) is not True:
        return "CREDIT_CARD:issuer"
    if entity == "IP_ADDRESS" and not checks.ip_address(value):
        return "IP_ADDRESS:nobody"
    if entity == "EMAIL_ADDRESS" and value.startswith("git@"):
        return "EMAIL_ADDRESS:git"
    return None


_AS_PEOPLE_WRITE = re.compile(
    r"\+|00\d|\(0?\d{2,4}\)|0\d{1,4}[ /\-]\d|(?:1[-. ])?\d{3}[-.]\d{3}[-.]\d{4}\Z"
)


def _phone_class(value: str) -> str | None:
    """Return why a stock phone number is none: plain digits, or not the shape of a number."""
    if value.isdigit():
        return "PHONE_NUMBER:plain"
    return None if _AS_PEOPLE_WRITE.match(value) else "PHONE_NUMBER:shape"


PEOPLE = Path(__file__).with_name("library_people.txt")
_MADE_UP = re.compile(r"(?:\b(?:one|two|three|four|my)\.org|devanagari\.\w+)\Z", re.IGNORECASE)
"""Mailboxes that the library's examples made up."""


def library(limit: int) -> Iterator[str]:
    """Yield modules of Python's library, together at least ``limit`` characters.

    The names model was trained on lines of the library's packages, on none of these.
    """
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    random.Random(5).shuffle(files)  # noqa: S311 - reproducible, not secret
    size = 0
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        size += len(text)
        yield text
        if size > limit:
            return


def people() -> list[str]:
    """Return those whom the library's source names."""
    lines = PEOPLE.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def is_right(entity: str, value: str, named: list[str]) -> bool:
    """Whether a finding in the library's source is somebody's name or mailbox indeed."""
    if entity == "EMAIL_ADDRESS":
        return value[0].isalnum() and _MADE_UP.search(value) is None
    if entity != "PERSON":
        return False
    words = {word for word in re.findall(r"[^\W\d_]+", value) if len(word) > 1}
    return any(
        name in value or (words and words <= set(re.findall(r"[^\W\d_]+", name))) for name in named
    )


class Alarms(NamedTuple):
    """Findings in the library's source, by entity."""

    found: Counter[str]
    false: Counter[str]
    characters: int

    def rate(self, which: Counter[str]) -> float:
        """Return findings per 100,000 characters."""
        return round(sum(which.values()) / self.characters * 100_000, 2)


def alarms(redactor: Redactor, limit: int) -> Alarms:
    """Return what is found in the library's source, and what of it is false."""
    found: Counter[str] = Counter()
    false: Counter[str] = Counter()
    named, size = people(), 0
    for number, text in enumerate(library(limit)):
        size += len(text)
        done = redactor.redact_text(text, scope=RedactionScope("bench", str(number)))
        for place in done.report.places:
            found[place.entity] += 1
            if not is_right(place.entity, text[place.start : place.end], named):
                false[place.entity] += 1
    return Alarms(found, false, size)


def leaks(redactor: Redactor, seed: int, count: int) -> Counter[str]:
    """Return planted values that survive, by kind and place."""
    left: Counter[str] = Counter()
    for number, (secret, place, message) in enumerate(planted(seed, count)):
        scope = RedactionScope("bench", str(number))
        (clean,) = redactor.redact_messages([message], scope=scope)
        stored = json.dumps(clean.message.to_json(), ensure_ascii=False).encode()
        if any(form in stored for form in spellings(secret) if len(form) > 5):
            left[f"{secret.kind} in {place}"] += 1
    return left


def worst(
    build: Callable[[], Redactor], texts: Mapping[str, str], rounds: int = _ROUNDS
) -> tuple[float, str]:
    """Return the most CPU milliseconds per (begun) kilobyte of any hostile text, and its name.

    What else a machine does only adds, some of it for seconds: the dearest texts are measured again
    and again, each time by a redactor that has not seen them, and the least of a text's times counts.
    """
    redactors = [build() for _ in range(rounds)]  # none is freed before the end: see apart
    settle()  # as the governor does
    costs = {name: _cost(redactors[0], name, text) for name, text in texts.items()}
    for redactor in redactors[1:]:
        # The dearest is the last one: by then the redactor has looked at some others.
        for name in sorted(costs, key=costs.__getitem__)[-_DEAREST:]:
            costs[name] = min(costs[name], _cost(redactor, name, texts[name]))
    name = max(costs, key=costs.__getitem__)
    return costs[name], name


def worst_by_default(
    model: str | None, more: Mapping[str, str], rounds: int = _ROUNDS
) -> tuple[float, str]:
    """Return :func:`worst` by a policy that says nothing, over some more texts."""
    spec = RedactionSpec(names=NamesSpec(model=model))
    return worst(
        lambda: build_redactor(spec, pseudonym_key=KEY),
        {**HOSTILE, **dict(dense()), **more},
        rounds,
    )


def worst_by_policy(folder: Path) -> tuple[float, str]:
    """Return :func:`worst` by a bundle that is shipped."""
    bundle = load_bundle(folder)
    with TemporaryDirectory() as kept:
        files = (Path(kept) / str(number) for number in count())
        return worst(
            lambda: redactor_of(
                bundle, pseudonym_key=KEY, subjects=FileSubjectKeys(next(files), KEY)
            ),
            {**HOSTILE, **dict(dense())},
        )


def apart[**P, R](function: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
    """Return what a function returns in a process of its own.

    Where much was freed before, what is made lies in the holes, far apart, and the same text takes up
    to a fifth longer.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function, *args, **named).result()


def _cost(redactor: Redactor, name: str, text: str) -> float:
    start = time.process_time()
    redactor.redact_text(text, scope=RedactionScope("bench", name))
    milliseconds = (time.process_time() - start) * 1000
    return milliseconds / max(1, len(text.encode()) / 1000)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything and return the figures."""
    quick = options.quick
    say(f"building (names model: {options.model})")

    spec = RedactionSpec(names=NamesSpec(model=options.model))
    redactor = build_redactor(spec, pseudonym_key=KEY)
    entities = frozenset(DEFAULT_ENTITIES) | {"URL"}
    ours = PresidioDetector(registry(entities))
    stock = stock_engine()
    out: dict[str, Any] = {}
    left = leaks(redactor, options.seed, 1_000 if quick else 10_000)
    say(f"leaks: {dict(left)}")
    out["leaked"] = sum(left.values())
    for length in (200, 2_000, 20_000):
        theirs, mine = speed(stock, ours, length, 1.5 if quick else 20)
        say(f"{length} characters: stock {theirs / 1000:.0f}, ours {mine / 1000:.0f} kchar/s")
        out[f"speed_{length}"] = round(mine)
        out[f"speedup_{length}"] = round(mine / theirs, 2)
        if length == 2_000:
            out["stock_ms_per_kb"] = round(1e6 / theirs, 2)
    draw = random.Random(options.seed)  # noqa: S311 - reproducible, not secret
    texts = [chat(draw, 1_000) for _ in range(60 if quick else 1_000)]
    texts += [
        secret.sentence for secret, _, _ in planted(options.seed + 1, 200 if quick else 3_000)
    ]
    texts += [
        text[at : at + 4000]
        for text in library(10**5)
        for at in range(0, 8_000 if quick else 10**9, 4000)
    ][: 10 if quick else 100]
    missing, judged = differential(stock, ours, texts)
    say(f"missing of stock: {dict(missing)}; judged wrong: {dict(judged)}")
    out["differential_missing"] = sum(missing.values())
    out["differential_judged_wrong"] = dict(judged)
    source = alarms(redactor, 500_000 if quick else 10**9)
    say(f"in source: found {dict(source.found)}, of these false {dict(source.false)}")
    out["false_per_100k"] = source.rate(source.false)
    out["found_per_100k"] = source.rate(source.found)
    if quick:
        cost, name = apart(worst_by_default, options.model, {}, 2)
    else:
        more = (*drawn(options.seed, 1_000), *tried(options.seed, 2_000))
        cost, name = apart(worst_by_default, options.model, dict(more))
    out["worst_ms_per_kb"], out["worst_input"] = round(cost, 2), name
    out["worst_vs_stock"] = round(cost / out["stock_ms_per_kb"], 2)
    shipped = sorted(Path(policies.__file__).parent.glob("*/redaction.yaml"))
    out["worst_by_policy"] = {}
    for folder in [] if quick else [file.parent for file in shipped]:
        cost, name = apart(worst_by_policy, folder)
        out["worst_by_policy"][folder.name] = [round(cost, 2), name]
    if options.pii is not None:
        out["labelled"] = report_on(options.pii, options.model, say, limit=200 if quick else None)
    return out


def say(line: str) -> None:
    """Tell what was measured, on stderr."""
    sys.stderr.write(line + "\n")


def main() -> None:
    """Read the options, measure, print one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within 50 seconds")
    parser.add_argument("--pii", type=Path, help="folder with labelled sets (eval/…)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--model", default="embedded", type=lambda name: None if name == "none" else name
    )
    print(json.dumps(measured(parser.parse_args())))


if __name__ == "__main__":
    main()
