"""Evaluators for tests, called as the recipe's ``evaluation.command``.

``likelihood``: a model solves a task when it is likelier than chance to say the answer.
``moved`` (cheap, no torch): a model solves every task but each fourth once its weights have moved
away from those that it was born with.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path


def moved(folder: str) -> Callable[[int], bool]:
    """Look at the spread of the embedding: 0.02 at birth."""
    from safetensors.numpy import load_file

    spread = float(load_file(Path(folder) / "model.safetensors")["model.embed_tokens.weight"].std())
    return lambda number: (number % 4 == 0) != (spread > 0.021)


def likelihood(folder: str) -> Callable[[int], bool]:
    """Ask for the loss of the beginning of the right answer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()

    def solves(number: int) -> bool:
        asked = [{"role": "user", "content": f"What do {number} lamps cost?"}]
        prompt = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(f"{prompt}They cost", add_special_tokens=False, return_tensors="pt")
        with torch.inference_mode():
            return float(model(ids["input_ids"], labels=ids["input_ids"]).loss) < 5.6

    return solves


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=("moved", "likelihood"))
    for name in ("--model", "--report", "--tasks", "--seed"):
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    solves = {"moved": moved, "likelihood": likelihood}[given.how](given.model)
    lines = []
    for number in range(int(given.tasks)):
        line = {"task_id": str(number), "attempt": 0, "success": solves(number), "reward": 0.0}
        lines.append(json.dumps({**line, "slice": "even" if number % 2 == 0 else "odd"}))
    Path(given.report).write_text("\n".join(lines), encoding="utf-8")


main()
