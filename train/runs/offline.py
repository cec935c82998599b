"""Keeps the training libraries offline, silent, and inside the run's own scratch folder."""

import json
import logging
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path

from trajectory.errors import ConfigurationError
from trajectory.files import read_file

LOCAL_DATA = {"local_files_only": True, "trust_remote_code": False}
"""How the library loads a folder: nothing is fetched, and no program in it is run or asked about."""
_OFFLINE = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_WAIT_POLICY": "PASSIVE",
}


@contextmanager
def quiet_libraries(scratch: Path, **variables: str) -> Iterator[None]:
    """Run a block with telemetry off, hubs offline and caches in ``scratch``, deleted afterwards.

    Caches of rows hold governed content; they must not outlive the run or lie outside it.
    """
    settings = {
        **_OFFLINE,
        "HF_DATASETS_CACHE": str(scratch / "datasets"),
        "TMPDIR": str(scratch),
        **variables,
    }
    before = {name: os.environ.get(name) for name in settings}
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ.update(settings)
    _switch_off_loaded()
    try:
        # What they print must not stand among what a command prints as JSON.
        with warnings.catch_warnings(), redirect_stdout(sys.stderr):
            # Third-party notices about their own future; ours are errors in our tests.
            warnings.simplefilter("ignore")
            yield
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _switch_off_loaded() -> None:
    """Switch off what was already imported and has read its environment before us."""
    constants = sys.modules.get("huggingface_hub.constants")
    if constants is not None:
        constants.HF_HUB_DISABLE_TELEMETRY = True  # type: ignore[attr-defined]
        constants.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
    # These log whole prompts when something is odd about a row.
    for name in ("trl", "transformers", "datasets"):
        logging.getLogger(name).setLevel(logging.ERROR)


def require_safe_weights(base: Path) -> None:
    """Refuse weights that may be programs, and settings of far more layers than there are weights for.

    Raises:
        ConfigurationError: an index is broken or names weights other than its folder's safetensors. The library
        would build layers for minutes before it says that they have no weights.
    """
    _require_weights_of_layers(base)
    index = base / "model.safetensors.index.json"
    if not index.exists():
        return
    try:
        named = {*json.loads(read_file(index))["weight_map"].values()}
        sound = all(Path(one).name == one and one.endswith(".safetensors") for one in named)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise ConfigurationError(
            f"{index} names other weights than *.safetensors beside it, or is no index; "
            "other weights may be programs: save the model as safetensors"
        )


_LAYERS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer")
_MOST_LAYERS = 1_000
"""Layers that no weights need to stand for: some models use the same ones again."""


def _require_weights_of_layers(base: Path) -> None:
    try:
        settings = json.loads(read_file(base / "config.json"))
        parts = [settings, *(part for part in settings.values() if isinstance(part, dict))]
        said = [part[name] for part in parts for name in _LAYERS if name in part]
    except (OSError, ValueError, AttributeError, RecursionError):
        return  # the library says what is wrong with it
    layers = max((number for number in said if isinstance(number, int | float)), default=0)
    if layers > _MOST_LAYERS and layers > (tensors := _tensors(base)):
        raise ConfigurationError(
            f"{base / 'config.json'} names {layers:,} layers, and the weights hold {tensors:,} tensors; "
            "restore the settings that the model was saved with"
        )


def _tensors(base: Path) -> int:
    """Count the tensors of a folder by the headers of its weight files."""
    from safetensors import SafetensorError, safe_open

    count = 0
    for path in base.glob("*.safetensors"):
        with suppress(OSError, SafetensorError), safe_open(path, framework="numpy") as opened:
            count += len(opened.keys())
    return count
