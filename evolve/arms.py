"""Counts both arms of a trial in the lake: sessions that the gateway drew for the candidate, and the others.

A session belongs to the arm that its first call was drawn for, whatever answered. It counts once: when it
has been silent for ``settle_minutes``, with what is known of it by then. While a candidate is down, the
live version answers its sessions; they count as failed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from evolve.detectors import Counted
from evolve.policy import Ladder, TrafficSlice
from evolve.trial import LEAST, SUCCESS, Arms

_HISTORY = timedelta(days=28)
"""Of the control, from which thresholds are taken."""
_QUANTILE = 0.9
"""Of the control's sessions, those that are slower or dearer than this share count as slow or dear."""
_SESSIONS = """
WITH heard AS (
    SELECT tenant_id, trajectory_id,
           max(coalesce(ended_at, started_at)) OVER (PARTITION BY tenant_id, trajectory_id
                                                     ORDER BY started_at, step_id) AS ended,
           lead(started_at) OVER (PARTITION BY tenant_id, trajectory_id
                                  ORDER BY started_at, step_id) AS next_at
    FROM steps WHERE role_in_graph <> 'shadow' AND started_at >= $begun
      AND event_date >= $begun::TIMESTAMPTZ::DATE - 1
), settled AS (
    SELECT tenant_id, trajectory_id,
           min(ended) FILTER (next_at IS NULL OR next_at > ended + to_seconds($settle)) AS silent_at
    FROM heard GROUP BY ALL HAVING silent_at >= $since AND silent_at < $until
), called AS (
    SELECT s.tenant_id, s.trajectory_id, s.app_id, s.environment, s.started_at, s.route, s.model_served,
           s.latency_ms, coalesce(s.input_tokens, 0) + coalesce(s.output_tokens, 0) AS tokens,
           list_contains(s.artifacts, $candidate) AS applied,
           json_extract_string(s.ext, CASE $kind WHEN 'model' THEN '$.model_arm'
                                                 ELSE '$.artifact_arm' END) AS arm,
           s.error IS NOT NULL OR s.http_status >= 400 OR s.finish_reason IN
               ('length', 'max_tokens', 'max_output_tokens', 'MAX_TOKENS', 'LENGTH', 'incomplete')
               OR len(list_filter(s.tool_calls, lambda c: NOT c.arguments_valid)) > 0 AS malformed,
           len(list_filter(s.tool_results, lambda r: r.is_error)) > 0 AS failed_tool,
           s.finish_reason IN ('refusal', 'content_filter', 'SAFETY', 'safety', 'PROHIBITED_CONTENT',
                               'guardrail_intervened')
               OR coalesce(regexp_matches(lower(m.parts), $refusing), false) AS refused
    FROM steps s SEMI JOIN settled USING (tenant_id, trajectory_id)
    LEFT JOIN messages m ON m.tenant_id = s.tenant_id AND m.message_id = s.output_message_id
    WHERE s.kind = 'model' AND s.role_in_graph NOT IN ('shadow', 'auxiliary') AND s.started_at >= $begun
      AND s.event_date >= $begun::TIMESTAMPTZ::DATE - 1
), sessions AS (
    SELECT tenant_id, trajectory_id, min(app_id) AS app_id, min(environment) AS environment,
           min(started_at) AS began, arg_min(route, started_at) AS route,
           arg_min(model_served, started_at) AS served, arg_min_null(arm, started_at) AS arm,
           $kind = 'model' AND bool_or(coalesce(
               arm = $candidate || ' canary' AND model_served <> $candidate, false)) AS stood_in,
           bool_or(applied) AS applied, avg(latency_ms) AS latency, sum(tokens) AS used,
           bool_or(malformed) AS malformed, bool_or(failed_tool) AS failed_tool,
           bool_or(refused) AS refused
    FROM called GROUP BY ALL
)
SELECT s.*, NOT stood_in AND o.success AS success,
       CASE arm WHEN $candidate || ' canary' THEN 'candidate'
                WHEN $candidate || ' control' THEN 'control' END AS trial_arm
FROM sessions s LEFT JOIN trajectory_outcomes o USING (tenant_id, trajectory_id)
WHERE NOT EXISTS (
    FROM steps old WHERE old.tenant_id = s.tenant_id AND old.trajectory_id = s.trajectory_id
    AND old.started_at < $begun AND old.role_in_graph <> 'shadow')
"""
_REFUSING = (
    r"\b(i|we) ?(can ?not|can(no|'|’)t|am (not able|unable) to|are (not able|unable) to|won('|’)t|must decline)"
    r"( to)? (help|assist|do (that|this)|comply|provide|answer)"
)
"""How a refusal is said where no field tells it."""
_OF_ARTIFACT = "list_contains($routes, route) AND ($owner::VARCHAR IS NULL OR tenant_id = $owner)"
"""Sessions that an artefact reaches while it serves; other tenants' are none of them."""
_EVENTS = {
    SUCCESS: ("success IS NOT NULL", "NOT success"),
    "latency": ("latency IS NOT NULL AND $latency_ms IS NOT NULL", "latency > $latency_ms"),
    "cost": ("$tokens IS NOT NULL", "used > $tokens"),
    "tool_errors": ("true", "failed_tool"),
    "format": ("true", "malformed"),
    "refusals": ("true", "refused"),
    "unjudged": ("true", "success IS NULL"),
}
"""Of each comparison: which sessions count, and which of them went wrong."""


class ArmSource(Protocol):
    """A lake."""

    def query(self, sql: str, *, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Return the rows of one SQL statement."""
        ...


@dataclass(frozen=True, slots=True)
class TrialSubject:
    """What is tried against what."""

    kind: str
    """model or artifact"""
    candidate: str
    """``name@version``"""
    control: str
    routes: tuple[str, ...]
    tenant: str | None = None
    """Whose calls an artefact is for; None for everybody's."""

    @property
    def values(self) -> dict[str, Any]:
        """What every query is asked with."""
        return {
            "kind": self.kind, "candidate": self.candidate, "control": self.control,
            "refusing": _REFUSING, "routes": list(self.routes), "owner": self.tenant,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Beyond these a session counts as slow or dear; fixed before they are used, null until known."""

    latency_ms: float | None = None
    """Mean of its calls."""
    tokens: float | None = None
    """Of all its calls; a price may be unknown for a new version, tokens are not."""


class Undrawn(NamedTuple):
    """What joined neither arm: an artefact is drawn by the session's name in the request's head."""

    sessions: int
    steps: int

    @property
    def told(self) -> str:
        """In words, with what to do."""
        return (
            f"{self.sessions} sessions ({self.steps} steps) joined neither arm: a session joins by its name "
            "in the request's head (x-headrace-session)"
        )


NONE_UNDRAWN = Undrawn(0, 0)


def names(ladder: Ladder) -> tuple[str, ...]:
    """Return the comparisons of a ladder."""
    return (SUCCESS, *(slice_name(one) for one in ladder.slices), *ladder.guards)


def slice_name(one: TrafficSlice) -> str:
    """Return the name of a slice's comparison."""
    return f"{SUCCESS} in {one.label}"


def sessions_between(
    source: ArmSource, subject: TrialSubject, ladder: Ladder, limits: Thresholds,
    begun: datetime, since: datetime, until: datetime,
) -> dict[str, Arms]:  # fmt: skip
    """Return each comparison's counts of the sessions that fell silent in a time.

    Args:
        source: the lake.
        subject: what is tried.
        ladder: what is compared.
        limits: what is slow and dear.
        begun: when the rung was entered; sessions that began before are none of the trial's.
        since: sessions that fell silent before were counted.
        until: sessions that did so after may go on yet.
    """
    parts, values = [], {**subject.values, "begun": begun, "since": since, "until": until}
    values["settle"] = ladder.settle_minutes * 60
    values |= {"latency_ms": limits.latency_ms, "tokens": limits.tokens}
    for at, name in enumerate(names(ladder)):
        counts, event = _EVENTS[name if name in _EVENTS else SUCCESS]
        if name not in _EVENTS:
            counts += _within(ladder.slices[at - 1], values, at)
        parts += [
            f"count(*) FILTER (trial_arm = '{arm}' AND {counts}{' AND ' + event if bad else ''})"
            for arm in ("candidate", "control")
            for bad in (False, True)
        ]
    sql = f"SELECT [{', '.join(parts)}] AS counted FROM ({_SESSIONS})"  # noqa: S608 - fixed text
    (row,) = source.query(sql, parameters=_used(sql, values)).to_pylist()
    each = iter(row["counted"])
    return {
        name: Arms(Counted(next(each), next(each)), Counted(next(each), next(each)))
        for name in names(ladder)
    }


def _within(one: TrafficSlice, values: dict[str, Any], at: int) -> str:
    """Return the condition of a slice; its values become parameters."""
    columns = {"tenant": "tenant_id", "app": "app_id", "environment": "environment"}
    conditions = ""
    for key, value in one.model_dump(exclude_none=True).items():
        values[f"{key}_{at}"] = value
        conditions += f" AND {columns[key]} = ${key}_{at}"
    return conditions


_UNDRAWN = f"""
SELECT count(DISTINCT (tenant_id, trajectory_id)) AS sessions, count(*) AS steps FROM steps
WHERE kind = 'model' AND role_in_graph NOT IN ('shadow', 'auxiliary') AND started_at >= $begun
  AND event_date >= $begun::TIMESTAMPTZ::DATE - 1 AND {_OF_ARTIFACT}
  AND json_extract_string(ext, '$.artifact_arm') IS NULL
"""  # noqa: S608 - fixed text


def undrawn(source: ArmSource, subject: TrialSubject, begun: datetime) -> Undrawn:
    """Return what an artefact's routes answered since the rung was entered, and that joined neither arm."""
    values = {**subject.values, "begun": begun}
    (row,) = source.query(_UNDRAWN, parameters=_used(_UNDRAWN, values)).to_pylist()
    return Undrawn(row["sessions"], row["steps"])


def thresholds(source: ArmSource, subject: TrialSubject, until: datetime) -> Thresholds:
    """Return what the control's sessions before a moment say is slow and dear."""
    of_control = "served = $control" if subject.kind == "model" else _OF_ARTIFACT
    sql = (
        f"SELECT count(*) AS sessions, quantile_cont(latency, {_QUANTILE}) AS latency_ms, "  # noqa: S608
        f"quantile_cont(used, {_QUANTILE})::DOUBLE AS tokens FROM ({_SESSIONS}) WHERE {of_control}"
    )
    values = _all_between(subject, until - _HISTORY, until)
    (row,) = source.query(sql, parameters=_used(sql, values)).to_pylist()
    if row["sessions"] < LEAST:
        return Thresholds()
    return Thresholds(row["latency_ms"], row["tokens"])


def lived(
    source: ArmSource, subject: TrialSubject, since: datetime, until: datetime
) -> tuple[Counted, ...]:
    """Return the judged sessions of each day since a candidate went live."""
    of_live = "served = $candidate" if subject.kind == "model" else _OF_ARTIFACT
    sql = (
        "SELECT date_diff('hour', $begun::TIMESTAMPTZ, began) // 24 AS day, count(*) AS sessions, "  # noqa: S608
        f"count(*) FILTER (NOT success) AS events FROM ({_SESSIONS}) "
        f"WHERE success IS NOT NULL AND {of_live} GROUP BY day"
    )
    values = _all_between(subject, since, until)
    rows = source.query(sql, parameters=_used(sql, values)).to_pylist()
    found = {row["day"]: Counted(row["sessions"], row["events"]) for row in rows}
    return tuple(found.get(day, Counted(0, 0)) for day in range(max(found, default=-1) + 1))


def _all_between(subject: TrialSubject, since: datetime, until: datetime) -> dict[str, Any]:
    """Return the values of a query for the sessions that began and were last heard in a time."""
    never = (until - since).total_seconds()
    return {**subject.values, "begun": since, "since": since, "until": until, "settle": never}


_CALLS = """
SELECT coalesce(count(*) FILTER (shadow), 0) AS copies, count(*) FILTER (shadow AND malformed) AS bad_copies,
       count(*) FILTER (NOT shadow) AS calls, count(*) FILTER (NOT shadow AND malformed) AS bad_calls
FROM (
    SELECT role_in_graph = 'shadow' AS shadow,
           error IS NOT NULL OR http_status >= 400
           OR len(list_filter(tool_calls, lambda c: NOT c.arguments_valid)) > 0 AS malformed
    FROM steps WHERE kind = 'model' AND started_at >= $since AND started_at < $until
      AND event_date >= $since::TIMESTAMPTZ::DATE - 1
      AND model_served = CASE WHEN role_in_graph = 'shadow' THEN $candidate ELSE $control END
)
"""


def calls_between(
    source: ArmSource, subject: TrialSubject, since: datetime, until: datetime
) -> Arms:
    """Return the copied calls that a shadow answered, and those that the control did; bad are malformed."""
    values = {**subject.values, "since": since, "until": until}
    (row,) = source.query(_CALLS, parameters=_used(_CALLS, values)).to_pylist()
    return Arms(Counted(row["copies"], row["bad_copies"]), Counted(row["calls"], row["bad_calls"]))


def _used(sql: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the values that a statement names."""
    return {name: value for name, value in values.items() if f"${name}" in sql}
