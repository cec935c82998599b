"""Plugins: dialects, detectors, recipes, rewards, environments and proposers of other packages.

A package that is installed beside Headrace names them as entry points of the groups below. Headrace loads them
into its own processes. A plugin runs as the product, sees what the product sees before redaction, and can change
what it does. Install only packages that you would give your captures.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from trajectory.errors import ConfigurationError

DIALECTS = "headrace.dialects"
DETECTORS = "headrace.detectors"
RECIPES = "headrace.recipes"
REWARDS = "headrace.rewards"
ENVIRONMENTS = "headrace.environments"
PROPOSERS = "headrace.proposers"

GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        DIALECTS: ("name", "yields", "matches", "read"),
        DETECTORS: ("name", "version", "entities", "find"),
        RECIPES: ("name", "purpose", "makes", "options", "select", "rows", "trainer"),
        REWARDS: ("__call__",),
        ENVIRONMENTS: ("reset",),
        PROPOSERS: ("name", "surface", "propose"),
    }
)
"""Group of entry points → the members that each of its objects must have."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point of a package."""

    entry: EntryPoint

    @property
    def name(self) -> str:
        """How documents name it."""
        return self.entry.name

    @property
    def package(self) -> str:
        """Name and version of the package that brings it."""
        found = self.entry.dist
        return "an unknown package" if found is None else f"{found.name} {found.version}"

    def load(self) -> Any:
        """Import the object that the entry point names.

        Raises:
            ConfigurationError: it cannot be imported, or is not what its group takes.
        """
        place = f"plugin {self.name!r} ({self.entry.group}) of {self.package}"
        remedy = "mend the package or uninstall it"
        try:
            found = self.entry.load()
        except Exception as error:  # somebody else's code: whatever it raises
            why = f"{type(error).__name__}: {error}"
            raise ConfigurationError(
                f"{place}: {self.entry.value} cannot be loaded ({why}); {remedy}"
            ) from error
        if missing := [one for one in GROUPS[self.entry.group] if not hasattr(found, one)]:
            raise ConfigurationError(
                f"{place}: {self.entry.value} has no {', '.join(missing)}; {remedy}"
            )
        return found


@cache
def plugins(group: str) -> tuple[Plugin, ...]:
    """Return the plugins of a group, by name; nothing is imported.

    Raises:
        ConfigurationError: two packages bring one name.
    """
    found = sorted((Plugin(entry) for entry in entry_points(group=group)), key=lambda p: p.name)
    for one, other in pairwise(found):
        if one.name == other.name:
            raise ConfigurationError(
                f"plugin {one.name!r} ({group}) comes with {one.package} and with {other.package}; "
                "uninstall one of them"
            )
    return tuple(found)


def load_plugins(group: str) -> list[Any]:
    """Return the objects of all plugins of a group.

    Raises:
        ConfigurationError: one cannot be loaded.
    """
    return [plugin.load() for plugin in plugins(group)]


def load_plugin(group: str, name: str) -> Any:
    """Return the object of the plugin of a name; None when no package brings it.

    Raises:
        ConfigurationError: it cannot be loaded.
    """
    return next((plugin.load() for plugin in plugins(group) if plugin.name == name), None)
