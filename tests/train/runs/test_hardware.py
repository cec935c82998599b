"""The freest GPUs are chosen before any library looks, and what nobody tells is not taken for free."""

import os
from pathlib import Path

import pytest

from train.runs.hardware import choose_gpus, free_gpus

THREE = """\
0, GPU-a, 70000, 81559
1, GPU-b, 200, 81559
2, GPU-c, 3000, 81559
"""


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file whose text nvidia-smi prints."""
    told = tmp_path / "told"
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\ncat "{told}"\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    told.write_text(THREE)
    return told


def test_the_freest_gpu_is_chosen(gpus: Path) -> None:
    assert free_gpus() == 2
    choose_gpus(1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-b"
    choose_gpus(1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-b", "of those that are visible"


def test_as_many_are_chosen_as_there_are_processes(gpus: Path) -> None:
    choose_gpus(2)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-b,GPU-c"


@pytest.mark.parametrize(
    ("visible", "free", "chosen"),
    [("0,2", 1, "GPU-c"), ("GPU-a", 0, "GPU-a"), ("", 0, ""), ("GPU-c,GPU-a", 1, "GPU-c")],
)
def test_only_visible_gpus_count(
    visible: str, free: int, chosen: str, gpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert free_gpus() == free
    choose_gpus(1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == chosen


def test_memory_that_nobody_tells_is_not_taken_for_free(gpus: Path) -> None:
    gpus.write_text("0, GPU-a, [N/A], [N/A]\n1, GPU-b, 80000, 81559\n")
    assert free_gpus() == 0
    choose_gpus(1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-b"


def test_one_gpu_is_left_as_it_is(gpus: Path) -> None:
    gpus.write_text("0, GPU-a, [N/A], [N/A]\n")
    choose_gpus(1)
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    gpus.write_text("No devices were found\n")
    choose_gpus(1)
    assert (free_gpus(), "CUDA_VISIBLE_DEVICES" in os.environ) == (0, False)
