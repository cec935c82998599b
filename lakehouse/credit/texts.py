"""One SQL text per algorithm, over the relations of ``lakehouse.credit.sql``."""

from lakehouse.credit.sql import RETURNS, SAME, discounted, relative

RETURN_TO_GO = f"""
, {RETURNS}
SELECT tenant_id, trajectory_id, step_id, total AS advantage, 0 AS peers FROM decided_discounted
"""  # noqa: S608 (fixed text)

GRPO = f"""
, scored AS (
    SELECT tenant_id, trajectory_id, count(*) OVER task - 1 AS peers,
           {relative("reward", "task", "stddev_samp")} AS advantage
    FROM attempts WINDOW task AS (PARTITION BY tenant_id, group_id)
)
SELECT d.tenant_id, d.trajectory_id, d.step_id, s.advantage, s.peers
FROM decided d JOIN scored s ON d.tenant_id = s.tenant_id AND d.trajectory_id = s.trajectory_id
"""  # noqa: S608 (fixed text)

LEAVE_ONE_OUT = """
, scored AS (
    SELECT tenant_id, trajectory_id, count(*) OVER task - 1 AS peers,
           coalesce(reward - (sum(reward) OVER task - reward)
                    / nullif(count(*) OVER task - 1, 0), 0.0) AS advantage
    FROM attempts WINDOW task AS (PARTITION BY tenant_id, group_id)
)
SELECT d.tenant_id, d.trajectory_id, d.step_id, s.advantage, s.peers
FROM decided d JOIN scored s ON d.tenant_id = s.tenant_id AND d.trajectory_id = s.trajectory_id
"""

EMA_BASELINE = f"""
, sequence AS (
    SELECT tenant_id, trajectory_id, started_at, reward,
           CASE $by WHEN 'task' THEN group_id WHEN 'model' THEN model_served
                    WHEN 'app' THEN app_id ELSE '' END AS line
    FROM (SELECT * REPLACE (coalesce(model_served, '') AS model_served) FROM attempts)
), {discounted("sequence", "reward", "tenant_id, line", "started_at, trajectory_id", "$decay")}
, scored AS (
    -- The mean of what came before, faded, and normalised by the faded count (no bias towards 0).
    SELECT tenant_id, trajectory_id, n AS peers,
           CASE WHEN n = 0 THEN 0.0
                ELSE reward - lag(total) OVER (PARTITION BY tenant_id, line ORDER BY n)
                     / CASE WHEN $decay = 1 THEN n ELSE (1 - power($decay, n)) / (1 - $decay) END
           END AS advantage
    FROM sequence_discounted
)
SELECT d.tenant_id, d.trajectory_id, d.step_id, s.advantage, s.peers
FROM decided d JOIN scored s ON d.tenant_id = s.tenant_id AND d.trajectory_id = s.trajectory_id
"""  # noqa: S608 (fixed text)

GIGPO = f"""
, {RETURNS}, episodes AS (
    SELECT tenant_id, trajectory_id, {relative("reward", "task", "stddev_samp")} AS advantage
    FROM attempts WINDOW task AS (PARTITION BY tenant_id, group_id)
), steps_scored AS (
    SELECT tenant_id, trajectory_id, step_id, count(*) OVER anchor - 1 AS peers,
           {relative("total", "anchor", "stddev_samp")} AS advantage
    FROM decided_discounted WINDOW anchor AS (PARTITION BY tenant_id, group_id, state)
)
SELECT s.tenant_id, s.trajectory_id, s.step_id, e.advantage + $weight * s.advantage AS advantage,
       s.peers
FROM steps_scored s
JOIN episodes e ON s.tenant_id = e.tenant_id AND s.trajectory_id = e.trajectory_id
"""  # noqa: S608 (fixed text)

HGPO = f"""
, {RETURNS}, contexts AS (
    SELECT *, list(state) OVER (PARTITION BY tenant_id, trajectory_id ORDER BY position
                                ROWS BETWEEN 64 PRECEDING AND CURRENT ROW) AS seen
    FROM decided_discounted
), levels AS (
    SELECT tenant_id, trajectory_id, step_id, group_id, total, level,
           seen[greatest(1, len(seen) - level):] AS context
    FROM contexts, unnest(range(0, $history + 1)) AS depth(level)
), scored AS (
    SELECT tenant_id, trajectory_id, step_id, level, count(*) OVER alike - 1 AS peers,
           {relative("total", "alike", "stddev_pop")} AS advantage
    FROM levels WINDOW alike AS (PARTITION BY tenant_id, group_id, level, context)
)
SELECT tenant_id, trajectory_id, step_id, max(peers) AS peers,
       sum(power(level + 1, $alpha) * advantage) / sum(power(level + 1, $alpha)) AS advantage
FROM scored GROUP BY tenant_id, trajectory_id, step_id
"""  # noqa: S608 (fixed text)

GROUPED_GAE = f"""
, {RETURNS}, valued AS (
    SELECT tenant_id, trajectory_id, group_id, step_id, position, reward,
           avg(total) OVER anchor AS worth, count(*) OVER anchor - 1 AS peers
    FROM decided_discounted WINDOW anchor AS (PARTITION BY tenant_id, group_id, state)
), errors AS (
    SELECT *, reward - worth + $gamma * coalesce(lead(worth) OVER (
                  PARTITION BY tenant_id, trajectory_id ORDER BY position), 0.0) AS surprise
    FROM valued
), {discounted("errors", "surprise", "tenant_id, trajectory_id", "position DESC", "$gamma * $trace")}
SELECT tenant_id, trajectory_id, step_id, peers,
       CASE WHEN $scale = 'none' THEN total
            WHEN max(total) OVER task - min(total) OVER task <= {SAME} THEN 0.0
            ELSE (total - avg(total) OVER task) / stddev_samp(total) OVER task END AS advantage
FROM errors_discounted WINDOW task AS (PARTITION BY tenant_id, group_id)
"""  # noqa: S608 (fixed text)
