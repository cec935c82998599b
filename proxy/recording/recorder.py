"""The recorder: brings what the captures of this process hold into its spool, many in one write.

Records are made and sealed where a turn of the event loop ends, for all exchanges that went on in it. While other
requests are under way, it waits one turn more, so that more answers share a write. Over 32 connections that saves
a fifth of capture's CPU. Until then the bytes for their clients are held: what a client receives, the spool knows.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from proxy.spool import RecordKind, SpoolUnavailableError, SpoolWriter, records
from proxy.telemetry.counters import Counters

if TYPE_CHECKING:
    from proxy.recording.capture import Capture

_log = logging.getLogger(__name__)
_BATCH_SECONDS = 0.05
_PATIENCE_SECONDS = 0.1
_WRITE_BYTES = 1024 * 1024
"""Records of one turn are handed to the spool in portions of about this size."""

type Record = tuple[int, bytes]
"""Kind and bytes of what one frame holds."""


class Recorder:
    """Writes captures into the spool of this process.

    A patient recorder lets a request wait a moment for its answer, and an answer for the end of the loop's turn.
    So one frame holds a short exchange, and one write all those of a turn. Who sends bytes to clients then asks
    :attr:`waiting` first, and holds them where there is anything.
    """

    def __init__(
        self,
        spool: SpoolWriter,
        counters: Counters,
        *,
        patient: bool = False,
        block: Callable[[records.RawHeaders], records.HeaderBlock] = records.pack_headers,
    ) -> None:
        """Write into a spool; ``block`` packs headers, without the credentials in them."""
        self.spool = spool
        self.counters = counters
        self.patient = patient
        self.block = block
        self.waiting: list[Capture] = []
        """What the spool must know before any byte goes to a client."""
        self._held: list[Callable[[], None]] = []
        """What sends the bytes that were held meanwhile."""
        self._asking: dict[Capture, None] = {}
        """Requests on their way, that only memory knows; in order, and let go of once answered."""
        self._asked: dict[Capture, None] = {}
        """Those that were on their way when it was last looked."""
        self._sweep_due = False
        self._owed: deque[bytes] = deque()
        """Ends of exchanges that the spool could not take: without them their segments stay."""
        self._batched: list[bytes] = []
        """Ends of exchanges that wait in memory with the rest of their batch."""
        self._flush_due = False
        self._lost_batches = 0

    # Exchanges that go on.

    def wait(self, capture: "Capture") -> None:
        """Write what a capture holds: when a turn of the event loop ends, if that is waited for."""
        if not self.patient:
            self._write([capture])
            return
        self._asking.pop(capture, None)
        if not self.waiting:
            asyncio.get_running_loop().call_soon(self._turn_ends)
        self.waiting.append(capture)

    def hold(self, release: Callable[[], None]) -> None:
        """Call ``release`` once the spool knows what it must."""
        self._held.append(release)

    def _turn_ends(self) -> None:
        """Write what waits; while other requests are on their way, in the loop's next turn."""
        if self._asking:
            asyncio.get_running_loop().call_soon(self.settle)
        else:
            self.settle()

    def settle(self) -> None:
        """Write what the spool must know, then let go of what was held for it."""
        if self.waiting:
            captures, self.waiting = self.waiting, []
            try:
                self._write(captures)
            except Exception as error:  # noqa: BLE001 - the calls go on whatever capture does
                self.fault(error)
        if self._held:
            held, self._held = self._held, []
            for release in held:
                try:
                    release()
                except Exception as error:  # noqa: BLE001 - the others' bytes go all the same
                    self.fault(error)

    async def synced(self) -> None:
        """Wait until all that was recorded is on the disk.

        Raises:
            SpoolUnavailableError: the disk did not take it, or takes too long.
        """
        self.settle()
        await self.spool.synced()

    def _write(self, captures: "list[Capture]") -> None:
        """Write what these captures hold, in portions."""
        writing: list[Capture] = []
        portion: list[Record] = []
        size = 0
        for capture in captures:
            try:
                taken = capture.take()
            except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
                capture.abandon(error)
                continue
            if capture.terms.durability == "batch":
                self._write_later(capture, taken)
            elif len(taken) == 1:
                writing.append(capture)
                portion += taken
                size += len(taken[0][1])
                if size >= _WRITE_BYTES:
                    self._write_portion(writing, portion)
                    writing, portion, size = [], [], 0
            else:
                for record in taken:
                    if not self._write_portion([capture], [record]):
                        break
        if portion:
            self._write_portion(writing, portion)

    def _write_portion(self, captures: "list[Capture]", portion: list[Record]) -> bool:
        """Hand records to the spool, and tell their captures what became of them."""
        taken = False
        try:
            if self._owed:
                self._pay()
            self.spool.append_all(portion)
            taken = True
        except SpoolUnavailableError:
            self._unavailable(len(captures))
        except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
            self.fault(error)
        for capture in captures:
            capture.written(taken=taken)
        return taken

    # Batches.

    def _write_later(self, capture: "Capture", taken: list[Record]) -> None:
        """Let records wait in memory for those that come soon."""
        if not taken:
            return
        try:
            self._pay()
            self.spool.append_all(taken, batch=True)
        except SpoolUnavailableError:
            self._unavailable(1)
            capture.written(taken=False)
            return
        except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
            self.fault(error)
            capture.written(taken=False)
            return
        capture.written(taken=True)
        if capture.ended:
            self._batched.append(capture.last())
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_later(_BATCH_SECONDS, self.flush)

    def flush(self) -> None:
        """Hand what waits in memory to the disk."""
        self._flush_due = False
        with suppress(SpoolUnavailableError):
            self.spool.flush()
        self._look_for_losses()
        self._batched.clear()

    def _look_for_losses(self) -> None:
        """Count what waited and is lost; the ends are owed, or their segments would stay."""
        if self.spool.lost_batches != self._lost_batches:
            self._lost_batches = self.spool.lost_batches
            self.counters.uncaptured["batch-lost"] += len(self._batched)
            self._owed.extend(self._batched)
            self._batched.clear()

    # Requests that wait for their answers.

    def ask(self, capture: "Capture") -> None:
        """Let a request wait until its answer comes, or until the time for that is over."""
        self._asking[capture] = None
        if not self._sweep_due:
            self._sweep_due = True
            asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Write the requests that have waited since the last time."""
        late = [capture for capture in self._asked if not (capture.begun or capture.ended)]
        self._asked, self._asking = self._asking, {}
        if late:
            self._write(late)
        self._sweep_due = bool(self._asked)
        if self._sweep_due:
            asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, self._sweep)

    # What goes wrong.

    def _pay(self) -> None:
        while self._owed:
            self.spool.append(RecordKind.END, self._owed[0])
            self._owed.popleft()

    def _unavailable(self, count: int) -> None:
        self.counters.uncaptured["spool-unavailable"] += count
        self._look_for_losses()

    def owe(self, end: bytes) -> None:
        """Remember an end record for when the spool takes records again."""
        self._owed.append(end)

    def fault(self, error: Exception) -> None:
        """Count an error of our own; its text may hold content, so only its type is logged."""
        self.counters.faults += 1
        if self.counters.faults <= 100:
            _log.error("capture fault: %s", type(error).__name__)
