"""The spool's writer: one per process, appends sealed records, never waits for the disk.

A record is in the kernel's hands when :meth:`SpoolWriter.append` returns, so that it outlives a
``kill -9`` of the process; a thread calls ``fdatasync`` for all of them together, so that they
outlive a power cut soon after (:meth:`SpoolWriter.synced` waits for that).
"""

import asyncio
import logging
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from errno import EACCES, EEXIST, EINVAL, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EPERM, errorcode
from pathlib import Path
from typing import Self

from proxy.spool import layout
from proxy.spool.breaker import Breaker
from proxy.spool.disk_sync import DiskSync
from proxy.spool.frames import SEGMENT_HEADER_BYTES, SegmentSealer
from proxy.spool.states import Bounds, SpoolState, SpoolUnavailableError

_log = logging.getLogger(__name__)
BATCH_BYTES = 256 * 1024
"""Frames of batch routes wait in memory up to this size, all flows together."""
_MEASURE_SECONDS = 1.0
_MISPLACED = frozenset({EACCES, EPERM, ENOENT, ENOTDIR, EEXIST, ENAMETOOLONG, ELOOP, EINVAL})
"""Errors of a folder that is the wrong one: waiting does not help."""
_LOST = frozenset({ENOENT, ENOTDIR, EEXIST, ELOOP})
"""Errors of a writer's folder that somebody removed, or put files into."""
_BOUNDS = Bounds()


class SpoolWriter:
    """Appends records to the segments of one writer.

    Not for several threads: appends come from one thread (the event loop). Bytes and files on
    disk are bounded: beyond ``bounds`` the state is FULL and the caller decides what that means;
    beyond an eighth more, :meth:`append` refuses.
    """

    def __init__(
        self,
        spool: Path,
        key: bytes,
        *,
        segment_bytes: int = 64 * 1024 * 1024,
        segment_seconds: float = 3600.0,
        bounds: Bounds = _BOUNDS,
        sync_seconds: float = 0.2,
        slow_seconds: float = 1.0,
    ) -> None:
        self._spool = spool
        self._key = key
        self._segment_bytes = segment_bytes
        self._segment_seconds = segment_seconds
        self._begun = 0.0
        self._leave = False
        """Nothing more goes into the open segment. It has been open long enough, or a sync failed and it may have
        holes."""
        self._max_bytes = bounds.max_bytes
        self._hard_bytes = bounds.max_bytes + bounds.max_bytes // 8
        self._bounds = bounds
        self._shed_bytes = bounds.shed_bytes
        self.shedding = False
        """Records should only be those that must not be lost."""
        self.breaker = Breaker(slow_seconds)
        self._place: tuple[Path, int] | None = None
        """The writer's folder and the descriptor of its lock, once the disk has taken them."""
        self._file = -1
        self._number = 0
        self._offset = 0
        self._written = 0
        self._unwritten: list[bytes] = []
        """Frames of batch routes that are not yet in the kernel's hands."""
        self._unwritten_bytes = 0
        self.lost_batches = 0
        """How often the disk refused what had waited in memory."""
        self._sealer = SegmentSealer(key)
        self._measured = self.files = self._since_measured = 0
        self._measured_at = time.monotonic()
        self._measure()
        self._closed = False
        self._sync_failed = ""
        """What the disk said when it refused a sync; empty where it never did."""
        self._syncing = DiskSync(
            sync_seconds, where=f"spool {spool}", failed=self._not_synced, turn=self._turn
        )
        self._begin()
        self._syncing.start()

    def _begin(self) -> None:
        """Open the first segment; a disk that refuses one now is asked again for each record.

        Raises:
            OSError: the folder cannot be one of a spool.
        """
        try:
            self._next_segment()
        except SpoolUnavailableError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in _MISPLACED:
                raise cause from None
            _log.error("%s: nothing can be kept now", error)

    @property
    def writer(self) -> str:
        """The writer's name; empty until the disk has taken its folder."""
        return "" if self._place is None else self._place[0].name

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all writers, measured each second and counted on in between."""
        return self._measured + self._since_measured

    @property
    def room(self) -> int:
        """Bytes that may come until what can be spared is left out."""
        return max(0, self._shed_bytes - self.bytes_on_disk)

    @property
    def failures(self) -> int:
        """Number of writes that the disk refused or took too long for."""
        return self.breaker.failures.total()

    @property
    def fill(self) -> float:
        """Fill level of the spool; 1 is its bound in bytes or files."""
        return max(self.bytes_on_disk / self._max_bytes, self.files / self._bounds.max_files)

    @property
    def alarm(self) -> bool:
        """Whether somebody should look after the spool."""
        return self.fill >= self._bounds.alarm_at or self.breaker.open

    @property
    def state(self) -> SpoolState:
        """Whether new exchanges should be admitted."""
        if self.breaker.open:
            return SpoolState.FAILING
        if not self.shedding:
            return SpoolState.OPEN
        return SpoolState.FULL if self.fill >= 1.0 else SpoolState.SHEDDING

    def append(self, kind: int, record: bytes, *, batch: bool = False) -> None:
        """Append a record; with ``batch`` it may wait in memory for :meth:`flush`.

        Raises:
            SpoolUnavailableError: the disk refused, or the spool is beyond its hard limit.
            ValueError: the record is larger than a frame may be.
        """
        self.append_all(((kind, record),), batch=batch)

    def append_all(self, kept: Iterable[tuple[int, bytes]], *, batch: bool = False) -> None:
        """Append records, each its kind and its bytes, in one write; all of them or none.

        Raises:
            SpoolUnavailableError: the disk refused, or the spool is beyond its hard limit.
            ValueError: a record is larger than a frame may be.
        """
        if self._offset >= self._segment_bytes or self._leave or self._file < 0:
            self._next_segment()
        used = self._measured + self._since_measured
        if used >= self._hard_bytes:
            raise SpoolUnavailableError(
                f"spool {self._spool}: beyond its limit of {self._max_bytes} bytes; "
                "run `headrace govern` or raise the limit"
            )
        offset = self._offset
        frames, end = self._sealer.seal_all(offset, kept)
        length = end - offset
        if batch or self._unwritten:
            self._unwritten += frames
            self._unwritten_bytes += length
            self._offset = end
            if not batch or self._unwritten_bytes >= BATCH_BYTES:
                self.flush()
        else:
            self._write(b"".join(frames))
            self._offset = self._written = end
        self._since_measured += length
        if used + length >= self._shed_bytes:
            self.shedding = True

    def _weigh(self) -> None:
        """See whether there is still room for everything."""
        self.shedding = (
            self._measured + self._since_measured >= self._shed_bytes
            or self.files >= self._bounds.max_files * self._bounds.shed_at
        )

    def flush(self) -> None:
        """Hand what waits in memory to the kernel.

        Raises:
            SpoolUnavailableError: the disk refused; what waited is lost.
        """
        if self._unwritten:
            frames, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
            self.lost_batches += 1
            self._write(b"".join(frames))
            self.lost_batches -= 1
            self._written = self._offset

    def rest(self) -> None:
        """Close the open segment when it has been open long enough, though nothing more comes."""
        old = time.monotonic() - self._begun >= self._segment_seconds
        if old and self._offset > SEGMENT_HEADER_BYTES:
            with suppress(SpoolUnavailableError):
                self._next_segment()

    def use_key(self, key: bytes) -> None:
        """Seal with another key from the next record on, in a new segment."""
        if key != self._key:
            with suppress(SpoolUnavailableError):
                self.flush()
            self._key = key
            self._retire()

    def _write(self, data: bytes) -> None:
        began = time.monotonic()
        try:
            written = os.write(self._file, data)
        except OSError as error:
            self._fail(errorcode.get(error.errno or 0, "OSError"), error.strerror or "it failed")
        else:
            if written != len(data):
                self._fail("ENOSPC", "the disk took only a part")
            if time.monotonic() - began > self.breaker.slow_seconds:
                self.breaker.trip("slow")
            elif self.breaker.tripped and data is not self._sealer.header:
                self.breaker.mend()
            self._syncing.mark(self._file)

    def _fail(self, name: str, reason: str) -> None:
        """Leave the segment: its next offset may not be written twice under the same nonce."""
        try:
            os.ftruncate(self._file, self._written)
        except OSError as error:
            _log.warning("spool segment %d keeps a torn tail (errno %s)", self._number, error.errno)
        self._offset = self._written
        self._retire()
        self.breaker.trip(name)
        raise SpoolUnavailableError(
            f"spool {self._spool}: {reason}; free disk space or mend the disk"
        )

    def _retire(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            self._syncing.retire(file)

    def _next_segment(self) -> None:
        if self.breaker.open:
            raise SpoolUnavailableError(
                f"spool {self._spool}: the disk refused a moment ago ({self.breaker.reason})"
            )
        self.flush()
        self._retire()
        sealer = SegmentSealer(self._key)
        try:
            path, file = self._create()
        except OSError as error:
            self.breaker.trip(errorcode.get(error.errno or 0, "OSError"))
            raise SpoolUnavailableError(
                f"spool {self._spool}: cannot begin a segment: {error.strerror}"
            ) from error
        self._number += 1
        self.files += 1
        self._weigh()
        self._leave = False
        self._begun = time.monotonic()
        self._file, self._offset, self._written, self._sealer = file, 0, 0, sealer
        try:
            self._write(sealer.header)
        except SpoolUnavailableError:
            self._take_back(path)
            raise
        self._offset = self._written = SEGMENT_HEADER_BYTES

    def _create(self) -> tuple[Path, int]:
        """Create the next segment's file; in another folder where the writer's own is lost."""
        if self._place is not None:
            try:
                return self._new_segment(self._place[0], self._number + 1)
            except OSError as error:
                if error.errno not in _LOST:
                    raise
                _log.error(
                    "spool %s: a folder was changed by others (%s)", self._spool, error.errno
                )
                os.close(self._place[1])
                self._place, self._number = None, 0
        self._place = layout.claim(self._spool)
        self._syncing.retire(_folder(self._spool))
        return self._new_segment(self._place[0], 1)

    def _new_segment(self, directory: Path, number: int) -> tuple[Path, int]:
        """Create a segment's file; return its path and its descriptor."""
        path = layout.segment_path(directory, number)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        names = _folder(directory)
        try:
            file = os.open(path, flags, 0o600)
        except OSError:
            os.close(names)
            raise
        self._syncing.retire(names)
        return path, file

    def _take_back(self, empty: Path) -> None:
        """Remove a segment that the disk gave a name and no room: many of them would fill the spool."""
        with suppress(OSError):
            empty.unlink()
            self._number -= 1
            self.files -= 1

    async def synced(self) -> None:
        """Wait until everything appended before is on the disk.

        Raises:
            SpoolUnavailableError: the disk did not take it, or takes too long.
        """
        self.flush()
        future = self._syncing.wait(self._file)
        try:
            async with asyncio.timeout(self.breaker.slow_seconds):
                await asyncio.wrap_future(future)
        except TimeoutError:
            self.breaker.trip("slow")
            raise SpoolUnavailableError(
                f"spool {self._spool}: the disk takes longer than {self.breaker.slow_seconds} s "
                "for a sync"
            ) from None

    def close(self) -> None:
        """Sync, give the lock back and stop; unfinished exchanges then count as lost ends."""
        if self._closed:
            return
        with suppress(SpoolUnavailableError):
            self.flush()
        self._closed = True
        self._syncing.stop()
        self._retire()
        self._syncing.sync()
        if self._place is not None:
            os.close(self._place[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def finish(self) -> None:
        """Close, and see that all that was appended is on the disk.

        Raises:
            SpoolUnavailableError: the disk refused a sync.
        """
        self.close()
        if self._sync_failed:
            raise SpoolUnavailableError(
                f"spool {self._spool}: sync failed: {self._sync_failed}; mend the disk"
            )

    def _not_synced(self, error: OSError) -> None:
        self._leave = True
        self._sync_failed = error.strerror or "it failed"
        self.breaker.trip(errorcode.get(error.errno or 0, "OSError"))

    def _turn(self) -> None:
        """Look, in the thread that syncs, how old the segment is and how much the disk holds."""
        now = time.monotonic()
        if now - self._begun >= self._segment_seconds or _is_removed(self._file):
            self._leave = True
        if now - self._measured_at >= _MEASURE_SECONDS:
            self._measured_at = now
            self._measure()
            self._weigh()

    def _measure(self) -> None:
        """Look how much the disk holds; one that does not even tell is found out by appends."""
        with suppress(OSError):
            self._since_measured, (self._measured, self.files) = 0, layout.size(self._spool)


def _folder(path: Path) -> int:
    """Open a folder, whose names are to be synced with what is written next: bytes without a name are lost."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _is_removed(file: int) -> bool:
    """Tell whether an open file has no name any more: nobody will read what is written to it."""
    with suppress(OSError):  # it was just closed
        return os.fstat(file).st_nlink == 0
    return False
