"""Lineage of what is not there says so; a step that no model had says that too."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse.lake import Lake
from tests.train.lakes import Session, batch, lake_of
from tests.train.substrate.test_build import build, withdraw
from train.errors import StaleSubstrateError
from train.registry.lineage import lineage_of_exchange, lineage_of_model, lineage_of_step
from train.registry.versions import ModelRegistry
from train.substrate.manifest import SubstrateManifest, load_items
from trajectory.errors import ConfigurationError


def test_step_of_a_substrate_without_model(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(1))
    manifest = build(lake, tmp_path / "out", split={"holdout": 0.0})
    (step_id,) = lineage_of_exchange(lake, "t00001-e0")
    found = lineage_of_step(lake, step_id)
    assert found.substrates == (("shop", manifest.version, "train"),)
    assert found.models == ()
    assert found.origin is not None
    assert found.line() == (
        f"step t00001-0 ← exchange t00001-e0 → substrates shop@{manifest.version} (train) → models none"
    )


def test_unknown_names_are_errors_that_name_the_next_step(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(1))
    with pytest.raises(ConfigurationError, match="headrace trajectory show"):
        lineage_of_step(lake, "none")
    with pytest.raises(ConfigurationError, match="headrace train list"):
        lineage_of_model(lake, "none", "0001")
    assert lineage_of_exchange(lake, "none") == ()


def learned(
    registry: ModelRegistry, lake: Lake, home: Path, found: SubstrateManifest, base: str, run: str
) -> None:
    """Register a version as a run over a whole substrate leaves it."""
    now = datetime.now(UTC)
    row = {
        "run_id": run,
        "recorded_at": now,
        "recipe": "sft",
        "substrate": found.name,
        "substrate_version": found.version,
        "base_model": base,
        "started_at": now,
        "ended_at": now,
        "status": "done",
        "seed": 0,
        "metrics": "{}",
        "manifest": "{}",
    }
    lake.append_rows("runs", [row])
    folder = home / run
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(run.encode())
    items = [entry.item for entry in load_items(found)]
    columns = {
        "item_id": [item.item_id for item in items],
        "tenant_id": [item.tenant_id for item in items],
        "step_ids": [list(item.step_ids) for item in items],
    }
    pq.write_table(pa.table(columns), folder / "items.parquet")
    data = {"purposes": ["train_sft"]}
    manifest = {"origin": "adopted", "base": base, "run_id": run, "data": data}
    manifest["data"] = {
        **data,
        "substrate": found.name,
        "substrate_version": found.version,
        "content_hash": found.content_hash,
    }
    registry.register("shop", folder, manifest, passed=True)


def test_a_model_knows_what_those_that_it_began_with_learned(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(1))
    registry = ModelRegistry(tmp_path / "models", source=lake)
    none_held_out = {"holdout": 0.0}
    first = build(lake, tmp_path / "out", split=none_held_out)
    learned(registry, lake, tmp_path, first, "base", "run-1")
    lake.append(batch(Session(2, tenant="other", subject="b2:subject-2")), app_id="test", version=1)
    second = build(lake, tmp_path / "out", split=none_held_out, where="tenant_id = 'other'")
    learned(registry, lake, tmp_path, second, "shop@0001", "run-2")
    learned(registry, lake, tmp_path, second, "shop@0002", "run-3")

    found = lineage_of_model(lake, "shop", "0003", models=tmp_path / "models")
    assert found.ancestors == ("shop@0002", "shop@0001")
    assert {(row.step_id, row.learned_by) for row in found.rows} == {
        *((f"t00002-{index}", f"shop@000{model}") for index in (0, 1) for model in (2, 3)),
        *((f"t00001-{index}", "shop@0001") for index in (0, 1)),
    }
    assert found.subjects == ("b2:subject-1", "b2:subject-2")
    step = lineage_of_step(lake, "t00001-0", models=tmp_path / "models")
    assert [(use.version, use.inherited_from) for use in step.models] == [
        ("0001", None),
        ("0002", "shop@0001"),
        ("0003", "shop@0002"),
    ]
    assert "shop@0003 [candidate] through shop@0002" in step.line()

    withdraw(lake, "b2:subject-1")
    with pytest.raises(StaleSubstrateError, match=r"shop@0001 learned .* shop@0003 began with it"):
        registry.promote("shop", "0003", actor="ann", override="we need it")


def test_a_folder_of_the_registry_is_known_by_its_label(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"x")
    made = registry.register("shop", folder, {"origin": "adopted"}, passed=True)
    assert registry.label_of(made.path) == "shop@0001"
    assert registry.label_of(tmp_path) is None
