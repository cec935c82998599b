"""Shadows: copies of requests go to another version of the model, beside the call and after it.

The client never waits for a copy, never sees its answer and is never told of its failure. What
came of it is captured under an id of its own, marked with the exchange that was copied.
"""

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from proxy.clients.credentials import Fingerprints, RawFields
from proxy.recording.capture import Capture
from proxy.recording.recorder import Recorder
from proxy.routes.model_versions import Version, with_model
from proxy.routes.route import JOURNAL, Level
from proxy.spool import records
from proxy.telemetry.counters import Counters
from trajectory.exchange import ClientIdentity, ExchangeOutcome

if TYPE_CHECKING:
    import httpx

_log = logging.getLogger(__name__)
MOST = 32
"""Copies on their way at once in one process; what comes while there are so many is not copied."""
_CONNECT_SECONDS = 10.0
_SILENT_SECONDS = 600.0
_MADE_ANEW = frozenset({b"content-length", b"connection", b"expect", b"te", b"trailer"})


@dataclass(frozen=True, slots=True)
class ShadowedCall:
    """A call whose request is copied."""

    exchange: bytes
    """The id of its own capture."""
    client: ClientIdentity
    route: str
    mode: str
    path: bytes
    """With the query."""
    sent: RawFields
    """Headers as they go upstream."""
    kept: RawFields
    """Headers as they are captured, credentials not yet replaced."""
    body: bytes


class Shadows:
    """Sends copies and captures what is answered; one for each process."""

    def __init__(self, recorder: Recorder, counters: Counters, fingerprints: Fingerprints) -> None:
        """Keep where captures go."""
        self._recorder = recorder
        self._counters = counters
        self._fingerprints = fingerprints
        self._tasks: set[asyncio.Task[None]] = set()
        self._client: httpx.AsyncClient | None = None

    def send(self, call: ShadowedCall, version: Version) -> None:
        """Begin to send a copy to a version; never blocks, never raises."""
        if len(self._tasks) >= MOST or self._recorder.spool.shedding:
            self._counters.shadows["skipped"] += 1
            return
        task = asyncio.get_running_loop().create_task(self._ask(call, version))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give up what is on its way; it is captured as broken off."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    async def _ask(self, call: ShadowedCall, version: Version) -> None:
        outcome, capture = ExchangeOutcome.CLIENT_ABORT, None
        try:
            capture = self._begin(call, version)
            outcome = await self._carry(call, version, capture)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a copy's failure is nobody's failure
            outcome = ExchangeOutcome.UPSTREAM_ABORT
            _log.info("a copy for %s failed: %s", version.label, type(error).__name__)
        finally:
            self._counters.shadows[outcome.value] += 1
            if capture is not None:
                capture.end(outcome)

    def _begin(self, call: ShadowedCall, version: Version) -> Capture:
        target = version.target
        path, _, query = (target.upstream.path.encode() + call.path).partition(b"?")
        head = partial(
            records.request_head,
            origin=records.pack_origin(
                call.client,
                route=call.route,
                mode=call.mode,
                upstream=target.upstream.origin,
                served=version.label,
                shadow_of=call.exchange.hex(),
            ),
            method=b"POST",
            path=path,
            query=self._fingerprints.query(query),
            headers=self._fingerprints.block(call.kept),
        )
        capture = Capture(self._recorder, head, Level.FULL, "", JOURNAL)
        capture.on_request(call.body)
        return capture

    async def _carry(
        self, call: ShadowedCall, version: Version, capture: Capture
    ) -> ExchangeOutcome:
        import httpx

        target = version.target
        url = target.upstream.origin + target.upstream.path + call.path.decode("latin-1")
        headers = [
            (name, target.authority if name.lower() == b"host" else value)
            for name, value in call.sent
            if name.lower() not in _MADE_ANEW
        ]
        body = with_model(call.body, version.label)
        async with self._open().stream("POST", url, headers=headers, content=body) as answer:
            fields = tuple(answer.headers.raw)
            capture.response_head(answer.status_code, self._fingerprints.block(fields))
            try:
                async for piece in answer.aiter_raw():
                    capture.on_response(piece)
            except httpx.HTTPError:
                return ExchangeOutcome.UPSTREAM_ABORT
        return ExchangeOutcome.COMPLETE

    def _open(self) -> "httpx.AsyncClient":
        if self._client is None:
            import httpx

            self._client = httpx.AsyncClient(
                timeout=httpx.Timeout(_SILENT_SECONDS, connect=_CONNECT_SECONDS),
                limits=httpx.Limits(max_connections=MOST),
                trust_env=False,
            )
        return self._client
