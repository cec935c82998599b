"""Artefacts are registered from eligible steps alone, and move as models do."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakehouse.erasure.erase import erase_subject
from lakehouse.lake import Lake
from tests.train.lakes import PURPOSES, Session, lake_of
from train.errors import StaleSubstrateError
from train.registry.artifacts import ArtifactRegistry
from trajectory.artifact import Artifact
from trajectory.errors import ConfigurationError

ALLOWED = (*PURPOSES, "evolve")


def document(name: str = "refunds", tenant: str | None = "acme", **spec: Any) -> Artifact:
    said = {"tenant": tenant, "proposer": "jo", "licence": "CC0-1.0", **spec}
    return Artifact.model_validate(
        {
            "apiVersion": "headrace/v1",
            "kind": "Artifact",
            "metadata": {"name": name},
            "spec": {key: value for key, value in said.items() if value is not None},
        }
    )


def facts(**evidence: list[str]) -> dict[str, Any]:
    told = [{"id": key, "text": f"Fact {key}.", "evidence": e} for key, e in evidence.items()]
    return {"memory": {"facts": told}}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    people = [Session(n, subject=f"b2:subject-{n}", purposes=ALLOWED) for n in range(3)]
    return lake_of(tmp_path / "lake", *people, Session(7, subject="b2:subject-7"))


@pytest.fixture
def registry(lake: Lake, tmp_path: Path) -> ArtifactRegistry:
    return ArtifactRegistry(tmp_path / "artifacts", source=lake)


def test_a_version_says_where_each_fact_comes_from(registry: ArtifactRegistry, lake: Lake) -> None:
    one = registry.register(
        document(**facts(a=["t00000-1"], b=["t00001-0", "t00001-1"])), actor="jo"
    )
    assert (one.label, one.status) == ("refunds@0001", "candidate")
    assert one.manifest["purposes"] == ["evolve"]
    assert one.manifest["provenance"]["b"] == {
        "steps": ["t00001-0", "t00001-1"],
        "subjects": ["b2:subject-1"],
    }
    assert one.subjects == ["b2:subject-0", "b2:subject-1"]
    (row,) = lake.query("SELECT * FROM artifacts_latest").to_pylist()
    assert (row["surface"], row["for_tenant"], row["status"]) == ("memory", "acme", "candidate")
    assert row["evidence"] == one.evidence


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("t00007-0", id="does not allow evolve"),
        pytest.param("t99999-0", id="is nowhere"),
    ],
)
def test_only_eligible_steps_are_evidence(registry: ArtifactRegistry, step: str) -> None:
    with pytest.raises(StaleSubstrateError, match=r"1 of 2 steps of its evidence.*evolve"):
        registry.register(document(**facts(a=["t00000-1", step])), actor="jo")
    with pytest.raises(StaleSubstrateError):
        registry.register(document(tenant="other", **facts(a=["t00000-1"])), actor="jo")
    assert registry.names() == []


def test_versions_are_promoted_tried_and_rolled_back(lake: Lake, tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []

    def audit(action: str, subject: str, _detail: Mapping[str, Any]) -> None:
        told.append((action, subject))

    registry = ArtifactRegistry(tmp_path / "artifacts", source=lake, audit=audit)
    for text in ("Be brief.", "Be kind.", "Be quick."):
        registry.register(document(tenant=None, harness={"append": text}), actor="jo")
    registry.promote("refunds", "0001", actor="jo")
    registry.promote("refunds", "0002", actor="jo")
    assert registry.rollback("refunds", actor="jo", reason="rude").label == "refunds@0001"
    statuses = [one.status for one in registry.versions("refunds")]
    assert statuses == ["live", "retired", "candidate"]
    assert told == [
        *(("artifact.add", f"refunds@000{n}") for n in (1, 2, 3)),
        ("artifact.promote", "refunds@0001"),
        ("artifact.promote", "refunds@0002"),
        ("artifact.rollback", "refunds@0001"),
    ]
    rows = lake.query("SELECT version, status FROM artifacts_latest ORDER BY ALL").to_pylist()
    assert [row["status"] for row in rows] == statuses


def test_a_number_is_never_given_twice(registry: ArtifactRegistry, tmp_path: Path) -> None:
    for text in ("Be brief.", "Be kind."):
        registry.register(document(harness={"append": text}), actor="jo")
    registry.promote("refunds", "0002", actor="jo")
    for file in (folder := tmp_path / "artifacts" / "refunds" / "0002").iterdir():
        file.unlink()
    folder.rmdir()
    third = registry.register(document(harness={"append": "Be quick."}), actor="jo")
    assert third.version == "0003"


def test_a_name_stays_one_kind_for_one_tenant(registry: ArtifactRegistry) -> None:
    registry.register(document(harness={"append": "Be brief."}), actor="jo")
    with pytest.raises(ConfigurationError, match="refunds@0001 is harness for tenant acme"):
        registry.register(document(**facts(a=[])), actor="jo")
    with pytest.raises(ConfigurationError, match="another name"):
        registry.register(document(tenant=None, harness={"append": "Be kind."}), actor="jo")


def test_withdrawn_evidence_stops_a_promotion_and_a_rollback(
    registry: ArtifactRegistry, lake: Lake
) -> None:
    for step in ("t00000-1", "t00001-1"):
        registry.register(document(**facts(a=[step])), actor="jo")
    registry.promote("refunds", "0001", actor="jo")
    registry.promote("refunds", "0002", actor="jo")
    withdraw_evolve(lake, "b2:subject-0")
    with pytest.raises(StaleSubstrateError, match="refunds@0001 was drawn from 1 steps"):
        registry.promote("refunds", "0001", actor="jo")
    with pytest.raises(StaleSubstrateError, match="may serve"):
        registry.rollback("refunds", actor="jo", reason="worse")
    live = registry.live("refunds")
    assert live is not None
    assert live.version == "0002"


def withdraw_evolve(lake: Lake, subject: str) -> None:
    lake.append_rows(
        "consents",
        [
            {
                "tenant_id": "acme", "subject": subject, "purpose": "evolve", "granted": False,
                "source": "test", "recorded_at": datetime.now(UTC), "reference": None,
            }
        ],
    )  # fmt: skip


def test_an_erasure_takes_the_facts_of_one_person_out_of_every_version(
    registry: ArtifactRegistry, lake: Lake, tmp_path: Path
) -> None:
    own = ["t00000-1"], ["t00001-1"]
    registry.register(document(**facts(a=own[0], b=own[1], c=[])), actor="jo")
    registry.register(document(**facts(a=own[0])), actor="jo")
    skill = {"title": "Refund", "trigger": {"phrases": ["refund"]}, "procedure": "Ask first."}
    registry.register(document("asking", evidence=own[0], skill=skill), actor="jo")
    registry.register(document("other", evidence=own[1], skill=skill), actor="jo")
    erase_subject(lake, "acme", ["b2:subject-0"])
    forgotten = registry.sweep()
    assert forgotten.facts == 2
    assert forgotten.versions == ("asking@0001", "refunds@0001", "refunds@0002")
    content = registry.get("refunds", "0001").content
    assert content is not None
    assert content.memory is not None
    assert [fact.id for fact in content.memory.facts] == ["b", "c"]
    assert registry.get("refunds", "0001").subjects == ["b2:subject-1"]
    assert registry.get("refunds", "0002").content is None
    with pytest.raises(StaleSubstrateError, match="holds nothing any more"):
        registry.promote("asking", "0001", actor="jo")
    assert registry.promote("other", "0001", actor="jo").status == "live"
    everything = b"".join(path.read_bytes() for path in (tmp_path / "artifacts").rglob("*.json"))
    assert b"Fact a." not in everything
    assert b"subject-0" not in everything
    assert registry.sweep().versions == ()


def test_the_content_lies_there_as_the_gateway_reads_it(registry: ArtifactRegistry) -> None:
    one = registry.register(document(tenant=None, harness={"append": "Be brief."}), actor="jo")
    assert json.loads((one.path / "artifact.json").read_bytes())["harness"] == {
        "append": "Be brief."
    }
