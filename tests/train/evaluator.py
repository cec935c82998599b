"""An evaluator for tests, called as the recipe's ``evaluation.command``; cheap, without torch.

A model solves every task but each fourth once its weights have moved away from those that it was
born with.
"""

import argparse
import json
from pathlib import Path


def moved(folder: str) -> bool:
    """Look at the spread of the embedding: 0.02 at birth."""
    from safetensors.numpy import load_file

    spread = float(load_file(Path(folder) / "model.safetensors")["model.embed_tokens.weight"].std())
    return spread > 0.021


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--model", "--report", "--tasks", "--seed"):
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    better = moved(given.model)
    lines = []
    for number in range(int(given.tasks)):
        solved = (number % 4 == 0) != better
        line = {"task_id": str(number), "attempt": 0, "success": solved, "reward": 0.0}
        lines.append(json.dumps({**line, "slice": "even" if number % 2 == 0 else "odd"}))
    Path(given.report).write_text("\n".join(lines), encoding="utf-8")


main()
