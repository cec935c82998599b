"""The version of Headrace, and the check that its packages are its own."""

import importlib.util
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from trajectory.errors import ConfigurationError

PACKAGES = (
    "headrace",
    "trajectory",
    "proxy",
    "governance",
    "lakehouse",
    "train",
    "evolve",
    "policies",
)


def headrace_version() -> str:
    """Return the installed version, or ``0`` when run from files that were never installed."""
    try:
        return version("headrace")
    except PackageNotFoundError:
        return "0"


def check_packages() -> None:
    """Refuse to start when another project's package shadows one of ours.

    Raises:
        ConfigurationError: names the stranger and where it was found.
    """
    home = Path(__file__).resolve().parent.parent.parent
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if origin is None or origin.parent.parent != home:
            raise ConfigurationError(
                f"the package {name!r} comes from {origin or 'nowhere'}, not from {home}. "
                "Another project shadows it: start from another folder, or set PYTHONSAFEPATH=1."
            )
