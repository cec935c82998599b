"""What people do in the console, done in Chromium from signing in to what came of it."""

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from headrace.console.users import local_user
from proxy.clients.keys import KeyRegistry
from tests.interop.browser.conftest import ERASED, Installation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

type SignIn = Callable[..., Page]
type Look = Callable[[Page, str], None]


def status(page: Page) -> str:
    """Return what the page says came of what was sent."""
    return page.get_by_role("status").inner_text()


def press_access_key(page: Page, letter: str) -> None:
    """Press Alt and a letter; Playwright's own keyboard leaves out what access keys are found by."""
    session = page.context.new_cdp_session(page)
    code = {
        "key": letter,
        "code": f"Key{letter.upper()}",
        "windowsVirtualKeyCode": ord(letter.upper()),
    }
    pressed = {"type": "keyDown", "modifiers": 1, "unmodifiedText": letter, **code}
    session.send("Input.dispatchKeyEvent", pressed)
    session.detach()


def labels(installation: Installation, name: str, value: str = "value") -> dict[str, Any]:
    """Let governance run; return what people have said in the lake, by trajectory."""
    done = installation.headrace("govern", "--once")
    assert done.returncode == 0, done.stderr
    rows = installation.console.running.lake.query(
        "SELECT trajectory_id, value, label, rationale FROM rewards_latest "
        "WHERE name = $name AND source_kind = 'human_explicit'",
        {"name": name},
    )
    return {row["trajectory_id"]: row[value] for row in rows.to_pylist()}


def test_somebody_signs_in_and_out(
    installation: Installation, signed_in: SignIn, look: Look
) -> None:
    page = signed_in("ida")
    expect(page.get_by_role("heading", name="Home")).to_be_visible()
    expect(page.get_by_text("ida@example.com")).to_be_visible()
    look(page, "home")
    page.get_by_role("link", name="Trajectories").click()
    page.get_by_role("button", name="Sign out").click()
    assert "signed out here" in status(page)
    look(page, "sign-in")
    page.goto("/home")
    assert "/sign-in?next=" in page.url, "the session has ended"


def test_a_reviewer_finds_a_failed_conversation_and_corrects_it(
    installation: Installation, signed_in: SignIn, look: Look
) -> None:
    page = signed_in("ida", "/trajectories")
    page.get_by_label("Outcome").select_option("failed")
    page.get_by_role("button", name="Find").click()
    table = page.get_by_role("region", name="Trajectories")
    expect(table.get_by_role("row")).to_have_count(1 + 6)
    look(page, "failed-trajectories")
    table.get_by_role("link", name="t00030").click()
    page.get_by_text("Calls price").click()
    expect(page.get_by_text('"lamps": 30')).to_be_visible()
    page.get_by_text("Correct this answer").last.click()
    page.get_by_label("What it should have answered").last.fill("They cost 60 crowns.")
    look(page, "correction")
    page.get_by_role("button", name="Keep the correction").last.click()
    assert "The correction was taken" in status(page)
    assert labels(installation, "corrected_answer", "rationale") == {
        "t00030": "They cost 60 crowns."
    }
    page.get_by_role("link", name="Conversation").click()
    expect(page.locator(".correction")).to_contain_text("They cost 60 crowns.")


def test_a_reviewer_labels_twenty_by_keyboard(
    installation: Installation, signed_in: SignIn, look: Look
) -> None:
    page = signed_in("ida", "/review")
    look(page, "review")
    given: dict[str, float] = {}
    begun = time.monotonic()
    for number in range(20):
        name = page.locator("input[name=trajectory]").get_attribute("value") or ""
        assert name not in given, "the queue goes on"
        said = number % 3 > 0
        # The first button has the focus: Enter says yes, and the access key of the other says no.
        page.keyboard.press("Enter") if said else press_access_key(page, "r")
        page.wait_for_function(
            "before => document.querySelector('input[name=trajectory]')?.value !== before", arg=name
        )
        given[name] = float(said)
    assert time.monotonic() - begun <= 180
    found = labels(installation, "success")
    assert {name: found[name] for name in given} == given


def test_a_reviewer_answers_typed_questions_by_keyboard(
    installation: Installation, signed_in: SignIn, look: Look
) -> None:
    page = signed_in("ida", "/review?queue=lamps")
    page.get_by_role("link", name="Only the conversation").click()
    expect(page.get_by_role("navigation", name="Pages")).to_have_count(0)
    look(page, "typed-questions")
    name = page.locator("input[name=trajectory]").get_attribute("value") or ""
    # The first question has the focus: a space chooses; keys 4 and 8 choose of the others.
    page.keyboard.press("Space")
    press_access_key(page, "4")
    press_access_key(page, "8")
    page.get_by_label("Anything else?").fill("It was slow.")
    press_access_key(page, "a")
    page.wait_for_function(
        "before => document.querySelector('input[name=trajectory]')?.value !== before", arg=name
    )
    assert "focus=1" in page.url, "the focus stays"
    said = {one: labels(installation, one, what)[name] for one, what in (
        ("polite", "value"), ("fault", "label"), ("effort", "value"), ("remark", "rationale"),
    )}  # fmt: skip
    assert said == {"polite": 1.0, "fault": "tool", "effort": 3.0, "remark": "It was slow."}


def test_an_operator_lets_a_held_call_go_on_while_the_agent_waits(
    installation: Installation, signed_in: SignIn, look: Look
) -> None:
    running = installation.console.running
    key = KeyRegistry.load(running.home.client_keys).create(tenant_id="acme", app_id="agent").secret
    time.sleep(1)  # a gateway takes a new key within half a second
    message = {
        "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "pay", "arguments": {"order": "A-17", "crowns": 240}},
    }  # fmt: skip
    answers: list[httpx.Response] = []

    def agent() -> None:
        headers = {
            "authorization": f"Bearer {key}",
            "accept": "application/json, text/event-stream",
        }
        place = f"{installation.gateway}/tools/mcp"
        answers.append(
            httpx.post(place, json=message, headers=headers, timeout=150, trust_env=False)
        )

    page = signed_in("olga", "/approvals")
    table = page.get_by_role("region", name="Tool calls that wait")
    before = set(table.get_by_role("link").all_inner_texts())  # other tests' calls may wait
    waits = threading.Thread(target=agent)
    waits.start()
    until = time.monotonic() + 60
    while not (new := set(table.get_by_role("link").all_inner_texts()) - before):
        assert time.monotonic() < until, answers
        page.reload()
    (call,) = new
    look(page, "approvals")
    table.get_by_role("link", name=call).click()
    expect(page.get_by_text('"order": "A-17"')).to_be_visible()
    look(page, "held-call")
    assert installation.received == [], "nothing was sent so far"
    assert answers == []
    page.get_by_label("Reason").fill("The order is known.")
    page.get_by_role("button", name="Let it go on").click()
    waits.join(60)
    (answer,) = answers
    assert "paid" in answer.text
    assert len(installation.received) == 1
    page.get_by_role("link", name="All that waits").click()
    expect(page.get_by_text("The order is known.")).to_be_visible()
    expect(table.get_by_role("link", name=call)).to_have_count(0)


def test_two_people_erase_a_third(
    installation: Installation, signed_in: SignIn, look: Look
) -> None:
    petra, paul = signed_in("petra", "/privacy"), signed_in("paul", "/requests")

    def about(button: str) -> None:
        petra.get_by_label("Person: an e-mail").fill(ERASED)
        petra.get_by_label("Tenant", exact=True).fill("acme")
        petra.get_by_label("Ticket").fill("T-9")
        petra.get_by_role("button", name=button).click()

    about("What would an erasure take?")
    expect(petra.get_by_text("1 trajectory;")).to_be_visible()
    look(petra, "erasure-preview")
    about("Erase for good")
    assert "It waits for a second person" in status(petra)
    petra.get_by_role("status").get_by_role("link").click()
    expect(petra.get_by_role("button", name="Approve")).to_have_count(0)
    paul.reload()
    assert ERASED not in paul.content()
    look(paul, "request")
    paul.get_by_label("Reason").fill("T-9 is signed.")
    paul.get_by_role("button", name="Approve").click()
    section = petra.get_by_role("region", name=re.compile("^Request "))
    until = time.monotonic() + 240
    while "done" not in section.locator("p").first.inner_text():
        assert time.monotonic() < until, section.inner_text()
        time.sleep(1)
        petra.reload()
    petra.goto("/privacy")
    expect(petra.get_by_text("signature holds")).to_be_visible()
    look(petra, "certificate")
    answer = petra.goto("/trajectories/t00040?tenant=acme")
    assert answer is not None
    assert answer.status == 404
    answer = petra.goto("/trajectories/t00031?tenant=globex")
    assert answer is not None
    assert answer.status == 200, "what another tenant has of a person is another matter"


def test_a_trainer_promotes_a_model_and_goes_back(
    installation: Installation, signed_in: SignIn, look: Look
) -> None:
    page = signed_in("tina", "/models")

    def change(version: str, button: str, why: str) -> str:
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=f"shop@{version}"))
        row.get_by_label("Reason").fill(why)
        row.get_by_role("button", name=button).click()
        return status(page)

    assert change("0001", "Promote", "the first") == "shop@0001 serves."
    assert change("0002", "Promote", "answers better") == "shop@0002 serves."
    expect(page.get_by_role("region", name="Versions")).to_contain_text("answers better")
    look(page, "promoted")
    assert change("0002", "Roll back", "it was slower") == "shop@0001 serves."
    page.get_by_role("link", name="shop@0002").click()
    expect(page.get_by_role("region", name="What became of it")).to_contain_text("it was slower")
    look(page, "model")


def test_an_edit_of_the_policy_is_tried(
    installation: Installation, signed_in: SignIn, look: Look
) -> None:
    page = signed_in("petra", "/policy?file=redaction.yaml")
    edit = page.get_by_label("an edit is tried here")
    before = edit.input_value()
    assert "entities: {}" in before
    edit.fill(before.replace("entities: {}", "entities: {PHONE_NUMBER: mask}"))
    page.get_by_label("A text to try it on").fill("Write to jo.frame@corp-mail.com today.")
    page.get_by_role("button", name="Try", exact=True).click()
    expect(page.get_by_role("region", name="What the edit says otherwise")).to_contain_text(
        "entities.PHONE_NUMBER"
    )
    expect(page.locator(".message mark")).to_contain_text("<EMAIL_ADDRESS")
    page.get_by_role("heading", name="As it would be stored").scroll_into_view_if_needed()
    look(page, "policy-edit")
    with page.expect_download() as taken:
        page.get_by_role("button", name="Export as YAML").click()
    assert "entities: {PHONE_NUMBER: mask}" in Path(taken.value.path()).read_text()
    bundle = Path(installation.console.running.settings.policy.bundle)
    assert (bundle / "redaction.yaml").read_text().replace("\r\n", "\n") == before


def test_an_operator_reads_a_decision_and_rejects_it(
    installation: Installation, signed_in: SignIn, look: Look
) -> None:
    page = signed_in("olga", "/approvals")
    page.get_by_role("link", name="d0001").click()
    expect(page.get_by_role("region", name="Rules")).to_contain_text("holds")
    look(page, "decision")
    page.get_by_label("Reason").fill("The shop closes this week.")
    page.get_by_role("button", name="Reject").click()
    expect(page.get_by_role("button", name="Reject")).to_have_count(0)
    page.goto("/evolve")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="d0001"))
    expect(row).to_contain_text("rejected")
    expect(row).to_contain_text("olga@example.com")
    expect(row).to_contain_text("The shop closes this week.")


def test_somebody_works_by_keyboard_alone(installation: Installation, browser: Browser) -> None:
    token = installation.console.sessions.issue_token(local_user("root"))
    context = browser.new_context(base_url=installation.url)
    page = context.new_page()
    page.goto("/sign-in")

    def tab_to(name: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            focused = page.locator(":is(a, button, input, select, summary):focus")
            label = "one => one.labels?.[0]?.innerText || one.innerText"
            if focused.count() and name in focused.evaluate(label):
                assert focused.evaluate("one => getComputedStyle(one).outlineStyle") != "none"
                return
        raise AssertionError(f"Tab never came to {name}")

    tab_to("One-time token")
    page.keyboard.type(token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Home")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    tab_to("Trajectories")
    page.keyboard.press("Enter")
    page.wait_for_url("**/trajectories*")
    tab_to("Outcome")
    page.keyboard.type("failed")
    page.keyboard.press("Enter")
    tab_to("Find")
    page.keyboard.press("Enter")
    page.wait_for_url("**outcome=failed*")
    tab_to("t00025")
    page.keyboard.press("Enter")
    page.wait_for_url("**/trajectories/t00025*")
    tab_to("Calls price")
    page.keyboard.press("Enter")
    expect(page.get_by_text('"lamps": 25')).to_be_visible()
    tab_to("Steps")
    page.keyboard.press("Enter")
    page.wait_for_url("**view=steps*")
    tab_to("Sign out")
    page.keyboard.press("Enter")
    page.wait_for_url("**/sign-in*")
    context.close()
