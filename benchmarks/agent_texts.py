"""Measures redaction on labelled texts as agents see them, by kind and language, in two halves.

    python -m benchmarks.agent_texts [--quick] [--bundle NAME …] [--half tuned|held] [--show N] [--seed N]

One half of the templates was written before the rules and is never tuned to. A value counts as missed
when any part of it that says something is left, a neutral text as wrongly changed when anything in it
is. Only values of types that a bundle asks for count. The last line is one JSON object.
"""

import argparse
import json
import random
import string
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import policies
from benchmarks import agent_texts_drawn, agent_texts_held, agent_texts_tuned
from benchmarks.agent_texts_values import NUMBERS, PHONES, phone
from governance.policy.bundle import load_bundle
from governance.redact import RedactionScope, Redactor
from governance.redact.build import redactor_of
from governance.redact.subject_keys import FileSubjectKeys
from trajectory.message import Message, TextPart

_BUNDLES = ("default", "strict", "gdpr", "hipaa-safe-harbor")
_HALVES = {"tuned": (agent_texts_tuned, agent_texts_drawn), "held": (agent_texts_held,)}
_ROUNDS = 5
TURN = "\x1e"
"""Stands between the messages of a conversation."""
_COUNTRY = {
    "en": "us gb au in za ie", "de": "de at ch", "fr": "fr be", "es": "es mx ar", "it": "it",
    "pt": "pt br", "pl": "pl", "nl": "nl", "tr": "tr", "ru": "ru", "zh": "cn", "ja": "jp",
    "ko": "kr", "hi": "in", "ar": "sa", "he": "il",
}  # fmt: skip
_JOINED = ("zh", "ja", "ko")
"""Languages that write the family name first and without a space."""


@dataclass(frozen=True, slots=True)
class Planted:
    """One personal value of a text."""

    entity: str
    parts: tuple[str, ...] = field(repr=False)
    """What must not be left, each by itself."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text with what is personal in it; neutral where there is nothing."""

    kind: str
    language: str
    text: str = field(repr=False)
    planted: tuple[Planted, ...] = ()


class Filler(Mapping[str, str]):
    """Fills one template, and remembers what was planted."""

    def __init__(self, draw: random.Random, half: ModuleType, language: str, turn: int) -> None:
        self._draw, self._half, self._language, self._turn = draw, half, language, turn
        self._made: dict[str, str] = {}
        self.planted: list[Planted] = []
        tongue = language if language in half.NAMES else "en"
        first, last = (words.split() for words in half.NAMES[tongue])
        self._joined = tongue in _JOINED
        self._first, self._last = draw.sample(first, 2), draw.sample(last, 2)

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def __getitem__(self, key: str) -> str:
        if key in ("n", "h"):
            return str(self._draw.randrange(2, 999)) if key == "n" else _hex(self._draw)
        if key not in self._made:
            self._made[key] = self._fill(key, 1 if key.endswith("2") else 0)
        return self._made[key]

    def _plant(self, entity: str, value: str, *parts: str) -> str:
        self.planted.append(Planted(entity, parts or (value, value[len(value) // 2 :])))
        return value

    def _fill(self, key: str, which: int) -> str:
        draw, half, plain = self._draw, self._half, key.rstrip("23")
        first, last = self._first[which], self._last[which]
        if plain == "name":
            if self._joined:
                return self._plant("PERSON", last + first, last + first)
            return self._plant("PERSON", f"{first} {last}", first, last)
        if plain == "upper":
            return self._plant("PERSON", f"{first} {last}".upper(), first.upper(), last.upper())
        if plain == "clast":
            return self._plant("PERSON", last.upper(), last.upper())
        if plain == "low":
            small = [_plain(first), _plain(last)]
            return self._plant("PERSON", draw.choice("_-.").join(small), *small)
        if plain in ("first", "last"):
            value = first if plain == "first" else last
            return self._plant("PERSON", value, value) if len(value) > 2 else value
        if plain == "user":
            value = draw.choice(half.USERS)
            return self._plant("USERNAME", value, value)
        if plain == "mail":
            box = _plain(f"{first}.{last}") or "j.box"
            host = draw.choice(("corp-mail.com", "posteo.test", "uni-lab.org", "globex.co"))
            return self._plant("EMAIL_ADDRESS", f"{box}@{host}", f"{box}@{host}")
        if plain in ("phone", "nphone"):
            countries = _COUNTRY.get(self._language)
            country = draw.choice(countries.split()) if countries else self._any_country()
            value = phone(draw, country, national=plain == "nphone")
            return self._plant("PHONE_NUMBER", value)
        if plain in ("pw", "wpw"):
            words = half.PASSWORDS if plain == "pw" else half.WORD_PASSWORDS
            return self._plant("PASSWORD", draw.choice(words))
        if plain == "ip":
            value = f"{draw.choice((81, 93, 178, 212))}." + ".".join(
                str(draw.randrange(2, 250)) for _ in range(3)
            )
            return self._plant("IP_ADDRESS", value, value)
        if plain == "street":
            return self._plant("STREET_ADDRESS", draw.choice(half.STREETS[self._language]))
        if plain == "dob":
            value = f"{draw.randrange(10, 28)}.0{draw.randrange(1, 9)}.19{draw.randrange(50, 99)}"
            return self._plant("DATE_OF_BIRTH", value, value)
        if key in NUMBERS:
            return self._plant("NATIONAL_ID", NUMBERS[key](draw))
        return self._neutral(key, plain)

    def _any_country(self) -> str:
        return [*PHONES][self._turn % len(PHONES)]

    def _neutral(self, key: str, plain: str) -> str:
        draw = self._draw
        if key in ("v", "v4", "v4b"):
            return ".".join(str(draw.randrange(1, 40)) for _ in range(3 if key == "v" else 4))
        return str(draw.choice(self._half.LISTS[plain]))


def _hex(draw: random.Random) -> str:
    return "".join(draw.choices("0123456789abcdef", k=10))


def _plain(name: str) -> str:
    folded = unicodedata.normalize("NFKD", name).lower()
    kept = "".join(char for char in folded if char in string.ascii_lowercase + ".")
    return kept.strip(".")


def texts(half: ModuleType, seed: int) -> list[Labelled]:
    """Return the labelled texts of some generators, each once."""
    out: dict[tuple[str, str], Labelled] = {}
    for neutral, templates in ((False, half.PERSONAL), (True, half.NEUTRAL)):
        for kind, languages in templates.items():
            for language, written in languages.items():
                draw = random.Random(f"{seed}/{kind}/{language}")  # noqa: S311 - reproducible
                rounds = 32 if kind == "phone" else _ROUNDS * (2 if neutral else 1)
                for turn in range(rounds):
                    for template in written:
                        filler = Filler(draw, half, language, turn)
                        text = template.format_map(filler)
                        if not neutral or not filler.planted:
                            one = Labelled(kind, language, text, tuple(filler.planted))
                            out.setdefault((kind, text), one)
    return list(out.values())


@dataclass(slots=True)
class Count:
    """What was counted of some texts."""

    planted: int = 0
    missed: int = 0
    personal: int = 0
    leaking: int = 0
    neutral: int = 0
    changed: int = 0

    def add(self, text: Labelled, planted: int, missed: int, *, changed: bool) -> None:
        """Count one text."""
        if text.planted:
            self.planted += planted
            self.missed += missed
            self.personal += planted > 0
            self.leaking += missed > 0
        else:
            self.neutral += 1
            self.changed += changed

    def figures(self) -> dict[str, float | int]:
        """Return shares, and of how many."""
        out: dict[str, float | int] = {}
        if self.personal:
            out |= {
                "values": self.planted,
                "missed_share": round(self.missed / self.planted, 4),
                "documents": self.personal,
                "documents_leaking": round(self.leaking / self.personal, 4),
            }
        if self.neutral:
            out |= {
                "neutral": self.neutral,
                "wrongly_changed_share": round(self.changed / self.neutral, 4),
            }
        return out


def redacted(redactor: Redactor, number: int, text: str) -> str:
    """Return a text, or a conversation, as it would be stored."""
    scope = RedactionScope("bench", str(number))
    if TURN not in text:
        return redactor.redact_text(text, scope=scope).text
    roles = ("assistant", "user")
    turns = [Message(roles[i % 2], (TextPart(t),)) for i, t in enumerate(text.split(TURN))]
    return TURN.join(one.message.text() for one in redactor.redact_messages(turns, scope=scope))


def measured(redactor: Redactor, given: list[Labelled], show: int) -> dict[str, Any]:
    """Return the figures of one half: overall, by kind and by language."""
    promised = frozenset(redactor.operators)
    overall = Count()
    kinds: defaultdict[str, Count] = defaultdict(Count)
    languages: defaultdict[str, Count] = defaultdict(Count)
    entities: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for number, text in enumerate(given):
        after = redacted(redactor, number, text.text)
        planted = [one for one in text.planted if one.entity in promised]
        missed = [one for one in planted if any(part in after for part in one.parts)]
        changed = after != text.text
        for count in (overall, kinds[text.kind], languages[text.language]):
            count.add(text, len(planted), len(missed), changed=changed)
        for one in planted:
            entities[one.entity][0] += 1
            entities[one.entity][1] += one in missed
        if show and (missed or (changed and not text.planted)):
            show -= 1
            say(
                f"{'LEFT' if missed else 'WRONG'} {text.kind} {text.language} {[m.parts for m in missed]}"
            )
            say("    " + text.text.replace("\n", "\n    "))
            say("  -> " + after.replace("\n", "\n    "))
    return {
        **overall.figures(),
        "kinds": {kind: count.figures() for kind, count in sorted(kinds.items())},
        "languages": {name: count.figures() for name, count in sorted(languages.items())},
        "missed_by_type": {k: round(m / n, 4) for k, (n, m) in sorted(entities.items())},
    }


def main(arguments: list[str]) -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="make bench-agent-texts", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one bundle, every third text")
    parser.add_argument("--bundle", nargs="+", choices=_BUNDLES, help="all by default")
    parser.add_argument("--half", choices=[*_HALVES], help="both by default")
    parser.add_argument(
        "--show", type=int, default=0, help="print so many failures of the tuned half"
    )
    parser.add_argument("--kind", nargs="+", help="only texts of these kinds")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    bundles = options.bundle or (("gdpr",) if options.quick else _BUNDLES)
    report: dict[str, Any] = {"texts": 0, "bundles": {}}
    given = {
        name: [text for generators in halves for text in texts(generators, options.seed)]
        for name, halves in _HALVES.items()
        if options.half in (None, name)
    }
    report["texts"] = sum(map(len, given.values()))
    for bundle in bundles:
        with TemporaryDirectory() as folder:
            redactor = redactor_of(
                load_bundle(Path(policies.__path__[0]) / bundle),
                pseudonym_key=bytes(32),
                subjects=FileSubjectKeys(Path(folder) / "keys", bytes(32)),
            )
            for name, all_texts in given.items():
                chosen = all_texts[::3] if options.quick else all_texts
                chosen = [one for one in chosen if not options.kind or one.kind in options.kind]
                show = options.show if name == "tuned" else 0
                figures = measured(redactor, chosen, show)
                report["bundles"].setdefault(bundle, {})[name] = figures
                _say(bundle, name, figures)
    print(json.dumps(report))
    return 0


def say(line: str) -> None:
    """Tell what was measured, on stderr."""
    sys.stderr.write(line + "\n")


def _say(bundle: str, half: str, figures: dict[str, Any]) -> None:
    def line(name: str, of: Mapping[str, Any]) -> str:
        shares = (
            f"{of['missed_share']:7.2%} {of['documents_leaking']:7.2%} of {of['documents']:5}"
            if "documents" in of
            else " " * 24
        )
        wrong = (
            f"   {of['wrongly_changed_share']:7.2%} of {of['neutral']}" if "neutral" in of else ""
        )
        return f"  {name:14} {shares}{wrong}"

    say(f"{bundle}, {half}: missed, documents leaking, neutral texts wrongly changed")
    say(line("overall", figures))
    for name, of in (*figures["kinds"].items(), *figures["languages"].items()):
        say(line(name, of))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
