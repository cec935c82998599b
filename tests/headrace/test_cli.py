"""The command line: what it prints, how it ends, and what it says next."""

import json
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from examples.practice.certificate import make_certificate
from headrace.app.home import Home
from headrace.app.lock import only_one, only_one_up
from headrace.cli import missing_extra, run, unexpected
from tests.support.inline import inline_setup
from tests.support.upstream import Upstream, as_json, plain
from trajectory.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HEADRACE_CONFIG", "HEADRACE_MASTER_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HEADRACE_GATEWAY_ADMIN_PORT", "1")  # nobody's: no gateway runs
    monkeypatch.setenv("HEADRACE_GATEWAY_PORT", "2")
    return tmp_path / "home"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """Run a command in this process; return its standard output."""
    assert run(list(arguments)) == code, capsys.readouterr().err
    return capsys.readouterr().out


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    """Run a command that must fail; return what it says on standard error."""
    assert run(list(arguments)) == code
    return capsys.readouterr().err


def test_the_start_is_cheap() -> None:
    heavy = (
        "torch",
        "spacy",
        "presidio_analyzer",
        "great_expectations",
        "trl",
        "mitmproxy",
        "polars",
        "numpy",
        "pyarrow",
        "duckdb",
        "deltalake",
        "lakehouse",
    )
    code = f"import sys, headrace.cli; print([m for m in {heavy!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_crash_leaves_no_image_of_memory() -> None:
    """What a process holds is content before governance, and the master key."""
    code = (
        "import resource, sys\n"
        "from headrace.__main__ import main\n"
        "hard = resource.getrlimit(resource.RLIMIT_CORE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))\n"
        "sys.argv = ['headrace', '--version']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    print(resource.getrlimit(resource.RLIMIT_CORE)[0])\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split()[-1] == "0"


def test_a_terminal_without_our_characters_and_a_reader_who_leaves() -> None:
    """One process each: JSON stays JSON, a table is readable, and `| head` is no failure."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    shown = subprocess.run(
        [sys.executable, "-m", "headrace", "config", "show"],
        env=environment, capture_output=True, check=True,
    )  # fmt: skip
    assert b"gateway.routes" in shown.stdout
    code = "import sys; from headrace.app.output import print_json; print_json({'a': 'ü😀'})"
    dumped = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True
    )
    assert json.loads(dumped.stdout) == {"a": "ü😀"}
    reader, writer = os.pipe()
    os.close(reader)
    left = subprocess.run(
        [sys.executable, "-m", "headrace", "trajectory", "schema"],
        stdout=writer, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (left.returncode, left.stderr) == (0, b"")


def test_a_foreign_package_of_our_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "proxy").mkdir()
    (tmp_path / "proxy" / "__init__.py").write_text("", encoding="utf-8")
    code = "from headrace.app.version import check_packages; check_packages()"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert "'proxy' comes from" in found.stderr


@pytest.mark.parametrize("arguments", [["nosuch"], ["sql", "--nosuch"], ["keys", "create"]])
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    assert run(arguments) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["feedback", "--file", "/nosuch/file"],
        ["erase", "--file", "/nosuch/file", "--tenant", "acme"],
        ["train", "adopt", "/nosuch/file", "--model", "m"],
        ["trajectory", "export", "--output", "/nosuch/file"],
    ],
)
def test_what_the_system_refuses_is_one_line_with_the_path(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    said = complaint(capsys, *arguments, code=2).strip().splitlines()[-1]
    assert said.startswith("headrace: /nosuch/file: No such file or directory")


def test_a_lake_that_cannot_be_made_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEADRACE_LAKE_PATH", str(tmp_path / "file" / "lake"))
    assert "file/lake: Not a directory" in complaint(capsys, "trajectory", "list", code=2)


def test_a_lake_that_may_only_be_read_is_only_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    printed(capsys, "trajectory", "list")
    there = {*(home / "lake").rglob("*")}
    monkeypatch.setattr("os.access", lambda *_: False)
    assert json.loads(printed(capsys, "sql", "select count(*) as n from steps", "--json"))
    assert "no trajectories yet" in complaint(capsys, "trajectory", "list", code=0)
    said = complaint(capsys, "trajectory", "list", "--tenant", "acmee", code=0)
    assert "no trajectories of tenant 'acmee' so far; check the spelling" in said
    assert {*(home / "lake").rglob("*")} == there


def test_what_nobody_foresaw_names_its_place_and_not_its_text() -> None:
    with pytest.raises(TypeError) as caught:
        _ = Home("a text that stands for content").spool  # type: ignore[arg-type]
    said = unexpected(caught.value)
    assert "unexpected TypeError" in said
    assert "app/home.py:" in said
    assert "content" not in said


def test_up_does_not_begin_where_a_port_is_taken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv("HEADRACE_GATEWAY_FORWARD_PORT", str(port))
        said = complaint(capsys, "up", code=2)
    assert f"127.0.0.1:{port} (forward) is taken by process {os.getpid()} (" in said
    assert "gateway.forward_port" in said


def test_up_does_not_begin_with_a_broken_policy(
    capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_POLICY_BUNDLE", "nosuch")
    assert "nosuch: no such policy folder" in complaint(capsys, "up", code=2)
    assert not (home / "logs" / "gateway.log").exists()


def test_up_does_not_begin_where_another_governs(
    capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_GATEWAY_FORWARD_PORT", "3")  # nobody's either
    with only_one(Home(home).create().state):
        assert "another process governs" in complaint(capsys, "up", code=2)
    with only_one_up(Home(home)):
        assert "`headrace up` runs" in complaint(capsys, "up", code=2)
    assert not (home / "logs" / "gateway.log").exists()


def test_a_governing_process_keeps_its_lock_when_files_beside_it_are_deleted(home: Path) -> None:
    state = Home(home).create().state
    with only_one(state):
        for path in state.iterdir():
            path.unlink()
        with pytest.raises(ConfigurationError, match="another process governs"), only_one(state):
            pass
    with only_one(state):
        pass


GATEWAY_ALONE = """
import sys
from pathlib import Path

for module in {lacking!r}:
    sys.modules[module] = None
import headrace.app.guard, headrace.app.inline, headrace.cli.gateway, proxy.gateway
from governance.policy import load_bundle
for bundle in ("default", "agents-safe", "gdpr"):
    load_bundle(Path(bundle))
"""


def test_the_gateways_image_needs_nothing_of_governance() -> None:
    lacking = ["presidio_analyzer", "spacy", "thinc", "great_expectations", "ahocorasick"]
    code = GATEWAY_ALONE.format(lacking=[*lacking, "phonenumbers", "torch", "trl"])
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_missing_package_names_the_extra() -> None:
    assert "headrace[train]" in str(missing_extra("trl.trainer"))
    assert "headrace[train]" in str(missing_extra("cronsim"))
    assert "headrace[engine]" in str(missing_extra("ray"))
    assert missing_extra("json") is None


def test_a_lost_master_key_is_not_replaced_where_something_was_made_with_it(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    printed(capsys, "audit", "anchor", "--file", str(home.parent / "anchors"))
    printed(capsys, "consent", "grant", "jo", "--tenant", "acme", "--purpose", "eval")
    key = home / "secrets" / "master.key"
    key.rename(home / "elsewhere")
    for command in (["audit", "verify"], ["consent", "show", "jo", "--tenant", "acme"]):
        assert "put it back from your backup" in complaint(capsys, *command, code=2)
    assert not key.exists()
    (home / "elsewhere").rename(key)
    printed(capsys, "audit", "verify")


def test_another_master_key_is_refused_where_something_was_made_with_the_first(
    capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed(capsys, "consent", "grant", "jo", "--tenant", "acme", "--purpose", "eval")
    printed(capsys, "consent", "grant", "jo", "--tenant", "acme", "--purpose", "debug")
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    monkeypatch.setenv("HEADRACE_MASTER_KEY", "ab" * 32)
    for command in (
        ["consent", "show", "jo", "--tenant", "acme"],
        ["erase", "jo", "--tenant", "acme", "--dry-run"],
        ["audit", "verify"],
        ["govern", "--once"],
    ):
        said = complaint(capsys, *command, code=2)
        assert "not the one that" in said
        assert "HEADRACE_MASTER_KEY" in said
    findings = json.loads(printed(capsys, "doctor", "--json", code=1))
    assert any("not the one that" in one["detail"] for one in findings)
    assert {path: path.read_bytes() for path in before} == before
    monkeypatch.delenv("HEADRACE_MASTER_KEY")
    printed(capsys, "audit", "verify")


def test_keys_are_shown_once_and_can_be_revoked(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    created = json.loads(
        printed(capsys, "keys", "create", "--tenant", "acme", "--purpose", "eval", "--json")
    )
    assert created["key"] not in (home / "keys.json").read_text(encoding="utf-8")
    listed = json.loads(printed(capsys, "keys", "list", "--json"))
    assert [(key["key_id"], key["tenant"], key["revoked"]) for key in listed] == [
        (created["key_id"], "acme", None)
    ]
    printed(capsys, "keys", "revoke", created["key_id"], "--yes")
    assert json.loads(printed(capsys, "keys", "list", "--json"))[0]["revoked"]


def test_what_cannot_be_undone_needs_yes_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert "--yes" in complaint(capsys, "keys", "revoke", "000", code=2)


def test_an_unknown_purpose_names_the_valid_ones(capsys: pytest.CaptureFixture[str]) -> None:
    said = complaint(capsys, "keys", "create", "--tenant", "a", "--purpose", "fun", code=2)
    assert "train_sft" in said


def test_env_points_clients_at_the_gateway(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "provider-key")
    variables = json.loads(printed(capsys, "env", "--json"))
    assert variables["OPENAI_BASE_URL"] == "http://127.0.0.1:2/openai/v1"
    assert variables["OPENAI_API_KEY"].startswith("hr_")
    assert "ANTHROPIC_BASE_URL" not in variables
    again = json.loads(printed(capsys, "env", "--json"))
    assert again == variables


def test_env_without_a_route_says_what_to_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "OPENAI_API_KEY" in complaint(capsys, "env", code=2)
    monkeypatch.setenv("OPENAI_API_KEY", "hr_0123_abcd")
    assert "holds a client key of Headrace" in complaint(capsys, "env", code=2)


def test_env_needs_no_key_of_a_provider_where_the_gateway_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = as_json({"openai": "text"})
    with Upstream(lambda _: said) as admin, Upstream(lambda _: said) as gateway:
        monkeypatch.setenv("HEADRACE_GATEWAY_ADMIN_PORT", str(admin.port))
        monkeypatch.setenv("HEADRACE_GATEWAY_PORT", str(gateway.port))
        monkeypatch.setenv("ANTHROPIC_API_KEY", "a key that the gateway was not started with")
        variables = json.loads(printed(capsys, "env", "--json"))
        found = json.loads(printed(capsys, "doctor", "--json"))
    assert set(variables) == {
        "OPENAI_BASE_URL",
        "OPENAI_API_BASE",
        "OPENAI_API_KEY",
        "HEADRACE_KEY",
    }
    assert variables["HEADRACE_KEY"] == variables["OPENAI_API_KEY"]
    assert {"check": "route openai", "status": "ok"}.items() <= next(
        row for row in found if row["check"] == "route openai"
    ).items()


def test_env_says_when_the_gateway_runs_from_another_home(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "provider-key")
    with Upstream(lambda _: plain(401, b"")) as gateway:
        monkeypatch.setenv("HEADRACE_GATEWAY_PORT", str(gateway.port))
        assert run(["env"]) == 0
    assert "runs from another home" in capsys.readouterr().err


def test_the_lake_of_a_new_home_is_not_made_in_silence(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    for expected in (True, False):
        assert run(["trajectory", "list"]) == 0
        assert (f"no installation in {home}" in capsys.readouterr().err) is expected


def test_env_of_the_proxy_trusts_the_authority_and_the_system(
    capsys: pytest.CaptureFixture[str],
) -> None:
    variables = json.loads(printed(capsys, "env", "--proxy", "--json"))
    bundle = Path(variables["SSL_CERT_FILE"]).read_text(encoding="ascii")
    assert bundle.count("BEGIN CERTIFICATE") > 10
    assert variables["HTTPS_PROXY"].endswith("@127.0.0.1:8485")


def test_sql_answers_in_every_format_on_an_empty_lake(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    query = "select 1 as one, 'a' as word"
    assert json.loads(printed(capsys, "sql", query, "--json")) == [{"one": 1, "word": "a"}]
    for name in ("csv", "jsonl", "parquet", "arrow"):
        target = tmp_path / f"out.{name}"
        printed(capsys, "sql", query, "--format", name, "--output", str(target))
        assert target.stat().st_size > 0
        assert target.stat().st_mode & 0o777 == 0o600
    assert json.loads(printed(capsys, "sql", "select * from trajectories", "--json")) == []


def test_wrong_sql_and_unknown_formats_are_usage_errors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "nosuch" in complaint(capsys, "sql", "select * from nosuch", code=2)
    assert "jsonl" in complaint(capsys, "sql", "select 1", "--format", "xml", code=2)
    far = "select TIMESTAMPTZ '20000-01-01 00:00:00+00' AS t"
    for chosen in ("table", "json", "jsonl"):
        assert "to 9999" in complaint(capsys, "sql", far, "--format", chosen, code=2)
    assert "20000-01-01" in printed(capsys, "sql", far, "--format", "csv")


@pytest.mark.parametrize("made", [False, True], ids=["a home that is not there", "one made before"])
def test_what_a_first_command_makes_is_its_owners(
    capsys: pytest.CaptureFixture[str], home: Path, made: bool
) -> None:
    before = os.umask(0o022)
    try:
        if made:
            home.mkdir(0o755)
        printed(capsys, "consent", "grant", "maria@example.org", "--tenant", "acme")
    finally:
        os.umask(before)
    seen = [home.parent] if not made else [home]
    while seen:  # what others get to
        for path in seen.pop().iterdir():
            assert not path.stat().st_mode & 0o077 or path.is_symlink(), path.name
            seen += [path] if path.is_dir() and path.stat().st_mode & 0o001 else []


def test_consent_is_recorded_under_a_pseudonym(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    person = "maria@example.org"
    printed(capsys, "consent", "grant", person, "--tenant", "acme", "--purpose", "train_sft")
    printed(capsys, "consent", "withdraw", person, "--tenant", "acme", "--purpose", "train_sft")
    rows = json.loads(printed(capsys, "consent", "show", person, "--tenant", "acme", "--json"))
    assert [row["granted"] for row in rows] == [True, False]
    assert all(row["subject"].startswith("subject_") for row in rows)
    assert person not in (home / "audit" / "audit.jsonl").read_text(encoding="utf-8")


def test_an_edited_audit_log_is_noticed(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    printed(capsys, "consent", "grant", "*", "--tenant", "acme")
    printed(capsys, "consent", "withdraw", "*", "--tenant", "acme")
    assert json.loads(printed(capsys, "audit", "verify", "--json"))["entries"] == 2
    log = home / "audit" / "audit.jsonl"
    log.write_text(log.read_text(encoding="utf-8").replace("granted", "gr4nted"), encoding="utf-8")
    assert "not intact" in complaint(capsys, "audit", "verify", code=3)


def test_a_scan_finds_what_lies_in_clear(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    printed(capsys, "keys", "create", "--tenant", "acme")
    (home / "logs" / "stray.log").write_text("mail to maria@example.org", encoding="utf-8")
    report = json.loads(printed(capsys, "audit", "scan", "maria@example.org", "--json", code=1))
    assert report["values_found"] == 1
    assert "maria" not in json.dumps(report["hits"])
    printed(capsys, "audit", "scan", "jonas@example.org", code=0)


def test_feedback_without_a_gateway_says_what_to_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_GATEWAY_PORT", "9")
    said = complaint(capsys, "feedback", "--response", "chatcmpl-1", "--value", "1", code=3)
    assert "headrace up" in said


def test_feedback_needs_one_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--response" in complaint(capsys, "feedback", "--value", "1", code=2)


def test_policy_problems_name_file_line_and_field(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "consent.yaml").write_text(
        "apiVersion: headrace/v1\nkind: Consent\nmetadata: {name: x}\nspec:\n  grantz: []\n",
        encoding="utf-8",
    )
    said = complaint(capsys, "policy", "check", str(tmp_path), code=2)
    assert "consent.yaml:5" in said
    assert "grantz" in said


def test_the_probe_of_surrogates_needs_a_route_that_has_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = complaint(capsys, "gateway", "probe", "--inline", code=2)
    assert "no route to probe: the policy's Redaction.inline names none." in said


def test_policy_check_knows_the_routes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = inline_setup(tmp_path / "policy", routes=["openai", "opneai"]).folder
    said = complaint(capsys, "policy", "check", str(folder), code=2)
    assert "redaction.yaml:" in said
    assert "no route of a model is named opneai. Routes: anthropic, openai" in said


def test_config_says_where_a_setting_came_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_LAKE_PATH", "/somewhere")
    settings = json.loads(printed(capsys, "config", "show", "--json"))
    lake = next(setting for setting in settings if setting["setting"] == "lake.path")
    assert (lake["value"], lake["source"]) == ("/somewhere", "env HEADRACE_LAKE_PATH")
    monkeypatch.setenv("HEADRACE_CONSOLE_GROUPS", "[{group: leads, role: reviewer}]")
    assert "leads" in printed(capsys, "config", "show")


def test_commands_on_nothing_say_so_and_end_well(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["trajectory", "list", "--json"],
        ["substrate", "list", "--json"],
        ["train", "list", "--json"],
        ["audit", "list", "--json"],
    ):
        assert json.loads(printed(capsys, *arguments)) == []


def test_unknown_names_say_where_to_look(capsys: pytest.CaptureFixture[str]) -> None:
    assert "trajectory list" in complaint(capsys, "trajectory", "show", "zz", code=2)
    assert "substrate build" in complaint(capsys, "train", "plan", code=2)
    assert "train list" in complaint(capsys, "train", "promote", "m", "0001", code=2)
    assert "no trajectory, step" in complaint(capsys, "lineage", "zz", code=2)


def test_doctor_finds_a_master_key_that_others_can_read(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    printed(capsys, "consent", "grant", "*", "--tenant", "acme")
    (home / "secrets" / "master.key").chmod(0o644)
    findings = json.loads(printed(capsys, "doctor", "--json", code=1))
    failed = [finding for finding in findings if finding["status"] == "failure"]
    assert any("chmod 600" in finding["detail"] for finding in failed)


def test_doctor_tells_how_long_the_gateways_own_certificate_is_valid(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = make_certificate(tmp_path / "files", days=7)
    monkeypatch.setenv("HEADRACE_GATEWAY_CERTIFICATE", str(files.cert))
    monkeypatch.setenv("HEADRACE_GATEWAY_CERTIFICATE_KEY", str(files.key))
    for days, status in ((7, "warning"), (60, "ok"), (0, "failure")):
        make_certificate(tmp_path / "files", days=days)
        findings = json.loads(printed(capsys, "doctor", "--json", code=int(status == "failure")))
        (found,) = [each for each in findings if each["check"] == "certificate"]
        assert found["status"] == status
        assert str(files.cert) in found["detail"]


def test_doctor_says_when_the_price_table_is_old(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "prices.yaml"
    monkeypatch.setenv("HEADRACE_GATEWAY_PRICES", str(own))
    today = datetime.now(UTC).date()
    for day, status in ((today, "ok"), (today - timedelta(days=200), "warning")):
        own.write_text(
            "apiVersion: headrace/v1\nkind: Prices\nmetadata: {name: ours}\n"
            f"spec: {{as_of: {day}, currency: EUR, prices: [{{models: [m], input: 1, output: 2}}]}}\n"
        )
        findings = json.loads(printed(capsys, "doctor", "--json"))
        (found,) = [one for one in findings if one["check"] == "prices"]
        assert found["status"] == status
        assert str(day) in found["detail"]
    own.write_text("kind: Prices\n")
    findings = json.loads(printed(capsys, "doctor", "--json", code=1))
    (found,) = [one for one in findings if one["check"] == "prices"]
    assert "prices.yaml" in found["detail"]


def test_doctor_checks_webhooks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = json.loads(printed(capsys, "keys", "create", "--tenant", "acme", "--app", "a", "--json"))
    rule = {"when": "action == 'x'", "id": "id", "name": "success", "value": "ok"}
    hook = {
        "name": "ci", "sender": "github", "secret": {"env": "CI_SECRET"},
        "client_key": key["key_id"], "rules": [rule],
    }  # fmt: skip

    def found(**changes: object) -> dict[str, str]:
        monkeypatch.setenv("HEADRACE_GATEWAY_WEBHOOKS", json.dumps([hook | changes]))
        assert run(["doctor", "--json"]) in (0, 1)
        findings = json.loads(capsys.readouterr().out)
        (one,) = [each for each in findings if each["check"] == "webhook ci"]
        return dict(one)

    assert (found()["status"], "CI_SECRET" in found()["detail"]) == ("failure", True)
    monkeypatch.setenv("CI_SECRET", "s3cret")
    assert found()["status"] == "ok"
    assert "0123456789ab" in found(client_key="0123456789ab")["detail"]
    monkeypatch.setenv(
        "HEADRACE_GATEWAY_WEBHOOKS", json.dumps([hook | {"rules": [rule | {"id": "a ||"}]}])
    )
    assert "JMESPath" in complaint(capsys, "doctor", code=2)


def test_doctor_names_client_keys_whose_tenant_no_folder_can_have(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    key = json.loads(printed(capsys, "keys", "create", "--tenant", "acme", "--app", "a", "--json"))
    file = home / "keys.json"
    file.write_text(file.read_text().replace('"acme"', json.dumps("\u6f22" * 30)))
    findings = json.loads(printed(capsys, "doctor", "--json", code=1))
    (found,) = [one for one in findings if one["check"].startswith("client key")]
    assert (found["check"], found["status"]) == (f"client key {key['key_id']}", "failure")
    printed(capsys, "keys", "revoke", key["key_id"], "--yes")
    findings = json.loads(printed(capsys, "doctor", "--json"))
    assert not [one for one in findings if one["check"].startswith("client key")]


def test_sql_of_an_earlier_state(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    from lakehouse.lake import Lake
    from tests.lakehouse import make

    lake = Lake.open(str(home / "lake"))
    before = lake.versions()["steps"]
    lake.append(make.batch("t1"), app_id="a", version=0)
    query = "select count(*) as n from steps"
    for moment, count in (("2020-01-01", 0), (f"steps={before}", 0), ("2100-01-01", 2)):
        answer = printed(capsys, "sql", query, "--json", "--as-of", moment)
        assert json.loads(answer) == [{"n": count}]
    assert "neither a moment" in complaint(capsys, "sql", query, "--as-of", "soon", code=2)
    assert "no table 'x'" in complaint(capsys, "sql", query, "--as-of", "x=1", code=2)


def test_a_vacuum_by_hand_leaves_what_the_setting_keeps_for_time_travel(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    place = "lakehouse.maintenance.table_maintenance.vacuum"
    monkeypatch.setattr(place, lambda _lake, *, hours, dry_run: asked.append(hours) or {})
    monkeypatch.setenv("HEADRACE_LAKE_VACUUM_HOURS", "2000")
    printed(capsys, "lake", "vacuum")
    printed(capsys, "lake", "vacuum", "--hours", "48")
    assert asked == [2000, 48]
