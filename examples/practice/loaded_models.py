"""Which model answers: a fixed folder, or a registry folder whose ``live.json`` names the version."""

import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from examples.practice.engine import PracticeNetwork
from examples.practice.wire import WireError
from train.generation import Engine

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A loaded version."""

    label: str
    """``practice@v2``: what answers say."""
    folder: Path
    engine: Engine[PracticeNetwork]
    tokenizer: "PreTrainedTokenizerFast"


class ModelLoader:
    """Loads versions when they are first asked for, and lets the last one go when another is live.

    ``fixed`` serves one folder under ``name``. Otherwise ``root/<name>/live.json`` holds
    ``{"version": …}`` and is read again whenever it changes; ``name@version`` asks for a version.
    With ``exact`` answers do not depend on what else is generated at the moment.
    """

    def __init__(
        self,
        *,
        root: Path | None,
        fixed: Path | None,
        name: str = "practice",
        exact: bool = False,
    ) -> None:
        self._root = root
        self._exact = exact
        self._fixed = fixed
        self._name = name
        self._loaded: dict[str, LoadedModel] = {}
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Return the names of what is served."""
        if self._fixed is not None:
            return [self._name]
        assert self._root is not None  # noqa: S101 - one of the two is always given
        return sorted(path.parent.name for path in self._root.glob("*/live.json"))

    def find(self, model: str) -> LoadedModel:
        """Return what answers for a model name.

        Raises:
            WireError: there is no such model.
        """
        label, folder = self._locate(model)
        with self._lock:
            served = self._loaded.get(label)
            if served is None or served.folder != folder:
                served = _load(label, folder, exact=self._exact)
                self._retire(label)
                self._loaded[label] = served
        return served

    def engines(self) -> list[Engine[PracticeNetwork]]:
        """Return the engines that run."""
        with self._lock:
            return [served.engine for served in self._loaded.values()]

    def stop(self) -> None:
        """Let every engine end after what it has under way."""
        for engine in self.engines():
            engine.stop()

    def _locate(self, model: str) -> tuple[str, Path]:
        name, _, version = model.partition("@")
        if self._fixed is not None and name == self._name:
            label = f"{name}@{self._fixed.name}"
            if version in ("", self._fixed.name):
                return label, self._fixed
        elif self._root is not None and name in self.names():
            live = json.loads((self._root / name / "live.json").read_text(encoding="utf-8"))
            version = version or str(live["version"])
            folder = self._root / name / version
            if version.isalnum() and (folder / "config.json").is_file():
                return f"{name}@{version}", folder
        raise WireError(
            404, "not_found_error", f"The model `{model}` does not exist", code="model_not_found"
        )

    def _retire(self, label: str) -> None:
        """Stop the engines of other versions of the same model; they finish what they have."""
        name = label.partition("@")[0]
        for other in [key for key in self._loaded if key.partition("@")[0] == name]:
            self._loaded.pop(other).engine.stop()


def _load(label: str, folder: Path, *, exact: bool) -> LoadedModel:
    from transformers import AutoTokenizer

    engine = Engine(PracticeNetwork(folder, exact=exact))
    return LoadedModel(label, folder, engine, AutoTokenizer.from_pretrained(folder))
