"""One worker: all modes in one process, put together, started, drained and closed."""

import asyncio
import logging
import time
from collections.abc import Collection
from ssl import SSLContext
from typing import TYPE_CHECKING

from proxy.addon import GatewayAddon
from proxy.admission import AdmissionControl
from proxy.api.artifacts import FetchedArtifacts
from proxy.api.endpoints import Endpoints
from proxy.api.sessions import SessionCalls
from proxy.api.webhooks import Webhooks
from proxy.certificate import OwnCertificate
from proxy.clients.callers import Callers
from proxy.clients.credentials import Fingerprints
from proxy.clients.keys import KeyRegistry
from proxy.clients.limits import Budgets
from proxy.clients.session_keys import SessionKeys
from proxy.clients.shared_counters import SharedCounters
from proxy.config import GatewayConfig
from proxy.guard.operators import OperatorApi
from proxy.guard.route import CallGuard, GuardTerms
from proxy.housekeeping import Housekeeping
from proxy.inline.route import InlineTerms
from proxy.mitm import fastpath, logs, wire
from proxy.mitm.admission import FlowAdmission
from proxy.mitm.authority import ensure_authority
from proxy.mitm.connections import AdminApart, AdmissionTimeout, ConnectTimes
from proxy.mitm.interception import Interception, RawConnections, Tunnels
from proxy.mitm.listeners import Listeners
from proxy.mitm.master import Addresses, EmbeddedMaster
from proxy.recording.capture_factory import CaptureFactory
from proxy.recording.recorder import Recorder
from proxy.recording.spool_factory import open_spool
from proxy.refusals import Refusals
from proxy.routes.router import Reachability, Router
from proxy.routes.shadow import Shadows
from proxy.services import Services
from proxy.spool import SpoolWriter
from proxy.spool.keys import KeyRing
from proxy.telemetry.admin import Admin, audit_gauges, can_record, spool_gauges
from proxy.telemetry.counters import Counters
from proxy.telemetry.spans import SpanExporter
from trajectory.prices import load_prices

if TYPE_CHECKING:
    from proxy.plain.listener import PlainListener

_log = logging.getLogger(__name__)


class Gateway:
    """One worker of the gateway inside a running event loop; one per process at a time."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        spool_key: bytes,
        fingerprint_key: bytes,
        inline: InlineTerms | None = None,
        guard: GuardTerms | None = None,
        admin_ports: Collection[int] = (),
    ) -> None:
        self._config = config
        self._admin_ports = {*admin_ports}
        self.counters = Counters()
        self._router = Router(config)
        self._inline = None if inline is None else self._router.pseudonymise(inline, self.counters)
        self._budgets = Budgets(SharedCounters(config.limits), load_prices(config.prices))
        if guard is not None:
            self._router.judge_calls(CallGuard(guard, self._budgets.ledger, self.counters))
        self._listeners = Listeners(shared=config.workers > 1)
        self._spool: SpoolWriter | None = None
        self._recorder: Recorder | None = None
        self._keys = KeyRing(spool_key, file=config.spool.key_file)
        self._tracing = SpanExporter(config.traces) if config.traces else None
        self._fingerprints = Fingerprints(
            fingerprint_key,
            also=(
                choice.credential.header.encode()
                for route in config.routes
                for choice in route.choices
                if choice.credential is not None
            ),
        )
        self._session_secret = fingerprint_key
        self._shadows: Shadows | None = None
        self._draining = False
        self._embedded: EmbeddedMaster | None = None
        self._gate: GatewayAddon | None = None
        self._plain: PlainListener | None = None
        self._certificate: OwnCertificate | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._admin = Admin(
            self.counters,
            gauges=self._gauges,
            levels=lambda: {plan.name: plan.level for plan in self._router.plans},
            disk=lambda: self._spool.breaker.failures if self._spool else {},
            ready=self._ready,
            operators=None
            if guard is None or guard.operators is None
            else OperatorApi(guard.approvals, guard.operators),
        )

    async def start(self) -> Addresses:
        """Open the ports.

        Raises:
            ConfigurationError: a port is taken, a credential is missing, the authority is unusable.
        """
        config = self._config
        registry = KeyRegistry.load(config.keys)
        opens = config.forward_port is not None or config.transparent_port is not None
        authority = ensure_authority(config.authority) if opens else None
        corrected = wire.install()
        http2 = corrected and config.fastpath
        if config.certificate is not None and config.certificate_key is not None:
            self._certificate = OwnCertificate(
                config.certificate, config.certificate_key, self.counters, http2=http2
            )
        secure = self._certificate.context if self._certificate else None
        addresses = self._bind()
        if config.capture:
            self._spool = open_spool(config.spool, self._keys.newest)
            self._recorder = Recorder(self._spool, self.counters, block=self._fingerprints.block)
        logs.muffle(self.counters)
        reachability = Reachability(self._router)
        self._gate = self._make_gate(registry)
        if config.listener == "plain":
            self._listeners.keep_for_plain()
        embedded = self._embedded = EmbeddedMaster()
        if addresses.admin is not None:
            self._admin_ports.add(addresses.admin[1])
        await embedded.start(
            config,
            addresses,
            before=[Tunnels(self._router, self.counters, self._gate.ended)],
            after=[
                RawConnections(self._gate.ended),
                Interception(authority, self.counters, http2=http2),
                ConnectTimes(self._router, embedded.handlers, reachability),
                AdminApart(self._admin_ports, embedded.handlers),
                self._gate,
                AdmissionTimeout(embedded.handlers),
            ],
            listeners=self._listeners,
            recorder=self._recorder,
            secure=secure,
        )
        if config.listener == "plain" and addresses.base_url is not None:
            self._plain = self._make_plain(self._gate, reachability, secure)
            await self._plain.start(self._listeners.of("base_url"))
        if addresses.admin is not None:
            await self._admin.start(self._listeners.of("admin"))
        self._begin_housekeeping()
        return addresses

    def _bind(self) -> Addresses:
        config, bind = self._config, self._listeners.bind
        try:
            return Addresses(
                base_url=bind("base_url", config.host, config.port),
                forward=bind("forward", config.forward_host, config.forward_port),
                transparent=bind("transparent", config.transparent_host, config.transparent_port),
                admin=bind("admin", config.admin_host, config.admin_port),
            )
        except Exception:
            self._listeners.close()
            raise

    def _begin_housekeeping(self) -> None:
        housekeeping = Housekeeping(
            self._config,
            router=self._router,
            ledger=self._budgets.ledger,
            keys=self._keys,
            certificate=self._certificate,
            spool=self._spool,
            counters=self.counters,
        )
        self._tasks = [asyncio.create_task(housekeeping.run())]
        if self._config.probe_at_start:
            self._tasks.append(asyncio.create_task(housekeeping.probe()))

    def _make_gate(self, registry: KeyRegistry) -> GatewayAddon:
        sessions = SessionKeys(self._session_secret, registry, self._budgets.ledger)
        admission = AdmissionControl(
            router=self._router,
            registry=registry,
            budgets=self._budgets,
            counters=self.counters,
            fingerprints=self._fingerprints,
            sessions=sessions,
            spool=self._spool,
        )
        recorder = self._recorder
        if recorder is not None:
            self._shadows = Shadows(recorder, self.counters, self._fingerprints)
        recording = CaptureFactory(recorder, self._fingerprints) if recorder else None
        services = Services(
            admission,
            budgets=self._budgets,
            counters=self.counters,
            recording=recording,
            tracing=self._tracing,
            shadows=self._shadows,
            calls=self._config.calls,
            calls_per_key=self._config.calls_per_key,
            body_bytes=self._config.body_bytes,
        )
        callers = Callers(self._config, registry)
        return GatewayAddon(
            services,
            admission=FlowAdmission(admission, router=self._router, callers=callers),
            callers=callers,
            refusals=Refusals(self._router, self.counters, recording),
            endpoints=Endpoints(
                registry,
                recorder,
                self.counters,
                self._fingerprints,
                SessionCalls(self._router, registry, sessions),
                Webhooks(self._config.webhooks, registry, self.counters),
                FetchedArtifacts(self._router.shelf),
            ),
        )

    def _make_plain(
        self, gate: GatewayAddon, reachability: Reachability, secure: SSLContext | None
    ) -> "PlainListener":
        """Return the plain listener, which shares with mitmproxy all that decides about a call."""
        # Not at import: a gateway without it needs no llhttp.
        from proxy.plain.listener import PlainListener
        from proxy.plain.upstreams import UpstreamPool

        return PlainListener(
            gate.services,
            refusals=gate.refusals,
            endpoints=gate.endpoints,
            recorder=self._recorder,
            pool=UpstreamPool(self._router, reachability, self._config.upstream_ca),
            idle_seconds=self._config.idle_seconds,
            handler=self._listeners.handler,
            secure=secure,
        )

    def _ready(self) -> bool:
        """Tell whether calls are taken, and can be kept where they must be."""
        started = self._embedded is not None and not self._draining
        return started and can_record(self._spool, self._router)

    @property
    def connections(self) -> int:
        """Number of open client connections."""
        plain = len(self._plain.connections) if self._plain else 0
        return plain + (len(self._embedded.handlers()) if self._embedded else 0)

    @property
    def calls(self) -> int:
        """Number of calls in flight."""
        plain = self._plain.calls if self._plain else 0
        return plain + (len(self._gate.live) if self._gate else 0)

    def _gauges(self) -> dict[str, float]:
        gauges: dict[str, float] = {
            "flows": self.calls,
            "connections": self.connections,
            "draining": float(self._draining),
            **audit_gauges(self._config.serving.parent),
        }
        if self._spool is not None:
            gauges |= spool_gauges(self._spool, self._config.spool.directory)
        if self._certificate is not None:
            until = self._certificate.expires_at.timestamp() - time.time()
            gauges["certificate_seconds_left"] = round(until)
        return gauges

    async def drain(self) -> None:
        """Stop listening and wait for the calls in flight, for ``drain_seconds`` at most."""
        self._draining = True
        if self._embedded is None or self._gate is None:
            return
        if self._plain is not None:
            self._plain.stop_listening()
        await self._embedded.stop_listening()
        deadline = time.monotonic() + self._config.drain_seconds
        while self.calls and time.monotonic() < deadline:  # noqa: ASYNC110 - once, at the end
            await asyncio.sleep(0.02)
        if self.calls:
            _log.warning("drain: %d calls were still in flight", self.calls)

    def _settle(self) -> None:
        """Write what has passed, and send what was held for it."""
        if self._recorder is not None:
            self._recorder.settle()

    async def close(self) -> None:
        """Close everything; the spool last."""
        self._draining = True
        for task in self._tasks:
            task.cancel()
        self._admin.close()
        self._settle()
        if self._plain is not None:
            await self._plain.close()
        if self._embedded is not None:
            await self._embedded.close()
        if self._shadows is not None:
            await self._shadows.close()
        self._settle()
        if self._spool is not None:
            self._spool.close()
        if self._inline is not None:
            self._inline.close()
        self._budgets.ledger.close()
        self._router.pins.close()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
        self._listeners.close()
        fastpath.revert()
        logs.unmuffle()
