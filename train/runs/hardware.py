"""Records a run's GPUs, code, lock, libraries and machine for its manifest."""

import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from trajectory.canonical import bytes_hash

_LIBRARIES = ("headrace", "torch", "transformers", "trl", "peft", "accelerate", "datasets")
_ROOT = Path(__file__).parent.parent.parent


_FREE_SHARE = 0.9
_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as nvidia-smi tells of it."""

    index: str
    identity: str
    """Its UUID, which no order of devices changes."""
    free: float
    """Share of its memory; 0 where nobody tells."""


def choose_gpus(count: int) -> None:
    """Leave the freest so many of the visible GPUs visible; before any library has looked at them."""
    found = list(_visible_gpus())
    if len(found) > count:
        # The sort is stable: of those as free as each other the first.
        freest = sorted(found, key=lambda gpu: -gpu.free)[:count]
        os.environ[_VISIBLE] = ",".join(gpu.identity for gpu in freest)


def free_gpus() -> int:
    """Return how many visible GPUs have nine tenths of their memory free."""
    return sum(gpu.free >= _FREE_SHARE for gpu in _visible_gpus())


def _visible_gpus() -> Iterator[Gpu]:
    """Yield the GPUs that ``CUDA_VISIBLE_DEVICES`` names, in its order; all when it is not set."""
    found = _gpus()
    visible = os.environ.get(_VISIBLE)
    if visible is None:
        yield from found
        return
    for name in filter(None, map(str.strip, visible.split(","))):
        yield from (gpu for gpu in found if name in (gpu.index, gpu.identity))


def _gpus() -> list[Gpu]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = "--query-gpu=index,uuid,memory.used,memory.total"
    try:
        done = subprocess.run(
            [program, query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except subprocess.TimeoutExpired:
        return []
    lines = (line.split(", ") for line in done.stdout.splitlines())
    return [_gpu(*fields) for fields in lines if len(fields) == 4]


def _gpu(index: str, identity: str, used: str, total: str) -> Gpu:
    try:
        free = 1 - float(used) / float(total)
    except (ValueError, ZeroDivisionError):  # "[N/A]": it shares the machine's memory, or hides it
        free = 0.0
    return Gpu(index, identity, free)


@cache
def code_facts() -> dict[str, Any]:
    """Return versions of the code, its lock and the libraries; None where unknown."""
    lock = _ROOT / "requirements.txt"
    return {
        "commit": _commit(),
        "lock_hash": bytes_hash(lock.read_bytes()) if lock.exists() else None,
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in _LIBRARIES},
    }


def machine_facts() -> dict[str, Any]:
    """Return processor, memory and accelerator of this machine, without its name."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "accelerators": _accelerators(),
    }


def peak_memory_mib() -> float:
    """Return the largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def _accelerators() -> list[str]:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    if not (_ROOT / ".git").exists():
        return None
    done = subprocess.run(
        ["git", "-C", str(_ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None


def best_device() -> str:
    """Return where a loaded model computes fastest here: the GPU, if there is one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
