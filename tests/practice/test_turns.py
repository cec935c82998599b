"""Turns: pieces add up to the turn however the tokens fall."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from examples.practice.engine import Token
from examples.practice.turns import CallPiece, CallStart, Piece, TextPiece, ToolCall, TurnReader


@pytest.fixture(scope="module")
def tokenizer(model_folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(model_folder)


def read(tokenizer: Any, text: str, *, with_tools: bool = True) -> tuple[TurnReader, list[Piece]]:
    reader = TurnReader(tokenizer, with_tools=with_tools)
    pieces = [p for i in tokenizer(text).input_ids for p in reader.feed(Token(i, 0.0))]
    reader.feed(Token(tokenizer.eos_token_id, 0.0, last="stop"))
    return reader, pieces


def test_text_and_calls_are_told_apart(tokenizer: Any) -> None:
    reader, pieces = read(
        tokenizer,
        'Æther für 你好.<tool_call>quote {"item": "lamps"}</tool_call><tool_call>b {}</tool_call>',
    )
    assert reader.text == "Æther für 你好."
    assert reader.calls == [ToolCall("quote", '{"item": "lamps"}'), ToolCall("b", "{}")]
    assert reader.calls[0].parsed() == {"item": "lamps"}
    assert "".join(p.text for p in pieces if isinstance(p, TextPiece)) == reader.text
    assert [p.name for p in pieces if isinstance(p, CallStart)] == ["quote", "b"]
    first = "".join(p.text for p in pieces if isinstance(p, CallPiece) and p.index == 0)
    assert first == '{"item": "lamps"}'


def test_without_tools_tags_are_text(tokenizer: Any) -> None:
    reader, _ = read(tokenizer, "<tool_call>quote {}</tool_call>", with_tools=False)
    assert reader.text == "<tool_call>quote {}</tool_call>"
    assert reader.calls == []


def test_arguments_that_are_no_object_are_not_parsed() -> None:
    assert ToolCall("quote", '{"item": ').parsed() is None
    assert ToolCall("quote", "[1]").parsed() is None
