"""What holds for each request before a page is asked: its host, where it comes from, how often, and the answer's headers."""

import time
from collections import OrderedDict
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.console.assets import FOLDER, script_sources
from proxy.config.gateway import LOOPBACK_HOSTS

_SAFE = frozenset({"GET", "HEAD"})
_POLICY = (
    # A script runs that is one of ours, byte for byte: neither where it lies nor who names it counts.
    "default-src 'none'; script-src {scripts}; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types headrace"
)
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_MOST_NAMES = 10_000


class RateLimit:
    """Counts what each name did of late; a name that rested has its whole share again."""

    def __init__(
        self, count: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._share = count
        self._per_second = count / seconds
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, name: str) -> bool:
        """Take one from a name's share; False where nothing is left of it."""
        now = self._clock()
        left, at = self._left.pop(name, (float(self._share), now))
        left = min(self._share, left + (now - at) * self._per_second)
        allowed = left >= 1
        self._left[name] = (left - 1 if allowed else left, now)
        if len(self._left) > _MOST_NAMES:
            self._left.popitem(last=False)
        return allowed


class Guard:
    """Stands before the whole application: a page that it does not know of has its headers too."""

    def __init__(self, app: ASGIApp, *, url: str) -> None:
        """Guard an application that browsers reach at ``url``; empty: on this machine alone."""
        self._app = app
        self._url = url
        self._name = urlsplit(url).netloc.lower()
        policy = _POLICY.format(scripts=script_sources())
        self._headers = {"content-security-policy": policy, **_HEADERS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        why = self._refusal(scope["method"], Headers(scope=scope))
        app = self._app if why is None else PlainTextResponse(why, status_code=403)
        is_named_by_hash = scope["path"].startswith(FOLDER) and scope["query_string"]

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self._headers)
                lasts = is_named_by_hash and message["status"] == HTTPStatus.OK
                kept = "public, max-age=31536000, immutable" if lasts else "no-store"
                headers.setdefault("cache-control", kept)
            await send(message)

        await app(scope, receive, guarded)

    def _refusal(self, method: str, headers: Headers) -> str | None:
        host = headers.get("host", "").lower()
        if not (host and host == self._name) and _without_port(host) not in LOOPBACK_HOSTS:
            return "The console does not answer to this name; see the setting console.url."
        if method in _SAFE:
            return None
        site = headers.get("sec-fetch-site")
        if site is None:
            origin = headers.get("origin", "")
            own = {self._url} if self._url else {f"http://{host}", f"https://{host}"}
            site = "same-origin" if origin in own else "cross-site"
        if site != "same-origin":
            return "This was sent from another page; the console takes it from its own alone."
        return None


def _without_port(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
