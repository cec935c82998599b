"""Official SDKs as clients: each driver holds one short conversation through one address.

A driver gets the address of its provider and a key. It returns what its application would see.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.provider.answer import QUESTION, SCHEMA, SYSTEM


@dataclass
class Wire:
    """Where a driver's requests go, and what has come back as bytes."""

    url: str
    key: str
    proxy: str | None = None
    verify: Any = True
    """What httpx trusts; a file for the others."""
    bundle: str | None = None
    received: list[tuple[int, list[tuple[bytes, bytes]], bytes]] = field(default_factory=list)
    """Status, headers and body of each response, still encoded, for clients on httpx."""

    def transport(self, library: Any = httpx) -> Any:
        """Return a transport that keeps what comes back, for httpx or its successor."""
        wire = self

        class RecordingTransport(library.HTTPTransport):  # type: ignore[misc,name-defined]
            def handle_request(self, request: Any) -> Any:
                response = super().handle_request(request)
                response.stream = RecordingStream(response)
                return response

        class RecordingStream(library.SyncByteStream):  # type: ignore[misc,name-defined]
            def __init__(self, response: Any) -> None:
                self.inner, self.response = response.stream, response
                self.pieces: list[bytes] = []

            def __iter__(self) -> Any:
                for piece in self.inner:
                    self.pieces.append(piece)
                    yield piece

            def close(self) -> None:
                self.inner.close()
                body, response = b"".join(self.pieces), self.response
                wire.received.append((response.status_code, response.headers.raw, body))

        return RecordingTransport(verify=self.verify, proxy=self.proxy, trust_env=False)

    def client(self, library: Any = httpx, **settings: Any) -> Any:
        """Return a client over it."""
        return library.Client(
            transport=self.transport(library), timeout=30, trust_env=False, **settings
        )


def _openai(wire: Wire, **settings: Any) -> Any:
    import openai

    return openai.OpenAI(
        base_url=f"{wire.url}/v1",
        api_key=wire.key,
        max_retries=0,
        http_client=wire.client(),
        **settings,
    )


def openai_chat(wire: Wire, *, stream: bool = False, client: Any = None, **more: Any) -> Any:
    """The tool loop over chat completions."""
    messages: list[Any] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": QUESTION},
    ]
    function = {"name": "add", "description": "Add two integers.", "parameters": SCHEMA}
    tools: Any = [{"type": "function", "function": function}]
    said = []
    with client or _openai(wire) as api:
        for _ in range(2):
            settings: Any = {"model": "tiny", "tools": tools, "temperature": 0.5, **more}
            if stream:
                with api.chat.completions.stream(messages=messages, **settings) as events:
                    for _event in events:
                        pass
                    message = events.get_final_completion().choices[0].message
            else:
                answer = api.chat.completions.create(messages=messages, **settings)
                message = answer.choices[0].message
            said.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
            messages.append(said[-1])
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": "42"}
                for call in message.tool_calls or []
            ]
    return said


def openai_chat_stream(wire: Wire) -> Any:
    """The same, streamed."""
    return openai_chat(wire, stream=True, stream_options={"include_usage": True})


def openai_encodings(wire: Wire) -> Any:
    """One question under each content encoding."""
    messages: Any = [{"role": "user", "content": QUESTION}]
    tools: Any = [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}]
    said = []
    with _openai(wire) as api:
        for encoding in ("gzip", "deflate", "br", "zstd"):
            answer = api.chat.completions.create(
                model="tiny",
                messages=messages,
                tools=tools,
                extra_headers={"x-test-encoding": encoding},
            )
            said.append(answer.choices[0].message.tool_calls[0].function.arguments)
    return said


def azure_chat(wire: Wire, *, stream: bool = False) -> Any:
    """The tool loop at a deployment of Azure's."""
    import openai

    client = openai.AzureOpenAI(
        azure_endpoint=wire.url,
        api_key=wire.key,
        api_version="2025-04-01-preview",
        max_retries=0,
        http_client=wire.client(),
    )
    return openai_chat(wire, stream=stream, client=client)


def azure_chat_stream(wire: Wire) -> Any:
    """The same, streamed."""
    return azure_chat(wire, stream=True)


def openai_completions(wire: Wire) -> Any:
    """Older completions: plain, with tokens, streamed; and an error."""
    import openai

    with _openai(wire) as api:
        prompt = "Six times seven is"
        plain = api.completions.create(model="tiny", prompt=prompt, max_tokens=5, suffix=".")
        extra = {"return_token_ids": True}
        tokens = api.completions.create(
            model="tiny", prompt=prompt, logprobs=0, user="user-7", extra_body=extra
        )
        chunks = list(api.completions.create(model="tiny", prompt=prompt, stream=True))
        try:
            api.completions.create(model="fail", prompt=prompt)
        except openai.NotFoundError as error:
            failure = error.status_code
    texts = [chunk.choices[0].text for chunk in chunks if chunk.choices]
    return [plain.choices[0].text, tokens.choices[0].text, "".join(texts), failure]


def openai_inputs(wire: Wire) -> Any:
    """Embeddings and moderations."""
    with _openai(wire) as api:
        made = api.embeddings.create(
            model="embed", input=["a", "b"], dimensions=2, encoding_format="float"
        )
        judged = api.moderations.create(model="moderate", input="hurt them")
        return [made.data[0].embedding, judged.results[0].flagged]


def openai_responses(wire: Wire, *, stream: bool = False) -> Any:
    """The tool loop over responses."""
    tools: Any = [{"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}]
    settings: Any = {"model": "tiny", "tools": tools, "instructions": SYSTEM}
    given: list[Any] = [{"role": "user", "content": QUESTION}]
    said = []
    with _openai(wire) as api:
        for _ in range(2):
            if stream:
                with api.responses.stream(input=given, **settings) as events:
                    for _event in events:
                        pass
                    answer = events.get_final_response()
            else:
                answer = api.responses.create(input=given, **settings)
            said += [item.model_dump(exclude_none=True) for item in answer.output]
            told = {"type": "function_call_output", "call_id": "call_1", "output": "42"}
            given += [*said[-1:], told]
    return said


def openai_responses_stream(wire: Wire) -> Any:
    """The same, streamed."""
    return openai_responses(wire, stream=True)


def openai_responses_kept(wire: Wire) -> Any:
    """Background responses, conversations, phases, namespaces, a compaction, and a failure."""
    with _openai(wire) as api:
        queued = api.responses.create(model="rich", input=QUESTION, background=True)
        answer = api.responses.retrieve(queued.id)
        kept = api.conversations.create()
        settings: Any = {"model": "rich", "conversation": kept.id, "instructions": SYSTEM}
        function: Any = {"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}
        settings["tools"] = [
            {"type": "namespace", "name": "sums", "description": "Sums.", "tools": [function]}
        ]
        asked = api.responses.create(input=QUESTION, **settings)
        history: Any = [item.to_dict() for item in asked.output]
        compacted = api.responses.compact(model="rich", input=history)
        events = list(api.responses.create(model="breaks", input=QUESTION, stream=True))
        said = [answer.output_text, asked.output_text, compacted.output[0].type, events[-1].type]
        return [queued.status, kept.id, *said]


def anthropic_documents(wire: Wire, *, stream: bool = False) -> Any:
    """A text document, sources in the answer, and a compaction."""
    import anthropic
    import httpx2

    source = {"type": "text", "media_type": "text/plain", "data": "The sum is 42."}
    document = {"type": "document", "source": source, "title": "Sums"}
    document["citations"] = {"enabled": True}
    asked: Any = [document, {"type": "text", "text": QUESTION}]
    settings: Any = {"model": "rich", "max_tokens": 99}
    settings["messages"] = [{"role": "user", "content": asked}]
    settings["context_management"] = {"edits": [{"type": "compact_20260112"}]}
    with anthropic.Anthropic(
        base_url=wire.url, api_key=wire.key, max_retries=0, http_client=wire.client(httpx2)
    ) as api:
        if stream:
            with api.beta.messages.stream(**settings) as events:
                answer: Any = events.get_final_message()
        else:
            answer = api.beta.messages.create(**settings)
    return [block.model_dump(exclude_none=True) for block in answer.content]


def anthropic_documents_stream(wire: Wire) -> Any:
    """The same, streamed."""
    return anthropic_documents(wire, stream=True)


def anthropic_messages(wire: Wire, *, stream: bool = False) -> Any:
    """The tool loop over messages."""
    import anthropic
    import httpx2

    with anthropic.Anthropic(
        base_url=wire.url, api_key=wire.key, max_retries=0, http_client=wire.client(httpx2)
    ) as api:
        return _tool_loop(api, "tiny", stream=stream)


def anthropic_vertex(wire: Wire, *, stream: bool = False) -> Any:
    """The same through Vertex AI, whose paths name the model and whose bodies do not."""
    import anthropic
    import httpx2

    with anthropic.AnthropicVertex(
        base_url=f"{wire.url}/v1",
        region="us-east5",
        project_id="acme",
        access_token=wire.key,
        max_retries=0,
        http_client=wire.client(httpx2),
    ) as api:
        said = _tool_loop(api, "tiny@20260101", stream=stream)
        asked: Any = [{"role": "user", "content": QUESTION}]
        return said, api.messages.count_tokens(model="tiny@20260101", messages=asked).input_tokens


def anthropic_vertex_stream(wire: Wire) -> Any:
    """The same, streamed."""
    return anthropic_vertex(wire, stream=True)


def _tool_loop(api: Any, model: str, *, stream: bool) -> Any:
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    tool: Any = {"name": "add", "description": "Add two integers.", "input_schema": SCHEMA}
    said = []
    for _ in range(2):
        settings: Any = {"model": model, "max_tokens": 99, "system": SYSTEM, "tools": [tool]}
        if stream:
            with api.messages.stream(messages=messages, **settings) as events:
                answer: Any = events.get_final_message()
        else:
            answer = api.messages.create(messages=messages, **settings)
        content = [block.model_dump(exclude_none=True) for block in answer.content]
        said.append(content)
        messages.append({"role": "assistant", "content": content})
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "42"}
        messages.append({"role": "user", "content": [result]})
    return said


def anthropic_messages_stream(wire: Wire) -> Any:
    """The same, streamed."""
    return anthropic_messages(wire, stream=True)


def anthropic_count(wire: Wire) -> Any:
    """A token count."""
    import anthropic
    import httpx2

    with anthropic.Anthropic(
        base_url=wire.url, api_key=wire.key, http_client=wire.client(httpx2)
    ) as api:
        asked: Any = [{"role": "user", "content": QUESTION}]
        return api.messages.count_tokens(model="tiny", messages=asked).input_tokens


def _gemini(wire: Wire) -> Any:
    from google import genai
    from google.genai import types

    options = types.HttpOptions(
        base_url=wire.url, client_args={"transport": wire.transport(), "trust_env": False}
    )
    return genai.Client(api_key=wire.key, http_options=options)


def gemini(wire: Wire, *, stream: bool = False) -> Any:
    """The tool loop over a chat of the SDK, which keeps the history itself."""
    from google.genai import types

    api = _gemini(wire)
    declared: Any = {"name": "add", "description": "Add.", "parameters_json_schema": SCHEMA}
    config = types.GenerateContentConfig(
        system_instruction=SYSTEM,
        temperature=0.5,
        tools=[types.Tool(function_declarations=[declared])],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    chat = api.chats.create(model="tiny", config=config)
    result = types.Part.from_function_response(name="add", response={"result": 42})
    said = []
    asked: Any
    for asked in (QUESTION, result, "Thanks. Once more?"):
        if stream:
            chunks = list(chat.send_message_stream(asked))
            said.append([chunk.model_dump(exclude_none=True)["candidates"] for chunk in chunks])
        else:
            answer = chat.send_message(asked)
            said.append(answer.model_dump(exclude_none=True)["candidates"])
    return json.loads(json.dumps(said, default=str))


def gemini_stream(wire: Wire) -> Any:
    """The same, streamed as server-sent events."""
    return gemini(wire, stream=True)


def gemini_interactions(wire: Wire, *, stream: bool = False) -> Any:
    """The tool loop over interactions: the second one names the first."""
    api = _gemini(wire)
    tool: Any = {"type": "function", "name": "add", "description": "Add.", "parameters": SCHEMA}
    settings: Any = {"model": "tiny", "tools": [tool], "system_instruction": SYSTEM}
    settings["generation_config"] = {"temperature": 0.5}
    told: Any = {"type": "function_result", "call_id": "call_1", "name": "add", "result": "42"}
    said, before = [], {}
    given: Any
    for given in (QUESTION, [told]):
        answer = api.interactions.create(input=given, stream=stream, **settings, **before)
        if stream:
            events = [event.model_dump(mode="json", exclude_none=True) for event in answer]
            said.append(events)
            before = {"previous_interaction_id": events[0]["interaction"]["id"]}
        else:
            said.append(answer.model_dump(mode="json", exclude_none=True))
            before = {"previous_interaction_id": answer.id}
    return said


def gemini_interactions_stream(wire: Wire) -> Any:
    """The same, streamed."""
    return gemini_interactions(wire, stream=True)


def gemini_errors(wire: Wire) -> Any:
    """An error and a token count."""
    from google.genai import errors

    api = _gemini(wire)
    counted = api.models.count_tokens(model="tiny", contents=QUESTION).total_tokens
    try:
        api.models.generate_content(model="fail", contents=QUESTION)
    except errors.ClientError as error:
        return [counted, error.code]
    return None


def gemini_array(wire: Wire) -> Any:
    """A stream without ``alt=sse``: a JSON array, as REST clients get it."""
    content = {"role": "user", "parts": [{"text": QUESTION}]}
    with wire.client(headers={"x-goog-api-key": wire.key}) as api:
        url = f"{wire.url}/v1beta/models/tiny:streamGenerateContent"
        return api.post(url, json={"contents": [content]}).json()


def bedrock_client(wire: Wire) -> Any:
    """Return boto3's client; it signs as always and names its Headrace key in a header."""
    import boto3
    from botocore.config import Config

    session = boto3.Session("AKIATEST", "secret", region_name="us-east-1")
    config = Config(
        retries={"total_max_attempts": 1},
        proxies={"http": wire.proxy, "https": wire.proxy} if wire.proxy else {},
    )
    client = session.client(
        "bedrock-runtime", endpoint_url=wire.url, config=config, verify=wire.bundle
    )

    def name_key(request: Any, **_: Any) -> None:
        request.headers["x-headrace-key"] = wire.key

    if wire.proxy is None:
        client.meta.events.register("before-send.bedrock-runtime.*", name_key)
    return client


MODEL = "anthropic.tiny-v1:0"
_BEDROCK_TOOLS: Any = {
    "tools": [{"toolSpec": {"name": "add", "description": "Add.", "inputSchema": {"json": SCHEMA}}}]
}


def bedrock_converse(wire: Wire, *, stream: bool = False) -> Any:
    """The tool loop over converse."""
    api = bedrock_client(wire)
    messages: list[Any] = [{"role": "user", "content": [{"text": QUESTION}]}]
    said: list[Any] = []
    for _ in range(2):
        settings: Any = {
            "modelId": MODEL,
            "messages": messages,
            "system": [{"text": SYSTEM}],
            "inferenceConfig": {"temperature": 0.5, "maxTokens": 99},
            "toolConfig": _BEDROCK_TOOLS,
            "requestMetadata": {"session_id": "session-3"},
        }
        if stream:
            said.append(list(api.converse_stream(**settings)["stream"]))
            thought = {"reasoningText": {"text": "I should add.", "signature": "c2ln"}}
            use = {
                "toolUse": {"toolUseId": "tooluse_1", "name": "add", "input": {"a": 19, "b": 23}}
            }
            messages.append({"role": "assistant", "content": [{"reasoningContent": thought}, use]})
        else:
            said.append(api.converse(**settings)["output"]["message"])
            messages.append(said[-1])
        result = {"toolUseId": "tooluse_1", "content": [{"text": "42"}], "status": "success"}
        messages.append({"role": "user", "content": [{"toolResult": result}]})
    return said


def bedrock_converse_stream(wire: Wire) -> Any:
    """The same, streamed as AWS events."""
    return bedrock_converse(wire, stream=True)


def bedrock_errors(wire: Wire) -> Any:
    """A refused call, and a stream that ends in an exception."""
    from botocore.exceptions import ClientError, EventStreamError

    api = bedrock_client(wire)
    asked: Any = [{"role": "user", "content": [{"text": QUESTION}]}]
    codes = []
    try:
        api.converse(modelId="fail.tiny", messages=asked)
    except ClientError as error:
        codes.append(error.response["Error"]["Code"])
    try:
        list(api.converse_stream(modelId="breaks.tiny", messages=asked)["stream"])
    except EventStreamError as error:
        codes.append(error.response["Error"]["Code"])
    return codes


def bedrock_invoke(wire: Wire) -> Any:
    """Bodies of several model families, plain and streamed."""
    api = bedrock_client(wire)
    message = {"role": "user", "content": QUESTION}
    claude = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 99, "messages": [message]}
    blocks = [{"role": "user", "content": [{"text": QUESTION}]}]
    nova = {"schemaVersion": "messages-v1", "messages": blocks}
    llama = {"prompt": QUESTION, "temperature": 0.5, "max_gen_len": 9}
    titan = {"inputText": QUESTION, "textGenerationConfig": {"maxTokenCount": 9}}
    asked: list[tuple[str, dict[str, Any], bool]] = [
        (MODEL, claude, False),
        (MODEL, claude, True),
        ("amazon.nova-tiny", nova, False),
        ("meta.llama-tiny", llama, False),
        ("meta.llama-tiny", llama, True),
        ("amazon.titan-tiny", titan, False),
        ("amazon.embed-tiny", {"inputText": QUESTION}, False),
    ]
    said: list[Any] = []
    for model, body, stream in asked:
        data = json.dumps(body).encode()
        if stream:
            events = api.invoke_model_with_response_stream(modelId=model, body=data)["body"]
            said.append([json.loads(event["chunk"]["bytes"]) for event in events])
        else:
            said.append(json.loads(api.invoke_model(modelId=model, body=data)["body"].read()))
    return said


def ollama(wire: Wire) -> Any:
    """The tool loop streamed (Ollama's default), a plain answer, a generation and an error."""
    call = {"function": {"name": "add", "arguments": {"a": 19, "b": 23}}}
    messages: list[Any] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": QUESTION},
    ]
    function = {"name": "add", "description": "Add.", "parameters": SCHEMA}
    base = {"model": "tiny", "tools": [{"type": "function", "function": function}]}
    base["options"] = {"temperature": 0.5, "seed": 3}  # type: ignore[assignment]
    said = []
    with wire.client(headers={"Authorization": f"Bearer {wire.key}"}) as api:
        said.append(api.post(f"{wire.url}/api/chat", json={**base, "messages": messages}).text)
        asked = {"role": "assistant", "content": "", "thinking": "I should add."}
        messages += [{**asked, "tool_calls": [call]}]
        messages += [{"role": "tool", "tool_name": "add", "content": "42"}]
        for stream in (True, False):
            body = {**base, "messages": messages, "stream": stream}
            said.append(api.post(f"{wire.url}/api/chat", json=body).text)
        body = {"model": "tiny", "prompt": "Six times seven?", "system": SYSTEM, "stream": True}
        said.append(api.post(f"{wire.url}/api/generate", json=body).text)
        said.append(api.post(f"{wire.url}/api/chat", json={**base, "model": "fail"}).text)
    return said


def a2a(wire: Wire) -> Any:
    """Tasks for another agent: sent, streamed, looked after, refused; both versions."""
    message = {"role": "user", "messageId": "m-1", "kind": "message", "contextId": "context-1"}
    message["parts"] = [{"kind": "text", "text": QUESTION}]  # type: ignore[assignment]
    refused = {**message, "parts": [{"kind": "text", "text": "fail"}]}
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("/agent", "message/send", {"message": message, "configuration": {"blocking": True}}),
        ("/agent", "message/stream", {"message": message}),
        ("/agent", "tasks/get", {"id": "task-0"}),
        ("/agent", "tasks/get", {"id": "task-1"}),
        ("/agent", "message/send", {"message": refused}),
        ("/agent/v1", "SendStreamingMessage", {"message": message}),
    ]
    said = []
    with wire.client(headers={"Authorization": f"Bearer {wire.key}"}) as api:
        for number, (path, method, parameters) in enumerate(asked):
            body = {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}
            said.append(api.post(f"{wire.url}{path}", json=body).text)
        said.append(api.post(f"{wire.url}/agent/message:send", json={"message": message}).text)
    return said


def http_tools(wire: Wire) -> Any:
    """Operations of a plain HTTP tool: looked up, made, watched, missing, unknown."""
    said = []
    with wire.client(headers={"Authorization": f"Bearer {wire.key}"}) as api:
        said.append(api.get(f"{wire.url}/orders/17", params={"full": "true"}).json())
        said.append(api.post(f"{wire.url}/orders", json={"item": "lamp", "quantity": 3}).json())
        said.append(api.get(f"{wire.url}/orders/17/events").text)
        said.append(api.get(f"{wire.url}/orders/404").status_code)
    return said


def mistral_conversations(wire: Wire) -> Any:
    """The tool loop in one conversation, whole and streamed, and an error."""
    function = {"name": "add", "description": "Add.", "parameters": SCHEMA}
    begun = {
        "model": "tiny",
        "instructions": SYSTEM,
        "inputs": QUESTION,
        "tools": [{"type": "function", "function": function}],
        "completion_args": {"temperature": 0.5, "random_seed": 3},
    }
    result = {"type": "function.result", "tool_call_id": "call_1", "result": "42"}
    said = []
    with wire.client(headers={"Authorization": f"Bearer {wire.key}"}) as api:
        for streamed in (False, True):
            path = f"{wire.url}/v1/conversations"
            said.append(api.post(path, json={**begun, "stream": streamed}).text)
            more = {"inputs": [result], "stream": streamed}
            said.append(api.post(f"{path}/conv_1", json=more).text)
        said.append(api.post(path, json={**begun, "model": "fail"}).text)
    return said


def mistral_chat(wire: Wire, *, stream: bool = False) -> Any:
    """The tool loop with a model that thinks; its thought goes back as Mistral asks for it."""
    messages: list[Any] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": QUESTION},
    ]
    function = {"name": "add", "description": "Add.", "parameters": SCHEMA}
    asked = {"model": "magistral-tiny", "tools": [{"type": "function", "function": function}]}
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "I should add."}]}
    call = {"id": "call_1", "function": {"name": "add", "arguments": '{"a": 19, "b": 23}'}}
    said = []
    with wire.client(headers={"Authorization": f"Bearer {wire.key}"}) as api:
        for _ in range(2):
            body = {**asked, "messages": messages, "stream": stream}
            text = api.post(f"{wire.url}/v1/chat/completions", json=body).text
            said.append([line for line in text.splitlines() if line and line[0] in "{d"])
            messages += [
                {"role": "assistant", "content": [thought], "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": "42"},
            ]
    return said


def mistral_chat_stream(wire: Wire) -> Any:
    """The same, streamed."""
    return mistral_chat(wire, stream=True)


type Driver = Callable[[Wire], Any]

HTTPX_DRIVERS: dict[str, tuple[str, Driver]] = {
    "openai_chat": ("openai", openai_chat),
    "openai_chat_stream": ("openai", openai_chat_stream),
    "openai_encodings": ("openai", openai_encodings),
    "openai_completions": ("openai", openai_completions),
    "openai_inputs": ("openai", openai_inputs),
    "openai_responses": ("openai", openai_responses),
    "openai_responses_stream": ("openai", openai_responses_stream),
    "openai_responses_kept": ("openai", openai_responses_kept),
    "azure_chat": ("azure", azure_chat),
    "azure_chat_stream": ("azure", azure_chat_stream),
    "anthropic_messages": ("anthropic", anthropic_messages),
    "anthropic_messages_stream": ("anthropic", anthropic_messages_stream),
    "anthropic_documents": ("anthropic", anthropic_documents),
    "anthropic_documents_stream": ("anthropic", anthropic_documents_stream),
    "anthropic_count": ("anthropic", anthropic_count),
    "anthropic_vertex": ("anthropic", anthropic_vertex),
    "anthropic_vertex_stream": ("anthropic", anthropic_vertex_stream),
    "gemini": ("gemini", gemini),
    "gemini_stream": ("gemini", gemini_stream),
    "gemini_errors": ("gemini", gemini_errors),
    "gemini_array": ("gemini", gemini_array),
    "gemini_interactions": ("gemini", gemini_interactions),
    "gemini_interactions_stream": ("gemini", gemini_interactions_stream),
    "ollama": ("ollama", ollama),
    "mistral_conversations": ("openai", mistral_conversations),
    "mistral_chat": ("openai", mistral_chat),
    "mistral_chat_stream": ("openai", mistral_chat_stream),
    "a2a": ("agents", a2a),
    "http_tools": ("shop", http_tools),
}
"""Scenario → route and driver, for clients whose bytes can be kept."""

BOTO_DRIVERS: dict[str, tuple[str, Driver]] = {
    "bedrock_converse": ("bedrock", bedrock_converse),
    "bedrock_converse_stream": ("bedrock", bedrock_converse_stream),
    "bedrock_errors": ("bedrock", bedrock_errors),
    "bedrock_invoke": ("bedrock", bedrock_invoke),
}

ROUTES = ("openai", "azure", "anthropic", "gemini", "ollama", "bedrock", "agents", "shop")
__all__ = ["BOTO_DRIVERS", "HTTPX_DRIVERS", "MODEL", "ROUTES", "Wire"]
