"""What a lake promises, wherever it lies: the same tests on a folder and on S3.

All tests share one lake, each with trajectories and ingesters of its own, as tenants would.
"""

import json
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from governance.records import GovernanceRecord, GovernedBatch
from lakehouse.erasure.erase import erase_subject, expire
from lakehouse.lake import Lake
from lakehouse.maintenance.rewrite import list_files
from lakehouse.maintenance.scan import scan
from lakehouse.maintenance.status import lake_status
from lakehouse.maintenance.table_maintenance import checkpoint, compact, maintain, vacuum
from lakehouse.maintenance.verify import verify
from lakehouse.write.batches import batch_tables
from lakehouse.write.intents import intents_of
from tests.lakehouse import make
from tests.lakehouse.conftest import Place
from trajectory.errors import ConfigurationError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lake(place: Place) -> Lake:
    path, options = place
    return Lake.open(path, options=options)


def count(lake: Lake, table: str, start: str) -> int:
    sql = f"SELECT count(*) AS n FROM {table} WHERE starts_with(trajectory_id, ?)"  # noqa: S608
    return int(lake.query(sql, parameters=[start])["n"][0].as_py())


def test_there_is_no_lake_before_one_is_made(place: Place) -> None:
    path, options = place
    with pytest.raises(ConfigurationError, match="no lake"):
        Lake.open(path + "-other", options=options, create=False)


def test_a_batch_is_appended_once_and_seen_by_another_reader(lake: Lake, place: Place) -> None:
    for number in range(2):
        lake.append(make.batch(f"once{number}", steps=3), app_id="once", version=number)
    assert lake.append(make.batch("once1", steps=3), app_id="once", version=1).repeated
    again = Lake.open(place[0], options=place[1], create=False)
    assert again.committed_version("once") == 1
    assert count(again, "eligible_steps", "once") == 6
    assert [len(one.context) for one in again.conversation("once1")] == [1, 3, 5]
    assert again.known_content().known_steps("acme", ["once1-s0", "x"]) == {"once1-s0"}
    assert lake_status(again).rows == lake_status(lake).rows


def test_an_interrupted_batch_is_finished_by_whoever_opens_next(lake: Lake, place: Place) -> None:
    intents_of(lake.location).write("broken", 0, batch_tables(make.batch("broken")))
    again = Lake.open(place[0], options=place[1])
    assert again.committed_version("broken") == 0
    assert count(again, "steps", "broken") == 2
    assert list(intents_of(again.location).pending()) == []


def test_a_decided_batch_with_a_tenant_that_no_folder_can_have_is_finished_for_the_others(
    lake: Lake, place: Place
) -> None:
    batch = make.batch("fits")
    rows = [*batch.steps, replace(batch.steps[0], tenant_id="\u6f22" * 30, step_id="unfit-s0")]
    decided = batch_tables(replace(batch, steps=tuple(rows)))
    intents_of(lake.location).write("unfit", 0, decided)
    again = Lake.open(place[0], options=place[1])
    assert again.committed_version("unfit") == 0
    assert count(again, "steps", "fits") == 2
    assert count(again, "steps", "unfit") == 0


def test_a_stale_handle_of_the_same_ingester_doubles_nothing(lake: Lake, place: Place) -> None:
    """Two processes by one name, against the rules: the later finds the rows and writes none."""
    other = Lake.open(place[0], options=place[1])
    assert not lake.append(make.batch("stale"), app_id="stale", version=0).repeated
    assert other.append(make.batch("stale"), app_id="stale", version=0).rows == {}
    assert count(lake, "steps", "stale") == 2


def test_a_late_reward_is_one_append_away(lake: Lake) -> None:
    lake.append(make.batch("late", reward=0.0), app_id="late", version=0)
    before = lake.versions()
    later = make.NOON + timedelta(days=3)
    row = make.signal("late", 1.0, recorded_at=later, observed_at=later)
    lake.append_rows("signals", [row])
    after = lake.versions()
    assert {name for name in after if after[name] != before[name]} == {"signals"}
    assert after["signals"] == before["signals"] + 1
    found = lake.query("SELECT value FROM rewards_latest WHERE target_id = 'late'")
    assert found["value"].to_pylist() == [1.0]
    past = lake.query("SELECT value FROM rewards_latest WHERE target_id = 'late'", as_of=before)
    assert past["value"].to_pylist() == [0.0]


def test_consent_is_seen_after_a_refresh(lake: Lake) -> None:
    consents = lake.consents()
    assert consents.entries("acme", ["somebody"]) == []
    lake.append_rows("consents", [{
        "tenant_id": "acme", "subject": "somebody", "purpose": "eval", "granted": False,
        "source": "cli", "recorded_at": make.NOON, "reference": None,
    }])  # fmt: skip
    consents.refresh()
    assert [entry.granted for entry in consents.entries("acme", ["somebody"])] == [False]


def test_ingesters_in_several_processes_lose_and_double_nothing(lake: Lake, place: Place) -> None:
    path, options = place
    script = (
        "import json, sys; from lakehouse.lake import Lake; from tests.lakehouse import make\n"
        "path, options, name = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]\n"
        "lake = Lake.open(path, options=options)\n"
        "for n in range(3):\n"
        "    lake.append(make.batch(f'many-{name}{n}', steps=1), app_id=name, version=n)\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", script, path, json.dumps(options), name], cwd=ROOT)
        for name in "ab"
    ]
    assert [process.wait(timeout=100) for process in running] == [0, 0]
    found = lake.query(
        "SELECT count(*) AS n, count(DISTINCT step_id) AS d FROM steps "
        "WHERE starts_with(trajectory_id, 'many')"
    )
    assert found.to_pylist() == [{"n": 6, "d": 6}]


def test_compaction_beside_a_writer_sorts_and_keeps_every_row(lake: Lake, place: Place) -> None:
    writer = Lake.open(place[0], options=place[1])

    def write() -> None:
        for number in range(3):
            writer.append(make.batch(f"beside{number}"), app_id="beside", version=number)

    helper = threading.Thread(target=write)
    helper.start()
    while helper.is_alive():
        compact(lake, tables=["steps", "messages"])
    helper.join()
    compact(lake)
    assert count(lake, "steps", "beside") == 6
    assert len(list_files(lake.table("steps"))) == 1
    columns = ["trajectory_id", "step_index"]
    batches = lake.rows_of_file("steps", lake.snapshot_of("steps")[0], columns)
    order = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert len(order) > 6
    assert order == sorted(order)
    assert lake.query("SELECT count(*) AS n FROM conversation")["n"][0].as_py() > 0


def test_maintenance_checkpoints_and_a_vacuum_that_takes_nothing_too_early(lake: Lake) -> None:
    versions = lake.versions()
    assert checkpoint(lake, "steps", commits=1)
    maintain(lake, small_files=2)
    assert vacuum(lake, hours=48) == {name: [] for name in versions}
    past = lake.query("SELECT count(*) AS n FROM steps", as_of=versions)
    assert past["n"].to_pylist() == lake.query("SELECT count(*) AS n FROM steps")["n"].to_pylist()


def test_erasure_and_the_end_of_retention(lake: Lake) -> None:
    whole = make.batch("gone")
    rows = [make.governed(one, subjects=("p-1",)) for one in whole.steps]
    lake.append(_with(whole, rows), app_id="gone", version=0)
    whole = make.batch("old")
    rows = [make.governed(one, expires_at=make.NOON) for one in whole.steps]
    lake.append(_with(whole, rows), app_id="gone", version=1)
    assert erase_subject(lake, "acme", ["p-1"]).reach.trajectories == ("gone",)
    assert expire(lake).reach.trajectories == ("old",)
    assert count(lake, "steps", "gone") == count(lake, "steps", "old") == 0
    assert lake.committed_version("gone") == 1


def test_what_retention_took_of_a_person_leaves_the_store_with_their_erasure(
    lake: Lake, tmp_path: Path
) -> None:
    """In an object store old files lie until the vacuum; by then nothing in the tables names the person."""
    whole = make.batch("brief")
    rows = [make.governed(one, subjects=("p-2",), expires_at=make.NOON) for one in whole.steps]
    lake.append(_with(whole, rows), app_id="brief", version=0)
    assert expire(lake).reach.trajectories == ("brief",)
    report = erase_subject(lake, "acme", ["p-2"])
    assert (report.reach.trajectories, report.rows) == ((), {})
    said = ["brief asks 0", "brief says 1"]
    assert scan([tmp_path], said, lake=lake.location).hits == ()


def test_a_value_is_found_wherever_the_lake_lies(lake: Lake, tmp_path: Path) -> None:
    said = make.message("user", "I am mueller@corp-mail.com")
    step = make.step("scanned", 0, context_message_ids=(said.message_id,), output_message_id=None)
    batch = GovernedBatch(
        steps=(step,), messages=(said,), governance=(make.governed(step),),
        exchanges=(make.ledger(step),),
    )  # fmt: skip
    lake.append(batch, app_id="scanned", version=0)
    (tmp_path / "home").mkdir()
    values = ["not@there.org", "mueller@corp-mail.com"]
    report = scan([tmp_path / "home"], values, lake=lake.location)
    assert (2, "parquet:parts") in {(hit.value, hit.where) for hit in report.hits}
    assert {hit.value for hit in report.hits} == {2}
    assert all(hit.path.startswith(lake.location.root) for hit in report.hits)
    assert (report.files > 20, report.unreadable) == (True, ())


def test_after_all_that_the_lake_is_what_it_claims_to_be(lake: Lake) -> None:
    report = verify(lake)
    assert report.ok, report.findings
    assert report.rows > 0


def _with(batch: GovernedBatch, governance: list[GovernanceRecord]) -> GovernedBatch:
    return replace(batch, governance=tuple(governance))
