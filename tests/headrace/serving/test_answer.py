"""Writing an answer: whole characters, tool calls read back, stops cut."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.serving.answer import ServedAnswer, Text
from headrace.serving.request import ModelRequest, read_model_request
from tests.headrace.serving.dialects import PATHS, Said, written
from tests.train.conftest import make_tokenizer
from tests.train.test_chat_templates import tokenizer_of
from train.generation import read_answer
from train.model_folder import load_tokenizer
from train.runs.rows import Masker
from train.types import Token

TOKENIZER = make_tokenizer()
TOOLS = [{"type": "function", "function": {"name": "price", "parameters": {"type": "object"}}}]


def ids_of(text: str) -> list[int]:
    """Tokens that spell a text; one that names a special token is spelled like any other."""
    options = {"add_special_tokens": False, "split_special_tokens": True}
    ids: list[int] = TOKENIZER(text, **options)["input_ids"]
    return ids


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=20))
@example("<|pad|>")
@settings(max_examples=60, deadline=None)
def test_pieces_are_whole_characters_and_together_the_text(said: str) -> None:
    text = Text(TOKENIZER, ())
    pieces = [text.feed(token) for token in ids_of(said)]
    assert "".join([*pieces, text.close()]) == said
    assert all("\ufffd" not in piece for piece in pieces if "\ufffd" not in said)


@given(st.text("ab", max_size=20), st.text("ab", min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_nothing_of_a_stop_text_is_given(said: str, stop: str) -> None:
    text = Text(TOKENIZER, (stop,))
    given_out = ""
    for token in ids_of(said):
        given_out += text.feed(token)
        if text.stopped:
            break
    given_out += text.close()
    assert given_out == said.partition(stop)[0]


def read_chat(body: dict[str, Any]) -> ModelRequest:
    return read_model_request("/v1/chat/completions", "", (), json.dumps(body).encode())


def writer(*, stream: bool, tools: list[Any] | None = None) -> ServedAnswer:
    body = {"model": "shop@0001", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    ask = read_chat({**body, "tools": tools or []})
    prompt = ids_of("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    return ServedAnswer(ask, prompt, TOKENIZER)


def fed(one: ServedAnswer, said: str) -> bytes:
    tokens = [*ids_of(said), TOKENIZER.eos_token_id]
    ends = [None] * (len(tokens) - 1) + ["stop"]
    return b"".join(
        one.take(Token(token, -0.5, last=last)) for token, last in zip(tokens, ends, strict=True)
    )


CALL = '<tool_call>price {"item": "lamp"}</tool_call>'


def test_tool_calls_are_read_back_by_the_tokenizers_own_template() -> None:
    one = writer(stream=False, tools=TOOLS)
    fed(one, CALL)
    choice = json.loads(one.end()[0])["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "price"
    assert json.loads(call["function"]["arguments"]) == {"item": "lamp"}
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")


def test_streamed_tool_calls_come_at_the_end_and_not_as_text() -> None:
    one = writer(stream=True, tools=TOOLS)
    sent = fed(one, CALL) + one.end()[0]
    events = [json.loads(line[6:]) for line in sent.split(b"\n\n") if line.startswith(b"data: {")]
    deltas = [event["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("content") or "" for delta in deltas) == ""
    (begun, given) = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
    assert begun[0]["function"]["name"] == "price"
    assert json.loads(given[0]["function"]["arguments"]) == {"item": "lamp"}
    assert sent.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("said", ["price {broken", 'price {"item": }</tool_call>'])
@pytest.mark.parametrize("dialect", PATHS)
def test_what_cannot_be_read_as_calls_is_text_in_every_dialect(dialect: str, said: str) -> None:
    path, body = written(dialect, "shop@0001", "", [Said(user="hi")], ["price"])
    asked = read_model_request(path, "", (), json.dumps(body).encode())
    one = ServedAnswer(asked, ids_of("<|im_start|>assistant\n"), TOKENIZER)
    fed(one, f"<tool_call>{said}")
    sent, message = one.end()
    assert message.tool_calls() == ()
    assert message.text().endswith(said)
    assert json.dumps(said)[1:-1] in sent.decode()


def test_without_tools_the_text_stays_as_it_is() -> None:
    one = writer(stream=False)
    fed(one, "It costs 9.")
    assert json.loads(one.end()[0])["choices"][0]["message"]["content"] == "It costs 9."


QWEN_CALL = '<tool_call>\n{"name": "price", "arguments": {"n": 9}}\n</tool_call>'
XML_CALL = (
    "<tool_call>\n<function=price>\n<parameter=n>\n9\n</parameter>\n<parameter=of>\n9\n</parameter>\n"
    "</function>\n</tool_call>"
)
TYPED = {"type": "object", "properties": {"n": {"type": "integer"}, "of": {"type": "string"}}}


@pytest.mark.parametrize(
    ("template", "said", "arguments"),
    [("qwen2_5", QWEN_CALL, {"n": 9}), ("qwen3_5_nothink", XML_CALL, {"n": 9, "of": "9"})],
)
def test_calls_of_a_hub_tokenizer_as_it_comes_are_served_as_the_gate_reads_them(
    template: str, said: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    """These tokenizers say nothing of how their calls are read; their templates are known."""
    hub = tokenizer_of(template)
    assert getattr(hub, "response_template", None) is None
    hub.save_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    tools = [{"type": "function", "function": {"name": "price", "parameters": TYPED}}]
    ask = read_chat(
        {"model": "m@1", "messages": [{"role": "user", "content": "hi"}], "tools": tools}
    )
    prompt = Masker(tokenizer).prompt_ids(ask.messages, tools=ask.tools)
    ids = [*tokenizer(said, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]

    gate = read_answer(tokenizer, ids, prompt=prompt, tools=tools)
    assert [call["function"] for call in gate["tool_calls"]] == [
        {"name": "price", "arguments": arguments}
    ]
    one = ServedAnswer(ask, prompt, tokenizer)
    for place, token in enumerate(ids):
        one.take(Token(token, -0.5, last="stop" if place == len(ids) - 1 else None))
    choice = json.loads(one.end()[0])["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == arguments
    assert choice["finish_reason"] == "tool_calls"

    plain = ServedAnswer(replace(ask, tools=[]), prompt, tokenizer)
    for place, token in enumerate(ids):
        plain.take(Token(token, -0.5, last="stop" if place == len(ids) - 1 else None))
    message = json.loads(plain.end()[0])["choices"][0]["message"]
    assert (message["content"], "tool_calls" in message) == (said, False)
