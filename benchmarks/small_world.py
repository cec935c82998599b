"""A world for ``make bench-training ARGS=--quick``: made-up sessions, a model of some thousand parameters.

It stands where ``benchmarks/gains.py`` has an installation that agents work through, and shows that every
part of the measurement works; what recipes gain here says nothing of larger models.
"""

from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from sys import stderr
from typing import Any

from lakehouse.lake import Lake
from tests.train.conftest import make_model
from tests.train.lakes import Session, lake_of
from train.errors import GateRefusedError
from train.recipes.settings import Recipe, shipped_recipe
from train.registry.versions import ModelRegistry
from train.runs.run import RunFolders, run_training
from train.substrate.build import build_substrate
from train.substrate.manifest import SubstrateManifest, load_manifest
from train.substrate.spec import Substrate
from trajectory.documents.document import merge

MODEL = "practice"
_SECOND_DAY = 720
"""Number of the first session that began then."""
_TRAINING = {"threads": 1, "reporters": [], "save_steps": None}
_EXAM = {
    "replay": {"temperature": 1.0, "completion_tokens": 60, "batch_size": 32},
    "tasks": 20,
}
IMITATION = {"epochs": 8, "learning_rate": 0.03}


def sessions() -> list[Session]:
    """Return two attempts at each task, one right and one wrong, of a day to learn and one to examine."""
    return [
        Session(
            _SECOND_DAY * day + number,
            reward=float(number % 2),
            group=f"{day}-{number // 2}",
            question=f"Lamps, please ({day}{number // 2:02d}).",
            lamps=7,
            answer="They cost 14." if number % 2 else "No idea, sorry.",
        )
        for day in (0, 1)
        for number in range(80)
    ]


@dataclass(frozen=True, slots=True)
class SmallWorld:
    """A home folder with a lake, a substrate and a base that imitates good and bad alike."""

    seed: int
    home: Path

    def make(self, _models: Path) -> None:
        """Fill the lake and make the base."""
        lake_of(self.home / "lake", *sessions())
        spec = {
            "purposes": ["train_sft"],
            "reward": {"signals": {"success": 1.0}},
            "split": {"holdout": 0.0, "holdout_from": "2026-11-02"},
        }
        document = {
            "apiVersion": "headrace/v1",
            "kind": "Substrate",
            "metadata": {"name": "small"},
            "spec": spec,
        }
        build_substrate(self._lake, Substrate.model_validate(document), out=self._substrates)
        born = make_model(self.home / "born", seed=self.seed)
        imitated = self._run(
            "sft",
            {"training": {**IMITATION, "epochs": 12}, "options": {"rewarded_only": False}},
            born,
        )
        reason = "it imitates, and nothing examined it"
        self._registry.promote(MODEL, imitated["version"], actor="benchmark", override=reason)

    @property
    def _lake(self) -> Lake:
        return Lake.open(str(self.home / "lake"), create=False)

    @property
    def _registry(self) -> ModelRegistry:
        return ModelRegistry(self.home / "models", source=self._lake)

    @property
    def _substrates(self) -> Path:
        return self.home / "substrates"

    @property
    def _substrate(self) -> SubstrateManifest:
        (found,) = self._substrates.glob("small/*/manifest.json")
        return load_manifest(found.parent)

    def learn(self, row: Any, _base: Mapping[str, Any] | None) -> dict[str, Any]:
        """Run a row from the base and return what came of it."""
        live = self._registry.live(MODEL)
        assert live is not None
        changes = {
            "evaluation": {**_EXAM, "seed": self.seed},
            "training": dict(row.changes),
            "options": dict(row.options),
        }
        return self._run(row.recipe, changes, live.path)

    def _run(self, recipe: str, changes: Mapping[str, Any], base: Path) -> dict[str, Any]:
        document = merge(
            shipped_recipe(recipe).model_dump(mode="json"),
            merge({"spec": {"training": {**_TRAINING, "seed": self.seed}}}, {"spec": changes}),
        )
        with redirect_stdout(stderr):
            result = run_training(
                self._lake,
                recipe=Recipe.model_validate(document),
                substrate=self._substrate,
                base=base,
                name=MODEL,
                places=RunFolders(self.home / "runs", self._registry),
            )
        return {
            "folder": str(result.folder),
            "version": result.model.version,
            "passed": result.verdict.passed,
            "comparison": None if result.comparison is None else asdict(result.comparison),
        }

    def refuses(self, outcome: Mapping[str, Any]) -> bool:
        """Say whether the registry refuses to promote a candidate."""
        try:
            self._registry.promote(MODEL, outcome["version"], actor="benchmark")
        except GateRefusedError:
            return True
        return False

    def serving(self) -> str:
        """Return the version that serves."""
        live = self._registry.live(MODEL)
        return "none" if live is None else live.version
