"""Content encodings: whole, cut short, stacked, broken and hostile bodies."""

import gzip
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from trajectory.dialects.content_encoding import DecodedBody, decode_body

TEXT = b"a body that repeats itself, " * 200
ENCODED = {
    "gzip": gzip.compress(TEXT),
    "x-gzip": gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:]),
    "deflate": zlib.compress(TEXT),
    "br": brotli.compress(TEXT),
    "zstd": zstandard.compress(TEXT),
    "identity": TEXT,
    " , GZip": gzip.compress(TEXT),
    "gzip, br": brotli.compress(gzip.compress(TEXT)),
}


@pytest.mark.parametrize("name", ENCODED)
def test_whole_bodies(name: str) -> None:
    assert decode_body(ENCODED[name], name) == DecodedBody(TEXT)


def test_deflate_without_its_wrapper() -> None:
    raw = zlib.compressobj(wbits=-15)
    body = raw.compress(TEXT) + raw.flush()
    assert decode_body(body, "deflate").data == TEXT


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_a_cut_body_gives_what_came_until_then(name: str) -> None:
    body = ENCODED[name]
    for length in range(len(body)):
        decoded = decode_body(body[:length], name)
        assert TEXT.startswith(decoded.data)
        assert decoded.problem is None


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_a_bomb_is_given_up(name: str) -> None:
    zeros = bytes(4 * 1024 * 1024)
    bombs = {
        "gzip": gzip.compress(zeros),
        "deflate": zlib.compress(zeros),
        "br": brotli.compress(zeros),
        "zstd": zstandard.compress(zeros),
    }
    decoded = decode_body(bombs[name], name, limit=1024 * 1024)
    assert decoded == DecodedBody(b"", problem="encoding:too-large")


def test_unknown_and_too_many_encodings() -> None:
    assert decode_body(b"x", "lzma").problem == "encoding:unknown"
    assert decode_body(b"x", "gzip, gzip, gzip, gzip, gzip").problem == "encoding:too-many"


@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate", "br", "zstd"]))
def test_any_bytes_are_answered(body: bytes, name: str) -> None:
    decoded = decode_body(body, name)
    assert decoded.problem in (None, "encoding:broken")


def test_a_body_of_countless_members_is_given_up_soon() -> None:
    assert decode_body(gzip.compress(b"") * 20_000, "gzip").problem == "encoding:too-many"
    blocks = decode_body(gzip.compress(b"x" * 6_000) * 1000, "gzip")
    assert blocks.data == b"x" * 6_000_000
