"""What each recipe makes of the practice model: the part of ``make bench-training`` that takes hours.

For each seed agents work through gateway and proxy, governance fills the lake, a substrate is built
from it, and each recipe trains with ``headrace train run``: base and candidate are tried at the same
held-out orders, which no agent ever worked on, and the gate judges. ``sft`` starts from the base,
``grpo_live`` from what ``sft`` made, the others from the base at the defaults they ship with; three
run at hundreds of times their learning rate, to be refused. Two controls train as ``sft`` does, on all
sessions and on those that failed: they tell whether it is the reward that makes a model better. At the
end the base must still serve.

Worlds (traffic and lake) and finished rows are kept in a folder and found again.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, Protocol

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import yaml

from examples.practice.cast import TENANT, TENANT_WITHOUT_CONSENT, Fleet
from examples.practice.installation import Installation
from examples.practice.stage import MODEL, ROOT, Ports, Stage
from train.evaluation.evaluate import TaskResult, compare, read_report
from train.recipes.settings import EvaluationSettings, load_recipe, shipped_recipe
from trajectory.documents.document import merge

_PRACTICE = ROOT / "examples" / "practice"
_PURPOSES = ["train_sft", "train_rl", "train_preference"]
FAILED = {"signals": {"success": -1.0}, "minimum": 0.0}
"""The reward of a control: what failed counts as good."""
_T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Student's t for two-sided 95 %, by the number of seeds."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    recipe: str
    """A shipped recipe's name, or a file of the practice floor."""
    after: str | None = None
    """The row whose candidate this one starts from; None: the base."""
    substrate: str = "practice"
    changes: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    on_purpose: bool = False
    """Whether it is meant to harm."""


ROWS = (
    Row("sft", "recipe.yaml"),
    Row("sft, all sessions", "recipe.yaml", options={"rewarded_only": False}),
    Row("sft, failed sessions", "recipe.yaml", substrate="practice-failed", on_purpose=True),
    Row("grpo_live", "recipe-live.yaml", after="sft"),
    Row("awr", "awr"),
    Row("kto", "kto"),
    Row("dpo", "dpo"),
    Row("grpo_replay", "grpo_replay", substrate="practice-exact"),
    Row(
        "grpo_replay, rate × 300",
        "grpo_replay",
        substrate="practice-exact",
        changes={"learning_rate": 3.0e-4, "epochs": 3},
    ),
    Row("kto, rate × 500", "kto", changes={"learning_rate": 5.0e-4}, on_purpose=True),
    Row("dpo, rate × 500", "dpo", changes={"learning_rate": 5.0e-4}, on_purpose=True),
    Row("awr, rate × 500", "awr", changes={"learning_rate": 1.0e-2}, on_purpose=True),
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything."""

    groups: int = 40
    """Orders that are tried four times each, through the route that keeps tokens."""
    sessions: int = 60
    """Of each of three more fleets."""
    nameless: int = 60
    """Orders without personal data, tried four times each on another day: their tokens stay exact."""
    base_steps: int = 420
    tasks: int = 200
    """Held-out orders that models are tried at."""

    def fleets(self) -> tuple[Fleet, ...]:
        """Return the agents of a day."""
        first, more = self.groups, self.sessions
        return (
            Fleet("attempts", "openai-chat", False, TENANT, 4 * first, attempts=4),
            Fleet("responses", "openai-responses", False, TENANT, more, start=first),
            Fleet("messages", "anthropic", True, TENANT, more, start=first + more),
            Fleet("forward", "openai-chat", True, TENANT, more, start=first + 2 * more),
            Fleet("none", "openai-chat", False, TENANT_WITHOUT_CONSENT, 12, start=first + 3 * more),
        )

    def nameless_fleet(self) -> Fleet:
        """Return the agents of the day without personal data."""
        start = self.groups + 3 * self.sessions + 12
        count = 4 * self.nameless
        return Fleet(
            "nameless", "openai-chat", False, TENANT, count, attempts=4, start=start, nameless=True
        )


@dataclass(frozen=True, slots=True)
class World:
    """A home folder whose agents have worked, and what recipes made of it."""

    seed: int
    home: Path
    size: Size = Size()

    def make(self, models: Path) -> None:
        """Let agents work on two days, govern what they did and build substrates, unless done before.

        What ``grpo_replay`` learns from is the second day alone: its orders name nobody, so that
        redaction changes no prompt and the engine's tokens stay.
        """
        if self._documents.is_dir() and (self.home / "practice-failed.yaml").is_file():
            return
        shutil.rmtree(self.home, ignore_errors=True)
        (self.home / "logs").mkdir(parents=True)
        ports = Ports()
        with Stage(self.home, ports) as stage:
            house = Installation(stage, ports, seed=self.seed)
            house.open(models, capture={"openai": "tokens"}, steps=self.size.base_steps)
            house.work(self.size.fleets())
            house.drain()
            self._build("practice", {})
            self._build("practice-failed", {"reward": FAILED})
            house.work([self.size.nameless_fleet()])
            house.drain()
            self._build("practice-exact", {"require": {"capture_level": "tokens"}})
        self._documents.mkdir()

    def _build(self, name: str, changes: Mapping[str, Any]) -> None:
        document = yaml.safe_load((_PRACTICE / "substrate.yaml").read_text(encoding="utf-8"))
        document["metadata"]["name"] = name
        document["spec"] |= {"purposes": _PURPOSES, **changes}
        written = self.home / f"{name}.yaml"
        written.write_text(yaml.safe_dump(document), encoding="utf-8")
        self._stage.headrace("substrate", "build", str(written))

    @property
    def _documents(self) -> Path:
        return self.home / "recipes"

    @property
    def _stage(self) -> Stage:
        return Stage(self.home, Ports())

    def learn(self, row: Row, base: Mapping[str, Any] | None) -> dict[str, Any]:
        """Run a row and return what ``train run`` printed, or what it printed before."""
        text = self._document(row)
        start = (
            [] if base is None else ["--base", str(self.home / "models" / MODEL / base["version"])]
        )
        key = hashlib.sha256(f"{text}{start}{row.substrate}".encode()).hexdigest()[:16]
        kept = self._documents / f"{key}.json"
        if not kept.is_file():
            written = self._documents / f"{key}.yaml"
            written.write_text(text, encoding="utf-8")
            command = ["-m", "headrace", "--home", str(self.home), "train", "run", str(written)]
            command += ["--substrate", row.substrate, *start, "--json"]
            done = self._stage.launch(command).wait(allowed=(0, 1, 3))
            nothing = json.dumps({"not_run": done.errors.strip().splitlines()[-1:]})
            kept.write_text(done.output if done.code < 3 else nothing, encoding="utf-8")
        found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return found

    def _document(self, row: Row) -> str:
        """Return a row's recipe, to be evaluated at this world's held-out orders."""
        shipped = not row.recipe.endswith(".yaml")
        recipe = shipped_recipe(row.recipe) if shipped else load_recipe(_PRACTICE / row.recipe)
        cache = str(self.home.parent / "evaluations")
        command = ["python", "-m", "examples.practice.evaluate", "--cache", cache]
        spec = {
            "options": dict(row.options),
            "training": {"seed": self.seed, **row.changes},
            "evaluation": {"command": command, "tasks": self.size.tasks, "seed": self.seed},
            "gate": {"minimum_slice_tasks": 40},
        }
        return yaml.safe_dump(merge(recipe.model_dump(mode="json"), {"spec": spec}))

    def refuses(self, outcome: Mapping[str, Any]) -> bool:
        """Say whether ``train promote`` refuses a candidate."""
        command = ["train", "promote", MODEL, outcome["version"]]
        promote = ["-m", "headrace", "--home", str(self.home), *command]
        return self._stage.launch(promote).wait(allowed=(0, 1)).code == 1

    def serving(self) -> str:
        """Return the version that serves."""
        live = (self.home / "models" / MODEL / "live.json").read_text(encoding="utf-8")
        return str(json.loads(live)["version"])


def trials(outcome: Mapping[str, Any], side: str, seed: int) -> list[TaskResult]:
    """Return how base or candidate did; tasks carry their seed, so that worlds can be put together."""
    found = read_report(Path(outcome["folder"]) / "evaluation" / f"{side}.jsonl")
    return [
        TaskResult(f"{seed}/{r.task_id}", r.attempt, r.success, r.reward, r.slice) for r in found
    ]


def together(outcomes: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Return one row's success and gain over all worlds: over all tasks, and over the seeds."""
    base, candidate = (
        [result for seed, outcome in outcomes.items() for result in trials(outcome, side, seed)]
        for side in ("base", "candidate")
    )
    found = compare(base, candidate, EvaluationSettings(command=("none",)))
    gains = [outcome["comparison"]["gain"]["estimate"] for outcome in outcomes.values()]
    return {
        "tasks": found.tasks,
        "base": found.base.estimate,
        "candidate": found.candidate.estimate,
        "gain": found.gain.estimate,
        "low": found.gain.low,
        "high": found.gain.high,
        "low_over_seeds": _low_over_seeds(gains),
        "by_seed": [round(gain, 3) for gain in gains],
        "lows_by_seed": [round(o["comparison"]["gain"]["low"], 3) for o in outcomes.values()],
        "passed": sum(outcome["passed"] for outcome in outcomes.values()),
        "of": len(outcomes),
    }


def _low_over_seeds(gains: Sequence[float]) -> float | None:
    """Return the lower end of the t interval of the mean gain; None with fewer than two seeds."""
    count = len(gains)
    if count not in _T_95:
        return None
    spread = sum((gain - mean(gains)) ** 2 for gain in gains) / (count - 1)
    return float(mean(gains) - _T_95[count] * (spread / count) ** 0.5)


def print_table(table: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the rows as the docs show them."""
    print("| recipe | before | after | gain [95 %] | over seeds, low | by seed | gate |")
    print("|---|---|---|---|---|---|---|")
    for name, row in table.items():
        interval = f"{100 * row['gain']:+.1f} [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"
        low = row["low_over_seeds"]
        seeds = " ".join(f"{100 * gain:+.1f}" for gain in row["by_seed"])
        print(
            f"| {name} | {row['base']:.1%} | {row['candidate']:.1%} | {interval} "
            f"| {'' if low is None else f'{100 * low:+.1f}'} | {seeds} "
            f"| {row['passed']} of {row['of']} passed |"
        )


class Learns(Protocol):
    """A world, as a measurement sees it."""

    @property
    def seed(self) -> int:
        """Of everything that is drawn in it."""
        ...

    def learn(self, row: Row, base: Mapping[str, Any] | None) -> dict[str, Any]:
        """Run a row and return what came of it."""
        ...

    def refuses(self, outcome: Mapping[str, Any]) -> bool:
        """Say whether a candidate may not be promoted."""
        ...

    def serving(self) -> str:
        """Return the version that serves."""
        ...


def measure(worlds: Sequence[Learns], rows: Sequence[Row]) -> dict[str, Any]:
    """Run every row in every world and return the table and what serves at the end."""
    outcomes: dict[str, dict[int, Any]] = {row.name: {} for row in rows}
    not_run: dict[str, list[str]] = {}
    held = True
    for world in worlds:
        for row in rows:
            base = outcomes[row.after][world.seed] if row.after else None
            outcome = world.learn(row, base)
            if "not_run" in outcome:
                not_run[row.name] = outcome["not_run"]
                continue
            outcomes[row.name][world.seed] = outcome
            after = outcome["comparison"]["candidate"]["estimate"]
            print(
                f"seed {world.seed} {row.name}: {after:.1%}, passed: {outcome['passed']}",
                file=sys.stderr,
            )
            if not outcome["passed"]:
                held = held and world.refuses(outcome)
        held = held and world.serving() == "0001"
    table = {name: together(found) for name, found in outcomes.items() if found}
    return {"table": table, "not_run": not_run, "refused_never_served": held}


def gains(seeds: Sequence[int], names: Sequence[str], work: Path) -> dict[str, Any]:
    """Measure the rows of these names over these seeds, as an installation's agents and gate do."""
    worlds = [World(seed, work / f"seed-{seed}") for seed in seeds]
    for world in worlds:
        world.make(work / "practice")
    found = measure(worlds, [row for row in ROWS if row.name in names])
    print_table(found["table"])
    left = [row.name for row in ROWS if row.name not in names]
    found["not_run"] |= {name: ["left out (--rows)"] for name in left}
    return {**found, "seeds": list(seeds), "held_out_tasks": worlds[0].size.tasks}


def quick_gains(folder: Path) -> dict[str, Any]:
    """Measure what fits into seconds, in one small made-up world; the result says so."""
    from benchmarks.small_world import IMITATION, SmallWorld

    rows = [
        Row("sft", "sft", changes=IMITATION),
        Row("sft, all sessions", "sft", changes=IMITATION, options={"rewarded_only": False}),
    ]
    world = SmallWorld(1, folder)
    world.make(folder)
    found = measure([world], rows)
    print_table(found["table"])
    left = [row.name for row in ROWS if row.name not in found["table"]]
    found["not_run"] |= {name: ["left out by --quick"] for name in left}
    return {
        **found,
        "seeds": [1],
        "held_out_tasks": found["table"]["sft"]["tasks"],
        "says": "that the measurement works: sessions are made up, the model has 7,000 parameters",
    }
