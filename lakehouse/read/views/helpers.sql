-- What views need to know of a whole table, found once per version of the table.
--
-- A message is looked for before it is stored, but two processes may look at the same moment, and then
-- both store it. A step may be decided about again. Such names are few: found by a hash and kept in
-- memory, they let views read all other rows as they are, with every filter pushed down to the files.

CREATE SCHEMA IF NOT EXISTS repeated;

CREATE OR REPLACE TABLE repeated.messages AS
SELECT hash(tenant_id, message_id) AS name FROM messages GROUP BY ALL HAVING count(*) > 1;

CREATE OR REPLACE TABLE repeated.governance AS
SELECT hash(tenant_id, step_id) AS name FROM governance GROUP BY ALL HAVING count(*) > 1;

-- Signals that do not name their trajectory. Most lakes have none; Headrace then leaves these views
-- empty by their text, since planning their joins takes longer than most questions take.

CREATE SCHEMA IF NOT EXISTS unplaced;

CREATE OR REPLACE VIEW unplaced.feedback AS
SELECT * FROM signals WHERE trajectory_id IS NULL;

-- Late feedback may name only the response; its step is known by now. Small servers number their
-- responses: one of the application that gave the feedback comes before those of others.
CREATE OR REPLACE VIEW unplaced.placed AS
SELECT g.tenant_id, g.signal_id, g.target_kind, g.target_id,
       coalesce(s.trajectory_id, CASE WHEN g.target_kind = 'trajectory' THEN g.target_id END)
           AS trajectory_id,
       coalesce(g.step_id, s.step_id) AS step_id, g.name, g.value, g.label, g.rationale,
       g.source_kind, g.source, g.source_version, g.confidence, g.observed_at, g.recorded_at,
       g.supersedes, g.is_gold, g.span_unit, g.span_start, g.span_end
FROM unplaced.feedback g
LEFT JOIN (
    SELECT tenant_id, signal_id AS name, 'response' AS target_kind,
           arg_min(step_id, (is_other, started_at)) AS step_id,
           arg_min(trajectory_id, (is_other, started_at)) AS trajectory_id
    FROM (SELECT f.tenant_id, f.signal_id, t.step_id, t.trajectory_id, t.started_at,
                 (t.app_id = f.app_id AND t.environment = f.environment) IS NOT TRUE AS is_other
          FROM unplaced.feedback f
          JOIN steps t ON t.tenant_id = f.tenant_id AND t.response_id = f.target_id
          WHERE f.target_kind = 'response')
    GROUP BY tenant_id, signal_id
    UNION ALL
    SELECT tenant_id, step_id, 'step', any_value(step_id), any_value(trajectory_id)
    FROM steps
    WHERE step_id IN (SELECT target_id FROM unplaced.feedback
                      WHERE target_kind IN ('step', 'token_span'))
    GROUP BY tenant_id, step_id
    UNION ALL
    SELECT tenant_id, exchange_id, 'step',
           arg_min(step_id, started_at), arg_min(trajectory_id, started_at)
    FROM steps
    WHERE exchange_id IN (SELECT target_id FROM unplaced.feedback
                          WHERE target_kind IN ('step', 'token_span'))
    GROUP BY tenant_id, exchange_id
) s ON g.tenant_id = s.tenant_id
   AND s.name = CASE g.target_kind WHEN 'response' THEN g.signal_id ELSE g.target_id END
   AND s.target_kind = CASE g.target_kind WHEN 'token_span' THEN 'step' ELSE g.target_kind END;

-- What was said last of a session or group holds for each of its trajectories.
CREATE OR REPLACE VIEW unplaced.wide AS
SELECT r.tenant_id, s.trajectory_id, r.name, r.value, r.label, r.source_kind, r.is_gold,
       r.target_kind, r.observed_at, r.recorded_at, r.signal_id
FROM (SELECT * FROM unplaced.feedback
      WHERE signal_id NOT IN (SELECT supersedes FROM signals WHERE supersedes IS NOT NULL)
        AND (value IS NOT NULL OR label IS DISTINCT FROM 'withdrawn')
      QUALIFY row_number() OVER (PARTITION BY tenant_id, target_kind, target_id, name
          ORDER BY recorded_at DESC, observed_at DESC, signal_id DESC) = 1) r
JOIN (SELECT DISTINCT tenant_id, trajectory_id, session_hint AS target_id,
             'session' AS target_kind
      FROM steps WHERE session_hint IN (SELECT target_id FROM unplaced.feedback
                                        WHERE target_kind = 'session')
      UNION ALL
      SELECT DISTINCT tenant_id, trajectory_id, group_id, 'group'
      FROM steps WHERE group_id IN (SELECT target_id FROM unplaced.feedback
                                    WHERE target_kind = 'group')) s
  ON r.tenant_id = s.tenant_id AND r.target_kind = s.target_kind AND r.target_id = s.target_id;
