"""Several processes that train one model: ``accelerate launch`` starts them, one per GPU or per share of cores.

The process that carries out the run makes the rows, once, and writes them with its settings as an
*order* into the run's scratch folder; every process reads it, and the first one writes what came of
it. On further machines that see the same folder ``headrace train join`` starts their share.
"""

import json
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from train.errors import TrainingError
from train.evaluation.evaluate import WORDS, keep_words
from train.recipes.base import Rows
from train.recipes.settings import LaunchSettings, RecipeSpec
from train.runs.hardware import choose_gpus
from trajectory.child_process import ChildProcess, free_port
from trajectory.errors import ConfigurationError, HeadraceError

_ORDER, _OUTCOME = "order.pickle", "outcome.json"
_ERRORS: dict[str, type[HeadraceError]] = {
    error.__name__: error for error in (TrainingError, ConfigurationError)
}


@dataclass(frozen=True, slots=True)
class Order:
    """Arguments for every process of a launch."""

    spec: RecipeSpec
    base: Path
    out: Path
    resume: bool
    rows: Rows = field(repr=False)


def scratch(out: Path) -> Path:
    """Return the folder of a run that is deleted when training has ended."""
    return out / "scratch"


def launch(order: Order) -> dict[str, Any]:
    """Train in several processes and return what the first one measured.

    Raises:
        TrainingError: a process failed; the text is its own, or says where its last words stand.
        ConfigurationError: the recipe's settings do not fit this machine or model.
    """
    settings = order.spec.launch
    if settings is None:
        raise ValueError("this recipe asks for no launch")
    folder = scratch(order.out)
    # What an earlier try of this run left, when it was killed.
    (folder / _OUTCOME).unlink(missing_ok=True)
    written = folder / f"{_ORDER}.new"
    with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        pickle.dump(order, file)
    written.rename(folder / _ORDER)
    _start(settings, order.out, rank=0)
    return read_outcome(order.out)


def join(runs: Path, rank: int, *, seconds: float, pause: float = 1.0) -> str:
    """Start this machine's share of the run that another machine carries out; return its id.

    Args:
        runs: folder of runs, which the machines share.
        rank: this machine's number; the one that carries out the run is 0.
        seconds: how long to wait for a run that wants several machines.
        pause: between looks.

    Raises:
        ConfigurationError: no such run began in time, or it has no machine of this number.
        TrainingError: a process failed.
    """
    end = time.monotonic() + seconds
    while (found := _waiting(runs)) is None:
        if time.monotonic() >= end:
            raise ConfigurationError(
                f"{runs}: no run with several machines began within {seconds:g} s; start one with "
                "`headrace train run` on the first machine, whose home folder this one must share"
            )
        time.sleep(pause)
    out, settings = found
    if not 0 < rank < settings.machines:
        raise ConfigurationError(
            f"--rank {rank}: this run has {settings.machines} machines; the first is 0 and runs "
            f"`headrace train run`, the others are 1 to {settings.machines - 1}"
        )
    choose_gpus(settings.processes // settings.machines)
    _start(settings, out, rank=rank)
    return out.name


def _waiting(runs: Path) -> tuple[Path, LaunchSettings] | None:
    """Return the newest run that wants several machines and has not ended."""
    orders = sorted(runs.glob(f"*/scratch/{_ORDER}"), reverse=True)
    for path in orders:
        settings = read_order(path.parents[1]).spec.launch
        if settings is not None and settings.machines > 1:
            return path.parents[1], settings
    return None


def read_order(out: Path) -> Order:
    """Return the order that lies in a run's scratch folder."""
    order: Order = pickle.loads((scratch(out) / _ORDER).read_bytes())  # noqa: S301 - our own file, mode 0600
    return order


def write_outcome(out: Path, outcome: Mapping[str, Any]) -> None:
    """Leave what came of training where the run looks for it."""
    path = scratch(out) / _OUTCOME
    path.with_suffix(".new").write_text(json.dumps(outcome), encoding="utf-8")
    path.with_suffix(".new").rename(path)


def _start(settings: LaunchSettings, out: Path, *, rank: int) -> None:
    """Run this machine's processes to their end."""
    host, _, port = (settings.address or f"127.0.0.1:{free_port()}").rpartition(":")
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--multi_gpu"]
    command += ["--num_processes", str(settings.processes)]
    command += ["--num_machines", str(settings.machines), "--machine_rank", str(rank)]
    command += ["--main_process_ip", host, "--main_process_port", port]
    command += [
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
        "--module",
        "train.runs.worker",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(_import_path())}
    # What libraries say may hold content: it stays in the run's folder, out of our log and the table of runs.
    with tempfile.TemporaryFile(dir=scratch(out)) as words:
        with ChildProcess(
            [*command, str(out)], stdout=words, stderr=words, environment=environment
        ) as process:
            code = process.wait()
        if code != 0 and not (scratch(out) / _OUTCOME).is_file():
            kept = keep_words(words, out / f"training{WORDS}")
            raise TrainingError(
                f"a training process ended with code {code}; its last words stand in {kept}"
            )


def _import_path() -> list[str]:
    return [path for path in sys.path if path]


def read_outcome(out: Path) -> dict[str, Any]:
    """Return what the processes of a run left, or raise what stopped one of them.

    Raises:
        TrainingError: training failed.
        ConfigurationError: the recipe's settings do not fit this machine or model.
    """
    try:
        found: dict[str, Any] = json.loads((scratch(out) / _OUTCOME).read_text(encoding="utf-8"))
    except OSError:
        raise TrainingError("the training processes ended without a result") from None
    if "error" in found:
        raise _ERRORS.get(found["error"], TrainingError)(found["text"])
    return found
