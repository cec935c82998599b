"""The documents say what exists: every command, kind, table and view, and their examples load."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
import yaml

from governance.policy import load_bundle
from governance.policy.documents import KINDS
from headrace.app.setting_sources import explain_settings
from headrace.app.settings import RoleGrant
from headrace.cli import app
from headrace.services.review_queues import ReviewQueue
from lakehouse.read.views.catalog import VIEWS
from lakehouse.schema.tables import TABLES
from proxy.config.routes import (
    CredentialSource,
    Route,
    RouteEvolution,
    ToolOperation,
    UpstreamChoice,
)
from proxy.config.webhooks import Webhook, WebhookRule
from proxy.guard.document import Action
from train.evaluation.safety import Safety
from train.recipes.settings import RECIPES, load_recipe
from train.schedule import load_schedule
from train.substrate.spec import load_substrate
from trajectory.artifact import Artifact
from trajectory.documents.document import load_document

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "policies" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FOR_USERS = [
    ROOT / "docs" / f"{name}.md"
    for name in (
        "platform-engineer",
        "privacy-officer",
        "data-scientist",
        "ml-engineer",
        "evolution",
        "guard",
        "architecture",
    )
]

_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
_MODULE = re.compile(
    r"(?<![\w/.-])((?:trajectory|proxy|governance|lakehouse|train|evolve|headrace|tests|scripts|deploy|examples|policies)"
    r"/(?:[\w/-]+\.(?:py|sql|sh|json|yaml)\b|[\w/-]+(?=`)))"
)
_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands() -> Iterator[str]:
    """Give every command as it is typed after ``headrace``."""
    root = typer.main.get_command(app)
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        children = getattr(command, "commands", None)
        if children is None:
            yield name
        else:
            yield from (f"{name} {child}" for child in children)


def documents() -> Iterator[tuple[str, dict[str, object]]]:
    """Give every document with a kind in a YAML block, with the page that shows it."""
    for page in PAGES:
        for block in _BLOCK.findall(page.read_text("utf-8")):
            try:
                values = list(yaml.safe_load_all(block))
            except yaml.YAMLError as error:
                raise AssertionError(f"{page.name}: a block is no YAML: {error}") from error
            for value in values:
                if isinstance(value, dict) and "kind" in value:
                    yield page.name, value


def pages_text(pages: list[Path]) -> str:
    """Return the pages as one text."""
    return "\n".join(page.read_text("utf-8") for page in pages)


@pytest.mark.parametrize("command", list(commands()))
def test_every_command_is_documented_for_its_user(command: str) -> None:
    assert re.search(rf"headrace {command}\b", pages_text([*FOR_USERS, ROOT / "README.md"]))


@pytest.mark.parametrize("name", [*KINDS, "Substrate", "Recipe", "Schedule", "Evolution"])
def test_every_kind_is_documented(name: str) -> None:
    assert re.search(rf"\b{name}\b", pages_text(PAGES))


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_documented(name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs" / "ml-engineer.md").read_text("utf-8")


@pytest.mark.parametrize("name", [*TABLES, *(view.name for view in VIEWS)])
def test_every_table_and_view_is_in_the_dictionary(name: str) -> None:
    assert f"### {name}\n" in (ROOT / "docs" / "data-dictionary.md").read_text("utf-8")


@pytest.mark.parametrize("view", [view.name for view in VIEWS])
def test_the_data_scientist_hears_of_every_view(view: str) -> None:
    assert f"`{view}`" in (ROOT / "docs" / "data-scientist.md").read_text("utf-8")


def test_each_setting_and_each_key_of_a_list_says_what_it_means() -> None:
    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    parts = (Route, UpstreamChoice, CredentialSource, ToolOperation, RouteEvolution, Webhook)
    names = [name for part in (*parts, WebhookRule, RoleGrant) for name in part.model_fields]
    names += [setting.name for setting in explain_settings()]
    rows = re.findall(r"^\| `([^`]+)` \| .+ \| .+ \|$", page, re.MULTILINE)
    assert [name for name in names if not any(row.startswith(name) for row in rows)] == []


def test_the_reference_of_commands_tells_defaults_and_what_is_needed() -> None:
    page = (ROOT / "docs" / "commands.md").read_text("utf-8")
    assert re.search(r"^\| `--grace-minutes` \| .*By default 60", page, re.MULTILINE)
    assert re.search(r"^\| `--tenant` \| Tenant of the data\. Needed\. \|$", page, re.MULTILINE)
    assert "| `[QUERY]` | SQL;" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    links = [link for link in _LINK.findall(page.read_text("utf-8")) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(
    ("page", "document"),
    [pytest.param(page, value, id=f"{page}-{value['kind']}") for page, value in documents()],
)
def test_documents_load(page: str, document: dict[str, object], tmp_path: Path) -> None:
    kind = str(document["kind"])
    file = tmp_path / "document.yaml"
    file.write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
    if kind == "Substrate":
        load_substrate(file)
    elif kind == "Recipe":
        load_recipe(file)
    elif kind == "Schedule":
        load_schedule(file)
    elif kind == "Artifact":
        load_document(Artifact, file)
    elif kind == "Safety":
        load_document(Safety, file)
    elif kind == "Action":
        load_document(Action, file)
    elif kind == "ReviewQueue":
        load_document(ReviewQueue, file)
    elif kind == "PolicyTest":
        assert document["cases"], page
    else:
        for shipped in (ROOT / "policies" / "default").glob("*.yaml"):
            if yaml.safe_load(shipped.read_text("utf-8"))["kind"] != kind:
                (tmp_path / shipped.name).write_text(shipped.read_text("utf-8"), encoding="utf-8")
        assert getattr(load_bundle(tmp_path), kind.lower()).kind == kind


def test_pages_name_no_place_of_the_machine_they_were_written_on() -> None:
    text = pages_text(PAGES)
    assert re.findall(r"/(?:work|tmp|root|home)/\w+", text) == []
    assert re.findall(r"hr_[0-9a-f]{12}_[0-9a-f]{8,}", text) == []


def test_every_module_that_a_page_names_exists() -> None:
    pages = [*PAGES, ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*/*.md")]
    named = {
        (page.name, path) for page in pages for path in _MODULE.findall(page.read_text("utf-8"))
    }
    assert len(named) > 5
    places = (ROOT, ROOT / "tests")  # tables of promises name tests from the folder of tests on
    missing = [one for one in sorted(named) if not any((at / one[1]).exists() for at in places)]
    assert missing == []


def test_the_changelog_says_each_change_once_in_one_line() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    entries = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    assert [entry for entry in entries if len(entry.split()) > 15] == []
    assert len(entries) == len(set(entries))
