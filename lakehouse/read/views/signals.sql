-- What was said about trajectories: where each signal belongs, and which one holds.
-- The schema `part` has what several views stand on; a lake does not list it.

CREATE SCHEMA IF NOT EXISTS part;

-- Whether a signal is a success; null when nobody judged.
CREATE OR REPLACE MACRO succeeded(success, label) AS
coalesce(success >= 0.5, label IN ('true', 'yes', 'pass', 'success'),
         CASE WHEN label IS NOT NULL THEN false END);

CREATE OR REPLACE VIEW signals_placed AS
SELECT tenant_id, signal_id, target_kind, target_id, trajectory_id, step_id, name, value, label,
       rationale, source_kind, source, source_version, confidence, observed_at, recorded_at,
       supersedes, is_gold, span_unit, span_start, span_end
FROM signals WHERE trajectory_id IS NOT NULL
UNION ALL BY NAME FROM unplaced.placed;
COMMENT ON VIEW signals_placed IS 'Signals with the step and trajectory that they are about';

-- Every signal that no other one replaces, and that does not only take another one back.
CREATE OR REPLACE VIEW part.signals_in_force AS
SELECT * FROM signals_placed
WHERE signal_id NOT IN (SELECT supersedes FROM signals WHERE supersedes IS NOT NULL)
  AND (value IS NOT NULL OR label IS DISTINCT FROM 'withdrawn');

-- A target has one trajectory: it stands in the partition so that who asks for one reads no other.
CREATE OR REPLACE VIEW rewards_latest AS
SELECT * FROM part.signals_in_force
QUALIFY row_number() OVER (
    PARTITION BY tenant_id, trajectory_id,
                 coalesce(step_id, trajectory_id, target_kind || ':' || target_id), name,
                 span_unit, span_start, span_end
    ORDER BY recorded_at DESC, observed_at DESC, signal_id DESC
) = 1;
COMMENT ON VIEW rewards_latest IS 'The latest signal per target and name, superseded ones left out';

-- What is said of a trajectory: of itself (distance 0), its steps (1), its session and group (2).
CREATE OR REPLACE VIEW trajectory_signals AS
SELECT tenant_id, trajectory_id, step_id, name, value, label, source_kind, is_gold, target_kind,
       recorded_at, signal_id, CASE WHEN step_id IS NULL THEN 0 ELSE 1 END AS distance
FROM rewards_latest WHERE trajectory_id IS NOT NULL
UNION ALL
SELECT tenant_id, trajectory_id, NULL, name, value, label, source_kind, is_gold, target_kind,
       recorded_at, signal_id, 2
FROM unplaced.wide;
COMMENT ON VIEW trajectory_signals IS 'Every signal in force about a trajectory, and how near it is';

-- The same of all signals in force: the nearest holds, and then the latest, per trajectory and name.
CREATE OR REPLACE VIEW part.signals_about_trajectories AS
SELECT tenant_id, trajectory_id, step_id, name, value, label, source_kind, is_gold, target_kind,
       recorded_at, signal_id, CASE WHEN step_id IS NULL THEN 0 ELSE 1 END AS distance, observed_at
FROM part.signals_in_force WHERE trajectory_id IS NOT NULL
UNION ALL
SELECT tenant_id, trajectory_id, NULL, name, value, label, source_kind, is_gold, target_kind,
       recorded_at, signal_id, 2, observed_at
FROM unplaced.wide;

CREATE OR REPLACE VIEW trajectory_rewards AS
SELECT * EXCLUDE (distance, observed_at) FROM part.signals_about_trajectories
QUALIFY row_number() OVER (
    PARTITION BY tenant_id, trajectory_id, name
    ORDER BY distance, recorded_at DESC, observed_at DESC, signal_id DESC
) = 1;
COMMENT ON VIEW trajectory_rewards IS 'The signal that holds for each trajectory and name';

-- What `trajectory_rewards` gives, found without sorting.
CREATE OR REPLACE VIEW part.judged AS
SELECT tenant_id, trajectory_id, name,
       arg_max({value: value, label: lower(label)},
               (-distance, recorded_at, observed_at, signal_id)) AS r
FROM part.signals_about_trajectories
GROUP BY tenant_id, trajectory_id, name;

-- Reward and success of each trajectory that has any.
CREATE OR REPLACE VIEW part.rewarded AS
SELECT tenant_id, trajectory_id, max(r.value) FILTER (name = 'reward') AS reward,
       max(r.value) FILTER (name = 'success') AS success,
       max(r.label) FILTER (name = 'success') AS label
FROM part.judged WHERE name IN ('reward', 'success') GROUP BY tenant_id, trajectory_id;

-- The same of each trajectory that anything is said of, and of how many names.
CREATE OR REPLACE VIEW part.rewarded_and_counted AS
SELECT tenant_id, trajectory_id, max(r.value) FILTER (name = 'reward') AS reward,
       max(r.value) FILTER (name = 'success') AS success,
       max(r.label) FILTER (name = 'success') AS label, count(*) AS signals
FROM part.judged GROUP BY tenant_id, trajectory_id;
