"""A wrong document says where, what is wrong and what is valid."""

import os
from pathlib import Path

import pytest

from train.recipes.settings import load_recipe
from train.substrate.spec import load_substrate
from trajectory.documents.document import merge
from trajectory.errors import DocumentError

GOOD = """\
apiVersion: headrace/v1
kind: Substrate
metadata: {name: nightly}
spec:
  purposes: [train_sft]
  reward:
    signals: {success: 1.0}
"""


def error_of(tmp_path: Path, text: str) -> str:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(DocumentError) as caught:
        load_substrate(path)
    return str(caught.value).replace(str(path), "s.yaml")


def test_good_document_has_its_defaults(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(GOOD)
    spec = load_substrate(path).spec
    assert (spec.split.by, spec.where) == (("tenant", "group"), "true")


def test_wrong_value_names_line_field_and_valid_values(tmp_path: Path) -> None:
    found = error_of(tmp_path, GOOD.replace("train_sft", "train_sfd"))
    assert found.startswith(
        "s.yaml:5: spec.purposes.0: unknown value. Valid: 'debug', 'eval', 'train_sft'"
    )


@pytest.mark.parametrize("number", [".nan", ".inf", "-.inf"])
def test_a_number_without_an_end_is_none(tmp_path: Path, number: str) -> None:
    found = error_of(tmp_path, GOOD.replace("1.0", number))
    assert "spec.reward.signals.success: input should be a finite number" in found


def test_a_seed_that_no_generator_takes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    head = "apiVersion: headrace/v1\nkind: Recipe\nmetadata: {name: r}\n"
    for seed in (2**32, -1):
        path.write_text(f"{head}spec: {{recipe: sft, training: {{seed: {seed}}}}}\n")
        with pytest.raises(DocumentError, match=r"training\.seed"):
            load_recipe(path)


def test_a_file_beyond_all_measure_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "s.yaml").open("wb") as file:
        file.truncate(400 * 1024 * 1024)
    with pytest.raises(DocumentError, match=r"s\.yaml:1: document: longer than 16 MiB"):
        load_substrate(tmp_path / "s.yaml")


def test_a_pipe_among_documents_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "s.yaml")
    with pytest.raises(DocumentError, match="cannot be read"):
        load_substrate(tmp_path / "s.yaml")


def test_unknown_and_missing_fields_are_named(tmp_path: Path) -> None:
    found = error_of(tmp_path, GOOD.replace("signals:", "signal:"))
    assert "s.yaml:6: spec.reward.signals: is required" in found
    assert "s.yaml:7: spec.reward.signal: unknown field" in found


def test_broken_yaml_names_its_line(tmp_path: Path) -> None:
    assert error_of(tmp_path, "a: [1\nb: 2\n").startswith("s.yaml:2: document: not YAML")
    assert "is empty" in error_of(tmp_path, "")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 2024-99-99", "a: is no value that YAML can read; write it in quotes"),
        ("a: !!int x", "a: is no value that YAML can read; write it in quotes"),
        ("a: 0x" + "f" * 9000, "a: is no value that YAML can read; write it in quotes"),
        (f"a: {2**63}", "a: is no value that YAML can read; write it in quotes"),
        ("[" * 3000, "document: lists within lists beyond reading"),
        ("a: \x07", "document: not YAML (a character that it cannot hold)"),
        ("a: &x [1]\nb: *x", "b: write it out, no alias"),
        ("a: 1\na: 2", "document: a twice"),
        ("days: 0100", "days: YAML reads 0100 as 64; write the number so, or in quotes"),
        ("days: 1:30", "days: YAML reads 1:30 as 90; write the number so, or in quotes"),
        ("days: 1_0", "days: YAML reads 1_0 as 10; write the number so, or in quotes"),
    ],
)
def test_what_yaml_cannot_hold_is_an_error_of_the_document(
    tmp_path: Path, text: str, told: str
) -> None:
    assert error_of(tmp_path, text).endswith(told)


def test_what_is_no_text_is_an_error_of_the_document(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(DocumentError, match=r":1: document: cannot be read \(UnicodeDecodeError\)"):
        load_substrate(tmp_path / "s.yaml")


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"none\.yaml: there is no such file"):
        load_substrate(tmp_path / "none.yaml")


def test_merge_lays_mappings_over_mappings() -> None:
    assert merge({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": 3}, "d": [2]}) == {
        "a": {"b": 3, "c": 2},
        "d": [2],
    }
