"""Housekeeping: what a running gateway does beside its requests, a few times a second."""

import asyncio
import json
import logging
import math
import time
from contextlib import suppress
from pathlib import Path

from proxy.certificate import OwnCertificate
from proxy.clients.shared_counters import SharedCounters
from proxy.config import GatewayConfig
from proxy.recording.tokens import TOKEN_PATHS
from proxy.routes.probe import probe
from proxy.routes.router import Router
from proxy.spool import SpoolWriter
from proxy.spool.expiry import expire
from proxy.spool.keys import KeyRing
from proxy.telemetry.counters import Counters
from trajectory.clock import RoundClock
from trajectory.errors import ConfigurationError
from trajectory.files import read_file

_log = logging.getLogger(__name__)
SECONDS = 0.25
_SWEEP_SECONDS = 60.0


class Housekeeping:
    """Follows rotated secrets and a renewed certificate, shares the counts of limits, minds the spool's alarm and its age."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        router: Router,
        ledger: SharedCounters,
        keys: KeyRing,
        certificate: OwnCertificate | None,
        spool: SpoolWriter | None,
        counters: Counters,
    ) -> None:
        self._config = config
        self._router = router
        self._ledger = ledger
        self._keys = keys
        self._certificate = certificate
        self._spool = spool
        self._counters = counters
        self._alarmed = self._leapt = False
        self._sweep_at = 0.0
        self._key_problem = self._certificate_problem = ""

    async def run(self) -> None:
        """Look after everything until cancelled; nothing that goes wrong here ends it."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(SECONDS)
            self._counters.loop_lag = max(0.0, time.monotonic() - before - SECONDS)
            try:
                await self._once()
            except Exception as error:  # noqa: BLE001 - counted; the next turn may go well
                self._counters.faults += 1
                _log.error("housekeeping fault: %s", type(error).__name__)

    async def _once(self) -> None:
        changed = await asyncio.to_thread(self._files)
        self._router.follow()
        if changed and self._spool is not None:
            self._spool.use_key(self._keys.newest)
            _log.info("the spool is sealed with another key from now on")
        if self._spool is not None:
            self._watch(self._spool)
            self._spool.rest()
        if time.monotonic() >= self._sweep_at:
            self._sweep_at = time.monotonic() + _SWEEP_SECONDS
            await asyncio.to_thread(self._sweep)

    def _sweep(self) -> None:
        """Delete pins that are over, and raw captures that nobody governed for too long."""
        self._router.pins.sweep()
        self._counters.trials = trial_figures(self._config.serving.parent / "trials")
        if self._spool is None:
            return
        settings = self._config.spool
        clock = RoundClock(settings.directory)
        leap = clock.leap()
        if (leap is not None) is not self._leapt:
            self._leapt = leap is not None
            if leap is not None:
                _log.error(
                    "the clock is %d days ahead of the last sweep: nothing of the spool is deleted by it "
                    "until it has gone on for a day",
                    leap.days,
                )
        if leap is not None:
            return
        gone = expire(settings.directory, settings.max_age_hours * 3600)
        if gone.segments:
            self._counters.spool_expired_segments += gone.segments
            self._counters.spool_expired_bytes += gone.bytes
            _log.error(
                "%d segments (%d bytes) of the spool were deleted: nobody governed them for %g hours",
                gone.segments,
                gone.bytes,
                settings.max_age_hours,
            )
        with suppress(OSError):  # a disk that refuses: the next sweep notes it
            clock.done()

    def _files(self) -> bool:
        """Read and write files, which may be slow; tell whether the spool has another key."""
        self._router.refresh_credentials()
        self._router.publication.refresh()
        self._router.shelf.refresh()
        self._counters.serving = self._router.publication.versions()
        if self._ledger.dirty:
            self._ledger.flush()
        if self._certificate is not None:
            self._follow(self._certificate)
        try:
            changed = self._keys.reload()
        except ConfigurationError as error:
            if self._key_problem != str(error):
                _log.error("spool key: %s; the one in use stays", error)
            self._key_problem = str(error)
            return False
        self._key_problem = ""
        return changed

    def _follow(self, certificate: OwnCertificate) -> None:
        """Serve a renewed certificate; the one in use stays where that cannot be used."""
        problem = ""
        try:
            if certificate.reload():
                _log.info("serving the certificate that expires on %s", certificate.expires_at)
        except ConfigurationError as error:
            problem = str(error)
            if problem != self._certificate_problem:
                _log.error("%s; the one in use stays", problem)
        self._certificate_problem = problem

    def _watch(self, spool: SpoolWriter) -> None:
        alarm = spool.alarm
        if alarm and not self._alarmed:
            _log.warning("spool alarm: %s", self._why_alarmed(spool))
        self._alarmed = alarm

    def _why_alarmed(self, spool: SpoolWriter) -> str:
        folder = self._config.spool.directory
        if not spool.breaker.tripped:
            return f"{folder} is {spool.fill:.0%} full; is the governor running?"
        reasons = ", ".join(f"{name} x{count}" for name, count in spool.breaker.failures.items())
        return f"the disk of {folder} refuses ({reasons}); make room or mend it"

    async def probe(self) -> None:
        """Ask the upstreams of token routes what they can; lower the level where it is not enough."""
        plans = {plan.name: plan for plan in self._router.plans}
        for route in self._config.routes:
            if route.capture != "tokens":
                continue
            for choice in route.choices:
                found = await asyncio.to_thread(
                    probe, route, choice, upstream_ca=self._config.upstream_ca
                )
                plan = plans[route.name]
                for dialect in found.token_dialects:
                    plan.note_tokens(dialect, sound=True)
                for dialect in TOKEN_PATHS:
                    if dialect not in found.token_dialects and plan.asks_tokens(dialect):
                        plan.lower(dialect)


def trial_figures(folder: Path) -> dict[str, dict[tuple[str, ...], float]]:
    """Return what is told of the trials in a folder, by metric; a file that cannot be read is left out."""
    found: dict[str, dict[tuple[str, ...], float]] = {
        "state": {}, "sessions": {}, "wrong": {}, "log_e": {},
    }  # fmt: skip
    for path in folder.glob("*.json"):
        with suppress(OSError, ValueError, TypeError, LookupError):
            told = json.loads(read_file(path))
            trial = str(told["trial_id"])
            found["state"][trial, told["rung"], told["outcome"] or "under way"] = 1.0
            for name, one in told["comparisons"].items() if told["outcome"] is None else ():
                for arm, (sessions, wrong) in zip(
                    ("candidate", "control"), one["arms"], strict=True
                ):
                    found["sessions"][trial, name, arm] = sessions
                    found["wrong"][trial, name, arm] = wrong
                for against, logs in (("no_worse", one["harm"]), ("worse", one["no_worse"])):
                    most = max(logs)
                    total = math.fsum(math.exp(each - most) for each in logs)
                    found["log_e"][trial, name, against] = most + math.log(total / len(logs))
    return found
