"""Keeps a table's log short: commits that a checkpoint has summed up go when there are too many.

Delta keeps commits for a time (30 days here). At a commit per second that is millions of small
files, and each look at the log costs more. So the newest some stay and the rest goes, up to
a checkpoint, as Delta's own clean-up would do it later. Time travel then ends there.
"""

import json
from bisect import bisect_right
from datetime import datetime
from typing import Any

from pyarrow.fs import FileSelector, FileType

from lakehouse.storage.location import Location

_SUM = ".checkpoint"


def last_checkpoint(location: Location, name: str) -> int:
    """Return the version of a table's newest checkpoint, 0 when there is none."""
    return max(
        (at for path, at in _listed(location.files(), name).items() if _SUM in path), default=0
    )


def version_at(location: Location, name: str, moment: datetime) -> int | None:
    """Return the last version that a table had by ``moment``; None when it had none, or none is left.

    The time that a commit itself holds counts. Its file's times change when a lake is copied, and object stores
    tell them in whole seconds.
    """
    files = location.files()
    commits = {at: path for path, at in _listed(files, name).items() if path.endswith(".json")}
    versions = sorted(commits)
    due = bisect_right(
        versions, moment.timestamp() * 1000, key=lambda at: _committed_at(files, commits[at])
    )
    return versions[due - 1] if due else None


def _committed_at(files: Any, path: str) -> float:
    """Return when a commit was made, in milliseconds since 1970."""
    with files.open_input_stream(path) as stream:
        lines = stream.read().splitlines()
    for line in lines:
        if b'"commitInfo"' in line and "commitInfo" in (entry := json.loads(line)):
            return float(entry["commitInfo"]["timestamp"])
    (info,) = files.get_file_info([path])
    return float(info.mtime.timestamp() * 1000)


def shorten(location: Location, name: str, *, keep: int) -> int:
    """Remove commits of a table's log beyond the newest ``keep``; return how many files went.

    Nothing goes without a checkpoint that stands before all that is kept.
    """
    files = location.files()
    versions = _listed(files, name)
    newest = max(versions.values(), default=0)
    sums = [at for path, at in versions.items() if _SUM in path and at <= newest - keep]
    if not sums:
        return 0
    old = sorted(path for path, at in versions.items() if at < max(sums))
    for path in old:
        files.delete_file(path)
    return len(old)


def _listed(files: Any, name: str) -> dict[str, int]:
    """Return the paths of a log's commits and checkpoints with their versions."""
    found = files.get_file_info(FileSelector(f"{name}/_delta_log", allow_not_found=True))
    return {
        one.path: int(one.base_name[:20])
        for one in found
        if one.type == FileType.File and one.base_name[:20].isdigit()
    }
