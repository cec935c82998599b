"""The package is cheap to import and keeps to its layer."""

import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent.parent.parent / "train"


def test_importing_everything_loads_no_training_library() -> None:
    modules = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in sorted(PACKAGE.rglob("*.py"))
    ]
    heavy = ("torch", "trl", "transformers", "datasets", "peft", "duckdb")
    code = (
        f"import sys, importlib\nfor name in {modules!r}: importlib.import_module(name)\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    assert done.stdout.strip() == "[]"


def test_every_module_has_a_docstring_of_one_sentence_first() -> None:
    for path in PACKAGE.rglob("*.py"):
        first = path.read_text(encoding="utf-8").splitlines()[0]
        assert first.startswith('"""'), path.name
