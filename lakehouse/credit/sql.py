"""The SQL of credit: the relations that all algorithms start from, and one text per algorithm.

``attempts``  one row per trajectory with a reward: ``tenant_id, trajectory_id, group_id, app_id,
              model_served, started_at, reward``
``decided``   one row per decision of these: ``tenant_id, trajectory_id, group_id, step_id, position,
              decisions, state, reward`` (``reward`` is the step's share of the attempt's reward)

An algorithm's text is a SELECT of ``tenant_id, trajectory_id, step_id, advantage, peers`` from these.
"""

from lakehouse.rewards import SHARES

PERMITTED = "coalesce(p.refusal IS NULL AND list_contains(p.purposes, 'train_rl'), false)"
"""SQL that holds for a row ``p`` of ``permissions`` whose step credits may compare with others."""

WORLD = """
WITH chosen AS (
    -- An attempt counts as a whole, where each of its steps may serve to learn by reward.
    SELECT d.* FROM agent_steps d
    LEFT JOIN permissions p ON p.tenant_id = d.tenant_id AND p.step_id = d.step_id
    WHERE (d.tenant_id, d.trajectory_id) IN (/* scope */)
    QUALIFY bool_and(/* permitted */) OVER (PARTITION BY d.tenant_id, d.trajectory_id)
), units AS (
    SELECT DISTINCT trajectory_id AS unit, tenant_id, trajectory_id, NULL::VARCHAR[] AS steps
    FROM chosen
), weights AS (/* weights */), /* shares */, attempts AS (
    SELECT c.tenant_id, c.trajectory_id, any_value(c.group_id) AS group_id,
           min(c.app_id) AS app_id, arg_max(c.model_served, c.position) AS model_served,
           min(c.started_at) AS started_at, any_value(r.reward) AS reward
    FROM chosen c
    JOIN rewards r ON c.tenant_id = r.tenant_id AND c.trajectory_id = r.trajectory_id
    WHERE r.reward IS NOT NULL GROUP BY c.tenant_id, c.trajectory_id
), earned AS (
    -- What no decision earned by itself is earned at the end.
    SELECT s.tenant_id, s.trajectory_id, c.step_id,
           sum(s.weight * s.value * s.share)::DOUBLE AS reward
    FROM shares s LEFT JOIN chosen c ON s.tenant_id = c.tenant_id AND s.step_id = c.step_id
    GROUP BY ALL
), decided AS (
    SELECT c.tenant_id, c.trajectory_id, c.group_id, c.step_id, c.position, c.decisions,
           -- A step whose observation is not known is in a state of its own.
           coalesce(c.state_hash, 'alone:' || c.step_id) AS state,
           coalesce(e.reward, 0.0)
               + CASE WHEN c.position = c.decisions - 1 THEN coalesce(l.reward, 0.0) ELSE 0.0 END
               AS reward
    FROM chosen c
    JOIN attempts a ON c.tenant_id = a.tenant_id AND c.trajectory_id = a.trajectory_id
    LEFT JOIN earned e ON c.tenant_id = e.tenant_id AND c.step_id = e.step_id
    LEFT JOIN earned l ON c.tenant_id = l.tenant_id AND c.trajectory_id = l.trajectory_id
                      AND l.step_id IS NULL
)
""".replace("/* shares */", SHARES.strip()).replace("/* permitted */", PERMITTED)

SAME = "1e-9"
"""Values that differ by no more are the same: a group of them has no better and no worse."""


def discounted(source: str, value: str, key: str, order: str, factor: str) -> str:
    """Return the CTEs ``NAME_blocks`` and ``NAME`` of running discounted sums over ``source``.

    ``NAME.total`` is the sum of ``factor^(n-m) · value_m`` over all rows m up to the row's own n, by ``order``
    within ``key``. Powers over a long sequence leave the range of a double. So it is cut into blocks at whose end
    a value has faded to 1e-100; anything two blocks back counts as nothing.
    """
    keys = [name.strip() for name in key.split(",")]
    same = " AND ".join(f"r.{name} = b.{name}" for name in keys)
    return f"""
{source}_rows AS (
    SELECT *, n // size AS block, n % size AS place, power(fading, -(n % size)) * part AS grown
    FROM (SELECT *, {value} AS part, row_number() OVER (PARTITION BY {key} ORDER BY {order}) - 1 AS n,
                 greatest({factor}, 1e-15) AS fading,
                 CASE WHEN {factor} >= 1 THEN 1000000000000
                      ELSE greatest(1, floor(-100 / log10(greatest({factor}, 1e-15))))::BIGINT
                 END AS size
          FROM {source})
), {source}_blocks AS (
    SELECT {key}, block, sum(grown) * power(any_value(fading), any_value(size) - 1) AS whole
    FROM {source}_rows GROUP BY {key}, block
), {source}_discounted AS (
    SELECT r.*, power(r.fading, r.place) * sum(r.grown) OVER (
               PARTITION BY {", ".join(f"r.{name}" for name in keys)}, r.block ORDER BY r.place)
           + coalesce(power(r.fading, r.place + 1) * b.whole, 0.0) AS total
    FROM {source}_rows r LEFT JOIN {source}_blocks b ON {same} AND b.block = r.block - 1
)"""  # noqa: S608 (fixed text)


def relative(value: str, over: str, deviation: str) -> str:
    """Return ``value`` against its peers' mean, in units of their deviation when ``$scale`` is std."""
    return f"""CASE WHEN max({value}) OVER {over} - min({value}) OVER {over} <= {SAME} THEN 0.0
             WHEN $scale = 'none' THEN {value} - avg({value}) OVER {over}
             ELSE ({value} - avg({value}) OVER {over}) / {deviation}({value}) OVER {over} END"""


RETURNS = discounted("decided", "reward", "tenant_id, trajectory_id", "position DESC", "$gamma")
"""``decided_discounted.total`` is each decision's discounted return-to-go."""


# One SQL text per algorithm, over the relations above.

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

PROCESS_GRPO = f"""
, judged AS (
    SELECT *, count(*) OVER task - 1 AS peers,
           {relative("reward", "task", "stddev_samp")} AS score
    FROM decided WINDOW task AS (PARTITION BY tenant_id, group_id)
)
SELECT tenant_id, trajectory_id, step_id, peers,
       sum(score) OVER (PARTITION BY tenant_id, trajectory_id ORDER BY position DESC) AS advantage
FROM judged
"""  # noqa: S608 (fixed text)

HINDSIGHT = f"""
, {RETURNS}, acted AS (
    SELECT d.*, a.reward >= $passing AS passed,
           -- What was called with what; without a call, what was said.
           CASE WHEN len(s.tool_calls) > 0
                THEN list_transform(s.tool_calls, lambda one: one.name || ' ' || one.arguments)
                ELSE [coalesce(s.output_message_id, s.step_id)] END AS action
    FROM decided_discounted d
    JOIN steps s ON d.tenant_id = s.tenant_id AND d.trajectory_id = s.trajectory_id
                AND d.step_id = s.step_id
    JOIN attempts a ON d.tenant_id = a.tenant_id AND d.trajectory_id = a.trajectory_id
), counted AS (
    SELECT *, count(*) OVER here AS met, count(*) OVER (here_action) AS chosen,
           count(*) OVER (here_passed) AS met_alike, count(*) OVER (here_both) AS chosen_alike
    FROM acted
    WINDOW here AS (PARTITION BY tenant_id, group_id, state),
           here_action AS (PARTITION BY tenant_id, group_id, state, action),
           here_passed AS (PARTITION BY tenant_id, group_id, state, passed),
           here_both AS (PARTITION BY tenant_id, group_id, state, action, passed)
)
SELECT tenant_id, trajectory_id, step_id, met - 1 AS peers,
       (1 - (chosen::DOUBLE / met) / (chosen_alike::DOUBLE / met_alike)) * total AS advantage
FROM counted
"""  # noqa: S608 (fixed text)
