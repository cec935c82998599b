"""Each page in Chromium: axe-core finds nothing in the light and in the dark, and a phone needs not scroll sideways."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from headrace.console.pages import PAGES
from tests.headrace.console.conftest import PLACES, held_call
from tests.interop.browser.conftest import Installation, violations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

type SignIn = Callable[..., Page]
_PHONE = {"width": 360, "height": 780}
_VIEWS = (
    "/trajectories/t00010?view=steps",
    "/compare?one=t00010&other=t00011",
    "/sql?query=SELECT+tenant_id,+count(*)+AS+steps+FROM+steps+GROUP+BY+tenant_id",
    "/review?queue=lamps",
    "/review?focus=1",
    "/lineage?of=t00010",
    "/lineage?of=shop@0001",
    "/nosuch",
)
"""What a path alone does not show, and the page of an error."""
_LOOKS_AGAIN = "/trials/"
"""Work that goes on: its page loads again every few seconds, unless its reader stops it."""


def places(installation: Installation) -> list[str]:
    """Return each page of the console, with something on it."""
    held = held_call(installation.console.running, order="A-18")
    known = {**PLACES, "{approval_id}": held, "{trajectory_id}": "t00010"}
    found = []
    for page in PAGES:
        path = page.path
        for part, value in known.items():
            path = path.replace(part, value)
        found.append(path)
    assert not any("{" in one for one in found), "PLACES names what stands for each part of a path"
    return [*found, *_VIEWS]


def test_axe_finds_nothing(installation: Installation, signed_in: SignIn) -> None:
    page = signed_in("adam")
    page.goto("about:blank")
    page.set_content("<img src=x><p style='color:#eee;background:#fff'>pale</p>")
    assert {"image-alt", "color-contrast"} <= {rule for rule, _ in violations(page, "light")}
    found = {}
    for place in places(installation):
        answer = page.goto(f"{place}?still=1" if place.startswith(_LOOKS_AGAIN) else place)
        assert answer is not None
        assert answer.ok == (place != "/nosuch"), place
        for scheme in ("light", "dark"):
            if wrong := violations(page, scheme):
                found[f"{place} {scheme}"] = wrong
    page.context.clear_cookies()
    page.goto("/sign-in")
    found |= {
        f"/sign-in {one}": wrong for one in ("light", "dark") if (wrong := violations(page, one))
    }
    assert found == {}


def test_a_phone_shows_each_page_without_scrolling_sideways(
    installation: Installation, signed_in: SignIn, tmp_path: Path
) -> None:
    page = signed_in("adam", viewport=_PHONE, is_mobile=True, has_touch=True)
    wide = {}
    for place in places(installation):
        page.goto(place)
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        width = page.evaluate("document.scrollingElement.scrollWidth")
        if width > _PHONE["width"]:
            wide[place] = width
    assert wide == {}
