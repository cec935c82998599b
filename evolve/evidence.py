"""Reads what a policy looks at from the views of the lake, at fixed versions of its tables."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Protocol

import pyarrow as pa

from evolve.clusters import Grouped
from evolve.detectors import Counted, DetectorState, Series, total
from evolve.plan import EarlierDecision, Evidence, EvolutionDecision, decide
from evolve.policy import Evolution, SignalName
from lakehouse.read.dependencies import named
from lakehouse.read.session import Session
from lakehouse.schema.tables import TABLES
from trajectory.errors import ConfigurationError

_MEMORY = "448MiB"
"""Of DuckDB; what does not fit goes to the disk."""
_COSTLY = 0.1
"""Share of the earlier sessions that may cost as much as one that counts as costly."""
_JUDGED: Mapping[SignalName, str] = {
    "success": "success",
    "correction_rate": "correction",
    "abandonment": "abandoned",
}
"""Signals that somebody judges, and the name of what is said."""

_WITHIN = """day >= $first AND day < $last
AND (len($tenants) = 0 OR list_contains($tenants, tenant_id))
AND (len($apps) = 0 OR list_contains($apps, split_part(workload, '/', 1)))
AND (len($environments) = 0 OR list_contains($environments, split_part(workload, '/', 2)))"""
_NEWEST = "SELECT max(started_at) AS newest FROM steps WHERE started_at <= $now"
_SESSIONS = f"SELECT * FROM part.looked_at WHERE {_WITHIN}"  # noqa: S608 - fixed text
_ON_TRIAL = """
SELECT 'model ' || name || '@' || version || ' is a ' || status AS what
FROM (SELECT * FROM models WHERE recorded_at < $moment + INTERVAL 1 DAY
      QUALIFY row_number() OVER (PARTITION BY name, version ORDER BY recorded_at DESC) = 1)
WHERE status IN ('canary', 'shadow')
UNION ALL
SELECT surface || ' follows ' || CASE WHEN decision_id = '' THEN subject ELSE 'decision ' || decision_id END
FROM interventions_latest
WHERE begun_at < $moment + INTERVAL 1 DAY AND (status = 'begun' OR ended_at > $moment)
ORDER BY what
"""
_EARLIER = """
SELECT decision_id, as_of, surface, status FROM decisions_latest
WHERE policy = $policy AND as_of < $moment AND surface <> 'nothing' ORDER BY as_of, decision_id
"""
_ELIGIBLE = f"""
SELECT count(DISTINCT trajectory_id) AS sessions
FROM (SELECT tenant_id, trajectory_id, step_id, event_date AS day,
             app_id || '/' || environment AS workload FROM steps) s
JOIN permissions p USING (tenant_id, trajectory_id, step_id)
WHERE {_WITHIN} AND p.refusal IS NULL
  AND len(list_filter(p.purposes, lambda one: starts_with(one, 'train'))) > 0
"""  # noqa: S608 - fixed text
_OF_THE_LAKE = (_NEWEST, _SESSIONS, _ON_TRIAL, _EARLIER, _ELIGIBLE)

# Each table is read once, and then stands for itself: views read steps six times, from a file per night.
# A session that began before the window is left out here, so older nights cost one column.
_STEPS_ONCE = """
CREATE TABLE part.steps_once AS
SELECT tenant_id, trajectory_id, group_id, app_id, environment, kind, step_id, parent_step_id, role_in_graph,
       started_at, ended_at, latency_ms, tool_calls,
       list_transform(tool_results, lambda r: {call_id: r.call_id,
           content: CASE WHEN r.is_error THEN r.content END, is_error: r.is_error}) AS tool_results,
       model_served, harness_id, harness_name, harness_version, agent_role, retry_of,
       input_tokens, output_tokens, cached_input_tokens
FROM steps WHERE role_in_graph <> 'shadow' AND event_date >= $first
  AND (len($tenants) = 0 OR list_contains($tenants, tenant_id))
  AND NOT EXISTS (SELECT 1 FROM steps old WHERE old.tenant_id = steps.tenant_id
                  AND old.trajectory_id = steps.trajectory_id AND old.event_date < $first
                  AND old.role_in_graph <> 'shadow')
"""
_SIGNALS_ONCE = """
CREATE TABLE part.signals_once AS
SELECT * REPLACE (NULL::VARCHAR AS rationale) FROM part.signals_in_force
WHERE name IN ('success', 'reward', 'correction', 'abandoned')
"""
_ONCE = (
    "CREATE TABLE part.wide_once AS FROM unplaced.wide",
    "CREATE OR REPLACE VIEW unplaced.wide AS FROM part.wide_once",
    "CREATE OR REPLACE VIEW part.signals_in_force AS FROM part.signals_once",
    "CREATE OR REPLACE VIEW steps AS FROM part.steps_once",
)
_SESSIONS_ONCE = f"CREATE TABLE part.sessions_once AS {_SESSIONS}"
_THEN = (
    "CREATE OR REPLACE VIEW part.looked_at AS FROM part.sessions_once",
    "DROP TABLE part.steps_once",
    "DROP TABLE part.signals_once",
)
_NIGHTS = """
SELECT signal, subject, level, day, sum(sessions)::BIGINT AS sessions, sum(events)::BIGINT AS events
FROM evolution_signals WHERE list_contains($signals, signal)
GROUP BY ALL ORDER BY signal, subject, level, day
"""
_EVALUATORS = """
SELECT name, evaluator, day, sum(judged)::BIGINT AS judged, sum(with_gold)::BIGINT AS with_gold,
       sum(disagreeing)::BIGINT AS disagreeing
FROM evolution_evaluators WHERE NOT is_gold GROUP BY ALL ORDER BY name, evaluator, day
"""
_GROUPS = """
SELECT dimension, value, min(day) AS first_day,
       coalesce(sum(sessions) FILTER (day < $start), 0)::BIGINT AS sessions_before,
       coalesce(sum(happened) FILTER (day < $start), 0)::BIGINT AS events_before,
       coalesce(sum(sessions) FILTER (day >= $start), 0)::BIGINT AS sessions_since,
       coalesce(sum(happened) FILTER (day >= $start), 0)::BIGINT AS events_since,
       count(DISTINCT tenant_id) FILTER (day >= $start AND happened > 0) AS tenants
FROM (SELECT *, CASE WHEN $level IS NULL THEN events WHEN level >= $level THEN sessions ELSE 0 END
                AS happened
      FROM failure_clusters WHERE signal = $signal AND subject = $subject)
GROUP BY dimension, value HAVING events_since > 0 ORDER BY dimension, value
"""
_EXAMPLES = """
SELECT name, list(trajectory_id ORDER BY trajectory_id)[1:5] AS examples
FROM (SELECT DISTINCT trajectory_id, what.dimension || ' ' || what.value AS name
      FROM (SELECT trajectory_id, unnest(shared) AS what FROM part.shared
            WHERE day >= $start AND one.signal = $signal AND one.subject = $subject
              AND CASE WHEN $level IS NULL THEN one.event ELSE one.level >= $level END))
WHERE list_contains($names, name) GROUP BY name
"""


class NightSource(Protocol):
    """A lake as the control plane sees it; ``lakehouse.lake.Lake`` is the one that ships."""

    def query(
        self,
        sql: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        as_of: Mapping[str, int] | None = None,
    ) -> pa.Table:
        """Return the rows of one SQL statement, at the present or at given table versions."""
        ...

    def versions(self) -> Mapping[str, int]:
        """Return the current version of each table."""
        ...

    def session_at(
        self, as_of: Mapping[str, int], tables: Collection[str]
    ) -> AbstractContextManager[Session]:
        """Return a session on these tables as they were; it may make tables of its own."""
        ...


def plan(
    source: NightSource,
    policy: Evolution,
    *,
    as_of: datetime | None = None,
    versions: Mapping[str, int] | None = None,
    now: datetime | None = None,
) -> EvolutionDecision:
    """Return what a policy decides.

    Args:
        source: the lake.
        policy: what is looked at, and what follows.
        as_of: the nights before this day are looked at; None for the day of the newest step, which
            is under way.
        versions: table versions to read; None for the present ones.
        now: the clock. A step that is dated ahead of it says nothing of the day that is under way.

    Raises:
        ConfigurationError: the lake holds no step from before now.
    """
    read = _AtVersions(source, _of_interest(source.versions() if versions is None else versions))
    end = _midnight(as_of or _newest(read, now or datetime.now(UTC)))
    window = _Window(policy, end)
    with _sessions(read, window) as sessions:
        evidence = _evidence(read, sessions, window)
        return decide(policy, end, evidence, _LakeLookup(read, sessions, window, evidence))


def measure(
    source: NightSource, policy: Evolution, *, signal: str, subject: str, nights: int, end: datetime
) -> float | None:
    """Return the share of sessions of the last nights in which nothing went wrong; None without any."""
    read = _AtVersions(source, _of_interest(source.versions()))
    window = _Window(policy, end)
    with _sessions(read, window) as sessions:
        evidence = _evidence(read, sessions, window)
    for series in evidence.series:
        if (series.signal, series.subject) == (signal, subject):
            found = total(series.nights[-nights:])
            return 1 - found.events / found.sessions if found.sessions else None
    return None


def _of_interest(versions: Mapping[str, int]) -> dict[str, int]:
    """Return the versions of those tables that are read."""
    names = {name for sql in _OF_THE_LAKE for name in named(sql) or ()}
    return {name: versions[name] for name in TABLES if name in names and name in versions}


@dataclass(frozen=True, slots=True)
class _AtVersions:
    """Queries at fixed versions."""

    source: NightSource
    versions: Mapping[str, int]

    def rows(self, sql: str, **values: Any) -> list[dict[str, Any]]:
        """Return the rows of a statement."""
        found = self.source.query(sql, parameters=values or None, as_of=self.versions)
        return list(found.to_pylist())


@dataclass(frozen=True, slots=True)
class _Sessions:
    """The sessions of a window, counted once; the views that stand on them read nothing else."""

    session: Session

    def rows(self, sql: str, **values: Any) -> list[dict[str, Any]]:
        """Return the rows of a statement."""
        return list(self.session.query(sql, values or None).to_pylist())


@contextmanager
def _sessions(read: _AtVersions, window: "_Window") -> Iterator[_Sessions]:
    tables = named(_SESSIONS) or ()
    values = window.values
    with read.source.session_at(read.versions, tables) as session:
        session.query(f"SET memory_limit = '{_MEMORY}'")
        session.query(_STEPS_ONCE, {name: values[name] for name in ("first", "tenants")})
        session.query(_SIGNALS_ONCE)
        for statement in _ONCE:
            session.query(statement)
        session.query(_SESSIONS_ONCE, values)
        for statement in _THEN:
            session.query(statement)
        yield _Sessions(session)


class _Window:
    """The nights that a policy looks at from a day."""

    def __init__(self, policy: Evolution, end: datetime) -> None:
        self.policy = policy
        self.end = end
        nights = policy.spec.window.nights
        first = end.date() - timedelta(days=nights)
        self.days = tuple(first + timedelta(days=at) for at in range(nights))

    @property
    def values(self) -> dict[str, Any]:
        """What every query over the nights is asked with."""
        target = self.policy.spec.target
        return {
            "first": self.days[0], "last": self.end.date(), "tenants": list(target.tenants),
            "apps": list(target.apps), "environments": list(target.environments),
        }  # fmt: skip

    def night(self, day: date) -> int:
        """Return which night of the window a day is."""
        return (day - self.days[0]).days


def _newest(read: _AtVersions, now: datetime) -> datetime:
    (row,) = read.rows(_NEWEST, now=now)
    if row["newest"] is None:
        raise ConfigurationError(
            "the lake holds no step from before now, so there is nothing to look at"
        )
    newest: datetime = row["newest"]
    return newest


def _midnight(moment: datetime) -> datetime:
    return datetime.combine(moment.astimezone(UTC).date(), time(), UTC)


def _evidence(read: _AtVersions, sessions: _Sessions, window: _Window) -> Evidence:
    spec = window.policy.spec
    rows = sessions.rows(_NIGHTS, signals=list(spec.signals))
    counted: dict[tuple[str, str], list[Counted]] = {}
    levels: dict[int, list[Counted]] = {}
    mix: dict[str, list[int]] = {}
    nights = len(window.days)
    for row in rows:
        at, found = window.night(row["day"]), Counted(row["sessions"], row["events"])
        if row["signal"] == "mix":
            mix.setdefault(row["subject"], [0] * nights)[at] = found.sessions
        elif row["level"] is not None:
            levels.setdefault(row["level"], [Counted(0, 0)] * nights)[at] = found
        else:
            key = (row["signal"], row["subject"])
            counted.setdefault(key, [Counted(0, 0)] * nights)[at] = found
    series = [Series(signal, subject, tuple(own)) for (signal, subject), own in counted.items()]  # type: ignore[arg-type]
    level = _costly(levels, spec.window.case_nights)
    if level is not None:
        series.append(Series("cost_per_success", "", _from_level(levels, level, nights)))
    evaluators, gold = _evaluators(sessions, window)
    moment = {"moment": window.end}
    earlier = read.rows(_EARLIER, policy=window.policy.metadata.name, **moment)
    return Evidence(
        days=window.days,
        series=tuple(series),
        levels={} if level is None else {"cost_per_success": level},
        mix={name: tuple(own) for name, own in mix.items()},
        evaluators=evaluators,
        gold=gold,
        on_trial=tuple(row["what"] for row in read.rows(_ON_TRIAL, **moment)),
        earlier=tuple(EarlierDecision(**row) for row in earlier),
        versions=read.versions,
    )


def _costly(levels: Mapping[int, Sequence[Counted]], case_nights: int) -> int | None:
    """Return the level that at most one session in ten reached in the first nights, if any has a cost.

    Only nights that are nothing but a prior to every detector count, so the level is no choice after the fact.
    """
    per_night = [
        sum(own[at].sessions for own in levels.values())
        for at in range(len(next(iter(levels.values()), ())))
    ]
    first = next((at for at, sessions in enumerate(per_night) if sessions), len(per_night))
    begin = len(per_night) - min(case_nights, (len(per_night) - first) // 2)
    early = slice(first, first + (begin - first) // 2)
    everything = sum(per_night[early])
    reached = 0
    found = max(levels, default=0) + 1
    for level in sorted(levels, reverse=True):
        reached += sum(night.sessions for night in levels[level][early])
        if reached > _COSTLY * everything:
            break
        found = level
    return found if everything else None


def _from_level(
    levels: Mapping[int, Sequence[Counted]], least: int, nights: int
) -> tuple[Counted, ...]:
    """Return sessions per night, and those whose cost reached a level."""
    return tuple(
        Counted(
            sum(own[at].sessions for own in levels.values()),
            sum(own[at].sessions for level, own in levels.items() if level >= least),
        )
        for at in range(nights)
    )


def _evaluators(
    sessions: _Sessions, window: _Window
) -> tuple[dict[SignalName, dict[str, tuple[int, ...]]], tuple[Counted, ...]]:
    """Return judgements per night of each evaluator, and how often gold signals disagree."""
    nights = len(window.days)
    judged: dict[str, dict[str, list[int]]] = defaultdict(dict)
    gold = [Counted(0, 0)] * nights
    for row in sessions.rows(_EVALUATORS):
        at = window.night(row["day"])
        judged[row["name"]].setdefault(row["evaluator"], [0] * nights)[at] = row["judged"]
        if row["name"] == "success":
            before = gold[at]
            gold[at] = Counted(
                before.sessions + row["with_gold"], before.events + row["disagreeing"]
            )
    evaluators: dict[SignalName, dict[str, tuple[int, ...]]] = {
        signal: {who: tuple(own) for who, own in judged[name].items()}
        for signal, name in _JUDGED.items()
        if name in judged
    }
    return evaluators, tuple(gold)


@dataclass(frozen=True, slots=True)
class _LakeLookup:
    """Asks the lake what the sessions of a case share."""

    read: _AtVersions
    sessions: _Sessions
    window: _Window
    evidence: Evidence

    def _values(self, case: DetectorState) -> dict[str, Any]:
        return {
            "signal": case.signal, "subject": case.subject,
            "start": self.window.days[case.start], "level": self.evidence.levels.get(case.signal),
        }  # fmt: skip

    def groups(self, case: DetectorState) -> Sequence[Grouped]:
        """See :class:`evolve.plan.Lookup`."""
        return [
            Grouped(
                row["dimension"], row["value"],
                Counted(row["sessions_before"], row["events_before"]),
                Counted(row["sessions_since"], row["events_since"]),
                row["tenants"], self.window.night(row["first_day"]),
            )
            for row in self.sessions.rows(_GROUPS, **self._values(case))
        ]  # fmt: skip

    def examples(self, case: DetectorState, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """See :class:`evolve.plan.Lookup`."""
        rows = self.sessions.rows(_EXAMPLES, **self._values(case), names=list(names))
        return {row["name"]: row["examples"] for row in rows}

    def eligible(self) -> int:
        """See :class:`evolve.plan.Lookup`."""
        (row,) = self.read.rows(_ELIGIBLE, **self.window.values)
        return int(row["sessions"])
