"""Saved queries: kept by name for a tenant's data, replaced, forgotten, and noted without their text."""

from pathlib import Path

import pytest

from headrace.app.context import AppContext
from headrace.cli import run
from headrace.services.saved_queries import SavedQueries
from lakehouse.lake import Lake
from tests.lakehouse import make
from trajectory.errors import ConfigurationError, RetryableError


@pytest.fixture
def app(tmp_path: Path) -> AppContext:
    made = AppContext(tmp_path / "home", debug=False)
    made.home.create()
    return made


def test_a_query_is_kept_for_its_tenants_data_until_it_is_forgotten(app: AppContext) -> None:
    SavedQueries(app).save("spend", "select 1;", who="tina")
    SavedQueries(app).save("spend", "select 2", who="paul", tenant="acme")
    SavedQueries(app).save("spend", " select 3 ;", who="ada")
    (of_all,), (of_one,) = SavedQueries(app).list(), SavedQueries(app).list("acme")
    assert (of_all.query, of_all.saved_by) == ("select 3", "ada")
    assert (of_one.query, of_one.saved_by) == ("select 2", "paul")
    assert (app.home.state / "saved-queries.json").stat().st_mode & 0o077 == 0
    SavedQueries(app).forget("spend", who="ada", tenant="acme")
    assert SavedQueries(app).list("acme") == []
    with pytest.raises(ConfigurationError, match="there are: none"):
        SavedQueries(app).get("spend", "acme")
    assert [(one.actor, one.action, one.subject) for one in app.audit.entries()] == [
        ("tina", "query.saved", "spend"), ("paul", "query.saved", "spend"),
        ("ada", "query.saved", "spend"), ("ada", "query.forgotten", "spend"),
    ]  # fmt: skip
    assert "select" not in (app.home.audit / "audit.jsonl").read_text()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"*": 5}', '{"*": [{"name": "one"}]}'])
def test_a_damaged_file_is_named_and_stays(app: AppContext, content: str) -> None:
    path = app.home.state / "saved-queries.json"
    path.write_text(content)
    kept = SavedQueries(app)
    for ask in (kept.list, lambda: kept.save("mine", "SELECT 1", who="ann")):
        with pytest.raises(ConfigurationError, match=r"saved-queries\.json: cannot be read"):
            ask()
    assert path.read_text() == content


def test_without_an_audit_entry_nothing_is_saved_or_forgotten(app: AppContext) -> None:
    SavedQueries(app).save("spend", "select 1", who="tina")
    log = app.home.audit / "audit.jsonl"
    log.unlink()
    log.mkdir()
    with pytest.raises(RetryableError):
        SavedQueries(app).save("spend", "select 2", who="ada")
    with pytest.raises(RetryableError):
        SavedQueries(app).forget("spend", who="ada")
    assert [one.query for one in SavedQueries(app).list()] == ["select 1"]


@pytest.mark.parametrize(
    ("name", "query"), [("", "select 1"), ("A", "select 1"), ("a", " ;"), ("a", "x" * 20_001)]
)
def test_what_is_no_name_or_no_query_is_refused(app: AppContext, name: str, query: str) -> None:
    with pytest.raises(ConfigurationError):
        SavedQueries(app).save(name, query, who="tina")


def test_the_command_line_saves_runs_and_forgets(
    app: AppContext, capsys: pytest.CaptureFixture[str]
) -> None:
    Lake.open(str(app.home.lake)).append(make.batch("t1", steps=2), app_id="a", version=0)
    home = ["--home", str(app.home.root), "sql", "--format", "csv"]
    assert run([*home, "--save", "steps", "select count(*) as n from steps"]) == 0
    assert run([*home, "--saved", "steps"]) == 0
    assert capsys.readouterr().out.split() == ['"n"', "2", '"n"', "2"]
    assert run([*home, "--forget", "steps"]) == 0
    for wrong in (["--saved", "steps"], ["--save", "a"], ["--saved", "a", "select 1"]):
        assert run([*home, *wrong]) == 2


@pytest.mark.parametrize(
    "query",
    [
        "select * from messages where parts like '%ida.novak@corp-mail.com%'",
        "select 1 -- 4111 1111 1111 1111",
        "select * from steps where error = 'AKIAIOSFODNN7EXAMPLE'",
    ],
)
def test_a_query_that_names_somebody_is_not_kept(app: AppContext, query: str) -> None:
    with pytest.raises(ConfigurationError, match="leave the value out") as refused:
        SavedQueries(app).save("person", query, who="tina")
    assert "ida" not in str(refused.value)
    assert SavedQueries(app).list() == []
    SavedQueries(app).save("mails", "select * from messages where parts like '%<EMAIL_%'", who="t")
