"""Registries of recognisers as files: Presidio's format, in which our own rules are written too."""

from pathlib import Path
from typing import Any

import yaml

from trajectory.files import read_file

SHIPPED = Path(__file__).parent
"""Has the registries of our own."""
TOLD_NAMES = SHIPPED / "told_names.yaml"
"""The rules for names behind what tells them, and lists of surnames."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Reads the files ten times as fast where PyYAML has libyaml."""


def read_registry(path: Path) -> dict[str, Any]:
    """Return a registry of recognisers: it may have anchors and aliases."""
    # libyaml's parser crashes at 100,000 lists within lists: it reads the shipped files alone.
    loader = _LOADER if path.parent == SHIPPED else yaml.SafeLoader
    document: dict[str, Any] = yaml.load(read_file(path).decode(), Loader=loader)  # noqa: S506 - safe ones
    return document
