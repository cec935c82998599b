"""Reads a stretch of the lake for dry runs, quality reports and gates; writes nothing."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from governance.data_classes import data_classes
from governance.quality.facts import StepFacts
from governance.trial.dry_run import DryRun, StoredStep, step_facts_of
from headrace.services.holds import facts_of

if TYPE_CHECKING:
    from lakehouse.read.conversations import RunSql

_STEPS = """
WITH latest AS (
    SELECT * FROM governance
    QUALIFY row_number() OVER (PARTITION BY tenant_id, step_id ORDER BY decided_at DESC) = 1
)
SELECT s.tenant_id, s.app_id, s.environment, s.route, s.dialect, s.kind, s.step_id, s.step_index,
       s.role_in_graph, s.key_source, s.http_status, s.latency_ms, s.started_at,
       coalesce(s.model_served, s.model_requested, '') AS model,
       CAST(s.finish_reason IS NOT NULL OR s.kind <> 'model' AS INTEGER) AS finished,
       len(s.tool_calls) AS tool_calls,
       list_transform(s.tool_calls, lambda c: c.name) AS tools,
       len(list_filter(s.tool_calls, lambda c: NOT c.arguments_valid)) AS invalid_tool_arguments,
       CAST(coalesce(s.ended_at < s.started_at, false) AS INTEGER) AS time_reversed,
       len(t.completion_token_ids) AS completion_tokens, len(t.logprobs) AS logprobs,
       list_max(t.logprobs) AS highest_logprob,
       CASE WHEN len(list_filter(t.completion_token_ids, lambda x: x < 0)) > 0
                THEN 'invalid_token_id'
            WHEN len(list_filter(t.logprobs, lambda x: NOT isfinite(x))) > 0 THEN 'invalid_logprob'
            WHEN list_max(t.logprobs) > 0.0001 THEN 'positive_logprob'
            WHEN len(t.logprobs) <> len(t.completion_token_ids) THEN 'logprob_misalign'
       END AS token_code,
       e.outcome, e.key_id, g.purposes, g.reasons, g.subjects, g.retention_class,
       g.redaction_counts
FROM steps s
JOIN latest g USING (tenant_id, step_id)
LEFT JOIN exchanges e ON e.tenant_id = s.tenant_id AND e.exchange_id = s.exchange_id
LEFT JOIN tokens t ON t.tenant_id = s.tenant_id AND t.step_id = s.step_id
WHERE s.started_at >= $since AND s.started_at < $until
"""

_REFERENCE_SECONDS = 3600.0
_REFERENCE_STEPS = 20_000

_TEXTS = """
SELECT DISTINCT m.tenant_id, s.trajectory_id, m.message_id, m.name, m.parts FROM steps s
JOIN messages m ON m.tenant_id = s.tenant_id
 AND (m.message_id = s.output_message_id OR list_contains(s.context_message_ids, m.message_id))
WHERE s.started_at >= $since AND s.started_at < $until
ORDER BY m.message_id LIMIT $most
"""


def gather(
    query: "RunSql",
    run: DryRun,
    *,
    since: datetime,
    until: datetime,
    key_purposes: dict[str, tuple[str, ...]],
    most_texts: int,
) -> None:
    """Give a dry run the steps, cases and texts of a stretch of time."""
    window = {"since": since, "until": until}
    for row in query(_STEPS, window).to_pylist():
        run.step(_stored(row, key_purposes))
    cases = query(
        "SELECT reason FROM quarantined WHERE status = 'held' "
        "AND started_at >= $since AND started_at < $until",
        window,
    )
    for row in cases.to_pylist():
        run.held(row["reason"])
    for row in query(_TEXTS, {**window, "most": most_texts}).to_pylist():
        run.text(row["tenant_id"], row["trajectory_id"], row["parts"], row["name"])


def _stored(row: dict[str, Any], key_purposes: dict[str, tuple[str, ...]]) -> StoredStep:
    found = dict(row["redaction_counts"] or ())
    return StoredStep(
        facts=facts_of(row, row["tenant_id"], data_classes(found)),
        quality=step_facts_of(row),
        purposes=tuple(row["purposes"]),
        reasons=tuple(row["reasons"]),
        subjects=tuple(row["subjects"]),
        key_purposes=key_purposes.get(row["key_id"] or "", tuple(row["purposes"])),
        captured_at=row["started_at"],
        retention_class=row["retention_class"],
        found=found,
    )


def stored_facts(query: "RunSql", since: datetime, until: datetime) -> list[StepFacts]:
    """Return the quality gate's projection of the steps of a stretch of time."""
    rows = query(_STEPS, {"since": since, "until": until}).to_pylist()
    return [step_facts_of(row) for row in rows]


class StoredReference:
    """A tenant's stored steps of the last days, for drift; read again every hour."""

    def __init__(self, query: "RunSql") -> None:
        """Read a lake by ``query``."""
        self._query = query
        self._read: dict[tuple[str, int], tuple[float, Sequence[StepFacts]]] = {}

    def __call__(self, tenant: str, days: int) -> Sequence[StepFacts]:
        """Return a sample of the steps of ``days`` days before now."""
        now = time.monotonic()
        at, rows = self._read.get((tenant, days), (-_REFERENCE_SECONDS, ()))
        if now - at >= _REFERENCE_SECONDS:
            until = datetime.now(UTC)
            window = {"since": until - timedelta(days=days), "until": until}
            found = self._query(
                f"{_STEPS} AND s.tenant_id = $tenant ORDER BY hash(s.step_id) LIMIT $most",
                {**window, "tenant": tenant, "most": _REFERENCE_STEPS},
            )
            rows = [step_facts_of(row) for row in found.to_pylist()]
            self._read[tenant, days] = (now, rows)
        return rows


def quarantine_reasons(query: "RunSql", since: datetime, until: datetime) -> list[tuple[str, int]]:
    """Return why exchanges of a stretch of time are held, and how many."""
    rows = query(
        "SELECT reason, count(*) AS n FROM quarantined WHERE status = 'held' "
        "AND started_at >= $since AND started_at < $until GROUP BY reason ORDER BY n DESC, reason",
        {"since": since, "until": until},
    ).to_pylist()
    return [(row["reason"], row["n"]) for row in rows]
