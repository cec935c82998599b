"""An installation with its gateway, its console and its identity provider, and a browser for people to use it with."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Playwright, expect, sync_playwright

from evolve.trial_files import TrialFiles
from governance.redact.pseudonym import subject_id
from headrace.app.context import AppContext
from headrace.console.app import application
from headrace.console.oidc import IdentityProvider
from headrace.console.page import Console
from headrace.console.sessions import SessionStore
from headrace.console.users import TrustedProxies
from headrace.services.sql_server import sql_service
from tests.headrace.console.conftest import artifact_of, decision, model_of, run_of, trial_of
from tests.support.hostile_pages import chromium_path
from tests.support.identity_provider import Person, TestProvider, identity_provider
from tests.support.ports import free_port
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json
from tests.train.lakes import PURPOSES, Session, lake_of
from trajectory.http_server import HttpServer

ROOT = Path(__file__).resolve().parents[3]
ERASED = "jo.frame@corp-mail.com"
"""A person who asks to be forgotten; made up, as all people here."""
ROLES = {
    "ida": ("reviewer", "acme"), "olga": ("operator", "*"), "petra": ("privacy", "*"),
    "paul": ("privacy", "*"), "tina": ("trainer", "*"), "adam": ("admin", "*"),
}  # fmt: skip
"""Who works here, and as what."""
QUEUE = """
apiVersion: headrace/v1
kind: ReviewQueue
metadata: {name: lamps}
spec:
  match: {tenant: acme}
  questions:
    - {name: polite, ask: 'Was it polite?', type: yes_no}
    - {name: fault, ask: 'What went wrong?', type: choice, choices: [nothing, tool, facts]}
    - {name: effort, ask: 'How hard was it?', type: scale, low: 1, high: 4}
    - {name: remark, ask: 'Anything else?', type: text, required: false}
"""
ACTIONS = """
apiVersion: headrace/v1
kind: Action
metadata: {name: payments}
spec:
  routes: [tools]
  rules:
    - {name: payments, match: {tools: pay}, decision: hold, severity: high, wait_seconds: 120}
"""


@dataclass
class Installation:
    """Headrace as a team has it, and how one signs in."""

    console: Console
    url: str
    """Of the console."""
    gateway: str
    """Where agents send their calls."""
    provider: TestProvider
    headrace: Callable[..., subprocess.CompletedProcess[str]]
    """Runs a command of it."""
    received: list[ReceivedRequest] = field(default_factory=list)
    """What reached the tools' server."""


def chromium() -> str:
    """Return the system's Chromium; without one the test is skipped."""
    found = chromium_path()
    if found is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    return found


@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    """The one driver of all tests here: a thread has no second one."""
    with sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="package")
def browser(playwright: Playwright) -> Iterator[Browser]:
    path = chromium()
    expect.set_options(timeout=60_000)
    opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
    yield opened
    opened.close()


@pytest.fixture(scope="package")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    chromium()
    home = tmp_path_factory.mktemp("installation")
    bundle = home / "policies"
    shutil.copytree(ROOT / "policies" / "default", bundle)
    (bundle / "actions.yaml").write_text(ACTIONS)
    (home / "lamps.yaml").write_text(QUEUE)
    with identity_provider() as provider, Upstream(_tools) as upstream:
        provider.register("console", "s3cret", "http://127.0.0.1/sign-in/callback")
        port, admin = free_port(), free_port()
        oidc = {
            "issuer": provider.issuer,
            "client_id": "console",
            "client_secret_env": "OIDC_SECRET",
        }
        settings = {
            "policy": {"bundle": str(bundle), "four_eyes": ["erase"]},
            "gateway": {
                "port": port, "admin_port": admin, "forward_port": None,
                "routes": [{"name": "tools", "upstream": upstream.url, "kind": "tool"}],
            },
            "console": {
                "oidc": oidc,
                "queues": [str(home / "lamps.yaml")],
                "groups": [
                    {"group": f"{name}s-group", "role": role, "tenant": tenant}
                    for name, (role, tenant) in ROLES.items()
                ],
            },
        }  # fmt: skip
        (home / "headrace.yaml").write_text(json.dumps(settings))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OIDC_SECRET", "s3cret")
            running = AppContext(home, debug=False)
            _fill(running)
            with _gateway(home, admin), _served(running) as (console, url):
                yield Installation(
                    console, url, f"http://127.0.0.1:{port}", provider,
                    lambda *arguments: _headrace(home, *arguments), upstream.seen,
                )  # fmt: skip


def _fill(running: AppContext) -> None:
    """Store conversations of a shop, and a model's versions with what led there; all made up."""
    home = running.home.create()
    person = subject_id(running.secrets.derive(b"pseudonym"), "acme", ERASED)
    lake_of(
        home.root / "lake",
        *(Session(number, reward=float(number % 5 > 0), purposes=(*PURPOSES, "evolve")) for number in range(1, 31)),
        Session(31, tenant="globex", subject=person),
        Session(40, subject=person, question="I am <EMAIL_ADDRESS_ab12cd34>. What do 40 lamps cost?"),
    )  # fmt: skip
    running.lake.append_rows("decisions", [decision("d0001")])
    running.lake.append_rows("runs", [run_of("r0001")])
    model_of(running)
    model_of(running)
    artifact_of(running, "Ask which lamps.")
    trials = TrialFiles(running.home.trials)
    with trials.alone():
        trials.write(trial_of("shop", "0001"))


@contextmanager
def _served(running: AppContext) -> Iterator[tuple[Console, str]]:
    """Serve the console over HTTP, as `headrace console` puts it together."""
    settings = running.settings.console
    service = sql_service(running.settings, running.home, running.secrets, running.lake)
    store = SessionStore.of(running.home.sessions, settings)
    provider = IdentityProvider(settings.oidc)
    console = Console(running, service, store, TrustedProxies(settings), provider)
    try:
        with HttpServer(application(console), host="127.0.0.1", port=0) as server:
            yield console, f"http://127.0.0.1:{server.port}"
    finally:
        console.close()


@contextmanager
def _gateway(home: Path, admin: int) -> Iterator[None]:
    """Run `headrace gateway` in a process of its own."""
    log = home / "gateway.log"
    with log.open("w") as output:
        command = [sys.executable, "-m", "headrace", "--home", str(home), "gateway"]
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    until = time.monotonic() + 120
    try:
        while not _is_ready(f"http://127.0.0.1:{admin}/ready"):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait(60)


def _is_ready(place: str) -> bool:
    try:
        return httpx.get(place, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def _headrace(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace", "--home", str(home), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def _tools(request: ReceivedRequest) -> Reply:
    """Answer as a server of tools does (MCP)."""
    message = json.loads(request.body) if request.body else {}
    result = {"content": [{"type": "text", "text": "paid"}]}
    return as_json({"jsonrpc": "2.0", "id": message.get("id"), "result": result})


@pytest.fixture
def signed_in(installation: Installation, browser: Browser) -> Iterator[Callable[..., Page]]:
    """Let somebody sign in at the identity provider, in a browser of their own."""
    contexts = []

    def sign_in(name: str, then: str = "/home", **options: Any) -> Page:
        claims = {
            "email": f"{name}@example.com",
            "email_verified": True,
            "groups": [f"{name}s-group"],
        }
        installation.provider.person = Person(name, claims)
        options = {"viewport": {"width": 1280, "height": 800}, **options}
        context = browser.new_context(base_url=installation.url, **options)
        contexts.append(context)
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.goto(f"/sign-in?next={then}")
        page.get_by_role("link", name="Sign in with").click()
        page.wait_for_url(f"**{then}")
        return page

    yield sign_in
    for context in contexts:
        context.close()


@pytest.fixture
def look(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Page, str], None]:
    """Look at a page: keep a picture of it, and let axe-core find nothing, neither in the light nor in the dark.

    Pictures lie in the folder that HEADRACE_SCREENSHOTS names, or else with the test's other files.
    """
    folder = Path(os.environ.get("HEADRACE_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)

    def look_at(page: Page, name: str) -> None:
        page.emulate_media(color_scheme="light")
        page.screenshot(path=folder / f"{name}.png", full_page=False)
        for scheme in ("light", "dark"):
            assert violations(page, scheme) == [], (name, scheme)
        page.emulate_media(color_scheme="light")

    return look_at


def violations(page: Page, scheme: Any) -> list[tuple[str, str]]:
    """Return what axe-core finds on a page with all that is folded opened: rule, and where."""
    page.emulate_media(color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    found = Axe().run(page).response["violations"]
    return [
        (one["id"], re.sub(r"\s+", " ", node["html"])[:200])
        for one in found
        for node in one["nodes"]
    ]
