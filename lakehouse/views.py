"""The views of the lake, defined once and the same through every door.

Each is plain SQL over the tables and over views that stand before it. They hold no state: a late
reward, a withdrawn consent or an erasure is visible to the next query.
"""

from lakehouse.outcomes import (
    IN_FORCE_ABOUT_TRAJECTORIES,
    MODEL_SERVED,
    REWARDED,
    REWARDED_AND_COUNTED,
    SIGNALS_IN_FORCE,
    SUCCESS,
    about_trajectories,
)
from lakehouse.repeated import GOVERNANCE_LATEST, MESSAGES_ONCE
from lakehouse.reward_views import REWARD_VIEWS
from lakehouse.statistics_views import STATISTICS_VIEWS
from lakehouse.view import View

_SIGNALS_PLACED = """
SELECT tenant_id, signal_id, target_kind, target_id, trajectory_id, step_id, name, value, label,
       rationale, source_kind, source, source_version, confidence, observed_at, recorded_at,
       supersedes, is_gold
FROM signals WHERE trajectory_id IS NOT NULL
UNION ALL BY NAME FROM unplaced.placed
"""

_REWARDS_LATEST = """
-- A target has one trajectory: it stands in the partition so that who asks for one reads no other.
/* in force */
QUALIFY row_number() OVER (
    PARTITION BY tenant_id, trajectory_id,
                 coalesce(step_id, trajectory_id, target_kind || ':' || target_id), name
    ORDER BY recorded_at DESC, observed_at DESC, signal_id DESC
) = 1
""".replace("/* in force */", SIGNALS_IN_FORCE)

_TRAJECTORY_SIGNALS = about_trajectories("SELECT * FROM rewards_latest")

_TRAJECTORY_REWARDS = """
SELECT * EXCLUDE (distance, observed_at) FROM (/* signals */)
QUALIFY row_number() OVER (
    PARTITION BY tenant_id, trajectory_id, name
    ORDER BY distance, recorded_at DESC, observed_at DESC, signal_id DESC
) = 1
""".replace("/* signals */", IN_FORCE_ABOUT_TRAJECTORIES)

_QUARANTINED = """
SELECT * FROM quarantine
QUALIFY row_number() OVER (
    PARTITION BY tenant_id, quarantine_id ORDER BY recorded_at DESC, status
) = 1
"""

_ERROR_CLASSES = {
    "timeout": r"time[d ]*-?out|deadline",
    "rate_limit": r"rate.?limit|too many requests|\b429\b",
    "permission": r"permission|forbidden|unauthori[sz]ed|not allowed|denied|\b40[13]\b",
    "not_found": r"not.?found|no such|does(n.t| not) exist|\b404\b",
    "invalid_arguments": r"invalid|validation|malformed|bad request|required|unexpected|\b4(00|22)\b",
    "network": r"connection|network|unreachable|resolve host|\b50[234]\b",
    "crashed": r"traceback|exception|exit(ed with)? (code|status)|command failed|segfault",
}
"""What the beginning of a failed tool's answer says went wrong; the first that fits."""

_ERROR_CASES = " ".join(
    f"WHEN regexp_matches(lower(left(result.content, 400)), '{pattern}') THEN '{name}'"
    for name, pattern in _ERROR_CLASSES.items()
)

_TOOL_EVENTS = """
-- One row per tool call of a trajectory, whether seen on the wire, in the answer, or both. A
-- dispatch on the wire is the call with the same arguments that its parent step asked for.
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
           CASE WHEN NOT result.is_error THEN NULL /* classes */ ELSE 'other' END,
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
FROM placed GROUP BY tenant_id, trajectory_id, call_id
""".replace("/* classes */", _ERROR_CASES)

_TOOL_FAILURES = """
SELECT tenant_id, coalesce(tool, 'unknown') AS tool, count(*) AS calls,
       count(*) FILTER (failed IS NOT NULL) AS answered,
       count(*) FILTER (failed) AS failures,
       count(*) FILTER (failed) / nullif(count(*) FILTER (failed IS NOT NULL), 0)::DOUBLE
           AS failure_rate,
       quantile_cont(latency_ms, 0.5) AS latency_ms_p50,
       quantile_cont(latency_ms, 0.95) AS latency_ms_p95
FROM tool_events GROUP BY ALL
"""

_TRAJECTORIES = """
WITH summed AS (
    SELECT tenant_id, trajectory_id,
           min(app_id) AS app_id, min(environment) AS environment,
           min(started_at) AS started_at, max(coalesce(ended_at, started_at)) AS ended_at,
           count(*) AS steps,
           count(*) FILTER (kind = 'model') AS model_steps,
           count(*) FILTER (kind = 'tool') AS tool_steps,
           count(*) FILTER (role_in_graph = 'discarded') AS discarded_steps,
           count(*) FILTER (error IS NOT NULL OR http_status >= 400) AS failed_steps,
           /* model */ AS model_served,
           list_sort(list_distinct(list(model_served) FILTER (model_served IS NOT NULL))) AS models,
           coalesce(sum(input_tokens), 0)::BIGINT AS input_tokens,
           coalesce(sum(output_tokens), 0)::BIGINT AS output_tokens,
           min(key_source) AS key_source,
           bool_or(key_source IN ('prefix', 'none')) AS inferred,
           min(session_hint) AS session_hint, min(group_id) AS group_id,
           min(harness_id) AS harness_id
    FROM steps WHERE role_in_graph <> 'shadow' GROUP BY tenant_id, trajectory_id
), tools AS (
    SELECT tenant_id, trajectory_id, count(*) AS tool_calls,
           count(*) FILTER (failed) AS tool_failures
    FROM tool_events GROUP BY ALL
)
SELECT t.*, coalesce(o.tool_calls, 0) AS tool_calls, coalesce(o.tool_failures, 0) AS tool_failures,
       coalesce(r.reward, r.success) AS reward,
       /* success */ AS success,
       coalesce(r.signals, 0) AS signals
FROM summed t
LEFT JOIN tools o ON t.tenant_id = o.tenant_id AND t.trajectory_id = o.trajectory_id
LEFT JOIN (/* rewarded */) r
  ON t.tenant_id = r.tenant_id AND t.trajectory_id = r.trajectory_id
"""
_TRAJECTORIES = (
    _TRAJECTORIES.replace("/* model */", MODEL_SERVED)
    .replace("/* rewarded */", REWARDED_AND_COUNTED)
    .replace("/* success */", SUCCESS)
)

_CONVERSATION = """
-- The transcript: what each step added, then what it answered. `Lake.conversation` gives the
-- whole context that a step saw.
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
LEFT JOIN messages_once m ON s.tenant_id = m.tenant_id AND s.message_id = m.message_id
"""

_PERMISSIONS = """
-- Per step: the decision that holds, and its purposes less what was withdrawn since. A person
-- whom a step names is in the conversation of all later steps of its trajectory.
WITH gone AS (
    SELECT tenant_id, subject, purpose FROM consents
    QUALIFY row_number() OVER (
        PARTITION BY tenant_id, subject, purpose ORDER BY recorded_at DESC, granted
    ) = 1 AND NOT granted
    UNION ALL
    SELECT tenant_id, subject, NULL FROM erasures
), named AS (
    SELECT tenant_id, trajectory_id, started_at, unnest(list_append(subjects, '*')) AS subject
    FROM governance_latest WHERE tenant_id IN (SELECT tenant_id FROM gone)
), since AS (
    SELECT n.tenant_id, n.trajectory_id, w.purpose, min(n.started_at) AS begun
    FROM named n JOIN gone w ON n.tenant_id = w.tenant_id AND n.subject = w.subject
    GROUP BY ALL
), taken AS (
    SELECT tenant_id, trajectory_id, min(begun) FILTER (purpose IS NULL) AS erased,
           list({purpose: purpose, begun: begun}) FILTER (purpose IS NOT NULL) AS withdrawn
    FROM since GROUP BY ALL
), held AS (
    SELECT DISTINCT tenant_id, step_id FROM quarantined WHERE status = 'held' AND step_id IS NOT NULL
), left_over AS (
    SELECT g.*, t.erased <= g.started_at AS erased, h.step_id IS NOT NULL AS held,
           CASE WHEN t.withdrawn IS NULL THEN g.purposes
                ELSE list_filter(g.purposes, lambda p: NOT list_contains(list_transform(
                         list_filter(t.withdrawn, lambda w: w.begun <= g.started_at),
                         lambda w: w.purpose), p))
           END AS purposes_left
    FROM governance_latest g
    LEFT JOIN taken t ON g.tenant_id = t.tenant_id AND g.trajectory_id = t.trajectory_id
    LEFT JOIN held h ON g.tenant_id = h.tenant_id AND g.step_id = h.step_id
)
SELECT tenant_id, step_id, trajectory_id, decision, reasons AS decision_reasons, policy_hash,
       legal_basis, retention_class, expires_at, legal_hold, subjects, data_classes,
       purposes_left AS purposes,
       CASE WHEN erased THEN 'erased'
            WHEN held THEN 'quarantined'
            WHEN decision NOT IN ('allow', 'redact') THEN 'decision:' || decision
            WHEN expires_at <= now() THEN 'expired'
            WHEN len(purposes) = 0 THEN 'no_purpose'
            WHEN len(purposes_left) = 0 THEN 'consent_withdrawn'
       END AS refusal
FROM left_over
"""

_ELIGIBLE_STEPS = """
SELECT s.*, p.purposes, p.subjects, p.policy_hash, p.decision, p.decision_reasons,
       p.legal_basis, p.retention_class, p.expires_at, p.data_classes,
       r.value AS step_reward, coalesce(t.reward, t.success) AS reward, t.success >= 0.5 AS success
FROM steps s
JOIN permissions p ON s.tenant_id = p.tenant_id AND s.trajectory_id = p.trajectory_id
 AND s.step_id = p.step_id AND p.refusal IS NULL
LEFT JOIN (
    SELECT tenant_id, step_id,
           coalesce(max(value) FILTER (name = 'reward'), max(value) FILTER (name = 'success'))
               AS value
    FROM rewards_latest WHERE step_id IS NOT NULL GROUP BY ALL
) r ON s.tenant_id = r.tenant_id AND s.step_id = r.step_id
LEFT JOIN (/* rewarded */) t
  ON s.tenant_id = t.tenant_id AND s.trajectory_id = t.trajectory_id
""".replace("/* rewarded */", REWARDED)

_REDACTIONS_BY_TYPE = """
WITH found AS (
    SELECT tenant_id, step_id, unnest(map_entries(redaction_counts)) AS entry FROM governance
)
SELECT tenant_id, entry.key AS entity_type, sum(entry.value)::BIGINT AS redactions,
       count(DISTINCT step_id) AS steps
FROM found GROUP BY ALL
"""

_LEFT_OUT_BY_REASON = """
-- Everything captured that is not stored, by why; an exchange with two reasons counts under both.
WITH reasoned AS (
    SELECT tenant_id, exchange_id, disposition,
           unnest(CASE WHEN len(reasons) = 0 THEN ['-'] ELSE reasons END) AS reason
    FROM exchanges WHERE disposition <> 'stored'
)
SELECT tenant_id, disposition, reason, count(*) AS exchanges FROM reasoned GROUP BY ALL
"""

_STEPS_REFUSED = """
SELECT refusal, count(*) AS steps, count(DISTINCT trajectory_id) AS trajectories
FROM permissions WHERE refusal IS NOT NULL GROUP BY ALL
"""


def _latest(table: str, keys: str) -> str:
    return (
        f"SELECT * FROM {table} QUALIFY row_number() OVER "  # noqa: S608 - fixed names
        f"(PARTITION BY {keys} ORDER BY recorded_at DESC) = 1"
    )


VIEWS: tuple[View, ...] = (
    View("signals_placed", "Signals with the step and trajectory that they are about",
         _SIGNALS_PLACED),
    View("rewards_latest", "The latest signal per target and name, superseded ones left out",
         _REWARDS_LATEST),
    View("trajectory_signals", "Every signal in force about a trajectory, and how near it is",
         _TRAJECTORY_SIGNALS),
    View("trajectory_rewards", "The signal that holds for each trajectory and name",
         _TRAJECTORY_REWARDS),
    View("quarantined", "The present state of each quarantine case", _QUARANTINED),
    View("tool_events", "One row per tool call, with whether it failed", _TOOL_EVENTS),
    View("tool_failures", "Calls, failures and latency per tool", _TOOL_FAILURES),
    View("trajectories", "One row per trajectory: times, steps, tokens, tools, reward, success",
         _TRAJECTORIES),
    View("messages_once", "Each message of a tenant once, also what two ingesters stored at a time",
         MESSAGES_ONCE),
    View("conversation", "The messages of each trajectory in order, each once", _CONVERSATION),
    View("governance_latest", "The decision that holds for each step", GOVERNANCE_LATEST),
    View("permissions", "What holds for each step now: decision, purposes left, why refused",
         _PERMISSIONS),
    View("eligible_steps", "Steps that may be used, with purposes, subjects and rewards",
         _ELIGIBLE_STEPS),
    View("redactions_by_type", "How much of which personal data was redacted",
         _REDACTIONS_BY_TYPE),
    View("left_out_by_reason", "Exchanges that are not stored, by reason", _LEFT_OUT_BY_REASON),
    View("steps_refused", "Stored steps that may not be used, by reason", _STEPS_REFUSED),
    View("substrates_latest", "The present state of each substrate version",
         _latest("substrates", "name, version")),
    View("runs_latest", "The present state of each training run", _latest("runs", "run_id")),
    View("models_latest", "The present state of each model version",
         _latest("models", "name, version")),
    *REWARD_VIEWS,
    *STATISTICS_VIEWS,
)  # fmt: skip
