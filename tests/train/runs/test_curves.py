"""Curves are read back as they were written, and drawn in one line."""

import math
from pathlib import Path

from train.runs.curves import curve, draw, forget_after, read_metrics


def test_no_file_is_no_curve(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "metrics.jsonl") == []


def test_curve_takes_the_records_that_have_the_metric(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 1, "loss": 2.0}\n{"step": 1, "train_runtime": 3}\n{"step": 1, "loss": null}\n{"step": 2, "loss": 1}\n'
    )
    assert curve(read_metrics(path), "loss") == [(1, 2.0), (2, 1.0)]


def test_a_record_that_a_full_disk_cut_off_is_left_out(tmp_path: Path) -> None:
    """Else the run could never be resumed."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(
        b'{"step": 1, "loss": 2.0}\n{"step": 2, "lo\0\0\n{"step": 3, "loss": 1.0}\n{"st'
    )
    assert curve(read_metrics(path), "loss") == [(1, 2.0), (3, 1.0)]
    forget_after(path, 1)
    assert path.read_text() == '{"step": 1, "loss": 2.0}\n'


def test_drawing_shows_the_shape_and_what_is_not_finite() -> None:
    assert draw([3.0, 2.0, 1.0]) == "█▅▁"
    assert draw([1.0, math.nan]) == "▁!"
    assert draw([]) == ""
    assert len(draw([float(n) for n in range(1000)], width=40)) == 40
