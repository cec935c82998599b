"""The spool's writer: one per process, appends sealed records, never waits for the disk.

A record is in the kernel's hands when :meth:`SpoolWriter.append` returns, so that it outlives a
``kill -9`` of the process; a thread calls ``fdatasync`` for all of them together, so that they
outlive a power cut soon after (:meth:`SpoolWriter.synced` waits for that).
"""

import asyncio
import logging
import os
import threading
import time
from concurrent.futures import Future
from enum import StrEnum
from pathlib import Path
from typing import Self

from proxy.spool import layout
from proxy.spool.frames import MAX_RECORD_BYTES, SEGMENT_HEADER_BYTES, SegmentSealer
from trajectory.errors import RetryableError

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_MEASURE_SECONDS = 1.0


class SpoolUnavailableError(RetryableError):
    """The spool cannot take a record now: the disk refused it, or the spool is full."""


class SpoolState(StrEnum):
    """Whether the spool takes records."""

    OPEN = "open"
    FULL = "full"
    FAILING = "failing"


class SpoolWriter:
    """Appends records to the segments of one writer.

    Not for several threads: appends come from one thread (the event loop). Bytes on disk are
    bounded: beyond ``max_bytes`` (all writers of the spool together) the state is FULL and the
    caller decides what that means; beyond an eighth more, :meth:`append` refuses.
    """

    def __init__(
        self,
        spool: Path,
        key: bytes,
        *,
        segment_bytes: int = 64 * 1024 * 1024,
        max_bytes: int = 8 * 1024 * 1024 * 1024,
        sync_seconds: float = 0.2,
    ) -> None:
        self._spool = spool
        self._key = key
        self._segment_bytes = segment_bytes
        self._max_bytes = max_bytes
        self._hard_bytes = max_bytes + max_bytes // 8
        self._sync_seconds = sync_seconds
        self._directory, self._lock = layout.claim(spool)
        self.writer = self._directory.name
        self._file = -1
        self._number = 0
        self._offset = 0
        self._sealer = SegmentSealer(key)
        self._retry_at = 0.0
        self._measured = layout.size(spool)
        self._since_measured = 0
        self.failures = 0
        """How often the disk refused a record."""
        self._mutex = threading.Lock()
        self._dirty: list[int] = []
        self._waiting: list[Future[None]] = []
        self._wake = threading.Event()
        self._urgent = threading.Event()
        self._closing = False
        self._next_segment()
        self._thread = threading.Thread(target=self._keep, name="spool-keeper", daemon=True)
        self._thread.start()

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all writers, measured each second and counted on in between."""
        return self._measured + self._since_measured

    @property
    def full(self) -> bool:
        """Whether the bound is reached; records are then for what must not be lost."""
        return self._measured + self._since_measured >= self._max_bytes

    @property
    def state(self) -> SpoolState:
        """Whether new exchanges should be admitted."""
        if self._file < 0 and time.monotonic() < self._retry_at:
            return SpoolState.FAILING
        return SpoolState.FULL if self.full else SpoolState.OPEN

    def append(self, kind: int, record: bytes) -> None:
        """Append a record.

        Raises:
            SpoolUnavailableError: the disk refused, or the spool is beyond its hard limit.
            ValueError: the record is larger than a frame may be.
        """
        if self._file < 0 or self._offset >= self._segment_bytes:
            self._next_segment()
        if self._measured + self._since_measured >= self._hard_bytes:
            raise SpoolUnavailableError(
                f"spool {self._spool}: beyond its limit of {self._max_bytes} bytes; "
                "run `headrace govern` or raise the limit"
            )
        if len(record) > MAX_RECORD_BYTES:
            raise ValueError(f"a spool record may have {MAX_RECORD_BYTES} bytes at most")
        frame = self._sealer.seal(self._offset, kind, record)
        self._write(frame)
        self._offset += len(frame)
        self._since_measured += len(frame)

    def _write(self, data: bytes) -> None:
        try:
            written = os.write(self._file, data)
        except OSError as error:
            self._fail(error.strerror or "write failed")
        else:
            if written != len(data):
                self._fail("the disk took only a part")
            if self._file not in self._dirty:
                self._mark_dirty()

    def _mark_dirty(self) -> None:
        with self._mutex:
            self._dirty.append(self._file)
        self._wake.set()

    def _fail(self, reason: str) -> None:
        """Leave the segment: its next offset may not be written twice under the same nonce."""
        self.failures += 1
        try:
            os.ftruncate(self._file, self._offset)
        except OSError as error:
            _log.warning("spool segment %d keeps a torn tail (errno %s)", self._number, error.errno)
        self._retire()
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        raise SpoolUnavailableError(
            f"spool {self._spool}: {reason}; free disk space or mend the disk"
        )

    def _retire(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            with self._mutex:
                self._dirty.append(~file)
            self._wake.set()

    def _next_segment(self) -> None:
        if self._file < 0 and time.monotonic() < self._retry_at:
            raise SpoolUnavailableError(f"spool {self._spool}: the disk refused a moment ago")
        self._retire()
        sealer = SegmentSealer(self._key)
        path = layout.segment_path(self._directory, self._number + 1)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            file = os.open(path, flags, 0o600)
        except OSError as error:
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            self.failures += 1
            raise SpoolUnavailableError(
                f"spool {self._spool}: cannot begin a segment: {error.strerror}"
            ) from None
        self._number += 1
        self._file, self._offset, self._sealer = file, 0, sealer
        self._write(sealer.header)
        self._offset = SEGMENT_HEADER_BYTES

    async def synced(self) -> None:
        """Wait until everything appended before is on the disk.

        Raises:
            SpoolUnavailableError: the disk did not take it.
        """
        future: Future[None] = Future()
        with self._mutex:
            self._waiting.append(future)
            if self._file >= 0:
                self._dirty.append(self._file)
        self._urgent.set()
        self._wake.set()
        await asyncio.wrap_future(future)

    def close(self) -> None:
        """Sync, give the lock back and stop; unfinished exchanges then count as lost ends."""
        if self._closing:
            return
        self._closing = True
        self._urgent.set()
        self._wake.set()
        self._thread.join()
        self._retire()
        self._sync()
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep(self) -> None:
        """Sync in groups and measure the disk, until closed."""
        measured = time.monotonic()
        while not self._closing:
            self._wake.wait(_MEASURE_SECONDS)
            self._wake.clear()
            self._urgent.clear()
            self._sync()
            if time.monotonic() - measured >= _MEASURE_SECONDS:
                self._since_measured, self._measured = 0, layout.size(self._spool)
                measured = time.monotonic()
            self._urgent.wait(self._sync_seconds)

    def _sync(self) -> None:
        with self._mutex:
            dirty, waiting = self._dirty, self._waiting
            self._dirty, self._waiting = [], []
        problem: OSError | None = None
        for file in dict.fromkeys(file if file >= 0 else ~file for file in dirty):
            try:
                os.fdatasync(file)
            except OSError as error:
                problem = error
                self.failures += 1
        for file in dirty:
            if file < 0:
                os.close(~file)
        for future in waiting:
            if problem is None:
                future.set_result(None)
            else:
                future.set_exception(
                    SpoolUnavailableError(f"spool {self._spool}: sync failed: {problem.strerror}")
                )
