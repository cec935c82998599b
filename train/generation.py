"""Generation: what a model says, in batches for an evaluation and token by token for clients.

:class:`BatchGenerator` answers many conversations at once with the library's own ``generate``; each has its own
seed. :class:`Engine` serves. Sequences come and go while others are under way, and it hands over each token as it
is drawn. Both load a folder by :class:`LanguageModel`. An evaluation does not use the engine, which feeds one
sequence after another: 16 conversations take it five times as long (8 layers of 384, one core). Where vLLM is
installed, it serves instead of the engine.
"""

import logging
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from train.chat import ChatMessage
from train.chat_template import TemplateRefusedError
from train.model_folder import end_tokens, load_model, load_tokenizer
from train.runs.rows import Masker
from train.shared_prompts import share_prompts
from train.types import Completion, Prompt, Sampling, Token
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import Tensor

_log = logging.getLogger(__name__)
_GREEDY = 1e-30
"""Below this temperature a logit divided by it may be infinite in float32: the likeliest token is the limit."""


class Network[S](Protocol):
    """A loaded model as the engine sees it. ``S`` is what it keeps of one sequence: its cache."""

    @property
    def context_tokens(self) -> int:
        """Longest sequence, prompt and answer together."""

    @property
    def ends(self) -> frozenset[int]:
        """The tokens that end a turn."""

    @property
    def slots(self) -> int:
        """Largest number of concurrent sequences."""

    def begin(self, prompt: Sequence[int]) -> "tuple[S, Tensor]":
        """Read a prompt; return what is kept of it, and the logits of the next token."""

    def step(self, sequences: Sequence[S], tokens: Sequence[int]) -> "Sequence[Tensor | None]":
        """Feed each sequence one token; return the logits of the next, None for one that failed."""

    def end(self, sequence: S) -> None:
        """Forget a sequence."""


class ChatNetwork[S](Network[S], Protocol):
    """A network that a server can show conversations to."""

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, as the transformers library has it."""

    @property
    def masker(self) -> Masker:
        """Renders conversations with the tokenizer's chat template."""


class LanguageModel:
    """A model folder, loaded with its tokenizer: any that the transformers library knows."""

    slots = 16

    def __init__(self, folder: Path) -> None:
        """Load a folder, to the accelerator where there is one.

        Raises:
            ConfigurationError: there is no such model, or its tokenizer has no chat template.
        """
        import torch

        self.tokenizer = load_tokenizer(folder)
        self.masker = Masker(self.tokenizer)
        net = load_model(folder).eval()
        if torch.cuda.is_available():
            net = net.to("cuda", dtype=torch.bfloat16)
        self.net: Any = net
        self.ends = end_tokens(net, self.tokenizer)
        self.context_tokens = int(getattr(net.config, "max_position_embeddings", 0) or 1 << 30)

    def begin(self, prompt: Sequence[int]) -> "tuple[_CachedSequence, Tensor]":
        """See :class:`Network`."""
        sequence = _CachedSequence()
        return sequence, self._feed(sequence, prompt)

    def step(
        self, sequences: "Sequence[_CachedSequence]", tokens: Sequence[int]
    ) -> "list[Tensor | None]":
        """See :class:`Network`; one sequence after another, as any kind of cache allows it."""
        found: list[Tensor | None] = []
        for sequence, token in zip(sequences, tokens, strict=True):
            try:
                found.append(self._feed(sequence, (token,)))
            except Exception as error:  # noqa: BLE001 - one sequence must not end the others
                _report(error)
                found.append(None)
        return found

    def end(self, sequence: "_CachedSequence") -> None:
        """See :class:`Network`."""
        sequence.cache = None

    def _feed(self, sequence: "_CachedSequence", tokens: Sequence[int]) -> "Tensor":
        import torch

        ids = torch.tensor([list(tokens)], device=self.net.device)
        out = self.net(
            input_ids=ids, past_key_values=sequence.cache, use_cache=True, logits_to_keep=1
        )
        sequence.cache = out.past_key_values
        logits: Tensor = out.logits[0, -1].float()
        return logits


@dataclass(slots=True)
class _CachedSequence:
    """A sequence as the transformers library keeps it."""

    cache: Any = field(default=None, repr=False)


def _report(error: Exception) -> None:
    _log.error("generation failed: %s", type(error).__name__)  # its text may hold content


@dataclass(slots=True, eq=False)
class Generation:
    """One sequence being generated; the engine's thread alone changes it, but for ``cancelled``."""

    prompt: Sequence[int] = field(repr=False)
    sampling: Sampling
    most: int
    """Tokens of the answer, at most."""
    emit: Callable[[Token | None], None]
    """Called from the engine's thread with each token; None when generation failed."""
    cancelled: bool = False
    draw: random.Random = field(default_factory=random.Random, repr=False)
    made: int = 0
    token: int = 0
    """The token that is fed next."""
    sequence: Any = field(default=None, repr=False)
    """What the network keeps of it."""


class EngineStoppedError(RuntimeError):
    """The engine takes no more; another version has taken its place."""


class ContextFullError(ValueError):
    """Prompt and answer do not fit into the model's context; the text says how long they are."""


class Engine[N: Network[Any]]:
    """Generates with one network in its own thread. Any thread may call :meth:`submit`.

    All sequences under way get their next token in turn, so that a long answer blocks no short one. Of the prompts
    that wait, the oldest and the shortest are read by turns, each before the next token of those under way. So a
    flood of long prompts lets short ones pass, and short ones no more than double the wait of a long one.
    """

    def __init__(self, network: N) -> None:
        """Begin to serve."""
        self._network = network
        self._waiting: list[Generation] = []
        self._door = threading.Condition()
        self._takes_shortest = False
        self._stopped = False
        self._thread = threading.Thread(target=self._serve, name="generation", daemon=True)
        self._thread.start()

    @property
    def network(self) -> N:
        """What generates."""
        return self._network

    def submit(
        self, prompt: Sequence[int], sampling: Sampling, emit: Callable[[Token | None], None]
    ) -> Generation:
        """Queue one sequence.

        Raises:
            ContextFullError: prompt and answer do not fit.
            EngineStoppedError: the engine takes no more.
        """
        context = self.network.context_tokens
        room = context - len(prompt)
        most = room if sampling.max_tokens is None else sampling.max_tokens
        if room < 1 or most > room:
            raise ContextFullError(
                f"prompt ({len(prompt)} tokens) and answer ({max(most, 1)} tokens) exceed the "
                f"context of {context} tokens"
            )
        generation = Generation(prompt, sampling, most, emit)
        generation.draw.seed(sampling.seed)
        with self._door:
            if self._stopped:
                raise EngineStoppedError
            self._waiting.append(generation)
            self._door.notify()
        return generation

    def stop(self) -> None:
        """End after what is under way; does not wait."""
        with self._door:
            self._stopped = True
            self._door.notify()

    def join(self, seconds: float) -> None:
        """Wait until it has ended."""
        self._thread.join(seconds)

    def _serve(self) -> None:
        import torch

        active: list[Generation] = []
        open_for_more = True
        with torch.inference_mode():
            while open_for_more or active:
                open_for_more = open_for_more and self._admit(active)
                self._step(active)

    def _admit(self, active: list[Generation]) -> bool:
        """Take a waiting sequence; block when there is nothing else to do. False: no more come."""
        if len(active) >= self.network.slots:
            return True
        with self._door:
            self._door.wait_for(lambda: self._waiting or self._stopped or active)
            generation = self._next()
            if generation is None:
                return not self._stopped
        try:
            generation.sequence, logits = self.network.begin(generation.prompt)
        except Exception as error:  # noqa: BLE001 - one sequence must not end the others
            _report(error)
            generation.emit(None)
            return True
        if self._give(generation, logits):
            self.network.end(generation.sequence)
        else:
            active.append(generation)
        return True

    def _next(self) -> Generation | None:
        """Take the oldest or the shortest of the waiting sequences, by turns."""
        self._waiting = [one for one in self._waiting if not one.cancelled]
        if not self._waiting:
            return None
        self._takes_shortest = not self._takes_shortest
        chosen = self._waiting[0]
        if self._takes_shortest:
            chosen = min(self._waiting, key=lambda one: len(one.prompt))
        self._waiting.remove(chosen)
        return chosen

    def _step(self, active: list[Generation]) -> None:
        """Make one token for each sequence under way, and forget those that ended."""
        self._forget(active, [one for one in active if one.cancelled])
        if not active:
            return
        try:
            logits = self.network.step(
                [one.sequence for one in active], [one.token for one in active]
            )
        except Exception as error:  # noqa: BLE001 - those that wait may still be answered
            _report(error)
            logits = [None] * len(active)
        self._forget(
            active,
            [one for one, row in zip(active, logits, strict=True) if self._give(one, row)],
        )

    def _forget(self, active: list[Generation], ended: list[Generation]) -> None:
        for one in ended:
            active.remove(one)
            self.network.end(one.sequence)

    def _give(self, one: Generation, logits: "Tensor | None") -> bool:
        """Draw one token and hand it over; True when the sequence has ended."""
        if one.cancelled:
            return True
        if logits is None:
            one.emit(None)
            return True
        one.made += 1
        one.token = draw_token(logits, one.sampling, one.draw)
        logprobs = logits.log_softmax(-1)
        top: tuple[tuple[int, float], ...] = ()
        if one.sampling.top_logprobs:
            values, ids = logprobs.topk(one.sampling.top_logprobs)
            top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
        last = None
        if one.token in self.network.ends:
            last = "stop"
        elif one.made >= one.most:
            last = "length"
        one.emit(Token(one.token, float(logprobs[one.token]), top, last))
        return last is not None


def draw_token(logits: "Tensor", sampling: Sampling, draw: random.Random) -> int:
    """Return the next token: the likeliest at temperature 0, else one of those within top-k and top-p."""
    if sampling.temperature < _GREEDY:
        return int(logits.argmax())
    chances, order = (logits / sampling.temperature).softmax(-1).sort(descending=True)
    if sampling.top_k > 0:
        chances = chances[: sampling.top_k] / chances[: sampling.top_k].sum()
    cumulated = chances.cumsum(-1)
    kept = min(int((cumulated < sampling.top_p).sum()) + 1, len(cumulated))
    mark = draw.random() * float(cumulated[kept - 1])
    return int(order[min(int((cumulated < mark).sum()), kept - 1)])


class BatchGenerator:
    """Answers conversations in batches; a draw depends on the conversation's seed alone."""

    def __init__(self, folder: Path, *, temperature: float, most_tokens: int) -> None:
        """Load a folder.

        Raises:
            ConfigurationError: it holds no model or tokenizer that can be used.
        """
        self._loaded = LanguageModel(folder)
        share_prompts(self._loaded.net)
        self._temperature = temperature
        self._most = most_tokens
        self._ends = sorted(self._loaded.ends)

    def answer(self, prompts: Sequence[Prompt]) -> list[Completion | None]:
        """Answer each conversation; None where it cannot be shown, or leaves the context no room."""
        shown = [self._shown(one) for one in prompts]
        room = self._loaded.context_tokens - self._most
        fitting = [at for at, ids in enumerate(shown) if 0 < len(ids) <= room]
        answers: list[Completion | None] = [None] * len(prompts)
        if fitting:
            seeds = [prompts[at].seed for at in fitting]
            generated = self._generate([shown[at] for at in fitting], seeds)
            for at, ids in zip(fitting, generated, strict=True):
                answers[at] = self._read(shown[at], ids, prompts[at])
        return answers

    def complete(self, question: str, beginning: str) -> str:
        """Return how the model goes on with an answer to a question that begins so."""
        tokenizer = self._loaded.tokenizer
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        ids = tokenizer(text + beginning, add_special_tokens=False)["input_ids"]
        (generated,) = self._generate([ids], [question])
        return str(tokenizer.decode(generated, skip_special_tokens=True))

    def _shown(self, prompt: Prompt) -> list[int]:
        try:
            return self._loaded.masker.prompt_ids(prompt.messages, tools=prompt.tools)
        except TemplateRefusedError:
            return []

    def _generate(self, shown: Sequence[list[int]], seeds: Sequence[str]) -> list[list[int]]:
        import torch

        longest = max(map(len, shown))
        pad = self._loaded.tokenizer.pad_token_id
        device = self._loaded.net.device
        ids = torch.tensor([[pad] * (longest - len(row)) + row for row in shown], device=device)
        mask = torch.tensor(
            [[0] * (longest - len(row)) + [1] * len(row) for row in shown], device=device
        )
        noise = [] if self._temperature == 0 else [self._noise(seeds)]
        with torch.inference_mode():
            out = self._loaded.net.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=False,
                max_new_tokens=self._most,
                eos_token_id=self._ends,
                pad_token_id=pad,
                logits_processor=noise,
            )
        return [_until(row, self._ends) for row in out[:, longest:].tolist()]

    def _noise(self, seeds: Sequence[str]) -> Any:
        """Return what makes the likeliest token one that is drawn (the Gumbel-max way).

        Each conversation has a generator of its own. So its draws depend on its seed alone, not on what is
        answered in the same batch; two models are given the same noise.
        """
        import torch
        from transformers import LogitsProcessor

        draws = [torch.Generator().manual_seed(_number(seed)) for seed in seeds]
        temperature = self._temperature

        class _GumbelNoise(LogitsProcessor):  # type: ignore[misc]
            def __call__(self, _: Any, scores: Any) -> Any:
                uniform = torch.stack([torch.rand(scores.shape[1], generator=g) for g in draws])
                gumbel = -torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))
                return scores / temperature + gumbel.to(scores.device)

        return _GumbelNoise()

    def _read(self, shown: list[int], ids: list[int], prompt: Prompt) -> Completion:
        message = read_answer(self._loaded.tokenizer, ids, prompt=shown, tools=prompt.tools)
        return Completion(message, bool(ids) and ids[-1] in self._ends)


def read_answer(
    tokenizer: Any, ids: list[int], *, prompt: list[int], tools: Sequence[dict[str, Any]]
) -> ChatMessage:
    """Return what a model said as a message: its text, and its calls of the tools that it was given.

    What cannot be read as calls is text, as it came.
    """
    text = {"role": "assistant", "content": str(tokenizer.decode(ids, skip_special_tokens=True))}
    if not tools or getattr(tokenizer, "response_template", None) is None:
        return text
    try:
        said = tokenizer.parse_response(ids, prefix=prompt, tools=list(tools)) or text
    except (ValueError, KeyError, TypeError, AttributeError):
        return text
    calls = [_call(place, call) for place, call in enumerate(said.get("tool_calls") or ())]
    if not all(calls):
        return text
    content = str(said.get("content") or "").removesuffix(tokenizer.eos_token or "")
    message: ChatMessage = {"role": "assistant", "content": content}
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
