"""What several views mean by a trajectory's model, by its signals and by its success, written once."""

MODEL_SERVED = (
    "arg_max(model_served, started_at) FILTER (kind = 'model' AND role_in_graph = 'agent')"
)
"""The model of a trajectory: what served its agent last."""

SUCCESS_NAMED = (
    "max(value) FILTER (name = 'success') AS success, "
    "max(lower(label)) FILTER (name = 'success') AS label"
)
"""What the signals in force say of success, by value and by label."""

SUCCESS = """coalesce(r.success >= 0.5, r.label IN ('true', 'yes', 'pass', 'success'),
                CASE WHEN r.label IS NOT NULL THEN false END)"""
"""Whether that is a success; null when nobody judged."""

SIGNALS_IN_FORCE = """SELECT * FROM signals_placed
WHERE signal_id NOT IN (SELECT supersedes FROM signals WHERE supersedes IS NOT NULL)
  AND (value IS NOT NULL OR label IS DISTINCT FROM 'withdrawn')"""
"""Every signal that no other one replaces, and that does not only take another one back."""

_ABOUT_TRAJECTORIES = """
-- What is said of a trajectory: of itself (distance 0), its steps (1), its session and group (2).
SELECT r.tenant_id, coalesce(r.trajectory_id, s.trajectory_id) AS trajectory_id,
       CASE WHEN r.trajectory_id IS NOT NULL THEN r.step_id END AS step_id, r.name,
       r.value, r.label, r.source_kind, r.is_gold, r.target_kind, r.recorded_at, r.signal_id,
       CASE WHEN r.trajectory_id IS NULL THEN 2 WHEN r.step_id IS NULL THEN 0 ELSE 1 END AS distance
       /* more */
FROM (/* signals */) r
LEFT JOIN (SELECT DISTINCT tenant_id, trajectory_id, session_hint AS target_id,
                  'session' AS target_kind
      FROM steps WHERE session_hint IN (SELECT target_id FROM signals
                                        WHERE trajectory_id IS NULL AND target_kind = 'session')
      UNION ALL
      SELECT DISTINCT tenant_id, trajectory_id, group_id, 'group'
      FROM steps WHERE group_id IN (SELECT target_id FROM signals
                                    WHERE trajectory_id IS NULL AND target_kind = 'group')) s
  ON r.trajectory_id IS NULL AND r.tenant_id = s.tenant_id AND r.target_kind = s.target_kind
 AND r.target_id = s.target_id
WHERE r.trajectory_id IS NOT NULL OR s.trajectory_id IS NOT NULL
"""


def about_trajectories(signals: str, *, more: str = "") -> str:
    """Return a SELECT of what signals say of trajectories, with how near that is.

    Args:
        signals: SELECT of placed signals.
        more: further columns of these signals, each behind a comma.
    """
    return _ABOUT_TRAJECTORIES.strip().replace("/* more */", more).replace("/* signals */", signals)


IN_FORCE_ABOUT_TRAJECTORIES = about_trajectories(SIGNALS_IN_FORCE, more=", r.observed_at")
"""All of which the nearest and then the latest holds, per trajectory and name."""
