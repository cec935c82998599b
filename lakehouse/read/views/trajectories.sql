-- Whole trajectories: one row of numbers each, and what was said in them.

-- The model of a trajectory, and its harness: what served its agent last.
CREATE OR REPLACE MACRO served_last(model_served, started_at, kind, role_in_graph) AS
arg_max(model_served, started_at) FILTER (kind = 'model' AND role_in_graph = 'agent');

CREATE OR REPLACE VIEW trajectories AS
WITH summed AS (
    SELECT tenant_id, trajectory_id,
           min(app_id) AS app_id, min(environment) AS environment,
           min(started_at) AS started_at, max(coalesce(ended_at, started_at)) AS ended_at,
           count(*) AS steps,
           count(*) FILTER (kind = 'model') AS model_steps,
           count(*) FILTER (kind = 'tool') AS tool_steps,
           count(*) FILTER (role_in_graph = 'discarded') AS discarded_steps,
           count(*) FILTER (error IS NOT NULL OR http_status >= 400) AS failed_steps,
           served_last(model_served, started_at, kind, role_in_graph) AS model_served,
           list_sort(list_distinct(list(model_served) FILTER (model_served IS NOT NULL))) AS models,
           coalesce(sum(input_tokens), 0)::BIGINT AS input_tokens,
           coalesce(sum(output_tokens), 0)::BIGINT AS output_tokens,
           min(key_source) AS key_source,
           bool_or(key_source IN ('prefix', 'none')) AS inferred,
           min(session_hint) AS session_hint, min(group_id) AS group_id,
           served_last({id: harness_id, name: harness_name, version: harness_version},
                       started_at, kind, role_in_graph) AS harness
    FROM steps WHERE role_in_graph <> 'shadow' GROUP BY tenant_id, trajectory_id
), tools AS (
    SELECT tenant_id, trajectory_id, count(*) AS tool_calls,
           count(*) FILTER (failed) AS tool_failures
    FROM tool_events GROUP BY ALL
)
SELECT t.* EXCLUDE (harness), t.harness.id AS harness_id, t.harness.name AS harness_name,
       t.harness.version AS harness_version, coalesce(o.tool_calls, 0) AS tool_calls, coalesce(o.tool_failures, 0) AS tool_failures,
       coalesce(r.reward, r.success) AS reward,
       succeeded(r.success, r.label) AS success,
       coalesce(r.signals, 0) AS signals
FROM summed t
LEFT JOIN tools o ON t.tenant_id = o.tenant_id AND t.trajectory_id = o.trajectory_id
LEFT JOIN part.rewarded_and_counted r
  ON t.tenant_id = r.tenant_id AND t.trajectory_id = r.trajectory_id;
COMMENT ON VIEW trajectories IS 'One row per trajectory: times, steps, tokens, tools, reward, success';

CREATE OR REPLACE VIEW messages_once AS
SELECT tenant_id, message_id, role, parts, characters, first_seen_at, name, event_date
FROM messages WHERE NOT hash(tenant_id, message_id) IN (FROM repeated.messages)
UNION ALL
SELECT tenant_id, message_id, arg_min(role, first_seen_at) AS role,
       arg_min(parts, first_seen_at) AS parts, arg_min(characters, first_seen_at) AS characters,
       arg_min(first_seen_at, first_seen_at) AS first_seen_at,
       arg_min(name, first_seen_at) AS name, arg_min(event_date, first_seen_at) AS event_date
FROM messages WHERE hash(tenant_id, message_id) IN (FROM repeated.messages)
GROUP BY tenant_id, message_id;
COMMENT ON VIEW messages_once IS 'Each message of a tenant once, also what two ingesters stored at a time';

-- The transcript: what each step added, then what it answered. `Lake.conversation` gives the
-- whole context that a step saw.
CREATE OR REPLACE VIEW conversation AS
WITH said AS (
    SELECT tenant_id, event_date, trajectory_id, step_id, step_index, branch, role_in_graph,
           started_at, generate_subscripts(context_message_ids, 1) - 1 AS position,
           unnest(context_message_ids) AS message_id, false AS is_output
    FROM steps
    UNION ALL
    SELECT tenant_id, event_date, trajectory_id, step_id, step_index, branch, role_in_graph,
           started_at, len(context_message_ids), output_message_id, true
    FROM steps WHERE output_message_id IS NOT NULL
)
SELECT s.tenant_id, s.trajectory_id, s.step_index, s.step_id, s.branch, s.role_in_graph,
       s.position, s.is_output, m.role, m.name, m.parts, s.message_id, s.started_at
FROM said s
LEFT JOIN messages_once m ON s.tenant_id = m.tenant_id AND s.message_id = m.message_id;
COMMENT ON VIEW conversation IS 'The messages of each trajectory in order, each once';
