"""The forms in which a value may lie in a file: as it is, escaped, encoded, shifted."""

import base64
import html
import json
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, quote_plus

SHORTEST_ENCODED = 6
"""Values of fewer bytes are sought as they are only; encoded they would match by chance."""


@dataclass(frozen=True, slots=True)
class Form:
    """One byte sequence that stands for a value."""

    name: str
    """raw | json | json_ascii | json_twice | url | html | utf16 | hex | base64"""
    data: bytes


def forms_of(value: str) -> Iterator[Form]:
    """Yield every form of ``value``, each byte sequence once, the plainest name first."""
    seen: set[bytes] = set()
    for form in _all_forms(value):
        if form.data and form.data not in seen:
            seen.add(form.data)
            yield form


def _all_forms(value: str) -> Iterator[Form]:
    raw = value.encode("utf-8", "surrogatepass")
    yield Form("raw", raw)
    for ascii_only, name in ((False, "json"), (True, "json_ascii")):
        once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        twice = json.dumps(once, ensure_ascii=ascii_only)[1:-1]
        yield from _json_cases(name, once)
        yield from _json_cases("json_twice", twice)
    if len(raw) < SHORTEST_ENCODED:
        return
    yield from _url(raw)
    yield Form("html", html.escape(value).encode("utf-8", "surrogatepass"))
    yield Form("html", "".join(f"&#{ord(c)};" if not c.isalnum() else c for c in value).encode())
    yield Form("utf16", value.encode("utf-16-le", "surrogatepass"))
    yield Form("utf16", value.encode("utf-16-be", "surrogatepass"))
    yield Form("hex", raw.hex().encode())
    yield Form("hex", raw.hex().upper().encode())
    yield from _base64(raw)


def _json_cases(name: str, text: str) -> Iterator[Form]:
    data = text.encode("utf-8", "surrogatepass")
    yield Form(name, data)
    yield Form(name, data.replace(b"/", b"\\/"))
    if b"\\u" in data:
        yield Form(name, _upper_escapes(data))


def _upper_escapes(data: bytes) -> bytes:
    head, *rest = data.split(b"\\u")
    return b"\\u".join([head, *(part[:4].upper() + part[4:] for part in rest)])


def _url(raw: bytes) -> Iterator[Form]:
    for safe in ("", "/", "/:@!$&'()*+,;=~"):
        for text in (quote(raw, safe=safe), quote_plus(raw, safe=safe)):
            yield Form("url", text.encode())
            lower = "".join(part.lower() if index else part for index, part in _escapes(text))
            yield Form("url", lower.encode())
    yield Form("url", b"".join(b"%%%02X" % byte for byte in raw))


def _escapes(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the text cut into escapes (True) and what stands between them (False)."""
    head, *rest = text.split("%")
    yield False, head
    for part in rest:
        yield True, "%" + part[:2]
        yield False, part[2:]


def _base64(raw: bytes) -> Iterator[Form]:
    """Yield what is certain of the value's base64 at each of the three alignments."""
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw)
        begin = (0, 2, 3)[shift]
        bits_end = (shift + len(raw)) * 8
        certain = encoded[begin : bits_end // 6]
        if len(certain) >= SHORTEST_ENCODED:
            yield Form("base64", certain)
            yield Form("base64", certain.replace(b"+", b"-").replace(b"/", b"_"))
