"""One night: decide, then draw artefacts, or build the substrate, plan and train, then promote, as commands do it.

Each step is a process of its own, so that a deadline can end it and its memory goes back.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from evolve.proposers.catalog import SURFACES_DECIDED
from headrace.processes.supervisor import headrace_command, in_the_name_of
from train.schedule import Schedule
from trajectory.child_process import ChildProcess, open_log

_REFUSED, _BAD_INPUT = 1, 2


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """Outcome of a command."""

    code: int
    output: dict[str, Any] = field(default_factory=dict)
    """What it printed as JSON."""
    error: str = ""
    """Its last words on standard error."""
    rows: Sequence[dict[str, Any]] = ()
    """The same, where it printed a list."""


class DeadlinePassedError(Exception):
    """The night's time is up."""


class Commands(Protocol):
    """Runs one ``headrace`` command with ``--json``.

    Raises:
        DeadlinePassedError: it did not end within so many seconds and was stopped.
    """

    def __call__(self, arguments: Sequence[str], seconds: float) -> CommandOutcome: ...


class InheritingCommands(Protocol):
    """Runs commands as :class:`Commands` does; descriptors in ``keep`` stay open while they run."""

    def __call__(
        self, arguments: Sequence[str], seconds: float, keep: Sequence[int]
    ) -> CommandOutcome: ...


@dataclass(frozen=True, slots=True)
class Night:
    """Outcome of a night."""

    outcome: str
    """trained | proposed | refused | nothing | failed | deadline"""
    reasons: tuple[str, ...] = ()
    substrate: str | None = None
    item_ids: tuple[str, ...] = ()
    """What the substrate held, when something was learned from it."""
    models: tuple[str, ...] = ()
    """Candidates that passed their gates, ``name@version``."""
    promoted: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()
    """Candidates that passed their inspection, ``name@version``."""


@dataclass(slots=True)
class _Progress:
    reasons: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    artifacts: list[str] = field(default_factory=list)
    promoted: list[str] = field(default_factory=list)
    refused: bool = False
    failed: bool = False


def run_night(
    schedule: Schedule,
    run: Commands,
    *,
    known_items: frozenset[str] = frozenset(),
    as_of: str | None = None,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Night:
    """Run a night to its end, whatever happens; failures are outcomes, not exceptions.

    Args:
        schedule: what to do.
        run: runs the commands.
        known_items: items that earlier nights learned from.
        as_of: the decision looks at the nights before this day; None for the day of the newest step.
        clock: monotonic seconds.
        pause: waits between tries.
    """
    return _NightRun(schedule, run, known_items, as_of, clock, pause).whole()


class _NightRun:
    """A night under way."""

    def __init__(
        self,
        schedule: Schedule,
        run: Commands,
        known_items: frozenset[str],
        as_of: str | None,
        clock: Callable[[], float],
        pause: Callable[[float], None],
    ) -> None:
        self._spec = schedule.spec
        self._run = run
        self._known = known_items
        self._as_of = as_of
        self._clock = clock
        self._pause = pause
        self._decision: str | None = None
        self._end = clock() + 60 * self._spec.deadline_minutes
        self._progress = _Progress()

    def whole(self) -> Night:
        """Run everything."""
        substrate: str | None = None
        items: tuple[str, ...] = ()
        try:
            if (instead := self._decided_otherwise()) is not None:
                return instead
            built = self._try(["substrate", "build", str(self._spec.substrate)])
            if built.code:
                return Night("failed", (f"substrate build: {built.error}",))
            substrate = f"{built.output['name']}@{built.output['version']}"
            items = tuple(built.output["item_ids"])
            new = len(set(items) - self._known)
            if new < self._spec.conditions.minimum_new_items:
                wanted = self._spec.conditions.minimum_new_items
                return Night("nothing", (f"{new} new items, fewer than {wanted}",), substrate)
            self._climb(substrate)
        except DeadlinePassedError:
            minutes = self._spec.deadline_minutes
            self._progress.reasons.append(f"stopped after {minutes:g} minutes (deadline_minutes)")
            return self._night("deadline", substrate, items)
        return self._night(self._outcome(), substrate, items)

    def _decided_otherwise(self) -> Night | None:
        """Ask the control plane, where the schedule names a policy; None when there is to be training."""
        if self._spec.evolution is None:
            return None
        moment = [] if self._as_of is None else ["--as-of", self._as_of]
        done = self._try(["evolve", "run", str(self._spec.evolution), *moment])
        if done.code:
            return Night("failed", (f"evolve run: {done.error}",))
        decided, decision = done.output["decided"], done.output["decision_id"]
        if decided["surface"] == "weights":
            self._decision = decision
            return None
        said = f"decision {decision}: {decided['surface']} ({decided['reason']})"
        self._progress.reasons.append(said)
        if decided["surface"] in SURFACES_DECIDED:
            self._answer(decision, is_new=True)
        elif decided["surface"] == "nothing" and (last := self._proposal(done.output)) is not None:
            self._answer(str(last["decision_id"]), is_new=last["status"] == "proposed")
        return self._night(self._outcome(), None, ())

    def _proposal(self, tonight: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the policy's newest proposal for an artefact, until it is rejected or due.

        A night may have ended before it answered; the next one has a decision of its own. The first artefact
        that goes live approves it, and those of other tenants follow.
        """
        policy = tonight["policy"]["name"]
        proposals = [
            row for row in self._try(["evolve", "history"]).rows
            if row["policy"] == policy and row["surface"] != "nothing"
        ]  # fmt: skip
        last = proposals[-1] if proposals else None
        if last is None or last["surface"] not in SURFACES_DECIDED:
            return None
        if last["status"] not in ("proposed", "approved"):
            return None
        due, now = (datetime.fromisoformat(one) for one in (last["due_at"], tonight["as_of"]))
        return last if now < due else None

    def _answer(self, decision: str, *, is_new: bool) -> None:
        """Register what a decision asks for, unless that is done; with the ladder it goes on trial."""
        self._decision = decision
        known = [row for row in self._try(["artifact", "list"]).rows if row["decision"] == decision]
        if is_new and not known:
            for label in self._proposed(decision):
                self._progress.artifacts.append(label)
                self._begin_artifact(label)
            return
        for row in known:  # a night before this one ended between registration and trial
            label = f"{row['artifact']}@{row['version']}"
            waits = self._spec.promote == "ladder" and row["status"] == "candidate"
            if waits and self._try(["trial", "show", label]).code != 0:
                self._progress.artifacts.append(label)
                self._begin_artifact(label)

    def _proposed(self, decision: str) -> list[str]:
        """Have candidates drawn and inspected; return those that are registered."""
        progress = self._progress
        done = self._try(["artifact", "propose", decision, "--add"])
        if done.code:
            progress.failed |= done.code != _BAD_INPUT
            progress.reasons.append(f"artifact propose: {done.error}")
            return []
        if not done.rows:
            progress.reasons.append("nothing to propose from what was seen")
        for row in done.rows:
            if row["objections"]:
                progress.refused = True
                progress.reasons.append(
                    f"{row['artifact']}: its inspection objects ({row['objections']})"
                )
        return [row["artifact"] for row in done.rows if not row["objections"]]

    def _begin_artifact(self, label: str) -> None:
        if self._spec.promote == "ladder":
            name, _, version = label.partition("@")
            self._begin_trial(name, version)
        else:
            self._progress.reasons.append(f"{label} is registered")

    def _climb(self, substrate: str) -> None:
        """Run each recipe that can learn; with ``promote`` each starts from what the one before made."""
        progress = self._progress
        for recipe in self._spec.recipes:
            planned = self._planned(recipe, substrate)
            if isinstance(planned, str):
                progress.reasons.append(planned)
                continue
            if self._waits(planned):  # a night before this one ended between training and promotion
                label, base = planned["made"], planned["base"]
                version = label.partition("@")[2]
                self._passed({"model": label, "version": version, "base": base})
                continue
            if planned["made"] is not None:
                said = f"made {planned['made']} of this version already"
                progress.reasons.append(f"{recipe_name(recipe)}: {said}")
                continue
            done = self._train(recipe, substrate)
            if done.code == 0:
                self._passed(done.output)
                if self._spec.promote is not True:
                    return
            elif done.code == _REFUSED:
                progress.refused = True
                progress.reasons.append(f"{recipe_name(recipe)}: the gate refused the candidate")
            else:
                progress.failed = True
                progress.reasons.append(f"{recipe_name(recipe)}: {done.error}")

    def _planned(self, recipe: str, substrate: str) -> dict[str, Any] | str:
        """Ask the planner; a text says why the recipe cannot learn."""
        own = ["--recipe", recipe] if recipe.endswith((".yaml", ".yml")) else []
        model = ["--model", self._spec.model]
        planned = self._try(["train", "plan", "--substrate", substrate, *model, *own])
        if planned.code:
            return f"{recipe_name(recipe)}: {planned.error}"
        kind = recipe_kind(recipe)
        line: dict[str, Any] = next(
            entry for entry in planned.output["recipes"] if entry["recipe"] == kind
        )
        if line["obstacles"]:
            return f"{recipe_name(recipe)}: {'; '.join(line['obstacles'])}"
        return line

    def _waits(self, planned: dict[str, Any]) -> bool:
        """Whether what a recipe made already is still to be promoted or tried."""
        if not (self._spec.promote and planned["awaits_promotion"]):
            return False
        return self._spec.promote is True or self._try(["trial", "show", planned["made"]]).code != 0

    def _train(self, recipe: str, substrate: str) -> CommandOutcome:
        model = ["--model", self._spec.model]
        resume = ["--resume", "last"]
        return self._try(["train", "run", recipe, "--substrate", substrate, *model, *resume])

    def _passed(self, output: dict[str, Any]) -> None:
        self._progress.models.append(output["model"])
        if self._spec.promote == "ladder":
            self._begin_trial(self._spec.model, output["version"])
        elif self._spec.promote:
            # It passed its gate beside its base. What serves by now may be a better one, or that was taken back.
            serving = ["--serving", self._version_of(output["base"])]
            done = self._try(["train", "promote", self._spec.model, output["version"], *serving])
            if done.code == 0:
                self._progress.promoted.append(output["model"])
            else:
                self._progress.failed = True
                self._progress.reasons.append(f"promote: {done.error}")

    def _version_of(self, base: str) -> str:
        """Return which version of the model a base is; empty for a model from elsewhere, which none serves beside."""
        name, _, version = base.partition("@")
        return version if name == self._spec.model else ""

    def _begin_trial(self, name: str, version: str) -> None:
        """Put a candidate on trial; another change on trial is a reason to wait, and no failure."""
        evolution = self._spec.evolution
        policy = [] if evolution is None else ["--policy", str(evolution)]
        decision = [] if self._decision is None else ["--decision", self._decision]
        done = self._try(["trial", "begin", name, version, *policy, *decision])
        self._progress.failed |= done.code not in (0, _BAD_INPUT)
        said = f"{name}@{version} is on trial"
        if done.code:
            said = f"trial begin: {done.error}"
        elif done.output.get("outcome"):  # it did not pass the ladder's exam
            told = "; ".join(done.output["reasons"])
            said = f"{name}@{version}: {done.output['outcome']} ({told})"
        self._progress.reasons.append(said)

    def _try(self, arguments: list[str]) -> CommandOutcome:
        """Run a command; try again when its work failed, not when it refused its input."""
        retries = self._spec.retries
        for attempt in range(1, retries.attempts + 1):
            done = self._run(arguments, self._left())
            if 0 <= done.code <= _BAD_INPUT or attempt == retries.attempts:
                return done
            self._pause(min(60 * retries.wait_minutes, self._left()))
        raise AssertionError("at least one attempt")

    def _left(self) -> float:
        left = self._end - self._clock()
        if left <= 0:
            raise DeadlinePassedError
        return left

    def _outcome(self) -> str:
        progress = self._progress
        if progress.models and not progress.failed:
            return "trained"
        if progress.failed:
            return "failed"
        if progress.artifacts:
            return "proposed"
        return "refused" if progress.refused else "nothing"

    def _night(self, outcome: str, substrate: str | None, items: tuple[str, ...]) -> Night:
        progress = self._progress
        return Night(
            outcome,
            tuple(progress.reasons),
            substrate,
            items if progress.models or progress.refused else (),
            tuple(progress.models),
            tuple(progress.promoted),
            tuple(progress.artifacts),
        )


def recipe_kind(recipe: str) -> str:
    """Return which recipe a document or a shipped name is."""
    from train.recipes.settings import load_or_shipped

    return load_or_shipped(recipe).spec.recipe


def recipe_name(recipe: str) -> str:
    """Return a recipe's name as a person knows it."""
    return Path(recipe).stem if recipe.endswith((".yaml", ".yml")) else recipe


def headrace_commands(home: Path, log: Path) -> InheritingCommands:
    """Return what runs commands as processes of this installation; their words go to a log."""

    def run(arguments: Sequence[str], seconds: float, keep: Sequence[int]) -> CommandOutcome:
        command = headrace_command(["--home", str(home), *arguments])
        if arguments[:2] != ["train", "promote"]:
            command.append("--json")
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_log(log) as errors:
            begin = errors.seek(0, os.SEEK_END)
            try:
                with ChildProcess(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    keep=keep,
                    environment=in_the_name_of("schedule"),
                ) as process:
                    output, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                raise DeadlinePassedError from None
            errors.seek(begin)
            words = errors.read().decode("utf-8", "replace").strip().splitlines()
        error = words[-1] if words else ""
        found = _json(output)
        if isinstance(found, list):
            return CommandOutcome(process.returncode, rows=found, error=error)
        return CommandOutcome(process.returncode, found, error=error)

    return run


def _json(output: bytes) -> dict[str, Any] | list[dict[str, Any]]:
    try:
        value = json.loads(output)
    except ValueError:
        return {}
    return value if isinstance(value, dict | list) else {}
