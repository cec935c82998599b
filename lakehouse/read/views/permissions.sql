-- What may be used: the decision that holds, consent taken back, quarantine, expiry.

-- A case that was closed is held no more, whatever the clock said: what is held again is another case.
CREATE OR REPLACE VIEW quarantined AS
SELECT * FROM quarantine
QUALIFY row_number() OVER (
    PARTITION BY tenant_id, quarantine_id ORDER BY status = 'held', recorded_at DESC, status
) = 1;
COMMENT ON VIEW quarantined IS 'The present state of each quarantine case';

CREATE OR REPLACE VIEW governance_latest AS
SELECT * FROM governance WHERE NOT hash(tenant_id, step_id) IN (FROM repeated.governance)
UNION ALL
SELECT * FROM governance WHERE hash(tenant_id, step_id) IN (FROM repeated.governance)
QUALIFY row_number() OVER (PARTITION BY tenant_id, step_id ORDER BY decided_at DESC) = 1;
COMMENT ON VIEW governance_latest IS 'The decision that holds for each step';

-- Nobody knows when a step was made that a clock dated ahead of a decision on it: it is taken for
-- the first of its trajectory.
CREATE OR REPLACE MACRO counts_from(started_at, is_ahead) AS
CASE WHEN is_ahead THEN '-infinity'::TIMESTAMPTZ ELSE started_at END;

-- Per step: the decision that holds, and its purposes less what was withdrawn since. A person
-- whom a step names is in the conversation of all later steps of its trajectory; so is the end user
-- of a held call, or one who was told late, whom the consent service did not answer for. Sessions
-- that took over its history, or that its agent started, hold it too; a shadow repeats what its
-- call says.
CREATE OR REPLACE VIEW permissions AS
WITH RECURSIVE gone AS (
    SELECT tenant_id, subject, purpose AS lost FROM consents
    QUALIFY row_number() OVER (
        PARTITION BY tenant_id, subject, purpose ORDER BY recorded_at DESC, granted
    ) = 1 AND NOT granted
    UNION ALL
    SELECT tenant_id, subject, 'erased' FROM erasures WHERE subject NOT IN ('*', '')
), unanswered AS (
    SELECT tenant_id, trajectory_id, min(begun) AS begun FROM (
        SELECT tenant_id, trajectory_id, counts_from(started_at, started_at > recorded_at) AS begun
        FROM quarantined WHERE reason = 'consent:awaits-answer' AND status <> 'released'
        UNION ALL
        SELECT tenant_id, trajectory_id, counts_from(started_at, started_at > decided_at)
        FROM governance_latest WHERE decision = 'quarantine' AND len(list_filter(
            reasons, lambda one: starts_with(one, 'consent:awaits-answer:'))) > 0
    ) GROUP BY ALL
), ahead AS (
    SELECT DISTINCT tenant_id, step_id FROM governance WHERE started_at > decided_at
    AND tenant_id IN (SELECT tenant_id FROM gone UNION ALL SELECT tenant_id FROM unanswered)
), named AS (
    SELECT g.tenant_id, g.trajectory_id, counts_from(g.started_at, a.step_id IS NOT NULL) AS begun,
           unnest(list_append(g.subjects, '*')) AS subject
    FROM governance_latest g
    LEFT JOIN ahead a ON g.tenant_id = a.tenant_id AND g.step_id = a.step_id
    WHERE g.tenant_id IN (SELECT tenant_id FROM gone)
), losses AS MATERIALIZED (
    SELECT n.tenant_id, n.trajectory_id, w.lost, min(n.begun) AS begun
    FROM named n JOIN gone w ON n.tenant_id = w.tenant_id AND n.subject = w.subject
    GROUP BY ALL
    UNION ALL
    SELECT tenant_id, trajectory_id, 'unanswered', begun FROM unanswered
), handed_on AS MATERIALIZED (
    SELECT l.tenant_id, f.trajectory_id AS source_id, t.trajectory_id,
           CASE WHEN l.kind = 'shadow' THEN f.started_at ELSE t.started_at END AS moment,
           counts_from(moment, a.step_id IS NOT NULL) AS begun
    FROM links l
    JOIN steps f ON f.tenant_id = l.tenant_id AND f.step_id = l.from_step_id
    JOIN steps t ON t.tenant_id = l.tenant_id AND t.step_id = l.to_step_id
    LEFT JOIN ahead a ON a.tenant_id = l.tenant_id AND a.step_id = l.to_step_id
    WHERE l.kind IN ('prefix', 'subagent_call', 'shadow') AND f.trajectory_id <> t.trajectory_id
      AND l.tenant_id IN (SELECT tenant_id FROM losses)
), since AS (
    SELECT * FROM losses
    UNION
    SELECT h.tenant_id, h.trajectory_id, s.lost, h.begun FROM since s
    JOIN handed_on h ON h.tenant_id = s.tenant_id AND h.source_id = s.trajectory_id
     AND h.moment >= s.begun
), taken AS (
    SELECT tenant_id, trajectory_id, min(begun) FILTER (lost = 'erased') AS erased,
           min(begun) FILTER (lost = 'unanswered') AS unanswered,
           list({purpose: lost, begun: begun})
               FILTER (lost NOT IN ('erased', 'unanswered')) AS withdrawn
    FROM since GROUP BY ALL
), held AS (
    SELECT DISTINCT tenant_id, step_id FROM quarantined WHERE status = 'held' AND step_id IS NOT NULL
), left_over AS (
    SELECT g.*, t.erased <= g.started_at AS erased, h.step_id IS NOT NULL AS held,
           t.unanswered <= g.started_at AS unanswered,
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
            WHEN unanswered THEN 'consent_unanswered'
            WHEN len(purposes_left) = 0 THEN 'consent_withdrawn'
       END AS refusal
FROM left_over;
COMMENT ON VIEW permissions IS 'What holds for each step now: decision, purposes left, why refused';

CREATE OR REPLACE VIEW eligible_steps AS
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
LEFT JOIN part.rewarded t
  ON s.tenant_id = t.tenant_id AND s.trajectory_id = t.trajectory_id;
COMMENT ON VIEW eligible_steps IS 'Steps that may be used, with purposes, subjects and rewards';

CREATE OR REPLACE VIEW steps_refused AS
SELECT refusal, count(*) AS steps, count(DISTINCT trajectory_id) AS trajectories
FROM permissions WHERE refusal IS NOT NULL GROUP BY ALL;
COMMENT ON VIEW steps_refused IS 'Stored steps that may not be used, by reason';
