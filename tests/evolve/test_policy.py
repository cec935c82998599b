"""A policy says where it is wrong, and its hash tells what it says."""

from pathlib import Path

import pytest

from evolve.policy import load_evolution
from trajectory.errors import DocumentError

HEAD = "apiVersion: headrace/v1\nkind: Evolution\nmetadata: {name: ours}\n"


def written(tmp_path: Path, spec: str) -> Path:
    path = tmp_path / "evolution.yaml"
    path.write_text(HEAD + "spec:\n" + spec, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("spec", "line", "problem"),
    [
        ("  signals: []\n", 5, "spec.signals"),
        ("  signals: [succes]\n", 5, "success"),
        ("  signals: [success, success]\n", 4, "twice"),
        ("  signals: [success]\n  window: {case_nights: 0}\n", 6, "case_nights"),
        ("  signals: [success]\n  rules:\n    - {name: a, when: {}, surface: moon}\n", 7, "surface"),
        (
            "  signals: [success]\n  rules:\n"
            "    - {name: a, when: {is_new: true}, surface: rollback}\n", 7, "name its dimension",
        ),
        (
            "  signals: [success]\n  rules:\n"
            "    - {name: a, when: {no_cluster: true, dimension: tool}, surface: weights}\n",
            7, "exclude each other",
        ),
        ("  signals: [success]\n  judge: x\n", 6, "judge"),
    ],
)  # fmt: skip
def test_a_wrong_policy_names_file_line_and_field(
    tmp_path: Path, spec: str, line: int, problem: str
) -> None:
    path = written(tmp_path, spec)
    with pytest.raises(DocumentError) as caught:
        load_evolution(path)
    assert f"evolution.yaml:{line}:" in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("exam", "problem"),
    [
        ("{model: shop}", "an exam asks something"),
        ("{substrate: shop}", "substrate asks for model"),
        ("{safety: {}, evaluation: {command: [x]}}", "is tried by replay"),
    ],
)
def test_an_exam_that_asks_nothing_is_refused(tmp_path: Path, exam: str, problem: str) -> None:
    spec = f"  signals: [success]\n  promotion: {{ladder: {{exam: {exam}}}}}\n"
    with pytest.raises(DocumentError, match=problem):
        load_evolution(written(tmp_path, spec))


def test_comments_and_layout_do_not_change_the_hash(tmp_path: Path) -> None:
    one = load_evolution(written(tmp_path, "  signals: [success]\n"))
    other = load_evolution(written(tmp_path, "  # why not\n  signals:\n    - success\n"))
    third = load_evolution(written(tmp_path, "  signals: [success]\n  cooldown: {nights: 3}\n"))
    assert one.content_hash == other.content_hash
    assert one.content_hash != third.content_hash
