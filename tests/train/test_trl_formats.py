"""TRL's own data utilities accept our exports: conversational, preference, unpaired, prompt-only."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.train.conftest import make_tokenizer
from tests.trajectory.documents import own_trajectory
from trajectory.canonical import canonical_json
from trajectory.formats.catalog import FORMATS
from trajectory.message import Message, TextPart
from trajectory.portable import PortableSignal, PortableStep, Trajectory

pytestmark = pytest.mark.slow
COLUMNS = {
    "trl-conversational": {"messages", "tools", "reward"},
    "trl-preference": {"prompt", "chosen", "rejected", "tools"},
    "trl-unpaired": {"prompt", "completion", "label", "tools"},
    "trl-prompt-only": {"prompt", "tools"},
}


def trajectories() -> list[Trajectory]:
    """Return two judged answers to one prompt, a good and a bad one."""
    whole = replace(own_trajectory(), signals=())
    made = []
    for words, value in (("It is 42.", 1.0), ("It is 41.", 0.0)):
        last = PortableStep(
            whole.steps[1].observed,
            Message("assistant", (TextPart(words),)),
            signals=(PortableSignal("success", value),),
        )
        made.append(replace(whole, steps=(whole.steps[0], last), trailing=()))
    return made


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer()


@pytest.mark.parametrize("name", COLUMNS)
def test_trl_takes_the_rows_from_a_file(name: str, tokenizer: Any, tmp_path: Path) -> None:
    from datasets import Dataset
    from trl.data_utils import (
        apply_chat_template,
        is_conversational,
        maybe_extract_prompt,
        maybe_unpair_preference_dataset,
    )

    rows = [one.document for one in FORMATS[name].write(trajectories())]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    read = Dataset.from_list(
        [json.loads(line) for line in file.read_text().splitlines()], on_mixed_types="use_json"
    )
    assert set(read.column_names) >= COLUMNS[name] - {"reward"}
    for row in read:
        assert is_conversational(row)
        shown = apply_chat_template(row, tokenizer)
        text = shown.get("text", shown.get("prompt", ""))
        assert "What is 19 + 23?" in text
        given = maybe_extract_prompt(dict(row))
        assert name == "trl-conversational" or given["prompt"]
    if name == "trl-preference":
        unpaired = maybe_unpair_preference_dataset(
            read.select_columns(["prompt", "chosen", "rejected"])
        )
        assert unpaired["label"] == [True, False]
    (first, *_) = FORMATS[name].read(json.loads(json.dumps(rows[0])), "row")
    again = next(iter(FORMATS[name].write(FORMATS[name].read(rows[0], "row")))).document
    assert canonical_json(again) == canonical_json(rows[0])
    assert first.tools == trajectories()[0].tools
