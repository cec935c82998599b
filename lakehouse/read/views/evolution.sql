-- What the control plane looks at (`headrace evolve`): sessions night by night, and what they share.
-- A session is a trajectory that several versions may have answered; a night is the UTC day it began on.

-- Whose name an argument may have to be shown: a name of a program, not a value.
CREATE OR REPLACE MACRO is_argument_name(name) AS
regexp_full_match(name, '[A-Za-z_][A-Za-z0-9_.-]{0,40}');

-- An error without what differs from call to call, hashed: text stays in `steps`, where erasure finds it.
CREATE OR REPLACE MACRO message_form(content) AS
left(md5(regexp_replace(regexp_replace(lower(left(content, 400)), '["''`<\[][^"''`>\]]*["''`>\]]', '*', 'g'),
                        '[0-9a-f]*[0-9][0-9a-f]*', '0', 'g')), 12);

-- Each failed tool call with its tool, its class of error, the argument that it is about, and its message's form.
CREATE OR REPLACE VIEW part.failed_calls AS
WITH failed AS (
    SELECT tenant_id, trajectory_id, result.call_id AS call_id, min(result.content) AS content
    FROM (SELECT tenant_id, trajectory_id, unnest(tool_results) AS result FROM steps
          WHERE len(tool_results) > 0 AND role_in_graph <> 'shadow')
    WHERE result.is_error GROUP BY ALL
), asked AS (
    SELECT tenant_id, trajectory_id, unnest(tool_calls) AS call
    FROM steps WHERE len(tool_calls) > 0 AND role_in_graph <> 'shadow'
), of_failed AS (
    -- Few calls fail, so they are joined before anything is grouped.
    SELECT f.tenant_id, f.trajectory_id, f.call_id, f.content, min(a.call.name) AS tool,
           min(a.call.arguments) AS arguments
    FROM failed f LEFT JOIN asked a
      ON f.tenant_id = a.tenant_id AND f.trajectory_id = a.trajectory_id
     AND f.call_id = a.call.call_id
    GROUP BY ALL
), told AS (
    SELECT * REPLACE (coalesce(tool, 'unknown') AS tool), tool_error_class(content) AS error_class,
           CASE WHEN json_valid(arguments) AND json_type(arguments) = 'OBJECT'
                THEN json_keys(arguments) ELSE [] END AS names
    FROM of_failed
)
SELECT tenant_id, trajectory_id, tool, error_class, message_form(content) AS message,
       list_sort(list_filter(names, lambda n: is_argument_name(n) AND contains(content, n)))[1]
           AS argument
FROM told;

-- One row per session, with everything that is counted.
CREATE OR REPLACE VIEW part.looked_at AS
WITH used AS (
    SELECT tenant_id, trajectory_id, tool, min(started_at) AS first_call
    FROM tool_events WHERE tool IS NOT NULL GROUP BY ALL
), tools AS (
    SELECT tenant_id, trajectory_id, list(tool ORDER BY first_call, tool) AS tools
    FROM used GROUP BY ALL
), failed AS (
    SELECT tenant_id, trajectory_id,
           list(DISTINCT {tool: tool, error_class: error_class, argument: argument,
                          message: message}) AS failures
    FROM part.failed_calls GROUP BY ALL
), said AS (
    SELECT tenant_id, trajectory_id, name, is_gold,
           arg_max({evaluator: source_kind || ' ' || source || coalesce(' ' || source_version, ''),
                    said: succeeded(value, lower(label))},
                   (recorded_at, observed_at, signal_id)) AS r
    FROM part.signals_in_force
    WHERE name IN ('success', 'correction', 'abandoned') AND trajectory_id IS NOT NULL
    GROUP BY ALL
), judged AS (
    SELECT tenant_id, trajectory_id, list({name: name, evaluator: r.evaluator, is_gold: is_gold,
                                           said: r.said}) AS judgements,
           bool_or(r.said) FILTER (name = 'correction') AS corrected
    FROM said GROUP BY ALL
)
SELECT o.tenant_id, o.trajectory_id, o.workload, (o.started_at AT TIME ZONE 'UTC')::DATE AS day,
       o.success, coalesce(j.corrected, false) AS corrected, o.abandoned, o.retries > 0 AS retried,
       CASE WHEN o.cost > 0 THEN floor(4 * log2(o.cost))::BIGINT END AS cost_level,
       CASE WHEN o.versions_served <= 1 THEN o.model END AS model,
       CASE WHEN o.versions_served <= 1 THEN o.harness END AS harness,
       coalesce(t.tools, []) AS tools, coalesce(f.failures, []) AS failures,
       coalesce(j.judgements, []) AS judgements
FROM trajectory_outcomes o
LEFT JOIN tools t ON o.tenant_id = t.tenant_id AND o.trajectory_id = t.trajectory_id
LEFT JOIN failed f ON o.tenant_id = f.tenant_id AND o.trajectory_id = f.trajectory_id
LEFT JOIN judged j ON o.tenant_id = j.tenant_id AND o.trajectory_id = j.trajectory_id;

-- Each session once per signal, and with what happened; `level` is of the cost, four steps to a doubling.
CREATE OR REPLACE MACRO signals_of(s, classes) AS
list_concat(
    CASE WHEN s.success IS NOT NULL
         THEN [{signal: 'success', subject: '', level: NULL::BIGINT, event: NOT s.success}] ELSE [] END,
    [{signal: 'correction_rate', subject: '', level: NULL::BIGINT, event: s.corrected},
     {signal: 'abandonment', subject: '', level: NULL::BIGINT, event: s.abandoned},
     {signal: 'retries', subject: '', level: NULL::BIGINT, event: s.retried},
     {signal: 'mix', subject: concat_ws(' ', s.workload, s.tenant_id, s.tools[1]), level: NULL::BIGINT,
      event: NULL::BOOLEAN}],
    CASE WHEN s.cost_level IS NOT NULL
         THEN [{signal: 'cost_per_success', subject: '', level: s.cost_level, event: s.success}] ELSE [] END,
    CASE WHEN len(s.tools) > 0
         THEN [{signal: 'invalid_arguments', subject: '', level: NULL::BIGINT,
                event: len(list_filter(s.failures, lambda f: f.error_class = 'invalid_arguments')) > 0}]
         ELSE [] END,
    list_transform(list_filter(classes, lambda c: list_contains(s.tools, c.tool)), lambda c:
        {signal: 'tool_errors', subject: c.tool || ': ' || c.error_class, level: NULL::BIGINT,
         event: len(list_filter(s.failures, lambda f: f.tool = c.tool
                                AND f.error_class = c.error_class)) > 0})
);

-- Every class of error of every tool: what never happens to a tool is counted for it, too.
CREATE OR REPLACE VIEW part.classes AS
SELECT list(DISTINCT {tool: f.tool, error_class: f.error_class}) AS classes
FROM (SELECT unnest(failures) AS f FROM part.looked_at);

CREATE OR REPLACE VIEW evolution_signals AS
WITH counted AS (
    SELECT s.tenant_id, s.workload, s.day, unnest(signals_of(s, coalesce(c.classes, []))) AS one
    FROM part.looked_at s, part.classes c
)
SELECT tenant_id, workload, day, one.signal AS signal, one.subject AS subject, one.level AS level,
       count(*) AS sessions, count(*) FILTER (one.event) AS events
FROM counted GROUP BY ALL;
COMMENT ON VIEW evolution_signals IS 'Sessions per night and signal, and in how many it happened: failures, corrections, errors; of costs, successes per level';

-- Whatever a session shares with others that may be the cause.
CREATE OR REPLACE MACRO shared_by(s) AS
list_concat(
    [{dimension: 'tenant', value: s.tenant_id}, {dimension: 'workload', value: s.workload}],
    CASE WHEN s.model IS NOT NULL THEN [{dimension: 'model_version', value: s.model}] ELSE [] END,
    CASE WHEN s.harness IS NOT NULL THEN [{dimension: 'harness_version', value: s.harness}] ELSE [] END,
    CASE WHEN len(s.tools) > 1
         THEN [{dimension: 'procedure', value: array_to_string(s.tools[1:6], ' > ')}] ELSE [] END,
    list_transform(s.tools, lambda t: {dimension: 'tool', value: t}),
    list_distinct(list_transform(s.failures, lambda f:
        {dimension: 'error_class', value: f.tool || ': ' || f.error_class})),
    list_distinct(list_transform(list_filter(s.failures, lambda f: f.argument IS NOT NULL), lambda f:
        {dimension: 'argument_path', value: f.tool || ': ' || f.error_class || ': ' || f.argument})),
    list_distinct(list_transform(s.failures, lambda f:
        {dimension: 'message', value: f.tool || ': ' || f.error_class || ': ' || f.message}))
);

CREATE OR REPLACE VIEW part.shared AS
SELECT s.tenant_id, s.workload, s.day, s.trajectory_id,
       unnest(signals_of(s, coalesce(c.classes, []))) AS one, shared_by(s) AS shared
FROM part.looked_at s, part.classes c;

CREATE OR REPLACE VIEW failure_clusters AS
WITH each AS (
    SELECT tenant_id, workload, day, one, unnest(shared) AS what FROM part.shared
    WHERE one.signal <> 'mix'
)
SELECT tenant_id, workload, day, one.signal AS signal, one.subject AS subject, one.level AS level,
       what.dimension AS dimension, what.value AS value, count(*) AS sessions,
       count(*) FILTER (one.event) AS events
FROM each GROUP BY ALL;
COMMENT ON VIEW failure_clusters IS 'The same by what sessions share: tool, class of error, argument, procedure, versions, workload, tenant, form of the message';

-- Who judged sessions of a night, and how often gold signals say something else.
CREATE OR REPLACE VIEW evolution_evaluators AS
WITH each AS (
    SELECT tenant_id, workload, day, unnest(judgements) AS j,
           list_filter(judgements, lambda one: one.is_gold) AS gold FROM part.looked_at
), compared AS (
    SELECT *, CASE WHEN NOT j.is_gold
                   THEN list_filter(gold, lambda one: one.name = j.name)[1].said END AS gold_said
    FROM each
)
SELECT tenant_id, workload, day, j.name AS name, j.evaluator AS evaluator, j.is_gold AS is_gold,
       count(*) AS judged, count(gold_said) AS with_gold,
       count(*) FILTER (gold_said <> j.said) AS disagreeing
FROM compared GROUP BY ALL;
COMMENT ON VIEW evolution_evaluators IS 'Who judged the sessions of each night, and how often gold signals disagree';

CREATE OR REPLACE VIEW decisions_latest AS
SELECT * FROM decisions
QUALIFY row_number() OVER (PARTITION BY decision_id ORDER BY recorded_at DESC) = 1;
COMMENT ON VIEW decisions_latest IS 'The present state of each decision of the control plane';

CREATE OR REPLACE VIEW interventions_latest AS
SELECT * FROM interventions
QUALIFY row_number() OVER (PARTITION BY intervention_id ORDER BY recorded_at DESC) = 1;
COMMENT ON VIEW interventions_latest IS 'The present state of each change that a person approved or began';

CREATE OR REPLACE VIEW detector_states AS
WITH last AS (
    SELECT policy, as_of, decision_id,
           unnest(from_json(json_extract(document, '$.saw.signals'), '[{
               "signal": "VARCHAR", "subject": "VARCHAR", "metric": "VARCHAR", "since": "DATE",
               "reference": {"sessions": "BIGINT", "rate": "DOUBLE"},
               "case": {"sessions": "BIGINT", "rate": "DOUBLE"}, "cusum": "DOUBLE",
               "opened": "BOOLEAN", "log_e": "DOUBLE", "log_e_needed": "DOUBLE",
               "confirmed": "BOOLEAN"}]')) AS one
    FROM decisions_latest
    QUALIFY rank() OVER (PARTITION BY policy ORDER BY as_of DESC, decision_id) = 1
)
SELECT policy, as_of, decision_id, one.signal AS signal, one.subject AS subject,
       one.metric AS metric, one.since AS since, one.reference.sessions AS reference_sessions,
       one.reference.rate AS reference_rate, one."case".sessions AS case_sessions,
       one."case".rate AS case_rate, one.cusum AS cusum, one.opened AS opened, one.log_e AS log_e,
       one.log_e_needed AS log_e_needed, one.confirmed AS confirmed
FROM last;
COMMENT ON VIEW detector_states IS 'What the detectors of each policy said in its last decision';
