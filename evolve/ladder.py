"""The ladder: carries candidates rung by rung to every session, and takes back what does harm.

One file for each trial, replaced as a whole, says what shall be so; every step first makes the registry's
pointer say it too, and then looks. So a process may die at any moment: the next step goes on there.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

from evolve import arms
from evolve.arms import NONE_UNDRAWN, ArmSource, Thresholds, TrialSubject
from evolve.decisions import DecisionBook
from evolve.detectors import Counted, e_process
from evolve.policy import Exam, Ladder, Rung
from evolve.trial import SUCCESS, ArmComparison, TrialVerdict, judge, look, margin_of
from evolve.trial_files import Surface, TrialFiles, TrialOutcome, TrialState
from train.errors import GateRefusedError, ServingChangedError, StaleSubstrateError
from train.registry.artifacts import ArtifactRegistry
from train.registry.pointer import TRIALS, Pointer, Trial, read_pointer
from train.registry.registry import AuditHook, Registry
from trajectory.errors import ConfigurationError, HeadraceError, RetryableError

SHADOW = "shadow"
"""The comparison of a shadow: calls, not sessions, for nobody judges its answers."""
_GAP = timedelta(days=1)
"""No more than this counts between two looks: a machine was off, or its clock leapt."""


@dataclass(frozen=True, slots=True)
class TrialRoute:
    """A route that a change touches."""

    name: str
    shadow: float
    """Share of its calls that are copied."""


@dataclass(frozen=True, slots=True)
class ExamResult:
    """What an exam found."""

    passed: bool
    findings: tuple[str, ...]
    """Rule by rule, in words."""


class Examiner(Protocol):
    """Gives candidates their exam."""

    def __call__(
        self, kind: Surface, name: str, version: str, *, control: str, exam: Exam
    ) -> ExamResult: ...


class TrialRunner:
    """Begins trials and carries them on."""

    def __init__(
        self,
        files: TrialFiles,
        registries: Mapping[Surface, tuple[Path, Registry[Any]]],
        source: ArmSource,
        audit: AuditHook,
        *,
        actor: str,
        routes: Callable[[Surface, str], Sequence[TrialRoute]],
        decisions: DecisionBook | None = None,
        examine: Examiner | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Put a runner together.

        Args:
            files: the trials.
            registries: by kind its folder and itself.
            source: the lake.
            audit: told of each move before it counts.
            actor: who moves.
            routes: the routes that a model or an artefact is on.
            decisions: told what became of a candidate's decision.
            examine: gives candidates the exam that a ladder asks for.
            clock: what time it is.
        """
        self._files = files
        self._registries = registries
        self._source = source
        self._audit = audit
        self._actor = actor
        self._routes = routes
        self._decisions = decisions
        self._examine = examine
        self._clock = clock

    def begin(
        self, kind: Surface, name: str, version: str, ladder: Ladder, *, decision: str | None = None
    ) -> TrialState:
        """Put a candidate on the ladder's first rung; :meth:`step` carries it on.

        Raises:
            ConfigurationError: nothing serves yet, this version does, a change is on trial on one of its
                routes, an artefact is on none, or there is no such decision.
        """
        candidate = self._registry(kind).get(name, version)
        if decision is not None and self._decisions is not None:
            decision = self._decisions.get(decision).decision.decision_id
        if kind == "artifact" and not self._routes(kind, name):
            raise ConfigurationError(
                f"no route gives {name!r} to agents, so no session would try it: name it in "
                "evolve.artifacts of a route"
            )
        examined = self._examined(kind, name, version, ladder)
        with self._files.alone():
            pointer = self._pointer(kind, name)
            if pointer is None and self._registry(kind).may_be_absent:
                pointer = Pointer("", "", None)
            if pointer is None:
                raise ConfigurationError(
                    f"no version of {name!r} serves, so {candidate.label} has no control; "
                    "promote one first"
                )
            if pointer.version == version:
                raise ConfigurationError(f"{candidate.label} serves already")
            routes = tuple(route.name for route in self._routes(kind, name))
            self._require_free(kind, name, routes)
            control, found = examined
            if found is not None and control != pointer.version:
                raise ConfigurationError(
                    f"{name}@{pointer.version} serves since {candidate.label} was examined; begin again"
                )
            now = self._clock()
            state = TrialState(
                self._files.next_id(kind, name, version), kind, name, version, pointer.version,
                routes, decision, ladder, now, ladder.rungs[0], now, asks=ladder.rungs[0] if ladder.rungs[0] in ladder.ask else None,
                tenant=candidate.manifest.get("tenant") if kind == "artifact" else None,
                exam=() if found is None else found.findings,
            )  # fmt: skip
            if found is not None and not found.passed:
                return self._carry(self._over(state, "refused", found.findings))
            return self._save("begun", state)

    def _examined(
        self, kind: Surface, name: str, version: str, ladder: Ladder
    ) -> tuple[str, ExamResult | None]:
        """Return the version that a candidate is compared with, and what its exam found."""
        pointer = self._pointer(kind, name)
        control = "" if pointer is None else pointer.version
        if ladder.exam is None:
            return control, None
        if self._examine is None:
            raise ConfigurationError("the ladder asks for an exam, and nobody here gives one")
        return control, self._examine(kind, name, version, control=control, exam=ladder.exam)

    def _require_free(self, kind: Surface, name: str, routes: Sequence[str]) -> None:
        """Refuse a second change on a route: nobody could tell which one did what."""
        for one in self._files.all():
            mine = (one.kind, one.name) == (kind, name)
            if one.outcome is None and (mine or {*one.routes} & {*routes}):
                shared = ", ".join(sorted({*one.routes} & {*routes})) or name
                raise ConfigurationError(
                    f"{one.label} is on trial on {shared}, and one change is tried at a time: wait, "
                    f"or `headrace trial end {one.trial_id}`"
                )
        for other, (folder, _) in self._registries.items():
            for home in sorted(folder.glob("*/live.json")):
                pointer = read_pointer(home.parent)
                beside = {each.name for each in self._routes(other, home.parent.name)}
                mine = (other, home.parent.name) == (kind, name)
                if pointer is not None and pointer.trials and (mine or beside & {*routes}):
                    raise ConfigurationError(
                        f"a version of {home.parent.name!r} is on trial there already; end that "
                        "trial first (`end-trial`)"
                    )

    def step(self) -> list[TrialState]:
        """Carry every trial on as far as it goes now; return those that moved.

        Raises:
            HeadraceError: one cannot be carried on now; it stays as it is, and the others went on.
        """
        moved = []
        with self._files.alone():
            states, failed = self._files.readable()
            for state in states:
                try:
                    after = self._carry(state)
                except HeadraceError as error:
                    failed.append(error)
                    continue
                if (after.rung, after.outcome, after.asks) != (
                    state.rung,
                    state.outcome,
                    state.asks,
                ):
                    moved.append(after)
        if failed:
            raise failed[0]
        return moved

    def approve(self, asked: str, *, reason: str | None = None) -> TrialState:
        """Let a trial go to the rung that it asks for.

        Raises:
            ConfigurationError: it asks for none.
        """
        with self._files.alone():
            state = self._files.get(asked)
            if state.asks is None or state.outcome is not None:
                raise ConfigurationError(f"{state.label} asks for nothing (`headrace trial show`)")
            approved = replace(
                state, approved=(*state.approved, state.asks), asks=None, reasons=_said(reason)
            )
            return self._carry(self._save("approved", approved))

    def end(
        self,
        asked: str,
        *,
        reason: str | None = None,
        outcome: Literal["ended", "rejected"] = "ended",
    ) -> TrialState:
        """End a trial; what was live before it stays, and what is live by now stays too.

        Raises:
            ConfigurationError: it is over.
        """
        with self._files.alone():
            state = self._files.get(asked)
            if state.outcome is not None:
                raise ConfigurationError(f"the trial of {state.label} is over: {state.outcome}")
            return self._carry(self._over(state, outcome, _said(reason)))

    def _carry(self, state: TrialState) -> TrialState:
        """Take a trial as far as it goes now."""
        now = self._clock()
        if state.outcome is None:
            state = _at(state, now)
            self._files.write(state)
        while (after := self._once(state, now)) != state:
            state = after
        return state

    def _once(self, state: TrialState, now: datetime) -> TrialState:
        """Do one thing; return the state unchanged where nothing is to be done now."""
        if state.outcome is not None:
            return state if state.closed else self._close(state)
        if state.asks == state.rung:
            return state
        try:
            if not state.entered:
                if (other := self._preceded(state)) is not None:
                    return self._over(state, "overtaken", (other,))
                return self._enter(state)
        except (GateRefusedError, StaleSubstrateError) as error:
            return self._over(state, "refused", (str(error),))
        except ServingChangedError as error:
            return self._over(state, "overtaken", (str(error),))
        if (other := self._overtaken(state)) is not None:
            return self._over(state, "overtaken", (other,))
        if (unfit := self._unfit(state)) is not None:
            return self._over(state, "refused", (unfit,))
        after, verdict = self._looked(state, now)
        if verdict.outcome == "roll back":
            return self._over(after, "drop" if state.rung == "live" else "harm", verdict.reasons)
        if verdict.outcome == "promote":
            return self._climb(after, verdict)
        if verdict.outcome == "end":
            return self._over(
                after, "live" if state.rung == "live" else "max_days", verdict.reasons
            )
        if after != state:
            self._files.write(after)
        return after

    def _enter(self, state: TrialState) -> TrialState:
        """Make the pointer say what the trial's file says, unless it did so before somebody died."""
        registry, pointer = self._registry(state.kind), self._pointer(state.kind, state.name)
        name, version, rung = state.name, state.version, state.rung
        why = f"trial {state.trial_id}"
        done = pointer is not None and (
            pointer.version == version
            if rung == "live"
            else pointer.trials.get(_trial(rung)) == version
        )
        if rung == "live":
            if not done and not self._was_taken_back(state):
                registry.promote(name, version, actor=self._actor, serving=state.control)
            self._tell_decision("approve", state, f"{state.label} went live by {why}")
        elif rung in ("shadow", "canary") and not done:
            share = state.ladder.canary if rung == "canary" else None
            registry.try_out(
                name, version, _trial(rung), actor=self._actor, share=share, serving=state.control
            )
        entered = replace(state, entered=True)
        self._files.write(entered)
        return entered

    def _was_taken_back(self, state: TrialState) -> bool:
        """Tell whether it was promoted, and somebody changed what serves since.

        The history tells of a change before the pointer moves. A promotion that stands last in it, and that the
        pointer does not show, was killed between the two.
        """
        moved = state.moved_at.isoformat()
        promoted = [
            entry.served and entry.version == state.version and entry.at >= moved
            for entry in self._registry(state.kind).history(state.name)
        ]
        return any(promoted[:-1])

    def _preceded(self, state: TrialState) -> str | None:
        """Say what somebody promoted after a rung was written down and before it is entered."""
        pointer = self._pointer(state.kind, state.name)
        awaited = (state.control, state.version) if state.rung == "live" else (state.control,)
        if pointer is None or pointer.version in awaited:
            return None
        return f"{state.name}@{pointer.version} serves, and {state.name}@{state.control} should"

    def _overtaken(self, state: TrialState) -> str | None:
        """Say what somebody else changed, so that this trial is about nothing any more."""
        pointer = self._pointer(state.kind, state.name)
        serves = state.version if state.rung == "live" else state.control
        if pointer is None and not serves:
            return None
        if pointer is None or pointer.version != serves:
            now = "nothing" if pointer is None else f"{state.name}@{pointer.version}"
            return f"{now} serves, and {state.name}@{serves} should"
        if state.rung in ("shadow", "canary") and (
            pointer.trials.get(_trial(state.rung)) != state.version
        ):
            return f"{state.label} is no {state.rung} any more"
        return None

    def _looked(self, state: TrialState, now: datetime) -> tuple[TrialState, TrialVerdict]:
        """Look once, by the rung."""
        match state.rung:
            case "canary":
                return self._canary(state, now)
            case "shadow":
                return self._shadow(state, now)
            case "live":
                return state, self._watch(state, now)
        return state, TrialVerdict("promote", (f"passed {state.rung}",))

    def _unfit(self, state: TrialState) -> str | None:
        """Say why a candidate does not pass replay or gate; both were done when it was made."""
        if state.rung not in ("replay", "gate"):
            return None
        told = self._registry(state.kind).get(state.name, state.version).manifest
        if state.rung == "replay" and state.kind == "model" and not told.get("evaluation"):
            return (
                f"{state.label} was never evaluated on held-out tasks, which the rung replay asks for; "
                "train it with an evaluation, or leave the rung out"
            )
        if state.rung == "gate" and told.get("gate_passed") is False:
            return f"{state.label} did not pass its gate"
        return None

    def _canary(self, state: TrialState, now: datetime) -> tuple[TrialState, TrialVerdict]:
        ladder, since = state.ladder, state.seen_until or state.moved_at
        until = now - timedelta(minutes=ladder.settle_minutes)
        subject, limits = _subject(state), state.thresholds
        if state.kind == "artifact":  # a model's calls without a name are drawn by their connection
            state = replace(state, undrawn=arms.undrawn(self._source, subject, state.moved_at))
        if until > since:
            if limits == Thresholds():
                limits = arms.thresholds(self._source, subject, since)
            found = arms.sessions_between(
                self._source, subject, ladder, limits, state.moved_at, since, until
            )
            if any(one.sessions for one in found.values()):
                known = {
                    name: look(
                        state.comparisons.get(name, ArmComparison()), one, margin_of(ladder, name)
                    )
                    for name, one in found.items()
                }
                state = replace(state, thresholds=limits, comparisons=known, seen_until=until)
        shown = state.comparisons or dict.fromkeys(arms.names(ladder), ArmComparison())
        verdict = judge(ladder, shown, _lasted(state))
        if verdict.outcome == "end" and state.undrawn.sessions:
            verdict = TrialVerdict("end", (*verdict.reasons, state.undrawn.told))
        if verdict.outcome == "go on" and "live" in ladder.ask and "live" in state.approved:
            verdict = TrialVerdict("promote", ("approved",))
        return state, verdict

    def _shadow(self, state: TrialState, now: datetime) -> tuple[TrialState, TrialVerdict]:
        if not any(route.shadow for route in self._routes(state.kind, state.name)):
            return state, TrialVerdict("promote", ("no route copies calls",))
        ladder, since = state.ladder, state.seen_until or state.moved_at
        until = now - timedelta(minutes=ladder.settle_minutes)
        known = state.comparisons.get(SHADOW, ArmComparison())
        if until > since:
            found = arms.calls_between(self._source, _subject(state), since, until)
            if found.sessions:
                known = look(known, found, ladder.guard_margin)
                state = replace(state, comparisons={SHADOW: known}, seen_until=until)
        verdict = judge(ladder, {SHADOW: known}, _lasted(state))
        copies = known.arms.candidate.sessions
        if verdict.outcome != "roll back" and copies >= ladder.shadow_calls:
            return state, TrialVerdict("promote", (f"{copies} copied calls",))
        if verdict.outcome == "promote":
            return state, TrialVerdict(
                "go on", (f"{copies} of {ladder.shadow_calls} copied calls",)
            )
        return state, verdict

    def _watch(self, state: TrialState, now: datetime) -> TrialVerdict:
        """Compare the days since it went live with the control of its canary."""
        ladder = state.ladder
        until = now - timedelta(minutes=ladder.settle_minutes)
        control = state.comparisons.get(SUCCESS, ArmComparison()).arms.control
        days = arms.lived(self._source, _subject(state), state.moved_at, until)
        if days and control.sessions:
            half = Counted(control.sessions // 2, control.events // 2)
            rest = Counted(control.sessions - half.sessions, control.events - half.events)
            log_e = e_process((half, rest, *days), 2, len(days) + 2, ladder.margin)
            if log_e >= math.log(ladder.watch_days / ladder.false_rollbacks):
                bad, all_of = sum(day.events for day in days), sum(day.sessions for day in days)
                return TrialVerdict("roll back", (
                    f"since it went live {bad} of {all_of} sessions went wrong, control "
                    f"{control.events} of {control.sessions}",
                ))  # fmt: skip
        if _lasted(state) >= timedelta(days=ladder.watch_days):
            return TrialVerdict("end", (f"no drop in {ladder.watch_days} days",))
        return TrialVerdict("go on", (f"watched for {ladder.watch_days} days",))

    def _climb(self, state: TrialState, verdict: TrialVerdict) -> TrialState:
        """Go to the next rung, or ask for it."""
        rungs = state.ladder.rungs
        rung = rungs[rungs.index(state.rung) + 1]
        if rung in state.ladder.ask and rung not in state.approved:
            if state.asks is None:
                return self._save("asked", replace(state, asks=rung, reasons=verdict.reasons))
            self._files.write(state)
            return state
        kept = state.comparisons if rung == "live" else {}
        moved = replace(
            state, rung=rung, moved_at=self._clock(), entered=False, asks=None, seen_until=None,
            lasted_seconds=0.0, undrawn=NONE_UNDRAWN, comparisons=kept, reasons=verdict.reasons,
        )  # fmt: skip
        return self._save("moved", moved)

    def _over(
        self, state: TrialState, outcome: TrialOutcome, reasons: tuple[str, ...]
    ) -> TrialState:
        ended = replace(state, outcome=outcome, reasons=reasons, ended_at=self._clock(), asks=None)
        return self._save("ended", ended)

    def _close(self, state: TrialState) -> TrialState:
        """Take off the pointer what an ended trial left there; done again it changes nothing."""
        registry, pointer = self._registry(state.kind), self._pointer(state.kind, state.name)
        why = f"trial {state.trial_id}: {state.outcome}"
        for trial in TRIALS:
            if pointer is not None and pointer.trials.get(trial) == state.version:
                with suppress(ServingChangedError):  # another one is tried in its place by now
                    registry.end_trial(
                        state.name, trial, actor=self._actor, reason=why, tried=state.version
                    )
        reasons = state.reasons
        if state.outcome == "drop" and pointer is not None and pointer.version == state.version:
            try:
                if not state.control and isinstance(registry, ArtifactRegistry):
                    registry.withdraw(state.name, state.version, actor=self._actor, reason=why)
                else:
                    registry.rollback(
                        state.name, actor=self._actor, reason=why, serving=state.version
                    )
            except RetryableError:
                return state
            except HeadraceError as error:  # it went otherwise than meant: a person must know
                reasons = (*reasons, str(error))
        if state.rung != "live" or not state.entered:
            self._tell_decision("reject", state, why)
        closed = replace(state, closed=True, reasons=reasons)
        self._files.write(closed)
        return closed

    def _tell_decision(
        self, what: Literal["approve", "reject"], state: TrialState, why: str
    ) -> None:
        """Settle the decision that the candidate follows; one that a person settled stays so."""
        if state.decision is None or self._decisions is None:
            return
        with suppress(ConfigurationError):
            getattr(self._decisions, what)(state.decision, reason=why)

    def _save(self, action: str, state: TrialState) -> TrialState:
        """Audit a move, then write it: from then on it holds."""
        detail = {
            "actor": self._actor, "rung": state.rung, "outcome": state.outcome, "asks": state.asks,
            "reasons": list(state.reasons),
        }  # fmt: skip
        self._audit(f"trial.{action}", state.trial_id, detail)
        self._files.write(state)
        return state

    def _registry(self, kind: Surface) -> Registry[Any]:
        return self._registries[kind][1]

    def _pointer(self, kind: Surface, name: str) -> Pointer | None:
        return read_pointer(self._registries[kind][0] / name)


def _at(state: TrialState, now: datetime) -> TrialState:
    """Return a trial with the time that has passed since the last look.

    What was noted by a clock that was set back since lies ahead of it, and counts as now.
    """
    passed = now - (state.looked_at or state.moved_at)
    if passed < timedelta(0):
        seen = None if state.seen_until is None else min(state.seen_until, now)
        return replace(state, looked_at=now, moved_at=min(state.moved_at, now), seen_until=seen)
    lasted = state.lasted_seconds + min(passed, _GAP).total_seconds()
    return replace(state, looked_at=now, lasted_seconds=lasted)


def _lasted(state: TrialState) -> timedelta:
    return timedelta(seconds=state.lasted_seconds)


def _subject(state: TrialState) -> TrialSubject:
    control = f"{state.name}@{state.control}"
    return TrialSubject(state.kind, state.label, control, state.routes, state.tenant)


def _trial(rung: Rung) -> Trial:
    """Return how the registry calls what a rung puts beside the live version."""
    return "shadow" if rung == "shadow" else "canary"


def _said(reason: str | None) -> tuple[str, ...]:
    return () if reason is None else (reason,)
