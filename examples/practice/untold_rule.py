"""A house rule that nobody told the agents: a night finds it in what customers correct, and the ladder carries it.

``python -m examples.practice.untold_rule --home DIR``. A second branch of the shop has three tenants. Two of them
told their rule when they came, so it stands in every prompt as facts. The third did not. Its agents quote by the
wrong price list, and its customers correct them. The model reads its prompt and never changes. Former nights are
logs that are made up here and come by ``headrace trajectory import``. The day is real traffic of three clients: chat
completions, responses, and messages.
"""

import argparse
import asyncio
import json
import os
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import yaml

from evolve.trial_files import TrialFiles, TrialState
from examples.practice.clients import CLIENTS
from examples.practice.fleet import Plan, Report, run_fleet
from examples.practice.house_rules import fact_text
from examples.practice.installation import Installation
from examples.practice.model import ensure_model
from examples.practice.planted_values import generator
from examples.practice.prompts import SYSTEM_PROMPT, TOOL, TOOL_NAME
from examples.practice.provider import KEY_VARIABLE
from examples.practice.reading import READING
from examples.practice.shop import HOUSE_RULE, money, total_cents
from examples.practice.stage import Ports, Stage
from examples.practice.story import RuleFound, Story
from examples.practice.tasks import Task, make_task
from examples.practice.tools import quote_text
from examples.practice.verifier import SOURCE, VERSION
from governance.audit import NOT_PEOPLE
from governance.records import AuditRecord
from headrace.app.context import AppContext
from headrace.app.home import Home
from train.evaluation.evaluate import TaskResult, compare
from train.recipes.settings import EvaluationSettings
from trajectory.canonical import JsonObject
from trajectory.errors import WorkError
from trajectory.json_form import to_json
from trajectory.message import Message, TextPart, ToolCallPart, ToolResultPart
from trajectory.portable import PortableSignal, PortableStep, Trajectory

UNTOLD, TOLD = "birch", ("cedar", "delta")
"""The tenant whose rule nobody told, and those that told theirs."""
ROUTE, MODEL = "counter", "reading"
_APP = "counter"
_SETTINGS = EvaluationSettings(command=("none",))
_PATIENCE_SECONDS = 300
_CORRECTED, _FAILED = 90, 0.05
"""Of the former sessions one in so many was corrected, and failed; of the others this share failed."""
_LOOKED_AT = "lake.asked"
"""What this program asks of the lake to watch what comes of it, as the user of this machine; no act of anybody."""


class NotCarriedError(WorkError):
    """The night drew no facts, or the ladder did not carry them to live; all else worked."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything."""

    nights: int = 12
    a_night: int = 30
    """Sessions of the logs."""
    orders: int = 20
    """Fresh ones for each client, tried before and after."""
    corrected: int = 40
    """Sessions for each client whose customers correct what is wrong."""
    told: int = 24
    """Sessions of each tenant that told its rule."""
    a_round: int = 8
    """Sessions for each client between two looks at the trial."""
    rounds: int = 24


@dataclass(slots=True)
class Branch:
    """The branch at work: provider, tools, gateway and governance as processes, agents in this one."""

    stage: Stage
    model: Path
    seed: int
    size: Size = field(default_factory=Size)
    _keys: dict[str, str] = field(default_factory=dict)
    _house: Installation = field(init=False)
    _opened: datetime = field(init=False)
    _next: int = 0

    def __post_init__(self) -> None:
        self._house = Installation(self.stage, self.stage.ports, seed=self.seed)

    @property
    def _gateway(self) -> str:
        return f"http://127.0.0.1:{self.stage.ports.gateway}"

    @property
    def artifact(self) -> str:
        """Name of what is drawn from the corrections."""
        return f"{UNTOLD}-corrections"

    def open(self) -> None:
        """Start everything, and let two tenants tell their rules."""
        self._opened = datetime.now(UTC)
        stage, ports = self.stage, self.stage.ports
        (stage.home / "logs").mkdir(mode=0o700, parents=True)
        _write_documents(stage)
        programs = {
            "provider": ["examples.practice.provider", "--port", str(ports.provider)],
            "tools": ["examples.practice.tools", "--port", str(ports.tools)],
            "up": ["headrace", "--home", str(stage.home), "up"],
        }
        programs["provider"] += ["--model", str(self.model), "--name", MODEL]
        programs["tools"] += ["--seed", str(self.seed)]
        ready = {
            "provider": f"http://127.0.0.1:{ports.provider}/v1/models",
            "tools": f"http://127.0.0.1:{ports.tools}/mcp",
            "up": f"{self._gateway}/headrace/v1/health",
        }
        for tenant in (UNTOLD, *TOLD):
            whose = ("--tenant", tenant, "--app", _APP, "--purpose", "evolve")
            self._keys[tenant] = stage.headrace_json("keys", "create", *whose)["key"]
        for tenant in TOLD:
            file = stage.home / f"{tenant}-rules.yaml"
            file.write_text(yaml.safe_dump(_rules_of(tenant)), encoding="utf-8")
            stage.headrace("artifact", "add", str(file))
            stage.headrace("artifact", "promote", f"{tenant}-rules", "0001")
        for name, command in programs.items():
            stage.start(name, ["-m", *command], {})
        for name, url in ready.items():
            stage.wait_until_ready(name, url, seconds=_PATIENCE_SECONDS)

    def read_logs(self) -> int:
        """Import the sessions of former nights; return how many there are."""
        served = f"{MODEL}@{self.model.name}"
        today = _midnight(self._opened)
        sessions = 0
        for at, tenant in enumerate((UNTOLD, *TOLD)):
            documents = [
                former_session(self.seed, tenant, number, today - timedelta(days=night), served)
                for night in range(1, self.size.nights + 1)
                for number in range(
                    night * self.size.a_night + at, (night + 1) * self.size.a_night, 3
                )
            ]
            file = self.stage.home / f"log-{tenant}.jsonl"
            file.write_text("".join(json.dumps(to_json(one)) + "\n" for one in documents))
            key = ("--key", self._keys[tenant])
            self.stage.headrace("trajectory", "import", str(file), "--format", "headrace", *key)
            file.unlink()
            sessions += len(documents)
        self._house.drain(seconds=_PATIENCE_SECONDS)
        return sessions

    def try_orders(self) -> list[TaskResult]:
        """Let the untold tenant's agents work at the same fresh orders; customers take what they are told."""
        plans = [
            self._plan(UNTOLD, client, "fresh", at * self.size.orders, self.size.orders)
            for at, client in enumerate(CLIENTS)
        ]
        return [
            TaskResult(one.task.task_id, one.attempt, one.success, float(one.success), "")
            for report in self._work(plans)
            for one in report.sessions
        ]

    def work_the_day(self) -> None:
        """Let all tenants' agents work; the untold one's customers correct a wrong quote."""
        plans = [
            self._plan(UNTOLD, client, "train", self._taken(self.size.corrected), self.size.corrected, corrects=True)
            for client in CLIENTS
        ]  # fmt: skip
        plans += [
            self._plan(tenant, CLIENTS[0], "train", self._taken(self.size.told), self.size.told)
            for tenant in TOLD
        ]
        self._work(plans)
        self._house.drain(seconds=_PATIENCE_SECONDS)

    def night(self) -> dict[str, Any]:
        """Run the schedule's night; it comes early, so it is told to look at the day that ends."""
        tomorrow = _midnight(datetime.now(UTC)) + timedelta(days=1)
        file = str(self.stage.home / "night.yaml")
        found: dict[str, Any] = self.stage.headrace_json(
            "schedule", "run", file, "--as-of", str(tomorrow.date())
        )
        return found

    def work_until_live(self) -> tuple[TrialState, int]:
        """Let agents go on working until the governor has carried the trial to live; return it and their sessions.

        Raises:
            NotCarriedError: it did not get there.
        """
        sessions = 0
        for _ in range(self.size.rounds):
            plans = [
                self._plan(
                    UNTOLD, client, "train", self._taken(self.size.a_round), self.size.a_round,
                    names_sessions=True,
                )
                for client in CLIENTS
            ]  # fmt: skip
            sessions += sum(len(report.sessions) for report in self._work(plans))
            if (state := self._trial()).rung == "live" and state.entered:
                self.stage.wait_until_served(
                    self.artifact, self._keys[UNTOLD], seconds=_PATIENCE_SECONDS
                )
                return state, sessions
            if state.outcome is not None:
                break
        told = "; ".join(state.reasons)
        raise NotCarriedError(f"the trial of {state.label} is not live: {state.rung}, {told}")

    def first_failure(self) -> datetime:
        """Return when the verifier first refused an answer of this day's."""
        (row,) = self._house.sql(
            "select min(observed_at) as first from signals where name = 'success' and value = 0 "  # noqa: S608 - fixed
            f"and tenant_id = '{UNTOLD}' and observed_at >= timestamptz '{self._opened.isoformat()}'"
        )
        found = datetime.fromisoformat(row["first"])
        return found if found.tzinfo else found.replace(tzinfo=UTC)

    def human_actions(self, begin: datetime, end: datetime) -> int:
        """Return the acts of people between two moments, by the audit log."""
        return len(
            acts_of_people(AppContext(self.stage.home, debug=False).audit.entries(), begin, end)
        )

    def _trial(self) -> TrialState:
        return TrialFiles(Home(self.stage.home).trials).get(self.artifact)

    def _taken(self, sessions: int) -> int:
        """Return the first of so many orders that nobody worked at."""
        self._next += sessions
        return self._next - sessions

    def _plan(
        self, tenant: str, client: str, split: str, start: int, sessions: int, *,
        corrects: bool = False, names_sessions: bool = False,
    ) -> Plan:  # fmt: skip
        address = f"{self._gateway}/{ROUTE}" + ("" if client == "anthropic" else "/v1")
        return Plan(
            client=client, tools_url=f"http://127.0.0.1:{self.stage.ports.tools}/mcp", sessions=sessions,
            seed=self.seed, split=split, start=start, nameless=True, concurrency=4, model=MODEL,
            base_url=address, api_key=self._keys[tenant], direct=True,
            feedback_url=self._gateway, feedback_key=self._keys[tenant], rewards_per_post=1,
            corrects=corrects, names_sessions=names_sessions,
        )  # fmt: skip

    def _work(self, plans: Sequence[Plan]) -> list[Report]:
        async def side_by_side() -> list[Report]:
            return await asyncio.gather(*(run_fleet(plan) for plan in plans))

        return asyncio.run(side_by_side())


def acts_of_people(
    entries: Iterable[AuditRecord], begin: datetime, end: datetime
) -> list[AuditRecord]:
    """Return the entries between two moments whose actor is neither a process of Headrace nor a program."""
    return [
        one
        for one in entries
        if begin <= one.recorded_at <= end
        and not one.actor.startswith(NOT_PEOPLE)
        and one.action != _LOOKED_AT
    ]


def former_session(seed: int, tenant: str, number: int, day: datetime, served: str) -> Trajectory:
    """Return a session of a former night: an order that was quoted as the customer expected, mostly."""
    draw = generator(seed, "former", tenant, number)
    task = make_task(seed, "heldout", number)
    began = day + timedelta(hours=draw.randrange(7, 20), seconds=draw.randrange(3600))
    call = f"call-{number}"
    asked: JsonObject = {
        "item": task.item,
        "price_list": task.price_list,
        "quantity": task.quantity,
    }
    quote = quote_text(task.item, task.quantity, task.price_list, ())
    words = (
        Message("system", (TextPart(SYSTEM_PROMPT),)), Message("user", (TextPart(task.order),)),
        Message("assistant", (ToolCallPart(call, TOOL_NAME, asked),)),
        Message("tool", (ToolResultPart(call, quote),)),
        Message("assistant", (TextPart(f"The total is {_total(task)}."),)),
    )  # fmt: skip
    corrected = number % _CORRECTED == 0
    went_well = not corrected and draw.random() >= _FAILED

    def at(seconds: int) -> str:
        return (began + timedelta(seconds=seconds)).isoformat()

    judged = PortableSignal(
        "success", float(went_well), source_kind="verifier", source=SOURCE, source_version=VERSION,
        observed_at=at(9),
    )  # fmt: skip
    steps = [
        PortableStep(words[:2], words[2], timestamp=at(0), ended_at=at(2), model=served),
        PortableStep(words[3:4], words[4], timestamp=at(4), ended_at=at(6), model=served),
    ]
    if corrected:
        said = Message("user", (TextPart(f"No, I asked for {task.quantity} {task.item}."),))
        steps.append(PortableStep((said,), words[4], timestamp=at(7), ended_at=at(8), model=served))
    name = f"{tenant}-{day.date()}-{number}"
    return Trajectory(
        tuple(steps),
        trajectory_id=name,
        session_id=name,
        model=served,
        tools=(cast(JsonObject, TOOL),),
        signals=(judged,),
    )


def _total(task: Task) -> str:
    return money(total_cents(task.item, task.quantity, task.price_list))


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _rules_of(tenant: str) -> dict[str, Any]:
    """Return a tenant's rules as its owner tells them: facts without evidence, which only a person may add."""
    facts = [
        {"id": f"f-{account}", "text": fact_text(account, price_list)}
        for account, price_list in HOUSE_RULE.items()
    ]
    spec = {
        "tenant": tenant, "proposer": "the owner", "licence": "LicenseRef-proprietary",
        "memory": {"facts": facts},
    }  # fmt: skip
    return {**_HEAD, "kind": "Artifact", "metadata": {"name": f"{tenant}-rules"}, "spec": spec}


_HEAD = {"apiVersion": "headrace/v1"}


def _write_documents(stage: Stage) -> None:
    os.environ.setdefault(KEY_VARIABLE, "practice-" + secrets.token_hex(16))
    home, ports = stage.home, stage.ports
    route = {
        "name": ROUTE, "upstream": f"http://127.0.0.1:{ports.provider}",
        "credential": {"env": KEY_VARIABLE, "header": "authorization"},
        "evolve": {"artifacts": [f"{UNTOLD}-corrections", *(f"{one}-rules" for one in TOLD)]},
    }  # fmt: skip
    listeners = {"port": ports.gateway, "forward_port": ports.forward, "admin_port": ports.admin}
    settings = {
        "gateway": {**listeners, "routes": [route]}, "console": {"enabled": False},
        "govern": {"trial_seconds": 2},
    }  # fmt: skip
    (home / "headrace.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    practice = Path(__file__).parent
    policy = yaml.safe_load((practice / "evolution.yaml").read_text(encoding="utf-8"))
    (home / "evolution.yaml").write_text(yaml.safe_dump(policy), encoding="utf-8")
    spec = {
        "cron": "0 2 * * *", "evolution": "evolution.yaml", "model": MODEL, "promote": "ladder",
        "substrate": str(practice / "substrate.yaml"),
    }  # fmt: skip
    night = {**_HEAD, "kind": "Schedule", "metadata": {"name": "branch"}, "spec": spec}
    (home / "night.yaml").write_text(yaml.safe_dump(night), encoding="utf-8")


def tell(story: Story, home: Path, model: Path, *, seed: int) -> RuleFound:
    """Tell the chapter; return what came of it.

    Raises:
        NotCarriedError: the night decided something else, or the trial did not get to live.
    """
    begun = time.monotonic()
    with Stage(home, Ports()) as stage:
        branch = Branch(stage, model, seed)
        with story.waiting("a second branch opens, and its logs of former nights are imported"):
            branch.open()
            logs = branch.read_logs()
        story.say(
            f"{len(TOLD)} of its tenants told their house rule, {UNTOLD} did not; {logs} sessions of former "
            "nights are imported"
        )
        with story.waiting("chat completions, responses and messages at work"):
            before = branch.try_orders()
            branch.work_the_day()
        night = branch.night()
        for reason in night["reasons"]:
            story.say(f"the night: {reason}")
        if not night["artifacts"]:
            told = "; ".join(night["reasons"]) or night["outcome"]
            raise NotCarriedError(f"the night drew no facts: {told}")
        with story.waiting("agents go on working, the governor carries the trial on"):
            trial, sessions = branch.work_until_live()
        story.say(
            f"{trial.label} is live after {sessions} more sessions: {'; '.join(trial.reasons)}"
        )
        with story.waiting("the same orders again"):
            after = branch.try_orders()
        first = branch.first_failure()
        found = compare(before, after, _SETTINGS)
        people = branch.human_actions(first, trial.moved_at)
    story.say(
        f"right quotes {found.base.estimate:.0%} → {found.candidate.estimate:.0%} with the same model; "
        f"{people} human actions between the first failure and the better service "
        f"[dim]({time.monotonic() - begun:.0f} s)[/]"
    )
    return RuleFound(
        trial.decision or "", trial.label,
        found.base.estimate, (found.base.low, found.base.high),
        found.candidate.estimate, (found.candidate.low, found.candidate.high),
        found.gain.low, sessions, people, round((trial.moved_at - first).total_seconds(), 1),
    )  # fmt: skip


def main() -> None:
    """Tell it, and print what came of it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="a folder that is not there yet")
    parser.add_argument("--models", type=Path, default=Path(".headrace/demo/practice"))
    parser.add_argument("--seed", type=int, default=0, help="of orders and people")
    options = parser.parse_args()
    model = ensure_model(options.models.absolute(), progress=True, lesson=READING)
    found = tell(Story(as_json=True), options.home.absolute(), model, seed=options.seed)
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
