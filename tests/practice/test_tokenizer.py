"""The tokenizer: any text round-trips, single digits, and renderings that are prefixes."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from examples.practice.demonstrations import demonstrate
from examples.practice.names import FAMILY, GIVEN
from examples.practice.tokenizer import render


@pytest.fixture(scope="module")
def tokenizer(model_folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(model_folder)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_round_trips(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_digits_stand_alone_and_tags_are_tokens(tokenizer: Any) -> None:
    assert len(tokenizer("1284").input_ids) == 4
    assert len(tokenizer("<tool_call>").input_ids) == 1
    kept = tokenizer.decode(tokenizer("<tool_call>x<|end|>").input_ids, skip_special_tokens=True)
    assert kept == "<tool_call>x"
    assert tokenizer.eos_token == "<|end|>"


def test_no_name_is_in_the_vocabulary(tokenizer: Any) -> None:
    known = {token.lstrip("Ġ") for token in tokenizer.get_vocab()}
    assert not known & {*GIVEN, *FAMILY}


def test_a_conversation_begins_with_the_rendering_of_its_beginning(tokenizer: Any) -> None:
    for index in range(20):
        messages = demonstrate(1, index).messages
        whole = render(tokenizer, messages, ask=False)
        for count in range(1, len(messages)):
            ask = messages[count]["role"] == "assistant"
            part = render(tokenizer, messages[:count], ask=ask)
            assert whole[: len(part)] == part


def test_arguments_render_alike_as_object_and_as_text(tokenizer: Any) -> None:
    arguments = {"quantity": 7, "item": "lamps", "price_list": "trade"}
    as_text = '{"item": "lamps", "price_list": "trade", "quantity": 7}'
    first, second = (
        render(
            tokenizer,
            [
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"function": {"name": "quote", "arguments": value}}],
                }
            ],
            ask=False,
        )
        for value in (arguments, as_text)
    )
    assert first == second
