"""Writing an answer: whole characters, tool calls read back, stops cut."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.serving.chat import Text, Writer, read_ask
from headrace.serving.engine import Token
from tests.train.conftest import make_tokenizer

TOKENIZER = make_tokenizer()
TOOLS = [{"type": "function", "function": {"name": "price", "parameters": {"type": "object"}}}]


def ids_of(text: str) -> list[int]:
    ids: list[int] = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    return ids


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=20))
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


def writer(*, stream: bool, tools: list[Any] | None = None) -> Writer:
    body = {"model": "shop@0001", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    ask = read_ask({**body, "tools": tools or []})
    prompt = ids_of("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    return Writer(ask, ask.model, prompt, TOKENIZER)


def fed(one: Writer, said: str) -> bytes:
    tokens = [*ids_of(said), TOKENIZER.eos_token_id]
    ends = [None] * (len(tokens) - 1) + ["stop"]
    return b"".join(
        one.take(Token(token, -0.5, last=last)) for token, last in zip(tokens, ends, strict=True)
    )


CALL = '<tool_call>price {"item": "lamp"}</tool_call>'


def test_tool_calls_are_read_back_by_the_tokenizers_own_template() -> None:
    one = writer(stream=False, tools=TOOLS)
    fed(one, CALL)
    choice = json.loads(one.whole())["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "price"
    assert json.loads(call["function"]["arguments"]) == {"item": "lamp"}
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")


def test_streamed_tool_calls_come_at_the_end_and_not_as_text() -> None:
    one = writer(stream=True, tools=TOOLS)
    sent = fed(one, CALL) + one.end()
    events = [json.loads(line[6:]) for line in sent.split(b"\n\n") if line.startswith(b"data: {")]
    deltas = [event["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("content") or "" for delta in deltas) == ""
    (calls,) = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
    assert calls[0]["function"]["name"] == "price"
    assert sent.endswith(b"data: [DONE]\n\n")


def test_what_cannot_be_read_as_calls_is_text() -> None:
    one = writer(stream=False, tools=TOOLS)
    fed(one, "<tool_call>price {broken")
    choice = json.loads(one.whole())["choices"][0]
    assert "price {broken" in choice["message"]["content"]
    assert choice["finish_reason"] == "stop"


def test_without_tools_the_text_stays_as_it_is() -> None:
    one = writer(stream=False)
    fed(one, "It costs 9.")
    assert json.loads(one.whole())["choices"][0]["message"]["content"] == "It costs 9."
