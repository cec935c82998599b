"""The engine ``local``: the governing process and a pool redact a backlog.

Small batches need no pool, which costs seconds and memory to start. A pool that loses a worker is
closed, its batch is redacted in the governing process, and the next backlog opens a new one.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from governance.executor import InlineRedaction, RedactionAnswer, RedactionRequest
from governance.policy import PolicyBundle
from headrace.app.home import Home
from headrace.engine import work
from headrace.engine.redaction import BundleName, replaced
from headrace.engine.work import RedactionJob
from trajectory.errors import HeadraceError

if TYPE_CHECKING:
    from governance.redact.redactor import Redactor

POOL_FROM_MESSAGES = 500
"""Messages of a batch from which the pool redacts; the governing process takes half a second for them."""
MOST_WORKERS = 3
"""Beside the governing process: what it does alone takes longer than what is left to more of them."""
_PR_SET_PDEATHSIG = 1


class Pool:
    """Processes of this machine that do pieces of work of ``headrace.engine.work``."""

    def __init__(self, home: Home, workers: int) -> None:
        """Start up to so many ``workers`` when the first work comes; they read the keys of ``home``."""
        self._home = str(home.root)
        self.workers = workers
        self._processes: ProcessPoolExecutor | None = None

    def submit(self, name: str, jobs: Sequence[RedactionJob]) -> list[Future[Any]]:
        """Hand over jobs, in their order; what no worker has begun can be cancelled.

        Raises:
            BrokenProcessPool: a worker was killed; nothing was changed.
        """
        if self._processes is None:
            self._processes = ProcessPoolExecutor(
                self.workers, get_context("spawn"), _start_worker, (os.getpid(),)
            )
        return [self._processes.submit(work.do, self._home, name, job) for job in jobs]

    def close(self) -> None:
        """End the workers; later work starts new ones."""
        if self._processes is not None:
            self._processes.shutdown(cancel_futures=True)
            self._processes = None


def _start_worker(parent: int) -> None:
    """Have a worker leave Ctrl-C to the governing process, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before this was set
        os._exit(1)


class PooledRedaction:
    """Redacts small batches in this process, a backlog here and in a pool.

    See ``governance.executor.RedactionExecutor``. Where subjects have keys of their own, the pool only finds:
    keys stay in this process.
    """

    def __init__(
        self, pool: Pool, bundle_name: Path, bundle: PolicyBundle, redactor: "Redactor"
    ) -> None:
        """Redact by ``bundle``, with ``redactor`` here and with others like it in the pool."""
        self._pool = pool
        self._redactor = redactor
        self._here = InlineRedaction(redactor)
        self._bundle = BundleName.of(str(bundle_name), bundle)
        self._finds = bundle.redaction.spec.keys == "subject"

    def redact_all(self, requests: Sequence[RedactionRequest]) -> list[RedactionAnswer]:
        """Return one answer for each request."""
        few = sum(len(one.messages) for one in requests) < POOL_FROM_MESSAGES
        if few or not self._pool.workers:
            return self._here.redact_all(requests)
        try:
            return self._redact_together(requests)
        except (BrokenProcessPool, HeadraceError):  # also: the policy's files have just changed
            self._pool.close()
            return self._here.redact_all(requests)

    def _redact_together(self, requests: Sequence[RedactionRequest]) -> list[RedactionAnswer]:
        jobs = self._bundle.jobs(requests, self._pool.workers + 1)
        handed = self._pool.submit("find" if self._finds else "redact", jobs)
        pairs = list(zip(jobs, handed, strict=True))
        # The pool begins with the first job, this process with the last, until they meet.
        here = {
            id(one): self._here.redact_all(job.requests)
            for job, one in reversed(pairs)
            if one.cancel()
        }
        answers: list[RedactionAnswer] = []
        for job, one in pairs:
            answers += here[id(one)] if id(one) in here else self._answers(job, one.result())
        return answers

    def _answers(self, job: RedactionJob, results: Sequence[Any]) -> Sequence[RedactionAnswer]:
        if not self._finds:
            return results
        return [replaced(self._redactor, *pair) for pair in zip(job.requests, results, strict=True)]


__all__ = ["MOST_WORKERS", "POOL_FROM_MESSAGES", "Pool", "PooledRedaction"]
