"""Pseudonymisation of a route's calls: which are read, by whom, for how long, and what where that fails."""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import NamedTuple, Protocol

from proxy.clients.credentials import RawFields
from proxy.heads import value_of
from proxy.inline.answers import CallSurrogates, Receivers
from proxy.inline.batches import BatchRequest, MessageBatchRequest
from proxy.inline.bedrock import ConverseRequest, InvokeRequest
from proxy.inline.dialects import GeminiRequest, MessagesRequest, OllamaRequest
from proxy.inline.files import FileRequest, boundary_of
from proxy.inline.heads import HeadTexts, head_texts
from proxy.inline.keeper import HistoryKeeper
from proxy.inline.kept_histories import (
    HistoryOwner,
    KeptHistories,
    KeptHistory,
    SurrogateConflictError,
)
from proxy.inline.kept_objects import KeptObject, is_within, kept_object
from proxy.inline.lanes import FairLanes
from proxy.inline.openai import (
    ChatRequest,
    CompletionRequest,
    ConversationRequest,
    ResponsesRequest,
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
from trajectory.errors import IntegrityError
from trajectory.exchange import Headers
from trajectory.surrogate import PseudonymisedText, scope_key

_log = logging.getLogger(__name__)

REQUESTS: tuple[type[WireRequest], ...] = (
    ChatRequest,
    CompletionRequest,
    ResponsesRequest,
    ConversationRequest,
    MessageBatchRequest,
    BatchRequest,
    MessagesRequest,
    GeminiRequest,
    OllamaRequest,
    ConverseRequest,
    InvokeRequest,
)
"""In the order in which their paths are asked."""
type Reads = Callable[[bytes], WireRequest]
"""Takes the body of a request, and returns it as it is read."""
_ATTEMPTS = 3
"""Times that a request is looked into, where others add to its conversation meanwhile."""
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
        people: Sequence[str],
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
            people: ids of who uses the application: whom the text concerns, too.
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
    to: Receivers = field(default_factory=dict)
    """The tools that may have values, and of which types."""
    passes: bool = False
    """What cannot be read, or in time, goes on as it is; else it is refused."""
    seconds: float = 5.0
    histories: KeptHistories | None = None
    """What surrogates stand for in what the provider keeps; None where nothing is kept."""


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
    """The id of its end user, where surrogates have taken it from the request; consent goes by it."""


class _Told(NamedTuple):
    """A request that was looked into."""

    request: WireRequest
    text: PseudonymisedText
    head: HeadTexts | None
    before: KeptHistory
    """What was known of its conversation; its scope is that of this request."""
    keep: HistoryKeeper | None
    """What keeps it for others; None where nothing is kept."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing in it was replaced."""
        return self.text.text == self.request.text


def _joined(told: PseudonymisedText, before: KeptHistory) -> PseudonymisedText:
    """Return a text that has what was issued before it, too."""
    subjects = dict.fromkeys((*before.subjects, *told.subjects))
    return told._replace(
        entities={**told.entities, **before.entities},
        numbers=told.numbers.union(before.numbers),
        subjects=tuple(subjects),
    )


class _UnknownHistoryError(Exception):
    """A request goes on with something that its provider keeps and that is not known here."""


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
        self._problem = ""
        """The damage that was told last."""

    def close(self) -> None:
        """Let go of the threads, and of what they read."""
        self._lanes.close()
        if self._terms.histories is not None:
            self._terms.histories.close()

    def takes(
        self, route: str, method: bytes, path: bytes, fields: RawFields, asked: RawFields
    ) -> Reads | None:
        """Return how a request is read; None where it goes on as it is.

        Raises:
            UnpseudonymisedError: it cannot be read, and must not go on.
        """
        length = value_of(fields, b"content-length") or b"0"
        chunked = value_of(fields, b"transfer-encoding") is not None
        upgrade = (value_of(fields, b"upgrade") or b"").lower()
        can_be_read = not upgrade or is_for_responses(path, upgrade)
        about = kept_object(method, path)
        says_nothing = method in _NOTHING_SAID or about is not None
        if says_nothing and length == b"0" and not chunked and can_be_read:
            if about is None and head_texts(path, fields, asked) is None:
                return None
            return BareRequest
        kind = (value_of(fields, b"content-type") or b"").partition(b";")[0].strip().lower()
        encoding = (value_of(fields, b"content-encoding") or b"identity").strip().lower()
        bare = path.partition(b"?")[0]
        may_be_read = method == b"POST" and encoding == b"identity" and not is_within(bare)
        if may_be_read and kind == b"multipart/form-data" and bare.endswith(FileRequest.ends):
            whole = value_of(fields, b"content-type") or b""
            return partial(FileRequest, boundary=boundary_of(whole))
        if may_be_read and kind == b"application/json":
            if about is not None and about.kind == "conversations":
                return ConversationRequest
            for request in REQUESTS:
                if bare.endswith(request.ends):
                    return request
        self._failed(route, "unreadable", Reason.UNREADABLE)
        return None

    async def pseudonymise(
        self,
        read: Reads,
        body: bytes,
        *,
        head: HeadTexts | None,
        owner: HistoryOwner,
        session: bytes | None,
        about: KeptObject | None = None,
        headers: Headers = (),
    ) -> PseudonymisedCall | None:
        """Return a request with surrogates in it; None where it goes on as it is.

        Args:
            read: how it is read.
            body: all of it.
            head: what its query and its headers say.
            owner: whose it is.
            session: that its client names.
            about: what its path names of what the provider keeps.
            headers: that may name its end user, as its client sent them.

        Raises:
            UnpseudonymisedError: it must not go on.
        """
        terms, began = self._terms, time.monotonic()
        inner: list[_Told] = []
        try:
            looked = await self._looked(read, body, head, owner, session, headers, about)
            requests = secrets.token_hex(16) if looked.request.inner else ""
            for at, one in enumerate(looked.request.inner):
                then = partial(self._keep_request, owner, requests, at)
                inner.append(
                    await self._looked(one.read, one.raw, None, owner, session, headers, None, then)
                )
        except TimeoutError:
            self._failed(owner.route, "slow", Reason.NOT_PSEUDONYMISED)
            return None
        except UnreadableRequestError:
            self._failed(owner.route, "unreadable", Reason.UNREADABLE)
            return None
        except _UnknownHistoryError:
            self._failed(owner.route, "unknown_response", Reason.UNKNOWN_RESPONSE)
            return None
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing vouches for this body
            self._tell(error)
            self._failed(owner.route, "failed", Reason.NOT_PSEUDONYMISED)
            return None
        request, told, says, before, keep = looked
        counters = self._counters
        issued = sum(len(one.text.issued) - len(one.before.values) for one in (looked, *inner))
        changed = says if says != head else None
        is_clean = changed is None and all(one.is_clean for one in (looked, *inner))
        counters.inline[owner.route, "clean" if is_clean else "replaced"] += 1
        counters.inline_seconds += time.monotonic() - began
        if not told.issued and keep is None:
            return None
        if issued:
            counters.inline_surrogates[owner.route, "issued"] += issued
        body = request.written(told.text, [one.text.text.encode() for one in inner])
        if keep is not None:
            keep.requests = requests
        surrogates = CallSurrogates(
            request,
            IssuedSurrogates(told.issued, numbers=told.numbers, entities=told.entities),
            terms.to,
            body,
            earned=before.earned,
            keep=keep,
            inner=None if keep is None else keep.inner_of(terms.to),
        )
        user = next(iter(request.people(headers)), None)
        hidden = user is not None and any(
            value in user or user in value for value in told.issued.values()
        )
        named = dict.fromkeys(name for one in (looked, *inner) for name in one.text.subjects)
        subjects = tuple(named) if told.issued or issued else None
        return PseudonymisedCall(body, changed, surrogates, subjects, user if hidden else None)

    async def _looked(
        self,
        read: Reads,
        body: bytes,
        head: HeadTexts | None,
        owner: HistoryOwner,
        session: bytes | None,
        headers: Headers,
        about: KeptObject | None,
        then: Callable[[_Told], None] | None = None,
    ) -> _Told:
        """Return a request that was looked into, once it was its turn; ``then`` is done in the thread."""
        seconds, began = self._terms.seconds, time.monotonic()

        def work(by: WirePseudonymizer) -> _Told:
            left = began + seconds - time.monotonic()
            for _ in range(_ATTEMPTS):
                request = read(body)
                request.about = about
                before = self._before(request, owner, session)
                looked = self._work(by, request, head, owner, headers, before, left)
                try:
                    if looked.keep is not None and not looked.keep.sends():
                        raise _UnknownHistoryError
                except SurrogateConflictError:
                    continue
                if then is not None:
                    then(looked)
                return looked
            raise SurrogateConflictError

        return await asyncio.wait_for(self._lanes.run(owner.tenant, len(body), work), seconds)

    def _keep_request(self, owner: HistoryOwner, requests: str, at: int, looked: _Told) -> None:
        """Keep what a request within another one got, before they are sent."""
        request, told, terms = looked.request, looked.text, self._terms
        if terms.histories is None or not told.issued:
            return
        surrogates = CallSurrogates(
            request,
            IssuedSurrogates(told.issued, numbers=told.numbers, entities=told.entities),
            terms.to,
            told.text.encode(),
            earned=looked.before.earned,
        )
        keeper = self._keeper_of(terms.histories, owner, request, told, looked.before)
        keeper.keep_request(f"{requests}/{request.named(told.text) or at}", surrogates)

    def _work(
        self,
        by: WirePseudonymizer,
        request: WireRequest,
        head: HeadTexts | None,
        owner: HistoryOwner,
        headers: Headers,
        before: KeptHistory,
        seconds: float,
    ) -> _Told:
        """Look into a request; called in a thread. What its head says is part of it."""
        request.calls = before.calls
        key, tenant = scope_key(self._terms.key, owner.tenant, *before.scope), owner.tenant
        put = partial(
            by.pseudonymise,
            tenant=tenant,
            key=key,
            seconds=seconds,
            known=before.values,
            people=request.people(headers),
        )
        said = request.said()
        if before.asked:
            said = [((), before.asked), *said]
        if head is None:
            told = _joined(put(request.text, request.place, said), before)
            return _Told(request, told, None, before, self._keeper(owner, request, told, before))

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
        keep = self._keeper(owner, request, told, before)
        return _Told(request, told, head.told(values), before, keep)

    def _keeper(
        self,
        owner: HistoryOwner,
        request: WireRequest,
        told: PseudonymisedText,
        before: KeptHistory,
    ) -> HistoryKeeper | None:
        """Return what keeps a request's history; None where nobody can go on from its answer."""
        histories = self._terms.histories
        if histories is None or not request.is_kept():
            return None
        return self._keeper_of(histories, owner, request, told, before)

    def _keeper_of(
        self,
        histories: KeptHistories,
        owner: HistoryOwner,
        request: WireRequest,
        told: PseudonymisedText,
        before: KeptHistory,
    ) -> HistoryKeeper:
        def lost(error: Exception) -> None:
            self._tell(error)
            self._counters.inline[owner.route, "history_lost"] += 1

        return HistoryKeeper(histories, owner, request, told, before, lost)

    def _before(
        self, request: WireRequest, owner: HistoryOwner, session: bytes | None
    ) -> KeptHistory:
        """Return what is known of a request's conversation, and the scope of its surrogates.

        Raises:
            _UnknownHistoryError: it goes on with something that is not known.
        """
        histories, named = self._terms.histories, request.goes_on_from()
        if histories is None and isinstance(request, FileRequest | MessageBatchRequest):
            raise UnreadableRequestError  # nobody could restore what comes of it
        before = None if histories is None or named is None else histories.find(owner, named)
        if isinstance(request, BareRequest):
            request.before = before
        elif named is not None and before is None:
            raise _UnknownHistoryError
        if before is None:  # one that asks, and says nothing, has an answer that goes on as it is
            before = KeptHistory(self._scope(request, session))
        elif self._terms.scope != "conversation":
            before = replace(before, scope=self._scope(request, session))
        for named in request.uses():
            file = None if histories is None else histories.find(owner, named)
            if file is not None:
                before = before.with_file(file)
        return before

    def _scope(self, request: WireRequest, session: bytes | None) -> tuple[str, ...]:
        """Return what narrows a tenant's scope down; every process that is asked says the same."""
        match self._terms.scope:
            case "day":
                return "day", datetime.now(UTC).date().isoformat()
            case "conversation" if session is not None:
                return "session", session.decode("latin-1")
            case "conversation":
                beginning = request.beginning().encode("utf-8", "surrogatepass")
                if isinstance(request, ConversationRequest) and not beginning:
                    return "conversation", secrets.token_hex(16)  # it begins with nobody's words
                return "beginning", blake2b(beginning, digest_size=16).hexdigest()
        return ("tenant",)

    def _tell(self, error: Exception) -> None:
        """Say once in the log which file is damaged; the text of any other error may hold content."""
        if isinstance(error, IntegrityError) and str(error) != self._problem:
            self._problem = str(error)
            _log.error("%s", error)

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
