"""Texts that are made to cost time: by hand, and drawn from what patterns look for."""

import base64
import json
import random
from collections.abc import Callable, Iterator

from trajectory.canonical import JsonValue


def _nested(levels: int, text: str) -> str:
    """Return JSON in JSON in JSON, with texts beside it on each level."""
    for level in range(levels):
        text = json.dumps({"note": f"level {level} of Zorv Kelbin", "body": text})
    return text


def _wrapped(levels: int, text: str) -> str:
    """Return base64 of base64."""
    for _ in range(levels):
        text = base64.b64encode(text.encode()).decode()
    return text


def _letters(number: int) -> str:
    return chr(97 + number % 26) + chr(97 + number // 26 % 26)


HOSTILE = {
    "dots": "." * 8000,
    "a.": "a." * 8000,
    "at signs": "a@" * 8000,
    "digits": "1" * 16000,
    "spaced digits": "1 " * 8000,
    "dashed digits": "12-" * 6000,
    "colons": ":" * 8000,
    "hex colons": "ab:" * 6000,
    "capitals": "Aa " * 6000,
    "quotes": '"' * 8000,
    "brackets": "[" * 8000,
    "backslashes": "\\" * 8000,
    "percent": "%41" * 4000,
    "key": "password" * 2000,
    "key=": "password=" * 1800,
    "slashes": "://" * 5000,
    "base64": "QUJDRA" * 2500,
    "pem": "-----BEGIN PRIVATE KEY-----" * 600,
    "newlines": "\n" * 12000,
    "regards": "Regards,\n" * 1500,
    "jwt": "eyJaaaaaaaa." * 1300,
    "phones": "+1 212 555 " * 1300,
    "mixed": "Aa1-.@:/ " * 1700,
    "unicode": "\u0660\u200b" * 6000,
    "unknown names": "".join(f"Zo{_letters(n)}rv Kelb{n % 7} " for n in range(1600)),
    "one line names": " ".join(f"Zo{_letters(n)}rv" for n in range(3000)),
    "honorifics": "Dear Mr. Zorv Kelbin, " * 800,
    "given names": "Maria Anna Peter John " * 800,
    "mailboxes": "".join(f"jo{n}.doe@mail{n}.example.com, " for n in range(600)),
    "addresses": "12 Old Mill Road, Springfield, IL 62701\n" * 400,
    "flats": "Apt 4 " * 3000,
    "cookies": "cookie: a=b; " * 1200,
    "user info": "https://a:b@" * 1300,
    "html": "&#65;&amp;&lt;" * 1100,
    "escapes": "\\u0041\\x41\\n" * 1100,
    "homoglyphs": "\u0430\u0435\u043e\u0440 " * 2400,
    "zero width": "a\u200b" * 6000,
    "wide digits": "\uff11\uff12\uff13-" * 2500,
    "one token": "aB3" * 5300,
    "one word": "A" + "a" * 16000,
    "nested lists": "[" * 190 + "1" + "]" * 190,
    "nested JSON": _nested(6, '{"customer": {"name": "Zorv Kelbin", "phone": "212 555 0100"}}'),
    "small strings": json.dumps([f"v{n}" for n in range(3000)]),
    "small objects": json.dumps([{"name": "Zo", "id": n, "ok": True} for n in range(700)]),
    "base64 in base64": _wrapped(5, "my name is Zorv Kelbin, call 212 555 0100 " * 20),
    "base64 words": " ".join(
        base64.b64encode(f"Zorv {n} Kelbin".encode()).decode() for n in range(700)
    ),
    "base64 names": " ".join(
        base64.b64encode(f"Zo{_letters(n)}rv {_letters(n // 7)} Kelb".encode()).decode()
        for n in range(700)
    ),
    "list of names": json.dumps([f"Zo{_letters(n)}rv {_letters(n // 7)}" for n in range(1200)]),
    "data URLs": "data:text/plain;base64,QWxhIG1hIGtvdGE= " * 380,
    "hex": "0123456789abcdef" * 1000,
    "uuids": "123e4567-e89b-12d3-a456-426614174000 " * 430,
    "floats": "0.123456789, -1.5e-07, " * 700,
    "epochs": "1700000000 1700000001 " * 720,
    "cards that are none": "4111 1111 1111 1112 " * 800,
    "ibans that are none": "DE00 1234 5678 9012 3456 78 " * 570,
    "months": "Jan Feb Mar May Jun " * 800,
    "pairs of digits": "12 " * 4000,
    "countries": "".join(f"+{n} 12 345 678 " for n in range(1, 999)),
    "closings": "Best regards,\nZorv\n" * 800,
    "quoted capitals": "V'V''VV'V" * 1500,
    "names in pairs": "".join(f"Zo{_letters(n)} Ke{_letters(n * 7)}, " for n in range(1000)),
    "addresses of machines": "".join(f"10.{n % 200}.{n // 200}.9 " for n in range(1200)),
    "speakers": '\nZorv: "Hi" said Kelb' * 750,
    "labels": "DOB: Apt 4 " * 1400,
    "rules of tables": "\n|" * 6000,
    "heads of tables": "NAME   DOB\n" * 1400,
    "rows of tables": "dob,n\n" + "".join(f"{n},{_letters(n)}\n" for n in range(2000)),
    "quotes in SQL": "insert into t(dob) values (" + "'" * 12000,
    "escaped quotes in SQL": "insert into t(dob) values (" + r"(\'\'\'\'\'\'\'\')" * 700 + ")",
    "copies in SQL": "copy t (dob) from stdin\n" * 600,
}
_PIECES = (
    ".", "@", "-", ":", "/", "1", "12 ", "a", "Aa ", "Zorv ", "\n", "\t", '"', "'", "\\", "%41", "&#65;",
    "\\u0041", "(", ")", "{", "}", "[", "]", ",", "=", "+1 ", "555-", "key=", "password: ", "token ",
    "Mr. ", "Dear ", "my name is ", "Regards,\n", "St ", "Apt 4 ", "QUJD", "eyJ", "sk-", "0x", "ab:",
    "://", "www.", "\u200b", "\u0430", "\uff11", "\u6c49", "Maria ", "born ", "call ", "IBAN ", "DE12",
)  # fmt: skip


_MORE_PIECES = (
    "AKIA", "ghp_", "-----BEGIN ", "PRIVATE KEY-----", "%3D", "&lt;", "\u00e9", "\u202e", "::", "//",
    "192.168.", "2001:db8:", "a@b.co ", "4111 ", "12/31/", "SSN ", "born on ", "DOB: ", "Jan ",
    "P.O. Box ", "Dr. ", "I am ", "From: ", "name: ", "Name=", "<a@", '"name": "', '\\"', "<PERSON_1> ",
    "****", "<", "&", "A", "Zo ", "Li ", "O'Neil ", "Jean-Luc ", "van ", "Smith, ", "Maria: ", "said ",
    "  ", "postgres://u:p@", "self.bot", "x=", "f(", "age 4", "zip ", "from Paris ", "QUJDRA==", "\u0456",
)  # fmt: skip


def _beside(piece: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield a piece beside ever new words, in the ways in which lists are written."""
    yield "in a list", json.dumps([piece + name for name in names])
    yield "in objects", json.dumps([{"k": piece + name} for name in names])
    yield "as keys", json.dumps({piece + name: name.title() for name in names})
    yield "with words", "".join(f"{piece}{name} " for name in names)
    yield "with names", "".join(f"{piece}{name.title()} " for name in names)
    yield "with shouts", "".join(f"{piece}{name.upper()} " for name in names)
    yield "on lines", "".join(f"{piece}{name.title()}\n" for name in names)
    yield "glued", "".join(f"{piece}{name.title()}" for name in names)
    yield "with numbers", "".join(f"{piece}{at} " for at in range(len(names)))


def tried(seed: int, pairs: int, size: int = 6_000) -> Iterator[tuple[str, str]]:
    """Yield what somebody would try, with names: each piece alone, beside words, and some in pairs.

    Args:
        seed: decides which pairs.
        pairs: how many of all pairs, each over and over.
        size: about how many characters a text has.
    """
    pieces = _PIECES + _MORE_PIECES
    for piece in pieces:
        yield f"{piece!r} alone", piece * (size // len(piece))
        names = [_letters(n) + chr(97 + n // 676) for n in range(size // (len(piece) + 4))]
        for how, text in _beside(piece, names):
            yield f"{piece!r} {how}", text
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    for _ in range(pairs):
        pair = "".join(draw.sample(pieces, 2))
        yield f"{pair!r} over and over", pair * (size // len(pair))


def _compact(make: Callable[[str, int], JsonValue], count: int) -> str:
    """Return a list of what is made of ever new words and their numbers, without a space between."""
    values = [make(_letters(n) + chr(97 + n // 676), n) for n in range(count)]
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def _as_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def dense(count: int = 600) -> Iterator[tuple[str, str]]:
    """Yield what costs most by the byte, with names: JSON of short values that all differ.

    Args:
        count: how many values a text has.
    """
    shapes: dict[str, Callable[[str, int], JsonValue]] = {
        "surname first": lambda word, _: f"Li {word}",
        "two names": lambda word, _: f"Li {word.title()}",
        "one name": lambda word, _: f"Zo{word}",
        "hyphened names": lambda word, _: f"Ann-{word.title()}",
        "accented names": lambda word, _: f"\u00c9{word}",
        "names of two scripts": lambda word, _: f"Z\u043e{word}",
        "bracketed names": lambda word, _: f"({word.title()}).",
        "companies": lambda word, _: f"{word.title()} Inc",
        "names with numbers": lambda word, n: f"Li {word[:2]}{n % 10}",
        "names among marks": lambda word, _: f"Ann,{word.upper()} Ann",
        "escaped names": lambda word, _: f"=Ann,{word.upper()}%41 Ann",
        "smileys": lambda word, _: f"::)Zo{word}",
        "base64 of names among marks": lambda word, _: _as_base64(f":Ann,{word.upper()} Ann"),
        "names in objects": lambda word, _: {f"Li {word}": f"Zo{word[:2]}"},
        "base64": lambda word, _: _as_base64(f"Zo{word} Kel"),
        "base64 of JSON": lambda word, _: _as_base64(json.dumps([f"Zo{word}"])),
        "JSON in JSON": lambda word, _: json.dumps(f"Zo{word}"),
        "card numbers": lambda _, n: 4111000000000000 + n * 7919,
        "telephone numbers": lambda _, n: {"tel": 2125550000 + n},
        "telephone numbers as texts": lambda _, n: f"212-555-{n:04d}",
        "machines": lambda _, n: f"9.{n % 250}.{n // 250}.1",
        "dates": lambda _, n: f"{1 + n % 12}/{1 + n // 12 % 28}/{n // 336 % 90 + 10}",
        "mailboxes": lambda word, _: f"{word}@b.co",
    }
    for name, make in shapes.items():
        yield f"{name} in compact JSON", _compact(make, count)


def drawn(seed: int, count: int, size: int = 12_000) -> Iterator[tuple[str, str]]:
    """Yield texts of few pieces each, many times over, with their names."""
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    for number in range(count):
        unit = "".join(draw.choices(_PIECES, k=draw.randrange(1, 7)))
        shape = draw.randrange(4)
        if shape == 0:
            text = unit * (size // len(unit))
        elif shape == 1:
            chosen = draw.sample(_PIECES, 4)
            text = "".join(draw.choices(chosen, k=size // 3))
        elif shape == 2:
            text = "".join(draw.choices(_PIECES, k=size // 3))
        else:
            text = json.dumps([unit * draw.randrange(1, 9) for _ in range(size // (5 * len(unit)))])
        yield f"drawn {seed}/{number}", text
