"""Checkpoints written beside the work: nobody waits for the disk before something depends on it.

One thread writes, in order. A batch is announced only when the one before is on disk as done, and
committed only when it is announced itself; what comes after the announcement needs no more.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

from headrace.checkpoint import Checkpoint, CheckpointStore, PendingBatch


class Noting:
    """Where the batches stand, and who writes it down."""

    def __init__(self, store: CheckpointStore, *, beside: bool) -> None:
        """Begin with what ``store`` holds.

        Args:
            store: where it is written.
            beside: it may be written by another thread; object stores are for one thread at a time
                (see ``lakehouse.lake``).
        """
        self._store = store
        self._thread = ThreadPoolExecutor(1) if beside else None
        self.latest = store.load()
        """The checkpoint after the last batch that is wholly in the lake."""
        self._before = self.latest
        self._done: Future[None] | None = None

    def begin(self, checkpoint: Checkpoint) -> None:
        """Go on from another checkpoint than the one that was found.

        Raises:
            RetryableError: it could not be written.
        """
        self._store.restart(checkpoint)
        self._before = self.latest = checkpoint

    @contextmanager
    def announced(self, pending: PendingBatch) -> Iterator[None]:
        """Have a batch announced when the block ends, and the one before noted as done.

        Raises:
            RetryableError: one of them could not be written; :attr:`latest` tells what stands.
        """
        if self._thread is None:
            self._store.announce(self.latest, pending)
            yield
            return
        said = self._thread.submit(self._announce, self._done, self.latest, pending)
        try:
            yield
        finally:
            wait([said])
            self.settle()
        said.result()

    def _announce(
        self, before: Future[None] | None, checkpoint: Checkpoint, pending: PendingBatch
    ) -> None:
        if before is not None:
            before.result()  # the thread has written it, or it failed and nothing may follow
        self._store.announce(checkpoint, pending)

    def complete(self, checkpoint: Checkpoint, *, beside: bool = False) -> None:
        """Note a batch as done; with ``beside`` it is written while the next one is judged.

        Raises:
            RetryableError: it could not be written, or the one before could not.
        """
        self.settle()
        if beside and self._thread is not None:
            self._done = self._thread.submit(self._store.complete, checkpoint)
        else:
            self._store.complete(checkpoint)
        self._before, self.latest = self.latest, checkpoint

    def settle(self) -> None:
        """Wait until all is written.

        Raises:
            RetryableError: the latest could not be; the one before it counts, and its batch is
                carried again under its number.
        """
        done, self._done = self._done, None
        if done is None:
            return
        try:
            done.result()
        except BaseException:
            self.latest = self._before
            raise


__all__ = ["Noting"]
