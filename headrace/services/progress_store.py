"""How far long work is: a file for each piece of work, which any process reads and a killed one leaves behind.

Nothing of content stands in it: a person's pseudonym, the name of a substrate or a model, and counts. Beside
it lies a lock file: who holds the lock lives, and touches the file every few seconds while it can.
"""

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from headrace.app.context import AppContext
from proxy.clients.keys import ALL_TENANTS
from trajectory.files import locked, make_folders, read_file, replace_file

ERASURE, SUBSTRATE, TRAINING = "erasure", "substrate", "training"
RUNNING, DONE, FAILED, INTERRUPTED = "running", "done", "failed", "interrupted"
_TOLD_SECONDS = 0.5
HEARTBEAT_SECONDS = 5.0
_SILENT_SECONDS = 60.0
_KEPT = 100
"""Files of work that ended; older ones are deleted when work begins."""

type Advance = Callable[[str, int, int | None], None]
"""Is told the stage, how much of it is done, and of how much where that is known."""


@dataclass(frozen=True, slots=True)
class WorkProgress:
    """How far one piece of work is."""

    work_id: str
    kind: str
    """erasure | substrate | training"""
    subject: str
    """Pseudonyms of people, or the name of a substrate or a model."""
    tenant: str
    """In whose data; ``*`` is every tenant's."""
    started_by: str
    started_at: float
    stage: str
    done: int
    total: int | None
    seen_at: float
    """When the work last told how far it is."""
    status: str
    """running | done | failed | interrupted"""
    problem: str | None = None
    """Type of the error that ended it."""
    alive_at: float = 0.0
    """When its process last gave a sign of life; not in the file."""

    @property
    def is_silent(self) -> bool:
        """Whether its process is there and gave no sign of life for a minute: stopped, or stuck."""
        return self.status == RUNNING and time.time() - self.alive_at > _SILENT_SECONDS


class ProgressStore:
    """The files of an installation."""

    def __init__(self, folder: Path) -> None:
        """Keep them in ``folder``."""
        self._folder = folder

    def list(self) -> list[WorkProgress]:
        """Return all work that is known, the latest first; what a killed process left is interrupted."""
        found = [one for path in self._folder.glob("*.json") if (one := _read(path)) is not None]
        found = [self._as_it_is(one) if one.status == RUNNING else one for one in found]
        found = [replace(one, alive_at=self._alive_at(one)) for one in found]
        return sorted(found, key=lambda one: (-one.started_at, one.work_id))

    def _as_it_is(self, one: WorkProgress) -> WorkProgress:
        with suppress(OSError), locked(self._lock(one.work_id), wait=False) as lock:
            if lock is None:
                return one  # its process lives
            # It may have ended between the two looks.
            now = _read(self._folder / f"{one.work_id}.json") or one
            return replace(now, status=INTERRUPTED) if now.status == RUNNING else now
        return one

    def _alive_at(self, one: WorkProgress) -> float:
        with suppress(OSError):
            return max(one.seen_at, self._lock(one.work_id).stat().st_mtime)
        return one.seen_at

    @contextmanager
    def recorded(
        self, kind: str, subject: str, *, who: str, tenant: str = ALL_TENANTS
    ) -> Iterator[Advance]:
        """Keep how far a piece of work is while it is done, and how it ended.

        A disk that refuses costs the record, never the work.
        """
        now = time.time()
        known = WorkProgress(
            secrets.token_hex(6), kind, subject, tenant, who, now, "begin", 0, None, now, RUNNING
        )
        told = time.monotonic()

        def advance(stage: str, done: int, total: int | None) -> None:
            nonlocal known, told
            is_new = stage != known.stage
            known = replace(known, stage=stage, done=done, total=total, seen_at=time.time())
            if is_new or time.monotonic() - told > _TOLD_SECONDS:
                told = time.monotonic()
                self._write(known)

        with suppress(OSError):
            make_folders(self._folder, mode=0o700)
            self._forget()
        with self._held(known.work_id):
            self._write(known)
            try:
                yield advance
            except BaseException as error:
                status = FAILED if isinstance(error, Exception) else INTERRUPTED
                problem = type(error).__name__
                self._write(replace(known, seen_at=time.time(), status=status, problem=problem))
                raise
            self._write(replace(known, seen_at=time.time(), status=DONE))

    @contextmanager
    def _held(self, work_id: str) -> Iterator[None]:
        """Hold the lock that tells that the work's process lives, where the disk lets us."""
        lock = locked(self._lock(work_id), wait=True)
        try:
            lock.__enter__()
        except OSError:
            yield
            return
        over = threading.Event()
        beats = threading.Thread(target=self._beat, args=(work_id, over), daemon=True)
        beats.start()
        try:
            yield
        finally:
            over.set()
            beats.join()
            lock.__exit__(None, None, None)

    def _beat(self, work_id: str, over: threading.Event) -> None:
        """Touch the lock's file now and then, until the work has ended."""
        while not over.wait(HEARTBEAT_SECONDS):
            now = time.time()
            with suppress(OSError):
                os.utime(self._lock(work_id), (now, now))

    def _lock(self, work_id: str) -> Path:
        return self._folder / f"{work_id}.lock"

    def _write(self, known: WorkProgress) -> None:
        with suppress(OSError):
            data = json.dumps(asdict(known)).encode()
            replace_file(self._folder / f"{known.work_id}.json", data, lasting=False)

    def _forget(self) -> None:
        ended = [one for one in self.list() if one.status != RUNNING]
        for one in ended[_KEPT:]:
            (self._folder / f"{one.work_id}.json").unlink(missing_ok=True)
            self._lock(one.work_id).unlink(missing_ok=True)


def progress_of(app: AppContext) -> ProgressStore:
    """Return how far the long work of this installation is."""
    return ProgressStore(app.home.progress)


@contextmanager
def recorded(
    app: AppContext, kind: str, subject: str, shown: Callable[..., None]
) -> Iterator[Advance]:
    """Keep how far the work of who runs this is, and show it too."""
    with progress_of(app).recorded(kind, subject, who=app.user.name) as keep:

        def advance(stage: str, done: int, total: int | None) -> None:
            keep(stage, done, total)
            shown(done, total)

        yield advance


def _read(path: Path) -> WorkProgress | None:
    """Return what a file tells; None where it is gone or somebody else's."""
    try:
        return WorkProgress(**json.loads(read_file(path)))
    except (OSError, ValueError, TypeError):
        return None
