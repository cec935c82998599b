"""What a run ran on: code, lock, libraries and machine, for its manifest."""

import os
import platform
import resource
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from trajectory.canonical import bytes_hash

_LIBRARIES = ("headrace", "torch", "transformers", "trl", "peft", "accelerate", "datasets")
_ROOT = Path(__file__).parent.parent


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
