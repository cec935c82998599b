"""Generation with the transformers library: one thread, all sequences take turns, a cache for each.

It serves any model that the library loads, on a CPU too. Where vLLM is installed that is what
serves: this engine makes one token of one sequence at a time.
"""

import logging
import queue
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.runs.fit import end_tokens, load_model, load_tokenizer
from train.runs.rows import Masker

if TYPE_CHECKING:
    from torch import Tensor

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn."""

    temperature: float = 1.0
    top_p: float = 1.0
    most_tokens: int | None = None
    """None: as many as the context has room for."""
    seed: int | None = None
    top_logprobs: int = 0


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token."""

    id: int
    logprob: float
    """Natural log of its probability before temperature and top-p."""
    top: tuple[tuple[int, float], ...] = ()
    last: str | None = None
    """Why generation ended with this token: ``stop`` (end of turn) or ``length``."""


@dataclass(slots=True, eq=False)
class Generation:
    """One sequence being generated; the engine's thread alone changes it, but for ``cancelled``."""

    prompt: Sequence[int] = field(repr=False)
    sampling: Sampling
    most: int
    emit: Callable[[Token | None], None]
    """Called from the engine's thread with each token; None when the engine failed or ended."""
    cancelled: bool = False
    draw: random.Random = field(default_factory=random.Random, repr=False)
    made: int = 0
    fed: Sequence[int] = ()
    """What the model is shown next."""
    cache: Any = field(default=None, repr=False)


class EngineStoppedError(RuntimeError):
    """The engine takes no more; another version has taken its place."""


class ContextFullError(ValueError):
    """Prompt and answer do not fit into the model's context; the text says how long they are."""


class Engine:
    """One loaded version. ``submit`` from any thread; ``stop`` ends it after what is under way."""

    def __init__(self, folder: Path, *, most_at_once: int = 16) -> None:
        """Load a model folder.

        Raises:
            ConfigurationError: there is no such model, or its tokenizer has no chat template.
        """
        import torch

        self.tokenizer = load_tokenizer(folder)
        self.masker = Masker(self.tokenizer)
        model = load_model(folder).eval()
        if torch.cuda.is_available():
            model = model.to("cuda", dtype=torch.bfloat16)
        self._model = model
        self._ends = end_tokens(model, self.tokenizer)
        self.context_tokens = int(getattr(model.config, "max_position_embeddings", 0) or 1 << 30)
        self._most = most_at_once
        self._waiting: queue.SimpleQueue[Generation | None] = queue.SimpleQueue()
        self._door = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._serve, name=folder.name, daemon=True)
        self._thread.start()

    def submit(
        self, prompt: Sequence[int], sampling: Sampling, emit: Callable[[Token | None], None]
    ) -> Generation:
        """Queue one sequence.

        Raises:
            ContextFullError: prompt and answer do not fit.
            EngineStoppedError: the engine takes no more.
        """
        room = self.context_tokens - len(prompt)
        most = room if sampling.most_tokens is None else sampling.most_tokens
        if room < 1 or most > room:
            raise ContextFullError(
                f"prompt ({len(prompt)} tokens) and answer ({max(most, 1)} tokens) exceed the "
                f"context of {self.context_tokens} tokens"
            )
        generation = Generation(prompt, sampling, most, emit, fed=prompt)
        generation.draw.seed(sampling.seed)
        with self._door:
            if self._stopped:
                raise EngineStoppedError
            self._waiting.put(generation)
        return generation

    def stop(self) -> None:
        """End after what is under way; does not wait."""
        with self._door:
            self._stopped = True
            self._waiting.put(None)

    def join(self, seconds: float) -> None:
        """Wait until it has ended."""
        self._thread.join(seconds)

    def _serve(self) -> None:
        import torch

        active: list[Generation] = []
        open_for_more = True
        with torch.inference_mode():
            while open_for_more or active:
                open_for_more = self._admit(active) and open_for_more
                active = [one for one in active if not self._advance(one)]

    def _admit(self, active: list[Generation]) -> bool:
        """Take waiting sequences; block when there is nothing else to do. False: no more come."""
        while len(active) < self._most and not (active and self._waiting.empty()):
            generation = self._waiting.get()
            if generation is None:
                return False
            active.append(generation)
        return True

    def _advance(self, one: Generation) -> bool:
        """Make one token of a sequence; True when it is done."""
        import torch

        if one.cancelled:
            return True
        try:
            ids = torch.tensor([list(one.fed)], device=self._model.device)
            out = self._model(
                input_ids=ids, past_key_values=one.cache, use_cache=True, logits_to_keep=1
            )
            one.cache = out.past_key_values
            token = self._token(one, out.logits[0, -1].float())
        except Exception as error:  # noqa: BLE001 - one sequence must not end the others
            _log.error("generation failed: %s", type(error).__name__)  # its text may hold content
            one.emit(None)
            return True
        one.fed = (token.id,)
        one.made += 1
        one.emit(token)
        return token.last is not None

    def _token(self, one: Generation, logits: "Tensor") -> Token:
        logprobs = logits.log_softmax(-1)
        chosen = _choose(logits, one.sampling, one.draw)
        top: tuple[tuple[int, float], ...] = ()
        if one.sampling.top_logprobs:
            values, ids = logprobs.topk(one.sampling.top_logprobs)
            top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
        last = None
        if chosen in self._ends:
            last = "stop"
        elif one.made + 1 >= one.most:
            last = "length"
        return Token(chosen, float(logprobs[chosen]), top, last)


def _choose(logits: "Tensor", sampling: Sampling, draw: random.Random) -> int:
    if sampling.temperature <= 0:
        return int(logits.argmax())
    chances, order = (logits / sampling.temperature).softmax(-1).sort(descending=True)
    cumulated = chances.cumsum(-1)
    kept = min(int((cumulated < sampling.top_p).sum()) + 1, len(cumulated))
    mark = draw.random() * float(cumulated[kept - 1])
    return int(order[min(int((cumulated < mark).sum()), kept - 1)])
