"""A model folder that answers conversations, several at a time, each with its own seed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from train.chat import ChatMessage
from train.chat_template import TemplateRefusedError
from train.runs.fit import end_tokens, load_model, load_tokenizer
from train.runs.rows import Masker
from trajectory.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Asked:
    """A conversation that a model is to go on with."""

    messages: Sequence[ChatMessage] = field(repr=False)
    tools: Sequence[dict[str, Any]] = field(repr=False)
    seed: str
    """Decides what is drawn, whatever else is answered beside it."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a model said."""

    message: ChatMessage = field(repr=False)
    whole: bool
    """Whether it ended its turn itself."""


class Speaker:
    """A loaded model."""

    def __init__(self, folder: Path, *, temperature: float, most_tokens: int) -> None:
        """Load a folder.

        Raises:
            ConfigurationError: it holds no model or tokenizer that can be used.
        """
        import torch

        self._tokenizer = readable_tokenizer(folder, tools=False)
        self._masker = Masker(self._tokenizer)
        model = load_model(folder).eval()
        if torch.cuda.is_available():
            model = model.to("cuda", dtype=torch.bfloat16)
        self._model = model
        self._temperature = temperature
        self._most = most_tokens
        self._room = int(getattr(model.config, "max_position_embeddings", 0) or 1 << 30)
        self._ends = sorted(end_tokens(model, self._tokenizer))

    def answer(self, asked: Sequence[Asked]) -> list[Said | None]:
        """Answer each conversation; None where it cannot be shown, or leaves the context no room."""
        prompts = [self._prompt(one) for one in asked]
        fitting = [at for at, ids in enumerate(prompts) if 0 < len(ids) <= self._room - self._most]
        answers: list[Said | None] = [None] * len(asked)
        if fitting:
            spoken = self._generate([prompts[at] for at in fitting], [asked[at] for at in fitting])
            for at, ids in zip(fitting, spoken, strict=True):
                answers[at] = self._read(prompts[at], ids, asked[at])
        return answers

    def _prompt(self, asked: Asked) -> list[int]:
        try:
            return self._masker.prompt_ids(asked.messages, tools=asked.tools)
        except TemplateRefusedError:
            return []

    def _generate(self, prompts: Sequence[list[int]], asked: Sequence[Asked]) -> list[list[int]]:
        import torch

        longest = max(map(len, prompts))
        pad = self._tokenizer.pad_token_id
        device = self._model.device
        ids = torch.tensor([[pad] * (longest - len(row)) + row for row in prompts], device=device)
        mask = torch.tensor(
            [[0] * (longest - len(row)) + [1] * len(row) for row in prompts], device=device
        )
        noise = [] if self._temperature == 0 else [self._noise(asked)]
        with torch.inference_mode():
            out = self._model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=False,
                max_new_tokens=self._most,
                eos_token_id=self._ends,
                pad_token_id=pad,
                logits_processor=noise,
            )
        return [_until(row, self._ends) for row in out[:, longest:].tolist()]

    def _noise(self, asked: Sequence[Asked]) -> Any:
        """Return what makes the likeliest token one that is drawn (the Gumbel-max way).

        Each conversation has a generator of its own, so what is drawn for it depends on its seed
        alone, not on what is answered in the same batch; two models are given the same noise.
        """
        import torch
        from transformers import LogitsProcessor

        draws = [torch.Generator().manual_seed(_number(one.seed)) for one in asked]
        temperature = self._temperature

        class Noise(LogitsProcessor):  # type: ignore[misc]
            def __call__(self, _: Any, scores: Any) -> Any:
                uniform = torch.stack([torch.rand(scores.shape[1], generator=g) for g in draws])
                gumbel = -torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))
                return scores / temperature + gumbel.to(scores.device)

        return Noise()

    def _read(self, prompt: list[int], ids: list[int], asked: Asked) -> Said:
        message = read_answer(self._tokenizer, ids, prompt=prompt, tools=asked.tools)
        return Said(message, bool(ids) and ids[-1] in self._ends)


def read_answer(
    tokenizer: Any, ids: list[int], *, prompt: list[int], tools: Sequence[dict[str, Any]]
) -> ChatMessage:
    """Return what a model said as a message: its text, and its calls of the tools that it was given.

    What cannot be read as calls is text, as it came.
    """
    from trl.chat_template_utils import parse_response

    text = {"role": "assistant", "content": str(tokenizer.decode(ids, skip_special_tokens=True))}
    if not tools or getattr(tokenizer, "response_template", None) is None:
        return text
    try:
        said = parse_response(tokenizer, ids, prefix=prompt, tools=list(tools))
    except (ValueError, KeyError, TypeError, AttributeError):
        return text
    calls = [_call(place, call) for place, call in enumerate(said.get("tool_calls") or ())]
    if not all(calls):
        return text
    message: ChatMessage = {"role": "assistant", "content": str(said.get("content") or "")}
    return {**message, "tool_calls": calls} if calls else message


def readable_tokenizer(folder: Path, *, tools: bool) -> Any:
    """Load a tokenizer; with ``tools`` one whose tool calls can be read back.

    Raises:
        ConfigurationError: nobody knows how its template's tool calls are read.
    """
    tokenizer = load_tokenizer(folder)
    if tools and getattr(tokenizer, "response_template", None) is None:
        raise ConfigurationError(
            f"{folder}: its tool calls cannot be read back; give its tokenizer a "
            "response_template (how its chat template's tool calls are read)"
        )
    return tokenizer


def _call(place: int, call: Any) -> dict[str, Any] | None:
    function = call.get("function", {})
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    named = {"name": name, "arguments": arguments}
    return {"type": "function", "id": f"call-{place}", "function": named}


def _until(ids: list[int], ends: Sequence[int]) -> list[int]:
    """Return the tokens up to the first end, which belongs to them."""
    end = next((place for place, token in enumerate(ids) if token in ends), len(ids))
    return ids[: end + 1]


def _number(seed: str) -> int:
    return int.from_bytes(blake2b(seed.encode(), digest_size=8).digest()) >> 1
