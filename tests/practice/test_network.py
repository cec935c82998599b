"""The engine: its forward pass is the framework's, alone or in a batch, and it ends as asked."""

import queue
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM

from examples.practice.network import PracticeNetwork, load_network
from examples.practice.prompts import SYSTEM_PROMPT, TOOL
from examples.practice.tasks import make_tasks
from examples.practice.tokenizer import render
from train.generation import Engine, EngineStoppedError, LanguageModel
from train.types import Sampling, Token


@pytest.fixture(scope="module")
def engine(model_folder: Path) -> Iterator[Engine[PracticeNetwork]]:
    engine = Engine(PracticeNetwork(model_folder))
    yield engine
    engine.stop()


@pytest.fixture(scope="module")
def prompts(model_folder: Path) -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    return [
        render(
            tokenizer,
            [
                {"role": "system", "content": SYSTEM_PROMPT},
                {"role": "user", "content": task.prompt},
            ],
            tools=[TOOL],
            ask=True,
        )
        for task in make_tasks(1, "train", 40)
    ]


def generate(
    engine: Engine[PracticeNetwork], prompts: list[list[int]], sampling: Sampling
) -> list[list[Token]]:
    """Generate for all prompts at the same time."""
    answers: list[list[Token]] = [[] for _ in prompts]
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index, prompt in enumerate(prompts):

        def emit(token: Token | None, index: int = index) -> None:
            assert token is not None
            answers[index].append(token)
            if token.last:
                ended.put(index)

        engine.submit(prompt, sampling, emit)
    for _ in prompts:
        ended.get(timeout=60)
    return answers


def test_logprobs_are_those_of_a_direct_forward_pass(
    engine: Engine[PracticeNetwork], prompts: list[list[int]], model_folder: Path
) -> None:
    model = LlamaForCausalLM.from_pretrained(model_folder)
    sampling = Sampling(temperature=1.0, max_tokens=40, seed=1, top_logprobs=3)
    for prompt, answer in zip(prompts[:8], generate(engine, prompts[:8], sampling), strict=True):
        ids = [token.id for token in answer]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + ids])).logits[0].log_softmax(-1)
        expected = logits[len(prompt) - 1 : -1]
        for place, token in enumerate(answer):
            assert token.logprob == pytest.approx(float(expected[place, token.id]), abs=2e-3)
            best = [int(i) for i in expected[place].topk(3).indices]
            assert token.top[0][0] == best[0]


def test_a_batch_larger_than_the_slots_answers_as_one_by_one(
    engine: Engine[PracticeNetwork], prompts: list[list[int]]
) -> None:
    sampling = Sampling(temperature=0.0, max_tokens=30)
    together = generate(engine, prompts, sampling)
    alone = [generate(engine, [prompt], sampling)[0] for prompt in prompts[:6]]
    assert [[t.id for t in answer] for answer in together[:6]] == [
        [t.id for t in answer] for answer in alone
    ]


def test_seeds_repeat_and_differ(engine: Engine[PracticeNetwork], prompts: list[list[int]]) -> None:
    def sample(seed: int) -> list[int]:
        sampling = Sampling(temperature=1.5, max_tokens=30, seed=seed)
        return [token.id for token in generate(engine, prompts[:1], sampling)[0]]

    assert sample(1) == sample(1)
    assert len({tuple(sample(seed)) for seed in range(5)}) > 1


def test_top_p_of_nearly_nothing_is_greedy(
    engine: Engine[PracticeNetwork], prompts: list[list[int]]
) -> None:
    narrow = Sampling(temperature=1.5, top_p=1e-9, max_tokens=20)
    greedy = Sampling(temperature=0.0, max_tokens=20)
    first, second = (generate(engine, prompts[:1], s)[0] for s in (narrow, greedy))
    assert [t.id for t in first] == [t.id for t in second]


def test_generation_ends_at_the_limit_and_says_so(
    engine: Engine[PracticeNetwork], prompts: list[list[int]]
) -> None:
    (answer,) = generate(engine, prompts[:1], Sampling(temperature=0.0, max_tokens=3))
    assert [token.last for token in answer] == [None, None, "length"]
    with pytest.raises(ValueError, match="exceed the context of 1024 tokens"):
        engine.submit(prompts[0], Sampling(max_tokens=1024), lambda _: None)


def test_a_stopped_engine_finishes_what_it_took_and_takes_no_more(
    model_folder: Path, prompts: list[list[int]]
) -> None:
    engine = Engine(PracticeNetwork(model_folder))
    answers: queue.SimpleQueue[Token | None] = queue.SimpleQueue()
    engine.submit(prompts[0], Sampling(max_tokens=5), answers.put)
    engine.stop()
    assert any((token := answers.get(timeout=30)) and token.last for _ in range(5))
    with pytest.raises(EngineStoppedError):
        engine.submit(prompts[0], Sampling(max_tokens=5), answers.put)


def test_other_architectures_are_refused(tmp_path: Path, model_folder: Path) -> None:
    config = (model_folder / "config.json").read_text().replace('"llama"', '"mistral"')
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "model.safetensors").write_bytes((model_folder / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match="plain Llama models only"):
        PracticeNetwork(tmp_path)


def test_a_model_that_the_forward_pass_does_not_cover_is_served_by_the_library(
    tmp_path: Path, model_folder: Path
) -> None:
    assert isinstance(load_network(model_folder), PracticeNetwork)
    shutil.copytree(model_folder, tmp_path, dirs_exist_ok=True)
    config = AutoConfig.from_pretrained(model_folder)
    config.num_key_value_heads = 1
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    assert isinstance(load_network(tmp_path), LanguageModel)
