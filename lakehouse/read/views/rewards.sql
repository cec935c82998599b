-- Rewards by weight, and credit: what training and its judges read.

-- The reward of each trajectory by the weights that stand in each substrate's document.
-- lakehouse/rewards.py takes the lines between the two comments, for weights of its own.
CREATE OR REPLACE VIEW weighted_rewards AS
WITH weighed AS (
    SELECT name, version, name || '@' || version AS weights_id,
           json_extract(manifest, '$.document.spec.reward') AS reward FROM substrates_latest
), weights AS (
    SELECT w.weights_id, e.key AS name, e.value::DOUBLE AS weight,
           json_extract_string(w.reward, '$.combine') AS combine,
           json_extract_string(w.reward, '$.missing') AS missing,
           json_extract_string(w.reward, '$.gate.signal') AS gate,
           json_extract(w.reward, '$.gate.at_least')::DOUBLE AS at_least
    FROM weighed w, json_each(w.reward, '$.signals') e
), units AS (
    SELECT DISTINCT trajectory_id AS unit, tenant_id, trajectory_id, NULL::VARCHAR[] AS steps
    FROM steps WHERE role_in_graph <> 'shadow'
),
-- from units and weights to rewards
outcomes AS (
    -- Of each trajectory the signal that its gate looks at: the nearest holds, and then the latest.
    SELECT tenant_id, trajectory_id, name AS gate,
           arg_max(coalesce(value, succeeded(NULL, lower(label))::INT::DOUBLE, 0.0),
                   (-distance, recorded_at, signal_id)) AS outcome
    FROM trajectory_signals WHERE name IN (SELECT gate FROM weights WHERE gate IS NOT NULL)
    GROUP BY ALL
), evidence AS (
    -- With a gate, what a step earned is nothing where the outcome did not pass, or nobody judged it.
    SELECT w.weights_id, u.unit, w.weight, w.combine, s.tenant_id, s.trajectory_id, s.step_id,
           s.name, s.distance, s.recorded_at, s.signal_id,
           CASE WHEN w.gate IS NULL OR s.step_id IS NULL OR coalesce(o.outcome >= w.at_least, false)
                THEN s.value ELSE 0.0 END AS value
    FROM units u
    JOIN trajectory_signals s
      ON u.tenant_id = s.tenant_id AND u.trajectory_id = s.trajectory_id
     AND (s.step_id IS NULL OR u.steps IS NULL OR list_contains(u.steps, s.step_id))
    JOIN weights w ON s.name = w.name
    LEFT JOIN outcomes o
      ON o.tenant_id = u.tenant_id AND o.trajectory_id = u.trajectory_id AND o.gate = w.gate
    WHERE s.value IS NOT NULL
), shares AS (
    SELECT *, CASE combine
           WHEN 'sum' THEN 1.0
           WHEN 'mean' THEN 1.0 / count(*) OVER alike
           WHEN 'minimum' THEN (row_number() OVER (
               alike ORDER BY value, distance, recorded_at DESC, signal_id DESC) = 1)::INT
           ELSE (row_number() OVER (
               alike ORDER BY distance, recorded_at DESC, signal_id DESC) = 1)::INT
           END AS share
    FROM evidence
    WINDOW alike AS (PARTITION BY weights_id, tenant_id, unit, name)
), components AS (
    SELECT weights_id, tenant_id, unit, name, any_value(weight) AS weight,
           sum(value * share ORDER BY recorded_at, signal_id)::DOUBLE AS value
    FROM shares GROUP BY ALL
), whole AS (
    SELECT weights_id, count(*) AS names, any_value(missing) AS missing FROM weights GROUP BY ALL
), rewards AS (
    SELECT h.weights_id, u.tenant_id, u.unit, u.trajectory_id,
           CASE WHEN count(c.name) = h.names OR h.missing = 'zero'
                THEN coalesce(sum(c.weight * c.value ORDER BY c.name), 0.0) END AS reward,
           map(coalesce(list(c.name ORDER BY c.name) FILTER (c.name IS NOT NULL), []),
               coalesce(list(c.value ORDER BY c.name) FILTER (c.name IS NOT NULL), [])) AS components
    FROM units u CROSS JOIN whole h
    LEFT JOIN components c
      ON h.weights_id = c.weights_id AND u.tenant_id = c.tenant_id AND u.unit = c.unit
    GROUP BY h.weights_id, h.names, h.missing, u.tenant_id, u.unit, u.trajectory_id
)
-- end of rewards
SELECT w.name AS substrate, w.version, r.tenant_id, r.trajectory_id, r.reward,
       CASE WHEN json_extract(w.reward, '$.minimum')::DOUBLE IS NULL THEN r.reward > 0
            ELSE r.reward >= json_extract(w.reward, '$.minimum')::DOUBLE END AS rewarded,
       r.components
FROM rewards r JOIN weighed w ON r.weights_id = w.weights_id;
COMMENT ON VIEW weighted_rewards IS 'The reward of each trajectory by the weights of each substrate';

-- The steps that credit is given to: what the agent itself said, in order of time.
CREATE OR REPLACE VIEW agent_steps AS
SELECT tenant_id, trajectory_id, step_id, app_id, model_served, started_at, state_hash,
       coalesce(min(group_id) OVER whole, trajectory_id) AS group_id,
       row_number() OVER (whole ORDER BY started_at, step_index, step_id) - 1 AS position,
       count(*) OVER whole AS decisions
FROM steps WHERE kind = 'model' AND role_in_graph = 'agent'
WINDOW whole AS (PARTITION BY tenant_id, trajectory_id);
COMMENT ON VIEW agent_steps IS 'The agent''s own model steps in order: what credit is given to';

CREATE OR REPLACE VIEW credits_latest AS
SELECT * FROM credits
QUALIFY row_number() OVER (
    PARTITION BY tenant_id, step_id, algorithm, parameters, weights_hash
    ORDER BY recorded_at DESC, computation_id DESC
) = 1;
COMMENT ON VIEW credits_latest IS 'The latest credit of each step, algorithm, parameters and weights';
