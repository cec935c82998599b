"""Which erasures of the lake a home has carried out on its own keys and sealed copies.

The list lies beside the keys, not in the lake. So a home that was restored from a backup carries out again what
came after the backup.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lakehouse.read.conversations import RunSql
from trajectory.files import append_line, make_folders, read_json_lines, replace_file

_DONE = """
SELECT tenant_id, erasure_id, list_sort(list(DISTINCT subject)) AS subjects, any_value(report) AS report
FROM erasures WHERE status = 'done' GROUP BY ALL ORDER BY min(recorded_at), erasure_id
"""


@dataclass(frozen=True, slots=True)
class DoneErasure:
    """An erasure that a home of the lake has done."""

    erasure_id: str
    tenant: str
    gone: tuple[str, ...]
    """The people's pseudonyms, without those of whom a legal hold keeps rows."""


class SeenErasures:
    """The list of one home."""

    def __init__(self, secrets: Path, query: RunSql) -> None:
        """Keep the list in the folder of keys; it begins with all that was done before there was one.

        Those were carried out in each home by a person. Carried out again, they would destroy the keys of people who
        came back since.
        """
        self._path = secrets / "erasures.jsonl"
        self._query = query
        if not self._path.exists():
            make_folders(secrets, 0o700)
            lines = [json.dumps({"erasure": one.erasure_id}) for one in self._done()]
            replace_file(self._path, "".join(f"{line}\n" for line in lines).encode())

    def unseen(self) -> list[DoneErasure]:
        """Return the erasures that are not on the list, in their order."""
        seen = {entry.get("erasure") for entry in read_json_lines(self._path)}
        return [one for one in self._done() if one.erasure_id not in seen]

    def add(self, erasure_id: str) -> None:
        """Put an erasure on the list; it is on disk when this returns."""
        append_line(self._path, json.dumps({"erasure": erasure_id}))

    def _done(self) -> Iterator[DoneErasure]:
        for row in self._query(_DONE, None).to_pylist():
            report = json.loads(row["report"])
            if "ended_by" in report:  # another one took these people, and says who stays
                continue
            held = report.get("held_subjects", ())
            gone = tuple(one for one in row["subjects"] if one not in held)
            yield DoneErasure(row["erasure_id"], row["tenant_id"], gone)
