"""A reward for short answers."""

from collections.abc import Sequence
from typing import Any


def brevity(prompt: Sequence[dict[str, Any]], completion: Sequence[dict[str, Any]]) -> float | None:
    """Return 1 for an empty last answer, less the longer it is; None where nothing was asked."""
    said = str(completion[-1].get("content") or "") if completion else ""
    return 1.0 / (1.0 + len(said)) if prompt else None
