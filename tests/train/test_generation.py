"""What a model says at a temperature follows from the conversation's own seed, whatever is beside it."""

from pathlib import Path
from typing import Any

import pytest

from train.generation import Asked, Speaker, readable_tokenizer
from trajectory.errors import ConfigurationError

pytestmark = pytest.mark.filterwarnings("ignore")


def asked(number: int, seed: str = "s") -> Asked:
    question = {"role": "user", "content": "What? " * number}
    return Asked([question], [], f"{seed}{number}")


def words(speaker: Speaker, *questions: Asked) -> list[str]:
    return [said.message["content"] if said else "" for said in speaker.answer(questions)]


@pytest.fixture(scope="module")
def speaker(tiny_model: Path) -> Speaker:
    return Speaker(tiny_model, temperature=1.0, most_tokens=12)


def test_neighbours_change_nothing(speaker: Speaker) -> None:
    alone = [words(speaker, asked(n))[0] for n in (1, 2, 9)]
    assert words(speaker, *(asked(n) for n in (1, 2, 9))) == alone
    assert words(speaker, *(asked(n) for n in (9, 1, 2))) == [alone[2], *alone[:2]]


def test_another_seed_says_something_else(speaker: Speaker) -> None:
    assert words(speaker, asked(3)) == words(speaker, asked(3)) != words(speaker, asked(3, "t"))


def test_at_temperature_zero_it_is_the_likeliest(tiny_model: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    speaker = Speaker(tiny_model, temperature=0.0, most_tokens=5)
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
    assert words(speaker, asked(2, "a"), asked(7))[0] == expected


def test_draws_are_those_of_the_model(speaker: Speaker) -> None:
    """The first token's frequencies over many seeds are its probabilities."""
    import torch

    tokenizer = speaker._tokenizer
    ids = tokenizer.apply_chat_template(asked(1).messages, add_generation_prompt=True)["input_ids"]
    with torch.inference_mode():
        chances = speaker._model(torch.tensor([ids])).logits[0, -1].softmax(-1)
    noise = speaker._noise([asked(1, f"{n}/") for n in range(4000)])
    drawn = noise(None, chances.log().expand(4000, -1)).argmax(-1)
    likely = int(chances.argmax())
    expected = float(chances[likely])
    spread = (expected * (1 - expected) / 4000) ** 0.5
    assert abs(float((drawn == likely).float().mean()) - expected) < 4 * spread


def test_a_conversation_that_fills_the_context_has_no_answer(speaker: Speaker) -> None:
    assert speaker.answer([asked(200), asked(1)])[0] is None


def test_a_conversation_that_the_template_refuses_has_no_answer(speaker: Speaker) -> None:
    # This template writes what a call's function is named: one without a function cannot be shown.
    broken = Asked([*asked(1).messages, {"role": "assistant", "tool_calls": [{}]}], [], "s")
    assert [bool(said) for said in speaker.answer([broken, asked(1)])] == [False, True]


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
