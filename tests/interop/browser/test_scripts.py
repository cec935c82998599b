"""What a page gains where scripts run, in Chromium; and that all of it goes without them."""

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

from headrace.services.progress_store import progress_of
from tests.headrace.console.conftest import held_call
from tests.interop.browser.conftest import Installation
from tests.interop.browser.test_accessibility import places
from tests.interop.browser.test_journeys import press_access_key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

type SignIn = Callable[..., Page]
_SCRIPTS = re.compile(r"\.js\b")
_QUERY = (
    "SELECT tenant_id, count(*) AS trajectories FROM trajectories GROUP BY ALL ORDER BY tenant_id"
)


def mark(page: Page) -> None:
    """Leave something in the page that only the load of another one takes away."""
    page.evaluate("window.stays = true")


def stayed(page: Page) -> bool:
    return bool(page.evaluate("window.stays === true"))


def test_facets_change_the_page_in_place_and_the_address_with_it(
    installation: Installation, signed_in: SignIn
) -> None:
    page = signed_in("adam", "/trajectories")
    table = page.get_by_role("region", name="Trajectories")
    facets = page.get_by_role("complementary", name="Facets")
    rows = table.get_by_role("row").count()
    mark(page)
    facets.get_by_role("link", name="globex").click()
    expect(table.get_by_role("row")).to_have_count(1 + 1)
    assert page.url.endswith("/trajectories?tenant=globex")
    expect(page.get_by_role("navigation", name="Pages").get_by_role("link", name="Home")).to_have_attribute(
        "href", "/home?tenant=globex"
    )  # fmt: skip
    expect(page.locator("main")).to_be_focused()
    assert stayed(page)
    page.get_by_label("Outcome").select_option("failed")
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_text("No trajectory fits.")).to_be_visible()
    assert "outcome=failed" in page.url
    assert "tenant=globex" in page.url
    assert stayed(page)
    page.go_back()
    expect(table.get_by_role("row")).to_have_count(1 + 1)
    page.go_back()
    expect(table.get_by_role("row")).to_have_count(rows)
    assert page.url.endswith("/trajectories")


def test_who_goes_back_before_the_scripts_run_gets_the_page_of_the_address(
    installation: Installation, signed_in: SignIn
) -> None:
    page = signed_in("adam", "/trajectories")
    rows = page.get_by_role("region", name="Trajectories").get_by_role("row")
    before = rows.count()
    page.get_by_role("complementary", name="Facets").get_by_role("link", name="globex").click()
    expect(rows).to_have_count(1 + 1)
    held: list[Route] = []
    page.route(_SCRIPTS, lambda route: held.append(route))
    page.reload(wait_until="commit")
    expect(rows).to_have_count(1 + 1)
    page.go_back(wait_until="commit")
    assert page.url.endswith("/trajectories")
    assert held
    page.unroute(_SCRIPTS)  # they go on
    expect(rows).to_have_count(before)
    assert page.url.endswith("/trajectories")


def test_an_answer_of_sql_comes_in_place_and_an_error_too(
    installation: Installation, signed_in: SignIn
) -> None:
    page = signed_in("adam", "/sql")
    mark(page)
    page.locator("#query").fill(_QUERY)
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("region", name="Answer").get_by_role("row")).to_have_count(1 + 2)
    assert "query=SELECT" in page.url
    chart = page.locator(".chart")
    expect(chart.locator("canvas")).to_be_visible()
    expect(chart.locator("svg")).to_be_hidden()
    page.locator("#query").fill("SELECT nonsense")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_contain_text("nonsense")
    assert stayed(page)


def test_a_chart_tells_its_values_to_a_pointer_and_to_keys(
    installation: Installation, signed_in: SignIn
) -> None:
    folder = installation.console.running.home.runs / "r0001"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [{"step": step, "loss": 2.0 / step} for step in range(1, 102)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    page = signed_in("tina", "/runs/r0001")
    chart = page.get_by_role("group", name=re.compile(r"^loss: from 2"))
    told = chart.locator(".readout")
    plot = chart.locator(".u-over")
    box = plot.bounding_box()
    assert box is not None
    plot.hover(position={"x": box["width"] / 2, "y": 20})
    expect(told).to_have_text(f"step 51: {2.0 / 51}")
    page.mouse.move(0, 0)
    expect(told).to_have_text("")
    chart.focus()
    page.keyboard.press("ArrowRight")
    expect(told).to_have_text("step 1: 2")
    page.keyboard.press("ArrowRight")
    expect(told).to_have_text("step 2: 1")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(told).to_have_text("step 1: 2")
    # A part of it is shown at a larger scale, until Escape.
    left, top, width = box["x"], box["y"], box["width"]
    page.mouse.move(left + width / 2, top + 20)
    page.mouse.down()
    page.mouse.move(left + width - 2, top + 20, steps=5)
    page.mouse.up()
    plot.hover(position={"x": 2, "y": 20})
    expect(told).to_have_text(re.compile(r"^step 5[12]: "))
    chart.focus()
    page.keyboard.press("Escape")
    plot.hover(position={"x": 3, "y": 20})
    expect(told).to_have_text(re.compile(r"^step [12]: "))


def test_work_moves_on_in_the_page_and_a_look_ends_with_it(
    installation: Installation, signed_in: SignIn
) -> None:
    store = progress_of(installation.console.running)
    page = signed_in("tina", "/home")
    asked: list[str] = []
    with store.recorded("training", "lamps", who="tina@example.com") as tell:
        tell("read", 3, 12)
        page.goto("/progress")
        expect(page.locator("progress")).to_have_attribute("value", "0.25")
        mark(page)
        page.on("request", lambda request: asked.append(request.url))
        # Nobody looks at a page that is hidden.
        hide = "hidden => Object.defineProperty(document, 'hidden', {value: hidden, configurable: true})"
        page.evaluate(hide, True)
        tell("fit", 6, 12)
        page.wait_for_timeout(6_000)
        assert asked == []
        page.evaluate(hide, False)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.locator("progress")).to_have_attribute("value", "0.5")
        tell("export", 9, 12)
        expect(page.locator("progress")).to_have_attribute("value", "0.75")
        expect(page.get_by_text("Work is under way")).to_be_visible()
        assert page.url.endswith("/progress")
    expect(page.get_by_text("Work is under way")).to_have_count(0)
    assert set(asked) == {f"{installation.url}/progress?looking=1"}
    asked.clear()
    page.wait_for_timeout(6_000)
    assert asked == []
    assert stayed(page)


def test_a_held_call_appears_and_a_lost_console_is_told(
    installation: Installation, signed_in: SignIn
) -> None:
    page = signed_in("olga", "/approvals")
    mark(page)
    look = "document.dispatchEvent(new Event('visibilitychange'))"
    call = held_call(installation.console.running, "pay", order="B-4")
    page.evaluate(look)
    table = page.get_by_role("region", name="Tool calls that wait")
    expect(table.get_by_role("link", name=call)).to_be_visible()
    table.get_by_role("link", name=call).focus()
    page.route("**/approvals?looking=1", lambda route: route.abort())
    page.evaluate(look)
    expect(page.locator("main[data-failed]")).to_have_count(1)
    page.unroute("**/approvals?looking=1")
    page.evaluate(look)
    expect(page.locator("main[data-failed]")).to_have_count(0)
    expect(table.get_by_role("link", name=call)).to_be_focused()
    assert stayed(page)


def test_a_session_that_ended_takes_its_page_with_it(
    installation: Installation, signed_in: SignIn
) -> None:
    page = signed_in("paul", "/home")
    sessions = installation.console.sessions
    for one in sessions.list():
        if one.name == "paul@example.com":
            sessions.revoke(one.session)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_url("**/sign-in?next=%2Fhome")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_review_goes_on_in_place_by_keyboard(installation: Installation, signed_in: SignIn) -> None:
    page = signed_in("ida", "/review?focus=1")
    mark(page)
    seen = set()
    for _ in range(3):
        name = page.locator("input[name=trajectory]").get_attribute("value") or ""
        assert name not in seen
        seen.add(name)
        expect(page.get_by_role("button", name="Yes")).to_be_focused()
        page.mouse.wheel(0, 400)
        press_access_key(page, "s")
        page.wait_for_function(
            "before => document.querySelector('input[name=trajectory]')?.value !== before", arg=name
        )
        page.wait_for_function("() => document.scrollingElement.scrollTop === 0")
    assert stayed(page)
    assert page.url.endswith("/review?focus=1")
    page.get_by_role("link", name="Leave the focus").click()
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    assert stayed(page)


def test_each_page_shows_the_same_without_scripts(
    installation: Installation, signed_in: SignIn
) -> None:
    page = signed_in("adam", java_script_enabled=False)
    for place in places(installation):
        answer = page.goto(place)
        assert answer is not None
        assert answer.ok == (place != "/nosuch"), place
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator("canvas")).to_have_count(0)
        assert page.locator("svg").evaluate_all(
            "all => all.every(one => one.getClientRects().length > 0)"
        ), place
        assert not page.get_by_text("looks again every 30 seconds").is_visible()


def test_people_work_without_scripts(installation: Installation, signed_in: SignIn) -> None:
    page = signed_in("ida", "/trajectories", java_script_enabled=False)
    page.get_by_label("Outcome").select_option("failed")
    page.get_by_role("button", name="Find").click()
    page.wait_for_url("**outcome=failed*")
    expect(
        page.get_by_role("region", name="Trajectories").get_by_role("row").nth(1)
    ).to_be_visible()
    page.goto("/review?focus=1")
    name = page.locator("input[name=trajectory]").get_attribute("value") or ""
    expect(page.get_by_role("button", name="Yes")).to_be_focused()
    press_access_key(page, "s")
    expect(page.locator("input[name=trajectory]")).not_to_have_value(name)
    page = signed_in("tina", "/sql", java_script_enabled=False)
    page.locator("#query").fill(_QUERY)
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("img", name=re.compile("^trajectories: from"))).to_be_visible()
    with progress_of(installation.console.running).recorded(
        "training", "bulbs", who="tina"
    ) as tell:
        tell("read", 1, 4)
        page.goto("/progress")
        tell("fit", 2, 4)
        row = page.get_by_role("row").filter(has_text="bulbs")
        expect(row.locator("progress")).to_have_attribute("value", "0.5")
    expect(page.get_by_text("Work is under way")).to_have_count(0)
