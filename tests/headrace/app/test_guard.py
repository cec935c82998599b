"""Rules on tool calls from a policy's folder: read, checked against routes, and shipped."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from governance.audit import AuditLog
from governance.errors import PolicyError
from governance.policy import load_bundle
from governance.policy.bundle import SHIPPED
from headrace.app.guard import GuardSetup, check_actions, credential_of, read_actions
from headrace.app.home import Home
from headrace.app.master_key import Secrets, load_secrets
from proxy.config import Route
from proxy.guard.document import rules_of
from proxy.guard.rules import RequestedCall

TOOLS = Route(name="tools", upstream="http://localhost:1", kind="tool")
MODEL = Route(name="openai", upstream="http://localhost:2")


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return load_secrets(tmp_path / "secrets", create=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(SHIPPED / "agents-safe", tmp_path / "policy")


def test_rules_of_a_bundle_guard_its_routes_of_tools(
    folder: Path, tmp_path: Path, secrets: Secrets
) -> None:
    bundle = load_bundle(folder)
    setup = GuardSetup.of(bundle, (TOOLS, MODEL), Home(tmp_path), secrets)
    assert setup is not None
    terms = setup()
    assert terms is not None
    assert [*terms.routes] == ["tools"]
    assert terms.content_hash == setup.content_hash
    (folder / "actions.yaml").write_text(
        (folder / "actions.yaml").read_text().replace("calls: 20", "calls: 21")
    )
    # A worker that is started again judges as the others do.
    again = pickle.loads(pickle.dumps(setup))()  # noqa: S301 - its own bytes
    assert again is not None
    assert (again.routes, again.content_hash) == (terms.routes, terms.content_hash)
    shutil.rmtree(folder)
    assert setup() is not None


def test_a_bundle_without_actions_guards_nothing(tmp_path: Path, secrets: Secrets) -> None:
    assert GuardSetup.of(load_bundle(), (TOOLS,), Home(tmp_path), secrets) is None


def test_what_operators_do_over_http_is_audited(
    folder: Path, tmp_path: Path, secrets: Secrets
) -> None:
    home = Home(tmp_path).create()
    setup = GuardSetup.of(load_bundle(folder), (TOOLS,), home, secrets)
    terms = setup() if setup else None
    assert terms is not None
    assert terms.operators is not None
    assert terms.operators.credential == credential_of(secrets)
    assert credential_of(secrets) not in repr(setup)
    terms.operators.audit("operator:ada", "approval.approved", "0123", {"rule": "payments"})
    (entry,) = AuditLog(home.audit / "audit.jsonl", secrets.derive(b"audit")).entries()
    assert (entry.actor, entry.action) == ("operator:ada", "approval.approved")


def test_answers_of_models_are_guarded_where_a_document_names_them(
    folder: Path, tmp_path: Path, secrets: Secrets
) -> None:
    path = folder / "actions.yaml"
    path.write_text(path.read_text().replace('routes: ["*"]\n  taps: ["*"]', "answers: [openai]"))
    setup = GuardSetup.of(load_bundle(folder), (TOOLS, MODEL), Home(tmp_path), secrets)
    terms = setup() if setup else None
    assert terms is not None
    assert ([*terms.routes], [*terms.answers]) == ([], ["openai"])
    path.write_text(path.read_text().replace("answers: [openai]", "answers: [tools]"))
    with pytest.raises(
        PolicyError, match=r"spec.answers: no route of models is named tools.*openai"
    ):
        check_actions(read_actions(folder), (TOOLS, MODEL))


def test_a_route_that_is_not_there_or_no_tools_stops_the_start(folder: Path) -> None:
    path = folder / "actions.yaml"
    path.write_text(path.read_text().replace('routes: ["*"]', "routes: [openai]"))
    with pytest.raises(PolicyError, match=r"no route of tools is named openai.*tools"):
        check_actions(read_actions(folder), (TOOLS, MODEL))


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("read_file", {"path": "/srv/a.txt"}, "allow"),
        ("read_file", {"path": "/home/u/.ssh/id_rsa"}, "deny"),
        ("fetch", {"url": "http://169.254.169.254/latest"}, "deny"),
        ("fetch", {"url": "https://example.com/"}, "allow"),
        ("pay", {"amount": 1}, "hold"),
        ("run_command", {"command": "ls"}, "hold"),
        ("delete_file", {"path": "/srv/a"}, "hold"),
        ("send_mail", {"to": "a"}, "limit"),
        ("write_file", {"path": "/srv/a"}, "allow"),
    ],
)
def test_the_shipped_bundle_agents_safe(tool: str, arguments: Any, told: str) -> None:
    rules = rules_of(read_actions(SHIPPED / "agents-safe"))
    assert rules is not None
    assert rules.judge(RequestedCall(tool, arguments)).ruling == told
