"""The lake's register of harness versions: governance's ``LineageRegister``, the same for every governor.

New versions are appended before the batch that has them, each append as the next number of one
application transaction. Of two governors that number at the same moment one comes second: it reads
what the other wrote and numbers again. A form that has a number keeps it, so the register is right
whether or not the batch was written too.
"""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakehouse.schema.tables import TABLES
from lakehouse.write.commits import commit_once
from lakehouse.write.rows import to_arrow
from trajectory.errors import RetryableError
from trajectory.harness.lineage import FormKey, HarnessVersion, Lineages, Sighting

if TYPE_CHECKING:
    from lakehouse.lake import Lake

_TABLE = "harness_versions"
_ATTEMPTS = 12


class LakeLineages:
    """Numbers versions in the table ``harness_versions``; in memory between changes."""

    def __init__(self, lake: "Lake") -> None:
        self._lake = lake
        self._files: tuple[str, ...] | None = None
        self._lineages = Lineages()
        self._lock = threading.Lock()

    def number(self, sightings: Sequence[Sighting]) -> dict[FormKey, HarnessVersion]:
        """See :class:`governance.passes.identity.LineageRegister`."""
        with self._lock:
            asked = {one.key for one in sightings}
            for _ in range(_ATTEMPTS):
                found = self._found(asked)
                if len(found) == len(asked) or self._append(sightings):
                    return self._found(asked)
        raise RetryableError(
            f"table {_TABLE}: other governors keep numbering versions; nothing was lost: "
            "run the same again when fewer are active"
        )

    def _found(self, asked: set[FormKey]) -> dict[FormKey, HarnessVersion]:
        found = {key: self._lineages.find(key) for key in asked}
        return {key: version for key, version in found.items() if version is not None}

    def _append(self, sightings: Sequence[Sighting]) -> bool:
        """Number what is new after what the table holds; False when another governor was faster."""
        log = self._lake.log(_TABLE)
        with self._lake.appending():
            number = log.done_version(_TABLE) + 1
            self._read()
            fresh = self._lineages.number(sightings)
            if not fresh:
                return True
            before, self._files = self._files or (), None
            files = None
            try:
                data = to_arrow(TABLES[_TABLE], fresh)
                files = commit_once(log, data, app_id=_TABLE, version=number)
            finally:
                if files is None:  # these numbers are not given: what holds is read again
                    self._lineages = Lineages()
            if files is None:
                self._read()
                return False
            log.sync()
            now = self._lake.snapshot_of(_TABLE)
            if {*now} - {*before} == {one for one in now if one.endswith(tuple(files))}:
                self._files = now  # nobody else wrote: nothing has to be read again
        return True

    def _read(self) -> None:
        """Read the table, unless nobody has appended to it."""
        files = self._lake.snapshot_of(_TABLE)
        if files == self._files:
            return
        rows = self._lake.query(
            f"SELECT * FROM {_TABLE} ORDER BY tenant_id, app_id, first_seen_at, harness_name, "  # noqa: S608
            "harness_version"
        ).to_pylist()
        self._lineages = Lineages(
            HarnessVersion(**{**row, "smallest": tuple(row["smallest"]), "who": tuple(row["who"])})
            for row in rows
        )
        self._files = files
