"""What a run began with, so that it goes on with the same and nothing else."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError
from trajectory.files import damaged_file, read_object

LAST = "last"
"""Instead of a run's id: the newest run that began with the same."""
ORDER = "order.json"
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class RunOrder:
    """Substrate, base and recipe of a run, written before training begins.

    Who goes on with a run must go on with the same: else its papers would name what it did not learn.
    """

    substrate: str
    """``name@version``."""
    base: str
    """Folder of the base."""
    base_weights_hash: str
    recipe: Mapping[str, Any]

    @classmethod
    def read(cls, runs: Path, run_id: str) -> "RunOrder":
        """Return the order of a run that has not ended.

        Raises:
            ConfigurationError: there is no such run, or it has ended.
        """
        known = sorted(path.parent.name for path in runs.glob(f"*/{ORDER}"))
        if run_id not in known:
            raise ConfigurationError(
                f"no run {run_id!r} to go on with; there are {', '.join(known) or 'none'}"
            )
        ended = runs / run_id / MANIFEST
        if ended.is_file():
            made = read_object(ended, "restore it").get("model")
            raise ConfigurationError(f"run {run_id} has ended: it made {made}; start a new one")
        path, remedy = runs / run_id / ORDER, "restore it, or start a new run"
        said = read_object(path, remedy)
        try:
            return cls(**said)
        except TypeError as error:
            raise damaged_file(path, error, remedy) from None

    def interrupted(self, runs: Path, resume: str | None) -> str | None:
        """Return the run to go on with: the named one, or for :data:`LAST` the newest that began so.

        Raises:
            ConfigurationError: the named run began with something else, or has ended.
        """
        if resume == LAST:
            return self.unfinished(runs)
        if resume is not None:
            self.require_same(RunOrder.read(runs, resume), resume)
        return resume

    def unfinished(self, runs: Path) -> str | None:
        """Return the newest run that began so and has not ended."""
        mine = canonical_json(asdict(self))
        found = (path for path in runs.glob(f"*/{ORDER}") if path.read_bytes() == mine)
        names = [path.parent.name for path in found if not (path.parent / MANIFEST).is_file()]
        return max(names, default=None)

    def require_same(self, begun: "RunOrder", run_id: str) -> None:
        """Refuse to go on with a run that began otherwise.

        Raises:
            ConfigurationError: naming what differs and how to give the same.
        """
        differs = []
        if self.substrate != begun.substrate:
            differs.append(
                f"it learns from {begun.substrate}, not {self.substrate} "
                f"(--substrate {begun.substrate})"
            )
        if self.base_weights_hash != begun.base_weights_hash:
            differs.append(
                f"it began with the weights {begun.base_weights_hash}, not "
                f"{self.base_weights_hash} (--base {begun.base})"
            )
        if canonical_json(self.recipe) != canonical_json(begun.recipe):
            differs.append("it follows another recipe (its own stands in the run's folder)")
        if differs:
            raise ConfigurationError(
                f"run {run_id} cannot go on so: {'; '.join(differs)}; or start a new run"
            )
