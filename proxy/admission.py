"""Admission: who calls, where a request goes, whether it may pass, and how much of it is captured."""

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from proxy.clients.credentials import Fingerprints, RawFields, holds_client_key, presented_key
from proxy.clients.keys import KeyLimits, KeyRegistry
from proxy.clients.limits import Budgets, session_of
from proxy.clients.paid_calls import is_paid_later
from proxy.clients.session_keys import ClientSession, SessionKeys
from proxy.heads import WISHES, HeadTemplate, capture_wish, names, place_of, with_values
from proxy.responses import Reason
from proxy.routes.model_versions import ServedModel, Version, can_name
from proxy.routes.paths import climbs
from proxy.routes.pins import trajectory_name
from proxy.routes.route import Level, PreparedRoute
from proxy.routes.router import Router
from proxy.routes.target import Target
from proxy.routes.upstream_request import (
    RewrittenHeaders,
    UpstreamRequest,
    take_session,
    without_client_keys,
)
from proxy.spool.states import SpoolState
from proxy.spool.writer import SpoolWriter
from proxy.telemetry.counters import Counters
from trajectory.dialects.errors import Shape, shape_of
from trajectory.exchange import ClientIdentity, has_folder

type Mode = Literal["base_url", "forward", "transparent"]


class RequestRefusal(Exception):  # noqa: N818 - not an error of ours: the client's request is refused
    """The request is answered by the gateway itself."""

    def __init__(
        self,
        reason: Reason,
        *,
        client: ClientIdentity | None = None,
        plan: PreparedRoute | None = None,
        retry_after: int = 1,
        shape: Shape = Shape.OPENAI,
    ) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.shape = shape
        self.client = client
        self.plan = plan
        self.retry_after = retry_after


class AdmittedRequest(NamedTuple):
    """Result of the admission of a request."""

    client: ClientIdentity
    plan: PreparedRoute
    mode: Mode
    rewritten: RewrittenHeaders
    path: bytes
    origin: tuple[bytes, str, int]
    """Scheme, host and port of where it goes."""
    asked: RawFields
    """Headers of the request as its client sent them."""
    session: bytes | None = None
    """As the URL names it."""
    served: Version | None = None
    """The registered version that is named in the request's body."""
    arm: str = ""
    """The arm of its session, where a version of the route's model is on its canary."""
    pointing: UpstreamRequest | None = None
    """How it is pointed at one of several upstreams."""
    wishes: bool = True
    """Whether its client may wish less than a full capture: false where no header says so."""
    debug: bool = False
    """Its client asks which listener served it."""
    standing: "Standing | None" = None
    """The admission that it repeats."""
    values: Sequence[bytes] = ()
    """What changes in its head, where it repeats one."""

    @property
    def shape(self) -> Shape:
        """In which its errors are answered."""
        return shape_of(self.plan.shape, self.plan.kind, self.path, names(self.asked))

    def refusal(self, reason: Reason, *, retry_after: int = 1) -> RequestRefusal:
        """Return its refusal, for what shows only after its admission."""
        return RequestRefusal(
            reason,
            client=self.client,
            plan=self.plan,
            retry_after=retry_after,
            shape=self.shape,
        )


class Standing:
    """An admission that counts again for the same head, while what it rests on is the same."""

    __slots__ = ("admitted", "credential", "generation", "kept_at", "recorded", "sent_at", "target")

    def __init__(
        self,
        admitted: AdmittedRequest,
        generation: int,
        target: Target,
        changing: Sequence[bytes],
    ) -> None:
        """Begin.

        Args:
            admitted: what is to count again.
            generation: of the client keys.
            target: where it goes.
            changing: names of the headers whose values may be others each time, in their order.
        """
        self.admitted = admitted
        self.generation = generation
        self.target = target
        self.credential = target.credential
        """Of the route, at that time."""
        self.sent_at = _places(admitted.rewritten.sent, changing)
        self.kept_at = _places(admitted.rewritten.kept, changing)
        """Where these stand among the headers."""
        self.recorded: HeadTemplate | None = None
        """The record of its head, once one was made."""


def _places(fields: RawFields, names: Sequence[bytes]) -> tuple[int, ...]:
    return tuple([place_of(fields, name) for name in names])


_EVERYTHING = Level.FULL, ""
REFLECTED = frozenset({b"TRACE", b"TRACK"})
"""Methods that a server answers with the request itself, the route's key in it."""
_DEBUG = b"x-headrace-debug"
"""Header of a client that asks for x-headrace-listener."""
_ASKS = WISHES | {_DEBUG}
_ASK_LENGTHS = frozenset(map(len, _ASKS))
"""Most headers have other lengths, and need not be looked at in lower case."""


_KNOWN_PATHS = 512
_KNOWN_PATH_BYTES = 128
"""What paths say is remembered, of so many and so long: that takes 2 of admission's 10 µs away."""


class _Entry(NamedTuple):
    """What a request's path says; routes stay as they are while a gateway runs."""

    plan: PreparedRoute
    rest: bytes
    """Behind the route's prefix, without session and client keys."""
    session: bytes | None
    climbing: bool
    """It leads up, out of what the route's upstreams begin with."""


def _refused(
    reason: Reason, entry: _Entry, fields: RawFields, client: ClientIdentity | None
) -> RequestRefusal:
    """Return the refusal of a request whose route is known."""
    plan = entry.plan
    shape = shape_of(plan.shape, plan.kind, entry.rest, names(fields))
    return RequestRefusal(reason, client=client, plan=plan, shape=shape)


def _header_wishes(fields: RawFields) -> tuple[bool, bool]:
    """Tell whether a client may wish less than a full capture, and whether it asks who served it."""
    asks = [lower for n, _ in fields if len(n) in _ASK_LENGTHS and (lower := n.lower()) in _ASKS]
    return bool(asks) and asks != [_DEBUG], _DEBUG in asks


class AdmissionControl:
    """Decides about requests by their path; what it refuses it raises."""

    def __init__(
        self,
        *,
        router: Router,
        registry: KeyRegistry,
        budgets: Budgets,
        counters: Counters,
        fingerprints: Fingerprints,
        sessions: SessionKeys,
        spool: SpoolWriter | None,
    ) -> None:
        self._router = router
        self._registry = registry
        self._budgets = budgets
        self._counters = counters
        self._fingerprints = fingerprints
        self._spool = spool
        self.sessions = sessions
        self._known_entry = lru_cache(_KNOWN_PATHS)(self._entry)

    def limits_of(self, client: ClientIdentity) -> KeyLimits | None:
        """Return the limits of a client's key."""
        return self._registry.limits.get(client.key_id)

    def limit(self, method: bytes, admitted: AdmittedRequest) -> None:
        """Count a request against the limits of its key.

        Raises:
            RequestRefusal: nothing is left of one, or a budget cannot count what the request orders.
        """
        limits = self._registry.limits.get(admitted.client.key_id)
        if limits is None:
            return
        is_model = admitted.plan.kind == "model"
        if is_model and limits.counts_usage and is_paid_later(method, admitted.path):
            raise admitted.refusal(Reason.UNCOUNTED)
        step = is_model and method == b"POST"
        named = session_of(admitted.rewritten.kept, admitted.session) if step else None
        if step and named is None and limits.steps_per_session is not None:
            self._counters.unlimited["no-session"] += 1
        denial = self._budgets.admit(
            admitted.client.key_id,
            limits,
            session=None if named is None else self._fingerprints.of(named).decode(),
            step=step,
        )
        if denial is not None:
            raise admitted.refusal(denial.reason, retry_after=denial.retry_after)

    def admit_base_url(
        self, method: bytes, path: bytes, fields: RawFields, *, stick: bytes
    ) -> AdmittedRequest:
        """Find client and route of a request by its path; both listeners ask here.

        Args:
            method: of the request.
            path: its target, with the query.
            fields: its headers.
            stick: names the client's connection, which keeps its upstream where no session is named.

        Raises:
            RequestRefusal: there is no key, no route, or nothing left of a limit; or a client key stands in
                the path, which would be kept and go upstream; or the method asks for a reflection.
        """
        if method in REFLECTED:
            raise RequestRefusal(Reason.NO_ROUTE)
        entry = self._read_path(path)
        plan, rest, session, climbing = entry
        presented, header = presented_key(fields)
        client = self._registry.authenticate(presented)
        begun = self._begun(plan, client, presented, session) if plan.session_calls else None
        if begun is not None:
            client, session = begun.client, begun.name
            if method == b"POST":
                self.sessions.note_call(begun)
        if client is None:
            raise _refused(Reason.NO_KEY, entry, fields, None)
        if climbing:
            raise _refused(Reason.NO_ROUTE, entry, fields, client)
        pointing = UpstreamRequest(fields, header, rest, session, begun.task if begun else None)
        if len(plan.targets) != 1:
            stick = session_of(fields, session) or stick
        served, arm = None, ""
        if plan.serving is None:
            target = plan.target(stick)
        else:
            able = can_name(method, fields)
            version = self._version(
                plan.serving, client, fields, session, stick=stick if able else None
            )
            if version is None:
                raise _refused(Reason.NO_MODEL, entry, fields, client)
            target, served = version.target, version if able else None
            arm = plan.serving.arm(stick if able else None)
        rewritten, path = pointing.at(target)
        wishes, debug = _header_wishes(fields)
        admitted = AdmittedRequest(
            client,
            plan,
            "base_url",
            rewritten,
            path,
            target.origin,
            fields,
            session,
            served,
            arm,
            pointing if len(plan.targets) > 1 else None,
            wishes,
            debug,
        )
        self.limit(method, admitted)
        return admitted

    def _begun(
        self,
        plan: PreparedRoute,
        client: ClientIdentity | None,
        presented: str | None,
        session: bytes | None,
    ) -> ClientSession | None:
        """Return the session that a call belongs to, by its key or by its path.

        Raises:
            RequestRefusal: the session was ended.
        """
        if client is None:
            begun = self.sessions.read(presented, plan.name)
        else:
            begun = self.sessions.named(client, session) if session is not None else None
        if begun is not None and self.sessions.ended(begun):
            raise RequestRefusal(Reason.NO_KEY, client=begun.client, plan=plan)
        return begun

    def _version(
        self,
        serving: ServedModel,
        client: ClientIdentity,
        fields: RawFields,
        session: bytes | None,
        *,
        stick: bytes | None,
    ) -> Version | None:
        """Return the version that answers: the one that the request's trajectory keeps, else one drawn.

        Without ``stick`` the request names no version, and none is kept. None where none serves.
        """
        drawn = serving.choose(stick)
        if drawn is None or stick is None or not serving.pins:
            return drawn
        name = trajectory_name(fields, session)
        if name is None:
            return drawn
        scope = b"\0".join((serving.model.encode(), client.tenant_id.encode(), name))
        return serving.keep(self._fingerprints.of(scope), drawn)

    def standing(
        self, admitted: AdmittedRequest, changing: Sequence[bytes] = ()
    ) -> Standing | None:
        """Return an admission that counts for the same head again, but for the values that change.

        None where each call is decided anew: with several upstreams or versions, sessions that end, a secret that
        is about to end, or headers that change on the way.
        """
        plan = admitted.plan
        generation = self._registry.generation_of(admitted.client.key_id)
        if generation is None or plan.serving is not None or len(plan.targets) != 1:
            return None
        if plan.session_calls:
            return None
        standing = Standing(admitted, generation, plan.targets[0], changing)
        if not self._go_on(standing, changing):
            return None
        if standing.credential not in (None, *admitted.rewritten.sent):
            return None  # it was renewed meanwhile
        return standing

    def _go_on(self, standing: Standing, changing: Sequence[bytes]) -> bool:
        """Tell whether the values that change go upstream and into the spool as they came."""
        asked = standing.admitted.asked
        values = [asked[place_of(asked, name)][1] for name in changing]
        for fields, places in (
            (standing.admitted.rewritten.sent, standing.sent_at),
            (standing.admitted.rewritten.kept, standing.kept_at),
        ):
            if -1 in places or [*places] != sorted(places):
                return False
            if [fields[place][1] for place in places] != values:
                return False
        return not any(map(self._fingerprints.is_secret, changing))

    def again(
        self, standing: Standing, method: bytes, fields: RawFields, values: Sequence[bytes]
    ) -> AdmittedRequest | None:
        """Admit a request whose head says what was admitted before, but for some values.

        Args:
            standing: the admission before.
            method: of the request.
            fields: its headers.
            values: what changes in them.

        Returns:
            None where it must be decided anew.

        Raises:
            RequestRefusal: nothing is left of a limit.
        """
        if (
            self._registry.generation() != standing.generation
            or standing.target.credential != standing.credential
        ):
            return None
        before = standing.admitted
        if fields is before.asked and before.standing is not None:
            admitted = before
        else:
            sent, kept = before.rewritten
            rewritten = RewrittenHeaders(
                with_values(sent, standing.sent_at, values),
                with_values(kept, standing.kept_at, values),
            )
            # Not by _replace, which takes three times as long.
            standing.admitted = admitted = AdmittedRequest(
                before.client,
                before.plan,
                before.mode,
                rewritten,
                before.path,
                before.origin,
                fields,
                before.session,
                wishes=before.wishes,
                debug=before.debug,
                standing=standing,
                values=values,
            )
        if admitted.client.key_id in self._registry.limits:
            self.limit(method, admitted)
        return admitted

    def ended(self, admitted: AdmittedRequest, *, asks: bool = False) -> Reason | None:
        """Return why a client that was admitted may say or hear no more on its connection; None where it may.

        Args:
            admitted: what began it.
            asks: the client may ask for another turn, which counts as a request.
        """
        if not self.is_known(admitted):
            return Reason.NO_KEY
        limits = self.limits_of(admitted.client)
        if limits is None:
            return None
        look = self._budgets.over if asks else self._budgets.used_up
        denial = look(admitted.client.key_id, limits, time.time())
        return None if denial is None else denial.reason

    def turn(self, client: ClientIdentity) -> None:
        """Count a turn of a conversation as a request, where the client's key has a limit of them."""
        limits = self.limits_of(client)
        if limits is not None and limits.requests_per_minute is not None:
            self._budgets.request(client.key_id, time.time())

    def is_known(self, admitted: AdmittedRequest) -> bool:
        """Tell whether what a client said of itself still counts: keys and sessions end, secrets are rotated."""
        plan = admitted.plan
        if admitted.mode != "base_url":
            return self._registry.valid(admitted.client.key_id)
        presented, _ = presented_key(admitted.asked)
        client = self._registry.authenticate(presented)
        if not plan.session_calls:
            return client is not None
        try:
            begun = self._begun(plan, client, presented, admitted.session)
        except RequestRefusal:
            return False
        return client is not None or begun is not None

    def _read_path(self, path: bytes) -> _Entry:
        """Return what a path says; it is remembered, but for what a client says once.

        Raises:
            RequestRefusal: no route has it, or a client key stands in it.
        """
        once = len(path) > _KNOWN_PATH_BYTES or path.find(b"?") >= 0 or path.startswith(b"/s/")
        entry = self._entry(path) if once else self._known_entry(path)
        if entry is None:
            raise RequestRefusal(Reason.NO_ROUTE)
        return entry

    def _entry(self, path: bytes) -> _Entry | None:
        """Read a path; None where no route has it, or a client key stands in it."""
        if holds_client_key(path.partition(b"?")[0]):
            return None
        path, session = take_session(path)
        plan = self._router.by_path(path)
        if plan is None:
            return None
        rest = path[len(plan.prefix) :]
        if session is None:
            rest, session = take_session(rest)
        if not rest.startswith(b"/"):
            rest = b"/" + rest
        rest = without_client_keys(rest)
        climbing = plan.below and climbs(rest.partition(b"?")[0])
        return _Entry(plan, rest, session, climbing)

    @staticmethod
    def elsewhere(admitted: AdmittedRequest) -> AdmittedRequest | None:
        """Point a request whose upstream could not be reached at another; None: there is none.

        Only upstreams that were reached when last tried are asked; each once.
        """
        pointing = admitted.pointing
        if pointing is None:
            return None
        target = admitted.plan.other(pointing.tried)
        if target is None:
            return None
        rewritten, path = pointing.at(target)
        return admitted._replace(rewritten=rewritten, path=path, origin=target.origin)

    def level(
        self, admitted: AdmittedRequest, fields: RawFields, place: tuple[str, int] | None = None
    ) -> tuple[Level | None, str]:
        """Decide how much is captured; None is nothing.

        Args:
            admitted: what admission found out.
            fields: the client's headers.
            place: the host and port that a proxied request is for; None where a route's path leads.

        Raises:
            RequestRefusal: capture is mandatory and cannot happen.
        """
        spool = self._spool
        if spool is None:
            return None, ""
        if place is not None and not self._router.intercepts(*place):
            self._counters.tunnelled(*place)
            return None, ""
        plan = admitted.plan
        if not has_folder(admitted.client.tenant_id):
            if plan.mandatory:
                raise RequestRefusal(Reason.NO_KEY, plan=plan, shape=admitted.shape)
            self._counters.uncaptured["tenant"] += 1
            return None, ""
        wish = capture_wish(fields) if admitted.wishes else None
        if wish is not None:
            self._counters.uncaptured["opt-out"] += 1
            return (None if wish == "none" else Level.METADATA), "opt-out"
        if not (spool.shedding or spool.breaker.tripped):
            return _EVERYTHING
        state = spool.state
        if state is SpoolState.OPEN or (plan.mandatory and state is SpoolState.SHEDDING):
            return _EVERYTHING
        if plan.mandatory:
            raise RequestRefusal(
                Reason.SPOOL_FULL, client=admitted.client, plan=plan, shape=admitted.shape
            )
        self._counters.uncaptured[f"spool-{state.value}"] += 1
        return (Level.METADATA, "spool-full") if state is SpoolState.SHEDDING else (None, "")
