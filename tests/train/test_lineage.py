"""Lineage of what is not there says so; a step that no model had says that too."""

from pathlib import Path

import pytest

from tests.train.lakes import Session, lake_of
from tests.train.test_substrate import build
from train.lineage import lineage_of_exchange, lineage_of_model, lineage_of_step
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
