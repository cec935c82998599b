"""What several views mean by a trajectory's model, by its signals and by its success, written once."""

MODEL_SERVED = (
    "arg_max(model_served, started_at) FILTER (kind = 'model' AND role_in_graph = 'agent')"
)
"""The model of a trajectory: what served its agent last."""

SUCCESS = """coalesce(r.success >= 0.5, r.label IN ('true', 'yes', 'pass', 'success'),
                CASE WHEN r.label IS NOT NULL THEN false END)"""
"""Whether that is a success; null when nobody judged."""

IN_FORCE = """
WHERE signal_id NOT IN (SELECT supersedes FROM signals WHERE supersedes IS NOT NULL)
  AND (value IS NOT NULL OR label IS DISTINCT FROM 'withdrawn')"""
"""Which signals hold: no other one replaces them, and they do not only take another one back."""

SIGNALS_IN_FORCE = f"SELECT * FROM signals_placed {IN_FORCE}"  # noqa: S608 - fixed names
"""Every signal that no other one replaces, and that does not only take another one back."""

_ABOUT_TRAJECTORIES = """
-- What is said of a trajectory: of itself (distance 0), its steps (1), its session and group (2).
SELECT tenant_id, trajectory_id, step_id, name, value, label, source_kind, is_gold, target_kind,
       recorded_at, signal_id, CASE WHEN step_id IS NULL THEN 0 ELSE 1 END AS distance /* more */
FROM (/* signals */) WHERE trajectory_id IS NOT NULL
UNION ALL
SELECT tenant_id, trajectory_id, NULL, name, value, label, source_kind, is_gold, target_kind,
       recorded_at, signal_id, 2 /* more */
FROM unplaced.wide
"""


def about_trajectories(signals: str, *, more: str = "") -> str:
    """Return a SELECT of what signals say of trajectories, with how near that is.

    Args:
        signals: SELECT of placed signals.
        more: further columns of them, each behind a comma.
    """
    sql = _ABOUT_TRAJECTORIES.strip()
    return sql.replace("/* more */", more).replace("/* signals */", signals)


IN_FORCE_ABOUT_TRAJECTORIES = about_trajectories(SIGNALS_IN_FORCE, more=", observed_at")
"""All of which the nearest and then the latest holds, per trajectory and name."""


def judged(*names: str) -> str:
    """Return a SELECT of the signals that hold for each trajectory, of these names or of all.

    The same as `trajectory_rewards` gives, found without sorting: one row per trajectory and name,
    with a struct ``r`` of ``value`` and ``label``.
    """
    wanted = ", ".join(f"'{name}'" for name in names)
    where = f"WHERE name IN ({wanted}) " if names else ""
    return f"""SELECT tenant_id, trajectory_id, name,
       arg_max({{value: value, label: lower(label)}},
               (-distance, recorded_at, observed_at, signal_id)) AS r
FROM ({IN_FORCE_ABOUT_TRAJECTORIES})
{where}GROUP BY tenant_id, trajectory_id, name"""  # noqa: S608 - fixed names


def _rewarded(more: str, *names: str) -> str:
    return f"""SELECT tenant_id, trajectory_id, max(r.value) FILTER (name = 'reward') AS reward,
       max(r.value) FILTER (name = 'success') AS success,
       max(r.label) FILTER (name = 'success') AS label{more}
FROM ({judged(*names)}) GROUP BY tenant_id, trajectory_id"""  # noqa: S608 - fixed names


REWARDED = _rewarded("", "reward", "success")
"""Reward and success of each trajectory that has any."""

REWARDED_AND_COUNTED = _rewarded(", count(*) AS signals")
"""The same of each trajectory that anything is said of, and of how many names."""
