"""When the governing process's memory is lost or damaged, the lake gives it back."""

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.govern.checkpoint import CheckpointStore, installation_name, missing_batches
from headrace.govern.packed_json import packed_json, unpacked
from lakehouse.lake import Lake
from tests.headrace.pipelines import pipeline as build_pipeline
from tests.headrace.test_pipeline import EXCHANGES, check, fill, run
from tests.lakehouse import make
from trajectory.errors import IntegrityError

TABLE = """
SELECT exchange_id, trajectory_id, step_id, step_index, parent_step_id, context_keep, branch
FROM steps ORDER BY exchange_id
"""


def steps_of(home: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Lake.open(str(home / "lake")).query(TABLE).to_pylist()
    return found


def carry(home: Path, batches: int | None = None) -> None:
    pipeline = build_pipeline(home, batch_records=7, name="home")
    while batches != 0 and pipeline.run_batch() is not None:
        batches = None if batches is None else batches - 1


def lose(home: Path) -> None:
    shutil.rmtree(home / "state")


def damage(home: Path) -> None:
    path = home / "state" / "checkpoint.sqlite"
    path.write_bytes(path.read_bytes()[:1000])


def fall_back(home: Path) -> None:
    """Restore an older copy of the state folder, as a backup would."""
    shutil.rmtree(home / "state")
    shutil.copytree(home / "earlier", home / "state")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose spool was carried without disturbance."""
    home = tmp_path_factory.mktemp("undisturbed")
    fill(home)
    carry(home)
    return home


@pytest.fixture(scope="module")
def undisturbed(whole: Path) -> list[dict[str, Any]]:
    return steps_of(whole)


@pytest.mark.parametrize(
    "harm",
    [
        lose,
        pytest.param(damage, marks=pytest.mark.slow),
        pytest.param(fall_back, marks=pytest.mark.slow),
    ],
)
def test_conversations_go_on_as_if_nothing_had_been_lost(
    tmp_path: Path, undisturbed: list[dict[str, Any]], harm: Callable[[Path], None]
) -> None:
    fill(tmp_path)
    carry(tmp_path, batches=1)
    shutil.copytree(tmp_path / "state", tmp_path / "earlier")
    # Seven records a batch and two calls a conversation: one is cut in the middle each time.
    carry(tmp_path, batches=1)
    harm(tmp_path)
    carry(tmp_path)
    check(tmp_path)
    assert steps_of(tmp_path) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("point", ["announced", "appended", "completed"])
def test_killed_and_robbed_of_its_memory_at_any_point(
    tmp_path: Path, undisturbed: list[dict[str, Any]], point: str
) -> None:
    fill(tmp_path)
    assert run(tmp_path, point, "2") == -9
    lose(tmp_path)
    carry(tmp_path)
    check(tmp_path)
    assert steps_of(tmp_path) == undisturbed


def test_without_any_copy_nothing_is_doubled(tmp_path: Path) -> None:
    fill(tmp_path)
    spool = tmp_path / "kept"
    shutil.copytree(tmp_path / "spool", spool)
    carry(tmp_path, batches=2)
    lose(tmp_path)
    shutil.rmtree(tmp_path / "lake" / "_notes")
    shutil.rmtree(tmp_path / "spool")
    shutil.copytree(spool, tmp_path / "spool")
    carry(tmp_path)
    ledger = Lake.open(str(tmp_path / "lake")).query("SELECT exchange_id FROM exchanges")
    assert ledger.num_rows == len(set(ledger["exchange_id"].to_pylist())) == EXCHANGES


def store(home: Path, name: str = "home") -> CheckpointStore:
    """Begin with a store as the governor does, its copy in the home's lake."""
    lake = Lake.open(str(home / "lake"))
    (home / "state").mkdir(exist_ok=True)
    made = CheckpointStore(home / "state", lake.notes(), name=name)
    made.recover(lake)
    return made


def test_a_store_gives_back_what_was_announced(tmp_path: Path) -> None:
    first = store(tmp_path)
    first.announce(1, {"w": 1})
    lose(tmp_path)
    again = store(tmp_path)
    assert again.load() == first.load()
    assert again.load().announced == {"w": 1}
    lose(tmp_path)
    assert store(tmp_path, "other").load().application != first.load().application


def test_a_copy_gives_back_the_batches_after_the_written_conversations(tmp_path: Path) -> None:
    first, lake = store(tmp_path), Lake.open(str(tmp_path / "lake"))
    name = first.load().application
    for number in (1, 2, 3):
        first.announce(number, {"w": number})
        lake.append(make.batch(f"t{number}"), app_id=name, version=number)
        first.complete(number, packed_json({"open": []}) if number == 1 else None)
    first.announce(4, {"w": 4})
    lose(tmp_path)
    again = store(tmp_path)
    assert again.load() == first.load()
    assert again.load().trail == ({"w": 1}, {"w": 2}, {"w": 3})
    assert again.remembered() == packed_json({"open": []})


def test_a_damaged_file_that_is_made_again_from_its_copy_is_told_of(tmp_path: Path) -> None:
    first, told = store(tmp_path), list[str]()
    first.announce(1, {"w": 1})
    before = first.load()
    del first  # closed, so that its log is in the file
    path = tmp_path / "state" / "checkpoint.sqlite"
    path.write_bytes(b"no database at all" * 99)
    lake = Lake.open(str(tmp_path / "lake"))
    again = CheckpointStore(tmp_path / "state", lake.notes(), name="home")
    again.recover(lake, report=told.append)
    assert again.load() == before
    (said,) = told
    assert said.startswith(f"warning: {path} is damaged")


@pytest.mark.parametrize("cut", [0, 3, 20, 5000])
@pytest.mark.parametrize("kind", ["state", "batches"])
def test_a_damaged_copy_is_no_copy(tmp_path: Path, cut: int, kind: str) -> None:
    first, notes = store(tmp_path), Lake.open(str(tmp_path / "lake")).notes()
    first.announce(1, {"w": 1})
    notes.put(f"home-{kind}", (notes.get(f"home-{kind}") or b"")[:cut])
    lose(tmp_path)
    again = store(tmp_path).load()
    assert again.batch == 0
    assert (again.announced is None) == (kind == "state" or cut < 5000)


def test_an_older_home_without_a_copy_leaves_nothing_out(tmp_path: Path) -> None:
    """Its next batch number stands in the lake, over other records than it would take now."""
    fill(tmp_path)
    spool = tmp_path / "kept"
    shutil.copytree(tmp_path / "spool", spool)
    carry(tmp_path, batches=1)
    shutil.copytree(tmp_path / "state", tmp_path / "earlier")
    carry(tmp_path, batches=1)
    shutil.rmtree(tmp_path / "spool")
    shutil.copytree(spool, tmp_path / "spool")
    fall_back(tmp_path)
    shutil.rmtree(tmp_path / "lake" / "_notes")
    pipeline = build_pipeline(tmp_path, batch_records=11, name="home")
    while pipeline.run_batch() is not None:
        pass
    ledger = Lake.open(str(tmp_path / "lake")).query("SELECT exchange_id FROM exchanges")
    assert ledger.num_rows == len(set(ledger["exchange_id"].to_pylist())) == EXCHANGES


def earlier_home(folder: Path) -> None:
    """Unpack a home of version 0.1: its governor died with two batches done and a third appended.

    Made by the code of that version: ``tests.headrace.test_pipeline.fill``, then
    ``tests.headrace.pipeline_worker HOME appended 3``.
    """
    with tarfile.open(
        Path(__file__).parents[1] / "golden" / "homes" / "home_json_checkpoint.tar.gz"
    ) as packed:
        packed.extractall(folder, filter="data")


@pytest.mark.parametrize("loses", [False, True])
def test_a_home_with_the_earlier_files_is_taken_over(
    tmp_path: Path, undisturbed: list[dict[str, Any]], *, loses: bool
) -> None:
    earlier_home(tmp_path)
    before = CheckpointStore(tmp_path / "state").load()
    assert (before.batch, len(before.trail), before.announced is None) == (2, 3, False)
    if loses:
        lose(tmp_path)
    assert store(tmp_path).load() == before
    assert not list((tmp_path / "state").glob("*.json"))
    carry(tmp_path)
    check(tmp_path)
    assert steps_of(tmp_path) == undisturbed


@pytest.mark.parametrize("name", ["checkpoint", "progress"])
def test_damaged_earlier_files_are_refused_with_a_remedy(tmp_path: Path, name: str) -> None:
    earlier_home(tmp_path)
    shutil.rmtree(tmp_path / "lake" / "_notes")
    (tmp_path / "state" / f"{name}.json").write_text("{", encoding="utf-8")
    with pytest.raises(IntegrityError, match=r"checkpoint\.json is damaged"):
        store(tmp_path)


def test_notes_are_for_the_owner_alone_and_hold_no_content(whole: Path) -> None:
    files = list((whole / "lake" / "_notes").iterdir())
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    text = b"".join(path.read_bytes() for path in files)
    remembered = store(whole).remembered()
    text += b"".join(unpacked(remembered))
    assert b"maria" not in text
    assert b"order" not in text


def test_an_installation_keeps_its_name(tmp_path: Path) -> None:
    name = installation_name(tmp_path / "installation.id")
    assert name == installation_name(tmp_path / "installation.id")
    assert len(name) == 32


def test_a_lake_that_lost_batches_is_told_of_and_filled_from_what_the_spool_holds(
    tmp_path: Path,
) -> None:
    fill(tmp_path)
    shutil.copytree(tmp_path / "spool", tmp_path / "spare")
    carry(tmp_path, 2)
    shutil.copytree(tmp_path / "lake", tmp_path / "older")
    carry(tmp_path)
    done = CheckpointStore(tmp_path / "state").load()
    shutil.rmtree(tmp_path / "lake")
    shutil.move(tmp_path / "older", tmp_path / "lake")
    assert missing_batches(done, Lake.open(str(tmp_path / "lake"))) == done.batch - 2
    shutil.rmtree(tmp_path / "spool")
    shutil.move(tmp_path / "spare", tmp_path / "spool")
    told: list[tuple[int, int]] = []
    for _ in range(2):
        work = build_pipeline(
            tmp_path, batch_records=7, name="home", behind=lambda *said: told.append(said)
        )
        while work.run_batch() is not None:
            pass
    assert told == [(done.batch, done.batch - 2)]
    rows = Lake.open(str(tmp_path / "lake")).query("SELECT exchange_id FROM exchanges")
    assert len(set(rows["exchange_id"].to_pylist())) == rows.num_rows == EXCHANGES
    assert not missing_batches(
        CheckpointStore(tmp_path / "state").load(), Lake.open(str(tmp_path / "lake"))
    )
