"""The quality gate of substrates: what it asks, what it refuses, and that a refusal writes nothing."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from governance.policy import load_bundle
from governance.policy.quality import ItemColumn, QualitySpec
from lakehouse.lake import Lake
from tests.train.lakes import START, Session, lake_of
from tests.train.substrate.test_build import document
from train.errors import SubstrateRefusedError
from train.substrate.build import build_substrate
from train.substrate.manifest import load_items, load_manifest
from train.substrate.quality import ItemFacts, SubstrateGate
from train.types import ScoredItem
from trajectory.step import Tokens


def gate(**substrate: Any) -> SubstrateGate:
    spec = load_bundle().quality.spec.model_dump(mode="json")
    spec["substrate"] |= substrate
    return SubstrateGate(QualitySpec.model_validate(spec))


def entries(lake: Lake, out: Path) -> list[ScoredItem]:
    return load_items(build_substrate(lake, document(split={"holdout": 0.0}), out=out))


def test_the_projection_has_the_columns_that_policy_may_name() -> None:
    assert {column.value for column in ItemColumn} == {one.name for one in fields(ItemFacts)}


def test_a_sound_substrate_passes_and_says_so_in_its_manifest(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *(Session(at) for at in range(4)))
    out = tmp_path / "out"
    manifest = build_substrate(lake, document(), out=out, gate=gate())
    asked = manifest.quality["expectations"]
    assert asked["messages-present"] == len(manifest.item_ids) > 0
    assert load_manifest(manifest.path).quality == manifest.quality
    again = build_substrate(lake, document(), out=tmp_path / "again", gate=gate())
    assert again.version == manifest.version
    (row, *_) = gate().facts(lake, load_items(manifest))
    assert (row.steps, row.messages, row.missing_messages, row.answers_misplaced) == (2, 5, 0, 0)


def test_a_refused_substrate_is_neither_written_nor_registered(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", Session(1), Session(2, answer="Ask jo.frame@corp-mail.com"))
    few = {
        "expectations": [
            *load_bundle().quality.spec.model_dump(mode="json")["substrate"]["expectations"],
            {
                "name": "reward-in-range",
                "expectation": "expect_column_values_to_be_between",
                "column": "reward",
                "max_value": 0.5,
            },
        ]
    }
    with pytest.raises(SubstrateRefusedError) as refused:
        build_substrate(lake, document(), out=tmp_path / "out", gate=gate(**few))
    assert refused.value.reasons == ("quality:nothing-personal-left×1", "quality:reward-in-range×2")
    assert "corp-mail" not in str(refused.value)
    assert not (tmp_path / "out").exists()
    assert lake.query("SELECT * FROM substrates").num_rows == 0


def test_what_the_lake_no_longer_holds_is_counted(tmp_path: Path) -> None:
    whole = lake_of(tmp_path / "lake", Session(1))
    found = entries(whole, tmp_path / "out")
    empty = lake_of(tmp_path / "empty")
    report = gate().judge(empty, found)
    assert report.reasons == (
        "quality:messages-present×1",
        "quality:steps-present×1",
        "quality:harness-present×1",
    )


def test_tokens_are_judged_in_openenvs_words(tmp_path: Path) -> None:
    def tokens(number: int, logprobs: tuple[float, ...]) -> Tokens:
        return Tokens(
            tenant_id="acme",
            trajectory_id=f"t{number:05d}",
            step_id=f"t{number:05d}-1",
            started_at=START,
            tokenizer_id=None,
            prompt_token_ids=(1, 2),
            completion_token_ids=(3, 4),
            logprobs=logprobs,
            loss_mask=None,
            model_served=None,
            token_fidelity="exact",
        )

    lake = lake_of(
        tmp_path / "lake",
        Session(1, tokens=(tokens(1, (-0.5, -0.1)),)),
        Session(2, tokens=(tokens(2, (-0.5,)),)),
    )
    found = entries(lake, tmp_path / "out")
    codes = {row.item_id: row.token_code for row in gate().facts(lake, found)}
    assert sorted(codes.values(), key=str) == [None, "logprob_misalign"]
    assert gate().judge(lake, found).reasons == ("quality:tokens-as-openenv-wants×1",)


def test_the_newest_days_are_compared_with_those_before(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *(Session(at, reward=float(at % 3)) for at in range(130)))
    found = entries(lake, tmp_path / "out")
    days = {entry.item.started_at.date() for entry in found}
    assert days == {START.date()}
    moved = [shift(entry, index) for index, entry in enumerate(found)]
    policy = {"drift": {"columns": ["reward", "steps"]}}
    same = gate(**policy).judge(lake, moved)
    assert same.reasons == ()
    assert {one.column for one in same.drifts} == {"reward", "steps"}
    better = [
        shift(entry, index, reward=2.0 if index % 2 else 0.0) for index, entry in enumerate(found)
    ]
    assert gate(**policy).judge(lake, better).reasons == ("quality:drift:reward",)
    ahead = replace(better[0].item, started_at=datetime(2099, 1, 1, tzinfo=UTC))
    clock_ahead = [replace(better[0], item=ahead), *better[1:]]
    assert gate(**policy).judge(lake, clock_ahead).reasons == ("quality:drift:reward",)
    assert gate(**policy).judge(lake, moved[:60]).drifts == ()


def shift(entry: ScoredItem, index: int, **changes: Any) -> ScoredItem:
    """Return an item of day 9, every other one of day 10."""
    day = datetime(2026, 11, 9, tzinfo=UTC) + timedelta(days=index % 2, seconds=index)
    return replace(entry, item=replace(entry.item, started_at=day), **changes)
