"""Requests of every API: one conversation is one prompt, and what cannot be done is refused."""

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.serving.request import BadRequestError, ModelRequest, read_model_request
from tests.headrace.serving.dialects import PATHS, Said, written
from tests.train.test_chat_templates import tokenizer_of
from train.runs.rows import Masker
from train.types import Sampling

_WORDS = st.text("ab '\"{}<é\n", min_size=1, max_size=8).filter(str.strip)
_CALLS = st.lists(
    st.tuples(
        st.sampled_from(["price", "stock"]),
        st.dictionaries(st.sampled_from(["item", "count"]), st.integers() | _WORDS),
        st.text('ab {}"9', max_size=8),
    ),
    max_size=2,
)
_ROUNDS = st.lists(st.tuples(_WORDS, _CALLS, _WORDS), max_size=3)
_BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"input": "hi"},
    "/v1/completions": {"prompt": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
    "/v1beta/models/m@1:generateContent": {"contents": [{"parts": [{"text": "hi"}]}]},
    "/api/chat": {"messages": [{"role": "user", "content": "hi"}]},
    "/api/generate": {"prompt": "hi"},
}


@cache
def tokenizer() -> Any:
    return tokenizer_of("qwen2_5")


def read(path: str, body: Any) -> ModelRequest:
    return read_model_request(path, "", (), json.dumps(body).encode())


@given(st.sampled_from(["", "Be brief."]), _ROUNDS, _WORDS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_one_conversation_is_the_same_tokens_in_every_api(
    system: str, rounds: list[Any], question: str, with_tools: bool
) -> None:
    turns: list[Said] = []
    for user, calls, text in rounds:
        turns.append(Said(user=user))
        if calls:
            turns.append(Said(text="", calls=tuple(calls)))
        turns.append(Said(text=text))
    turns.append(Said(user=question))
    tools = ["price", "stock"] if with_tools else []
    masker = Masker(tokenizer())
    prompts = {}
    for dialect in PATHS:
        asked = read(*written(dialect, "m@1", system, turns, tools))
        assert asked.model == "m@1"
        prompts[dialect] = masker.prompt_ids(asked.messages, tools=asked.tools)
    expected = prompts["openai.chat"]
    assert prompts == dict.fromkeys(PATHS, expected)
    assert expected


def test_sampling_is_read_in_the_words_of_each_api() -> None:
    settings = {"temperature": 0.5, "top_p": 0.9, "seed": 3, "stop": ["x"]}
    wanted = Sampling(temperature=0.5, top_p=0.9, top_k=7, max_tokens=5, seed=3)
    given: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {**settings, "top_k": 7, "max_completion_tokens": 5},
        "/v1/responses": {**settings, "top_k": 7, "max_output_tokens": 5},
        "/v1/completions": {**settings, "top_k": 7, "max_tokens": 5},
        "/v1/messages": {**settings, "top_k": 7, "max_tokens": 5, "stop_sequences": ["x"]},
        "/v1beta/models/m@1:generateContent": {
            "generationConfig": {
                "temperature": 0.5,
                "topP": 0.9,
                "topK": 7,
                "maxOutputTokens": 5,
                "seed": 3,
                "stopSequences": ["x"],
            }
        },
        "/api/chat": {"options": {**settings, "top_k": 7, "num_predict": 5}},
        "/api/generate": {"options": {**settings, "top_k": 7, "num_predict": 5}},
    }
    for path, body in _BODIES.items():
        asked = read(path, {**body, **given[path]})
        assert (asked.sampling, asked.stop) == (wanted, ("x",)), path


@pytest.mark.parametrize(
    ("path", "settings", "text"),
    [
        ("/v1/chat/completions", {"tool_choice": "required"}, "tool_choice"),
        ("/v1/chat/completions", {"tools": [{"type": "custom", "custom": {"name": "a"}}]}, "tools"),
        ("/v1/responses", {"background": True}, "background"),
        ("/v1/responses", {"text": {"format": {"type": "json_schema"}}}, "text.format.type"),
        ("/v1/responses", {"tools": [{"type": "web_search"}]}, "tools"),
        ("/v1/responses", {"include": ["message.output_text.logprobs"]}, "include"),
        ("/v1/completions", {"echo": True}, "echo"),
        ("/v1/completions", {"best_of": 2}, "best_of"),
        ("/v1/completions", {"prompt": ["a", "b"]}, "prompt"),
        ("/v1/messages", {"tool_choice": {"type": "any"}}, "tool_choice"),
        ("/v1/messages", {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools"),
        (
            "/v1beta/models/m@1:generateContent",
            {"generationConfig": {"responseMimeType": "application/json"}},
            "responseMimeType",
        ),
        ("/v1beta/models/m@1:generateContent", {"tools": [{"googleSearch": {}}]}, "tools"),
        (
            "/v1beta/models/m@1:generateContent",
            {"generationConfig": {"candidateCount": 2}},
            "candidateCount",
        ),
        ("/api/chat", {"format": "json"}, "format"),
        ("/api/generate", {"suffix": "x"}, "suffix"),
    ],
)
def test_what_is_not_done_here_is_refused_by_name(
    path: str, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(BadRequestError, match=text):
        read(path, {**_BODIES[path], **settings})


def test_the_version_that_the_gateway_chose_answers() -> None:
    """It writes that into the body, also where the client named another model in the path."""
    path = "/v1beta/models/gemini-pro:generateContent"
    assert read(path, _BODIES["/v1beta/models/m@1:generateContent"]).model == "gemini-pro"
    sent = {**_BODIES["/v1beta/models/m@1:generateContent"], "model": "shop@0001"}
    assert read(path, sent).model == "shop@0001"


def test_prompts_without_a_template_stay_as_they_are() -> None:
    assert read("/v1/completions", {"prompt": ["hi"]}).raw == "hi"
    assert read("/v1/completions", {"prompt": [1, 2]}).raw == (1, 2)
    assert read("/v1/completions", {"prompt": [[1, 2]]}).raw == (1, 2)
    assert read("/api/generate", {"prompt": "hi", "raw": True}).raw == "hi"
    assert read("/api/generate", {"prompt": "hi"}).raw is None


def test_a_client_that_forbids_tools_gets_none() -> None:
    tool = {"name": "price", "description": "", "parameters": {}}
    chat = {"tools": [{"type": "function", "function": tool}], "tool_choice": "none"}
    assert read("/v1/chat/completions", {**_BODIES["/v1/chat/completions"], **chat}).tools == []
    path = "/v1beta/models/m@1:generateContent"
    none = {"functionCallingConfig": {"mode": "NONE"}}
    body = {"tools": [{"functionDeclarations": [tool]}], "toolConfig": none}
    assert read(path, {**_BODIES[path], **body}).tools == []
