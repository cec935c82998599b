"""The consent registry in the lake: governance's ``ConsentLookup``, kept in memory between changes."""

import threading
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from governance.consent import EVERY_SUBJECT, ConsentEntry, last_erasure, went_with

if TYPE_CHECKING:
    from lakehouse.read.conversations import RunSql

_COLUMNS = "tenant_id, subject, purpose, granted, recorded_at, reference"
_ERASED = """
WITH went AS (
    SELECT tenant_id, erasure_id, recorded_at,
           unnest(json_extract_string(report, '$.reach.trajectories[*]')) AS name
    FROM erasures
), begun AS (
    SELECT tenant_id, erasure_id, name, min(recorded_at) AS moment FROM went GROUP BY ALL
)
SELECT tenant_id, subject AS name, max(recorded_at) AS moment
FROM erasures WHERE status = 'requested' GROUP BY ALL
UNION ALL
SELECT tenant_id, name, max(moment) FROM begun GROUP BY ALL
"""
"""When people asked to be erased, and when the trajectories that concerned them went."""
_WENT = """
SELECT DISTINCT tenant_id, subject,
       unnest(json_extract_string(report, '$.reach.trajectories[*]')) AS trajectory_id
FROM erasures WHERE status = 'begun' ORDER BY ALL
"""
"""With whom trajectories went: an erasure that begins says it of each of its people."""


class LakeConsents:
    """Answers from the tables ``consents`` and ``erasures`` as they were at the last refresh.

    Between two refreshes it asks the lake nothing: a batch of thousands of calls costs one look.
    """

    def __init__(self, query: "RunSql", files_of: Callable[[str], tuple[str, ...]]) -> None:
        self._query = query
        self._files_of = files_of
        self._files: tuple[tuple[str, ...], ...] | None = None
        self._entries: dict[tuple[str, str], list[ConsentEntry]] = {}
        self._erasures: dict[tuple[str, str], datetime] = {}
        self._went: dict[tuple[str, str], list[str]] = {}
        self._lock = threading.Lock()

    def entries(self, tenant_id: str, subjects: Collection[str]) -> Sequence[ConsentEntry]:
        """Return all entries of these subjects and of everybody in the tenant."""
        if self._files is None:
            self.refresh()
        with self._lock:
            return [
                entry
                for subject in dict.fromkeys([*subjects, EVERY_SUBJECT])
                for entry in self._entries.get((tenant_id, subject), ())
            ]

    def erased_at(self, tenant_id: str, names: Collection[str]) -> datetime | None:
        """Return when one of these subjects last asked to be erased, or one of these trajectories went."""
        if self._files is None:
            self.refresh()
        with self._lock:
            return last_erasure(self._erasures, tenant_id, names)

    def erased_with(self, tenant_id: str, trajectories: Collection[str]) -> tuple[str, ...]:
        """Return the erased subjects with whom these trajectories went."""
        if self._files is None:
            self.refresh()
        with self._lock:
            return went_with(self._went, tenant_id, trajectories)

    def refresh(self) -> None:
        """See what was granted or withdrawn since, and who asked to be erased."""
        with self._lock:
            self._read()

    def _read(self) -> None:
        files = (self._files_of("consents"), self._files_of("erasures"))
        if files == self._files:
            return
        table = self._query(f"SELECT {_COLUMNS} FROM consents", None)  # noqa: S608
        entries: dict[tuple[str, str], list[ConsentEntry]] = {}
        for row in table.to_pylist():
            entries.setdefault((row["tenant_id"], row["subject"]), []).append(ConsentEntry(**row))
        asked = self._query(_ERASED, None).to_pylist()
        self._erasures = {(row["tenant_id"], row["name"]): row["moment"] for row in asked}
        went: dict[tuple[str, str], list[str]] = {}
        for row in self._query(_WENT, None).to_pylist():
            went.setdefault((row["tenant_id"], row["trajectory_id"]), []).append(row["subject"])
        self._went = went
        self._entries, self._files = entries, files
