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

    The segment that a living writer has open stays; the folder of a dead one goes with its last.
    """
    limit = time.time() - max_age_seconds
    gone = SpoolSweep()
    for name in layout.writers(spool):
        directory = spool / name
        alive = layout.lives(directory)
        numbers = layout.segments(directory)
        for number in numbers[:-1] if alive else numbers:
            gone = _deleted(layout.segment_path(directory, number), limit, gone, dry_run=dry_run)
        if not dry_run and not alive and numbers and not layout.segments(directory):
            layout.remove(directory)
    if gone.segments and not dry_run:
        _note(spool, gone)
    return gone


def _deleted(path: Path, limit: float, gone: SpoolSweep, *, dry_run: bool) -> SpoolSweep:
    """Delete a segment when it is older than the limit; two who try count it once."""
    try:
        status = path.stat()
        if status.st_mtime >= limit:
            return gone
        if not dry_run:
            path.unlink()
    except FileNotFoundError:
        return gone
    last = max(gone.last_written, status.st_mtime)
    return SpoolSweep(gone.segments + 1, gone.bytes + status.st_size, last)


def _note(spool: Path, gone: SpoolSweep) -> None:
    line = json.dumps({**asdict(gone), "at": time.time()}) + "\n"
    file = os.open(spool / _NOTES, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, line.encode("ascii"))
    finally:
        os.close(file)


@contextmanager
def noted(spool: Path) -> Iterator[list[JsonObject]]:
    """Give what sweeps noted; when the body ends well, the notes are gone.

    After a crash in the body the same notes come again: nothing is left out, a line may come twice.
    """
    taken = spool / _TAKEN
    if not taken.exists():
        with suppress(FileNotFoundError):
            (spool / _NOTES).rename(taken)
    try:
        lines = taken.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        lines = []
    yield [json.loads(line) for line in lines if line]
    taken.unlink(missing_ok=True)
