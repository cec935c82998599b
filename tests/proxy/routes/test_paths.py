"""Paths: what leads up is seen however it is written, and what only looks like it passes."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.routes.paths import climbs, lies_below

SEPARATORS = ["/", "\\", "%2f", "%2F", "%5c", "%252f", "%25255C", "%c0%af", "%C1%9C"]
SEPARATORS += ["%e0%80%af", "%E0%81%9C", "%ef%bc%8f", "%ef%bc%bc", "%u002f", "%U005C", "%uff0f"]
SEPARATORS += ["%c0%2f", "%c1%5c", "\N{FULLWIDTH SOLIDUS}"]
UPWARDS = ["..", "%2e%2e", ".%2E", "%252e.", "..;x=1", "..%00", "..%20", ".%09.", "%c0%ae."]
UPWARDS += ["..#", "..#x", "..%23x", "..%3fx=1", "..%00x", "..%00;x", ".%00.", "..%3b"]
UPWARDS += ["%e0%80%ae.", "%ef%bc%8e.", "%u002e%u002E", "%uff0e.", "%25u002e."]
UPWARDS += ["%e2%80%a5", "%E2%80%A4.", "\N{TWO DOT LEADER}", "%c0%2e."]


@pytest.mark.parametrize("upwards", UPWARDS)
@pytest.mark.parametrize("separator", SEPARATORS)
def test_what_leads_up_is_seen_behind_any_separator(separator: str, upwards: str) -> None:
    for path in (
        f"/x{separator}{upwards}{separator}admin",
        f"/{separator}{upwards}",
        f"/{upwards}{separator}admin",
        f"/x{separator}{upwards}",
    ):
        assert climbs(path.encode())


@pytest.mark.parametrize(
    "path",
    [
        b"/",
        b"",
        b"/v1/chat/completions",
        b"/..x/a..b/...",
        b"/%2e/.",
        b"/v1/files/50%25%20off..pdf",
        b"/v1/models/a%2Fb",
        b"/models/gemini:generateContent",
        b"/a..#/b",
        b"/%u00e9/%ud800/%ef%bc%8e",
        "/v1/Grüße/%C3%BC".encode(),
        "/v1/…/%e2%80%a6/٣½".encode(),
    ],
)
def test_other_paths_lead_nowhere_else(path: bytes) -> None:
    assert not climbs(path)


def test_a_path_that_goes_on_changing_as_it_is_decoded_leads_anywhere() -> None:
    assert climbs(b"/a%252525252e")
    assert climbs(b"/a%" + b"25" * 500_000 + b"2e")


@given(
    st.lists(st.sampled_from(["a", "..", ".", "", "b.c", "..d"]), max_size=6),
    st.integers(0, 3),
    st.booleans(),
)
def test_any_coding_of_a_path_is_told_by_its_segments(
    segments: list[str], times: int, back: bool
) -> None:
    path = ("\\" if back else "/").join(["", *segments])
    for _ in range(times):
        path = quote(path, safe="").replace(".", "%2E")
    assert climbs(path.encode()) is (".." in segments)


def test_below_a_base_is_the_base_itself_and_what_leads_on() -> None:
    for path in (b"/team", b"/team/", b"/team/v1?x=/../", b"/team?x"):
        assert lies_below(path, b"/team")
    for path in (b"/teams", b"/tea", b"/", b"*", b"/team/../admin", b"/team%2fv1", b"//team/v1"):
        assert not lies_below(path, b"/team")
    assert lies_below(b"/any/../where", b"")
