"""A network that says what a test wants, with the tokenizer and template of a real model."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.serving.server import ModelServer
from tests.train.conftest import make_tokenizer
from train.generation import Engine
from train.runs.rows import Masker

LABEL = "shop@0001"
KEY = "sk-gate"
CALL = '<tool_call>price {"item": "lamp"}</tool_call>'
SAID = "It costs ünïcode 9."


class ScriptedNetwork:
    """Calls its tool where it was not called yet, and tells the price where it was."""

    slots = 4
    context_tokens = 100_000

    def __init__(self) -> None:
        self.tokenizer: Any = make_tokenizer()
        self.masker = Masker(self.tokenizer)
        self.ends = frozenset({self.tokenizer.eos_token_id})
        self.prompts: list[list[int]] = []
        self.says: str | None = None
        """What is said instead."""

    def begin(self, prompt: Sequence[int]) -> tuple[list[int], Any]:
        self.prompts.append(list(prompt))
        told = "tool\n9<|im_end|>" in self.tokenizer.decode(list(prompt))
        text = self.says or (SAID if told else CALL)
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        left = [*ids, self.tokenizer.eos_token_id]
        return left, self._next(left)

    def step(self, sequences: Sequence[list[int]], tokens: Sequence[int]) -> list[Any]:
        return [self._next(left) for left in sequences]

    def end(self, sequence: list[int]) -> None:
        sequence.clear()

    def _next(self, left: list[int]) -> Any:
        import torch

        logits = torch.zeros(len(self.tokenizer))
        logits[left.pop(0)] = 50.0
        return logits


@contextmanager
def scripted_server() -> Iterator[tuple[str, ScriptedNetwork]]:
    """Serve such a network; give the address and the network."""
    network = ScriptedNetwork()
    engine: Engine[Any] = Engine(network)
    try:
        with ModelServer({LABEL: engine}, key=KEY).listen("127.0.0.1", 0) as server:
            yield f"http://127.0.0.1:{server.port}", network
    finally:
        engine.stop()
