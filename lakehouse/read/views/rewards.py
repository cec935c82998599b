"""Views of rewards by weight and of credit: what training and its judges read."""

from lakehouse.read.views.view import View
from lakehouse.rewards import SHARES

_WEIGHTED_REWARDS = """
-- The reward of each trajectory by the weights that stand in each substrate's document.
WITH weighed AS (
    SELECT name, version, name || '@' || version AS weights_id,
           json_extract(manifest, '$.document.spec.reward') AS reward FROM substrates_latest
), weights AS (
    SELECT w.weights_id, e.key AS name, e.value::DOUBLE AS weight,
           json_extract_string(w.reward, '$.combine') AS combine,
           json_extract_string(w.reward, '$.missing') AS missing
    FROM weighed w, json_each(w.reward, '$.signals') e
), units AS (
    SELECT DISTINCT trajectory_id AS unit, tenant_id, trajectory_id, NULL::VARCHAR[] AS steps
    FROM steps WHERE role_in_graph <> 'shadow'
), /* shares */
SELECT w.name AS substrate, w.version, r.tenant_id, r.trajectory_id, r.reward,
       CASE WHEN json_extract(w.reward, '$.minimum')::DOUBLE IS NULL THEN r.reward > 0
            ELSE r.reward >= json_extract(w.reward, '$.minimum')::DOUBLE END AS rewarded,
       r.components
FROM rewards r JOIN weighed w ON r.weights_id = w.weights_id
""".replace("/* shares */", SHARES)

_DECISIONS = """
-- The steps that credit is given to: what the agent itself said, in order of time.
SELECT tenant_id, trajectory_id, step_id, app_id, model_served, started_at, state_hash,
       coalesce(min(group_id) OVER whole, trajectory_id) AS group_id,
       row_number() OVER (whole ORDER BY started_at, step_index, step_id) - 1 AS position,
       count(*) OVER whole AS decisions
FROM steps WHERE kind = 'model' AND role_in_graph = 'agent'
WINDOW whole AS (PARTITION BY tenant_id, trajectory_id)
"""

_CREDITS_LATEST = """
SELECT * FROM credits
QUALIFY row_number() OVER (
    PARTITION BY tenant_id, step_id, algorithm, parameters, weights_hash
    ORDER BY recorded_at DESC, computation_id DESC
) = 1
"""

REWARD_VIEWS: tuple[View, ...] = (
    View("weighted_rewards", "The reward of each trajectory by the weights of each substrate",
         _WEIGHTED_REWARDS),
    View("decisions", "The agent's own model steps in order: what credit is given to", _DECISIONS),
    View("credits_latest", "The latest credit of each step, algorithm, parameters and weights",
         _CREDITS_LATEST),
)  # fmt: skip
