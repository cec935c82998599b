"""Admission: who calls, where to, may it pass, and how much of it is captured."""

import logging
import re
from typing import Literal, NamedTuple

from mitmproxy import connection, http
from mitmproxy.proxy.mode_specs import RegularMode, TransparentMode

from proxy.answers import Reason, shape_of
from proxy.capture import Level
from proxy.config import GatewayConfig, SecretSource
from proxy.counters import Counters
from proxy.credentials import Fingerprints, RawFields, presented_key
from proxy.heads import WISHES, capture_wish, host_of, names, proxy_key
from proxy.identity import KeyRegistry, Limits
from proxy.limits import Budgets, session_of
from proxy.pointing import Pointing
from proxy.routing import Plan, Rewritten, Router, rewrite_headers, take_session
from proxy.serving import Version, can_name
from proxy.spool.writer import SpoolState, SpoolWriter
from proxy.target import Target
from proxy.wire import mark_shape
from trajectory.errors import ConfigurationError
from trajectory.exchange import ClientIdentity

_log = logging.getLogger(__name__)

type Mode = Literal["base_url", "forward", "transparent"]

_EVERYTHING = Level.FULL, ""
_CLIMBS = re.compile(rb"(?i)/(?:\.|%2e){2}(?:[/\\;]|%2f|%5c|$)")
"""A path that leads up; servers read all these alike."""


class Refused(Exception):  # noqa: N818 - not an error of ours: the client's request is refused
    """The request is answered by the gateway itself."""

    def __init__(
        self,
        reason: Reason,
        *,
        client: ClientIdentity | None = None,
        plan: Plan | None = None,
        retry_after: int = 1,
    ) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.client = client
        self.plan = plan
        self.retry_after = retry_after


class Admitted(NamedTuple):
    """What admission found out about a request."""

    client: ClientIdentity
    plan: Plan
    mode: Mode
    rewritten: Rewritten
    path: bytes
    session: bytes | None = None
    """As the URL names it."""
    served: Version | None = None
    """The registered version that is named in the request's body."""
    pointing: Pointing | None = None
    """How it is pointed at one of several upstreams."""
    wishes: bool = True
    """Whether its client may wish less than a full capture: false where no header says so."""


def mode_of(client: connection.Client) -> Mode:
    """Return by which of the gateway's doors a client came in."""
    if isinstance(client.proxy_mode, RegularMode):
        return "forward"
    return "transparent" if isinstance(client.proxy_mode, TransparentMode) else "base_url"


class Admission:
    """Decides about requests; what it refuses it raises."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        router: Router,
        registry: KeyRegistry,
        budgets: Budgets,
        counters: Counters,
        fingerprints: Fingerprints,
        spool: SpoolWriter | None,
    ) -> None:
        self._router = router
        self._registry = registry
        self._budgets = budgets
        self._counters = counters
        self._fingerprints = fingerprints
        self._spool = spool
        self._clients: dict[str, ClientIdentity] = {}
        self._transparent_key = self._standing_key("transparent_key", config.transparent_key)
        self._forward_key = self._standing_key("forward_key", config.forward_key)

    def _standing_key(self, setting: str, source: SecretSource | None) -> str | None:
        """Return the client key of a setting; one that is unknown now may be made later."""
        if source is None:
            return None
        try:
            key = source.secret()
        except ConfigurationError as error:
            raise ConfigurationError(f"gateway.{setting}: {error}") from None
        if self._registry.authenticate(key) is None:
            _log.warning(
                "gateway.%s is no client key now (see `headrace keys list`): whom it stands for "
                "is refused until it is",
                setting,
            )
        return key

    # Clients of the forward proxy say who they are when they connect.

    def connects(self, flow: http.HTTPFlow) -> bool:
        """Note who opens a tunnel; tell whether they may."""
        client = self._proxy_client(flow.request.headers.fields)
        if client is not None:
            self._clients[flow.client_conn.id] = client
        return client is not None

    def disconnects(self, client: connection.Client) -> None:
        """Forget a connection."""
        self._clients.pop(client.id, None)

    def _proxy_client(self, fields: RawFields) -> ClientIdentity | None:
        for name, value in fields:
            if name.lower() == b"proxy-authorization":
                return self._registry.authenticate(proxy_key(value))
        return self._registry.authenticate(self._forward_key)

    # Requests.

    def admit(self, flow: http.HTTPFlow) -> Admitted:
        """Find client and route of a request, and point it upstream.

        Raises:
            Refused: there is no key, no route, or nothing left of a limit.
        """
        mode = mode_of(flow.client_conn)
        fields = flow.request.headers.fields
        flow.request.data.authority = b""  # a target with a host of its own would go on as it is
        if mode == "base_url":
            admitted = self._base_url(flow, fields)
        elif mode == "forward":
            admitted = self._forward(flow, fields)
        else:
            admitted = self._transparent(flow, fields)
        if mode != "base_url":
            plan = admitted.plan
            shape = shape_of(plan.shape, plan.kind, admitted.path, names(fields))
            mark_shape(flow.request, shape)
        limits = self._registry.limits.get(admitted.client.key_id)
        if limits is not None:
            self._limit(flow, admitted, limits)
        return admitted

    def _limit(self, flow: http.HTTPFlow, admitted: Admitted, limits: Limits) -> None:
        step = admitted.plan.kind == "model" and flow.request.data.method == b"POST"
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
            raise Refused(
                denial.reason,
                client=admitted.client,
                plan=admitted.plan,
                retry_after=denial.retry_after,
            )

    def _base_url(self, flow: http.HTTPFlow, fields: RawFields) -> Admitted:
        request = flow.request
        path, session = take_session(request.data.path)
        plan = self._router.by_path(path)
        if plan is None:
            raise Refused(Reason.NO_ROUTE)
        rest = path[len(plan.prefix) :]
        named = names(fields)
        mark_shape(request, shape_of(plan.shape, plan.kind, rest, named))
        presented, header = presented_key(fields)
        client = self._registry.authenticate(presented)
        if client is None:
            raise Refused(Reason.NO_KEY, plan=plan)
        if session is None:
            rest, session = take_session(rest)
        if not rest.startswith(b"/"):
            rest = b"/" + rest
        if plan.below and _CLIMBS.search(rest.partition(b"?")[0]):
            raise Refused(Reason.NO_ROUTE, client=client, plan=plan)
        pointing = Pointing(fields, header, rest, session)
        stick = b""
        if len(plan.targets) != 1:
            stick = session_of(fields, session) or flow.client_conn.id.encode()
        served = None
        if plan.serving is None:
            target = plan.target(stick)
        else:
            able = can_name(request.data.method, fields)
            version = plan.serving.choose(stick if able else None)
            if version is None:
                raise Refused(Reason.NO_MODEL, client=client, plan=plan)
            target, served = version.target, version if able else None
        rewritten, path = pointing.at(target, request)
        several = pointing if len(plan.targets) > 1 else None
        wishes = not WISHES.isdisjoint(named)
        return Admitted(client, plan, "base_url", rewritten, path, session, served, several, wishes)

    @staticmethod
    def elsewhere(request: http.Request, admitted: Admitted) -> Admitted | None:
        """Point a request whose upstream could not be reached at another; None: there is none.

        Only upstreams that were reached when last tried are asked; each once.
        """
        pointing = admitted.pointing
        if pointing is None:
            return None
        target = admitted.plan.other(pointing.tried)
        if target is None:
            return None
        rewritten, path = pointing.at(target, request)
        return admitted._replace(rewritten=rewritten, path=path)

    def _forward(self, flow: http.HTTPFlow, fields: RawFields) -> Admitted:
        request = flow.request
        client = self._clients.get(flow.client_conn.id)
        if client is None:
            client = self._proxy_client(fields)
        elif not self._registry.valid(client.key_id):
            client = None
        if client is None:
            raise Refused(Reason.NO_KEY)
        plan, target = self._router.by_host(request.data.host, request.data.port)
        https = request.data.scheme == b"https"
        given = None
        if target is not None and https == (target.upstream.scheme == "https"):
            given = _given(target, flow)
        rewritten = _at_its_host(fields, None, given)
        return Admitted(client, plan, "forward", rewritten, request.data.path)

    def _transparent(self, flow: http.HTTPFlow, fields: RawFields) -> Admitted:
        """Admit a redirected request; it goes on to the address that it was sent to.

        A provider's key is added only behind TLS: there the upstream has proved its name, while
        the name in a plain request is only what the client says.
        """
        request = flow.request
        presented, header = presented_key(fields)
        client = self._registry.authenticate(presented or self._transparent_key)
        if client is None:
            raise Refused(Reason.NO_KEY)
        plan, target = self._router.by_host(named_host(flow), request.data.port)
        https = request.data.scheme == b"https"
        given = _given(target, flow) if target is not None and https else None
        rewritten = _at_its_host(fields, header if presented else None, given)
        return Admitted(client, plan, "transparent", rewritten, request.data.path)

    def level(self, flow: http.HTTPFlow, admitted: Admitted) -> tuple[Level | None, str]:
        """Decide how much is captured; None is nothing.

        Raises:
            Refused: capture is mandatory and cannot happen.
        """
        spool = self._spool
        if spool is None:
            return None, ""
        if admitted.mode != "base_url":
            host = named_host(flow)
            if not self._router.intercepts(host, flow.request.data.port):
                self._counters.tunnelled(host, flow.request.data.port)
                return None, ""
        wish = capture_wish(flow.request.headers.fields) if admitted.wishes else None
        if wish is not None:
            self._counters.uncaptured["opt-out"] += 1
            return (None if wish == "none" else Level.METADATA), "opt-out"
        if not (spool.shedding or spool.breaker.tripped):
            return _EVERYTHING
        plan, state = admitted.plan, spool.state
        if state is SpoolState.OPEN or (plan.mandatory and state is SpoolState.SHEDDING):
            return _EVERYTHING
        if plan.mandatory:
            raise Refused(Reason.SPOOL_FULL, client=admitted.client, plan=plan)
        self._counters.uncaptured[f"spool-{state.value}"] += 1
        return (Level.METADATA, "spool-full") if state is SpoolState.SHEDDING else (None, "")


def _given(target: Target, flow: http.HTTPFlow) -> Target | None:
    """Return a target that has a key to give and has proved, where there is TLS, that it is it.

    The upstream's certificate is held against the name in the client's greeting: it may be
    another one than the client connected to, as of a neighbour behind the same front.
    """
    proved = (flow.client_conn.sni or flow.request.data.host).lower()
    return target if target.credential is not None and proved == target.upstream.host else None


def _at_its_host(fields: RawFields, key_header: bytes | None, given: Target | None) -> Rewritten:
    """Rewrite a request that goes where its client wanted; beside a key no other host is named."""
    return rewrite_headers(
        fields,
        host=given.authority if given is not None else None,
        key_header=key_header,
        credential=given.credential if given is not None else None,
    )


def named_host(flow: http.HTTPFlow) -> str:
    """Return the host that a request is for: as the client calls it, where it was redirected."""
    if isinstance(flow.client_conn.proxy_mode, TransparentMode):
        said = flow.client_conn.sni or host_of(flow.request.host_header)
        return said or flow.request.data.host
    return flow.request.data.host
