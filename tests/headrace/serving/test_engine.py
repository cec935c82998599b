"""Generation: what the library's own greedy search gives, for many sequences at once."""

import queue
from pathlib import Path

import pytest
import torch

from headrace.serving.engine import (
    ContextFullError,
    Engine,
    EngineStoppedError,
    Sampling,
    Token,
)
from train.runs.fit import load_model

GREEDY = Sampling(temperature=0.0, most_tokens=12)


def run(engine: Engine, prompt: list[int], sampling: Sampling) -> list[Token]:
    tokens: queue.SimpleQueue[Token | None] = queue.SimpleQueue()
    engine.submit(prompt, sampling, tokens.put)
    found = []
    while not found or found[-1].last is None:
        token = tokens.get(timeout=30)
        assert token is not None
        found.append(token)
    return found


def test_greedy_tokens_and_logprobs_are_the_librarys_own(engine: Engine, model: Path) -> None:
    prompt = engine.tokenizer("What is the price?")["input_ids"]
    found = run(engine, prompt, GREEDY)
    net = load_model(model).eval()
    with torch.inference_mode():
        out = net.generate(
            torch.tensor([prompt]), max_new_tokens=12, do_sample=False, pad_token_id=0
        )
        logits = net(out).logits[0].log_softmax(-1)
    expected = out[0, len(prompt) :].tolist()
    assert [token.id for token in found] == expected
    for place, token in enumerate(found):
        told = float(logits[len(prompt) - 1 + place, token.id])
        assert token.logprob == pytest.approx(told, abs=1e-4)


def test_sequences_take_turns_and_do_not_disturb_each_other(engine: Engine) -> None:
    prompts = [engine.tokenizer(f"say {number}")["input_ids"] for number in range(5)]
    alone = [[token.id for token in run(engine, prompt, GREEDY)] for prompt in prompts]
    queues: list[queue.SimpleQueue[Token | None]] = [queue.SimpleQueue() for _ in prompts]
    for prompt, tokens in zip(prompts, queues, strict=True):
        engine.submit(prompt, GREEDY, tokens.put)
    for expected, tokens in zip(alone, queues, strict=True):
        together = [tokens.get(timeout=30) for _ in expected]
        assert [token.id for token in together if token is not None] == expected


def test_a_seed_repeats_and_top_logprobs_are_sorted(engine: Engine) -> None:
    prompt = engine.tokenizer("hello")["input_ids"]
    sampling = Sampling(seed=7, most_tokens=8, top_logprobs=3)
    one, two = run(engine, prompt, sampling), run(engine, prompt, sampling)
    assert [token.id for token in one] == [token.id for token in two]
    values = [value for _, value in one[0].top]
    assert len(values) == 3
    assert values == sorted(values, reverse=True)


def test_what_does_not_fit_is_refused_and_what_is_cancelled_ends(engine: Engine) -> None:
    with pytest.raises(ContextFullError, match="exceed the context of 512"):
        engine.submit([1] * 500, Sampling(most_tokens=13), lambda _: None)
    with pytest.raises(ContextFullError):
        engine.submit([1] * 512, Sampling(), lambda _: None)
    seen: queue.SimpleQueue[Token | None] = queue.SimpleQueue()
    generation = engine.submit([1], Sampling(most_tokens=500), seen.put)
    seen.get(timeout=30)
    generation.cancelled = True
    assert run(engine, [1, 2], GREEDY)


def test_a_failing_sequence_is_told_and_the_others_go_on(engine: Engine) -> None:
    seen: queue.SimpleQueue[Token | None] = queue.SimpleQueue()
    engine.submit([10**6], GREEDY, seen.put)
    assert seen.get(timeout=30) is None
    assert run(engine, [1], GREEDY)


def test_a_stopped_engine_ends_what_is_under_way_and_takes_no_more(model: Path) -> None:
    engine = Engine(model)
    seen: queue.SimpleQueue[Token | None] = queue.SimpleQueue()
    engine.submit([1], Sampling(temperature=0, most_tokens=3), seen.put)
    engine.stop()
    with pytest.raises(EngineStoppedError):
        engine.submit([1], GREEDY, seen.put)
    engine.join(30)
    assert seen.qsize() >= 1
