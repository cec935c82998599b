"""The provider: official SDKs work on it unmodified, streamed answers equal whole ones."""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from examples.practice.certificate import make_certificate
from examples.practice.prompts import SYSTEM_PROMPT
from examples.practice.provider import Provider
from tests.practice.conftest import KEY

ORDER = "Account type clinic, 7 lamps."
PARAMETERS = {
    "type": "object",
    "properties": {
        "item": {"type": "string"},
        "price_list": {"enum": ["retail", "trade"]},
        "quantity": {"type": "integer"},
    },
}
CHAT_TOOLS: Any = [
    {"type": "function", "function": {"name": "quote", "description": "", "parameters": PARAMETERS}}
]
RESPONSES_TOOLS: Any = [
    {"type": "function", "name": "quote", "parameters": PARAMETERS, "strict": False}
]
ANTHROPIC_TOOLS: Any = [{"name": "quote", "description": "", "input_schema": PARAMETERS}]
MESSAGES: Any = [
    {"role": "system", "content": SYSTEM_PROMPT},
    {"role": "user", "content": ORDER},
]
USER: Any = [{"role": "user", "content": ORDER}]


@pytest.fixture(scope="module")
def chat(provider_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{provider_url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def claude(provider_url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=provider_url, api_key=KEY, max_retries=0) as client:
        yield client


def test_chat_streamed_equals_whole(chat: openai.OpenAI) -> None:
    options: Any = {"model": "practice", "messages": MESSAGES, "tools": CHAT_TOOLS, "seed": 5}
    whole = chat.chat.completions.create(temperature=0.4, **options)
    with chat.chat.completions.stream(
        temperature=0.4, stream_options={"include_usage": True}, **options
    ) as stream:
        streamed = stream.get_final_completion()
    assert whole.model == streamed.model == "practice@v1"
    assert whole.id.startswith("chatcmpl-")
    first, second = whole.choices[0], streamed.choices[0]
    assert first.finish_reason == second.finish_reason == "tool_calls"
    assert first.message.content == second.message.content
    assert first.message.tool_calls
    assert second.message.tool_calls
    assert [(c.function.name, c.function.arguments) for c in first.message.tool_calls] == [
        (c.function.name, c.function.arguments) for c in second.message.tool_calls
    ]
    assert first.message.tool_calls[0].function.name == "quote"
    assert "item" in json.loads(first.message.tool_calls[0].function.arguments)
    assert whole.usage
    assert streamed.usage
    assert whole.usage.completion_tokens == streamed.usage.completion_tokens
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens


def test_token_ids_and_logprobs_are_the_engines(
    chat: openai.OpenAI, provider_url: str, model_folder: Path
) -> None:
    options: Any = {
        "model": "practice",
        "messages": MESSAGES,
        "tools": CHAT_TOOLS,
        "seed": 7,
        "logprobs": True,
        "top_logprobs": 0,
        "extra_body": {"return_token_ids": True},
    }
    whole = chat.chat.completions.create(**options).model_dump()
    ids, prompt = whole["choices"][0]["token_ids"], whole["prompt_token_ids"]
    said = whole["choices"][0]["logprobs"]["content"]
    assert len(said) == len(ids) == whole["usage"]["completion_tokens"]
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(prompt).endswith(f"<|user|>{ORDER}<|end|><|assistant|>")
    model = LlamaForCausalLM.from_pretrained(model_folder)
    with torch.no_grad():
        logprobs = model(input_ids=torch.tensor([prompt + ids])).logits[0].log_softmax(-1)
    for place, (token, entry) in enumerate(zip(ids, said, strict=True)):
        expected = float(logprobs[len(prompt) - 1 + place, token])
        assert entry["logprob"] == pytest.approx(expected, abs=2e-3)
        assert bytes(entry["bytes"]).decode() == entry["token"]

    streamed: list[int] = []
    streamed_logprobs: list[float] = []
    for position, chunk in enumerate(chat.chat.completions.create(stream=True, **options)):
        part = chunk.model_dump()
        if position == 0:
            assert part["prompt_token_ids"] == prompt
        for choice in part["choices"]:
            streamed += choice.get("token_ids") or []
            content = (choice.get("logprobs") or {}).get("content") or []
            streamed_logprobs += [entry["logprob"] for entry in content]
    assert streamed == ids
    assert streamed_logprobs == pytest.approx([e["logprob"] for e in said], abs=1e-4)


def test_responses_streamed_equals_whole_and_goes_on(chat: openai.OpenAI) -> None:
    options: Any = {
        "model": "practice",
        "instructions": SYSTEM_PROMPT,
        "input": ORDER,
        "tools": RESPONSES_TOOLS,
        "temperature": 0,
    }
    whole = chat.responses.create(**options)
    with chat.responses.stream(**options) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert "response.function_call_arguments.done" in kinds
    assert whole.output_text == streamed.output_text
    call, other = whole.output[-1], streamed.output[-1]
    assert call.type == other.type == "function_call"
    assert (call.name, call.arguments) == (other.name, other.arguments)
    assert whole.usage
    assert streamed.usage
    assert whole.usage.total_tokens == streamed.usage.total_tokens

    result: Any = {
        "type": "function_call_output",
        "call_id": call.call_id,
        "output": "total 335.30",
    }
    continued = chat.responses.create(
        **{**options, "input": [result], "previous_response_id": whole.id}
    )
    sent: Any = [{"role": "user", "content": ORDER}, *whole.model_dump()["output"], result]
    again = chat.responses.create(**{**options, "input": sent})
    assert continued.output_text == again.output_text
    assert continued.usage
    assert again.usage
    assert continued.usage.input_tokens == again.usage.input_tokens
    with pytest.raises(openai.BadRequestError, match="no such response is kept"):
        chat.responses.create(**{**options, "previous_response_id": "resp_unknown"})


def test_messages_streamed_equal_whole_and_take_results(claude: anthropic.Anthropic) -> None:
    options: Any = {
        "model": "practice",
        "system": SYSTEM_PROMPT,
        "messages": USER,
        "tools": ANTHROPIC_TOOLS,
        "max_tokens": 100,
        "extra_body": {"temperature": 0},
    }
    whole = claude.messages.create(**options)
    with claude.messages.stream(**options) as stream:
        streamed = stream.get_final_message()
    assert whole.stop_reason == streamed.stop_reason == "tool_use"
    assert whole.model == "practice@v1"
    shown = [
        [{k: v for k, v in block.items() if k != "id"} for block in message.model_dump()["content"]]
        for message in (whole, streamed)
    ]
    assert shown[0] == shown[1]
    assert whole.usage.output_tokens == streamed.usage.output_tokens
    use = whole.content[-1]
    assert use.type == "tool_use"
    result: Any = {"type": "tool_result", "tool_use_id": use.id, "content": "total 335.30"}
    history: Any = [
        *USER,
        {"role": "assistant", "content": [block.model_dump() for block in whole.content]},
        {"role": "user", "content": [result]},
    ]
    answer = claude.messages.create(**{**options, "messages": history})
    assert answer.usage.input_tokens > whole.usage.input_tokens
    short = claude.messages.create(**{**options, "max_tokens": 2})
    assert short.stop_reason == "max_tokens"


def test_a_second_step_extends_the_tokens_of_the_first(chat: openai.OpenAI) -> None:
    extra: Any = {"extra_body": {"return_token_ids": True}, "tools": CHAT_TOOLS, "temperature": 0}
    first = chat.chat.completions.create(model="practice", messages=MESSAGES, **extra).model_dump()
    said = {
        key: value
        for key, value in first["choices"][0]["message"].items()
        if key in ("role", "content", "tool_calls")
    }
    result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "total 1.00"}
    history: Any = [*MESSAGES, said, result]
    second = chat.chat.completions.create(model="practice", messages=history, **extra).model_dump()
    before = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
    assert second["prompt_token_ids"][: len(before)] == before


def test_errors_have_the_providers_shapes(provider_url: str, chat: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        chat.chat.completions.create(model="other", messages=MESSAGES)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="n: this server knows no other value than 1"):
        chat.chat.completions.create(model="practice", messages=MESSAGES, n=2)
    with pytest.raises(openai.BadRequestError, match="context of 1024"):
        chat.chat.completions.create(model="practice", messages=MESSAGES, max_tokens=5000)
    stranger = openai.OpenAI(base_url=f"{provider_url}/v1", api_key="wrong", max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()
    other = anthropic.Anthropic(base_url=provider_url, api_key="wrong", max_retries=0)
    with other, pytest.raises(anthropic.AuthenticationError) as refused:
        other.messages.create(model="practice", messages=USER, max_tokens=5)
    assert refused.value.body
    assert [model.id for model in chat.models.list()] == ["practice@v1"]
    hostile = httpx.post(
        f"{provider_url}/v1/chat/completions",
        content=b"[1,2",
        headers={"authorization": f"Bearer {KEY}"},
        trust_env=False,
    )
    assert hostile.status_code == 400
    assert hostile.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "assistant", "tool_calls": [{}]}]},
        {"messages": ["text"]},
        {"messages": [{"role": "user", "content": [3]}]},
        {"messages": [{"role": "user", "content": "x"}], "temperature": "hot"},
        {"messages": [{"role": "user", "content": "x"}], "top_p": 0},
        {"messages": [{"role": "user", "content": "x"}], "max_tokens": -1},
        {"input": [{"type": "function_call"}], "messages": [{"role": "user", "content": [[]]}]},
        {"input": [7], "messages": {}},
    ],
)
def test_hostile_bodies_are_bad_requests(provider_url: str, body: dict[str, Any]) -> None:
    for path in ("chat/completions", "responses", "messages"):
        answer = httpx.post(
            f"{provider_url}/v1/{path}",
            json={"model": "practice", "max_tokens": 5, **body},
            headers={"x-api-key": KEY},
            trust_env=False,
        )
        assert answer.status_code in (200, 400)
    assert "error" in answer.json() or answer.status_code == 200


def test_answers_name_the_version(chat: openai.OpenAI) -> None:
    for asked in ("practice", "practice@v1"):
        answer = chat.chat.completions.create(
            model=asked, messages=MESSAGES, max_completion_tokens=3
        )
        assert answer.model == "practice@v1"
    for other in ("practice@..", "practice@v3", "..@v1"):
        with pytest.raises(openai.NotFoundError):
            chat.chat.completions.create(model=other, messages=MESSAGES)


def test_https_answers_as_http_does(model_folder: Path, tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files.cert, files.key)
    provider = Provider(model_folder, key=KEY)
    trusting = ssl.create_default_context(cafile=str(files.ca))
    said = []
    with (
        provider.listen() as clear,
        provider.listen(tls=tls) as secure,
        httpx.Client(verify=trusting, trust_env=False) as client,
    ):
        for address in (f"http://localhost:{clear.port}", f"https://localhost:{secure.port}"):
            body = {"model": "practice", "messages": MESSAGES, "temperature": 0, "max_tokens": 9}
            answer = client.post(
                f"{address}/v1/chat/completions", json=body, headers={"x-api-key": KEY}
            )
            said.append(answer.json()["choices"])
    provider.engine.stop()
    assert said[0] == said[1]


def test_faults_are_real_and_counted(model_folder: Path) -> None:
    provider = Provider(model_folder, key=KEY, faults=1.0)
    seen: set[str] = set()
    with provider.listen() as server, httpx.Client(trust_env=False) as client:
        for number in range(24):
            body = {"model": "practice", "messages": MESSAGES, "stream": number % 2 == 0}
            try:
                answer = client.post(
                    f"http://127.0.0.1:{server.port}/v1/chat/completions",
                    json={**body, "max_tokens": 30},
                    headers={"x-api-key": KEY},
                )
                if answer.status_code == 500:
                    seen.add("error")
                else:
                    with pytest.raises(ValueError, match=r"(?i)delimiter|expecting|unterminated"):
                        answer.json()
                    seen.add("malformed")
            except httpx.RemoteProtocolError:
                seen.add("cut")
    assert seen == {"error", "malformed", "cut"}
    assert provider.faults.total() == provider.received["/v1/chat/completions"] == 24
