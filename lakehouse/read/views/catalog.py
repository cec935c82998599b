"""The views of the lake, defined once and the same through every door.

Each is plain SQL over the tables and over views that stand before it. They hold no state: a late
reward, a withdrawn consent or an erasure is visible to the next query.
"""

from lakehouse.read.views.permissions import PERMISSION_VIEWS
from lakehouse.read.views.rewards import REWARD_VIEWS
from lakehouse.read.views.signals import SIGNAL_VIEWS
from lakehouse.read.views.statistics import STATISTICS_VIEWS
from lakehouse.read.views.tools import TOOL_VIEWS
from lakehouse.read.views.trajectories import TRAJECTORY_VIEWS
from lakehouse.read.views.view import View

_REDACTIONS_BY_TYPE = """
WITH found AS (
    SELECT tenant_id, step_id, unnest(map_entries(redaction_counts)) AS entry FROM governance
)
SELECT tenant_id, entry.key AS entity_type, sum(entry.value)::BIGINT AS redactions,
       count(DISTINCT step_id) AS steps
FROM found GROUP BY ALL
"""

_LEFT_OUT_BY_REASON = """
-- Everything captured that is not stored, by why; an exchange with two reasons counts under both.
WITH reasoned AS (
    SELECT tenant_id, exchange_id, disposition,
           unnest(CASE WHEN len(reasons) = 0 THEN ['-'] ELSE reasons END) AS reason
    FROM exchanges WHERE disposition <> 'stored'
)
SELECT tenant_id, disposition, reason, count(*) AS exchanges FROM reasoned GROUP BY ALL
"""


def _latest(table: str, keys: str) -> str:
    return (
        f"SELECT * FROM {table} QUALIFY row_number() OVER "  # noqa: S608 - fixed names
        f"(PARTITION BY {keys} ORDER BY recorded_at DESC) = 1"
    )


VIEWS: tuple[View, ...] = (
    *SIGNAL_VIEWS,
    *TOOL_VIEWS,
    *TRAJECTORY_VIEWS,
    *PERMISSION_VIEWS,
    View("redactions_by_type", "How much of which personal data was redacted",
         _REDACTIONS_BY_TYPE),
    View("left_out_by_reason", "Exchanges that are not stored, by reason", _LEFT_OUT_BY_REASON),
    View("substrates_latest", "The present state of each substrate version",
         _latest("substrates", "name, version")),
    View("runs_latest", "The present state of each training run", _latest("runs", "run_id")),
    View("models_latest", "The present state of each model version",
         _latest("models", "name, version")),
    *REWARD_VIEWS,
    *STATISTICS_VIEWS,
)  # fmt: skip
"""Each stands on tables and on views before it."""
