"""Erasure and expiry reach tables, history, statistics, substrates and name the models."""

import json
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from governance.records import GovernanceRecord, GovernedBatch
from lakehouse.erasure import erase, removal
from lakehouse.erasure.erase import erase_subject, expire
from lakehouse.erasure.removal import remove_trajectories
from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import compact
from lakehouse.maintenance.verify import verify
from lakehouse.write.batches import batch_tables
from lakehouse.write.intents import intents_of
from tests.lakehouse import make
from tests.lakehouse.scans import scan_values
from trajectory.errors import ConfigurationError
from trajectory.step import Signal


def about(trajectory: str, *subjects: str, **changes: Any) -> GovernedBatch:
    """Return a trajectory whose first step concerns the subjects."""
    whole = make.batch(trajectory, steps=2)
    first = replace(whole.governance[0], subjects=subjects, **changes)
    shared = make.message("system", "be good")
    steps = tuple(
        replace(one, context_message_ids=(shared.message_id, *one.context_message_ids))
        if one.step_index == 0 else replace(one, context_keep=3)
        for one in whole.steps
    )  # fmt: skip
    return replace(
        whole,
        governance=(first, whole.governance[1]),
        messages=(*whole.messages, shared) if trajectory == "t0" else whole.messages,
        steps=steps,
    )


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake.open(str(tmp_path))
    for number, subjects in enumerate([("p1",), ("p1", "p2"), ("p3",)]):
        made.append(about(f"t{number}", *subjects), app_id="a", version=number)
    return made


def test_a_person_is_gone_from_every_file(lake: Lake, tmp_path: Path) -> None:
    compact(lake, tables=["steps", "messages"])
    report = erase_subject(lake, "acme", ["p1"], reference="DSR-1")
    assert report.reach.trajectories == ("t0", "t1")
    assert report.rows["steps"] == 4
    assert report.rows["messages"] == 8
    assert report.files > 0
    hits = scan_values([tmp_path], ["t0 asks 0", "t1 says 1", "t0-s0", "t1-s1"])
    ledger = {"exchanges"}
    assert {Path(hit.path).relative_to(tmp_path).parts[0] for hit in hits} <= ledger | {"erasures"}
    assert not scan_values([tmp_path], ["t0 asks 0", "t1 says 1"])
    assert scan_values([tmp_path], ["t2 asks 0"])
    assert verify(lake).ok


def test_what_a_killed_compaction_left_goes_too(lake: Lake, tmp_path: Path) -> None:
    (first, *_) = lake.snapshot_of("steps")
    spilled = Path(first).parent / ".sorting" / "duckdb_temp.tmp"
    spilled.parent.mkdir()
    spilled.write_bytes(b"t0 asks 0")
    sorted_once = Path(first).with_name("part-sorted-0.zstd.parquet")
    shutil.copyfile(first, sorted_once)
    erase_subject(lake, "acme", ["p1"])
    assert not spilled.exists()
    assert not sorted_once.exists()
    assert not scan_values([tmp_path], ["t0 asks 0"])


def test_others_keep_what_they_share(lake: Lake) -> None:
    erase_subject(lake, "acme", ["p1"])
    kept = lake.conversation("t2")
    assert [one.complete for one in kept] == [True, True]
    assert kept[0].context[0].text() == "be good"


def test_the_ledger_still_adds_up(lake: Lake) -> None:
    report = erase_subject(lake, "acme", ["p1"])
    rows = lake.query("SELECT disposition, reasons, trajectory_id FROM exchanges").to_pylist()
    assert len(rows) == 6
    erased = [row for row in rows if row["disposition"] == "erased"]
    assert len(erased) == 4
    assert erased[0] == {
        "disposition": "erased", "reasons": [report.removal_id], "trajectory_id": None,
    }  # fmt: skip


def test_the_register_says_what_was_done(lake: Lake) -> None:
    erase_subject(lake, "acme", ["p1", "p1-mail"], reference="DSR-1")
    rows = lake.query("SELECT * FROM erasures ORDER BY recorded_at").to_pylist()
    assert [(row["subject"], row["status"]) for row in rows] == [
        (whom, status) for status in ("requested", "begun", "done") for whom in ("p1", "p1-mail")
    ]
    assert json.loads(rows[-1]["report"])["rows"]["steps"] == 4


def test_the_same_erasure_again_finds_nothing(lake: Lake) -> None:
    erase_subject(lake, "acme", ["p1"])
    again = erase_subject(lake, "acme", ["p1"])
    assert again.reach.trajectories == ()
    assert again.rows == {}


def test_a_killed_erasure_has_said_which_trajectories_go(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(erase, "purge_history", killed)
        with pytest.raises(KeyboardInterrupt):
            erase_subject(lake, "acme", ["p1"])
    assert erase_subject(lake, "acme", ["p1"]).reach.trajectories == ()
    consents = lake.consents()
    assert all(consents.erased_at("acme", [name]) for name in ("t0", "t1"))
    assert consents.erased_at("acme", ["t2"]) is None


def test_it_is_known_with_whom_each_trajectory_went(lake: Lake) -> None:
    erase_subject(lake, "acme", ["p1", "p1-mail", "p2"])
    consents = lake.consents()
    assert consents.erased_with("acme", ["t0"]) == ("p1",)
    assert consents.erased_with("acme", ["t0", "t1", "t2"]) == ("p1", "p2")
    assert consents.erased_with("other", ["t0"]) == ()


def test_appends_go_on_after_an_erasure(lake: Lake) -> None:
    erase_subject(lake, "acme", ["p1"])
    assert lake.committed_version("a") == 2
    assert lake.append(about("t2", "p3"), app_id="a", version=2).repeated
    lake.append(about("t9", "p9"), app_id="a", version=3)
    assert lake.query("SELECT count(*) AS n FROM steps")["n"].to_pylist() == [4]


def test_a_dry_run_changes_nothing(lake: Lake) -> None:
    before = lake.versions()
    report = erase_subject(lake, "acme", ["p1"], dry_run=True)
    assert report.reach.trajectories == ("t0", "t1")
    assert lake.versions() == before


def test_substrates_become_stale_and_models_are_named(lake: Lake) -> None:
    lake.append_rows("substrate_items", [{
        "tenant_id": "acme", "substrate": "nightly", "version": "v1", "item_id": "i1",
        "trajectory_id": "t0", "step_id": "t0-s0", "split": "train", "weight": 1.0,
    }])  # fmt: skip
    lake.append_rows("substrates", [{
        "name": name, "version": "v1", "built_at": make.NOON, "recorded_at": make.NOON, "items": 1,
        "manifest": "{}", "content_hash": "b2:x", "stale": False,
    } for name in ("nightly", "other")])  # fmt: skip
    lake.append_rows("runs", [{
        "run_id": f"r-{name}", "recorded_at": make.NOON, "recipe": "sft", "substrate": name,
        "substrate_version": "v1", "base_model": base, "started_at": make.NOON, "status": "done",
        "seed": 1, "metrics": "{}", "manifest": json.dumps({"reward_model": "m@2"} if name == "scored" else {}),
    } for name, base in (("nightly", "base"), ("other", "m@1"), ("third", "base"), ("scored", "base"))])  # fmt: skip
    lake.append_rows("models", [{
        "name": "m", "version": version, "recorded_at": make.NOON, "run_id": run, "path": f"m/{version}",
        "base": None, "status": "live", "gate": "{}",
    } for version, run in (("1", "r-nightly"), ("2", "r-other"), ("3", "r-third"), ("4", "r-scored"))])  # fmt: skip
    report = erase_subject(lake, "acme", ["p1"])
    assert report.reach.substrates == ("nightly@v1",)
    assert report.reach.runs == ("r-nightly",)
    assert report.reach.models == ("m@1", "m@2", "m@4")
    stale = lake.query("SELECT name, stale, stale_reason FROM substrates_latest ORDER BY name")
    assert stale.to_pylist() == [
        {"name": "nightly", "stale": True, "stale_reason": report.removal_id},
        {"name": "other", "stale": False, "stale_reason": None},
    ]
    assert lake.query("SELECT * FROM substrate_items").num_rows == 0


def test_an_erasure_that_was_killed_is_ended_by_the_next(lake: Lake, tmp_path: Path) -> None:
    lake.append_rows("substrates", [{
        "name": "nightly", "version": "v1", "built_at": make.NOON, "recorded_at": make.NOON,
        "items": 1, "manifest": "{}", "content_hash": "b2:x", "stale": True,
        "stale_reason": "erasure-killed",
    }])  # fmt: skip
    lake.append_rows("erasures", [{
        "tenant_id": "acme", "erasure_id": "erasure-killed", "subject": "p1",
        "status": "requested", "recorded_at": make.NOON, "report": "{}",
    }])  # fmt: skip
    remove_trajectories(lake, "acme", ["t0", "t1"], reason="erasure-killed")
    assert scan_values([tmp_path], ["t0 asks 0"]), "deleted, and still on the disk"
    assert erase_subject(lake, "acme", ["p2"]).reach.substrates == ()
    report = erase_subject(lake, "acme", ["p1"])
    assert report.reach.substrates == ("nightly@v1",)
    assert report.ended == ("erasure-killed",)
    assert not scan_values([tmp_path], ["t0 asks 0", "t1 says 1"])
    assert erase_subject(lake, "acme", ["p1"]).reach.substrates == (), "ended, so not named again"


def test_rows_that_left_the_tables_before_leave_the_disk_with_an_erasure(
    lake: Lake, tmp_path: Path
) -> None:
    """Of a person without a row in any table nothing tells in which table's old files they were."""
    remove_trajectories(lake, "acme", ["t2"], reason="expiry-of-an-earlier-version")
    assert scan_values([tmp_path], ["t2 asks 0"]), "deleted, and still on the disk"
    report = erase_subject(lake, "acme", ["p3"])
    assert (report.reach.trajectories, report.rows) == ((), {})
    assert report.files > 0
    assert not scan_values([tmp_path], ["t2 asks 0", "t2 says 1"])
    assert verify(lake).ok


def test_expiry_takes_whole_trajectories_and_holds_keep_them(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    soon, later = make.NOON + timedelta(days=1), make.NOON + timedelta(days=100)
    lake.append(about("t0", expires_at=soon), app_id="a", version=0)
    lake.append(about("t1", expires_at=soon, legal_hold=True), app_id="a", version=1)
    lake.append(about("t2", expires_at=later), app_id="a", version=2)
    assert expire(lake, now=make.NOON).reach.trajectories == ()
    planned = expire(lake, now=soon, dry_run=True)
    assert planned.alone == 0
    assert (planned.reach.trajectories, planned.held) == (("t0",), 1)
    done = expire(lake, now=soon)
    assert (done.rows["steps"], done.held) == (2, 1)
    assert not scan_values([tmp_path], ["t0 asks 0"])
    assert verify(lake).ok


@pytest.mark.parametrize("table", ["steps", "purge"])
def test_what_a_killed_sweep_had_deleted_leaves_the_disk_with_the_next_removal(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.open(str(tmp_path))
    lake.append(about("t0", "p1", expires_at=make.NOON), app_id="a", version=0)
    lake.append(about("t1", "p2"), app_id="a", version=1)
    with monkeypatch.context() as patch:
        if table == "purge":
            patch.setattr(erase, "purge_history", killed)
        else:
            goes_on = removal.again
            patch.setattr(
                removal,
                "again",
                lambda lake, name, work: killed() if name == table else goes_on(lake, name, work),
            )
        with pytest.raises(KeyboardInterrupt):
            expire(lake, now=make.NOON)
    assert scan_values([tmp_path], ["t0 asks 0"]), "deleted, and still on the disk"
    assert expire(lake, now=make.NOON, dry_run=True).interrupted
    erase_subject(lake, "acme", ["p1"])
    assert not scan_values([tmp_path], ["t0 asks 0"])
    assert lake.conversation("t1")
    assert not expire(lake, now=make.NOON, dry_run=True).interrupted


def killed(*_: object) -> int:
    raise KeyboardInterrupt


def test_nobody_to_erase_is_refused(lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match="at least one pseudonym"):
        erase_subject(lake, "acme", [])


@pytest.mark.parametrize("name", ["*", ""])
def test_a_pattern_names_nobody_and_one_that_was_noted_takes_no_step_away(
    lake: Lake, name: str
) -> None:
    with pytest.raises(ConfigurationError, match="no pattern"):
        erase_subject(lake, "acme", ["p1", name])
    lake.append_rows("erasures", [{
        "tenant_id": "acme", "erasure_id": "e", "subject": name, "status": "done",
        "recorded_at": make.NOON, "report": "{}",
    }])  # fmt: skip
    found = lake.query("SELECT count(*) AS n FROM permissions WHERE refusal = 'erased'")
    assert found["n"].to_pylist() == [0]


def test_an_interrupted_batch_is_finished_before_and_erased_too(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    intents_of(lake.location).write("crashed", 0, batch_tables(about("t0", "p1")))
    report = erase_subject(lake, "acme", ["p1"])
    assert report.reach.trajectories == ("t0",)
    assert not scan_values([tmp_path], ["t0 asks 0"])


def remark(name: str, kind: str, target: str, **changes: Any) -> Signal:
    return make.signal(
        "x", 1.0, signal_id=name, target_kind=kind, target_id=target,
        **{"trajectory_id": None, "rationale": f"{name}: the lady of flat 3", **changes},
    )  # fmt: skip


def on_remark(name: str, days: int, **changes: Any) -> GovernanceRecord:
    """Return the decision that keeps a remark for so many days."""
    return make.governed(make.step("x", 0), **{
        "step_id": name, "expires_at": make.NOON + timedelta(days=days), "trajectory_id": "",
        "reasons": ("signal:kept",), **changes,
    })  # fmt: skip


def remarked(lake: Lake, *signals: Signal, governance: tuple[GovernanceRecord, ...] = ()) -> None:
    lake.append(
        GovernedBatch(signals=signals, governance=governance), app_id="remarks",
        version=lake.committed_version("remarks") + 1,
    )  # fmt: skip


def remarks(lake: Lake) -> list[str]:
    found = lake.query("SELECT signal_id FROM signals WHERE name = 'success' ORDER BY ALL")
    return [name for name in found["signal_id"].to_pylist() if not name.startswith("sig-")]


def test_what_was_said_of_a_persons_session_or_group_goes_with_them(
    lake: Lake, tmp_path: Path
) -> None:
    said = {"g-t0": "group", "g-t2": "group", "chatcmpl-t0-0": "response"}
    remarked(
        lake, *(remark(f"on-{target}", kind, target) for target, kind in said.items()),
        governance=tuple(on_remark(f"on-{target}", 400) for target in said),
    )  # fmt: skip
    report = erase_subject(lake, "acme", ["p1"])
    assert remarks(lake) == ["on-g-t2"]
    assert report.rows["signals"] == 4
    assert not scan_values([tmp_path], ["on-g-t0: the lady", "on-chatcmpl-t0-0: the lady"])
    left = lake.query("SELECT step_id FROM governance WHERE trajectory_id = ''")
    assert left["step_id"].to_pylist() == ["on-g-t2"]


def test_what_was_said_of_a_held_trajectory_too_stays(lake: Lake) -> None:
    steps = tuple(replace(one, group_id="g-t0") for one in about("t7", "p7").steps)
    batch = replace(about("t7", "p7", legal_hold=True), steps=steps)
    lake.append(batch, app_id="a", version=7)
    remarked(lake, remark("on-both", "group", "g-t0"), governance=(on_remark("on-both", 400),))
    erase_subject(lake, "acme", ["p1"])
    assert remarks(lake) == ["on-both"]


def test_feedback_without_a_trajectory_ends_by_itself(lake: Lake) -> None:
    names = {"early": 30, "late": 400, "held": 30, "left-out": 30}
    remarked(
        lake, *(remark(name, "group", "g-t0") for name in names if name != "left-out"),
        remark("placed", "response", "chatcmpl-t0-0"),
        governance=(
            *(on_remark(name, days, legal_hold=name == "held") for name, days in names.items()),
            on_remark("placed", 30),
        ),
    )  # fmt: skip
    report = expire(lake, now=make.NOON + timedelta(days=31))
    assert (report.rows["signals"], report.rows["governance"]) == (1, 2)
    assert remarks(lake) == ["held", "late", "placed"], "what has a trajectory ends with it"
    assert verify(lake).ok
    held = expire(lake, now=make.NOON + timedelta(days=500), holds=lambda _, names: {*names})
    assert (held.rows, remarks(lake)) == ({}, ["held", "late", "placed"])
    expire(lake, now=make.NOON + timedelta(days=500), holds=lambda _, __: set())
    assert remarks(lake) == ["placed"]


def test_feedback_on_what_is_gone_ends_even_where_nobody_decided_on_it(lake: Lake) -> None:
    remarked(
        lake, remark("on-gone", "trajectory", "t-gone", trajectory_id="t-gone"),
        remark("on-nothing", "group", "g-none"), remark("on-group", "group", "g-t0"),
        remark("decided", "trajectory", "t-gone", trajectory_id="t-gone"),
        governance=(on_remark("decided", 10, trajectory_id="t-gone"),),
    )  # fmt: skip
    expire(lake, now=make.NOON + timedelta(days=5))
    assert len(remarks(lake)) == 4, "what they are about may still come"
    expire(lake, now=make.NOON + timedelta(days=40))
    assert remarks(lake) == ["on-group"]


def test_a_call_that_was_left_out_does_not_shorten_the_life_of_the_others(tmp_path: Path) -> None:
    lake, year = Lake.open(str(tmp_path)), make.NOON + timedelta(days=365)
    whole = make.batch("t1")
    kept = tuple(make.governed(one, expires_at=year) for one in whole.steps)
    left_out = make.governed(
        whole.steps[0], step_id="left-out", decision="drop", reasons=("consent:no-purpose",),
        expires_at=make.NOON + timedelta(days=7),
    )  # fmt: skip
    lake.append(replace(whole, governance=(*kept, left_out)), app_id="a", version=0)
    report = expire(lake, now=make.NOON + timedelta(days=8))
    assert (report.reach.trajectories, report.rows) == ((), {"governance": 1})
    assert lake.query("SELECT count(*) AS n FROM steps")["n"].to_pylist() == [2]
    assert expire(lake, now=year).reach.trajectories == ("t1",)


def hidden(lake: Lake) -> None:
    """Store a conversation whose later step came first, and named a message otherwise."""
    early, kept = make.message("user", "Raghunathan's table"), make.message("user", "<PERSON>'s")
    answer, more = make.message("assistant", "ok"), make.message("user", "more")
    last = make.message("assistant", "good")
    second = make.step(
        "t1", 1, step_id="s2", parent_step_id=None, context_keep=0, output_message_id=last.message_id,
        context_message_ids=(early.message_id, answer.message_id, more.message_id),
    )  # fmt: skip
    first = make.step(
        "t1", 0, step_id="s1", exchange_id="x1", output_message_id=answer.message_id,
        context_message_ids=(kept.message_id,),
    )  # fmt: skip
    lake.append(GovernedBatch(
        steps=(second,), messages=(early, answer, more, last), exchanges=(make.ledger(second),),
        governance=(make.governed(second, subjects=("p",)),),
    ), app_id="a", version=0)  # fmt: skip
    lake.append(GovernedBatch(
        steps=(first,), messages=(kept,), exchanges=(make.ledger(first),),
        governance=(make.governed(first, subjects=("p",)),),
        corrections=(make.correction(second, parent_step_id="s1", context_keep=2, context_skip=2),),
    ), app_id="a", version=1)  # fmt: skip


def test_a_message_that_a_correction_hides_goes_too(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    hidden(lake)
    assert verify(lake).ok
    assert erase_subject(lake, "acme", ["p"]).rows["messages"] == 5
    assert not scan_values([tmp_path], ["Raghunathan"])


def test_messages_that_no_step_names_are_found_and_swept(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    hidden(lake)
    lake.append_rows("messages", [make.message("user", "left by an earlier version")])
    (found,) = verify(lake).findings
    assert (found.check, found.severity) == ("each message is named by a step", "error")
    assert expire(lake, now=make.NOON).rows == {"messages": 1}
    assert verify(lake).ok
    assert not scan_values([tmp_path], ["left by an earlier version"])
    assert lake.query("SELECT count(*) AS n FROM messages")["n"].to_pylist() == [5]


def test_an_erasure_reaches_what_was_built_before_a_correction_and_respects_its_holds(
    tmp_path: Path,
) -> None:
    lake = Lake.open(str(tmp_path))
    one, other = about("t0", "p1"), about("t1")
    lake.append(one, app_id="a", version=0)
    lake.append(other, app_id="a", version=1)
    lake.append_rows("substrate_items", [{
        "tenant_id": "acme", "substrate": "nightly", "version": "v1", "item_id": "i1",
        "trajectory_id": "t1", "step_id": "t1-s0", "split": "train", "weight": 1.0,
    }])  # fmt: skip
    moved = tuple(
        make.correction(step, trajectory_id="t0", step_index=2 + step.step_index)
        for step in other.steps
    )
    lake.append(GovernedBatch(corrections=moved), app_id="a", version=2)
    kept = erase_subject(lake, "acme", ["p1"], holds=lambda _, names: {"t1"} & {*names})
    assert (kept.reach.trajectories, kept.held) == ((), 1)
    report = erase_subject(lake, "acme", ["p1"])
    assert report.reach.trajectories == ("t0", "t1")
    assert report.reach.substrates == ("nightly@v1",)
