"""The example package of plugins, used through the command line: govern, find, train, replay."""

import json
import shutil
import subprocess
import time
import tomllib
from pathlib import Path

import pytest
import yaml

from governance.policy import load_bundle
from headrace.app.home import Home
from headrace.app.master_key import load_secrets
from headrace.processes.supervisor import headrace_command
from lakehouse.lake import Lake
from proxy.spool import RecordKind, SpoolWriter, records
from tests.headrace.nights import written
from tests.proxy.spool.scripts import CLIENT, ExchangeScript, name
from tests.train.conftest import make_model
from tests.train.lakes import Session, lake_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
SMALL = {"threads": 1, "maximum_steps": 2, "reporters": [], "save_steps": None}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home beside which the example is installed."""
    packages = tmp_path / "packages"
    shutil.copytree(EXAMPLE / "headrace_example", packages / "headrace_example")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    place = packages / "headrace_example-0.1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines: list[str] = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    (place / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home").create()


def headrace(*arguments: str, code: int = 0) -> str:
    """Run a command and return what it printed."""
    done = subprocess.run(headrace_command(list(arguments)), capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def capture(home: Home, request: bytes, answer: bytes) -> None:
    """Seal one call of the in-house API."""
    secrets = load_secrets(home.secrets, create=True)
    with SpoolWriter(home.spool, secrets.derive(b"spool")) as writer:
        script = ExchangeScript(writer, 1, at=time.time() - 60)
        head = records.request_head(
            name(1),
            started_at=script.at,
            origin=records.pack_origin(CLIENT, route="r", mode="base_url", upstream="http://u:1"),
            method=b"POST",
            path=b"/v1/complete",
            query=b"",
            headers=((b"Content-Type", b"application/json"),),
        )
        writer.append(RecordKind.REQUEST_HEAD, head)
        script.sequence = 1
        script.request(request)
        script.answer()
        script.response(answer)
        script.end()


def test_a_call_is_read_by_its_dialect_and_searched_by_its_detector(home: Home) -> None:
    policies = home.root / "policies"
    shutil.copytree(load_bundle().path, policies)
    redaction = yaml.safe_load((policies / "redaction.yaml").read_text())
    redaction["spec"] |= {"entities": {"MEMBER_NUMBER": "mask"}, "names": {"model": None}}
    (policies / "redaction.yaml").write_text(yaml.safe_dump(redaction))
    (home.root / "headrace.yaml").write_text(f"policy: {{bundle: {policies}}}\n")
    request = {"model": "in-house", "prompt": "Is KD-1234-0 a member? And KD-1234-5?"}
    capture(home, json.dumps(request).encode(), b'{"text": "KD-1234-0 is one."}')
    headrace("govern", "--once")
    lake = Lake.open(str(home.root / "lake"), create=False)
    (step,) = lake.query("select dialect, model_requested from steps").to_pylist()
    assert step == {"dialect": "shop.complete", "model_requested": "in-house"}
    said = " ".join(lake.query("select parts from messages")["parts"].to_pylist())
    assert "KD-1234-0" not in said
    assert "KD-1234-5" in said, "its check digit does not hold"


def test_a_model_learns_by_its_recipe_its_reward_and_its_environment(
    home: Home, tmp_path: Path
) -> None:
    lake_of(home.root / "lake", *(Session(n, group=f"g{n // 2}", lamps=n // 2) for n in range(8)))
    base = str(make_model(tmp_path / "base"))
    headrace("train", "adopt", base, "--model", "shop")
    purposes = {"purposes": ["train_sft", "train_rl"], "split": {"holdout": 0.0}}
    spec = {**purposes, "reward": {"signals": {"success": 1.0}}}
    headrace("substrate", "build", written(tmp_path, "Substrate", "all", spec))
    best = written(tmp_path, "Recipe", "best", {"recipe": "sft_best", "training": SMALL})
    # The gate passes nothing here: no task was held out.
    headrace("train", "run", best, "--model", "shop", code=1)
    options = {
        "reward": "brevity",
        "environment": "price-list",
        "completion_tokens": 8,
        "group_size": 2,
    }
    training = {**SMALL, "batch_size": 2}
    live = {"recipe": "grpo_live", "options": options, "training": training}
    headrace("train", "run", written(tmp_path, "Recipe", "live", live), "--model", "shop", code=1)
    lake = Lake.open(str(home.root / "lake"), create=False)
    runs = lake.query("select recipe, status, metrics from runs_latest order by recipe").to_pylist()
    assert [(run["recipe"], run["status"]) for run in runs] == [
        ("grpo_live", "done"),
        ("sft_best", "done"),
    ]


def test_a_proposer_draws_candidates(home: Home) -> None:
    lake_of(
        home.root / "lake",
        *(Session(n, subject=f"b2:subject-{n}", purposes=("evolve",)) for n in range(2)),
    )
    said = headrace("artifact", "propose", "--proposer", "house-words", "--add", "--json")
    (row,) = json.loads(said[said.index("[") : said.rindex("]") + 1])
    assert (row["artifact"], row["evidence"], row["objections"]) == (
        "acme-house-words@0001",
        2,
        "",
    )


def test_the_doctor_lists_what_is_found_and_names_what_is_broken(home: Home) -> None:
    said = headrace("doctor", "--json")
    for plugin in (
        "shop-complete",
        "member-number",
        "sft_best",
        "brevity",
        "price-list",
        "house-words",
    ):
        assert f"plugin {plugin}" in said
    assert "headrace-example 0.1.0" in said
    packages = next(home.root.parent.glob("packages"))
    (packages / "headrace_example" / "detector.py").write_text("import no_such_module\n")
    said = headrace("doctor", "--json", code=1)
    assert "plugin 'member-number' (headrace.detectors) of headrace-example 0.1.0" in said
    assert "no_such_module" in said
