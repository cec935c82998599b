"""Pseudonymisation of a route's calls: which are read, by whom, for how long, and what where that fails."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import Protocol

from proxy.clients.credentials import RawFields
from proxy.heads import value_of
from proxy.inline.answers import CallSurrogates
from proxy.inline.bedrock import ConverseRequest, InvokeRequest
from proxy.inline.dialects import GeminiRequest, MessagesRequest, OllamaRequest
from proxy.inline.heads import HeadTexts, head_texts
from proxy.inline.lanes import FairLanes
from proxy.inline.openai import ChatRequest, CompletionRequest, ResponsesRequest
from proxy.inline.requests import (
    OTHER,
    BareRequest,
    Path,
    UnreadableRequestError,
    WireRequest,
)
from proxy.inline.restorer import IssuedSurrogates
from proxy.responses import Reason
from proxy.telemetry.counters import Counters
from trajectory.surrogate import PseudonymisedText, scope_key

REQUESTS: tuple[type[WireRequest], ...] = (
    ChatRequest,
    CompletionRequest,
    ResponsesRequest,
    MessagesRequest,
    GeminiRequest,
    OllamaRequest,
    ConverseRequest,
    InvokeRequest,
)
"""In the order in which their paths are asked."""
_HEAD, _BODY = '{"head":', ',"body":'
_NOTHING_SAID = frozenset({b"GET", b"HEAD", b"OPTIONS", b"DELETE"})
"""Methods of requests without a body."""


class WirePseudonymizer(Protocol):
    """Puts surrogates into requests. It may take long, and is never asked twice at once."""

    def pseudonymise(
        self,
        body: str,
        place: Callable[[Path, str, str], Path | None],
        said: Sequence[tuple[Path, str]],
        *,
        tenant: str,
        key: bytes,
        seconds: float,
    ) -> PseudonymisedText:
        """Return a JSON body as its provider may see it; raise where it cannot vouch for that.

        Args:
            body: valid JSON.
            place: where redaction at rest would see a literal; None where it is the protocol's.
            said: the conversation's texts in order, each with its place in the body.
            tenant: whose request it is.
            key: the key of its scope.
            seconds: how long it may take.
        """
        ...


@dataclass(frozen=True, slots=True)
class InlineTerms:
    """What policy says of pseudonymisation on the wire."""

    routes: tuple[str, ...]
    pseudonymizers: tuple[WirePseudonymizer, ...]
    """All alike; as many requests are looked into at once."""
    key: bytes
    """From which the keys of scopes are made."""
    scope: str = "conversation"
    """conversation | day | tenant"""
    to: frozenset[str] = frozenset()
    """``tool:NAME`` for each tool that may have values; ``tool:*`` for all."""
    passes: bool = False
    """What cannot be read, or in time, goes on as it is; else it is refused."""
    seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class PseudonymisedCall:
    """A request as it goes upstream, and what brings its answer back."""

    body: bytes
    head: HeadTexts | None
    """What its query and its headers say; None where nothing of it has changed."""
    surrogates: CallSurrogates
    subjects: tuple[str, ...]
    """Whom the surrogates name."""
    end_user: str | None
    """The id of its end user, where surrogates have taken it from the body; consent goes by it."""


class UnpseudonymisedError(Exception):
    """A request must not go upstream."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class RouteInline:
    """Pseudonymisation on the routes that policy names; tenants take turns."""

    def __init__(self, terms: InlineTerms, counters: Counters) -> None:
        self._terms = terms
        self._counters = counters
        self._lanes = FairLanes(terms.pseudonymizers)

    def close(self) -> None:
        """Let go of the threads."""
        self._lanes.close()

    def takes(
        self, route: str, method: bytes, path: bytes, fields: RawFields, asked: RawFields
    ) -> type[WireRequest] | None:
        """Return how a request is read; None where it goes on as it is.

        Raises:
            UnpseudonymisedError: it cannot be read, and must not go on.
        """
        length = value_of(fields, b"content-length") or b"0"
        chunked = value_of(fields, b"transfer-encoding") is not None
        upgrade = value_of(fields, b"upgrade") is not None
        if method in _NOTHING_SAID and length == b"0" and not chunked and not upgrade:
            return None if head_texts(path, fields, asked) is None else BareRequest
        kind = (value_of(fields, b"content-type") or b"").partition(b";")[0].strip().lower()
        encoding = (value_of(fields, b"content-encoding") or b"identity").strip().lower()
        bare = path.partition(b"?")[0]
        is_json = method == b"POST" and kind == b"application/json" and encoding == b"identity"
        if is_json and b"/threads/" not in bare:  # OpenAI's threads have messages too
            for request in REQUESTS:
                if bare.endswith(request.ends):
                    return request
        self._failed(route, "unreadable", Reason.UNREADABLE)
        return None

    async def pseudonymise(
        self,
        route: str,
        read: type[WireRequest],
        body: bytes,
        *,
        head: HeadTexts | None,
        tenant: str,
        session: bytes | None,
    ) -> PseudonymisedCall | None:
        """Return a request with surrogates in it; None where it goes on as it is.

        Raises:
            UnpseudonymisedError: it must not go on.
        """
        terms, began = self._terms, time.monotonic()

        def work(by: WirePseudonymizer) -> tuple[WireRequest, PseudonymisedText, HeadTexts | None]:
            left = began + terms.seconds - time.monotonic()
            return self._work(by, read, body, head, tenant, session, left)

        try:
            request, told, says = await asyncio.wait_for(
                self._lanes.run(tenant, len(body), work), terms.seconds
            )
        except TimeoutError:
            self._failed(route, "slow", Reason.NOT_PSEUDONYMISED)
            return None
        except UnreadableRequestError:
            self._failed(route, "unreadable", Reason.UNREADABLE)
            return None
        except Exception:  # noqa: BLE001 - whatever it is, nothing vouches for this body
            self._failed(route, "failed", Reason.NOT_PSEUDONYMISED)
            return None
        counters = self._counters
        counters.inline[route, "replaced" if told.issued else "clean"] += 1
        counters.inline_seconds += time.monotonic() - began
        if not told.issued:
            return None
        counters.inline_surrogates[route, "issued"] += len(told.issued)
        body = told.text.encode()
        surrogates = CallSurrogates(
            request, IssuedSurrogates(told.issued, numbers=told.numbers), terms.to, body
        )
        user = request.end_user()
        hidden = user is not None and any(value in user for value in told.issued.values())
        changed = says if says != head else None
        if read is BareRequest:
            body = b""
        return PseudonymisedCall(body, changed, surrogates, told.subjects, user if hidden else None)

    def _work(
        self,
        by: WirePseudonymizer,
        read: type[WireRequest],
        body: bytes,
        head: HeadTexts | None,
        tenant: str,
        session: bytes | None,
        seconds: float,
    ) -> tuple[WireRequest, PseudonymisedText, HeadTexts | None]:
        """Look into a request; called in a thread. What its head says is part of it."""
        request = read(body)
        key = scope_key(self._terms.key, tenant, *self._scope(request, session))
        put = partial(by.pseudonymise, tenant=tenant, key=key, seconds=seconds)
        if head is None:
            told = put(request.text, request.place, request.said())
            return request, told, None

        def place(path: Path, kind: str, said: str) -> Path | None:
            if path[0] == "body" and len(path) > 1:
                return request.place(path[1:], kind, said)
            named = path[0] == "head" and kind == "string"
            return OTHER + path[2:] if named else None

        whole = f"{_HEAD}{head.written()}{_BODY}{request.text}}}"
        said = [(("body", *path) if path else path, text) for path, text in request.said()]
        told = put(whole, place, said)
        values, end = json.JSONDecoder().raw_decode(told.text, len(_HEAD))
        return request, told._replace(text=told.text[end + len(_BODY) : -1]), head.told(values)

    def _scope(self, request: WireRequest, session: bytes | None) -> tuple[str, ...]:
        """Return what narrows a tenant's scope down; every process that is asked says the same."""
        match self._terms.scope:
            case "day":
                return "day", datetime.now(UTC).date().isoformat()
            case "conversation" if session is not None:
                return "session", session.decode("latin-1")
            case "conversation":
                beginning = request.beginning().encode("utf-8", "surrogatepass")
                return "beginning", blake2b(beginning, digest_size=16).hexdigest()
        return ("tenant",)

    def _failed(self, route: str, what: str, reason: Reason) -> None:
        """Count a request that could not be looked into; let it pass where policy says so."""
        terms = self._terms
        self._counters.inline[route, f"{what}_{'passed' if terms.passes else 'refused'}"] += 1
        if not terms.passes:
            raise UnpseudonymisedError(reason)

    def returned(self, route: str, surrogates: CallSurrogates) -> None:
        """Count what an answer brought back."""
        counted = self._counters.inline_surrogates
        for what in ("restored", "withheld", "unknown"):
            if number := getattr(surrogates, what):
                counted[route, what] += number
