-- Scorecards: figures side by side, each with the number of its cases and its 95 % interval.
--
-- A figure without cases is not measured: its numbers are null, and a reason says what is missing. Every
-- figure is cut by tenant, model, harness and workload. Sources, figure by figure: docs/data-scientist.md.

-- The normal interval of a mean.
CREATE OR REPLACE MACRO mean_low(mean, deviation, n) AS
CASE WHEN n > 1 THEN mean - normal_quantile() * deviation / sqrt(n) END;

CREATE OR REPLACE MACRO mean_high(mean, deviation, n) AS
CASE WHEN n > 1 THEN mean + normal_quantile() * deviation / sqrt(n) END;

-- A rank that equal values share.
CREATE OR REPLACE MACRO shared_rank(whole, x) AS
rank() OVER (PARTITION BY whole ORDER BY x) + (count(*) OVER (PARTITION BY whole, x) - 1) / 2.0;

-- The chance that a success has the larger value than a failure, from how many of the others each one beats,
-- and its standard error (DeLong et al. 1988).
CREATE OR REPLACE MACRO area_under(beaten, success, failures) AS
avg(beaten / nullif(failures, 0)) FILTER (success);

CREATE OR REPLACE MACRO area_error(beaten, success, successes, failures) AS
sqrt(var_samp(beaten / nullif(failures, 0)) FILTER (success) / any_value(successes)
     + var_samp(beaten / nullif(successes, 0)) FILTER (NOT success) / any_value(failures));

-- The bounds of a share of one.
CREATE OR REPLACE MACRO from_zero(low) AS CASE WHEN low < 0 THEN 0 ELSE low END;

CREATE OR REPLACE MACRO to_one(high) AS CASE WHEN high > 1 THEN 1 ELSE high END;

-- One row per trajectory and dimension, with all that the cards are counted from.
CREATE OR REPLACE VIEW part.card_cases AS
WITH failed AS (
    SELECT tenant_id, trajectory_id, count(*) FILTER (failed) AS failures
    FROM tool_events GROUP BY tenant_id, trajectory_id
), effects AS (
    -- Only calls that passed the gateway say what they do to the world.
    SELECT tenant_id, trajectory_id, count(*) AS known,
           count(*) FILTER (effect = 'destructive') AS destroying,
           max(effect IN ('idempotent', 'write', 'destructive')) AS changed
    FROM (SELECT tenant_id, trajectory_id, json_extract_string(ext, '$.side_effect') AS effect
          FROM steps WHERE kind = 'tool' AND role_in_graph <> 'shadow')
    WHERE effect <> 'unknown' GROUP BY tenant_id, trajectory_id
), begun AS (
    SELECT tenant_id, trajectory_id,
           arg_min({length: output_tokens}, (started_at, step_index, step_id)) AS answer
    FROM steps WHERE kind = 'model' AND role_in_graph = 'agent' GROUP BY tenant_id, trajectory_id
), secured AS (
    SELECT tenant_id, trajectory_id, r.value >= 0.5 AS secure
    FROM part.judged WHERE name = 'security'
)
SELECT o.tenant_id, o.dimension, o.value, o.group_id, o.success, o.decisions, o.duration_ms, o.currency,
       CASE WHEN count(DISTINCT o.currency) OVER (PARTITION BY o.tenant_id, o.dimension, o.value) = 1
            THEN o.cost END AS cost,
       coalesce(f.failures, 0) AS tool_failures, e.known, e.destroying, e.changed,
       b.answer.length AS first_length, s.secure
FROM part.outcomes_by_dimension o
LEFT JOIN failed f ON o.tenant_id = f.tenant_id AND o.trajectory_id = f.trajectory_id
LEFT JOIN effects e ON o.tenant_id = e.tenant_id AND o.trajectory_id = e.trajectory_id
LEFT JOIN begun b ON o.tenant_id = b.tenant_id AND o.trajectory_id = b.trajectory_id
LEFT JOIN secured s ON o.tenant_id = s.tenant_id AND o.trajectory_id = s.trajectory_id;

CREATE OR REPLACE VIEW scorecards AS
WITH cases AS MATERIALIZED (FROM part.card_cases), summed AS (
    SELECT tenant_id, dimension, value,
           CASE WHEN count(DISTINCT currency) > 1 THEN 'several currencies'
                ELSE 'no trajectory whose calls all have a price' END AS unpriced,
           count(cost) AS priced, avg(cost) AS cost, stddev_samp(cost) AS cost_deviation,
           min(currency) FILTER (cost IS NOT NULL) AS currency,
           count(duration_ms) AS timed, avg(duration_ms) AS latency,
           stddev_samp(duration_ms) AS latency_deviation,
           count(success) AS judged, avg(success::INT) AS accuracy,
           count(secure) AS secured, avg(secure::INT) AS security,
           count(success) FILTER (tool_failures > 0) AS failed,
           avg(success::INT) FILTER (tool_failures > 0) AS recovered,
           coalesce(sum(decisions) FILTER (success IS NOT NULL), 0)::BIGINT AS decisions,
           count(*) FILTER (NOT success) AS failures,
           coalesce(sum(known), 0)::BIGINT AS known, sum(destroying) / sum(known)::DOUBLE AS destroying,
           count(known) FILTER (NOT success) AS failed_seen,
           avg(changed::INT) FILTER (NOT success) AS failed_changed,
           avg((destroying > 0)::INT) FILTER (NOT success) AS failed_destroyed
    FROM cases GROUP BY tenant_id, dimension, value
), tasks AS (
    SELECT tenant_id, dimension, value, count(success) AS judged,
           count(*) FILTER (success) AS succeeded,
           stddev_samp(decisions) / nullif(avg(decisions), 0) AS steps_spread,
           stddev_samp(cost) / nullif(avg(cost), 0) AS cost_spread
    FROM cases GROUP BY tenant_id, dimension, value, group_id
), task_figures AS (
    SELECT tenant_id, dimension, value, f.figure, f.x
    FROM tasks, LATERAL (
        -- How often two judged attempts agree.
        SELECT 'stability' AS figure,
               CASE WHEN judged > 1
                    THEN (succeeded * (succeeded - 1) + (judged - succeeded) * (judged - succeeded - 1))
                         / (judged * (judged - 1))::DOUBLE END AS x
        UNION ALL SELECT 'all_pass_2', all_pass(succeeded, judged, 2)
        UNION ALL SELECT 'all_pass_4', all_pass(succeeded, judged, 4)
        UNION ALL SELECT 'all_pass_8', all_pass(succeeded, judged, 8)
        UNION ALL SELECT 'steps_spread', steps_spread
        UNION ALL SELECT 'cost_spread', cost_spread) f
), over_tasks AS (
    SELECT tenant_id, dimension, value, map_from_entries(list({
               k: figure, v: {n: n, mean: mean, deviation: deviation}})) AS of
    FROM (SELECT tenant_id, dimension, value, figure, count(x) AS n, avg(x) AS mean,
                 stddev_samp(x) AS deviation
          FROM task_figures GROUP BY tenant_id, dimension, value, figure)
    GROUP BY tenant_id, dimension, value
), ordered AS (
    SELECT tenant_id, dimension, value, cost,
           row_number() OVER (whole ORDER BY cost) AS place, count(*) OVER whole AS n
    FROM cases WHERE cost IS NOT NULL
    WINDOW whole AS (PARTITION BY tenant_id, dimension, value)
), placed AS (
    -- The interval of a quantile lies between two of the costs, found by their place alone.
    SELECT tenant_id, dimension, value, p, n,
           max(cost) FILTER (place = floor((n - 1) * p) + 1) AS below,
           max(cost) FILTER (place = ceil((n - 1) * p) + 1) AS above,
           max(cost) FILTER (place = ceil(n * p - normal_quantile() * sqrt(n * p * (1 - p)))) AS low,
           max(cost) FILTER (place = ceil(n * p + normal_quantile() * sqrt(n * p * (1 - p)))) AS high
    FROM ordered, (VALUES (0.95::DOUBLE), (0.99::DOUBLE)) quantiles(p)
    GROUP BY tenant_id, dimension, value, p, n
), quantiles AS (
    SELECT *, below + ((n - 1) * p - floor((n - 1) * p)) * (above - below) AS cost FROM placed
), tails AS (
    SELECT tenant_id, dimension, value, max({cost: cost, low: low, high: high}) FILTER (p = 0.95) AS p95,
           max({cost: cost, low: low, high: high}) FILTER (p = 0.99) AS p99
    FROM quantiles GROUP BY tenant_id, dimension, value
), shortfalls AS (
    -- What the dearest twentieth costs on average: a mean, so it has a mean's interval.
    SELECT tenant_id, dimension, value, avg(x) AS mean, stddev_samp(x) AS deviation
    FROM (SELECT o.tenant_id, o.dimension, o.value,
                 t.p95.cost + greatest(o.cost - t.p95.cost, 0) / 0.05 AS x
          FROM ordered o JOIN tails t
            ON o.tenant_id = t.tenant_id AND o.dimension = t.dimension AND o.value = t.value)
    GROUP BY tenant_id, dimension, value
), ranked AS (
    SELECT tenant_id, dimension, value, success,
           shared_rank((tenant_id, dimension, value), first_length)
               - shared_rank((tenant_id, dimension, value, success), first_length) AS beaten,
           sum((NOT success)::INT) OVER (PARTITION BY tenant_id, dimension, value) AS failures,
           sum(success::INT) OVER (PARTITION BY tenant_id, dimension, value) AS successes
    FROM cases WHERE success IS NOT NULL AND first_length IS NOT NULL
), told AS (
    SELECT tenant_id, dimension, value, count(*) AS n,
           area_under(beaten, success, failures) AS area,
           area_error(beaten, success, successes, failures) AS error
    FROM ranked GROUP BY tenant_id, dimension, value
), counted AS MATERIALIZED (
    -- Few rows: each branch below would else count all cases again.
    SELECT s.*, o.of, t.p95, t.p99, e.mean AS shortfall, e.deviation AS shortfall_deviation,
           d.n AS told, d.area, d.error
    FROM summed s
    LEFT JOIN over_tasks o
      ON s.tenant_id = o.tenant_id AND s.dimension = o.dimension AND s.value = o.value
    LEFT JOIN tails t
      ON s.tenant_id = t.tenant_id AND s.dimension = t.dimension AND s.value = t.value
    LEFT JOIN shortfalls e
      ON s.tenant_id = e.tenant_id AND s.dimension = e.dimension AND s.value = e.value
    LEFT JOIN told d
      ON s.tenant_id = d.tenant_id AND s.dimension = d.dimension AND s.value = d.value
), figures AS (
    SELECT s.tenant_id, s.dimension, s.value, f.*
    FROM counted s,
    LATERAL (
        SELECT 'CLASSic' AS card, 'cost' AS figure, s.currency AS unit, s.priced AS n, s.cost AS mean,
               s.cost_deviation AS deviation, NULL::DOUBLE AS below, NULL::DOUBLE AS above,
               NULL::INT AS horizon, s.unpriced AS missing
        UNION ALL SELECT 'CLASSic', 'latency', 'ms', s.timed, s.latency, s.latency_deviation, NULL, NULL,
                         NULL, 'no times'
        UNION ALL SELECT 'CLASSic', 'accuracy', 'share', s.judged, s.accuracy, NULL, NULL, NULL, NULL,
                         'nobody judged'
        UNION ALL SELECT 'CLASSic', 'security', 'share', s.secured, s.security, NULL, NULL, NULL, NULL,
                         'no signal security'
        UNION ALL SELECT 'CLASSic', 'stability', 'agreement', s.of['stability'].n,
                         s.of['stability'].mean, NULL, NULL, NULL, NULL,
                         'no task with two judged attempts'
        UNION ALL SELECT 'consistency', 'all_pass_' || k, 'chance', s.of['all_pass_' || k].n,
                         s.of['all_pass_' || k].mean, NULL, NULL, NULL, NULL,
                         'no task with ' || k || ' judged attempts'
                  FROM (VALUES (2), (4), (8)) attempts(k)
        UNION ALL SELECT 'robustness', 'recovery', 'share', s.failed, s.recovered, NULL, NULL, NULL, NULL,
                         'no judged trajectory with a failed tool call'
        UNION ALL SELECT 'horizon', 'success_at_' || steps, 'share', s.decisions,
                         1 - s.failures / nullif(s.decisions, 0)::DOUBLE, NULL, NULL, NULL, steps,
                         'nobody judged'
                  FROM (VALUES (10), (25), (50)) horizons(steps)
        UNION ALL SELECT 'predictability', 'steps_spread', 'ratio', s.of['steps_spread'].n,
                         s.of['steps_spread'].mean, s.of['steps_spread'].deviation, NULL, NULL, NULL,
                         'no task with two attempts'
        UNION ALL SELECT 'predictability', 'cost_spread', 'ratio', s.of['cost_spread'].n,
                         s.of['cost_spread'].mean, s.of['cost_spread'].deviation, NULL, NULL, NULL,
                         'no task with two priced attempts'
        UNION ALL SELECT 'predictability', 'length_tells', 'area', s.told, s.area, NULL,
                         from_zero(s.area - normal_quantile() * s.error),
                         to_one(s.area + normal_quantile() * s.error), NULL,
                         'no judged success and failure whose first answers have a length'
        UNION ALL SELECT 'safety', 'destructive_calls', 'share', s.known, s.destroying, NULL, NULL, NULL,
                         NULL, 'no tool call with a known side effect'
        UNION ALL SELECT 'safety', 'failures_that_changed', 'share', s.failed_seen, s.failed_changed,
                         NULL, NULL, NULL, NULL, 'no failure with a known side effect'
        UNION ALL SELECT 'safety', 'failures_that_destroyed', 'share', s.failed_seen,
                         s.failed_destroyed, NULL, NULL, NULL, NULL, 'no failure with a known side effect'
        UNION ALL SELECT 'safety', 'cost_p95', s.currency, s.priced, s.p95.cost, NULL, s.p95.low,
                         s.p95.high, NULL, s.unpriced
        UNION ALL SELECT 'safety', 'cost_p99', s.currency, s.priced, s.p99.cost, NULL, s.p99.low,
                         s.p99.high, NULL, s.unpriced
        UNION ALL SELECT 'safety', 'cost_shortfall', s.currency, s.priced, s.shortfall, s.shortfall_deviation, NULL,
                         NULL, NULL, s.unpriced) f
), bounded AS (
    SELECT * REPLACE (
        -- Agreement and chance are means over tasks, each between 0 and 1: two tasks that always passed
        -- would have a normal interval without width.
        CASE WHEN unit IN ('share', 'agreement', 'chance')
             THEN wilson_low(mean, n, normal_quantile())
             -- No figure is below zero, though the normal interval of a few costs may be.
             ELSE coalesce(below, from_zero(mean_low(mean, deviation, n))) END AS below,
        CASE WHEN unit IN ('share', 'agreement', 'chance')
             THEN wilson_high(mean, n, normal_quantile())
             ELSE coalesce(above, mean_high(mean, deviation, n)) END AS above)
    FROM figures
)
SELECT tenant_id, dimension, value, card, figure, unit, coalesce(n, 0) AS n,
       CASE WHEN mean IS NULL THEN 'not measured' ELSE 'measured' END AS state,
       CASE WHEN mean IS NULL THEN missing END AS reason,
       power(mean, coalesce(horizon, 1)) AS measure, power(below, coalesce(horizon, 1)) AS low,
       power(above, coalesce(horizon, 1)) AS high
FROM bounded;
COMMENT ON VIEW scorecards IS 'CLASSic, consistency, robustness, long horizon, predictability and safety: each figure with n and interval';

-- How likely an answer was to the model itself: the geometric mean of its tokens' probabilities. Apart from
-- the other cards, because of older steps it reads the table tokens, which not every reader may see.
CREATE OR REPLACE VIEW calibration AS
WITH answers AS (
    SELECT s.tenant_id, s.trajectory_id,
           arg_min({p: exp(coalesce(s.mean_logprob, list_avg(t.logprobs)))},
                   (s.started_at, s.step_index, s.step_id)).p AS first,
           arg_max({p: exp(coalesce(s.mean_logprob, list_avg(t.logprobs)))},
                   (s.started_at, s.step_index, s.step_id)).p AS last
    FROM steps s LEFT JOIN tokens t ON s.tenant_id = t.tenant_id AND s.step_id = t.step_id
    WHERE s.kind = 'model' AND s.role_in_graph = 'agent' GROUP BY s.tenant_id, s.trajectory_id
), cases AS MATERIALIZED (
    SELECT o.tenant_id, o.dimension, o.value, o.success, o.success::INT AS outcome, a.first,
           a.last AS p
    FROM part.outcomes_by_dimension o
    LEFT JOIN answers a ON o.tenant_id = a.tenant_id AND o.trajectory_id = a.trajectory_id
), known AS (
    SELECT *, least(floor(p * 10), 9) AS bin FROM cases WHERE success IS NOT NULL AND p IS NOT NULL
), covered AS (
    -- By falling probability: how many are accepted, and which share of these is wrong.
    SELECT *, sign(avg(p - outcome) OVER (PARTITION BY tenant_id, dimension, value, bin)) AS side,
           count(*) OVER surer AS accepted,
           -- Not count with a filter: in a window that costs the square of the cases.
           sum(1 - outcome) OVER surer / (count(*) OVER surer)::DOUBLE AS risk
    FROM known
    WINDOW surer AS (PARTITION BY tenant_id, dimension, value ORDER BY p DESC
                     RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
), weighed AS (
    -- How much the area under risk and coverage moves with one case: its interval is a mean's.
    SELECT *, risk + (1 - outcome) * sum(1 / accepted::DOUBLE) OVER surest
                - sum(risk / accepted) OVER surest AS influence
    FROM covered
    WINDOW surest AS (PARTITION BY tenant_id, dimension, value ORDER BY p
                      RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
), scored AS (
    SELECT tenant_id, dimension, value, count(*) AS n,
           avg(side * (p - outcome)) AS error, stddev_samp(side * (p - outcome)) AS error_deviation,
           avg((p - outcome) ** 2) AS brier, stddev_samp((p - outcome) ** 2) AS brier_deviation,
           avg(risk) AS area, stddev_samp(influence) AS area_deviation
    FROM weighed GROUP BY tenant_id, dimension, value
), ranked AS (
    SELECT tenant_id, dimension, value, success,
           shared_rank((tenant_id, dimension, value), first)
               - shared_rank((tenant_id, dimension, value, success), first) AS beaten,
           sum((NOT success)::INT) OVER (PARTITION BY tenant_id, dimension, value) AS failures,
           sum(success::INT) OVER (PARTITION BY tenant_id, dimension, value) AS successes
    FROM cases WHERE success IS NOT NULL AND first IS NOT NULL
), told AS (
    SELECT tenant_id, dimension, value, count(*) AS n,
           area_under(beaten, success, failures) AS area,
           area_error(beaten, success, successes, failures) AS error
    FROM ranked GROUP BY tenant_id, dimension, value
), counted AS MATERIALIZED (
    SELECT w.*, s.* EXCLUDE (tenant_id, dimension, value), d.n AS told, d.area AS told_area,
           d.error AS told_error
    FROM (SELECT tenant_id, dimension, value,
                 CASE WHEN count(p) = 0 THEN 'no log probabilities of a last answer'
                      ELSE 'nobody judged a trajectory whose last answer has log probabilities' END
                     AS missing
          FROM cases GROUP BY tenant_id, dimension, value) w
    LEFT JOIN scored s
      ON w.tenant_id = s.tenant_id AND w.dimension = s.dimension AND w.value = s.value
    LEFT JOIN told d
      ON w.tenant_id = d.tenant_id AND w.dimension = d.dimension AND w.value = d.value
), figures AS (
    SELECT s.tenant_id, s.dimension, s.value, f.*
    FROM counted s,
    LATERAL (
        SELECT 'CLEAR' AS card, 'calibration_error' AS figure, 'probability' AS unit, s.n AS n,
               s.error AS measure, mean_low(s.error, s.error_deviation, s.n) AS low,
               mean_high(s.error, s.error_deviation, s.n) AS high,
               s.missing AS missing
        UNION ALL SELECT 'CLEAR', 'brier', 'score', s.n, s.brier,
                         mean_low(s.brier, s.brier_deviation, s.n),
                         mean_high(s.brier, s.brier_deviation, s.n),
                         s.missing
        UNION ALL SELECT 'CLEAR', 'risk_coverage', 'area', s.n, s.area,
                         mean_low(s.area, s.area_deviation, s.n),
                         mean_high(s.area, s.area_deviation, s.n),
                         s.missing
        UNION ALL SELECT 'predictability', 'confidence_tells', 'area', s.told, s.told_area,
                         s.told_area - normal_quantile() * s.told_error, s.told_area + normal_quantile() * s.told_error,
                         'no judged success and failure whose first answers have log probabilities') f
)
SELECT tenant_id, dimension, value, card, figure, unit, coalesce(n, 0) AS n,
       CASE WHEN measure IS NULL THEN 'not measured' ELSE 'measured' END AS state,
       CASE WHEN measure IS NULL THEN missing END AS reason,
       measure, from_zero(low) AS low, to_one(high) AS high
FROM figures;
COMMENT ON VIEW calibration IS 'Scorecard of probabilities: calibration error, Brier score, risk and coverage, early confidence; each with n and interval';

-- What a trained version cost to make, and what it brought against the version that it began with. The
-- interval of the difference of shares is Newcombe's (1998, method 10), made of Wilson's.
CREATE OR REPLACE VIEW update_gains AS
WITH served AS MATERIALIZED (
    SELECT tenant_id, value AS model, count(success) AS judged, avg(success::INT) AS rate,
           wilson_low(avg(success::INT), count(success), normal_quantile()) AS low,
           wilson_high(avg(success::INT), count(success), normal_quantile()) AS high,
           CASE WHEN count(DISTINCT currency) = 1 THEN min(currency) END AS currency,
           count(cost) AS priced, avg(cost) AS cost, var_samp(cost) AS cost_variance
    FROM part.outcomes_by_dimension WHERE dimension = 'model' GROUP BY tenant_id, value
), updates AS (
    SELECT m.name || '@' || m.version AS model, m.base, m.status, m.run_id,
           json_extract(r.manifest, '$.cost.device_hours')::DOUBLE AS device_hours
    FROM models_latest m LEFT JOIN runs_latest r ON m.run_id = r.run_id
), compared AS (
    SELECT a.tenant_id, u.*, b.judged AS base_judged, a.judged, b.rate AS base_rate, a.rate,
           b.low AS base_low, b.high AS base_high, a.low, a.high, a.rate - b.rate AS gain,
           a.currency, b.priced AS base_priced, a.priced, b.cost AS base_cost, a.cost,
           a.currency = b.currency AS comparable,
           normal_quantile() * sqrt(a.cost_variance / a.priced + b.cost_variance / b.priced) AS cost_error
    FROM updates u
    JOIN served a ON u.model = a.model
    LEFT JOIN served b ON u.base = b.model AND a.tenant_id = b.tenant_id
)
SELECT tenant_id, model, base, status, run_id, device_hours, coalesce(base_judged, 0) AS base_judged,
       judged, base_rate AS base_success_rate, rate AS success_rate,
       CASE WHEN gain IS NULL THEN 'not measured' ELSE 'measured' END AS state,
       CASE WHEN base IS NULL THEN 'it was adopted, so it began with no version'
            WHEN base_judged IS NULL THEN 'the version that it began with answered nobody here'
            WHEN gain IS NULL THEN 'nobody judged both versions' END AS reason,
       gain,
       gain - sqrt((rate - low) ** 2 + (base_high - base_rate) ** 2) AS gain_low,
       gain + sqrt((high - rate) ** 2 + (base_rate - base_low) ** 2) AS gain_high,
       -- What it cost to make, over the successes that would not have been.
       CASE WHEN gain > 0 THEN device_hours / (gain * judged) END AS device_hours_per_success,
       currency, coalesce(base_priced, 0) AS base_priced, priced,
       CASE WHEN comparable THEN cost - base_cost END AS cost_change,
       CASE WHEN comparable THEN cost - base_cost - cost_error END AS cost_change_low,
       CASE WHEN comparable THEN cost - base_cost + cost_error END AS cost_change_high
FROM compared;
COMMENT ON VIEW update_gains IS 'What each trained version cost to make, and its gain in success and change of cost per trajectory against its base';
