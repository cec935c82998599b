"""The console's application: signs people in, lets them see the pages of their roles, and nothing else.

A page that is in ``PAGES`` has a route, its JSON twin another one. Who is not signed in sees the page
to sign in; who has no role for a page is refused before its data are read.
"""

import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from headrace.app.output import jsonable
from headrace.console.forms import address_of, form_of
from headrace.console.guard import Guard, RateLimit
from headrace.console.html import render
from headrace.console.page import Console, Download, Page, PageRequest
from headrace.console.pages import PAGES
from headrace.console.sign_in import COOKIE, SignIn
from headrace.console.users import User
from lakehouse.sandbox.deadline import QueryTimeoutError
from proxy.clients.keys import ALL_TENANTS
from trajectory.errors import ConfigurationError, HeadraceError, RetryableError, WorkError

_JSON = "application/json"
_WORK_LOOKS_AGAIN = 5
"""Seconds after which a page of work that goes on is asked for again, until its reader stops that."""
LOOKING = "looking"
"""The parameter of a URL that a browser asks for of itself; no link has it."""

type _Endpoint = Callable[[Request], Awaitable[Response]]


def application(console: Console) -> Guard:
    """Return the console as an ASGI application."""
    return Guard(ConsoleApplication(console).starlette, url=console.running.settings.console.url)


class ConsoleApplication:
    """Pages, twins in JSON, downloads and sign-in, each at its path."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._requests = RateLimit(300, 60)
        routes: list[Route | Mount] = [
            Route("/", _to_home),
            *SignIn(console, self._html).routes(),
            Mount("/static", StaticFiles(packages=[("headrace.console", "static")])),
        ]
        for page in PAGES:
            methods = ["GET", "POST"] if page.senders else ["GET"]
            routes.append(Route(f"{page.path}.json", self._twin_of(page), methods=methods))
            for suffix in page.downloads:
                place = f"{page.path}.{suffix}"
                routes.append(Route(place, self._download(page, suffix), methods=methods))
            routes.append(Route(page.path, self._page(page), methods=methods))
        self.starlette = Starlette(
            routes=routes,
            exception_handlers={
                HTTPException: self._failed,
                HeadraceError: self._failed,
                sqlite3.OperationalError: self._failed,
                Exception: self._failed,
            },
        )

    def _page(self, page: Page) -> _Endpoint:
        async def endpoint(request: Request) -> Response:
            asked, data = await self._asked(page, request)
            return self._html(
                page.template, request, asked.user,
                data=data, page=page, asked=asked, looks_again=_looks_again(page, asked, data),
            )  # fmt: skip

        return endpoint

    def _twin_of(self, page: Page) -> _Endpoint:
        async def endpoint(request: Request) -> Response:
            _, data = await self._asked(page, request)
            return _json(data)

        return endpoint

    def _download(self, page: Page, suffix: str) -> _Endpoint:
        async def endpoint(request: Request) -> Response:
            asked = await self._admitted(page, request)
            file = await run_in_threadpool(_downloaded, page, suffix, asked)
            named = {"content-disposition": f'attachment; filename="{file.name}"'}
            return Response(file.content, media_type=file.kind, headers=named)

        return endpoint

    async def _asked(self, page: Page, request: Request) -> tuple[PageRequest, Any]:
        """Return who asks for a page, and its data; see :meth:`_admitted`."""
        asked = await self._admitted(page, request)
        return asked, await run_in_threadpool(_data, page, asked)

    async def _admitted(self, page: Page, request: Request) -> PageRequest:
        """Return who asks for a page.

        Raises:
            HTTPException: nobody is signed in, who is may not see it, or asks too often.
        """
        user = await run_in_threadpool(self._user, request)
        if user is None:
            raise HTTPException(401, "Sign in first.")
        if not self._requests.allows(user.name):
            raise HTTPException(429, "Too many requests in a minute; wait a little.")
        tenant = _tenant(page, user, request.query_params.get("tenant"))
        if request.method == "POST" and not user.may(page.senders, tenant):
            raise HTTPException(403, f"This is for {', '.join(sorted(page.senders))}.")
        return PageRequest(
            console=self._console,
            user=user,
            tenant=tenant,
            query=dict(request.query_params),
            path=dict(request.path_params),
            form=await form_of(request) if request.method == "POST" else None,
        )

    def _user(self, request: Request) -> User | None:
        console = self._console
        found = console.proxies.user(address_of(request), request.headers)
        if found is not None:
            return found
        session = request.cookies.get(COOKIE)
        if session is None:
            return None
        is_use = LOOKING not in request.query_params
        return console.sessions.user_of(session, is_use=is_use)

    async def _failed(self, request: Request, error: Exception) -> Response:
        status, text = _said(error)
        wants_json = request.url.path.endswith(".json")
        if wants_json:
            return _json({"error": {"status": status, "message": text}}, status)
        if status == HTTPStatus.UNAUTHORIZED and "hx-request" in request.headers:
            # The page is loaded as a whole, which leads to the one to sign in: what it showed is gone.
            return Response(status_code=status, headers={"hx-refresh": "true"})
        if status == HTTPStatus.UNAUTHORIZED:
            place = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"/sign-in?{urlencode({'next': place})}", status_code=303)
        user = await run_in_threadpool(self._user, request)
        title = HTTPStatus(status).phrase
        return self._html("error.html", request, user, status, title=title, text=text)

    def _html(
        self, template: str, request: Request, user: User | None, status: int = 200, **values: Any
    ) -> Response:
        """Return a page; its navigation names what the user may see."""
        listed = [
            page for page in PAGES if page.is_listed and user is not None and _tenants(page, user)
        ]
        query = {name: it for name, it in request.query_params.items() if name != LOOKING}
        text = render(
            template,
            user=user,
            listed=listed,
            here=request.url.path,
            query=query,
            chosen_tenant=query.get("tenant"),
            **{"page": None, "asked": None, "looks_again": None, **values},
        )
        return Response(text, status_code=status, media_type="text/html")


async def _to_home(_request: Request) -> Response:
    return RedirectResponse("/home", status_code=303)


def _looks_again(page: Page, asked: PageRequest, data: Any) -> int | None:
    """Return after how many seconds a browser asks again of itself; content it never reads like that."""
    if page.shows_content or "still" in asked.query:
        return None
    goes_on = isinstance(data, Mapping) and bool(data.get("is_live"))
    return _WORK_LOOKS_AGAIN if goes_on else page.looks_again


def _data(page: Page, asked: PageRequest) -> Any:
    """Return a page's data as JSON has them."""
    with _noted(page, asked):
        return jsonable(page.data(asked))


def _downloaded(page: Page, suffix: str, asked: PageRequest) -> Download:
    with _noted(page, asked):
        return page.downloads[suffix](asked)


@contextmanager
def _noted(page: Page, asked: PageRequest) -> Iterator[None]:
    """Let the audit know of it before content is shown.

    Also where the block fails, for an error may quote content; not where there is no such thing, whose
    name may be anything that somebody typed.
    """
    try:
        yield
    except HTTPException as error:
        if error.status_code == HTTPStatus.NOT_FOUND:
            raise
        _note_reading(page, asked)
        raise
    except Exception:
        _note_reading(page, asked)
        raise
    _note_reading(page, asked)


def _note_reading(page: Page, asked: PageRequest) -> None:
    if page.shows_content:
        subject = next(iter(asked.path.values()), page.path)
        asked.note("content.read", subject[:200], page=page.path)


def _tenants(page: Page, user: User) -> tuple[str, ...]:
    """Return in whose data a user may see a page."""
    found = user.tenants(page.roles)
    return tuple(one for one in found if one == ALL_TENANTS) if page.every_tenant else found


def _tenant(page: Page, user: User, wanted: str | None) -> str:
    """Return in whose data a page is shown.

    Raises:
        HTTPException: the user may see it in nobody's, or not in that one's.
    """
    tenants = _tenants(page, user)
    if wanted is None or page.every_tenant:
        chosen = next(iter(tenants), None)
    else:
        chosen = wanted if user.may(page.roles, wanted) else None
    if chosen is None:
        where = "every tenant's data" if page.every_tenant else "the data of this tenant"
        raise HTTPException(403, f"{page.title} is for {', '.join(sorted(page.roles))} in {where}.")
    return chosen


def _json(data: Any, status: int = 200) -> Response:
    text = json.dumps(data, ensure_ascii=False, default=str)
    return Response(text.encode("utf-8", "replace"), status_code=status, media_type=_JSON)


def _said(error: Exception) -> tuple[int, str]:
    """Return an error's status, and what a person is told of it."""
    match error:
        case HTTPException(status_code=404):
            return 404, "There is no such page or thing here."
        case HTTPException():
            return error.status_code, error.detail
        case QueryTimeoutError():
            return 504, str(error)
        case ConfigurationError():
            return 400, str(error)
        case RetryableError():
            return 503, str(error)
        case WorkError():
            return 409, str(error)
        case HeadraceError():
            return 500, str(error)
        case sqlite3.OperationalError():
            return 503, "A file of the console cannot be written or read now: look at the disk."
    # Its text may quote content.
    return 500, f"This is a fault of Headrace ({type(error).__name__})."
