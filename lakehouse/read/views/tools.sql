-- Tool calls: each once, however often it was seen, and how they fail.

-- What the beginning of a failed tool's answer says went wrong; the first that fits.
CREATE OR REPLACE MACRO tool_error_class(content) AS
CASE
    WHEN regexp_matches(lower(left(content, 400)), 'time[d ]*-?out|deadline') THEN 'timeout'
    WHEN regexp_matches(lower(left(content, 400)), 'rate.?limit|too many requests|\b429\b') THEN 'rate_limit'
    WHEN regexp_matches(lower(left(content, 400)), 'permission|forbidden|unauthori[sz]ed|not allowed|denied|\b40[13]\b') THEN 'permission'
    WHEN regexp_matches(lower(left(content, 400)), 'not.?found|no such|does(n.t| not) exist|\b404\b') THEN 'not_found'
    WHEN regexp_matches(lower(left(content, 400)), 'invalid|validation|malformed|bad request|required|unexpected|\b4(00|22)\b') THEN 'invalid_arguments'
    WHEN regexp_matches(lower(left(content, 400)), 'connection|network|unreachable|resolve host|\b50[234]\b') THEN 'network'
    WHEN regexp_matches(lower(left(content, 400)), 'traceback|exception|exit(ed with)? (code|status)|command failed|segfault') THEN 'crashed'
    ELSE 'other'
END;

-- One row per tool call of a trajectory, whether seen on the wire, in the answer, or both. A
-- dispatch on the wire is the call with the same arguments that its parent step asked for.
CREATE OR REPLACE VIEW tool_events AS
WITH asked AS (
    SELECT tenant_id, trajectory_id, kind, step_id, parent_step_id, started_at, latency_ms,
           unnest(tool_calls) AS call
    FROM steps WHERE len(tool_calls) > 0 AND role_in_graph <> 'shadow'
), answered AS (
    SELECT tenant_id, trajectory_id, kind, started_at, unnest(tool_results) AS result
    FROM steps WHERE len(tool_results) > 0 AND role_in_graph <> 'shadow'
), dispatched AS (
    SELECT w.tenant_id, w.trajectory_id, w.call.call_id AS wire_id, min(a.call.call_id) AS call_id
    FROM asked w JOIN asked a
      ON w.kind = 'tool' AND a.kind = 'model' AND a.tenant_id = w.tenant_id
     AND a.step_id = w.parent_step_id AND a.call.arguments = w.call.arguments
     AND ends_with(a.call.name, w.call.name)
    GROUP BY ALL
), events AS (
    SELECT tenant_id, trajectory_id, call.call_id AS seen_id, call.name AS tool, started_at,
           NULL AS failed, NULL AS error_class, kind = 'tool' AS on_wire,
           CASE WHEN kind = 'tool' THEN latency_ms END AS latency_ms
    FROM asked
    UNION ALL
    SELECT tenant_id, trajectory_id, result.call_id, NULL, started_at, result.is_error,
           CASE WHEN NOT result.is_error THEN NULL ELSE tool_error_class(result.content) END,
           kind = 'tool', NULL
    FROM answered
), placed AS (
    SELECT e.* EXCLUDE (seen_id), coalesce(d.call_id, e.seen_id) AS call_id
    FROM events e LEFT JOIN dispatched d
      ON e.tenant_id = d.tenant_id AND e.trajectory_id = d.trajectory_id AND e.seen_id = d.wire_id
)
SELECT tenant_id, trajectory_id, call_id, min(tool) AS tool, min(started_at) AS started_at,
       bool_or(failed) AS failed, min(error_class) AS error_class, bool_or(on_wire) AS on_wire,
       max(latency_ms) AS latency_ms
FROM placed GROUP BY tenant_id, trajectory_id, call_id;
COMMENT ON VIEW tool_events IS 'One row per tool call, with whether it failed';

CREATE OR REPLACE VIEW tool_failures AS
SELECT tenant_id, coalesce(tool, 'unknown') AS tool, count(*) AS calls,
       count(*) FILTER (failed IS NOT NULL) AS answered,
       count(*) FILTER (failed) AS failures,
       count(*) FILTER (failed) / nullif(count(*) FILTER (failed IS NOT NULL), 0)::DOUBLE
           AS failure_rate,
       quantile_cont(latency_ms, 0.5) AS latency_ms_p50,
       quantile_cont(latency_ms, 0.95) AS latency_ms_p95
FROM tool_events GROUP BY ALL;
COMMENT ON VIEW tool_failures IS 'Calls, failures and latency per tool';

-- Decisions of rules of kind Action, each with what a person said where one was asked.
CREATE OR REPLACE VIEW part.guarded AS
WITH answered AS (
    SELECT tenant_id, step_id, max(value) AS approved FROM part.signals_in_force
    WHERE name = 'approval' AND step_id IS NOT NULL GROUP BY ALL
)
SELECT g.tenant_id, g.trajectory_id, g.step_id, substr(g.source, 8) AS rule, g.label AS decision,
       g.value AS severity, CASE WHEN g.label = 'hold' THEN a.approved END AS approved
FROM part.signals_in_force g
LEFT JOIN answered a ON a.tenant_id = g.tenant_id AND a.step_id = g.step_id
WHERE g.name = 'guard' AND starts_with(g.source, 'action:');

CREATE OR REPLACE VIEW guardrail_effectiveness AS
SELECT tenant_id, rule, count(*) AS decisions,
       count(*) FILTER (decision = 'deny') AS denied, count(*) FILTER (decision = 'limit') AS limited,
       count(*) FILTER (decision = 'hold') AS held, count(*) FILTER (approved >= 0.5) AS approved,
       count(*) FILTER (decision = 'dry-run') AS watched,
       count(*) FILTER (approved >= 0.5)
           / nullif(count(*) FILTER (decision = 'hold'), 0)::DOUBLE AS approval_rate
FROM part.guarded GROUP BY ALL;
COMMENT ON VIEW guardrail_effectiveness IS 'What each rule on tool calls decided, and what people said of the calls that it held';

CREATE OR REPLACE VIEW action_severity AS
SELECT tenant_id, trajectory_id, count(*) AS decisions,
       count(*) FILTER (decision IN ('deny', 'limit', 'hold')) AS stopped,
       max(severity) AS worst, sum(severity) AS severity
FROM part.guarded GROUP BY ALL;
COMMENT ON VIEW action_severity IS 'How much harm the judged tool calls of a trajectory could do';
