"""The models' server, asked by the official SDKs: a tool call and its answer, whole and streamed."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.headrace.serving.scripted import KEY, LABEL, SAID, ScriptedNetwork, scripted_server

pytestmark = pytest.mark.filterwarnings("ignore")

SYSTEM = "Be brief."
QUESTION = "What does the lamp cost?"
SCHEMA = {"type": "object", "properties": {"item": {"type": "string"}}}
TOOL: dict[str, Any] = {"name": "price", "description": "Price.", "parameters": SCHEMA}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, ScriptedNetwork]]:
    with scripted_server() as server:
        yield server


@pytest.fixture
def url(served: tuple[str, ScriptedNetwork]) -> str:
    served[1].prompts.clear()
    served[1].says = None
    return served[0]


@pytest.mark.parametrize("stream", [False, True])
def test_openai_chat(url: str, stream: bool) -> None:
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        messages: list[Any] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": QUESTION},
        ]
        asked: dict[str, Any] = {"model": LABEL, "tools": [{"type": "function", "function": TOOL}]}

        def ask() -> Any:
            if not stream:
                return client.chat.completions.create(messages=messages, **asked).choices[0]
            with client.chat.completions.stream(messages=messages, **asked) as events:
                return events.get_final_completion().choices[0]

        first = ask()
        (call,) = first.message.tool_calls
        assert first.finish_reason == "tool_calls"
        assert (call.function.name, json.loads(call.function.arguments)) == (
            "price",
            {"item": "lamp"},
        )
        messages += [
            first.message.model_dump(exclude_none=True, exclude={"parsed"}),
            {"role": "tool", "tool_call_id": call.id, "content": "9"},
        ]
        last = ask()
        assert (last.message.content, last.finish_reason) == (SAID, "stop")


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_openai_responses(url: str, stream: bool, named: bool) -> None:
    """The conversation is sent again, or gone on with by the name of the response before."""
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        asked: dict[str, Any] = {
            "model": LABEL,
            "tools": [{"type": "function", **TOOL}],
            "instructions": SYSTEM,
        }

        def ask(given: Any, **more: Any) -> Any:
            if not stream:
                return client.responses.create(input=given, **asked, **more)
            with client.responses.stream(input=given, **asked, **more) as events:
                return events.get_final_response()

        items: list[Any] = [{"role": "user", "content": QUESTION}]
        first = ask(items)
        (call,) = first.output
        assert (call.type, call.name, json.loads(call.arguments)) == (
            "function_call",
            "price",
            {"item": "lamp"},
        )
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "9"}
        if named:
            last = ask([result], previous_response_id=first.id)
        else:
            again = call.model_dump(exclude_none=True, exclude={"parsed_arguments"})
            last = ask([*items, again, result])
        assert (last.output_text, last.status) == (SAID, "completed")
        with pytest.raises(openai.BadRequestError, match="no such response is kept here"):
            client.responses.create(input="hi", previous_response_id="resp_x", model=LABEL)
        assert client.responses.input_tokens.count(input=items, **asked).input_tokens == (
            first.usage.input_tokens
        )


@pytest.mark.parametrize("stream", [False, True])
def test_openai_completions(url: str, stream: bool) -> None:
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        given: dict[str, Any] = {"model": LABEL, "prompt": "tool\n9<|im_end|>", "logprobs": 1}
        if stream:
            chunks = list(client.completions.create(**given, stream=True))
            said = "".join(chunk.choices[0].text for chunk in chunks)
            some = [chunk.choices[0].logprobs for chunk in chunks]
            told = [number for one in some if one for number in one.token_logprobs]
        else:
            [choice] = client.completions.create(**given).choices
            said, told = choice.text, choice.logprobs.token_logprobs
        assert said == SAID
        assert all(number == pytest.approx(0, abs=1e-3) for number in told)
        assert told


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic(url: str, stream: bool) -> None:
    import anthropic

    with anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0) as client:
        tool = {"name": "price", "description": "Price.", "input_schema": SCHEMA}
        shown: dict[str, Any] = {"model": LABEL, "tools": [tool], "system": SYSTEM}
        messages: list[Any] = [{"role": "user", "content": QUESTION}]

        def ask(**more: Any) -> Any:
            given = {"messages": messages, "max_tokens": 200, **shown, **more}
            if not stream:
                return client.messages.create(**given)
            with client.messages.stream(**given) as events:
                return events.get_final_message()

        first = ask()
        (call,) = first.content
        assert (first.stop_reason, call.type, call.name, call.input) == (
            "tool_use",
            "tool_use",
            "price",
            {"item": "lamp"},
        )
        counted = client.messages.count_tokens(messages=messages, **shown)
        assert counted.input_tokens == first.usage.input_tokens
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "9"}
        messages += [
            {
                "role": "assistant",
                "content": [call.model_dump(include={"type", "id", "name", "input"})],
            },
            {"role": "user", "content": [result]},
        ]
        last = ask()
        assert (last.content[0].text, last.stop_reason) == (SAID, "end_turn")
        cut = ask(stop_sequences=["costs"])
        assert (cut.content[0].text, cut.stop_reason, cut.stop_sequence) == (
            "It ",
            "stop_sequence",
            "costs",
        )
        assert [model.id for model in client.models.list()] == [LABEL]
        with pytest.raises(anthropic.NotFoundError, match="no such version"):
            client.messages.create(model="x", messages=messages, max_tokens=9)
    with (
        anthropic.Anthropic(base_url=url, api_key="x", max_retries=0) as client,
        pytest.raises(anthropic.AuthenticationError, match="the key of this server"),
    ):
        client.messages.create(model=LABEL, messages=messages, max_tokens=9)


@pytest.mark.parametrize("stream", [False, True])
def test_gemini(url: str, stream: bool) -> None:
    from google import genai
    from google.genai import errors, types

    client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=url))
    declared = types.FunctionDeclaration(
        name="price",
        description="Price.",
        parameters=types.Schema(
            type=types.Type.OBJECT,
            properties={"item": types.Schema(type=types.Type.STRING)},
        ),
    )
    config = types.GenerateContentConfig(
        system_instruction=SYSTEM,
        tools=[types.Tool(function_declarations=[declared])],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        response_logprobs=True,
    )
    contents: list[Any] = [types.Content(role="user", parts=[types.Part(text=QUESTION)])]

    def ask() -> list[Any]:
        given: dict[str, Any] = {"model": LABEL, "contents": contents, "config": config}
        if not stream:
            return [client.models.generate_content(**given)]
        return list(client.models.generate_content_stream(**given))

    first = ask()
    [call] = [call for chunk in first for call in chunk.function_calls or ()]
    assert (call.name, call.args) == ("price", {"item": "lamp"})
    counted = client.models.count_tokens(model=LABEL, contents=QUESTION)
    assert 0 < counted.total_tokens < first[-1].usage_metadata.prompt_token_count
    contents += [
        types.Content(role="model", parts=[types.Part(function_call=call)]),
        types.Content(
            role="user",
            parts=[types.Part.from_function_response(name="price", response={"result": "9"})],
        ),
    ]
    last = ask()
    assert "".join(chunk.text or "" for chunk in last) == SAID
    assert last[-1].candidates[0].finish_reason == types.FinishReason.STOP
    results = [chunk.candidates[0].logprobs_result for chunk in last]
    tokens = [one.token_id for result in results if result for one in result.chosen_candidates]
    assert len(tokens) == last[-1].usage_metadata.candidates_token_count
    assert [model.name for model in client.models.list()] == [f"models/{LABEL}"]
    with pytest.raises(errors.ClientError, match="NOT_FOUND"):
        client.models.generate_content(model="x", contents="hi")
    client.close()


def test_gemini_streams_an_array_where_nobody_asks_for_events(url: str) -> None:
    answer = httpx.post(
        f"{url}/v1beta/models/{LABEL}:streamGenerateContent",
        json={"contents": [{"parts": [{"text": "tool\n9<|im_end|>"}]}]},
        headers={"x-goog-api-key": KEY},
    )
    chunks = answer.json()
    said = "".join(part["text"] for c in chunks for part in c["candidates"][0]["content"]["parts"])
    assert (said, len(chunks) > 3) == (SAID, True)


@pytest.mark.parametrize("stream", [False, True])
def test_ollama(url: str, stream: bool) -> None:
    import ollama

    client = ollama.Client(host=url, headers={"Authorization": f"Bearer {KEY}"})
    messages: list[Any] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": QUESTION},
    ]
    tools = [{"type": "function", "function": TOOL}]

    def ask() -> list[Any]:
        found = client.chat(LABEL, messages=messages, tools=tools, stream=stream)
        return list(found) if stream else [found]

    first = ask()
    [call] = [call for line in first for call in line.message.tool_calls or ()]
    assert (call.function.name, call.function.arguments) == ("price", {"item": "lamp"})
    messages += [
        {"role": "assistant", "content": "", "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_name": "price", "content": "9"},
    ]
    last = ask()
    assert "".join(line.message.content for line in last) == SAID
    assert (last[-1].done, last[-1].done_reason) == (True, "stop")
    assert last[-1].eval_count > 3
    made = client.generate(LABEL, prompt="tool\n9<|im_end|>", raw=True, stream=stream)
    lines = list(made) if stream else [made]
    assert "".join(line.response for line in lines) == SAID
    assert [model.model for model in client.list().models] == [LABEL]
    with pytest.raises(ollama.ResponseError, match="no such version") as told:
        client.chat("x", messages=messages)
    assert told.value.status_code == 404
    client.close()


def test_all_clients_show_the_model_the_same_tokens(
    served: tuple[str, ScriptedNetwork],
) -> None:
    """Each test above ends its conversation with the same turns; the prompts of both are compared."""
    url, network = served
    prompts = []
    for drive in (test_openai_chat, test_anthropic, test_gemini, test_ollama):
        network.prompts.clear()
        network.says = None
        drive(url, False)
        prompts.append(network.prompts[:2])
    network.prompts.clear()
    test_openai_responses(url, False, named=True)
    prompts.append(network.prompts[:2])
    assert prompts == [prompts[0]] * len(prompts)
