"""Curves of a training run, drawn with characters."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from headrace.render import console

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 60
_SHOWN = ("loss", "reward", "kl", "rewards/margins", "grad_norm", "learning_rate")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's ``metrics.jsonl``; none when it has no such file."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def draw(metrics: list[dict[str, Any]]) -> None:
    """Draw loss, reward and KL, as far as the run has them, with their first and last value."""
    curves: dict[str, list[float]] = defaultdict(list)
    for line in metrics:
        for name, value in line.items():
            if name in _SHOWN and isinstance(value, int | float):
                curves[name].append(float(value))
    for name in _SHOWN:
        if curves[name]:
            first, last = curves[name][0], curves[name][-1]
            console().print(f"{name:>16}  {sparkline(curves[name])}  {first:.4g} → {last:.4g}")


def sparkline(values: list[float], *, width: int = _WIDTH) -> str:
    """Return ``values`` as a line of bars, averaged to at most ``width`` characters."""
    size = max(1, -(-len(values) // width))
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    means = [sum(group) / len(group) for group in groups]
    low, high = min(means), max(means)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((mean - low) * scale)] for mean in means)
