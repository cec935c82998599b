"""The story that ``make demo`` tells: real traffic, governed, queried, learned from, and proved."""

import json
import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.markup import escape

from examples.practice import untold_rule
from examples.practice.cast import TENANT, TENANT_WITHOUT_CONSENT, Fleet
from examples.practice.evaluate import CACHE_VARIABLE
from examples.practice.installation import Installation
from examples.practice.stage import MODEL, Ports, Program, ProgramResult, Stage
from examples.practice.story import QUESTIONS, SUCCESS, Result, Rung, Story
from examples.practice.tasks import Task, make_task, planted_values
from headrace.app.output import cell
from lakehouse.maintenance.scan import scan
from train.evaluation.intervals import Interval
from trajectory.errors import WorkError

_FOLDER = Path(__file__).parent
SMOLLM2 = "smollm2"


@dataclass(frozen=True, slots=True)
class Options:
    """What a person may choose."""

    seed: int
    home: Path
    short: bool = False
    as_json: bool = False
    provider: str = "practice"
    """practice | openai | anthropic: who answers the agents whose traffic is captured."""
    model: str | None = None
    """Of a real provider; ``smollm2`` in place of the model made here."""

    @property
    def desk(self) -> bool:
        """Whether agents are desks without tools: SmolLM2 calls none."""
        return self.provider == "practice" and self.model == SMOLLM2

    @property
    def rungs(self) -> tuple[str, ...]:
        """What the night trains by, in order; the control trains by the first."""
        if self.desk:
            return "recipe-smollm2.yaml", "recipe-smollm2-live.yaml"
        return "recipe.yaml", "recipe-live.yaml"


def fleets(options: Options) -> tuple[Fleet, ...]:
    """Return the agents of the day; a short demo has four fifths of them.

    Six types of account are learned from the sessions that succeeded: with 80 of them luck decides, with 200
    the gate lets the model through. SmolLM2, a hundred times larger, is quicker to learn and slower to answer.
    """
    scale = (0.8 if options.short else 1.0) * (0.3 if options.desk else 1.0)

    def some(count: int) -> int:
        return max(4, round(count * scale))

    if options.provider == "openai":
        clients = ("openai-chat", "openai-responses", "openai-chat", "openai-chat")
    elif options.provider == "anthropic":
        clients = ("anthropic",) * 4
    else:
        clients = ("openai-chat", "openai-responses", "anthropic", "openai-chat")
    plan = (
        ("chat", clients[0], False, TENANT, some(220)),
        ("responses", clients[1], False, TENANT, some(120)),
        ("messages", clients[2], True, TENANT, some(120)),
        ("forward", clients[3], True, TENANT, some(120)),
        ("no-consent", clients[0], False, TENANT_WITHOUT_CONSENT, some(48)),
    )
    fleets, start = [], 0
    for name, client, forward, tenant, sessions in plan:
        fleets.append(Fleet(name, client, forward, tenant, sessions, start=start))
        start += sessions
    return tuple(fleets)


def recipe_file(options: Options, name: str) -> Path:
    """Return a recipe of the night; of GRPO a short demo takes a quarter of the steps, whatever they gain."""
    found = _FOLDER / name
    if not (options.short and name == options.rungs[-1]):
        return found
    recipe = yaml.safe_load(found.read_text())
    training = recipe["spec"]["training"]
    training["maximum_steps"] = round(training["maximum_steps"] / 4)
    shortened = options.home / name
    shortened.write_text(yaml.safe_dump(recipe))
    return shortened


def prepare_home(home: Path) -> None:
    """Empty the demo's own home folder, but keep the practice model that an earlier run made."""
    if home.exists():
        for entry in home.iterdir():
            if entry.name == "practice":
                continue
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    (home / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)


def tell(options: Options) -> Result:
    """Tell the whole story; return what was measured."""
    prepare_home(options.home)
    story = Story(as_json=options.as_json)
    with ExitStack() as stack:
        ports = Ports()
        stage = stack.enter_context(Stage(options.home, ports))
        house = Installation(
            stage,
            ports,
            seed=options.seed,
            provider=options.provider,
            model=None if options.desk else options.model,
            desk=options.desk,
        )
        demo = _Demo(options, story, house)
        demo.open_the_house()
        demo.work_the_day()
        demo.govern()
        demo.ask()
        demo.learn()
        demo.control()
        demo.serve_again()
        demo.find_the_untold_rule()
        demo.prove()
    demo.result.seconds = round(story.seconds, 1)
    story.last_table(demo.result)
    demo.say_how_it_ended()
    return demo.result


class _Demo:
    """The chapters, in the order in which they are told."""

    def __init__(self, options: Options, story: Story, house: Installation) -> None:
        self._options = options
        self._story = story
        self._house = house
        self._stage = house.stage
        self._fleets = fleets(options)
        self._exact = ("openai",) if options.provider == "practice" else ()
        """Routes whose engine gives its tokens; its prompts get surrogates, so that these stay exact."""
        self._reading: Path | None = None
        """The model that reads its prompt; None where a real provider answers."""
        self.result = Result(options.seed)

    def open_the_house(self) -> None:
        """Make the base model, and start provider, tools, gateway and governance."""
        story = self._story
        story.chapter("The house opens")
        story.say(f"seed {self._options.seed}: the same tasks and people with --seed next time")
        story.say(
            "SmolLM2-135M-Instruct is taken from a package and converted (kept for the next time)"
            if self._options.desk
            else "two small transformers are trained from random weights (kept for the next time): some four minutes"
        )
        with story.waiting("the base model is made, then everything starts"):
            reading = self._reading_model()
            self._house.open(
                self._options.home / "practice",
                capture=dict.fromkeys(self._exact, "tokens"),
                inline=self._exact,
            )
            if reading is not None:
                self._reading = Path(reading.wait().output.strip())
        story.say(
            f"gateway on port {self._house.ports.gateway}, intercepting proxy on {self._house.ports.forward}, "
            f"provider on {self._house.ports.provider} (HTTPS {self._house.ports.provider_tls})"
        )

    def _reading_model(self) -> Program | None:
        """Begin to make the model of the untold rule, beside the base model."""
        if self._options.provider != "practice" or self._options.desk:
            return None
        models = str(self._options.home / "practice")
        return self._stage.launch(
            ["-m", "examples.practice.reading", "--folder", models, "--quiet"]
        )

    def work_the_day(self) -> None:
        """Let all fleets work."""
        story, sessions = self._story, sum(fleet.sessions for fleet in self._fleets)
        story.chapter(f"A day of work: {sessions} sessions of agents that know nothing of Headrace")
        for fleet in self._fleets:
            way = "intercepting proxy" if fleet.forward else "base URL"
            story.say(f"{fleet.sessions:>4} × {fleet.client:<17} {fleet.tenant:<6} by {way}")
        with story.waiting("agents at work"):
            tally = self._house.work(self._fleets)
        learned = tally.successes / max(1, tally.sessions)
        self.result.day_success = round(learned, 4)
        story.say(
            f"{tally.requests:,} exchanges, {tally.rewards} rewards by the verifier, "
            f"{learned:.0%} of the sessions succeeded"
        )

    def govern(self) -> None:
        """Wait until everything that was captured has been governed."""
        self._story.chapter("Governed: rebuilt, redacted, consented, deduplicated, gated")
        with self._story.waiting("governing"):
            self._house.drain()
        rows = self._house.sql(
            "select disposition, count(*) as exchanges from exchanges group by all order by all"
        )
        self._story.table(rows)
        seen = self._house.sql(
            "select sum(context_keep + len(context_message_ids) + (output_message_id is not null)::int)::bigint as n, "
            "(select count(*) from messages) as kept, (select count(*) from tokens where "
            "prompt_token_ids is not null and token_fidelity in ('exact', 'pseudonymised_inline')) as exact from steps"
        )[0]
        self._story.say(
            f"agents resend their history with each call: {seen['n']:,} messages seen, "
            f"{seen['kept']:,} stored; answers that were lost on the way and asked for again "
            "are left out as [bold]duplicate[/]"
        )
        if self._exact:
            self.result.exact_tokens = seen["exact"]
            self._story.say(
                f"on the route [bold]{self._exact[0]}[/] the provider got surrogates in the place of personal "
                f"data, and nothing had to be cut later: {seen['exact']:,} steps keep the engine's exact tokens"
            )
        self._show_one_message()

    def _show_one_message(self) -> None:
        """Print what a customer wrote beside what is stored of it."""
        rows = self._house.sql(
            f"select parts from messages where role = 'user' and tenant_id = '{TENANT}' "  # noqa: S608 - a fixed name
            "and parts is not null"
        )
        for task in self._tasks():
            found = [row["parts"] for row in rows if task.order in row["parts"]]
            if len(found) == 1 and task.planted:
                kept = " ".join(part.get("text", "") for part in json.loads(found[0]))
                self._story.say("[bold]one customer's message, as it was sent and as it is kept[/]")
                self._story.facts({"sent": task.prompt, "kept": kept})
                return

    def ask(self) -> None:
        """Ask what a person would ask."""
        self._story.chapter("Questions, in SQL")
        for question, query in QUESTIONS.items():
            self._story.say(f"\n[bold]{question}[/]")
            self._story.say(f'[dim]headrace sql "{query}"[/]')
            self._story.table(self._house.sql(query))

    def learn(self) -> None:
        """Build a substrate, train, evaluate, and let the gate decide."""
        story, stage = self._story, self._stage
        story.chapter("A night of learning")
        manifest = stage.headrace_json("substrate", "build", str(_FOLDER / "substrate.yaml"))
        story.say(
            f"substrate {manifest['name']}@{manifest['version']}: {len(manifest['item_ids'])} items"
        )
        story.table(
            [
                {"left out": reason, "steps": count}
                for reason, count in manifest["left_out_steps"].items()
            ]
        )
        plan = stage.headrace_json("train", "plan")
        story.say(f"the planner picks {plan['pick']}: {plan['reason']}")
        for recipe in self._options.rungs:
            with story.waiting(f"{recipe}: training, then held-out tasks"):
                run = self._train(recipe, "--substrate", manifest["name"])
            if not run.output.strip():
                raise WorkError(f"training did not get to its end:\n{run.errors[-2000:]}")
            self._climb(json.loads(run.output))

    def _climb(self, outcome: dict[str, Any]) -> None:
        """Take down what a rung gained; what passed its gate serves, and the next one starts from it."""
        found = outcome["comparison"]
        if outcome["passed"]:
            self._stage.headrace("train", "promote", MODEL, outcome["version"])
        rung = Rung(
            outcome["recipe"],
            Interval(**found["base"]),
            Interval(**found["candidate"]),
            Interval(**found["gain"]),
            outcome["model"] if outcome["passed"] else None,
        )
        self.result.rungs.append(rung)
        self._story.say(
            f"[bold]{rung.recipe}[/]: {outcome['rows']} rows, {outcome['steps']} steps in "
            f"{outcome['seconds']:.0f} s; on {found['tasks']} held-out tasks "
            f"{rung.before.estimate:.0%} → {rung.after.estimate:.0%}"
        )
        self._story.say(
            "[red]the gate refused the candidate; what served keeps serving[/]"
            if rung.model is None
            else f"the gate let it through: {rung.model} serves now"
        )

    def _train(self, recipe: str, *options: str) -> ProgramResult:
        """Run a recipe; a model is tried once at the held-out tasks."""
        home = self._options.home
        recipe_path = recipe_file(self._options, recipe)
        command = ["train", "run", str(recipe_path), *options, "--json"]
        return self._stage.launch(
            ["-m", "headrace", "--home", str(home), *command],
            {CACHE_VARIABLE: str(home / "evaluations")},
        ).wait(allowed=(0, 1, 3))

    def control(self) -> None:
        """Learn in the same way from the sessions that failed: it tells where the gain comes from."""
        story, result = self._story, self.result
        story.chapter("The control: the same recipe on the sessions that failed")
        self._stage.headrace("substrate", "build", str(_FOLDER / "substrate-failing.yaml"))
        base = str(self._options.home / "models" / MODEL / "0001")
        with story.waiting("training, then the same held-out tasks"):
            run = self._train(
                self._options.rungs[0],
                "--substrate",
                "failing",
                "--model",
                "control",
                "--base",
                base,
            )
        if not run.output.strip():
            story.say(f"too few sessions failed: {run.errors.strip()[-200:]}")
            return
        found = json.loads(run.output)["comparison"]
        candidate = found["candidate"]
        result.control_success = candidate["estimate"]
        result.control_ci = (candidate["low"], candidate["high"])
        story.say(
            f"{found['base']['estimate']:.0%} → {result.control_success:.0%}: the reward decides what is "
            "learned, not the training as such"
        )

    def serve_again(self) -> None:
        """Measure fresh sessions through the gateway, with whatever serves now."""
        # With these, a model that is 25 points better than the day seems no better once in 8,000 runs; with 30
        # customers, once in 400.
        sessions = 60
        self._story.chapter(f"The next morning: {sessions} new customers")
        fleet = Fleet(
            "fresh", "openai-chat", False, TENANT, sessions, split="fresh", route="practice"
        )
        with self._story.waiting("the model that serves is loaded, then agents work"):
            self._house.wait_until_served()
            tally = self._house.work([fleet])
        self.result.fresh_sessions = tally.sessions
        self.result.fresh_success = round(tally.successes / max(1, tally.sessions), 4)
        self._house.drain()
        self._story.table(self._house.sql(SUCCESS))

    def find_the_untold_rule(self) -> None:
        """Let a night find a rule that nobody told, and the ladder carry it, without anybody's help."""
        if self._reading is None:
            return
        self._story.chapter("A rule that nobody told, and nobody had to act")
        branch, seed = self._options.home / "branch", self._options.seed
        try:
            self.result.rule = untold_rule.tell(self._story, branch, self._reading, seed=seed)
        except untold_rule.NotCarriedError as error:
            self.result.rule_missed = str(error)
            self._story.say(f"[red]{escape(str(error))}[/]")

    def prove(self) -> None:
        """Count, scan every byte at rest, and follow one training row back to its exchange."""
        story, result = self._story, self.result
        story.chapter("The proof")
        result.exchanges_sent = self._house.sent
        ledger = self._house.sql(
            "select count(*) as n, count(distinct exchange_id) as d from exchanges"
        )[0]
        steps = self._house.sql(
            "select count(*) as n, count(distinct exchange_id) as d from steps"
        )[0]
        result.captured_lost = result.exchanges_sent - ledger["d"]
        result.stored_duplicates = (ledger["n"] - ledger["d"]) + (steps["n"] - steps["d"])
        for row in self._house.sql(
            "select disposition, count(*) as n from exchanges group by all order by all"
        ):
            result.dispositions[row["disposition"]] = row["n"]
        for row in self._house.sql(
            "select reason, count(*) as n from (select unnest(reasons) as reason from exchanges "
            "where disposition in ('left_out', 'duplicate', 'quarantined')) group by all order by all"
        ):
            result.left_out[row["reason"]] = row["n"]
        self._scan()
        self._lineage()

    def _scan(self) -> None:
        values = self._planted()
        spool = self._options.home / "spool"
        with self._story.waiting("searching every byte at rest"):
            report = scan([self._options.home], values, skip=lambda path: path == spool)
        self.result.planted = len(values)
        self.result.planted_found_at_rest = report.values_found
        self.result.files_scanned = report.files
        self.result.bytes_scanned = report.bytes_scanned
        self._story.say(
            f"{len(values):,} planted names, addresses, numbers and keys were sought in "
            f"{report.files:,} files outside the sealed spool: {report.values_found} found"
        )
        for hit in report.hits[:10]:
            self._story.say(f"[red]{Path(hit.path).relative_to(self._options.home)} {hit.where}[/]")

    def _tasks(self) -> list[Task]:
        """Return what the customers of the day wanted."""
        return [
            make_task(self._options.seed, fleet.split, index)
            for fleet in self._fleets
            for index in range(fleet.start, fleet.start + fleet.sessions)
        ]

    def _planted(self) -> list[str]:
        seed = self._options.seed
        fresh = [make_task(seed, "fresh", index) for index in range(self.result.fresh_sessions)]
        return sorted(planted_values([*self._tasks(), *fresh], seed=seed))

    def _lineage(self) -> None:
        """Print where one row that was learned from came from, and what allowed it."""
        rows = self._house.sql(
            "select i.step_id, s.exchange_id, s.started_at, s.dialect, g.policy_hash, g.reasons, "  # noqa: S608 - a fixed name
            "g.purposes, g.redaction_counts from substrate_items i "
            "join steps s using (step_id) join governance_latest g using (step_id) "
            f"where i.split = 'train' and i.substrate = '{MODEL}' and i.reward > 0 limit 1"
        )
        if not rows:
            return
        (row,) = rows
        found = self._stage.headrace_json("lineage", row["step_id"])[0]
        self._story.say("[bold]one row that the model learned from, traced back[/]")
        self._story.facts(
            {
                "row": row["step_id"],
                "captured as": f"exchange {row['exchange_id']}, {row['dialect']}, {cell(row['started_at'])}",
                "policy": f"{row['policy_hash']}: {', '.join(row['reasons'])}",
                "allowed for": ", ".join(row["purposes"]),
                "learned by": ", ".join(_model(one) for one in found["models"] if one["learned"])
                or "nobody",
            }
        )

    def say_how_it_ended(self) -> None:
        """Print what did not hold, if anything, and how to look further."""
        for failure in self.result.failures:
            self._story.console.print(f"[bold red]✗ {failure}[/]")
        home = os.path.relpath(self._options.home)
        self._story.console.print("\nLook further ([bold]source .venv/bin/activate[/] first):")
        headrace = f"headrace --home {home}"
        self._story.facts(
            {
                "what was said": f"{headrace} trajectory list",
                "any question": f"{headrace} sql",
                "the models": f"{headrace} train list",
                "the audit log": f"{headrace} audit list",
                "the tables": f"{headrace} lake status",
            }
        )
        self._story.console.print("Your own agent:")
        self._story.facts(
            {
                "the gateway": "export OPENAI_API_KEY=sk-… && headrace up",
                "the agent": 'eval "$(headrace env)" && python my_agent.py',
                "what to read": "README.md, from “Your own agent” on",
            }
        )


def _model(found: dict[str, Any]) -> str:
    return f"{found['model']}@{found['version']} ({found['status']}), run {found['run_id']}"
