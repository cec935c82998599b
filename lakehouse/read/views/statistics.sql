-- Reliability: how often, how surely, how fast and at what cost agents succeed.
--
-- Every statistic is cut by four dimensions within a tenant: tenant, model (version served), harness and
-- workload (application and environment). Sources: Wilson 1927 for the interval; Chen et al. 2021
-- (arXiv 2107.03374) for pass@k, the chance that at least one of k attempts succeeds; Yao et al. 2024
-- (arXiv 2406.12045) for pass^k, the chance that all k do; both unbiased.

CREATE OR REPLACE MACRO normal_quantile() AS 1.959963984540054;

-- Wilson's interval. Of a mean of values between 0 and 1 it is too wide rather than too narrow.
CREATE OR REPLACE MACRO wilson_low(rate, judged, z) AS
CASE WHEN judged > 0 THEN
       greatest(0, (rate + z*z/(2*judged) - z * sqrt(rate*(1-rate)/judged + z*z/(4*judged*judged)))
                   / (1 + z*z/judged)) END;

CREATE OR REPLACE MACRO wilson_high(rate, judged, z) AS
CASE WHEN judged > 0 THEN
       least(1, (rate + z*z/(2*judged) + z * sqrt(rate*(1-rate)/judged + z*z/(4*judged*judged)))
                / (1 + z*z/judged)) END;

CREATE OR REPLACE VIEW prices_latest AS
SELECT *, lead(valid_from) OVER (PARTITION BY tenant_id, model ORDER BY valid_from) AS valid_until
FROM (SELECT * FROM prices QUALIFY row_number() OVER (
          PARTITION BY tenant_id, model, valid_from ORDER BY recorded_at DESC
      ) = 1);
COMMENT ON VIEW prices_latest IS 'The prices that hold, per model and moment';

-- Each step beside the price that held when it began: prices are few, so steps are not sorted.
CREATE OR REPLACE VIEW part.priced_steps AS
SELECT s.*, p.currency,
       CASE WHEN p.up_to_input_tokens IS NULL OR s.input_tokens <= p.up_to_input_tokens THEN
       ((s.input_tokens - coalesce(s.cached_input_tokens, 0)) * p.input_per_million
        + coalesce(s.cached_input_tokens, 0)
          * coalesce(p.cached_input_per_million, p.input_per_million)
        + s.output_tokens * p.output_per_million) / 1e6 END AS cost
FROM steps s LEFT JOIN prices_latest p
  ON s.tenant_id = p.tenant_id AND s.model_served = p.model AND s.started_at >= p.valid_from
 AND s.started_at < coalesce(p.valid_until, 'infinity'::TIMESTAMPTZ);

-- What each model call cost by the price that held when it began; null where no price is known.
CREATE OR REPLACE VIEW step_costs AS
SELECT tenant_id, trajectory_id, step_id, currency, cost
FROM part.priced_steps WHERE kind = 'model';
COMMENT ON VIEW step_costs IS 'What each model call cost';

CREATE OR REPLACE VIEW part.left_alone AS
SELECT tenant_id, trajectory_id, max(value) >= 0.5 AS abandoned FROM trajectory_signals
WHERE name = 'abandoned' GROUP BY tenant_id, trajectory_id;

-- How many versions answered a trajectory, of the agent with the most: each is a model in a harness.
CREATE OR REPLACE VIEW part.versions_served AS
SELECT tenant_id, trajectory_id, max(versions) AS versions_served
FROM (
    SELECT tenant_id, trajectory_id, agent_role,
           count(DISTINCT (model_served, harness_name, harness_version)) AS versions
    FROM steps WHERE kind = 'model' AND role_in_graph = 'agent' AND model_served IS NOT NULL
    GROUP BY tenant_id, trajectory_id, agent_role
)
GROUP BY tenant_id, trajectory_id;

-- How each trajectory ended. A judgement says more than the last call, which says more than nothing.
CREATE OR REPLACE VIEW trajectory_ends AS
WITH last AS (
    SELECT tenant_id, trajectory_id,
           max({began: started_at, id: step_id, discarded: role_in_graph = 'discarded',
                failed: error IS NOT NULL OR http_status >= 400, reason: finish_reason}) AS call,
           served_last({role: agent_role, name: harness_name, version: harness_version,
                        model: model_served}, started_at, kind, role_in_graph) AS served,
           count(DISTINCT agent_role) AS agents
    FROM steps WHERE kind = 'model' AND role_in_graph IN ('agent', 'discarded', 'queued')
    GROUP BY tenant_id, trajectory_id
), ended AS (
    SELECT l.*, coalesce(v.versions_served, 0) AS versions_served,
           CASE WHEN succeeded(r.success, r.label) THEN 'goal_reached'
                WHEN coalesce(a.abandoned, false) THEN 'abandoned'
                WHEN l.call.reason IN ('length', 'max_tokens', 'max_output_tokens', 'MAX_TOKENS', 'LENGTH',
                                       'incomplete', 'model_context_window_exceeded', 'budget_exceeded')
                THEN 'limit'
                WHEN l.call.failed OR NOT succeeded(r.success, r.label) THEN 'error'
                WHEN l.call.discarded THEN 'interrupted'
                ELSE 'open' END AS ended_as
    FROM last l
    LEFT JOIN part.versions_served v
      ON l.tenant_id = v.tenant_id AND l.trajectory_id = v.trajectory_id
    LEFT JOIN part.rewarded r
      ON l.tenant_id = r.tenant_id AND l.trajectory_id = r.trajectory_id
    LEFT JOIN part.left_alone a
      ON l.tenant_id = a.tenant_id AND l.trajectory_id = a.trajectory_id
)
SELECT tenant_id, trajectory_id, ended_as,
       -- Null while it is open: a truncated one might have reached its goal.
       CASE WHEN ended_as <> 'open' THEN ended_as IN ('interrupted', 'limit', 'abandoned') END
           AS is_truncated,
       call.began AS last_call_at, served.role AS agent_role, served.name AS harness_name,
       served.version AS harness_version, served.model AS model_served, agents, versions_served
FROM ended;
COMMENT ON VIEW trajectory_ends IS 'How each trajectory ended, and how many versions answered it';

-- One row per trajectory with what reliability is counted from, each step read once.
CREATE OR REPLACE VIEW trajectory_outcomes AS
WITH summed AS (
    SELECT tenant_id, trajectory_id, min(group_id) AS group_id, min(app_id) AS app_id,
           min(environment) AS environment,
           served_last(coalesce(harness_name || '@' || harness_version, harness_id),
                       started_at, kind, role_in_graph) AS harness,
           served_last(model_served, started_at, kind, role_in_graph) AS model,
           min(started_at) AS started_at, max(coalesce(ended_at, started_at)) AS ended_at,
           coalesce(sum(input_tokens), 0)::BIGINT AS input_tokens,
           coalesce(sum(output_tokens), 0)::BIGINT AS output_tokens,
           count(*) FILTER (kind = 'model') AS model_calls,
           count(*) FILTER (kind = 'model' AND role_in_graph = 'agent') AS decisions,
           count(retry_of) FILTER (kind = 'model') AS retries,
           -- A sum that leaves a call out would look cheap.
           CASE WHEN bool_and(cost IS NOT NULL OR output_tokens IS NULL) FILTER (kind = 'model')
                 AND min(currency) = max(currency)
                THEN sum(cost) FILTER (kind = 'model') END AS cost,
           min(currency) FILTER (kind = 'model') AS currency
    FROM part.priced_steps WHERE role_in_graph <> 'shadow' GROUP BY tenant_id, trajectory_id
)
SELECT t.tenant_id, t.trajectory_id, coalesce(t.group_id, t.trajectory_id) AS group_id,
       t.app_id || '/' || t.environment AS workload, t.model, t.harness, t.started_at,
       succeeded(r.success, r.label) AS success, coalesce(r.reward, r.success) AS reward, t.decisions,
       t.model_calls, t.retries, coalesce(l.abandoned, false) AS abandoned,
       date_diff('microseconds', t.started_at, t.ended_at) / 1000.0 AS duration_ms,
       t.input_tokens + t.output_tokens AS tokens, t.output_tokens, t.cost, t.currency,
       coalesce(v.versions_served, 0) AS versions_served
FROM summed t
LEFT JOIN part.versions_served v
  ON t.tenant_id = v.tenant_id AND t.trajectory_id = v.trajectory_id
LEFT JOIN part.rewarded r
  ON t.tenant_id = r.tenant_id AND t.trajectory_id = r.trajectory_id
LEFT JOIN part.left_alone l ON t.tenant_id = l.tenant_id AND t.trajectory_id = l.trajectory_id
WHERE t.model_calls > 0;
COMMENT ON VIEW trajectory_outcomes IS 'One row per trajectory: outcome, decisions, retries, time, cost';

-- Each trajectory once per dimension. What several versions answered is no version's.
CREATE OR REPLACE VIEW part.outcomes_by_dimension AS
SELECT o.*, d.name AS dimension, d.value
FROM trajectory_outcomes o, LATERAL (
    SELECT 'tenant' AS name, o.tenant_id AS value
    UNION ALL SELECT 'model', o.model WHERE o.versions_served <= 1
    UNION ALL SELECT 'harness', o.harness WHERE o.versions_served <= 1
    UNION ALL SELECT 'workload', o.workload) d
WHERE d.value IS NOT NULL;

CREATE OR REPLACE VIEW reliability AS
WITH cut AS (FROM part.outcomes_by_dimension), counted AS (
    SELECT tenant_id, dimension, value, count(*) AS trajectories, count(success) AS judged,
           count(*) FILTER (success) AS successes,
           avg(decisions) AS steps_mean,
           avg(decisions) FILTER (success IS NOT NULL) AS judged_steps_mean,
           quantile_cont(decisions, [0.5, 0.95]) AS steps_p,
           quantile_cont(duration_ms, [0.5, 0.95]) AS duration_p,
           sum(retries) / sum(model_calls)::DOUBLE AS retry_rate,
           avg(abandoned::INT) AS abandon_rate,
           sum(output_tokens)::BIGINT AS output_tokens, min(currency) AS currency,
           sum(tokens) FILTER (success IS NOT NULL) AS judged_tokens,
           CASE WHEN count(*) FILTER (success IS NOT NULL AND cost IS NULL) = 0
                 AND min(currency) = max(currency)
                THEN sum(cost) FILTER (success IS NOT NULL) END AS judged_cost
    FROM cut GROUP BY tenant_id, dimension, value
), rated AS (
    SELECT *, successes / nullif(judged, 0)::DOUBLE AS rate, normal_quantile() AS z FROM counted
), waited AS (
    -- Tenths of a millisecond, counted: an exact quantile would hold every call four times over.
    SELECT tenant_id, dimension, value, what, round(ms, 1) AS ms, count(*) AS calls
    FROM (
        SELECT c.tenant_id, c.dimension, c.value, w.what, w.ms
        FROM cut c
        JOIN steps s ON c.tenant_id = s.tenant_id AND c.trajectory_id = s.trajectory_id,
        LATERAL (SELECT 'latency' AS what, s.latency_ms AS ms
                 UNION ALL SELECT 'first_token', s.time_to_first_token_ms) w
        WHERE s.kind = 'model' AND s.role_in_graph = 'agent' AND w.ms IS NOT NULL
    )
    GROUP BY tenant_id, dimension, value, what, round(ms, 1)
), ranked AS (
    SELECT *, sum(calls) OVER (whole ORDER BY ms) AS up_to, sum(calls) OVER whole - 1 AS last
    FROM waited WINDOW whole AS (PARTITION BY tenant_id, dimension, value, what)
), placed AS (
    SELECT tenant_id, dimension, value, what, p, p * last - floor(p * last) AS share,
           min(ms) FILTER (up_to > floor(p * last)) AS below,
           min(ms) FILTER (up_to > ceil(p * last)) AS above
    FROM ranked, (VALUES (0.5::DOUBLE), (0.95::DOUBLE)) AS quantiles(p)
    GROUP BY tenant_id, dimension, value, what, p, last
), waits AS (
    SELECT tenant_id, dimension, value,
           max(ms) FILTER (what = 'latency' AND p = 0.5) AS latency_p50,
           max(ms) FILTER (what = 'latency' AND p = 0.95) AS latency_p95,
           max(ms) FILTER (what = 'first_token' AND p = 0.5) AS first_token_p50,
           max(ms) FILTER (what = 'first_token' AND p = 0.95) AS first_token_p95
    FROM (SELECT *, below + share * (above - below) AS ms FROM placed)
    GROUP BY tenant_id, dimension, value
)
SELECT r.tenant_id, r.dimension, r.value, r.trajectories, r.judged, r.successes,
       r.rate AS success_rate,
       wilson_low(rate, judged, z) AS rate_low,
       wilson_high(rate, judged, z) AS rate_high,
       -- S^(1/T): how right each step would be were all alike and all needed.
       power(rate, 1 / judged_steps_mean) AS step_accuracy,
       r.retry_rate, r.abandon_rate,
       r.judged_tokens / nullif(r.successes, 0)::DOUBLE AS tokens_per_success,
       r.judged_cost / nullif(r.successes, 0) AS cost_per_success, r.currency,
       r.steps_mean, r.steps_p[1] AS steps_p50, r.steps_p[2] AS steps_p95,
       r.duration_p[1] AS duration_ms_p50, r.duration_p[2] AS duration_ms_p95,
       w.latency_p50 AS latency_ms_p50, w.latency_p95 AS latency_ms_p95,
       w.first_token_p50 AS first_token_ms_p50, w.first_token_p95 AS first_token_ms_p95,
       r.output_tokens
FROM rated r
LEFT JOIN waits w
  ON r.tenant_id = w.tenant_id AND r.dimension = w.dimension AND r.value = w.value;
COMMENT ON VIEW reliability IS 'Success with a 95 % interval, step accuracy, retries, cost and times, by tenant, model, harness and workload';

-- What `reliability` says of models, from no more than that takes.
CREATE OR REPLACE VIEW success_by_model AS
WITH served AS (
    SELECT tenant_id, trajectory_id,
           served_last(model_served, started_at, kind, role_in_graph) AS model_served,
           count(*) FILTER (kind = 'model' AND role_in_graph = 'agent') AS decisions,
           coalesce(sum(output_tokens), 0) AS output_tokens
    FROM steps WHERE role_in_graph <> 'shadow' GROUP BY tenant_id, trajectory_id
), outcomes AS (
    -- The signal that `trajectory_rewards` gives, found without sorting.
    SELECT tenant_id, trajectory_id, succeeded(r.success, r.label) AS success
    FROM (SELECT tenant_id, trajectory_id, {success: r.value, label: r.label} AS r
          FROM part.judged WHERE name = 'success')
), counted AS (
    SELECT s.tenant_id, s.model_served, count(*) AS trajectories, count(o.success) AS judged,
           count(*) FILTER (o.success) AS successes, avg(s.decisions) AS steps_mean,
           sum(s.output_tokens)::BIGINT AS output_tokens
    FROM served s
    LEFT JOIN outcomes o ON s.tenant_id = o.tenant_id AND s.trajectory_id = o.trajectory_id
    WHERE s.model_served IS NOT NULL GROUP BY s.tenant_id, s.model_served
), rated AS (
    SELECT *, successes / nullif(judged, 0)::DOUBLE AS rate, normal_quantile() AS z FROM counted
)
SELECT tenant_id, model_served, trajectories, judged, successes, rate AS success_rate,
       wilson_low(rate, judged, z) AS rate_low, wilson_high(rate, judged, z) AS rate_high, steps_mean, output_tokens
FROM rated;
COMMENT ON VIEW success_by_model IS 'Success rate per model version with a 95 % interval';

-- pass^k of a task: the chance that k of its attempts, drawn at random, all succeed.
CREATE OR REPLACE MACRO all_pass(successes, attempts, k) AS
CASE WHEN attempts >= k THEN list_product(list_transform(range(k), lambda j:
    greatest(successes - j, 0) / (attempts - j)::DOUBLE)) END;

-- Of n judged attempts c succeeded: pass@k = 1 - C(n-c, k) / C(n, k), pass^k = C(c, k) / C(n, k).
CREATE OR REPLACE VIEW task_passes AS
WITH cut AS (FROM part.outcomes_by_dimension), tasks AS (
    SELECT tenant_id, dimension, value, group_id, count(success) AS attempts,
           count(*) FILTER (success) AS successes
    FROM cut GROUP BY tenant_id, dimension, value, group_id HAVING count(success) > 0
)
SELECT tenant_id, dimension, value, group_id, attempts, successes, k,
       1 - list_product(list_transform(range(k), lambda j:
               greatest(attempts - successes - j, 0) / (attempts - j)::DOUBLE)) AS pass_at_k,
       all_pass(successes, attempts, k) AS pass_hat_k
FROM tasks, LATERAL (SELECT unnest(range(1, least(attempts, 16) + 1)) AS k);
COMMENT ON VIEW task_passes IS 'pass@k and pass^k of each task that was tried k times or more';

-- Over the tasks that were tried at least k times, each task counting once.
CREATE OR REPLACE VIEW pass_rates AS
SELECT tenant_id, dimension, value, k, tasks, pass_at_k,
       wilson_low(pass_at_k, tasks, normal_quantile()) AS pass_at_k_low,
       wilson_high(pass_at_k, tasks, normal_quantile()) AS pass_at_k_high, pass_hat_k,
       wilson_low(pass_hat_k, tasks, normal_quantile()) AS pass_hat_k_low,
       wilson_high(pass_hat_k, tasks, normal_quantile()) AS pass_hat_k_high
FROM (
    SELECT tenant_id, dimension, value, k, count(*) AS tasks, avg(pass_at_k) AS pass_at_k,
           avg(pass_hat_k) AS pass_hat_k
    FROM task_passes GROUP BY tenant_id, dimension, value, k
);
COMMENT ON VIEW pass_rates IS 'pass@k and pass^k, averaged over tasks, each with a 95 % interval';

CREATE OR REPLACE VIEW tool_errors AS
WITH cut AS (FROM part.outcomes_by_dimension), seen AS (
    SELECT c.tenant_id, c.dimension, c.value, coalesce(e.tool, 'unknown') AS tool, e.failed,
           e.error_class
    FROM cut c JOIN tool_events e ON c.tenant_id = e.tenant_id AND c.trajectory_id = e.trajectory_id
), answered AS (
    SELECT tenant_id, dimension, value, tool, count(failed) AS answered
    FROM seen GROUP BY tenant_id, dimension, value, tool
)
SELECT s.tenant_id, s.dimension, s.value, s.tool, s.error_class, count(*) AS failures, a.answered,
       count(*) / a.answered::DOUBLE AS failure_rate
FROM seen s JOIN answered a
  ON s.tenant_id = a.tenant_id AND s.dimension = a.dimension AND s.value = a.value
 AND s.tool = a.tool
WHERE s.failed
GROUP BY s.tenant_id, s.dimension, s.value, s.tool, s.error_class, a.answered;
COMMENT ON VIEW tool_errors IS 'Failed tool calls by tool and class of error';
