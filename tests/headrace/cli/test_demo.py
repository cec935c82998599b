"""``headrace demo``: what it refuses before anything is made, and who works in it."""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from examples.practice.demo import SMOLLM2, Options, fleets, prepare_home, recipe_file
from headrace.cli import run
from train.recipes.settings import load_recipe


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--provider", "mistral"], "unknown provider 'mistral'. Valid: practice, openai"),
        (["--provider", "openai"], "--provider openai needs --model NAME"),
        (["--model", "gpt-5"], "the practice provider has no model 'gpt-5'. Valid: smollm2"),
    ],
)
def test_who_answers_is_settled_before_anything_is_made(
    options: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["demo", *options]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


def test_smollm2_works_at_a_desk_of_its_own_with_recipes_of_its_own(tmp_path: Path) -> None:
    made_here = Options(seed=1, home=tmp_path)
    desk = Options(seed=1, home=tmp_path, model=SMOLLM2)
    asked = Options(seed=1, home=tmp_path, provider="openai", model=SMOLLM2)
    assert [one.desk for one in (made_here, desk, asked)] == [False, True, False]
    assert made_here.rungs == asked.rungs != desk.rungs
    folder = Path("examples/practice")
    assert all((folder / recipe).is_file() for recipe in (*made_here.rungs, *desk.rungs))
    count = {one.model: sum(fleet.sessions for fleet in fleets(one)) for one in (made_here, desk)}
    assert count[SMOLLM2] < count[None] / 3


@pytest.mark.parametrize(("model", "steps"), [(None, [40, 10]), (SMOLLM2, [20, 5])])
def test_a_short_demo_takes_fewer_steps_of_grpo_and_else_the_same_recipes(
    model: str | None, steps: list[int], tmp_path: Path
) -> None:
    whole = Options(seed=1, home=tmp_path, model=model)
    short = replace(whole, short=True)
    first, last = whole.rungs
    assert recipe_file(short, first) == recipe_file(whole, first)
    specs = [load_recipe(recipe_file(one, last)).spec for one in (whole, short)]
    assert [spec.recipe for spec in specs] == ["grpo_live"] * 2
    assert [spec.training.maximum_steps for spec in specs] == steps
    assert specs[1].model_copy(update={"training": specs[0].training}) == specs[0]


def test_a_home_that_holds_something_is_not_emptied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("examples.practice.demo.tell", lambda options: prepare_home(options.home))
    key = tmp_path / "secrets" / "master.key"
    key.parent.mkdir()
    key.write_text("of an installation")
    assert run(["--home", str(tmp_path), "demo"]) == 2
    assert f"{tmp_path} is not empty" in " ".join(capsys.readouterr().err.split())
    assert key.exists()


def test_settings_of_another_installation_do_not_reach_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, str] = {}

    def tell(_options: Options) -> SimpleNamespace:
        seen.update(os.environ)
        return SimpleNamespace(failures=[])

    monkeypatch.setattr("examples.practice.demo.tell", tell)
    for name in [name for name in os.environ if name.startswith("HEADRACE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HEADRACE_LAKE_PATH", "s3://company/lake")
    monkeypatch.setenv("HEADRACE_CONFIG", str(tmp_path / "production.yaml"))
    assert run(["--home", str(tmp_path / "home"), "demo"]) == 0
    assert [name for name in seen if name.startswith("HEADRACE_")] == []
    assert "PATH" in seen


def test_what_the_demo_left_is_cleaned_up_and_an_installation_stays(tmp_path: Path) -> None:
    shutil.copy("Makefile", tmp_path)
    for file in ("secrets/master.key", "demo/practice/model", "gains/1/model"):
        (tmp_path / ".headrace" / file).parent.mkdir(parents=True)
        (tmp_path / ".headrace" / file).write_text("")
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, capture_output=True)
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(left) == [tmp_path / ".headrace/secrets/master.key", tmp_path / "Makefile"]


@pytest.mark.slow
def test_a_demo_that_is_stopped_ends_all_that_it_started(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "headrace",
        "--home",
        str(tmp_path / "home"),
        "demo",
        "--short",
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as demo:
        started: list[psutil.Process] = []
        deadline = time.monotonic() + 300
        while not started and demo.poll() is None and time.monotonic() < deadline:
            started = psutil.Process(demo.pid).children(recursive=True)
            time.sleep(0.05)
        demo.terminate()
        demo.wait(60)
    assert started
    assert psutil.wait_procs(started, timeout=60)[1] == []
