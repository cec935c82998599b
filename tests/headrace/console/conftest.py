"""One console over one small lake, for all tests of its pages."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from evolve.policy import SHIPPED, load_evolution
from evolve.trial_files import TrialFiles, TrialState
from headrace.app.context import AppContext
from headrace.app.guard import approvals_of
from headrace.app.settings import ConsoleSettings
from headrace.console.app import application
from headrace.console.page import Console
from headrace.console.sessions import SessionStore
from headrace.console.sign_in import COOKIE
from headrace.console.users import TrustedProxies, User
from headrace.services.changes import model_registry
from headrace.services.sql_server import sql_service
from proxy.guard.rules import ActionRule, RequestedCall, Ruling
from tests.train.lakes import PURPOSES, Session, lake_of
from train.registry.artifacts import ArtifactRegistry
from trajectory.artifact import Artifact

HOST = "https://localhost"
SAME = {"sec-fetch-site": "same-origin"}
PLACES = {
    "{trajectory_id}": "t00001",
    "{decision_id}": "d0001",
    "{run_id}": "r0001",
    "{name}": "shop",
    "{version}": "0001",
    "{trial_id}": "model.shop.0001",
    "{artifact}": "lighting",
}
"""What stands for the parts of a path."""
HOSTILE = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>",
    "\"><script>alert(1)</script>", "'><script>alert(1)</script>", "</textarea><script>alert(1)</script>",
    "</title><script>alert(1)</script>", "</pre></details><iframe src=//evil.example>",
    "<a href=javascript:alert(1)>x</a>", "<body onload=alert(1)>", "<math><mtext></mtext><script>1</script>",
    "<style>@import '//evil.example/x.css';</style>", "<link rel=stylesheet href=//evil.example>",
    "<base href=//evil.example>", "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<form action=//evil.example><button>go</button></form>", "<object data=//evil.example></object>",
    "<embed src=//evil.example>", "<video src=//evil.example onerror=alert(1)>", "<details open ontoggle=alert(1)>",
    "<input autofocus onfocus=alert(1)>", "<marquee onstart=alert(1)>", "{{ 7*7 }}", "{% raw %}<b>", "${7*7}",
    "<EMAIL_ADDRESS_ab12cd34><script>1</script>", "<PERSON_abc123\" onmouseover=\"alert(1)>",
    "&lt;script&gt;alert(1)&lt;/script&gt;", "\u202e<script>tpircs", "<scr\x00ipt>alert(1)</script>",
    "<div hx-get=//evil.example hx-trigger=load>", "\" hx-on:load=\"alert(1)", "<hx-partial hx-target=body>x</hx-partial>",
    "<!--<script>alert(1)</script>-->", "<![CDATA[<script>alert(1)</script>]]>",
)  # fmt: skip


def decision(name: str, **changes: Any) -> dict[str, Any]:
    """Return a proposal as the lake has it."""
    policy = load_evolution(SHIPPED)
    at = datetime(2026, 11, 1, tzinfo=UTC)
    document = {
        "decision_id": name,
        "policy": {"name": policy.metadata.name, "hash": "b2:1", "document": policy.deciding},
        "as_of": at.isoformat(),
        "saw": {"first_night": "2026-10-01", "last_night": "2026-10-31", "signals": [], "mix": None},
        "considered": {
            "case": None, "clusters": [], "clusters_tested": 0, "examples": {"x": ["t00001", "gone"]},
            "rules": [{"name": "r", "surface": "skill", "held": True, "why": "holds"}], "guards": [],
        },
        "decided": {"surface": "skill", "rule": "r", "reason": "r", "subject": "tool refund"},
        "expects": {"metric": "success", "signal": "failure", "subject": "", "at_least": 0.9,
                    "by": (at + timedelta(days=7)).isoformat()},
        "table_versions": {},
    }  # fmt: skip
    return {
        "decision_id": name, "recorded_at": at, "policy": policy.metadata.name, "policy_hash": "b2:1",
        "as_of": at, "surface": "skill", "subject": "tool refund", "status": "proposed",
        "actor": "night", "reason": None, "metric": "success", "at_least": 0.9,
        "due_at": at + timedelta(days=7), "measured": None, "met": None,
        "document": json.dumps(document),
    } | changes  # fmt: skip


@pytest.fixture(scope="package")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    home = tmp_path_factory.mktemp("home")
    hostile = " ".join(HOSTILE)
    lake_of(
        home / "lake",
        *(Session(number, purposes=(*PURPOSES, "evolve")) for number in range(1, 4)),
        Session(4, question=hostile, answer=f"{hostile} <EMAIL_ADDRESS_ab12cd34>"),
        Session(5, tenant="globex", reward=0.0),
        *(Session(number, tenant="many") for number in range(100, 155)),
    )
    running = AppContext(home, debug=False)
    running.home.create()
    running.lake.append_rows("decisions", [decision("d0001")])
    model_of(running)
    artifact_of(running, "Ask which lamps.")
    trials = TrialFiles(running.home.trials)
    with trials.alone():
        trials.write(trial_of("shop", "0001"))
    running.lake.append_rows("runs", [run_of("r0001")])
    PLACES["{approval_id}"] = held_call(running)
    made = console_of(running)
    yield made
    made.close()


def console_of(running: AppContext) -> Console:
    """Return the console of an installation."""
    service = sql_service(running.settings, running.home, running.secrets, running.lake)
    sessions = SessionStore(running.home.sessions, idle_seconds=600, longest_seconds=3600)
    return Console(running, service, sessions, TrustedProxies(ConsoleSettings()))


def model_of(running: AppContext, *, passed: bool = True) -> str:
    """Register a version of the model ``shop``, without weights; return its number."""
    folder = running.home.root / "made"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    registry = model_registry(running, "night")
    made = registry.register("shop", folder, {"origin": "adopted"}, passed=passed)
    return made.version


def artifact_of(
    running: AppContext,
    procedure: str,
    *,
    name: str = "lighting",
    tenant: str | None = None,
    evidence: Sequence[str] = (),
) -> str:
    """Register a version of a skill; return its number."""
    spec: dict[str, Any] = {
        "tenant": tenant, "proposer": "jo", "licence": "CC0-1.0", "evidence": [*evidence],
        "skill": {"title": "Lamps", "trigger": {"phrases": ["lamp"]}, "procedure": procedure},
    }  # fmt: skip
    document = Artifact.model_validate(
        {"apiVersion": "headrace/v1", "kind": "Artifact", "metadata": {"name": name}, "spec": spec}
    )
    registry = ArtifactRegistry(running.home.artifacts, source=running.lake)
    return registry.register(document, actor="night", override="a test's").version


def trial_of(name: str, version: str) -> TrialState:
    """Return a model's trial on its canary, as its file has it."""
    at = datetime(2026, 11, 3, tzinfo=UTC)
    ladder = load_evolution(SHIPPED).spec.promotion.ladder
    return TrialState(
        f"model.{name}.{version}", "model", name, version, f"{name}@0000", ("chat",), None, ladder,
        at, "canary", at,
    )  # fmt: skip


def run_of(name: str, status: str = "done", **manifest: Any) -> dict[str, Any]:
    """Return a training as the lake has it."""
    at = datetime(2026, 11, 2, tzinfo=UTC)
    return {
        "run_id": name, "recorded_at": at, "recipe": "dpo", "substrate": "shop", "substrate_version": "0001",
        "base_model": "shop@0000", "started_at": at, "ended_at": None if status == "running" else at,
        "status": status, "seed": 0, "metrics": "{}", "manifest": json.dumps(manifest),
    }  # fmt: skip


def held_call(running: AppContext, tool: str = "pay", **arguments: Any) -> str:
    """Hold a tool call of the tenant acme; return the id of its approval."""
    call = RequestedCall(tool, arguments, tenant="acme")
    rule = ActionRule("payments", Ruling.HOLD, seconds=36_000)
    store = approvals_of(running.home, running.secrets)
    return store.ask(call, rule, key_id="k1", route="tools", step_id="t00001-0").approval_id


def client_of(console: Console, *roles: tuple[str, str], name: str = "ida") -> TestClient:
    """Return a browser that is signed in with these roles."""
    client = TestClient(application(console), base_url=HOST, follow_redirects=False)
    if roles:
        session = console.sessions.begin(User(name, frozenset(roles)))
        client.headers["cookie"] = f"{COOKIE}={session}"
    return client
