"""Base64 and hexadecimal digits within a text: opened, looked into, and gone where something was found."""

import base64
import bz2
import gzip
import json
import lzma
import random
import zlib

import pytest

from governance.redact.encoded_text import decoded, encoded_in
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
        assert after == "attached:\n<ENCODED_DATA>"


def test_lines_that_say_nothing_of_anybody_stay() -> None:
    for between in ("\n", "\r\n", "\\n"):
        digits = wrapped(b"The invoice of May was paid on time, thanks to all. " * 3, 76, between)
        assert text(f"attached:\n{digits}\nend") == f"attached:\n{digits}\nend"


def test_the_line_behind_a_blob_is_no_part_of_it() -> None:
    digits = wrapped(NOTE.encode()[:57], 76, "\n")
    assert len(digits) == 76
    for word in ("end", "regards", "This is all"):
        after = text(f"{digits}\n{word}")
        assert after == f"<ENCODED_DATA>\n{word}"


def test_lines_that_are_texts_of_their_own_are_each_looked_into() -> None:
    lines = [f"customer {n:02d} is jo{n:02d}.doe@example.com, paid." for n in range(3)]
    digits = [base64.b64encode(line.encode()).decode() for line in lines]
    assert len(set(map(len, digits))) == 1
    assert text("\n".join(digits)) == "<ENCODED_DATA>"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16-le"])
def test_encodings(encoding: str) -> None:
    said = "Grüße von jane.doe@example.com, bis bald."
    digits = base64.b64encode(said.encode(encoding)).decode()
    assert text(f"see {digits} there") == "see <ENCODED_DATA> there"
    digits = base64.b64encode("Grüße von uns allen, bis bald.".encode(encoding)).decode()
    assert text(f"see {digits} there") == f"see {digits} there"


@pytest.mark.parametrize("prefix", ["", "0x"])
@pytest.mark.parametrize("upper", [False, True])
def test_hexadecimal_digits(prefix: str, upper: bool) -> None:
    digits = NOTE.encode().hex()
    digits = prefix + (digits.upper() if upper else digits)
    assert text(f"dump {digits} end") == "dump <ENCODED_DATA> end"


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
            assert not decoded(digits, is_data=False)[1]
    prose = "internationalisation and\nresponsibilities\n9fceb02d0ae598e95dc970b74767f19372d61af8"
    assert text(prose) == prose
    assert encoded_in("short words alone") == []


def test_json_with_wrapped_digits_stays_json() -> None:
    before = json.dumps({"data": base64.encodebytes((NOTE * 3).encode()).decode(), "n": 1})
    after = json.loads(text(before))
    assert after["n"] == 1
    assert after["data"].strip() == "<ENCODED_DATA>"


def test_what_the_digits_say_goes_from_other_texts_and_is_reported_under_its_type() -> None:
    digits = base64.b64encode(b"My name is Leonie Hartwig, call me.").decode()
    done = made().redact_json([f"file {digits} end", "Hartwig is here"], scope=SCOPE)
    assert "Hartwig" not in json.dumps(done.value)
    assert done.report.counts == {"PERSON": 2}
    assert [place.path for place in done.report.places] == ["/0/base64", "/1"]
    assert len(done.subjects) == 1


def test_a_second_time_changes_nothing() -> None:
    once = text(f"file {base64.b64encode(NOTE.encode()).decode()} end, jane.doe@example.com")
    assert text(once) == once


def test_an_image_stays_usable_where_policy_keeps_it() -> None:
    image = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 3
    url = f"data:image/png;base64,{base64.b64encode(image).decode()}"
    said = f"see {url} from jane.doe@example.com"
    kept = made(opaque_data="keep").redact_text(said, scope=SCOPE).text
    assert url in kept
    assert "jane.doe" not in kept
    assert url not in text(said)
