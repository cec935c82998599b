"""One decision: from what the lake shows and what the policy says to the surface that should change.

:func:`decide` is a pure function; the lake is behind :class:`Lookup`, at fixed versions of its tables.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from typing import Any, Protocol

from evolve.clusters import Cluster, Grouped, Whole, find_clusters, fisher
from evolve.detectors import (
    Counted,
    DetectorState,
    MixState,
    Series,
    examine,
    examine_mix,
    total,
)
from evolve.policy import (
    Condition,
    Evolution,
    EvolutionSpec,
    GuardName,
    SignalName,
    Surface,
    SurfaceRule,
)
from trajectory.canonical import JsonObject, content_hash

METRICS: dict[SignalName, str] = {
    "success": "success rate",
    "correction_rate": "sessions without a correction",
    "tool_errors": "sessions without this tool error",
    "cost_per_success": "sessions that cost no more than nine in ten did before",
    "retries": "sessions without a retry",
    "abandonment": "sessions that nobody abandoned",
    "invalid_arguments": "sessions without invalid arguments",
}
"""Per signal the share of sessions that a change should bring back."""
_RULE_ON_PEOPLE = "human_implicit headrace:"
"""How evaluators begin that are such rules: kind of the source, and the source."""
_LISTED = 20
"""Clusters that a decision lists at most."""


@dataclass(frozen=True, slots=True)
class EarlierDecision:
    """A decision that was recorded before."""

    decision_id: str
    as_of: datetime
    surface: Surface
    status: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a window of nights shows."""

    days: tuple[date, ...]
    series: tuple[Series, ...]
    levels: Mapping[SignalName, int]
    """From which level on a session counts as an event, where a signal has levels."""
    mix: Mapping[str, tuple[int, ...]]
    """Sessions per night of each kind of work."""
    evaluators: Mapping[SignalName, Mapping[str, tuple[int, ...]]]
    """Judgements per night of each evaluator."""
    gold: tuple[Counted, ...]
    """Sessions with a gold signal and another one, and those in which they disagree."""
    on_trial: tuple[str, ...]
    """Changes that are under way: models on trial, interventions that have not ended."""
    earlier: tuple[EarlierDecision, ...]
    versions: Mapping[str, int]
    """Of the tables that were read."""


class Lookup(Protocol):
    """What is asked of the lake once a case is confirmed."""

    def groups(self, case: DetectorState) -> Sequence[Grouped]:
        """Return the sessions of the case's signal by everything that they share."""
        ...

    def examples(self, case: DetectorState, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return a few trajectories of each cluster in which it went wrong, in order."""
        ...

    def eligible(self) -> int:
        """Return the sessions of the window that training may use."""
        ...


@dataclass(frozen=True, slots=True)
class RuleTrace:
    """A rule, and whether it held."""

    name: str
    surface: Surface
    held: bool
    why: str


@dataclass(frozen=True, slots=True)
class GuardTrace:
    """A guard, and whether it forbids a change."""

    name: GuardName
    forbids: bool
    why: str


@dataclass(frozen=True, slots=True)
class EvolutionDecision:
    """What should change, and all that it rests on; ``document`` is the whole."""

    decision_id: str
    document: JsonObject

    @property
    def surface(self) -> Surface:
        """What should change."""
        return self._of("decided", "surface")  # type: ignore[no-any-return]

    @property
    def subject(self) -> str | None:
        """Dimension and value of the cluster that is to blame, if one is."""
        return self._of("decided", "subject")  # type: ignore[no-any-return]

    @property
    def status(self) -> str:
        """What is recorded of it at first."""
        return "nothing" if self.surface == "nothing" else "proposed"

    def _of(self, part: str, name: str) -> Any:
        found: Any = self.document[part]
        return found[name]


def decide(
    policy: Evolution, as_of: datetime, evidence: Evidence, lookup: Lookup
) -> EvolutionDecision:
    """Return the decision of a policy at a moment; the same input gives the same bytes."""
    spec = policy.spec
    states = _states(spec, evidence)
    mix = examine_mix(evidence.mix, spec.detectors.drift, spec.window)
    case = next((state for state in states if state.confirmed), None)
    clusters: tuple[Cluster, ...] = ()
    rules: list[RuleTrace] = []
    guards: list[GuardTrace] = []
    surface: Surface = "nothing"
    subject: Cluster | None = None
    rule = None
    if case is None:
        opened = [_name(state) for state in states if state.opened]
        reason = f"not confirmed so far: {', '.join(opened)}" if opened else "no signal changed"
        if not states:
            reason = "there are too few nights with sessions to say anything"
    else:
        groups = lookup.groups(case)
        whole = Whole(case.reference, case.case, case.start)
        clusters = find_clusters(groups, whole, spec.detectors.clusters)
        rules, rule, subject = _first_rule(spec.rules, case, clusters, groups, mix)
        surface = "nothing" if rule is None else rule.surface
        reason = f"{_name(case)} is confirmed, and no rule holds" if rule is None else rule.name
        guards = _guards(spec, as_of, evidence, case, surface, lookup)
        forbidding = next((one for one in guards if one.forbids), None)
        if forbidding is not None and surface != "nothing":
            surface, reason = "nothing", f"guard {forbidding.name}: {forbidding.why}"
    shown = clusters[:_LISTED]
    causes = [f"{one.dimension} {one.value}" for one in shown if one.is_cause]
    examples = lookup.examples(case, causes) if case is not None and causes else {}
    document: JsonObject = {
        "policy": {
            "name": policy.metadata.name, "hash": policy.content_hash,
            "document": policy.deciding,
        },
        "as_of": as_of.isoformat(),
        "saw": {
            "first_night": evidence.days[0].isoformat(), "last_night": evidence.days[-1].isoformat(),
            "signals": [_state_json(state, evidence) for state in states],
            "mix": None if mix is None else asdict(mix),
        },
        "considered": {
            "case": None if case is None else _name(case),
            "clusters": [asdict(one) for one in shown],
            "clusters_tested": len(clusters),
            "examples": {name: list(examples.get(name, ())) for name in causes},
            "rules": [asdict(one) for one in rules],
            "guards": [asdict(one) for one in guards],
        },
        "decided": {
            "surface": surface, "rule": None if rule is None else rule.name, "reason": reason,
            "subject": None if subject is None else f"{subject.dimension} {subject.value}",
        },
        "expects": _expects(spec, as_of, case, states, surface),
    }  # fmt: skip
    decision_id = content_hash(document).removeprefix("b2:")[:16]
    versions: JsonObject = {name: evidence.versions[name] for name in sorted(evidence.versions)}
    whole_document = {"decision_id": decision_id, **document, "table_versions": versions}
    return EvolutionDecision(decision_id, whole_document)


def _states(spec: EvolutionSpec, evidence: Evidence) -> list[DetectorState]:
    """Return the states in the policy's order of signals, the strongest subject first."""
    watched = [name for name in spec.signals if name != "mix"]
    found = []
    for signal in watched:
        own = [one for one in evidence.series if one.signal == signal]
        alike = len(watched) * len(own)
        states = [examine(one, spec.detectors, spec.window, alike=alike) for one in own]
        known = [one for one in states if one is not None]
        found += sorted(known, key=lambda one: (-one.log_e, -one.cusum, one.subject))
    return found


def _name(state: DetectorState) -> str:
    return f"{state.signal} {state.subject}".rstrip()


def _state_json(state: DetectorState, evidence: Evidence) -> JsonObject:
    return {
        "signal": state.signal,
        "subject": state.subject,
        "metric": METRICS[state.signal],
        "since": evidence.days[state.start].isoformat(),
        "reference": {"sessions": state.reference.sessions, "rate": _good(state.reference)},
        "case": {"sessions": state.case.sessions, "rate": _good(state.case)},
        "cusum": state.cusum,
        "opened": state.opened,
        "log_e": state.log_e if math.isfinite(state.log_e) else None,
        "log_e_needed": state.needed,
        "confirmed": state.confirmed,
    }


def _good(counted: Counted) -> float:
    """Return the share of sessions in which nothing went wrong."""
    return 1 - counted.events / counted.sessions if counted.sessions else 1.0


def _first_rule(
    rules: Sequence[SurfaceRule],
    case: DetectorState,
    clusters: Sequence[Cluster],
    groups: Sequence[Grouped],
    mix: MixState | None,
) -> tuple[list[RuleTrace], SurfaceRule | None, Cluster | None]:
    """Return the rules up to the first that holds, that one, and the cluster that it is about."""
    traces = []
    for rule in rules:
        why, subject = _holds(rule.when, case, clusters, groups, mix)
        traces.append(RuleTrace(rule.name, rule.surface, not why, why or "holds"))
        if not why:
            return traces, rule, subject
    return traces, None, None


def _holds(
    when: Condition,
    case: DetectorState,
    clusters: Sequence[Cluster],
    groups: Sequence[Grouped],
    mix: MixState | None,
) -> tuple[str, Cluster | None]:
    """Return why a condition does not hold, else nothing, and the cluster that it is about."""
    if when.signals and case.signal not in when.signals:
        return f"the case is one of {case.signal}", None
    drifted = mix is not None and mix.drifted
    if when.mix_drifted is not None and when.mix_drifted != drifted:
        return f"the mix of work {'moved' if drifted else 'did not move'}", None
    causes = [one for one in clusters if one.is_cause]
    if when.dimension is not None:
        fitting = [one for one in causes if _fits(one, when)]
        return ("", fitting[0]) if fitting else (f"no cause by {when.dimension} fits", None)
    if when.no_cluster and causes:
        return f"{causes[0].dimension} {causes[0].value} accounts for the rise", None
    for dimension, least in (("tenant", when.tenants_at_least), ("tool", when.tools_at_least)):
        worse = sum(one.dimension == dimension and _is_worse(one) for one in groups)
        if least is not None and worse < least:
            return f"{worse} {dimension}s are worse than before, fewer than {least}", None
    return "", None


def _fits(cluster: Cluster, when: Condition) -> bool:
    return (
        cluster.dimension == when.dimension
        and (when.is_new is None or cluster.is_new == when.is_new)
        and (when.tenants_at_least is None or cluster.tenants >= when.tenants_at_least)
        and (not when.error_classes or error_class_of(cluster) in when.error_classes)
    )


def error_class_of(cluster: Cluster) -> str:
    """Return the class of error that a cluster's value names after its tool."""
    return cluster.value.rsplit(": ", 1 if cluster.dimension == "error_class" else 2)[1]


def _is_worse(one: Grouped) -> bool:
    if not one.since.sessions:
        return False
    before = one.before.events / one.before.sessions if one.before.sessions else 0.0
    return one.since.events / one.since.sessions > before


def _guards(
    spec: EvolutionSpec,
    as_of: datetime,
    evidence: Evidence,
    case: DetectorState,
    surface: Surface,
    lookup: Lookup,
) -> list[GuardTrace]:
    """Return every guard; a rollback undoes a change, so it waits for none."""
    undoes = surface == "rollback"
    running = () if undoes else evidence.on_trial
    before = [
        one for one in evidence.earlier
        if not undoes and as_of - one.as_of < timedelta(days=spec.cooldown.nights)
    ]  # fmt: skip
    found = [
        _evaluator_guard(spec, evidence, case),
        _gold_guard(spec, evidence, case),
        _eligible_guard(spec, case, surface, lookup),
        GuardTrace("on_trial", bool(running), ", ".join(running) or "no change is under way"),
    ]
    why = "nothing was proposed lately"
    if before:
        last = before[-1]
        why = f"decision {last.decision_id} proposed {last.surface} on {last.as_of.date()}"
    return [*found, GuardTrace("cooldown", bool(before), why)]


def _evaluator_guard(spec: EvolutionSpec, evidence: Evidence, case: DetectorState) -> GuardTrace:
    """Forbid where somebody else judges since about when the case began.

    What people do is read in every session by Headrace's own rules. So the first that they say is an event, and
    no new evaluator, unless another version of the rule read before.
    """
    judged = evidence.evaluators.get(case.signal, {})
    begin = max(0, case.start - spec.detectors.clusters.new_within_nights)
    everything = sum(sum(nights[begin:]) for nights in judged.values())
    for name in sorted(judged):
        now, before = sum(judged[name][begin:]), sum(judged[name][:begin])
        is_new = before == 0 and now > 0 and now >= spec.guards.evaluator_share * everything
        if is_new and not _is_first_of_its_rule(name, judged, begin):
            return GuardTrace("evaluator", True, f"{name} judges since the case began")
    return GuardTrace("evaluator", False, "the same evaluators judge as before")


def _is_first_of_its_rule(name: str, judged: Mapping[str, tuple[int, ...]], begin: int) -> bool:
    """Tell whether an evaluator is a rule of Headrace on people, of which no version found anything before."""
    rule = name.rpartition(" ")[0]
    before = (
        sum(nights[:begin]) for who, nights in judged.items() if who.rpartition(" ")[0] == rule
    )
    return name.startswith(_RULE_ON_PEOPLE) and not any(before)


def _gold_guard(spec: EvolutionSpec, evidence: Evidence, case: DetectorState) -> GuardTrace:
    """Forbid where gold signals and the others disagree more than before the case."""
    before, since = total(evidence.gold[: case.start]), total(evidence.gold[case.start :])
    p_value = fisher(
        since.events, since.sessions - since.events, before.events, before.sessions - before.events
    )
    diverges = p_value <= spec.guards.gold_risk
    why = "gold signals and the others agree as before" if since.sessions else "no gold signals"
    if diverges:
        why = f"gold signals disagree in {since.events} of {since.sessions} sessions since"
    return GuardTrace("gold", diverges, why)


def _eligible_guard(
    spec: EvolutionSpec, case: DetectorState, surface: Surface, lookup: Lookup
) -> GuardTrace:
    least = spec.guards.minimum_sessions
    if case.case.sessions < least:
        why = f"{case.case.sessions} sessions since the case began, fewer than {least}"
        return GuardTrace("eligible", True, why)
    if surface == "weights" and (usable := lookup.eligible()) < least:
        why = f"training may use {usable} sessions, fewer than {least}"
        return GuardTrace("eligible", True, why)
    return GuardTrace("eligible", False, "there are enough sessions")


def _expects(
    spec: EvolutionSpec,
    as_of: datetime,
    case: DetectorState | None,
    states: Sequence[DetectorState],
    surface: Surface,
) -> JsonObject | None:
    """Return what the decision is scored by: a share that the nights up to a day must reach."""
    about = case or next(iter(states), None)
    if about is None:
        return None
    usual, now = _good(about.reference), _good(about.case)
    if surface == "nothing":
        least = min(now, usual) - spec.detectors.shift
    else:
        least = now + spec.promotion.recovers * (usual - now)
    by = as_of + timedelta(days=spec.promotion.within_nights)
    return {
        "signal": about.signal,
        "subject": about.subject,
        "metric": METRICS[about.signal],
        "now": now,
        "at_least": max(0.0, least),
        "by": by.isoformat(),
    }
