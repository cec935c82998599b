"""Views of what was said about trajectories: where each signal belongs, and which one holds."""

from lakehouse.read.views.shared import (
    IN_FORCE_ABOUT_TRAJECTORIES,
    SIGNALS_IN_FORCE,
    about_trajectories,
)
from lakehouse.read.views.view import View

_SIGNALS_PLACED = """
SELECT tenant_id, signal_id, target_kind, target_id, trajectory_id, step_id, name, value, label,
       rationale, source_kind, source, source_version, confidence, observed_at, recorded_at,
       supersedes, is_gold
FROM signals WHERE trajectory_id IS NOT NULL
UNION ALL BY NAME FROM unplaced.placed
"""

_REWARDS_LATEST = """
-- A target has one trajectory: it stands in the partition so that who asks for one reads no other.
/* in force */
QUALIFY row_number() OVER (
    PARTITION BY tenant_id, trajectory_id,
                 coalesce(step_id, trajectory_id, target_kind || ':' || target_id), name
    ORDER BY recorded_at DESC, observed_at DESC, signal_id DESC
) = 1
""".replace("/* in force */", SIGNALS_IN_FORCE)

_TRAJECTORY_SIGNALS = about_trajectories("SELECT * FROM rewards_latest")

_TRAJECTORY_REWARDS = """
SELECT * EXCLUDE (distance, observed_at) FROM (/* signals */)
QUALIFY row_number() OVER (
    PARTITION BY tenant_id, trajectory_id, name
    ORDER BY distance, recorded_at DESC, observed_at DESC, signal_id DESC
) = 1
""".replace("/* signals */", IN_FORCE_ABOUT_TRAJECTORIES)

SIGNAL_VIEWS: tuple[View, ...] = (
    View("signals_placed", "Signals with the step and trajectory that they are about",
         _SIGNALS_PLACED),
    View("rewards_latest", "The latest signal per target and name, superseded ones left out",
         _REWARDS_LATEST),
    View("trajectory_signals", "Every signal in force about a trajectory, and how near it is",
         _TRAJECTORY_SIGNALS),
    View("trajectory_rewards", "The signal that holds for each trajectory and name",
         _TRAJECTORY_REWARDS),
)  # fmt: skip
