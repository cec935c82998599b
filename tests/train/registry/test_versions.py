"""What serves changes only through the registry: judged, audited, atomic, and reversible."""

import errno
import json
import os
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakehouse.lake import Lake
from tests.lakehouse.power import Power
from tests.train.lakes import Session, lake_of
from tests.train.substrate.test_build import build, withdraw
from train.errors import GateRefusedError, ServingChangedError, StaleSubstrateError
from train.registry.versions import ModelRegistry, ModelVersion, weights_hash
from train.runs.run import write_items
from train.substrate.manifest import load_items
from trajectory.errors import ConfigurationError


def folder(tmp_path: Path, weights: bytes) -> Path:
    path = tmp_path / f"trained-{weights.decode()}"
    path.mkdir()
    (path / "model.safetensors").write_bytes(weights)
    return path


def registered(
    registry: ModelRegistry, tmp_path: Path, weights: bytes, *, passed: bool = True
) -> ModelVersion:
    gate = {"findings": [{"rule": "minimum_gain", "passed": passed}]}
    manifest = {"origin": "adopted", "gate": gate}
    return registry.register("shop", folder(tmp_path, weights), manifest, passed=passed)


def test_versions_count_up_and_keep_their_files(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    first = registered(registry, tmp_path, b"one")
    second = registered(registry, tmp_path, b"two")
    assert [first.version, second.version] == ["0001", "0002"]
    assert first.manifest["weights_hash"] != second.manifest["weights_hash"]
    assert (first.path / "model.safetensors").read_bytes() == b"one"
    assert registry.names() == ["shop"]


def test_a_version_that_serves_is_whole_after_a_power_cut(tmp_path: Path) -> None:
    """Its run deletes what it could be made again from."""
    root = tmp_path / "home"
    (root / "models").mkdir(parents=True)
    registry = ModelRegistry(root / "models")
    with Power(root) as power:
        trained = folder(root, b"learned")
        (trained / "more").mkdir()
        (trained / "more" / "tokenizer.json").write_bytes(b"{}")
        registry.register("shop", trained, {"origin": "adopted"}, passed=True)
        registry.promote("shop", "0001", actor="ann")
    power.cut()
    live = registry.live("shop")
    assert live is not None
    assert (live.path / "model.safetensors").read_bytes() == b"learned"
    assert (live.path / "more" / "tokenizer.json").read_bytes() == b"{}"


def test_promotion_and_rollback_move_the_pointer(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    for weights in (b"one", b"two", b"three"):
        registered(registry, tmp_path, weights)
    for version in ("0001", "0002", "0003"):
        registry.promote("shop", version, actor="ann")
    assert registry.rollback("shop", actor="ann", reason="slower").version == "0002"
    assert registry.rollback("shop", actor="ann", reason="worse too").version == "0001"
    live = registry.live("shop")
    assert live is not None
    assert (live.version, live.status) == ("0001", "live")
    assert [v.status for v in registry.versions("shop")] == ["live", "retired", "retired"]
    actions = [(entry.action, entry.version) for entry in registry.history("shop")]
    assert actions[-2:] == [("rollback", "0002"), ("rollback", "0001")]
    with pytest.raises(ConfigurationError, match="is the first that served"):
        registry.rollback("shop", actor="ann", reason="again")


def test_a_version_takes_over_from_the_one_that_it_was_to_and_done_again_changes_nothing(
    tmp_path: Path,
) -> None:
    registry = ModelRegistry(tmp_path / "models")
    for weights in (b"one", b"two", b"three"):
        registered(registry, tmp_path, weights)
    registry.promote("shop", "0001", actor="ann", serving="")
    for _ in range(2):
        registry.promote("shop", "0002", actor="night", serving="0001")
    assert [entry.version for entry in registry.history("shop")] == ["0001", "0002"]
    registry.rollback("shop", actor="ann", reason="harm")
    with pytest.raises(ServingChangedError, match="shop@0001 serves"):
        registry.promote("shop", "0003", actor="night", serving="0002")


def learned_from(home: Path, *people: int) -> tuple[ModelRegistry, Lake]:
    """A registry whose versions 0001, 0002, … learned from one person's session each, and served."""
    lake = lake_of(home / "lake", *(Session(n, subject=f"b2:subject-{n}") for n in range(12)))
    entries = load_items(build(lake, home / "substrates"))
    registry = ModelRegistry(home / "models", source=lake)
    for person in people:
        model = folder(home, f"of-{person}".encode())
        write_items(
            model / "items.parquet",
            [e.item for e in entries if e.item.trajectory_id == f"t{person:05d}"],
        )
        data = {"purposes": ["train_sft"], "substrate": "shop", "substrate_version": "1"}
        data |= {"content_hash": "b2:0", "rows": {"items": 1}, "policy_hashes": []}
        facts = {"origin": "adopted", "gate": None, "data": data}
        version = registry.register("shop", model, facts, passed=True)
        registry.promote("shop", version.version, actor="ann")
    return registry, lake


def test_rollback_passes_over_what_learned_from_withdrawn_data(tmp_path: Path) -> None:
    registry, lake = learned_from(tmp_path, 1, 2, 3)
    withdraw(lake, "b2:subject-2")
    assert registry.rollback("shop", actor="ann", reason="worse").label == "shop@0001"
    entry = registry.history("shop")[-1]
    assert (entry.action, entry.version, entry.previous) == ("rollback", "0001", "0003")
    assert entry.reason is not None
    assert entry.reason.startswith("worse; passed over: shop@0002 learned from 1 items")


def test_rollback_without_an_earlier_version_that_may_serve_changes_nothing(
    tmp_path: Path,
) -> None:
    registry, lake = learned_from(tmp_path, 1, 2, 3)
    for person in (1, 2):
        withdraw(lake, f"b2:subject-{person}")
    with pytest.raises(
        StaleSubstrateError, match=r"shop@0002.*shop@0001.*promote another"
    ) as error:
        registry.rollback("shop", actor="ann", reason="worse")
    assert "shop@0003 goes on serving" in str(error.value)
    live = registry.live("shop")
    assert live is not None
    assert live.version == "0003"


def test_rollback_passes_over_what_began_with_such_a_model(tmp_path: Path) -> None:
    registry, lake = learned_from(tmp_path, 1)
    child = {"origin": "adopted", "base": "shop@0001"}
    registry.register("shop", folder(tmp_path, b"child"), child, passed=True)
    registry.register("shop", folder(tmp_path, b"other"), {"origin": "adopted"}, passed=True)
    for version in ("0002", "0003"):
        registry.promote("shop", version, actor="ann")
    withdraw(lake, "b2:subject-1")
    with pytest.raises(StaleSubstrateError, match=r"shop@0002 began with it"):
        registry.rollback("shop", actor="ann", reason="worse")


def test_a_removed_version_is_remembered_by_those_that_began_with_it(tmp_path: Path) -> None:
    """Their weights know what it learned, whether its folder is there or not."""
    lake = lake_of(tmp_path / "lake", *(Session(n, subject=f"b2:subject-{n}") for n in range(12)))
    built = build(lake, tmp_path / "substrates")
    registry = ModelRegistry(tmp_path / "models", source=lake)
    now = datetime.now(UTC)
    run = {
        "run_id": "run-1", "recorded_at": now, "recipe": "sft", "substrate": built.name,
        "substrate_version": built.version, "base_model": "tiny", "started_at": now,
        "ended_at": now, "status": "done", "seed": 1, "metrics": "{}",
        "manifest": json.dumps({"data": {"purposes": ["train_sft"]}}),
    }  # fmt: skip
    lake.append_rows("runs", [run])
    facts = {"origin": "adopted", "gate": None, "run_id": "run-1", "base": "tiny"}
    registry.register("shop", folder(tmp_path, b"first"), facts, passed=True)
    for base in ("shop@0001", "shop@0002"):
        child = {"origin": "adopted", "base": base}
        registry.register("shop", folder(tmp_path, f"on-{base}".encode()), child, passed=True)
    for version in ("0001", "0002"):
        shutil.rmtree(tmp_path / "models" / "shop" / version)
    registry.promote("shop", "0003", actor="ann")
    plain = registered(registry, tmp_path, b"plain")
    registry.promote("shop", plain.version, actor="ann")
    withdraw(lake, "b2:subject-1")
    with pytest.raises(StaleSubstrateError, match=r"shop@0001.*shop@0003 began with it"):
        registry.promote("shop", "0003", actor="ann")
    with pytest.raises(StaleSubstrateError, match=r"shop@0003 began with it"):
        registry.rollback("shop", actor="ann", reason="worse")
    with pytest.raises(StaleSubstrateError, match=r"shop@0003 began with it"):
        registry.adopt("other", tmp_path / "models" / "shop" / "0003", actor="ann", reason="x")


def test_what_scored_a_removed_version_is_remembered_by_those_that_began_with_it(
    tmp_path: Path,
) -> None:
    registry, lake = learned_from(tmp_path, 1)
    now = datetime.now(UTC)
    run = {
        "run_id": "run-1", "recorded_at": now, "recipe": "grpo_live", "substrate": "other",
        "substrate_version": "1", "base_model": "tiny", "started_at": now, "ended_at": now,
        "status": "done", "seed": 1, "metrics": "{}",
        "manifest": json.dumps({"data": {"purposes": ["train_rl"]}, "reward_model": "shop@0001"}),
    }  # fmt: skip
    lake.append_rows("runs", [run])
    scored = {"origin": "adopted", "run_id": "run-1", "base": "tiny", "reward_model": "shop@0001"}
    registry.register("desk", folder(tmp_path, b"scored"), scored, passed=True)
    child = {"origin": "adopted", "base": "desk@0001"}
    registry.register("desk", folder(tmp_path, b"child"), child, passed=True)
    shutil.rmtree(tmp_path / "models" / "desk" / "0001")
    registry.require_permitted(registry.get("desk", "0002").path)
    withdraw(lake, "b2:subject-1")
    with pytest.raises(StaleSubstrateError, match=r"shop@0001 learned from 1 items"):
        registry.promote("desk", "0002", actor="ann")


def test_model_that_did_not_pass_needs_a_reason(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    registered(registry, tmp_path, b"bad", passed=False)
    for reason in (None, "", "  "):
        with pytest.raises(GateRefusedError, match="minimum_gain"):
            registry.promote("shop", "0001", actor="ann", override=reason)
    assert registry.live("shop") is None
    registry.promote("shop", "0001", actor="ann", override="for the fair")
    assert registry.history("shop")[0].reason == "for the fair"


def test_what_cannot_be_audited_does_not_happen(tmp_path: Path) -> None:
    def refuse(action: str, subject: str, detail: Mapping[str, Any]) -> None:
        raise OSError("disk full")

    registry = ModelRegistry(tmp_path / "models", audit=refuse)
    registered(registry, tmp_path, b"one")
    with pytest.raises(OSError, match="disk full"):
        registry.promote("shop", "0001", actor="ann")
    assert registry.live("shop") is None


def test_audit_tells_who_what_and_why(tmp_path: Path) -> None:
    entries: list[tuple[str, str, str]] = []
    registry = ModelRegistry(
        tmp_path / "models",
        audit=lambda action, subject, detail: entries.append((action, subject, detail["actor"])),
    )
    registry.adopt("shop", folder(tmp_path, b"one"), actor="ann", reason="our base")
    assert entries == [("model.adopt", "shop@0001", "ann")]


def test_only_the_first_model_is_adopted(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    given = folder(tmp_path, b"one")
    registry.adopt("shop", given, actor="ann", reason="our base")
    assert given.exists()
    with pytest.raises(ConfigurationError, match="serves already"):
        registry.adopt("shop", given, actor="ann", reason="again")
    assert registry.names() == ["shop"]


def test_a_version_adopted_under_another_name_is_judged_as_promote_judges_it(
    tmp_path: Path,
) -> None:
    registry, lake = learned_from(tmp_path, 1, 2)
    good = registry.get("shop", "0001")
    adopted = registry.adopt("desk", good.path, actor="ann", reason="a copy")
    assert adopted.status == "live"
    child = {"origin": "adopted", "base": adopted.label}
    registry.register("desk", folder(tmp_path, b"child"), child, passed=True)
    registry.promote("desk", "0002", actor="ann")
    registry.rollback("desk", actor="ann", reason="worse")
    withdraw(lake, "b2:subject-1")
    with pytest.raises(StaleSubstrateError, match=r"shop@0001 learned from 1 items"):
        registry.adopt("kiosk", good.path, actor="ann", reason="a copy")
    with pytest.raises(StaleSubstrateError, match=r"desk@0001 learned.*desk@0002 began with it"):
        registry.promote("desk", "0002", actor="ann")
    assert registry.live("kiosk") is None


def test_a_version_that_did_not_pass_is_not_adopted_under_another_name(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    bad = registered(registry, tmp_path, b"bad", passed=False)
    with pytest.raises(GateRefusedError, match="shop@0001 did not pass"):
        registry.adopt("desk", bad.path, actor="ann", reason="a copy")
    assert registry.names() == ["shop"]


def test_a_copy_of_a_version_from_elsewhere_is_not_adopted(tmp_path: Path) -> None:
    registry, lake = learned_from(tmp_path, 1)
    copy = shutil.copytree(tmp_path / "models" / "shop" / "0001", tmp_path / "copy")
    withdraw(lake, "b2:subject-1")
    with pytest.raises(ConfigurationError, match=r"items\.parquet.*use the version's own folder"):
        registry.adopt("desk", copy, actor="ann", reason="a copy")
    assert registry.names() == ["shop"]


def test_a_copy_without_its_list_of_items_is_known_by_its_weights(tmp_path: Path) -> None:
    registry, lake = learned_from(tmp_path, 1)
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(tmp_path / "models" / "shop" / "0001" / "model.safetensors", copy)
    withdraw(lake, "b2:subject-1")
    with pytest.raises(ConfigurationError, match=r"same weights as shop@0001"):
        registry.adopt("desk", copy, actor="ann", reason="a copy")
    with pytest.raises(ConfigurationError, match=r"same weights as shop@0001"):
        registry.require_permitted(copy)
    assert registry.names() == ["shop"]
    base = folder(tmp_path, b"base")
    registry.adopt("desk", base, actor="ann", reason="from elsewhere")
    assert registry.adopt("kiosk", base, actor="ann", reason="the same").label == "kiosk@0001"
    same = {"origin": "adopted", "run_id": "run-1", "base_weights_hash": weights_hash(base)}
    idle = shutil.copytree(base, tmp_path / "idle")
    registry.register("shop", idle, same, passed=False)
    registry.require_permitted(base)  # a run that changed nothing made no copy


def test_a_part_of_a_version_is_neither_adopted_nor_begun_with(tmp_path: Path) -> None:
    """An adapter holds what the version learned, and loads as a model of its own."""
    registry, _ = learned_from(tmp_path, 1)
    adapter = tmp_path / "models" / "shop" / "0001" / "adapter"
    adapter.mkdir()
    (adapter / "adapter_model.safetensors").write_bytes(b"learned")
    with pytest.raises(ConfigurationError, match=r"a part of a version.*the version's own folder"):
        registry.adopt("desk", adapter, actor="ann", reason="a part")
    with pytest.raises(ConfigurationError, match=r"a part of a version"):
        registry.require_permitted(adapter)
    assert registry.names() == ["shop"]


def test_a_checkpoint_is_not_adopted(tmp_path: Path) -> None:
    checkpoint = folder(tmp_path, b"half")
    (checkpoint / "trainer_state.json").write_text("{}")
    registry = ModelRegistry(tmp_path / "models")
    with pytest.raises(ConfigurationError, match=r"trainer_state\.json.*checkpoint"):
        registry.adopt("desk", checkpoint, actor="ann", reason="a copy")
    assert registry.names() == []


def test_what_a_run_left_behind_is_not_adopted(tmp_path: Path) -> None:
    """Its evaluator failed: nobody judged it, and nobody would find out what it learned from."""
    run = tmp_path / "runs" / "20261130T020000-nightly-1a2b3c"
    run.mkdir(parents=True)
    (run / "order.json").write_text("{}")
    left = folder(run, b"learned")
    registry = ModelRegistry(tmp_path / "models")
    with pytest.raises(ConfigurationError, match=rf"--resume {run.name}"):
        registry.adopt("desk", left, actor="ann", reason="the evaluator broke")
    with pytest.raises(ConfigurationError, match=rf"--resume {run.name}"):
        registry.require_permitted(left)
    adapter = left / "adapter"
    adapter.mkdir()
    with pytest.raises(ConfigurationError, match=rf"--resume {run.name}"):
        registry.require_permitted(adapter)
    assert registry.names() == []


def test_what_a_stale_reward_model_scored_is_not_promoted(tmp_path: Path) -> None:
    registry, lake = learned_from(tmp_path, 1, 2)
    judge = registry.get("shop", "0001")
    scored = {"origin": "adopted", "base": "elsewhere", "reward_model": judge.label}
    registry.register("desk", folder(tmp_path, b"scored"), scored, passed=True)
    registry.require_permitted(judge.path)
    withdraw(lake, "b2:subject-1")
    with pytest.raises(StaleSubstrateError, match=r"shop@0001 learned.*desk@0001 was scored by it"):
        registry.promote("desk", "0001", actor="ann", override="we need it")
    with pytest.raises(StaleSubstrateError, match="shop@0001 learned from 1 items"):
        registry.require_permitted(judge.path)
    registry.require_permitted(registry.get("shop", "0002").path)


def test_a_reward_model_that_its_gate_refused_scores_for_no_other(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    gate = {"findings": [{"rule": "minimum_agreement", "passed": False}]}
    scores = {"origin": "adopted", "makes": "reward_model", "gate": gate}
    for weights, passed in ((b"good", True), (b"bad", False)):
        registry.register("score", folder(tmp_path, weights), scores, passed=passed)
    registry.require_scorer(registry.get("score", "0001").path)
    registry.require_scorer(folder(tmp_path, b"elsewhere"))
    refused = registry.get("score", "0002").path
    told = r"score@0002 did not pass its gate \(minimum_agreement\).*name a version that passed"
    with pytest.raises(ConfigurationError, match=told):
        registry.require_scorer(refused)
    registry.require_permitted(refused)  # nothing of it was withdrawn


def test_unknown_version_lists_those_that_exist(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    registered(registry, tmp_path, b"one")
    with pytest.raises(ConfigurationError, match=r"no version '7'.*there are 0001"):
        registry.promote("shop", "7", actor="ann")


def test_pointer_is_whole_json_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    registered(registry, tmp_path, b"one")
    registry.promote("shop", "0001", actor="ann")
    home = tmp_path / "models" / "shop"
    assert json.loads((home / "live.json").read_text())["version"] == "0001"
    assert {path.name for path in home.iterdir()} == {"0001", "live.json", "history.jsonl", "lock"}


def tried(registry: ModelRegistry, tmp_path: Path) -> ModelRegistry:
    for weights in (b"one", b"two", b"three"):
        registered(registry, tmp_path, weights, passed=weights != b"three")
    registry.promote("shop", "0001", actor="ann")
    return registry


def test_trials_stand_beside_what_serves_and_end_with_promotion(tmp_path: Path) -> None:
    registry = tried(ModelRegistry(tmp_path / "models"), tmp_path)
    registry.try_out("shop", "0002", "shadow", actor="ann")
    registry.try_out("shop", "0002", "canary", actor="ann")
    registry.try_out("shop", "0003", "shadow", actor="ann")
    assert [v.status for v in registry.versions("shop")] == ["live", "canary", "shadow"]
    assert {trial: v.version for trial, v in registry.trials("shop").items()} == {
        "canary": "0002",
        "shadow": "0003",
    }
    registry.promote("shop", "0002", actor="ann")
    assert [v.status for v in registry.versions("shop")] == ["retired", "live", "shadow"]
    ended = registry.end_trial("shop", "shadow", actor="ann", reason="worse")
    assert registry.get(*ended.split("@")).status == "refused"
    assert registry.trials("shop") == {}
    assert registry.rollback("shop", actor="ann", reason="slower").version == "0001"
    actions = [entry.action for entry in registry.history("shop")]
    assert actions == [
        *("promote", "try_shadow", "try_canary", "try_shadow"),
        *("promote", "end_shadow", "rollback"),
    ]


def test_a_canary_answers_clients_so_it_must_have_passed_its_gate(tmp_path: Path) -> None:
    audited: list[tuple[str, object]] = []
    registry = tried(
        ModelRegistry(
            tmp_path / "models",
            audit=lambda action, _, said: audited.append((action, said["reason"])),
        ),
        tmp_path,
    )
    with pytest.raises(GateRefusedError, match="minimum_gain"):
        registry.try_out("shop", "0003", "canary", actor="ann")
    registry.try_out("shop", "0003", "canary", actor="ann", override="ten minutes, watched")
    assert audited[-1] == ("model.try_canary", "ten minutes, watched")


def test_trials_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    registered(registry, tmp_path, b"one")
    with pytest.raises(ConfigurationError, match="promote one first"):
        registry.try_out("shop", "0001", "shadow", actor="ann")
    registry.promote("shop", "0001", actor="ann")
    with pytest.raises(ConfigurationError, match="serves already"):
        registry.try_out("shop", "0001", "shadow", actor="ann")
    with pytest.raises(ConfigurationError, match="on trial as canary"):
        registry.end_trial("shop", "canary", actor="ann", reason="-")


def test_a_reward_model_serves_nobody(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    registry.register(
        "score", folder(tmp_path, b"x"), {"origin": "adopted", "makes": "reward_model"}, passed=True
    )
    with pytest.raises(ConfigurationError, match="it scores answers"):
        registry.promote("score", "0001", actor="ann")


@pytest.mark.parametrize(
    ("first", "second"), [("policy", "reward_model"), ("reward_model", "policy")]
)
def test_of_two_kinds_under_one_name_the_second_is_refused(
    tmp_path: Path, first: str, second: str
) -> None:
    registry = ModelRegistry(tmp_path / "models")
    late = folder(tmp_path, b"late")
    registry.register(
        "shop", folder(tmp_path, b"one"), {"origin": "adopted", "makes": first}, passed=True
    )
    with pytest.raises(ConfigurationError, match=rf"another kind \({first}\).*name of its own"):
        registry.register("shop", late, {"origin": "adopted", "makes": second}, passed=True)
    assert [one.version for one in registry.versions("shop")] == ["0001"]
    assert (late / "model.safetensors").read_bytes() == b"late"


def test_a_history_that_was_cut_off_stops_nobody(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    for weights in (b"one", b"two", b"three"):
        registered(registry, tmp_path, weights)
    registry.promote("shop", "0001", actor="ann")
    registry.promote("shop", "0002", actor="ann")
    history = tmp_path / "models" / "shop" / "history.jsonl"
    with history.open("a") as file:
        file.write('{"action": "promo')
    assert [v.status for v in registry.versions("shop")] == ["retired", "live", "candidate"]
    registry.promote("shop", "0003", actor="ann")
    assert registry.rollback("shop", actor="ann", reason="slower").version == "0002"
    told = [(entry.action, entry.version) for entry in registry.history("shop")]
    assert told[1:] == [("promote", "0002"), ("promote", "0003"), ("rollback", "0002")]
    assert len(history.read_text().splitlines()) == len(told) + 1, "the torn line stays alone"


def test_a_name_that_is_mistyped_becomes_no_model(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    registered(registry, tmp_path, b"one")
    for change in (
        lambda: registry.rollback("shpo", actor="ann", reason="slower"),
        lambda: registry.end_trial("shpo", "canary", actor="ann", reason="slower"),
    ):
        with pytest.raises(ConfigurationError, match="no model 'shpo'"):
            change()
    with pytest.raises(FileNotFoundError):
        registry.adopt("shpo", tmp_path / "absent", actor="ann", reason="ours")
    assert registry.names() == ["shop"]


@pytest.mark.parametrize(
    "content", ["", "{", "{}", "[]", '{"version": 1}', '{"version": "1", "trials": 5}']
)
def test_a_pointer_that_is_none_is_named_and_can_be_put_right(tmp_path: Path, content: str) -> None:
    registry = ModelRegistry(tmp_path / "models")
    registered(registry, tmp_path, b"one")
    registry.promote("shop", "0001", actor="ann")
    pointer = tmp_path / "models" / "shop" / "live.json"
    pointer.write_text(content)
    for change in (
        lambda: registry.live("shop"),
        lambda: registry.versions("shop"),
        lambda: registry.promote("shop", "0001", actor="ann"),
        lambda: registry.rollback("shop", actor="ann", reason="slower"),
    ):
        with pytest.raises(ConfigurationError, match=r"live\.json: .*promote a version"):
            change()
    pointer.unlink()
    assert registry.promote("shop", "0001", actor="ann").status == "live"


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", "null", "\\x00", '{"name": "other"}'])
def test_a_manifest_that_is_none_is_named(tmp_path: Path, content: str) -> None:
    registry = ModelRegistry(tmp_path / "models")
    registered(registry, tmp_path, b"one")
    (tmp_path / "models" / "shop" / "0001" / "manifest.json").write_text(content)
    for ask in (
        lambda: registry.versions("shop"),
        lambda: registry.promote("shop", "0001", actor="ann"),
    ):
        with pytest.raises(ConfigurationError, match=r"manifest\.json: cannot be read .*restore"):
            ask()


def test_what_serves_can_be_changed_after_its_folder_was_removed(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    for weights in (b"one", b"two", b"three"):
        version = registered(registry, tmp_path, weights)
        registry.promote("shop", version.version, actor="ann")
    shutil.rmtree(version.path)
    shutil.rmtree(version.path.parent / "0002")
    back = registry.rollback("shop", actor="ann", reason="gone")
    assert back.version == "0001"
    assert (
        registry.history("shop")[-1].reason == "gone; passed over: shop@0002 is not there any more"
    )


def test_a_trial_ends_after_its_folder_was_removed(tmp_path: Path) -> None:
    told: list[str] = []
    registry = ModelRegistry(
        tmp_path / "models", audit=lambda _action, label, _: told.append(label)
    )
    for weights in (b"one", b"two"):
        registered(registry, tmp_path, weights)
    registry.promote("shop", "0001", actor="ann")
    registry.try_out("shop", "0002", "canary", actor="ann")
    shutil.rmtree(tmp_path / "models" / "shop" / "0002")
    assert registry.end_trial("shop", "canary", actor="ann", reason="removed") == "shop@0002"
    assert registry.trials("shop") == {}
    assert told[-1] == "shop@0002"


@pytest.mark.parametrize("by", ["end", "another trial", "promotion"])
def test_the_lake_hears_that_a_removed_version_serves_nobody_any_more(
    tmp_path: Path, by: str
) -> None:
    """Else the guard for changes on trial would forbid every later one."""
    lake = lake_of(tmp_path / "lake", Session(1))
    registry = ModelRegistry(tmp_path / "models", source=lake)
    for weights in (b"one", b"two", b"three"):
        registered(registry, tmp_path, weights)
    registry.promote("shop", "0001", actor="ann")
    gone = "0001" if by == "promotion" else "0002"
    registry.try_out("shop", "0002", "canary", actor="ann")
    shutil.rmtree(tmp_path / "models" / "shop" / gone)
    if by == "end":
        registry.end_trial("shop", "canary", actor="ann", reason="removed")
    elif by == "another trial":
        registry.try_out("shop", "0003", "canary", actor="ann")
    else:
        registry.promote("shop", "0003", actor="ann")
    latest = lake.query("SELECT version, status FROM models_latest").to_pylist()
    assert {row["version"]: row["status"] for row in latest}[gone] == "retired"


def test_a_new_version_never_takes_the_place_of_a_removed_one_that_serves(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    for weights in (b"one", b"two"):
        version = registered(registry, tmp_path, weights)
    registry.promote("shop", "0002", actor="ann")
    shutil.rmtree(version.path)
    fresh = registered(registry, tmp_path, b"three", passed=False)
    assert (fresh.version, fresh.status) == ("0003", "refused")
    assert registry.promote("shop", "0001", actor="ann").status == "live"


def test_no_name_leads_to_another_folder(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    registered(registry, tmp_path, b"one")
    for name, version in (("shop", "../shop/0001"), ("../models/shop", "0001"), ("shop", "")):
        with pytest.raises(ConfigurationError, match="is no name"):
            registry.promote(name, version, actor="ann")


def full_disk(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_on_a_full_disk_neither_pointer_nor_history_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = ModelRegistry(tmp_path / "models")
    for weights in (b"one", b"two"):
        registered(registry, tmp_path, weights)
    registry.promote("shop", "0001", actor="ann")
    with monkeypatch.context() as patch:
        patch.setattr("train.registry.pointer.append_line", full_disk)
        with pytest.raises(OSError, match="No space left"):
            registry.promote("shop", "0002", actor="ann")
    assert [v.status for v in registry.versions("shop")] == ["live", "candidate"]
    registry.promote("shop", "0002", actor="ann")
    assert [entry.version for entry in registry.history("shop")] == ["0001", "0002"]


def test_a_model_that_could_not_be_registered_is_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = ModelRegistry(tmp_path / "models")
    trained = folder(tmp_path, b"learned")
    with monkeypatch.context() as patch:
        patch.setattr("train.registry.folders.replace_file", full_disk)
        with pytest.raises(OSError, match="No space left"):
            registry.register("shop", trained, {"origin": "adopted"}, passed=True)
    assert (trained / "model.safetensors").read_bytes() == b"learned"
    one = registry.register("shop", trained, {"origin": "adopted"}, passed=True)
    assert (one.label, one.path.joinpath("model.safetensors").read_bytes()) == (
        "shop@0001",
        b"learned",
    )


def test_what_the_lake_could_not_be_told_it_hears_with_the_next_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.open(str(tmp_path / "lake"))
    registry = ModelRegistry(tmp_path / "models", source=lake)

    def known() -> list[tuple[str, str, str | None]]:
        rows = lake.query("SELECT version, status, actor FROM models_latest ORDER BY version")
        return [(row["version"], row["status"], row["actor"]) for row in rows.to_pylist()]

    registered(registry, tmp_path, b"one")
    with monkeypatch.context() as patch:
        patch.setattr(lake, "append_rows", full_disk)
        with pytest.raises(OSError, match="No space left"):
            registry.promote("shop", "0001", actor="ann")
        with pytest.raises(OSError, match="No space left"):
            registered(registry, tmp_path, b"two")
    assert known() == [("0001", "candidate", None)]
    registered(registry, tmp_path, b"three")
    assert known() == [
        ("0001", "live", "ann"),
        ("0002", "candidate", None),
    ]
