"""An evaluator for tests: a model solves a task when it is likelier than chance to say the answer."""

import argparse
import json
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--model", "--report", "--tasks", "--seed"):
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(given.model)
    model = AutoModelForCausalLM.from_pretrained(given.model).eval()
    lines = []
    for number in range(int(given.tasks)):
        asked = [{"role": "user", "content": f"What do {number} lamps cost?"}]
        prompt = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(f"{prompt}They cost", add_special_tokens=False, return_tensors="pt")
        with torch.inference_mode():
            loss = float(model(ids["input_ids"], labels=ids["input_ids"]).loss)
        success = loss < 5.6
        line = {"task_id": str(number), "attempt": 0, "success": success, "reward": -loss}
        lines.append(json.dumps({**line, "slice": "even" if number % 2 == 0 else "odd"}))
    Path(given.report).write_text("\n".join(lines), encoding="utf-8")


main()
