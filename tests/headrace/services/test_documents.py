"""Documents of every kind: one shape, one schema, and errors that name file, line and field."""

import json
import shutil
from pathlib import Path

import jsonschema
import pytest
import yaml

from governance.policy import PolicyError, load_bundle
from governance.policy.bundle import SHIPPED
from headrace.cli import run
from headrace.services.documents import check_beside, check_file, json_schema, models

SUBSTRATE = """apiVersion: headrace/v1
kind: Substrate
metadata: {name: shop}
spec:
  purposes: [train_sft]
  reward: {signals: {success: 1.0}}
"""
SCHEDULE = """apiVersion: headrace/v1
kind: Schedule
metadata: {name: nightly}
spec: {cron: "0 2 * * *", substrate: shop.yaml, model: shop, recipes: [sft]}
"""
EVOLUTION = """apiVersion: headrace/v1
kind: Evolution
metadata: {name: night}
spec: {signals: [success]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for file in (SHIPPED / "default").glob("*.yaml"):
        shutil.copy(file, tmp_path)
    return tmp_path


def test_one_schema_takes_every_kind_and_refuses_what_the_models_refuse() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    for text in (SUBSTRATE, SCHEDULE, EVOLUTION):
        document = yaml.safe_load(text)
        assert validator.is_valid(document)
        assert not validator.is_valid({**document, "spec": {**document["spec"], "nope": 1}})
    assert validator.is_valid(yaml.safe_load((SHIPPED / "evolution.yaml").read_text()))
    later = ["Substrate", "Schedule", "Recipe", "Evolution", "Prices", "Artifact"]
    assert [*models()][-6:] == later


def test_documents_of_later_rooms_stand_beside_a_bundle_and_decide_nothing(folder: Path) -> None:
    before = load_bundle(folder).content_hash
    (folder / "night.yaml").write_text(SUBSTRATE + "---\n" + SCHEDULE + "---\n" + EVOLUTION)
    assert load_bundle(folder).content_hash == before
    assert check_beside(folder) == ["Substrate", "Schedule", "Evolution"]
    assert check_file(folder / "night.yaml") == ["Substrate", "Schedule", "Evolution"]
    (folder / "night.yaml").write_text(SUBSTRATE.replace("train_sft", "train_it"))
    with pytest.raises(PolicyError, match=r"night.yaml:5: spec\.purposes\.0: unknown value"):
        check_beside(folder)
    (folder / "night.yaml").write_text(SCHEDULE.replace("[sft]", "[nosuch]"))
    with pytest.raises(PolicyError, match=r"night.yaml:4: .*nosuch"):
        check_beside(folder)


def test_a_kind_that_nobody_reads_is_an_error_that_says_so(folder: Path) -> None:
    (folder / "evolution.yaml").write_text(EVOLUTION.replace("kind: Evolution", "kind: Magic"))
    expected = "evolution.yaml:2: kind: unknown kind 'Magic'"
    with pytest.raises(PolicyError, match=expected):
        load_bundle(folder)
    with pytest.raises(PolicyError, match=expected):
        check_file(folder / "evolution.yaml")


def test_the_command_checks_folders_and_files(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "shop.yaml").write_text(SUBSTRATE)
    redaction = folder / "redaction.yaml"
    redaction.write_text(redaction.read_text().replace("model: embedded", "model: null"))
    assert run(["policy", "check", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["beside"] == "Substrate"
    assert run(["policy", "check", str(folder / "shop.yaml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kinds"] == "Substrate"
    (folder / "shop.yaml").write_text(SUBSTRATE.replace("purposes", "purpose"))
    assert run(["policy", "check", str(folder)]) == 2
    assert "shop.yaml:5: spec.purpose: unknown field" in capsys.readouterr().err
