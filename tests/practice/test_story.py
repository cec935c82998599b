"""What the demo shows last: what was measured, and the control that tells where the gain comes from."""

import pytest

from examples.practice.story import Result, Story


def test_the_control_stands_in_the_last_table_once_it_was_tried(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Story(as_json=False).last_table(Result(seed=7))
    assert "control" not in capsys.readouterr().out
    tried = Result(seed=7, control_success=0.38, control_ci=(0.31, 0.45))
    Story(as_json=False).last_table(tried)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "control" in line]
    assert "failed sessions" in line
    assert line.strip("│ ").endswith("38%  [31%, 45%]")
