"""Turns: pieces add up to the turn however the tokens fall."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from examples.practice.turns import TurnReader
from train.types import Token
from trajectory.dialects.writer import CallPiece, CallStart, Piece, TextPiece


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
    said = [(call.name, call.arguments) for call in reader.calls]
    assert said == [("quote", '{"item": "lamps"}'), ("b", "{}")]
    assert "".join(p.text for p in pieces if isinstance(p, TextPiece)) == reader.text
    begun = [(p.call_id, p.name) for p in pieces if isinstance(p, CallStart)]
    assert begun == [(call.call_id, call.name) for call in reader.calls]
    assert "".join(p.text for p in pieces if isinstance(p, CallPiece)) == '{"item": "lamps"}{}'
    assert reader.message.text() == reader.text
    assert reader.message.tool_calls() == tuple(reader.calls)


def test_without_tools_tags_are_text(tokenizer: Any) -> None:
    reader, _ = read(tokenizer, "<tool_call>quote {}</tool_call>", with_tools=False)
    assert reader.text == "<tool_call>quote {}</tool_call>"
    assert reader.calls == []
