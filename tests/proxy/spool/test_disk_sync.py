"""Syncing in groups: whatever becomes of one file or of who waits, the next group is synced."""

import os
from concurrent.futures import Future
from errno import ENOSPC
from pathlib import Path

import pytest

from proxy.spool.disk_sync import DiskSync
from proxy.spool.states import SpoolUnavailableError


class _LeavesAtTheLastMoment(Future[None]):
    """Whoever waits goes away after it was seen that they wait, and before they have the result."""

    def set_result(self, result: None) -> None:
        self.cancel()
        super().set_result(result)


def syncing(failed: list[OSError]) -> DiskSync:
    return DiskSync(60, where="spool", failed=failed.append, turn=lambda: None)


def test_who_goes_away_as_the_result_comes_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error would end the thread that syncs, and nothing would reach the disk any more."""
    sync = syncing([])
    with monkeypatch.context() as patched:
        patched.setattr("proxy.spool.disk_sync.Future", _LeavesAtTheLastMoment)
        sync.wait(-1)
    sync.wait(-1).cancel()
    waiting = sync.wait(-1)
    sync.sync()
    assert waiting.result(0) is None


def test_a_disk_that_refuses_as_a_file_is_closed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[OSError] = []
    sync = syncing(failed)
    file = os.open(tmp_path / "segment", os.O_WRONLY | os.O_CREAT, 0o600)
    close = os.close

    def refuses(descriptor: int) -> None:
        close(descriptor)
        if descriptor == file:
            raise OSError(ENOSPC, "No space left on device")

    sync.retire(file)
    waiting = sync.wait(-1)
    with monkeypatch.context() as patched:
        patched.setattr("proxy.spool.disk_sync.os.close", refuses)
        sync.sync()
    assert [one.errno for one in failed] == [ENOSPC]
    with pytest.raises(SpoolUnavailableError, match="No space left on device"):
        waiting.result(0)
    waiting = sync.wait(-1)
    sync.sync()
    assert waiting.result(0) is None
