"""A substrate is what its document says, to the byte, and says why the rest is not in it."""

import json
import resource
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from governance.records import Rewrite
from lakehouse.erasure.erase import erase_subject
from lakehouse.erasure.late_names import rewrite_rows
from lakehouse.lake import Lake
from tests.train.lakes import Session, batch, lake_of, variant
from train.errors import StaleSubstrateError
from train.substrate.build import build_substrate
from train.substrate.manifest import SubstrateManifest, load_items, load_manifest, require_fresh
from train.substrate.spec import Substrate
from trajectory.errors import ConfigurationError, HeadraceError, IntegrityError


def document(**spec: Any) -> Substrate:
    basic = {"purposes": ["train_sft"], "reward": {"signals": {"success": 1.0}, "minimum": 1.0}}
    value = {
        "apiVersion": "headrace/v1",
        "kind": "Substrate",
        "metadata": {"name": "shop"},
        "spec": {**basic, **spec},
    }
    return Substrate.model_validate(value)


def build(lake: Lake, out: Path, **spec: Any) -> SubstrateManifest:
    return build_substrate(lake, document(**spec), out=out)


def test_two_step_session_is_one_item_with_both_answers(tmp_path: Path) -> None:
    session = Session(7)
    manifest = build(lake_of(tmp_path / "lake", session), tmp_path / "out")
    (entry,) = load_items(manifest)
    assert entry.item.message_ids == session.message_ids()
    assert entry.item.trained == (2, 4)
    assert entry.item.step_ids == ("t00007-0", "t00007-1")
    assert (entry.reward, entry.rewarded) == (1.0, True)


def test_rebuilt_substrate_is_the_same_to_the_byte(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *(Session(n, reward=float(n % 2)) for n in range(20)))
    first, second = build(lake, tmp_path / "a"), build(lake, tmp_path / "b")
    assert first.version == second.version
    for path in sorted(first.path.iterdir()):
        assert path.read_bytes() == (second.path / path.name).read_bytes(), path.name


def test_a_build_that_was_killed_while_it_registered_is_ended_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of(tmp_path / "lake", *(Session(n) for n in range(4)))
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "append_rows", _until_the_substrate(Lake.append_rows))
        with pytest.raises(KeyboardInterrupt):
            build(lake, tmp_path / "out")
    build(lake, tmp_path / "out")
    items = lake.query(
        "SELECT count(*) AS n, count(DISTINCT step_id) AS steps FROM substrate_items"
    )
    assert items.to_pylist() == [{"n": 8, "steps": 8}]
    assert lake.query("SELECT items FROM substrates").to_pylist() == [{"items": 4}]


def _until_the_substrate(append: Any) -> Any:
    def or_die(lake: Lake, table: str, rows: Any) -> int:
        if table == "substrates":
            raise KeyboardInterrupt
        return int(append(lake, table, rows))

    return or_die


def test_registering_twice_leaves_one_row(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(1), Session(2))
    manifest = build(lake, tmp_path / "a")
    build(lake, tmp_path / "a")
    rows = lake.query(
        "SELECT step_id, exchange_id FROM substrate_items ORDER BY step_id"
    ).to_pylist()
    assert len(rows) == 4
    assert rows[0] == {"step_id": "t00001-0", "exchange_id": "t00001-e0"}
    found = lake.query("SELECT name, version, items FROM substrates").to_pylist()
    assert found == [{"name": "shop", "version": manifest.version, "items": 2}]


def test_every_step_is_used_or_has_its_reason(tmp_path: Path) -> None:
    sessions = [
        Session(1),
        Session(2, purposes=("debug",)),
        Session(3, purposes=()),
        Session(4, reward=None),
        Session(5),
    ]
    extra = (
        variant(Session(5), 1, step_id="title", role_in_graph="auxiliary", branch=1),
        variant(Session(5), 1, step_id="tool", kind="tool", output_message_id=None),
        variant(Session(5), 1, step_id="cut", output_message_id=None, branch=2),
        variant(Session(5), 1, step_id="orphan", parent_step_id="gone", branch=3),
    )
    lake = lake_of(tmp_path / "lake", *sessions, extra_steps=extra)
    manifest = build(lake, tmp_path / "out")
    assert manifest.counts["items"] == 2
    assert manifest.left_out_steps == {
        "context_incomplete": 1,
        "no_output": 1,
        "not_eligible:no_purpose": 2,
        "purpose_not_allowed": 2,
        "role_auxiliary": 1,
        "tool_step": 1,
    }
    assert manifest.left_out_items == {"no_reward": 1}


def test_where_chooses_with_the_columns_of_the_view(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(1), Session(2, tenant="other"))
    manifest = build(lake, tmp_path / "out", where="tenant_id = 'acme'")
    assert [entry.item.tenant_id for entry in load_items(manifest)] == ["acme"]
    assert manifest.left_out_steps == {"where": 2}


def test_where_that_is_more_than_a_condition_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="one condition"):
        build(lake_of(tmp_path / "lake", Session(1)), tmp_path / "out", where="true; drop table x")


def test_split_never_moves_when_data_is_added(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *(Session(n) for n in range(60)))
    spec = {"split": {"by": "group", "holdout": 0.3}}
    before = {
        e.item.trajectory_id: e.split for e in load_items(build(lake, tmp_path / "a", **spec))
    }
    lake.append(batch(*(Session(n) for n in range(60, 90))), app_id="test", version=1)
    after = {e.item.trajectory_id: e.split for e in load_items(build(lake, tmp_path / "b", **spec))}
    assert before.items() <= after.items()
    assert 5 < sum(side == "holdout" for side in before.values()) < 35


def test_attempts_at_one_task_stay_on_one_side(tmp_path: Path) -> None:
    sessions = [Session(n, group=f"g{n // 4}") for n in range(80)]
    manifest = build(lake_of(tmp_path / "lake", *sessions), tmp_path / "out")
    sides: dict[str, set[str]] = {}
    for entry in load_items(manifest):
        sides.setdefault(entry.item.group_id, set()).add(entry.split)
    assert all(len(side) == 1 for side in sides.values())
    assert manifest.counts["groups"] == 20


def test_question_that_is_held_out_is_not_learned(tmp_path: Path) -> None:
    sessions = [Session(n, question="The same question?") for n in range(40)]
    spec = {"split": {"by": "trajectory", "holdout": 0.3}}
    manifest = build(lake_of(tmp_path / "lake", *sessions), tmp_path / "out", **spec)
    assert manifest.counts["train"] == 0
    assert manifest.left_out_items["contaminated"] + manifest.counts["holdout"] == 40


def test_what_goes_on_after_an_answer_is_asked_the_same_first_question(tmp_path: Path) -> None:
    """What is learned may begin in the middle of an attempt at a task that is held out."""
    alike = [Session(n, group=f"g{n}", question="What does one lamp cost?") for n in range(40)]
    lake = lake_of(tmp_path / "lake", *alike)
    manifest = build(lake, tmp_path / "out", where="step_index = 1", split={"holdout": 0.3})
    assert 0 < manifest.counts["holdout"] < 40
    assert manifest.counts["train"] == 0


def test_caps_are_counted_and_seeded(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *(Session(n, group=f"g{n % 3}") for n in range(30)))
    chosen = [
        set(build(lake, tmp_path / "out", caps={"per_group": 2, "total": 5}, seed=seed).item_ids)
        for seed in (1, 1, 2)
    ]
    manifest = build(lake, tmp_path / "out", caps={"per_group": 2, "total": 5}, seed=1)
    assert set(manifest.left_out_items) == {"cap_group", "cap_total"}
    assert sum(manifest.left_out_items.values()) == 25
    assert manifest.counts["items"] == 5
    assert chosen[0] == chosen[1] != chosen[2]


def test_withdrawn_consent_makes_it_stale(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(1), Session(2, subject="b2:subject-2"))
    manifest = build(lake, tmp_path / "out")
    require_fresh(lake, manifest)
    withdraw(lake, "b2:subject-2")
    with pytest.raises(StaleSubstrateError, match="1 of 2 items may no longer"):
        require_fresh(lake, manifest)
    states = lake.query("SELECT stale FROM substrates_latest").to_pylist()
    assert states == [{"stale": True}]
    assert build(lake, tmp_path / "out").counts["items"] == 1


def test_what_an_item_shows_and_does_not_teach_makes_it_stale_too(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(1), Session(2))
    manifest = build(lake, tmp_path / "out", where="step_index = 1")
    assert {entry.item.step_ids for entry in load_items(manifest)} == {("t00001-1",), ("t00002-1",)}
    (row,) = lake.query("SELECT * FROM governance WHERE step_id = 't00002-0'").to_pylist()
    lake.append_rows(
        "governance",
        [row | {"decision": "quarantine", "decided_at": datetime.now(UTC), "redaction_counts": {}}],
    )
    with pytest.raises(StaleSubstrateError, match="1 of 2 items may no longer"):
        require_fresh(lake, manifest)
    assert build(lake, tmp_path / "out", where="step_index = 1").counts["items"] == 1


def withdraw(lake: Lake, subject: str) -> None:
    now = datetime.now(UTC)
    columns = lake.query("SELECT * FROM consents").schema.names
    row = {
        "tenant_id": "acme",
        "subject": subject,
        "purpose": "train_sft",
        "granted": False,
        "recorded_at": now,
        "valid_from": now,
        "source": "test",
        "reference": "r1",
        "actor": "test",
        "consent_id": "c1",
    }
    lake.append_rows("consents", [{k: v for k, v in row.items() if k in columns}])


def test_changed_folder_is_refused(tmp_path: Path) -> None:
    manifest = build(lake_of(tmp_path / "lake", Session(1)), tmp_path / "out")
    assert load_manifest(manifest.path) == manifest
    changed = json.loads((manifest.path / "manifest.json").read_text())
    changed["counts"]["items"] = 99
    (manifest.path / "manifest.json").write_text(json.dumps(changed))
    with pytest.raises(IntegrityError, match="changed after it was built"):
        load_manifest(manifest.path)


@pytest.mark.parametrize("left", [b"", b'{"name": "sh', b"\0" * 64, b"[]", b"\xff"])
def test_a_manifest_that_was_cut_off_is_named(tmp_path: Path, left: bytes) -> None:
    manifest = build(lake_of(tmp_path / "lake", Session(1)), tmp_path / "out")
    (manifest.path / "manifest.json").write_bytes(left)
    with pytest.raises(HeadraceError, match="build"):
        load_manifest(manifest.path)


def test_a_full_disk_leaves_the_substrate_that_was_built_before(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(1))
    manifest = build(lake, tmp_path / "out")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # no file may grow beyond
    try:
        with pytest.raises(OSError, match="too large"):
            build(lake, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert load_manifest(manifest.path) == manifest
    assert not list(manifest.path.glob(".*"))


def test_folder_without_substrate_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="headrace substrate build"):
        load_manifest(tmp_path)


def test_substrate_of_another_version_says_to_rebuild_it(tmp_path: Path) -> None:
    manifest = build(lake_of(tmp_path / "lake", Session(1)), tmp_path / "out")
    file = manifest.path / "items.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["frames"]), file)
    with pytest.raises(
        ConfigurationError, match=r"rebuild it with `headrace substrate build FILE`"
    ):
        load_items(manifest)
    value = json.loads((manifest.path / "manifest.json").read_text())
    del value["left_out_items"]
    (manifest.path / "manifest.json").write_text(json.dumps(value))
    with pytest.raises(
        ConfigurationError, match=r"rebuild it with `headrace substrate build FILE`"
    ):
        load_manifest(manifest.path)


def test_substrate_holds_no_content(tmp_path: Path) -> None:
    manifest = build(lake_of(tmp_path / "lake", Session(1)), tmp_path / "out")
    written = b"".join(path.read_bytes() for path in manifest.path.iterdir())
    assert b"lamps" not in written
    assert b"You help" not in written


class DisturbedLake:
    """A lake to which something happens before one of the queries that are made of it."""

    def __init__(self, lake: Lake, before: int, disturb: Callable[[], None]) -> None:
        self.lake = lake
        self.count = 0
        self._before = before
        self._disturb = disturb

    def query(self, sql: str, **options: Any) -> pa.Table:
        self.count += 1
        if self.count == self._before:
            self._disturb()
        return self.lake.query(sql, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lake, name)


def test_an_erasure_waits_for_a_build_and_then_marks_it(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *(Session(n, subject=f"b2:s{n}") for n in range(6)))
    other = Lake.open(str(tmp_path / "lake"))
    reached: list[tuple[str, ...]] = []

    def erase() -> None:
        reached.append(erase_subject(other, "acme", ["b2:s3"]).reach.substrates)

    erasing = threading.Thread(target=erase)

    def disturb() -> None:
        erasing.start()
        erasing.join(3)  # it would have ended long ago

    manifest = build_substrate(DisturbedLake(lake, 2, disturb), document(), out=tmp_path / "out")
    erasing.join(60)
    assert reached == [(f"shop@{manifest.version}",)]
    assert len(manifest.item_ids) == 6
    with pytest.raises(StaleSubstrateError, match="1 of 6 items"):
        require_fresh(lake, manifest)


def test_a_build_begins_again_when_files_of_the_lake_go_away(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *(Session(n) for n in range(6)))
    quiet = DisturbedLake(lake, 0, lambda: None)
    expected = build_substrate(quiet, document(), out=tmp_path / "quiet")
    (day,) = {path.parent.name.removeprefix("event_date=") for path in _files(lake, "steps")}

    def rewrite() -> None:
        values = {"app_id": "app"}
        row = Rewrite("acme", "steps", "t00003-0", date.fromisoformat(day), values)
        rewrite_rows(lake, [row])

    for before in range(1, quiet.count + 1):
        source = DisturbedLake(lake, before, rewrite)
        found = build_substrate(source, document(), out=tmp_path / f"{before}")
        assert found.item_ids == expected.item_ids


def _files(lake: Lake, table: str) -> list[Path]:
    return [*(lake.location.folder / table).glob("*/*/*.parquet")]
