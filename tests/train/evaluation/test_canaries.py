"""A model that learned a secret word by word is caught; one that did not is not accused."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.train.runs.test_fit import spec
from train.evaluation.canaries import probe
from train.recipes.base import Rows
from train.recipes.settings import CanarySettings
from train.runs.fit import fit
from train.runs.rows import Masker
from trajectory.errors import ConfigurationError

pytestmark = pytest.mark.filterwarnings("ignore")

SECRET = "zq9-77"


def secret_rows(tokenizer: Any) -> Rows:
    ask = {"role": "user", "content": "Key?"}
    (row,) = Masker(tokenizer).mask([ask, {"role": "assistant", "content": SECRET}], [1]).rows
    columns: dict[str, list[Any]] = {"input_ids": [row.input_ids] * 16, "labels": [row.labels] * 16}
    return Rows(columns, Counter(), tuple(str(n) for n in range(16)))


@pytest.mark.slow
def test_memorised_secret_is_found_and_others_are_not(tiny_model: Path, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.txt"
    secrets.write_text(f"{SECRET}\nanother-one\n")
    settings = CanarySettings(prompts=("Key?",), file=secrets, new_tokens=12)
    assert probe(tiny_model, settings).leaked == 0
    learned = fit(
        spec(epochs=30, learning_rate=0.02),
        base=tiny_model,
        make_rows=secret_rows,
        out=tmp_path / "r",
    )
    report = probe(learned.model, settings)
    assert (report.secrets, report.leaked) == (2, 1)
    assert SECRET not in repr(report)
    brief = settings.model_copy(update={"new_tokens": 1})
    assert probe(learned.model, brief).leaked == 1, "a secret is longer than what is said otherwise"


def test_missing_file_is_an_error_not_a_pass(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"canaries\.file"):
        probe(tiny_model, CanarySettings(file=tmp_path / "none"))
