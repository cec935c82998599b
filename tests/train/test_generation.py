"""Generation: draws follow from a conversation's own seed; the engine gives the library's greedy tokens."""

import queue
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from train.generation import (
    BatchGenerator,
    ContextFullError,
    Engine,
    EngineStoppedError,
    LanguageModel,
    draw_token,
    readable_tokenizer,
)
from train.model_folder import load_model
from train.types import Prompt, Sampling, Token
from trajectory.errors import ConfigurationError

pytestmark = pytest.mark.filterwarnings("ignore")


def asked(number: int, seed: str = "s") -> Prompt:
    question = {"role": "user", "content": "What? " * number}
    return Prompt([question], [], f"{seed}{number}")


def words(generator: BatchGenerator, *questions: Prompt) -> list[str]:
    return [said.message["content"] if said else "" for said in generator.answer(questions)]


@pytest.fixture(scope="module")
def generator(tiny_model: Path) -> BatchGenerator:
    return BatchGenerator(tiny_model, temperature=1.0, most_tokens=12)


def test_neighbours_change_nothing(generator: BatchGenerator) -> None:
    alone = [words(generator, asked(n))[0] for n in (1, 2, 9)]
    assert words(generator, *(asked(n) for n in (1, 2, 9))) == alone
    assert words(generator, *(asked(n) for n in (9, 1, 2))) == [alone[2], *alone[:2]]


def test_another_seed_says_something_else(generator: BatchGenerator) -> None:
    assert (
        words(generator, asked(3)) == words(generator, asked(3)) != words(generator, asked(3, "t"))
    )


def test_at_temperature_zero_it_is_the_likeliest(tiny_model: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    generator = BatchGenerator(tiny_model, temperature=0.0, most_tokens=5)
    tokenizer: Any = AutoTokenizer.from_pretrained(tiny_model)
    text = tokenizer.apply_chat_template(
        asked(2).messages, tokenize=False, add_generation_prompt=True
    )
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    model: Any = AutoModelForCausalLM.from_pretrained(tiny_model)
    with torch.inference_mode():
        for _ in range(5):
            ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
    expected = tokenizer.decode(ids[0, -5:], skip_special_tokens=True)
    assert words(generator, asked(2, "a"), asked(7))[0] == expected


def test_draws_are_those_of_the_model(tiny_model: Path) -> None:
    """How often a word comes first over many seeds is how likely the model holds it for."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(tiny_model)
    ids = tokenizer.apply_chat_template(asked(1).messages, add_generation_prompt=True)["input_ids"]
    model: Any = AutoModelForCausalLM.from_pretrained(tiny_model)
    with torch.inference_mode():
        chances = model(torch.tensor([ids])).logits[0, -1].softmax(-1)
    drawing, greedy = (
        BatchGenerator(tiny_model, temperature=temperature, most_tokens=1)
        for temperature in (1.0, 0.0)
    )
    (likeliest,) = words(greedy, asked(1))
    shown = tokenizer.batch_decode([[n] for n in range(len(chances))], skip_special_tokens=True)
    same = [n for n, word in enumerate(shown) if word == likeliest]
    expected = float(chances[same].sum())
    assert 0 < expected < 1
    drawn = words(drawing, *(asked(1, f"{n}/") for n in range(4000)))
    spread = (expected * (1 - expected) / 4000) ** 0.5
    assert abs(drawn.count(likeliest) / 4000 - expected) < 4 * spread


def test_a_conversation_that_fills_the_context_has_no_answer(generator: BatchGenerator) -> None:
    assert generator.answer([asked(200), asked(1)])[0] is None


def test_a_conversation_that_the_template_refuses_has_no_answer(generator: BatchGenerator) -> None:
    # This template writes what a call's function is named: one without a function cannot be shown.
    broken = Prompt([*asked(1).messages, {"role": "assistant", "tool_calls": [{}]}], [], "s")
    assert [bool(said) for said in generator.answer([broken, asked(1)])] == [False, True]


def test_tool_calls_that_nobody_can_read_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    import json
    import shutil

    bare = tmp_path / "bare"
    shutil.copytree(tiny_model, bare)
    config = json.loads((bare / "tokenizer_config.json").read_text())
    config.pop("response_template")
    (bare / "tokenizer_config.json").write_text(json.dumps(config))
    assert readable_tokenizer(bare, tools=False) is not None
    with pytest.raises(ConfigurationError, match="response_template"):
        readable_tokenizer(bare, tools=True)


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> Iterator[Engine[LanguageModel]]:
    engine = Engine(LanguageModel(tiny_model))
    yield engine
    engine.stop()


GREEDY = Sampling(temperature=0.0, max_tokens=12)


def run(engine: Engine[LanguageModel], prompt: list[int], sampling: Sampling) -> list[Token]:
    tokens: queue.SimpleQueue[Token | None] = queue.SimpleQueue()
    engine.submit(prompt, sampling, tokens.put)
    found: list[Token] = []
    while not found or found[-1].last is None:
        token = tokens.get(timeout=30)
        assert token is not None
        found.append(token)
    return found


def test_greedy_tokens_and_logprobs_are_the_librarys_own(
    engine: Engine[LanguageModel], tiny_model: Path
) -> None:
    prompt = engine.network.tokenizer("What is the price?")["input_ids"]
    found = run(engine, prompt, GREEDY)
    net = load_model(tiny_model).eval()
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


def test_sequences_take_turns_and_do_not_disturb_each_other(engine: Engine[LanguageModel]) -> None:
    prompts = [engine.network.tokenizer(f"say {number}")["input_ids"] for number in range(5)]
    alone = [[token.id for token in run(engine, prompt, GREEDY)] for prompt in prompts]
    queues: list[queue.SimpleQueue[Token | None]] = [queue.SimpleQueue() for _ in prompts]
    for prompt, tokens in zip(prompts, queues, strict=True):
        engine.submit(prompt, GREEDY, tokens.put)
    for expected, tokens in zip(alone, queues, strict=True):
        together = [tokens.get(timeout=30) for _ in expected]
        assert [token.id for token in together if token is not None] == expected


def test_a_seed_repeats_and_top_logprobs_are_sorted(engine: Engine[LanguageModel]) -> None:
    prompt = engine.network.tokenizer("hello")["input_ids"]
    sampling = Sampling(seed=7, max_tokens=8, top_logprobs=3)
    one, two = run(engine, prompt, sampling), run(engine, prompt, sampling)
    assert [token.id for token in one] == [token.id for token in two]
    values = [value for _, value in one[0].top]
    assert len(values) == 3
    assert values == sorted(values, reverse=True)


def test_what_does_not_fit_is_refused_and_what_is_cancelled_ends(
    engine: Engine[LanguageModel],
) -> None:
    with pytest.raises(ContextFullError, match="exceed the context of 512"):
        engine.submit([1] * 500, Sampling(max_tokens=13), lambda _: None)
    with pytest.raises(ContextFullError):
        engine.submit([1] * 512, Sampling(), lambda _: None)
    seen: queue.SimpleQueue[Token | None] = queue.SimpleQueue()
    generation = engine.submit([1], Sampling(max_tokens=500), seen.put)
    seen.get(timeout=30)
    generation.cancelled = True
    assert run(engine, [1, 2], GREEDY)


def test_a_failing_sequence_is_told_and_the_others_go_on(engine: Engine[LanguageModel]) -> None:
    seen: queue.SimpleQueue[Token | None] = queue.SimpleQueue()
    engine.submit([10**6], GREEDY, seen.put)
    assert seen.get(timeout=30) is None
    assert run(engine, [1], GREEDY)


def test_a_stopped_engine_ends_what_is_under_way_and_takes_no_more(tiny_model: Path) -> None:
    engine = Engine(LanguageModel(tiny_model))
    seen: queue.SimpleQueue[Token | None] = queue.SimpleQueue()
    engine.submit([1], Sampling(temperature=0, max_tokens=3), seen.put)
    engine.stop()
    with pytest.raises(EngineStoppedError):
        engine.submit([1], GREEDY, seen.put)
    engine.join(30)
    assert seen.qsize() >= 1


@pytest.mark.parametrize(("top_k", "top_p"), [(2, 1.0), (0, 0.75), (9, 0.75), (2, 0.999)])
def test_only_the_likeliest_tokens_are_drawn(top_k: int, top_p: float) -> None:
    logits = torch.tensor([0.0, 2.0, 1.9, 0.1])
    draw = random.Random(1)  # noqa: S311 - a seed, no secret
    sampling = Sampling(top_k=top_k, top_p=top_p)
    assert {draw_token(logits, sampling, draw) for _ in range(300)} == {1, 2}


@pytest.mark.parametrize("temperature", [0.0, 1e-320, 1e-45, 1e-38, 1e-30, 1e-3])
def test_the_colder_the_more_the_likeliest(temperature: float) -> None:
    logits = torch.tensor([-3.0, 9.0, 40.0, 8.0])
    sampling = Sampling(temperature=temperature, max_tokens=1)
    draw = random.Random(1)  # noqa: S311 - reproducible, not secret
    assert {draw_token(logits, sampling, draw) for _ in range(20)} == {2}
