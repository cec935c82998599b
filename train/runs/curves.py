"""Curves of a run: every number that the trainer logs, as JSON lines, and their drawing."""

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from train.substrate.source import Progress
from trajectory.files import READABLE, read_json_lines, replace_file

SECONDS = "seconds"
"""In a record: how long training took by then."""
_BLOCKS = "▁▂▃▄▅▆▇█"


def metrics_callback(path: Path, progress: Progress, *, spent: float = 0.0) -> Any:
    """Return a trainer callback that appends each logged record to ``path`` and reports progress.

    A record says how many seconds training took by then, ``spent`` of them before this process went on with it. A
    loss that is not finite stops the run; the caller sees it as the last record.
    """
    from transformers import TrainerCallback

    begun = time.monotonic() - spent

    class MetricsCallback(TrainerCallback):  # type: ignore[misc]
        """Writes metrics and stops at NaN."""

        def on_log(
            self,
            args: Any,  # noqa: ARG002 (the trainer gives it)
            state: Any,
            control: Any,
            logs: Any = None,
            **_: Any,
        ) -> None:
            seconds = round(time.monotonic() - begun, 3)
            record = {"step": state.global_step, **(logs or {}), SECONDS: seconds}
            if state.is_world_process_zero:
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record, default=float) + "\n")
            loss = record.get("loss")
            if isinstance(loss, float) and not math.isfinite(loss):
                control.should_training_stop = True

        def on_step_end(
            self,
            args: Any,  # noqa: ARG002 (the trainer gives it)
            state: Any,
            control: Any,  # noqa: ARG002 (the trainer gives it)
            **_: Any,
        ) -> None:
            progress("train", state.global_step, state.max_steps)

    return MetricsCallback()


def forget_after(path: Path, step: int) -> None:
    """Drop the records of later steps, which the run that begins or goes on will write anew."""
    kept = [record for record in read_metrics(path) if record["step"] <= step] if step else []
    if path.exists():
        text = "".join(json.dumps(record, default=float) + "\n" for record in kept)
        replace_file(path, text.encode(), READABLE)


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Return the records of a ``metrics.jsonl``; none when there is no such file.

    One that a full disk or a power cut cut off is left out.
    """
    return read_json_lines(path)


def curve(records: Sequence[dict[str, float]], name: str) -> list[tuple[int, float]]:
    """Return (step, value) of one metric."""
    known = (record for record in records if record.get(name) is not None)
    return [(int(record["step"]), float(record[name])) for record in known]


def draw(values: Sequence[float], *, width: int = 60) -> str:
    """Return a one-line drawing of a curve; not finite values are shown as ``!``."""
    if len(values) > width:
        size = len(values) / width
        values = [values[int(index * size)] for index in range(width)]
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(
        _BLOCKS[round((value - low) * scale)] if math.isfinite(value) else "!" for value in values
    )
