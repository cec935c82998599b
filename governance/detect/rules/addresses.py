"""Rules for postal addresses: a house number beside a word for a street, a flat, a post box."""

import re

from governance.detect.rules.rule import Rule

_UPPER = r"[A-Z\xc0-\xde]"
_LETTERS = r"[\w\xaa\xb5\xba\xc0-\xf6\xf8-\xff'.\-]"
_CAPITALISED = rf"{_UPPER}{_LETTERS}{{1,24}}"
_NUMBER = r"\d{1,6}[A-Za-z]?(?:[-/]\d{1,4})?"
_FLAT = r"(?:Apt|Apartment|Suite|Ste|Unit|Floor|Flat|Room)\b\.? ?#?[\w\-]{1,6}|#\d{1,6}"
_STREET = (
    r"(?:Street|St|Avenue|Ave|Av|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Place|Pl|Square|Sq|"
    r"Terrace|Ter|Way|Parkway|Pkwy|Circle|Cir|Highway|Hwy|Trail|Close|Crescent|Row|Quay|Mews|str|Str)"
)
_STREET_END = (
    "straße", "strasse", "str.", "weg", "gasse", "platz", "allee", "ring", "damm", "laan", "straat",
    "gracht", "gatan", "vägen", "vej", "gade", "veien", "gata", "katu", "tie", "polku", "utca", "útja",
    "ulica", "ulice", "námestí", "ská", "ová", "stien", "marken", "vangen", "vænget",
)  # fmt: skip
_STREET_START = (
    "Rue", "Avenue", "Boulevard", "Chemin", "Impasse", "Quai", "Via", "Viale", "Piazza", "Corso",
    "Vicolo", "Calle", "Avenida", "Paseo", "Plaza", "Carrer", "Carretera", "Camino", "Rua", "Travessa",
    "Largo", "Praça", "Estrada", "Ulica", "Ul.", "Aleja", "Al.", "Strada", "Bulevardul", "Jalan", "Jl.",
)  # fmt: skip
_FLAT_BEHIND = ("Apt", "Suite", "Apartment", "Unit", "Flat")
_TOWN = rf"(?:{_CAPITALISED}[ ]?){{1,4}}"
_REST = (
    rf"(?:[,\s]{{1,4}}(?:{_FLAT})){{0,2}}"
    rf"(?:[,\s]{{1,6}}{_TOWN}(?:[,\s]{{1,6}}(?:[A-Z]{{2}}|{_TOWN}))?[,\s]{{1,6}}(?:[A-Z]{{1,2}}[ -]?)?\d{{4,6}}(?:-\d{{4}})?\b)?"
)


def _any(words: tuple[str, ...]) -> str:
    return "(?:" + "|".join(map(re.escape, words)) + ")"


def _rule(name: str, shortest: int, regex: str, needs: tuple[str, ...] = ()) -> Rule:
    return Rule(
        name,
        "STREET_ADDRESS",
        regex,
        0.7,
        ignore_case=False,
        needs=tuple(map(str.lower, needs)),
        fewest_digits=1,
        spaced=True,
        shortest=shortest,
    )


ADDRESSES = (
    _rule(
        "street_address",
        7,
        rf"\b(?:\d{{1,6}} )?{_NUMBER},? (?:(?:[NSEW]|North|South|East|West)\.? )?"
        rf"(?:{_CAPITALISED} ){{1,4}}{_STREET}\b\.?{_REST}",
    ),
    _rule(
        "street_by_its_end",
        6,
        rf"\b(?:\d{{1,6}} )?(?:{_CAPITALISED} )?{_UPPER}{_LETTERS}{{0,24}}{_any(_STREET_END)} {_NUMBER}\b{_REST}",
        needs=_STREET_END,
    ),
    _rule(
        "street_by_its_start",
        7,
        rf"\b(?:\d{{1,6}} )?(?:\d{{1,6}},? )?{_any(_STREET_START)} (?:{_LETTERS}{{1,24}} ){{1,5}}{_NUMBER}\b{_REST}",
        needs=_STREET_START,
    ),
    _rule(
        "house_before_flat",
        8,
        rf"\b(?:\d{{1,6}} )?{_NUMBER} (?:{_LETTERS}{{1,24}} ){{1,5}}(?:\d{{1,5}})?\s{{0,3}},?\s{{0,3}}"
        rf"{_any(_FLAT_BEHIND)}\b\.? ?#?\d{{1,6}}{_REST}",
        needs=_FLAT_BEHIND,
    ),
    Rule(
        "told_address",
        "STREET_ADDRESS",
        r"\b(?:address(?: is|:)|live[sd]? (?:at|on|in)|located at|moved to|resid(?:e|es|ing) at|deliver(?:ed)? to|ship(?:ped)? to|sent to|it is)[:\s]{1,4}"
        r"(\d{1,6}[A-Z]? [\w\xc0-\xff'.\-]{2,24}(?:[ ,]{1,2}[\w\xc0-\xff'.\-]{1,24}){1,6})",
        0.5,
        1,
        needs=(
            "address",
            "live",
            "located",
            "moved",
            "resid",
            "deliver",
            "ship",
            "sent to",
            "it is",
        ),
        check=lambda value: (
            None if any(c.isupper() for c in value) and value[-1].isdigit() else False
        ),
    ),
    Rule(
        "military_address",
        "STREET_ADDRESS",
        r"\b(?:PSC \d{1,5},? Box \d{1,6}|Unit \d{1,6} Box \d{1,6}|US[A-Z]{1,3} [A-Z\xc0-\xde][\w\xe0-\xff]{2,20})\s{1,3}(?:[AFD]PO) A[AEP] \d{5}",
        0.9,
        ignore_case=False,
        needs=("apo", "fpo", "dpo"),
    ),
    Rule("post_box", "STREET_ADDRESS", r"\bP\.?\s?O\.?\s?Box \d{1,6}\b", 0.7, needs=("box",)),
)
