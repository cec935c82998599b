"""Near-duplicates and examined texts stay out of substrates."""

import json
from pathlib import Path

import pytest

from lakehouse.lake import Lake
from tests.train.lakes import Session, lake_of
from tests.train.substrate.test_build import build, document
from train.substrate.build import build_substrate
from train.substrate.manifest import load_items, load_manifest
from trajectory.errors import ConfigurationError

LONG = (
    "Please tell me what {} brass lamps for the corridor of the old house by the harbour cost, "
    "delivered before the end of the month, with the dimmers that we talked about on the phone."
)


def sessions(**spec: str) -> list[Session]:
    return [
        Session(1, reward=0.5, question=LONG.format("twelve"), answer="They cost 40.", **spec),
        Session(2, reward=1.0, question=LONG.format("twelve "), answer="They cost 40!", **spec),
        Session(3, reward=0.2, question=LONG.format("Twelve"), answer="they cost 40.", **spec),
        Session(4, question="Which screws hold a wooden shelf on a brick wall?"),
    ]


def kept(lake: Lake, out: Path, **spec: object) -> list[str]:
    manifest = build(lake, out, split={"holdout": 0.0}, decontaminate=False, **spec)
    return sorted(entry.item.trajectory_id for entry in load_items(manifest))


@pytest.mark.parametrize(("keep", "stays"), [("rewarded", 2), ("earliest", 1), ("latest", 3)])
def test_the_best_representative_stays(tmp_path: Path, keep: str, stays: int) -> None:
    lake = lake_of(tmp_path / "lake", *sessions())
    near = {"threshold": 0.7, "keep": keep}
    assert kept(lake, tmp_path / "out", near_duplicates=near) == [f"t{stays:05d}", "t00004"]
    assert len(kept(lake, tmp_path / "all")) == 4


def test_attempts_at_one_task_all_stay(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *sessions(group="task-1"))
    assert len(kept(lake, tmp_path / "out", near_duplicates={"threshold": 0.7})) == 4


def test_different_tickets_behind_one_instruction_all_stay(tmp_path: Path) -> None:
    rule = "Read the ticket and answer with one word: refund, delivery, defect or account. " * 9
    goods = ("lamp", "chair", "desk", "sofa", "carpet", "towel")
    tickets = [
        Session(at, question=f"{rule}Ticket {at}: my {good} never came.", answer="delivery")
        for at, good in enumerate(goods, 1)
    ]
    lake = lake_of(tmp_path / "lake", *tickets)
    assert len(kept(lake, tmp_path / "out", near_duplicates={"threshold": 0.8})) == len(goods)


def test_what_a_model_is_examined_on_is_not_learned(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *sessions())
    (tmp_path / "exam.jsonl").write_text(
        json.dumps({"messages": [{"role": "user", "content": LONG.format("twelve")}]})
        + "\nHow many lamps fit into a box of this size, if each needs a hand of room?\n"
    )
    manifest = build_substrate(
        lake,
        document(
            split={"holdout": 0.0},
            reward={"signals": {"success": 1.0}},
            evaluation={"files": ["exam.jsonl"]},
        ),
        out=tmp_path / "out",
        base=tmp_path,
    )
    assert [entry.item.trajectory_id for entry in load_items(manifest)] == ["t00004"]
    assert manifest.left_out_items["evaluation_overlap"] == 3
    assert load_manifest(manifest.path).evaluation_hashes.keys() == {"exam.jsonl"}
    with pytest.raises(ConfigurationError, match=r"missing\.jsonl"):
        build(lake, tmp_path / "no", evaluation={"files": ["missing.jsonl"]})
    (tmp_path / "zero.jsonl").symlink_to("/dev/zero")
    with pytest.raises(ConfigurationError, match=r"zero\.jsonl: cannot be read"):
        build_substrate(
            lake, document(evaluation={"files": ["zero.jsonl"]}), out=tmp_path / "no", base=tmp_path
        )
