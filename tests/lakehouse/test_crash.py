"""Killed between any two durable acts of an append and replayed: each row once, one decision."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from governance.records import GovernedBatch
from lakehouse.lake import Lake
from lakehouse.maintenance.verify import verify
from lakehouse.schema.tables import BATCH_TABLES
from tests.lakehouse import crash, make

POINTS = [f"{moment}:{number}" for number in range(crash.ACTS) for moment in ("before", "after")]
ROOT = Path(__file__).parents[2]


def counts(lake: Lake) -> dict[str, int]:
    return {name: int(lake.table(name).count()) for name in BATCH_TABLES}


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crashed")
    subprocess.run(
        [sys.executable, "-m", "tests.lakehouse.crash", str(folder), *POINTS], cwd=ROOT, check=True
    )
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    lake = Lake.open(str(tmp_path_factory.mktemp("whole")))
    lake.append(make.batch("t0"), app_id="a", version=0)
    lake.append(make.batch("t1", steps=3), app_id="a", version=1)
    return counts(lake)


@pytest.mark.parametrize("point", POINTS)
def test_each_row_once_after_a_replay(
    crashed: Path, undisturbed: dict[str, int], point: str
) -> None:
    lake = Lake.open(str(crashed / point))
    lake.append(make.batch("t1", steps=3), app_id="a", version=1)
    assert counts(lake) == undisturbed
    assert lake.committed_version("a") == 1
    assert verify(lake).ok
    assert not list((crashed / point / "_intents").iterdir())


def test_a_policy_changed_before_the_replay_does_not_mix(tmp_path: Path) -> None:
    """Steps of one decision must never name messages of another."""
    subprocess.run(
        [sys.executable, "-m", "tests.lakehouse.crash", str(tmp_path), "after:1"],
        cwd=ROOT,
        check=True,
    )
    lake = Lake.open(str(tmp_path / "after:1"))
    other = make.batch("other", steps=2)
    report = lake.append(other, app_id="a", version=1)
    assert report.repeated
    found = lake.query("SELECT DISTINCT trajectory_id FROM steps ORDER BY ALL")
    assert found["trajectory_id"].to_pylist() == ["t0", "t1"]
    assert verify(lake).ok


def test_a_half_written_intent_is_swept(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    (tmp_path / "_intents").mkdir(exist_ok=True)
    leftover = tmp_path / "_intents" / f".{'0' * 40}-{0:020d}.0a1b2c3d.999999999.tmp"
    leftover.write_bytes(b"half")
    lake.recover()
    assert not leftover.exists()


def test_an_empty_batch_moves_the_version_on(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    lake.append(GovernedBatch(), app_id="a", version=7)
    assert lake.committed_version("a") == 7


@pytest.mark.slow
def test_two_ingesters_killed_at_random_lose_and_double_nothing(tmp_path: Path) -> None:
    """Two processes ingest and are killed again and again until both are done."""
    Lake.open(str(tmp_path))
    script = (
        "import sys; from lakehouse.lake import Lake; from tests.lakehouse import make\n"
        "name = sys.argv[2]; lake = Lake.open(sys.argv[1])\n"
        "for n in range(lake.committed_version(name) + 1, 20):\n"
        "    lake.append(make.batch(f'{name}{n}'), app_id=name, version=n)\n"
    )
    chance = random.Random(7)  # noqa: S311 - a seeded test
    running: dict[str, subprocess.Popen[bytes] | None] = {"a": None, "b": None}
    kills = 0
    deadline = time.monotonic() + 300
    while running and time.monotonic() < deadline:
        for name, process in list(running.items()):
            if process is None:
                running[name] = subprocess.Popen(
                    [sys.executable, "-c", script, str(tmp_path), name], cwd=ROOT
                )
            elif process.poll() == 0:
                del running[name]
            elif process.poll() is not None:
                running[name] = None
        time.sleep(chance.uniform(0.4, 2.0))
        victim = running.get(chance.choice("ab"))
        if victim is not None and victim.poll() is None and kills < 6:
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            kills += 1
    assert not running, "both ingesters should be done by now"
    lake = Lake.open(str(tmp_path))
    assert counts(lake)["steps"] == 80
    assert counts(lake)["exchanges"] == 80
    assert verify(lake).ok
