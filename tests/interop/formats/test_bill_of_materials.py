"""CycloneDX's own schema accepts the bill of materials of every kind of model."""

import json
from typing import Any

from tests.interop.formats.conftest import run
from train.registry.model_card import bill_of_materials
from train.runs.hardware import code_facts

ADOPTED: dict[str, Any] = {
    "name": "shop",
    "version": "0001",
    "origin": "adopted",
    "weights_hash": "b2:4f1e",
    "registered_at": "2026-11-21T12:00:00+00:00",
}
TRAINED = {
    **ADOPTED,
    "version": "0002",
    "base": "shop@0001",
    "run_id": "20261121T120000-sft-0a0a0a",
    "makes": "policy",
    "data": {
        "substrate": "practice",
        "substrate_version": "3ba826ebf1b4",
        "content_hash": "b2:3ba826ebf1b4",
    },
    "code": code_facts(),
}


def test_their_schema_accepts_what_stands_beside_a_model(python: str) -> None:
    kinds = [ADOPTED, TRAINED, {**TRAINED, "makes": "reward_model"}]
    documents = [json.loads(bill_of_materials(manifest)) for manifest in kinds]
    wrong = {**documents[0], "components": [{"type": "weights", "name": "shop"}]}
    given = json.dumps({"cyclonedx": [*documents, wrong]})
    told = json.loads(run(python, "validate.py", given=given))["cyclonedx"]
    assert told[:3] == ["", "", ""]
    assert "weights" in told[3]
    assert len(documents[1]["components"]) > 3
