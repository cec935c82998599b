"""The lake appends each batch once, through crashes, repeats and concurrent writers."""

import threading
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from governance import records
from lakehouse.errors import PastGoneError
from lakehouse.lake import Lake
from lakehouse.read.session import Session
from lakehouse.read.snapshot import Files
from lakehouse.schema.columns import CONTENT_TABLES
from lakehouse.schema.tables import BATCH_TABLES, TABLES
from tests.lakehouse import make
from trajectory import step as protocol
from trajectory.errors import ConfigurationError, RetryableError

RECORDS = {
    "exchanges": records.LedgerRecord, "messages": protocol.StoredMessage, "steps": protocol.Step,
    "tokens": protocol.Tokens, "signals": protocol.Signal, "links": protocol.Link,
    "harnesses": protocol.Harness, "governance": records.GovernanceRecord,
    "quarantine": records.QuarantineRecord, "corrections": protocol.Correction,
}  # fmt: skip


def test_a_version_beyond_all_numbers_is_none(tmp_path: Path) -> None:
    with pytest.raises(PastGoneError, match="table steps has no version"):
        Lake.open(str(tmp_path)).query("SELECT 1 FROM steps", as_of={"steps": 10**30})


def test_a_lake_of_its_own_place_is_its_owners(tmp_path: Path) -> None:
    Lake.open(str(tmp_path / "data" / "lake"))
    assert (tmp_path / "data" / "lake").stat().st_mode & 0o777 == 0o700
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o750)
    Lake.open(str(shared))
    assert shared.stat().st_mode & 0o777 == 0o750


def counts(lake: Lake) -> dict[str, int]:
    found = {name: int(lake.table(name).count()) for name in BATCH_TABLES}
    return {name: count for name, count in found.items() if count}


@pytest.mark.parametrize("name", CONTENT_TABLES)
def test_columns_are_those_of_the_record(name: str) -> None:
    assert [c.name for c in CONTENT_TABLES[name]] == [f.name for f in fields(RECORDS[name])]


@pytest.mark.parametrize("name", TABLES)
def test_no_content_column_has_statistics(name: str) -> None:
    spec = TABLES[name]
    assert spec.statistics_columns
    assert not set(spec.statistics_columns) & set(spec.content_columns)


@pytest.mark.parametrize("is_made", [True, False])
def test_who_opens_a_new_lake_a_moment_late_finds_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_made: bool
) -> None:
    create = DeltaTable.create

    def beaten(*given: Any, **named: Any) -> None:
        if is_made:
            create(*given, **named)
        raise CommitFailedError("Protocol changed since last commit")

    monkeypatch.setattr(DeltaTable, "create", beaten)
    if is_made:
        assert Lake.open(str(tmp_path)).committed_version("ingest") == -1
    else:
        with pytest.raises(RetryableError, match="run the same again"):
            Lake.open(str(tmp_path))


def test_append_writes_every_table_once(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path / "lake"))
    assert lake.committed_version("ingest") == -1
    report = lake.append(make.batch("t1"), app_id="ingest", version=0)
    assert report.rows == {
        "messages": 4, "harnesses": 1, "tokens": 2, "steps": 2, "links": 1, "signals": 1,
        "governance": 2, "quarantine": 1, "exchanges": 2,
    }  # fmt: skip
    again = lake.append(make.batch("t1"), app_id="ingest", version=0)
    assert again.repeated
    assert not again.rows
    assert counts(lake) == report.rows
    assert lake.committed_version("ingest") == 0
    assert not list((tmp_path / "lake" / "_intents").iterdir())


def test_a_second_handle_sees_the_version(tmp_path: Path) -> None:
    first, second = Lake.open(str(tmp_path)), Lake.open(str(tmp_path))
    first.append(make.batch("t1"), app_id="a", version=3)
    assert second.append(make.batch("t1"), app_id="a", version=3).repeated
    second.append(make.batch("t2"), app_id="b", version=0)
    first.append(make.batch("t3"), app_id="a", version=4)
    assert counts(first)["steps"] == 6


def test_tables_stay_readable_by_everybody(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    for name in TABLES:
        protocol_versions = lake.table(name).protocol()
        assert protocol_versions.min_reader_version == 1
        assert protocol_versions.min_writer_version == 2


def test_a_place_without_a_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds no lake"):
        Lake.open(str(tmp_path / "none"), create=False)


def test_append_rows_takes_mappings_and_refuses_strangers(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    row = {
        "tenant_id": "acme", "subject": "p1", "purpose": "train_sft", "granted": False,
        "source": "cli", "recorded_at": make.NOON,
    }  # fmt: skip
    assert lake.append_rows("consents", [row]) == 1
    with pytest.raises(ConfigurationError, match="no column 'colour'"):
        lake.append_rows("consents", [{**row, "colour": "red"}])
    with pytest.raises(ConfigurationError, match="column granted: a row has no value"):
        lake.append_rows("consents", [{**row, "granted": None}])
    with pytest.raises(ConfigurationError, match="column recorded_at"):
        lake.append_rows("consents", [{**row, "recorded_at": make.NOON.replace(tzinfo=None)}])
    with pytest.raises(ConfigurationError, match="no table 'colours'"):
        lake.append_rows("colours", [row])


def test_lone_surrogates_are_kept_as_their_json_escape(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    broken = make.batch("t1", steps=1)
    odd = make.step("t1", 0, error="bad \ud800 text")
    lake.append(
        records.GovernedBatch(exchanges=broken.exchanges, steps=(odd,)), app_id="a", version=0
    )
    assert lake.table("steps").to_pyarrow_table()["error"].to_pylist() == ["bad \\ud800 text"]


def test_a_snapshot_taken_amid_a_batch_names_nothing_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever another batch lands while the tables are listed, each name finds its row."""
    reader, writer = Lake.open(str(tmp_path)), Lake.open(str(tmp_path))
    listed = Files.of
    for version, moment in enumerate(BATCH_TABLES):

        def of(files: Files, name: str, moment: str = moment, version: int = version) -> Any:
            found = listed(files, name)
            if name == moment:
                writer.append(make.batch(f"t{version}"), app_id="a", version=version)
            return found

        with monkeypatch.context() as patch:
            patch.setattr(Files, "of", of)
            snapshot = reader.snapshot()
        found = Session(snapshot).query(
            "SELECT (SELECT count(*) FROM exchanges ANTI JOIN steps USING (step_id)) AS steps_gone,"
            "(SELECT count(*) FROM steps ANTI JOIN messages ON output_message_id = message_id) AS gone"
        )
        assert found.to_pylist() == [{"steps_gone": 0, "gone": 0}], moment


@pytest.mark.parametrize("name", ["a%20b", "a*", "what?", "[a]", "a^b", "a|b", "a\\b"])
def test_a_folder_that_readers_would_look_for_elsewhere_is_refused(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(ConfigurationError, match="without it"):
        Lake.open(str(tmp_path / name))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigurationError, match="without it"):
        Lake.open(f"s3://lakes/{name}")


def test_a_lake_may_be_named_by_a_file_url(tmp_path: Path) -> None:
    lake = Lake.open(f"file://{quote(str(tmp_path / 'a b:c'))}")
    assert lake.location.folder == tmp_path / "a b:c"
    assert (tmp_path / "a b:c" / "steps" / "_delta_log").is_dir()


@pytest.mark.parametrize("tenant", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_tenant_that_would_read_back_as_none_is_refused(tmp_path: Path, tenant: str) -> None:
    lake = Lake.open(str(tmp_path))
    rows = [make.message("user", "hello"), make.message("user", "hello", tenant=tenant)]
    with pytest.raises(ConfigurationError, match="mean no value"):
        lake.append_rows("messages", rows)
    assert lake.table("messages").count() == 0


def test_an_erasure_waits_for_writers_whatever_is_deleted_beside_the_tables(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    alone = threading.Event()

    def erase() -> None:
        with lake.lease(alone=True):
            alone.set()

    with lake.lease():
        for path in tmp_path.iterdir():
            if path.is_file():
                path.unlink()
        eraser = threading.Thread(target=erase)
        eraser.start()
        assert not alone.wait(0.3)
    eraser.join()
    assert alone.is_set()


def test_a_log_that_cannot_be_read_is_worth_another_try(tmp_path: Path) -> None:
    """A removal that cleans the log may take a file from under whoever opens the table."""
    lake = Lake.open(str(tmp_path))
    (tmp_path / "steps" / "_delta_log" / "00000000000000000000.json").write_text("{")
    with pytest.raises(RetryableError, match="log cannot be read") as caught:
        lake.fresh("steps")
    assert "Truncated record whilst reading object); check that" in str(caught.value)
    assert "\n" not in str(caught.value), "delta-rs lists its own calls behind what it says"
    with pytest.raises(RetryableError, match="log cannot be read"):
        Lake.read(str(tmp_path))
