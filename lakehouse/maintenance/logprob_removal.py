"""Takes log probabilities out of ``ext`` of steps from before lakes left them out.

Beside each probability stands a piece of the answer, and no detector finds a person in pieces of a name.
Opening an older lake only adds columns. This goes through it day by day, beside writers and
readers; killed at any moment, the next round does the rest. It runs once: a note says so.
"""

import json
from typing import TYPE_CHECKING

from governance.records import Rewrite
from lakehouse.erasure.late_names import rewrite_rows
from lakehouse.schema.migrations import added_columns
from trajectory.canonical import JsonObject, canonical_json
from trajectory.dialects.reader import PIECES, without_pieces

if TYPE_CHECKING:
    from lakehouse.lake import Lake

_NOTE = "logprobs-removed.json"
_COLUMN = "mean_logprob"
"""It came when log probabilities went from ``ext``."""
_NAMED = f"regexp_matches(ext, '\"({'|'.join(sorted(PIECES))})\"')"
_DAYS = f"SELECT DISTINCT tenant_id, event_date FROM steps WHERE {_NAMED} ORDER BY ALL"  # noqa: S608
_STEPS = f"""
SELECT tenant_id, event_date, step_id, ext FROM steps
WHERE tenant_id = $tenant_id AND event_date = $event_date AND {_NAMED} ORDER BY step_id
"""  # noqa: S608 - fixed text


def remove_logprobs(lake: "Lake") -> int:
    """Rewrite the steps that hold pieces of an answer, and delete the files that held them; return how many.

    Raises:
        RetryableError: the table kept changing; make the same call again.
    """
    if _COLUMN not in added_columns(lake.table("steps")) or lake.notes().get(_NOTE):
        return 0
    rewritten = 0
    for day in lake.query_stored(_DAYS).to_pylist():
        rewrites = []
        for row in lake.query_stored(_STEPS, parameters=day).to_pylist():
            held = json.loads(row["ext"])
            response = without_pieces(held.get("response", {}))
            ext: JsonObject = {**held, "response": response}
            if not response:
                del ext["response"]
            if ext != held:
                values: JsonObject = {"ext": canonical_json(ext).decode()}
                place = (row["tenant_id"], "steps", row["step_id"], row["event_date"])
                rewrites.append(Rewrite(*place, values))
        rewrite_rows(lake, rewrites)
        rewritten += len(rewrites)
    lake.notes().put(_NOTE, b"{}", lasting=True)
    return rewritten
