"""Base64 and hexadecimal digits within a text: opened, looked into, written again as they were."""

import base64
import bz2
import gzip
import json
import lzma
import random
import zlib

import pytest

from governance.redact.embedded import blobs, opened
from tests.governance.redaction_support import SCOPE, made, text

NOTE = "Please write to jane.doe@example.com about the invoice, or call +1 212 555 0123. "


def wrapped(data: bytes, width: int, between: str) -> str:
    digits = base64.b64encode(data).decode()
    return between.join(digits[at : at + width] for at in range(0, len(digits), width))


@pytest.mark.parametrize("between", ["\n", "\r\n", "\\n", "\n   "])
@pytest.mark.parametrize("width", [60, 64, 76])
def test_a_value_over_the_end_of_a_line_is_found(width: int, between: str) -> None:
    for shift in range(0, 60, 7):
        before = f"attached:\n{wrapped(('x' * shift + ' ' + NOTE * 2).encode(), width, between)}"
        after = text(before)
        inner = after.removeprefix("attached:\n")
        lines = inner.split(between)
        assert {len(line) for line in lines[:-1]} == {width}
        clean = base64.b64decode("".join(lines) + "==").decode()
        assert "jane.doe" not in clean
        assert "555 0123" not in clean
        assert "about the invoice" in clean


def test_the_line_behind_a_blob_is_no_part_of_it() -> None:
    digits = wrapped(NOTE.encode()[:57], 76, "\n")
    assert len(digits) == 76
    for word in ("end", "regards", "This is all"):
        after = text(f"{digits}\n{word}")
        assert after.endswith(f"\n{word}")
        assert b"jane.doe" not in base64.b64decode(after.split("\n")[0] + "==")


def test_lines_that_are_texts_of_their_own_are_each_looked_into() -> None:
    lines = [f"customer {n:02d} is jo{n:02d}.doe@example.com, paid." for n in range(3)]
    digits = [base64.b64encode(line.encode()).decode() for line in lines]
    assert len(set(map(len, digits))) == 1
    for line in text("\n".join(digits)).split("\n"):
        assert b".doe@" not in base64.b64decode(line + "==")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16-le"])
def test_encodings(encoding: str) -> None:
    said = "Grüße von jane.doe@example.com, bis bald."
    digits = base64.b64encode(said.encode(encoding)).decode()
    clean = base64.b64decode(text(f"see {digits} there").split()[1] + "==").decode(encoding)
    assert clean.startswith("Grüße von <EMAIL_ADDRESS")


@pytest.mark.parametrize("prefix", ["", "0x"])
@pytest.mark.parametrize("upper", [False, True])
def test_hexadecimal_digits(prefix: str, upper: bool) -> None:
    digits = NOTE.encode().hex()
    digits = prefix + (digits.upper() if upper else digits)
    after = text(f"dump {digits} end").split()[1]
    assert after.startswith(prefix)
    assert after.removeprefix(prefix).isupper() is upper
    clean = bytes.fromhex(after.removeprefix(prefix)).decode()
    assert clean.startswith("Please write to <EMAIL_ADDRESS")


@pytest.mark.parametrize(
    "packed",
    [gzip.compress(NOTE.encode(), mtime=0), zlib.compress(NOTE.encode()), bz2.compress(NOTE.encode()),
     lzma.compress(NOTE.encode()), b"\x89PNG\r\n\x1a\n" + bytes(40), b"\xff\xd8\xff\xe0" + bytes(40)],
)  # fmt: skip
def test_what_is_compressed_or_drawn_cannot_be_looked_into(packed: bytes) -> None:
    digits = base64.b64encode(packed).decode()
    assert text(f"body {digits} end") == "body <OPAQUE_DATA> end"
    kept = made(opaque_data="keep").redact_text(digits, scope=SCOPE)
    assert kept.text == digits


def test_digests_tokens_and_words_stay() -> None:
    draw = random.Random(1)  # noqa: S311 - reproducible, not secret
    for _ in range(300):
        data = draw.randbytes(draw.randrange(9, 40))
        for digits in (base64.b64encode(data).decode(), data.hex()):
            content = opened(digits, is_data=False)
            assert content is None or content.text is not None
    prose = "internationalisation and\nresponsibilities\n9fceb02d0ae598e95dc970b74767f19372d61af8"
    assert text(prose) == prose
    assert [blob.lines for blob in blobs("short words alone")] == []


def test_json_with_wrapped_digits_stays_json() -> None:
    before = json.dumps({"data": base64.encodebytes((NOTE * 3).encode()).decode(), "n": 1})
    after = json.loads(text(before))
    assert after["n"] == 1
    assert b"jane.doe" not in base64.decodebytes(after["data"].encode() + b"==")
