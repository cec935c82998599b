"""How people sign in to the console, and out: a one-time token, or an identity provider.

A trusted proxy needs none of this: it says with each request who asks.
"""

import hmac
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from headrace.console.attempt import SignInAttempt, SignInError
from headrace.console.forms import address_of, form_of, next_place
from headrace.console.guard import RateLimit
from headrace.console.page import Console
from headrace.console.users import User

COOKIE = "__Host-headrace"
ATTEMPT_COOKIE = "__Host-headrace-attempt"
_CALLBACK = "/sign-in/callback"


class SignIn:
    """The routes for people who are not signed in."""

    def __init__(self, console: Console, show: Callable[..., Response]) -> None:
        """Sign people in to a console; ``show`` renders a template for a request and a user."""
        self._console = console
        self._show = show
        self._sign_ins = RateLimit(10, 60)
        self._attempts = RateLimit(60, 60)

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/sign-in", self._sign_in_page, methods=["GET"]),
            Route("/sign-in", self._sign_in, methods=["POST"]),
            Route("/sign-in/provider", self._to_provider, methods=["GET"]),
            Route(_CALLBACK, self._from_provider, methods=["GET"]),
            Route("/sign-out", self._sign_out, methods=["POST"]),
        ]

    async def _sign_in_page(self, request: Request) -> Response:
        query = request.query_params
        place = None
        if "signed-out" in query:
            # Its session goes on: whoever comes next to this browser would be signed in by it.
            place = await run_in_threadpool(self._provider_sign_out, request)
        return self._sign_in_form(request, token=query.get("token", ""), sign_out_place=place)

    def _provider_sign_out(self, request: Request) -> str | None:
        provider = self._console.provider
        if provider is None:
            return None
        try:
            return provider.sign_out_address(f"{self._own_url(request)}/sign-in")
        except SignInError:
            return None

    def _sign_in_form(
        self, request: Request, status: int = 200, *, error: str = "", token: str = "",
        then: str | None = None, sign_out_place: str | None = None,
    ) -> Response:  # fmt: skip
        provider = self._console.provider
        return self._show(
            "sign_in.html",
            request,
            None,
            status,
            token=token,
            next=next_place(request.query_params) if then is None else then,
            error=error,
            provider=None if provider is None else provider.host,
            sign_out_place=sign_out_place,
        )

    def _own_url(self, request: Request) -> str:
        """Return the console's address as browsers know it; the guard has looked at the host."""
        url = self._console.running.settings.console.url
        return url or f"{request.url.scheme}://{request.headers.get('host', '')}"

    async def _to_provider(self, request: Request) -> Response:
        """Send a browser to the identity provider."""
        provider = self._console.provider
        if provider is None:
            raise HTTPException(404)
        if not self._attempts.allows(address_of(request)):
            raise HTTPException(429, "Too many attempts to sign in; wait a minute.")
        attempt = SignInAttempt.new()
        redirect_uri = f"{self._own_url(request)}{_CALLBACK}"
        try:
            place = await run_in_threadpool(provider.address, attempt, redirect_uri)
        except SignInError as error:
            return self._sign_in_form(request, 502, error=str(error))
        then = next_place(request.query_params)
        await run_in_threadpool(self._console.sessions.keep_attempt, attempt, then)
        answer = RedirectResponse(place, status_code=303)
        answer.set_cookie(
            ATTEMPT_COOKIE, attempt.state, max_age=600, path="/", secure=True, httponly=True,
            samesite="lax",
        )  # fmt: skip
        return answer

    async def _from_provider(self, request: Request) -> Response:
        """Sign in whom the identity provider sends back."""
        console = self._console
        provider = console.provider
        if provider is None:
            raise HTTPException(404)
        if not self._attempts.allows(address_of(request)):
            raise HTTPException(429, "Too many attempts to sign in; wait a minute.")
        given, state = request.query_params, request.cookies.get(ATTEMPT_COOKIE, "")
        # The cookie says that the browser which comes back is the one that went.
        is_own = hmac.compare_digest(given.get("state", "").encode(), state.encode()) and state
        found = await run_in_threadpool(console.sessions.take_attempt, state) if is_own else None
        user, error, then = (
            None,
            "This sign-in was begun elsewhere or too long ago: begin anew.",
            None,
        )
        if found is not None:
            attempt, then = found
            redirect_uri = f"{self._own_url(request)}{_CALLBACK}"
            try:
                came = await run_in_threadpool(
                    provider.signed_in, attempt, dict(given), redirect_uri
                )
                user = came.granted(console.running.settings.console.groups)
                if not user.roles:
                    error = _no_role(user)
                    user = None
            except SignInError as failed:
                error = str(failed)
        if user is None:
            await self._audit_sign_in("-", "console.refused", provider.issuer)
            return self._sign_in_form(request, 403, error=error, then=then or "/home")
        await self._audit_sign_in(user.name, "console.signed_in", provider.issuer)
        answer = await self._begin(user, then or "/home")
        answer.delete_cookie(ATTEMPT_COOKIE, path="/", secure=True, httponly=True, samesite="lax")
        return answer

    async def _audit_sign_in(self, name: str, action: str, by: str) -> None:
        await run_in_threadpool(
            lambda: self._console.running.audit.append(
                actor=name, action=action, subject="console", detail={"by": by}
            )
        )

    async def _begin(self, user: User, then: str) -> Response:
        """Begin a session, and go on to a page."""
        console = self._console
        session = await run_in_threadpool(console.sessions.begin, user)
        answer = RedirectResponse(then, status_code=303)
        hours = console.running.settings.console.session_hours
        answer.set_cookie(
            COOKIE, session, max_age=int(hours * 3600), path="/", secure=True, httponly=True,
            samesite="lax",
        )  # fmt: skip
        return answer

    async def _sign_in(self, request: Request) -> Response:
        form = await form_of(request)
        if not self._sign_ins.allows(address_of(request)):
            raise HTTPException(429, "Too many attempts to sign in; wait a minute.")
        console = self._console
        user = await run_in_threadpool(console.sessions.redeem, form.get("token", "").strip())
        name = "-" if user is None else user.name
        action = "console.refused" if user is None else "console.signed_in"
        await self._audit_sign_in(name, action, "token")
        if user is None:
            error = "This token was used, has ended, or is none. `headrace console --link` prints another."
            return self._sign_in_form(request, 403, error=error, then=next_place(form))
        return await self._begin(user, next_place(form))

    async def _sign_out(self, request: Request) -> Response:
        session = request.cookies.get(COOKIE)
        if session is not None:
            await run_in_threadpool(self._console.sessions.end, session)
        answer = RedirectResponse("/sign-in?signed-out=1", status_code=303)
        answer.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="lax")
        return answer


def _no_role(user: User) -> str:
    groups = ", ".join(sorted(user.groups)[:20]) or "none"
    return (
        f"You are {user.name}, but none of your groups ({groups}) has a role here: an administrator names "
        "one in the setting console.groups."
    )
