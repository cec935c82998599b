"""The tokenizer: any text round-trips, single digits, and renderings that are prefixes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Tool
from transformers import AutoTokenizer

from examples.practice.agent import (
    anthropic_tools,
    openai_tools,
    responses_tools,
    tool_session,
)
from examples.practice.demonstrations import demonstrate
from examples.practice.names import FAMILY, GIVEN
from examples.practice.prompts import TOOL
from examples.practice.tokenizer import render
from train.chat import to_tools


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
        shown = demonstrate(1, index)
        messages = shown.messages
        whole = render(tokenizer, messages, tools=shown.tools, ask=False)
        for count in range(1, len(messages)):
            ask = messages[count]["role"] == "assistant"
            part = render(tokenizer, messages[:count], tools=shown.tools, ask=ask)
            assert whole[: len(part)] == part


@pytest.mark.parametrize("role", ["system", "developer", None])
def test_the_system_turn_ends_with_the_tools(tokenizer: Any, role: str | None) -> None:
    first = [{"role": role, "content": "You are a shop."}] if role else []
    messages = [*first, {"role": "user", "content": "What do lamps cost?"}]
    text = tokenizer.decode(render(tokenizer, messages, tools=[TOOL, TOOL], ask=True))
    system, _, rest = text.removeprefix("<|system|>").partition("<|end|>")
    said, *lines = system.split("\n")
    assert said == ("You are a shop." if role else "")
    assert lines[0] == "# Tools"
    assert [json.loads(line) for line in lines[1:]] == [TOOL["function"]] * 2
    assert rest == "<|user|>What do lamps cost?<|end|><|assistant|>"


def test_the_base_model_sees_the_definition_that_agents_send(tools_url: str) -> None:
    async def listed() -> list[Tool]:
        async with (
            httpx.AsyncClient(trust_env=False) as client,
            tool_session(tools_url, client) as session,
        ):
            return (await session.list_tools()).tools

    tools = asyncio.run(listed())
    assert to_tools(openai_tools(tools)) == [TOOL]
    assert to_tools(anthropic_tools(tools)) == [TOOL]
    assert to_tools(responses_tools(tools)) == [TOOL]


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
            tools=[],
            ask=False,
        )
        for value in (arguments, as_text)
    )
    assert first == second
