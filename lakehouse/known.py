"""Which content the lake holds already: governance's ``KnownContent``, exact after deletions too."""

import threading
from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from governance.records import GovernanceRecord

if TYPE_CHECKING:
    from lakehouse.lake import Lake

type Keys = NDArray[np.uint64]


class LakeKnownContent:
    """Remembers, per active file, a 64-bit hash of each stored message, harness and step.

    A file that leaves the table (erasure, retention, compaction) takes its ids with it, and
    other ingesters' files are seen at the next question, so that nothing which was deleted
    counts as stored. A batch of a thousand ids meets a false match among ten million with odds of
    about one in two thousand million.
    """

    def __init__(self, lake: "Lake") -> None:
        self._lake = lake
        self._tables = {
            "messages": _Index(lake, "messages", "message_id"),
            "harnesses": _Index(lake, "harnesses", "harness_id"),
            "steps": _Index(lake, "steps", "step_id"),
        }

    def known_messages(self, tenant_id: str, message_ids: Collection[str]) -> set[str]:
        """Return those of ``message_ids`` that the tenant's table ``messages`` holds."""
        return self._tables["messages"].known(tenant_id, message_ids)

    def decisions(self, tenant_id: str, step_ids: Collection[str]) -> list[GovernanceRecord]:
        """Return the decision that holds for each of ``step_ids`` that is stored."""
        if not step_ids:
            return []
        rows = self._lake.query(
            "SELECT * FROM governance WHERE tenant_id = ? "
            "AND step_id IN (SELECT unnest(?::VARCHAR[])) QUALIFY row_number() OVER "
            "(PARTITION BY tenant_id, step_id ORDER BY decided_at DESC) = 1 ORDER BY step_id",
            parameters=[tenant_id, sorted(step_ids)],
        ).to_pylist()
        return [_decision(row) for row in rows]

    def known_harnesses(self, tenant_id: str, harness_ids: Collection[str]) -> set[str]:
        """Return those of ``harness_ids`` that the tenant's table ``harnesses`` holds."""
        return self._tables["harnesses"].known(tenant_id, harness_ids)

    def known_steps(self, tenant_id: str, step_ids: Collection[str]) -> set[str]:
        """Return those of ``step_ids`` that the tenant's table ``steps`` holds."""
        return self._tables["steps"].known(tenant_id, step_ids)


class _Index:
    """Sorted hashes of (tenant, id) of one table, kept per file."""

    def __init__(self, lake: "Lake", table: str, column: str) -> None:
        self._lake = lake
        self._table = table
        self._column = column
        self._files: dict[str, Keys] = {}
        self._sorted: Keys = np.empty(0, np.uint64)
        self._lock = threading.Lock()

    def known(self, tenant_id: str, names: Collection[str]) -> set[str]:
        if not names:
            return set()
        asked = list(names)
        with self._lock:
            self._refresh()
            keys = self._hash_of(tenant_id, asked)
            places = np.searchsorted(self._sorted, keys)
        places = np.minimum(places, max(len(self._sorted) - 1, 0))
        if not len(self._sorted):
            return set()
        return {name for name, hit in zip(asked, self._sorted[places] == keys, strict=True) if hit}

    def _refresh(self) -> None:
        active = set(self._lake.snapshot_of(self._table))
        gone = self._files.keys() - active
        new = sorted(active - self._files.keys())
        if not gone and not new:
            return
        for file in gone:
            del self._files[file]
        for file in new:
            self._files[file] = self._hashes_in(file)
        whole = np.concatenate(list(self._files.values()) or [np.empty(0, np.uint64)])
        self._sorted = np.unique(whole)

    def _hashes_in(self, file: str) -> Keys:
        expression = f"hash(tenant_id, {self._column}) AS key"
        return _keys(self._lake.query_file(self._table, file, expression))

    def _hash_of(self, tenant_id: str, names: Sequence[str]) -> Keys:
        return _keys(
            self._lake.compute(
                "SELECT hash(?::VARCHAR, name) AS key FROM (SELECT unnest(?::VARCHAR[]) AS name)",
                [tenant_id, list(names)],
            )
        )


def _keys(table: pa.Table) -> Keys:
    keys: Keys = table["key"].to_numpy().astype(np.uint64, copy=False)
    return keys


def _decision(row: dict[str, Any]) -> GovernanceRecord:
    said = {one.name: row[one.name] for one in fields(GovernanceRecord)}
    lists = {name: tuple(value) for name, value in said.items() if isinstance(value, list)}
    return GovernanceRecord(
        **{**said, **lists, "redaction_counts": dict(said["redaction_counts"] or ())}
    )
