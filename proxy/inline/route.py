"""Pseudonymisation of a route's calls: which are read, by whom, for how long, and what where that fails."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from proxy.clients.credentials import RawFields
from proxy.heads import value_of
from proxy.inline.answers import CallSurrogates
from proxy.inline.bedrock import ConverseRequest, InvokeRequest
from proxy.inline.dialects import GeminiRequest, MessagesRequest, OllamaRequest
from proxy.inline.heads import HeadTexts, head_texts
from proxy.inline.kept_histories import HistoryOwner, KeptHistories, KeptHistory
from proxy.inline.lanes import FairLanes
from proxy.inline.openai import (
    ChatRequest,
    CompletionRequest,
    ResponsesRequest,
    calls_and_end,
    looked_up,
)
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


def is_for_responses(path: bytes, upgrade: bytes) -> bool:
    """Tell whether a connection becomes a WebSocket on which responses are asked for."""
    bare = path.partition(b"?")[0]
    return upgrade.lower() == b"websocket" and bare.endswith(ResponsesRequest.ends)


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
        known: Mapping[str, str],
    ) -> PseudonymisedText:
        """Return a JSON body as its provider may see it; raise where it cannot vouch for that.

        Args:
            body: valid JSON.
            place: where redaction at rest would see a literal; None where it is the protocol's.
            said: the conversation's texts in order, each with its place in the body.
            tenant: whose request it is.
            key: the key of its scope.
            seconds: how long it may take.
            known: surrogates that the conversation got before, and what they stand for.
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
    histories: KeptHistories | None = None
    """What surrogates stand for in responses that the provider keeps; None where nothing is kept."""


@dataclass(frozen=True, slots=True)
class PseudonymisedCall:
    """A request as it goes upstream, and what brings its answer back."""

    body: bytes
    head: HeadTexts | None
    """What its query and its headers say; None where nothing of it has changed."""
    surrogates: CallSurrogates
    subjects: tuple[str, ...] | None
    """Whom the surrogates name; None where it has none."""
    end_user: str | None
    """The id of its end user, where surrogates have taken it from the body; consent goes by it."""


class _Told(NamedTuple):
    """A request that was looked into."""

    request: WireRequest
    text: PseudonymisedText
    head: HeadTexts | None
    before: KeptHistory
    """What was known of its conversation; its scope is that of this request."""


def _joined(told: PseudonymisedText, before: KeptHistory) -> PseudonymisedText:
    """Return a text that has what was issued before it, too."""
    subjects = dict.fromkeys((*before.subjects, *told.subjects))
    return told._replace(numbers=told.numbers.union(before.numbers), subjects=tuple(subjects))


class _UnknownResponseError(Exception):
    """A request goes on from a response that is not known."""


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
        """Let go of the threads, and of what they read."""
        self._lanes.close()
        if self._terms.histories is not None:
            self._terms.histories.close()

    def takes(
        self, route: str, method: bytes, path: bytes, fields: RawFields, asked: RawFields
    ) -> type[WireRequest] | None:
        """Return how a request is read; None where it goes on as it is.

        Raises:
            UnpseudonymisedError: it cannot be read, and must not go on.
        """
        length = value_of(fields, b"content-length") or b"0"
        chunked = value_of(fields, b"transfer-encoding") is not None
        upgrade = (value_of(fields, b"upgrade") or b"").lower()
        can_be_read = not upgrade or is_for_responses(path, upgrade)
        about = looked_up(method, path)
        says_nothing = method in _NOTHING_SAID or about is not None
        if says_nothing and length == b"0" and not chunked and can_be_read:
            if about is None and head_texts(path, fields, asked) is None:
                return None
            return BareRequest
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
        read: type[WireRequest],
        body: bytes,
        *,
        head: HeadTexts | None,
        owner: HistoryOwner,
        session: bytes | None,
        about: str | None = None,
    ) -> PseudonymisedCall | None:
        """Return a request with surrogates in it; None where it goes on as it is.

        Args:
            read: how it is read.
            body: all of it.
            head: what its query and its headers say.
            owner: whose it is.
            session: that its client names.
            about: the response that it looks up.

        Raises:
            UnpseudonymisedError: it must not go on.
        """
        terms, began = self._terms, time.monotonic()

        def work(by: WirePseudonymizer) -> _Told:
            left = began + terms.seconds - time.monotonic()
            request = read(body)
            if isinstance(request, BareRequest):
                request.about = about
            before = self._before(request, owner, session)
            return self._work(by, request, head, owner.tenant, before, left)

        try:
            looked = await asyncio.wait_for(
                self._lanes.run(owner.tenant, len(body), work), terms.seconds
            )
        except TimeoutError:
            self._failed(owner.route, "slow", Reason.NOT_PSEUDONYMISED)
            return None
        except UnreadableRequestError:
            self._failed(owner.route, "unreadable", Reason.UNREADABLE)
            return None
        except _UnknownResponseError:
            self._failed(owner.route, "unknown_response", Reason.UNKNOWN_RESPONSE)
            return None
        except Exception:  # noqa: BLE001 - whatever it is, nothing vouches for this body
            self._failed(owner.route, "failed", Reason.NOT_PSEUDONYMISED)
            return None
        request, told, says, before = looked
        counters, issued = self._counters, len(told.issued) - len(before.values)
        changed = says if says != head else None
        is_clean = changed is None and told.text == request.text
        counters.inline[owner.route, "clean" if is_clean else "replaced"] += 1
        counters.inline_seconds += time.monotonic() - began
        keep = self._keeper(owner, looked) if request.is_kept() else None
        if not told.issued and keep is None:
            return None
        if issued:
            counters.inline_surrogates[owner.route, "issued"] += issued
        body = told.text.encode()
        surrogates = CallSurrogates(
            request,
            IssuedSurrogates(told.issued, numbers=told.numbers),
            terms.to,
            body,
            earned=before.earned,
            keep=keep,
        )
        user = request.end_user()
        hidden = user is not None and any(value in user for value in told.issued.values())
        if read is BareRequest:
            body = b""
        subjects = told.subjects if told.issued else None
        return PseudonymisedCall(body, changed, surrogates, subjects, user if hidden else None)

    def _work(
        self,
        by: WirePseudonymizer,
        request: WireRequest,
        head: HeadTexts | None,
        tenant: str,
        before: KeptHistory,
        seconds: float,
    ) -> _Told:
        """Look into a request; called in a thread. What its head says is part of it."""
        request.calls = before.calls
        key = scope_key(self._terms.key, tenant, *before.scope)
        put = partial(by.pseudonymise, tenant=tenant, key=key, seconds=seconds, known=before.values)
        said = request.said()
        if before.asked:
            said = [((), before.asked), *said]
        if head is None:
            return _Told(
                request, _joined(put(request.text, request.place, said), before), None, before
            )

        def place(path: Path, kind: str, said: str) -> Path | None:
            if path[0] == "body" and len(path) > 1:
                return request.place(path[1:], kind, said)
            named = path[0] == "head" and kind == "string"
            return OTHER + path[2:] if named else None

        whole = f"{_HEAD}{head.written()}{_BODY}{request.text}}}"
        said = [(("body", *path) if path else path, text) for path, text in said]
        told = _joined(put(whole, place, said), before)
        values, end = json.JSONDecoder().raw_decode(told.text, len(_HEAD))
        told = told._replace(text=told.text[end + len(_BODY) : -1])
        return _Told(request, told, head.told(values), before)

    def _before(
        self, request: WireRequest, owner: HistoryOwner, session: bytes | None
    ) -> KeptHistory:
        """Return what is known of a request's conversation, and the scope of its surrogates.

        Raises:
            _UnknownResponseError: it goes on from a response that is not known.
        """
        histories, named = self._terms.histories, request.goes_on_from()
        if named is None:
            return KeptHistory(self._scope(request, session))
        before = None if histories is None else histories.find(owner, named)
        if isinstance(request, BareRequest):
            request.before = before
        elif before is None:
            raise _UnknownResponseError
        if before is None:  # it asks, and says nothing; its answer goes on as it is
            return KeptHistory(self._scope(request, session))
        if self._terms.scope == "conversation":
            return before
        return replace(before, scope=self._scope(request, session))

    def _keeper(
        self, owner: HistoryOwner, looked: _Told
    ) -> Callable[[CallSurrogates, dict[str, Any]], None] | None:
        """Return what keeps the history of a call's response; None where nothing is kept."""
        histories = self._terms.histories
        if histories is None:
            return None
        told, before, in_json = looked.text, looked.before, looked.request.wants_json()
        # Who looks a response up makes nothing last longer, but for what it says that is new.
        kept = before if isinstance(looked.request, BareRequest) else None

        def keep(surrogates: CallSurrogates, response: dict[str, Any]) -> None:
            nonlocal kept
            if not isinstance(response.get("id"), str):
                return
            calls, asked = calls_and_end(response)
            history = KeptHistory(
                scope=before.scope,
                values=told.issued,
                numbers=tuple(sorted(told.numbers)),
                subjects=told.subjects,
                earned=surrogates.earned(),
                calls={**before.calls, **calls},
                asked=asked,
                in_json=in_json,
            )
            if history == kept:
                return
            try:
                histories.keep(owner, response["id"], history)
            except (OSError, sqlite3.Error):  # the answer goes on; who goes on from it is refused
                self._counters.inline[owner.route, "history_lost"] += 1
            kept = history

        return keep

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
