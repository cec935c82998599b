"""Seeded personal data and secrets of many types, and the places that they are hidden in.

Values are checksummed where the type asks for it and come from nobody: ranges for fiction, random
digits, made-up names.
"""

import base64
import hashlib
import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from trajectory.message import (
    Message,
    OpaquePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

_FIRST = (
    "Agnieszka", "Amara", "Beatriz", "Catherine", "Darius", "Elena", "Farid", "Giulia", "Hiroshi",
    "Ingrid", "Jamal", "Katarzyna", "Leonardo", "Margaret", "Nikolai", "Priya", "Robert", "Susan",
    "Thandiwe", "Wojciech", "Yolanda", "Zoltan",
)  # fmt: skip
_LAST = (
    "Abernathy", "Blaszczyk", "Calderon", "Devereaux", "Eriksson", "Fitzgerald", "Grigoryan",
    "Haverford", "Ivanova", "Johansson", "Kowalczyk", "Lindqvist", "Mukherjee", "Nakamura",
    "Okonkwo", "Papadopoulos", "Quispe", "Rasmussen", "Szymanski", "Thistlewood", "Villanueva",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Secret:
    """One planted value."""

    kind: str
    value: str = field(repr=False)
    sentence: str = field(repr=False)
    """A sentence that people would write it in."""
    key: str
    """The JSON key that it would stand under."""


def luhn_digit(digits: str) -> str:
    """Return the digit that makes ``digits`` satisfy Luhn."""
    total = 0
    for place, char in enumerate(reversed(digits)):
        value = int(char) * (2 if place % 2 == 0 else 1)
        total += value - 9 if value > 9 else value
    return str(-total % 10)


class Planter:
    """Draws values; every one is different from all before."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(f"plant/{seed}")  # noqa: S311 - reproducible, not secret
        self._seen: set[str] = set()

    def one(self, kind: str | None = None) -> Secret:
        """Return a value of a kind (or of any)."""
        kind = kind or self.draw.choice(KINDS)
        make, sentences, key = _MAKERS[kind]
        while (value := make(self)) in self._seen:
            pass
        self._seen.add(value)
        return Secret(kind, value, self.draw.choice(sentences).format(value), key)

    def digits(self, count: int) -> str:
        """Return random digits, the first not 0."""
        return str(self.draw.randrange(10 ** (count - 1), 10**count))

    def letters(self, count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
        """Return random characters with a digit among them."""
        out = [self.draw.choice(alphabet) for _ in range(count)]
        out[self.draw.randrange(1, count)] = self.draw.choice("23456789")
        return "".join(out)


def _name(p: Planter) -> str:
    return f"{p.draw.choice(_FIRST)} {p.draw.choice(_LAST)}"


def _email(p: Planter) -> str:
    first, last = _name(p).lower().split()
    host = p.draw.choice(("example.com", "mail.example.org", "corp.example.net"))
    return f"{first}{p.draw.choice('._-')}{last}{p.digits(3)}@{host}"


def _phone(p: Planter) -> str:
    area, line = p.draw.choice(("212", "415", "305", "312")), f"{p.draw.randrange(100, 200):04d}"
    shapes = (f"+1 {area} 555 {line}", f"({area}) 555-{line}", f"{area}-555-{line}")
    return p.draw.choice(
        (*shapes, f"+44 20 7946 0{p.digits(3)}", f"+33 1 99 00 {p.digits(2)} {p.digits(2)}")
    )


def _card(p: Planter) -> str:
    prefix, length = p.draw.choice((("411111", 16), ("555555", 16), ("378282", 15), ("601111", 16)))
    body = prefix + p.digits(length - 7)
    body += luhn_digit(body)
    if p.draw.random() < 0.5 or length == 15:
        return body
    return p.draw.choice(" -").join(body[at : at + 4] for at in range(0, 16, 4))


def _iban(p: Planter) -> str:
    country, length = p.draw.choice((("DE", 18), ("FR", 23), ("NL", 14), ("GB", 18)))
    letters = "ABNA" if country == "NL" else "BARC" if country == "GB" else ""
    body = letters + p.digits(length - len(letters))
    turned = "".join(c if c.isdigit() else str(ord(c) - 55) for c in body + country + "00")
    return f"{country}{98 - int(turned) % 97:02d}{body}"


def _ssn(p: Planter) -> str:
    return f"{p.draw.randrange(101, 600)}-{p.draw.randrange(10, 99)}-{p.digits(4)}"


def _ipv4(p: Planter) -> str:
    return ".".join(str(p.draw.randrange(11, 250)) for _ in range(4))


def _ipv6(p: Planter) -> str:
    return "2001:db8:" + ":".join(f"{p.draw.randrange(4096, 65536):x}" for _ in range(6))


def _mac(p: Planter) -> str:
    return ":".join(f"{p.draw.randrange(16, 256):02x}" for _ in range(6))


def _jwt(p: Planter) -> str:
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    body = base64.urlsafe_b64encode(f'{{"sub":"{p.digits(10)}"}}'.encode()).decode().rstrip("=")
    return f"{head}.{body}.{p.letters(43)}"


def _private_key(p: Planter) -> str:
    lines = "\n".join(p.letters(64) for _ in range(3))
    return f"-----BEGIN RSA PRIVATE KEY-----\n{lines}\n-----END RSA PRIVATE KEY-----"


def _bitcoin(p: Planter) -> str:
    alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    data = b"\x00" + bytes([p.draw.randrange(1, 256)]) + p.draw.randbytes(19)
    data += hashlib.sha256(hashlib.sha256(data).digest()).digest()[:4]
    number, out = int.from_bytes(data, "big"), ""
    while number:
        number, rest = divmod(number, 58)
        out = alphabet[rest] + out
    return "1" + out


def _address(p: Planter) -> str:
    street = p.draw.choice(("Maple Street", "Old Mill Road", "Harbour View Avenue", "Elm Drive"))
    return f"{p.digits(4)} {street} Apt {p.draw.randrange(2, 99)}"


def _birth(p: Planter) -> str:
    return f"{p.draw.randrange(1940, 2005)}-{p.draw.randrange(1, 13):02d}-{p.draw.randrange(1, 29):02d}"


_UPPER = string.ascii_uppercase + string.digits
_MAKERS: dict[str, tuple[Callable[[Planter], str], tuple[str, ...], str]] = {
    "person": (_name, ("My name is {}.", "Customer: {}", "Please call {} back."), "customer_name"),
    "email": (_email, ("Write to {} please.", "E-mail: {}", "it is {}"), "email"),
    "phone": (_phone, ("Call me at {}.", "Phone: {}", "my number is {}"), "phone"),
    "card": (_card, ("Charge card {} today.", "card number {}"), "card_number"),
    "iban": (_iban, ("Pay to {} by Friday.", "IBAN {}"), "iban"),
    "ssn": (_ssn, ("My SSN is {}.", "social security number {}"), "ssn"),
    "ipv4": (_ipv4, ("The server {} is down.", "from {}"), "ip"),
    "ipv6": (_ipv6, ("Ping {} again.", "addr {}"), "ip_address"),
    "mac": (_mac, ("The card has {}.", "MAC {}"), "mac"),
    "openai_key": (lambda p: "sk-proj-" + p.letters(40), ("use {}", "api_key={}"), "api_key"),
    "aws_key": (lambda p: "AKIA" + p.letters(16, _UPPER), ("key {} leaked", "id={}"), "aws_id"),
    "github_token": (lambda p: "ghp_" + p.letters(36), ("git uses {}", "token: {}"), "token"),
    "slack_token": (lambda p: f"xoxb-{p.digits(11)}-{p.letters(24)}", ("bot {}",), "bot"),
    "google_key": (lambda p: "AIza" + p.letters(35), ("maps {}", "key={}"), "maps"),
    "headrace_key": (lambda p: f"hr_{p.letters(8)}_{p.letters(32)}", ("via {}",), "proxy"),
    "jwt": (_jwt, ("Bearer {}", "session {}"), "session"),
    "private_key": (_private_key, ("here it is:\n{}\nkeep it",), "pem"),
    "database_url": (
        lambda p: f"postgres://app:{p.letters(12)}@db{p.digits(3)}.internal:5432/shop",
        ("DATABASE_URL={}", "connect to {} now"),
        "dsn",
    ),
    "url_login": (
        lambda p: f"robot:{p.letters(14)}",
        ("https://{}@git.example.com/x.git",),
        "remote",
    ),
    "password": (lambda p: p.letters(12) + "!", ("password: {}", 'DB_PASSWORD="{}"'), "password"),
    "bitcoin": (_bitcoin, ("send to {}", "wallet {}"), "wallet"),
    "passport": (lambda p: p.digits(9), ("My passport is {}.", "passport {}"), "passport_number"),
    "address": (_address, ("I live at {}.", "ship to {} now"), "address"),
    "birth": (_birth, ("DOB: {}", "I was born on {}."), "date_of_birth"),
    "medical_record": (lambda p: p.digits(8), ("MRN: {}", "medical record number {}"), "mrn"),
    "bank_account": (
        lambda p: p.digits(10),
        ("account number {}", "my bank account is {}"),
        "account_number",
    ),
}
KINDS = tuple(_MAKERS)


def _json(secret: Secret) -> dict[str, object]:
    value = secret.sentence if secret.kind == "url_login" else secret.value
    return {"record": {secret.key: value, "quantity": 3}, "ok": True}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


PLACES: dict[str, Callable[[Secret], Message]] = {
    "user text": lambda s: Message("user", (TextPart(f"Hello.\n{s.sentence}\nThanks for 12 lamps."),)),
    "system prompt": lambda s: Message("system", (TextPart(f"You help a shop. {s.sentence}"),)),
    "reasoning": lambda s: Message("assistant", (ReasoningPart(f"The user said: {s.sentence}"),)),
    "tool arguments": lambda s: Message("assistant", (ToolCallPart("call_1", "look_up", _json(s)),)),  # type: ignore[arg-type]
    "arguments as text": lambda s: Message("assistant", (ToolCallPart("call_1", "look_up", json.dumps(_json(s))),)),
    "tool result JSON in text": lambda s: Message("tool", (ToolResultPart("call_1", json.dumps(_json(s))),)),
    "tool result blocks": lambda s: Message("tool", (ToolResultPart("call_1", [{"type": "text", "text": s.sentence}]),)),
    "JSON in JSON in text": lambda s: Message("tool", (ToolResultPart("call_1", json.dumps({"body": json.dumps(_json(s)), "n": 1})),)),
    "list of lists": lambda s: Message("tool", (ToolResultPart("call_1", {"rows": [[1, "a"], [2, s.sentence]]}),)),
    "base64": lambda s: Message("user", (TextPart(f"attached: {_base64('Note. ' + s.sentence)} end"),)),
    "data URL": lambda s: Message("user", (TextPart(f"data:text/plain;base64,{_base64(s.sentence)}"),)),
    "opaque part": lambda s: Message("user", (OpaquePart({"type": "x", "note": s.sentence}),)),
    "message name": lambda s: Message("user", (TextPart(s.sentence), TextPart("hi")), None),
    "code block": lambda s: Message("assistant", (TextPart(f"```\n# {s.sentence}\nprint(1)\n```"),)),
    "log line": lambda s: Message("tool", (ToolResultPart("call_1", f"2024-05-01T10:00:00Z INFO n=12 {s.sentence}"),)),
    "zero width": lambda s: Message("user", (TextPart("\u200b" + s.sentence.replace("-", "\u2011"),),)),
}  # fmt: skip


def planted(seed: int, count: int) -> Iterator[tuple[Secret, str, Message]]:
    """Yield values, the place and the message that each is in: every kind in every place in turn."""
    planter = Planter(seed)
    places = tuple(PLACES)
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        place = places[(number // len(KINDS)) % len(places)]
        secret = planter.one(kind)
        yield secret, place, PLACES[place](secret)


def spellings(secret: Secret) -> Iterator[bytes]:
    """Yield the byte forms in which a value could still be found."""
    from urllib.parse import quote

    raw = secret.value.encode()
    yield raw
    yield json.dumps(secret.value)[1:-1].encode()
    yield json.dumps(json.dumps(secret.value)[1:-1])[1:-1].encode()
    yield quote(secret.value, safe="").encode()
    yield secret.value.replace("-", "\u2011").encode()
    for skip in range(3):
        encoded = base64.b64encode(b"x" * skip + raw)
        yield encoded[4 if skip else 0 : -4]
