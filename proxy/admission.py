"""Admission: who calls, where a request goes, whether it may pass, and how much of it is captured."""

import logging
from typing import Literal, NamedTuple

from mitmproxy import connection, http
from mitmproxy.proxy.mode_specs import RegularMode, TransparentMode

from proxy.callers import Callers
from proxy.config import GatewayConfig
from proxy.counters import Counters
from proxy.credentials import Fingerprints, RawFields, holds_client_key, presented_key
from proxy.heads import WISHES, capture_wish, host_of, names
from proxy.keys import KeyLimits, KeyRegistry
from proxy.limits import Budgets, session_of
from proxy.mitm.wire import mark_shape
from proxy.model_versions import Version, can_name
from proxy.paths import climbs
from proxy.responses import Reason, shape_of
from proxy.rewriting import (
    Pointing,
    Rewritten,
    at_its_host,
    key_giver,
    take_session,
    without_client_keys,
)
from proxy.route import Level, PreparedRoute
from proxy.routing import Router
from proxy.spool.states import SpoolState
from proxy.spool.writer import SpoolWriter
from trajectory.exchange import ClientIdentity

type Mode = Literal["base_url", "forward", "transparent"]


class Refused(Exception):  # noqa: N818 - not an error of ours: the client's request is refused
    """The request is answered by the gateway itself."""

    def __init__(
        self,
        reason: Reason,
        *,
        client: ClientIdentity | None = None,
        plan: PreparedRoute | None = None,
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
    plan: PreparedRoute
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


def named_host(flow: http.HTTPFlow) -> str:
    """Return the host that a request is for: as the client calls it, where it was redirected."""
    if isinstance(flow.client_conn.proxy_mode, TransparentMode):
        said = flow.client_conn.sni or host_of(flow.request.host_header)
        return said or flow.request.data.host
    return flow.request.data.host


_log = logging.getLogger(__name__)

_EVERYTHING = Level.FULL, ""


class AdmissionControl:
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
        self.callers = Callers(config, registry)

    def admit(self, flow: http.HTTPFlow) -> Admitted:
        """Find client and route of a request, and point it upstream.

        Raises:
            Refused: there is no key, no route, or nothing left of a limit; or a client key stands in
                the path, which would be kept and go upstream.
        """
        if holds_client_key(flow.request.data.path.partition(b"?")[0]):
            raise Refused(Reason.NO_ROUTE)
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

    def _limit(self, flow: http.HTTPFlow, admitted: Admitted, limits: KeyLimits) -> None:
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
        rest = without_client_keys(rest)
        if plan.below and climbs(rest.partition(b"?")[0]):
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
        client = self.callers.of_forward(flow.client_conn, fields)
        if client is None:
            raise Refused(Reason.NO_KEY)
        plan, target = self._router.by_host(request.data.host, request.data.port, request.data.path)
        https = request.data.scheme == b"https"
        given = None
        if target is not None and https == (target.upstream.scheme == "https"):
            given = key_giver(target, flow)
        rewritten = at_its_host(fields, None, given)
        path = without_client_keys(request.data.path)
        return Admitted(client, plan, "forward", rewritten, path)

    def _transparent(self, flow: http.HTTPFlow, fields: RawFields) -> Admitted:
        """Admit a redirected request; it goes on to the address that it was sent to.

        A provider's key is added only behind TLS: there the upstream has proved its name, while
        the name in a plain request is only what the client says.
        """
        request = flow.request
        presented, header = presented_key(fields)
        client = self.callers.of_redirected(presented)
        if client is None:
            raise Refused(Reason.NO_KEY)
        plan, target = self._router.by_host(named_host(flow), request.data.port, request.data.path)
        https = request.data.scheme == b"https"
        given = key_giver(target, flow) if target is not None and https else None
        rewritten = at_its_host(fields, header if presented else None, given)
        path = without_client_keys(request.data.path)
        return Admitted(client, plan, "transparent", rewritten, path)

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
