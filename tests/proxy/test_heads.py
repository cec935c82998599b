"""Heads of requests: sizes, wishes, keys and hosts are read as clients write them."""

import base64

import pytest

from proxy.heads import capture_wish, content_length, host_of, proxy_key


def test_of_several_wishes_the_strictest_counts() -> None:
    less, none = (b"Helicone-Omit-Request", b"true"), (b"X-Headrace-Capture", b" NONE ")
    assert capture_wish((less,)) == "metadata"
    assert capture_wish((none, less)) == capture_wish((less, none)) == "none"
    assert capture_wish(((b"x" * 18, b"none"),)) is None


@pytest.mark.parametrize("value", [b"off", b"false", b"no-body", b"", b"metadata, none", b"\xff"])
def test_a_wish_that_nobody_knows_keeps_nothing(value: bytes) -> None:
    """Who sends the header wants less than everything; a slip must not keep what was to go."""
    assert capture_wish(((b"X-Headrace-Capture", value),)) == "none"
    assert capture_wish(((b"x-headrace-capture", b"Full"),)) is None
    assert capture_wish(((b"cf-aig-collect-log", b"true"),)) is None


def test_a_length_ends_a_body_only_without_chunks() -> None:
    assert content_length(((b"Content-Length", b"12"),)) == 12
    assert content_length(((b"content-length", b"12"), (b"Transfer-Encoding", b"chunked"))) == -1
    assert content_length(((b"content-length", b"-1"),)) == -1


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (b"Bearer hr_a_b", "hr_a_b"),
        (b"Basic " + base64.b64encode(b"headrace:hr_a_b"), "hr_a_b"),
        (b"basic " + base64.b64encode(b"hr_a_b:"), "hr_a_b"),
        (b"Basic not base64", None),
        (b"Basic \xff", None),
        (b"Basic " + base64.b64encode(b"\xff:\xff"), None),
        (b"Digest x", None),
        (b"", None),
    ],
)
def test_the_key_of_a_proxys_client(value: bytes, key: str | None) -> None:
    assert proxy_key(value) == key


@pytest.mark.parametrize(
    ("authority", "host"),
    [("API.example:443", "api.example"), ("[::1]:80", "::1"), ("x", "x"), ("", None), (None, None)],
)
def test_the_host_of_an_authority(authority: str | None, host: str | None) -> None:
    assert host_of(authority) == host
