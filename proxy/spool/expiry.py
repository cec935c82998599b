"""Deletes ungoverned captures that are too old, and counts and audits each deletion.

A gateway does it while it runs, and the governing process too: whichever of them lives. What was
deleted is noted beside the segments (counts and times, no content), until the audit log has it.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from proxy.spool import layout
from trajectory.canonical import JsonObject
from trajectory.files import append_line, locked, read_json_lines

_NOTES = "expired.jsonl"
_TAKEN = "expired.taken"


@dataclass(frozen=True, slots=True)
class SpoolSweep:
    """Deletions of one sweep."""

    segments: int = 0
    bytes: int = 0
    last_written: float = 0.0
    """When the youngest of these segments was written last, in seconds since 1970."""


def expire(spool: Path, max_age_seconds: float, *, dry_run: bool = False) -> SpoolSweep:
    """Delete the finished segments that were written last longer ago than ``max_age_seconds``.

    The segment that a living writer has open stays; the folder of a dead one goes with its last. Where another
    process sweeps, or takes the notes, this one leaves it to the next time.
    """
    limit = time.time() - max_age_seconds
    if not spool.is_dir():
        return SpoolSweep()
    with locked(spool, wait=False) as alone:
        if alone is None:  # nobody waits here: calls are under way
            return SpoolSweep()
        old = _finished_before(spool, limit)
        gone = SpoolSweep(
            len(old),
            sum(status.st_size for status in old.values()),
            max((status.st_mtime for status in old.values()), default=0.0),
        )
        if old and not dry_run:
            note = json.dumps({**asdict(gone), "at": time.time()})
            # First: neither a kill nor a power cut leaves a deletion out.
            is_noted = _note(spool, note)
            for path in old:
                path.unlink(missing_ok=True)
            if not is_noted:
                append_line(spool / _NOTES, note)
            for directory in {path.parent for path in old}:
                if not layout.lives(directory) and not layout.segments(directory):
                    layout.remove(directory)
    return gone


def _note(spool: Path, note: str) -> bool:
    """Note what is about to go; False where the disk is full, for which something has to go first."""
    try:
        append_line(spool / _NOTES, note)
    except OSError:
        return False
    return True


def _finished_before(spool: Path, limit: float) -> dict[Path, os.stat_result]:
    """Return the finished segments that were written last before a moment."""
    found: dict[Path, os.stat_result] = {}
    for name in layout.writers(spool):
        directory = spool / name
        numbers = layout.segments(directory)
        for number in numbers[:-1] if layout.lives(directory) else numbers:
            path = layout.segment_path(directory, number)
            with suppress(FileNotFoundError):  # governed meanwhile
                if (status := path.stat()).st_mtime < limit:
                    found[path] = status
    return found


@contextmanager
def noted(spool: Path) -> Iterator[list[JsonObject]]:
    """Give what sweeps noted; when the body ends well, the notes are gone.

    After a crash in the body the same notes come again, and after one of a sweep what it had not deleted yet:
    nothing is left out, a line may come twice.
    """
    taken = spool / _TAKEN
    if not spool.is_dir():
        yield []
        return
    with locked(spool, wait=False) as alone:
        if alone is None:  # somebody sweeps: the next time
            yield []
            return
        if not taken.exists():
            with suppress(FileNotFoundError):
                (spool / _NOTES).rename(taken)
        yield read_json_lines(taken)
        taken.unlink(missing_ok=True)
