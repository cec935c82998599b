"""A scripted provider that speaks every dialect: it asks for the tool first, then says the sum."""

import base64
import gzip
import json
import struct
import zlib
from typing import Any

import brotli
import zstandard

from tests.support.upstream import Reply, Seen, as_json, plain, stream

QUESTION = "What is 19 + 23? Use the tool. Grüße 🙂"
SYSTEM = "You are a calculator."
ANSWER = "The sum is 42. ✓"
ARGUMENTS = {"a": 19, "b": 23}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
_USAGE = {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
_NOON = "2026-01-01T12:00:00Z"
_AMAZON_ID = ("x-amzn-RequestId", "7b9f1c1e-0000-4000-8000-000000000001")


def provider(request: Seen) -> Reply:
    """Answer like the provider whose path this is."""
    path, _, query = request.target.partition("?")
    body = json.loads(request.body) if request.body else {}
    if "fail" in str(body.get("model", "")) or "fail" in path:
        return _failure(path)
    if path.startswith("/model/"):
        return _bedrock(path, body)
    if path.endswith("/count-tokens:rawPredict"):
        return as_json({"input_tokens": 14})
    if path.endswith("awPredict"):
        return _messages(body)
    if "/models/" in path and ":" in path.rpartition("/")[2]:
        return _gemini(path, query, body)
    if path.endswith("/interactions"):
        return _interaction(body)
    if path.startswith("/api/"):
        return _ollama(path, body)
    if "inputs" in body:
        return _mistral(body)
    if path.startswith("/orders"):
        return _shop(request, path, body)
    if path.startswith("/agent"):
        return _agent(path, body)
    return _openai(request, path, body)


def _failure(path: str) -> Reply:
    if path.startswith("/model/"):
        error = {"message": "Too many requests"}
        return as_json(error, 429, ("x-amzn-ErrorType", "ThrottlingException"), _AMAZON_ID)
    if "/models/" in path:
        error = {"code": 429, "message": "Quota exceeded", "status": "RESOURCE_EXHAUSTED"}
        return as_json({"error": error}, 429)
    if path.startswith("/api/"):
        return as_json({"error": "model 'fail' not found"}, 404)
    return as_json({"error": {"message": "No such model", "type": "invalid_request_error"}}, 404)


# OpenAI, Azure and Anthropic.


def _openai(request: Seen, path: str, body: dict[str, Any]) -> Reply:
    if path.endswith("/chat/completions"):
        return _chat(request, path, body)
    if path.endswith("/completions"):
        return _completion(body)
    if path.endswith("/embeddings"):
        item = {"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}
        usage = {"prompt_tokens": 4, "total_tokens": 4}
        return as_json({"object": "list", "data": [item], "model": "embed-1", "usage": usage})
    if path.endswith("/moderations"):
        result = {"flagged": True, "categories": {"violence": True}, "category_scores": {}}
        return as_json({"id": "modr-1", "model": "moderation-1", "results": [result]})
    if path.endswith("/responses"):
        return _responses(body)
    if "/responses/" in path or path.endswith("/conversations"):
        return _kept(path)
    if path.endswith("/messages/count_tokens"):
        return as_json({"input_tokens": 14})
    if path.endswith("/messages"):
        return _messages(body)
    return as_json({"error": {"message": "no such thing", "type": "not_found"}}, 404)


def _chat(request: Seen, path: str, body: dict[str, Any]) -> Reply:
    told = any(message["role"] == "tool" for message in body["messages"])
    azure = "/deployments/" in path
    name = "chatcmpl-2" if told else "chatcmpl-1"
    base = {"id": name, "created": 1, "model": "tiny-1"}
    if body.get("stream"):
        return stream([*_sse(*_chat_chunks(base, told, azure=azure)), b"data: [DONE]\n\n"])
    function = {"name": "add", "arguments": json.dumps(ARGUMENTS)}
    message: dict[str, Any] = {"role": "assistant", "content": ANSWER if told else None}
    if not told:
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "stop" if told else "tool_calls"}
    answer: dict[str, Any] = {**base, "object": "chat.completion", "choices": [choice]}
    answer["usage"] = _USAGE
    if azure:
        choice["content_filter_results"] = {"hate": {"filtered": False, "severity": "safe"}}
    wanted = request.header("x-test-encoding")
    if wanted is not None:
        return encoded(wanted, json.dumps(answer).encode())
    return as_json(answer)


def encoded(encoding: str, body: bytes) -> Reply:
    """Return a JSON reply under a content encoding."""
    data = {
        "gzip": lambda: gzip.compress(body, mtime=0),
        "deflate": lambda: zlib.compress(body),
        "br": lambda: brotli.compress(body),
        "zstd": lambda: zstandard.ZstdCompressor().compress(body),
    }[encoding]()
    return plain(200, data, ("Content-Type", "application/json"), ("Content-Encoding", encoding))


def _chat_chunks(base: dict[str, Any], told: bool, *, azure: bool) -> list[dict[str, Any]]:
    base = {**base, "object": "chat.completion.chunk"}
    chunks: list[dict[str, Any]] = []
    if azure:
        filters = [{"prompt_index": 0, "content_filter_results": {}}]
        head = {"choices": [], "id": "", "model": "", "object": "", "created": 0}
        chunks.append({**head, "prompt_filter_results": filters})
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if told:
        deltas += [{"content": piece} for piece in ("The sum", " is 42", ". ✓")]
    else:
        function = {"name": "add", "arguments": ""}
        call = {"index": 0, "id": "call_1", "type": "function", "function": function}
        deltas.append({"tool_calls": [call]})
        for piece in ('{"a": 19,', ' "b": 23}'):
            deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    chunks += [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    ending = {"index": 0, "delta": {}, "finish_reason": "stop" if told else "tool_calls"}
    return [*chunks, {**base, "choices": [ending]}, {**base, "choices": [], "usage": _USAGE}]


def _completion(body: dict[str, Any]) -> Reply:
    base = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "tiny-1"}
    ids = {"token_ids": [7, 8]} if body.get("return_token_ids") else {}
    if body.get("stream"):
        chunks = [
            {**base, "choices": [{"index": 0, "text": piece, "finish_reason": None}]}
            for piece in (" forty", "-two")
        ]
        ending = {**base, "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}
        last = {**base, "choices": [], "usage": _USAGE}
        return stream([*_sse(*chunks, ending, last), b"data: [DONE]\n\n"])
    choice: dict[str, Any] = {"index": 0, "text": " forty-two", "finish_reason": "stop", **ids}
    if ids:
        tokens = {"tokens": [" forty", "-two"], "token_logprobs": [-0.25, -0.5]}
        choice |= {"logprobs": tokens, "prompt_token_ids": [1, 2, 3, 4]}
    return as_json({**base, "choices": [choice], "usage": _USAGE})


def _kept(path: str) -> Reply:
    """Return what OpenAI keeps: the answer of a background response, a conversation, a compaction."""
    if path.endswith("/conversations"):
        kept = {"id": "conv_1", "object": "conversation", "created_at": 1, "metadata": {}}
        return as_json(kept)
    if path.endswith("/compact"):
        sealed = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VhbGVk"}
        usage = response_object("", told=True)["usage"]
        answer = {"id": "cmp_resp_1", "object": "response.compaction", "created_at": 1}
        return as_json({**answer, "output": [sealed], "usage": usage})
    name = path.rpartition("/")[2]
    return as_json({**response_object(name, told=True), "background": True})


def _rich_response(body: dict[str, Any]) -> dict[str, Any]:
    """Return a response with a phase and a function in a namespace."""
    answer = response_object("resp_3" if body.get("conversation") else "resp_1", told=True)
    said = {**answer["output"][0], "phase": "commentary"}
    call = {**response_object("", told=False)["output"][0], "namespace": "sums"}
    return {**answer, "output": [said, {**call, "caller": {"type": "direct"}}]}


def _responses(body: dict[str, Any]) -> Reply:
    if body.get("background"):
        queued = response_object("resp_bg", told=False)
        return as_json({**queued, "status": "queued", "background": True, "output": []})
    if body["model"] == "breaks":
        answer = response_object("resp_1", told=True)
        failed = {**answer, "status": "failed", "output": []}
        failed["error"] = {"code": "server_error", "message": "The model broke"}
        events = response_events(answer)[:-2]
        events.append({"type": "response.failed", "response": failed, "sequence_number": 99})
        return stream([f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events])
    if body["model"] == "rich" and not body.get("stream"):
        return as_json(_rich_response(body))
    given = body["input"]
    told = isinstance(given, list) and any(
        item.get("type") == "function_call_output" for item in given
    )
    answer = response_object("resp_2" if told else "resp_1", told)
    if not body.get("stream"):
        return as_json(answer)
    return stream(
        [
            f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            for event in response_events(answer)
        ]
    )


def response_object(name: str, told: bool) -> dict[str, Any]:
    """Return a response of OpenAI's newer interface."""
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add"}
    call |= {"arguments": json.dumps(ARGUMENTS), "status": "completed"}
    text = {"type": "output_text", "text": ANSWER, "annotations": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    usage = {"input_tokens": 9, "output_tokens": 5, "total_tokens": 14}
    usage |= {"input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0}}  # type: ignore[dict-item]
    usage |= {"output_tokens_details": {"reasoning_tokens": 2}}  # type: ignore[dict-item]
    return {
        "id": name,
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "tiny-1",
        "output": [{**message, "content": [text]}] if told else [call],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }


def response_events(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events by which a response is streamed."""
    started = {**answer, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": started}]
    for index, item in enumerate(answer["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        opening = {**item, "status": "in_progress"}
        if item["type"] == "function_call":
            opening["arguments"] = ""
            kind, text = "response.function_call_arguments", item["arguments"]
            done = {"type": f"{kind}.done", **place, "arguments": text, "name": item["name"]}
            pieces = [{"type": f"{kind}.delta", **place, "delta": text[:6]}]
            pieces += [{"type": f"{kind}.delta", **place, "delta": text[6:]}, done]
        else:
            opening["content"] = []
            where, text = {**place, "content_index": 0}, item["content"][0]["text"]
            part = {"type": "output_text", "text": "", "annotations": []}
            kind = "response.output_text"
            pieces = [{"type": "response.content_part.added", **where, "part": part}]
            pieces += [
                {"type": f"{kind}.delta", **where, "delta": piece, "logprobs": []}
                for piece in (text[:5], text[5:])
            ]
            pieces.append({"type": f"{kind}.done", **where, "text": text, "logprobs": []})
        events.append(
            {"type": "response.output_item.added", "output_index": index, "item": opening}
        )
        events += pieces
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": answer})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _message(told: bool) -> dict[str, Any]:
    """Return a message of Anthropic's."""
    use = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": ARGUMENTS}
    return {
        "id": "msg_2" if told else "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "tiny-1",
        "content": [{"type": "text", "text": ANSWER} if told else use],
        "stop_reason": "end_turn" if told else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 6},
    }


def _message_events(told: bool) -> list[dict[str, Any]]:
    whole = _message(told)
    block = whole["content"][0]
    opening = {**whole, "content": [], "stop_reason": None}
    if told:
        start: dict[str, Any] = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in (ANSWER[:5], ANSWER[5:])]
    else:
        start = {**block, "input": {}}
        text = json.dumps(ARGUMENTS)
        deltas = [
            {"type": "input_json_delta", "partial_json": piece} for piece in (text[:7], text[7:])
        ]
    ending = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    return [
        {"type": "message_start", "message": opening},
        {"type": "content_block_start", "index": 0, "content_block": start},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 6}},
        {"type": "message_stop"},
    ]


def _rich_message() -> dict[str, Any]:
    """Return a message with a compaction, sources, and counts beside the usual four."""
    source = {"type": "char_location", "cited_text": "The sum is 42.", "document_index": 0}
    source |= {"document_title": "Sums", "start_char_index": 0, "end_char_index": 14}
    whole = _message(told=True)
    usage = {
        **whole["usage"],
        "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0},
    }
    usage["output_tokens_details"] = {"thinking_tokens": 2}
    content = [
        {"type": "compaction", "content": "They ask for sums.", "encrypted_content": "c2VhbGVk"},
        {"type": "text", "text": "The sum is ", "citations": None},
        {"type": "text", "text": "42", "citations": [source]},
        {"type": "text", "text": ". ✓", "citations": None},
    ]
    edits = {"applied_edits": [{"type": "compact_20260112"}]}
    return {**whole, "content": content, "usage": usage, "context_management": edits}


def _rich_events() -> list[dict[str, Any]]:
    whole = _rich_message()
    told = {"stop_reason": None, "content": [], "context_management": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**whole, **told}}]
    for index, block in enumerate(whole["content"]):
        if block["type"] == "compaction":
            start: dict[str, Any] = {"type": "compaction", "content": None}
            deltas = [{**block, "type": "compaction_delta"}]
        else:
            start = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": block["text"]}]
            cited = block["citations"] or []
            deltas += [{"type": "citations_delta", "citation": source} for source in cited]
        place = {"index": index}
        events.append({"type": "content_block_start", **place, "content_block": start})
        events += [{"type": "content_block_delta", **place, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", **place})
    ending = {"stop_reason": "end_turn", "stop_sequence": None}
    last = {"usage": whole["usage"], "context_management": whole["context_management"]}
    events.append({"type": "message_delta", "delta": ending, **last})
    return [*events, {"type": "message_stop"}]


def _messages(body: dict[str, Any]) -> Reply:
    if body.get("model") == "rich":
        if not body.get("stream"):
            return as_json(_rich_message())
        pieces = [(e["type"], json.dumps(e, ensure_ascii=False)) for e in _rich_events()]
        return stream([f"event: {kind}\ndata: {data}\n\n".encode() for kind, data in pieces])
    told = len(body["messages"]) > 1
    if not body.get("stream"):
        return as_json(_message(told))
    return stream(
        [
            f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
            for event in _message_events(told)
        ]
    )


def _sse(*values: object) -> list[bytes]:
    return [f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode() for value in values]


# Gemini.


def _gemini(path: str, query: str, body: dict[str, Any]) -> Reply:
    if path.endswith(":countTokens"):
        return as_json({"totalTokens": 9})
    told = any("functionResponse" in part for c in body["contents"] for part in c["parts"])
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 5, "thoughtsTokenCount": 2}
    usage["cachedContentTokenCount"] = 3
    base = {"modelVersion": "tiny-1", "responseId": "gem-2" if told else "gem-1"}
    thought = {"text": "I should add.", "thought": True}
    call = {"functionCall": {"name": "add", "args": ARGUMENTS}, "thoughtSignature": "c2ln"}
    parts: list[dict[str, Any]] = [{"text": ANSWER}] if told else [thought, call]
    if "streamGenerateContent" not in path:
        candidate = {"index": 0, "content": {"role": "model", "parts": parts}}
        return as_json(
            {
                **base,
                "candidates": [{**candidate, "finishReason": "STOP"}],
                "usageMetadata": usage,
            }
        )
    if told:
        parts = [{"text": piece} for piece in ("The sum", " is 42", ". ✓")]
    chunks: list[dict[str, Any]] = [
        {**base, "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}]}
        for part in parts
    ]
    chunks[-1]["candidates"][0]["finishReason"] = "STOP"
    chunks[-1]["usageMetadata"] = usage
    if "alt=sse" in query:
        return stream([piece.replace(b"\n\n", b"\r\n\r\n") for piece in _sse(*chunks)])
    pieces = [json.dumps(chunk, indent=2, ensure_ascii=False).encode() for chunk in chunks]
    array = [b"[" + pieces[0], *(b",\r\n" + piece for piece in pieces[1:]), b"]"]
    return stream(array, kind="application/json; charset=UTF-8")


def _interaction(body: dict[str, Any]) -> Reply:
    told = isinstance(body["input"], list)
    base = {"id": "int_2" if told else "int_1", "model": "tiny-1", "created": _NOON}
    thought = {"type": "thought", "signature": "c2ln"}
    summary = {"type": "text", "text": "I should add."}
    call = {"type": "function_call", "id": "call_1", "name": "add"}
    status = "completed" if told else "requires_action"
    counts = {"total_input_tokens": 9, "total_output_tokens": 3, "total_thought_tokens": 2}
    usage = {**counts, "total_cached_tokens": 3, "total_tokens": 14}
    if not body.get("stream"):
        content = [{"type": "text", "text": ANSWER}]
        steps = [{**thought, "summary": [summary]}, {**call, "arguments": ARGUMENTS}]
        if told:
            steps = [{"type": "model_output", "content": content}]
        return as_json({**base, "updated": _NOON, "status": status, "steps": steps, "usage": usage})
    begun = {**base, "status": "in_progress"}
    events: list[dict[str, Any]] = [{"event_type": "interaction.created", "interaction": begun}]
    if told:
        begins: list[Any] = [{"type": "model_output"}]
        deltas: list[Any] = [[{"type": "text", "text": one} for one in ("The sum", " is 42. ✓")]]
    else:
        begins = [{"type": "thought"}, {**call, "arguments": {}}]
        deltas = [
            [
                {"type": "thought_summary", "content": {"type": "text", "text": "I should"}},
                {"type": "thought_summary", "content": {"type": "text", "text": " add."}},
                {"type": "thought_signature", "signature": "c2ln"},
            ],
            [{"type": "arguments_delta", "arguments": one} for one in ('{"a": 19,', ' "b": 23}')],
        ]
    for index, (step, pieces) in enumerate(zip(begins, deltas, strict=True)):
        events.append({"event_type": "step.start", "index": index, "step": step})
        events += [{"event_type": "step.delta", "index": index, "delta": one} for one in pieces]
        events.append({"event_type": "step.stop", "index": index})
    done = {**base, "status": status, "usage": usage}
    events.append({"event_type": "interaction.completed", "interaction": done})
    return stream([*_sse(*events), b"data: [DONE]\n\n"])


# Bedrock.


def event_message(payload: object, **headers: str) -> bytes:
    """Return one message of an AWS event stream."""
    packed = b"".join(
        bytes([len(name)])
        + name.encode()
        + b"\x07"
        + struct.pack(">H", len(value))
        + value.encode()
        for name, value in ((f":{k.replace('_', '-')}", v) for k, v in headers.items())
    )
    data = json.dumps(payload, ensure_ascii=False).encode()
    prelude = struct.pack(">II", len(packed) + len(data) + 16, len(packed))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + packed + data
    return body + struct.pack(">I", zlib.crc32(body))


def _event(kind: str, payload: object) -> bytes:
    return event_message(
        payload, event_type=kind, content_type="application/json", message_type="event"
    )


def _bedrock(path: str, body: dict[str, Any]) -> Reply:
    operation = path.rpartition("/")[2]
    if operation == "converse":
        return as_json(_converse(body), 200, _AMAZON_ID)
    if operation == "converse-stream":
        return _events(_converse_events(body), broken="breaks" in path)
    if operation == "invoke":
        return as_json(_invoked(path, body), 200, _AMAZON_ID)
    events = []
    made = _llama_events() if "llama" in path else _message_events(len(body["messages"]) > 1)
    for event in made:
        chunk = base64.b64encode(json.dumps(event).encode()).decode()
        events.append(_event("chunk", {"bytes": chunk, "p": "abcd"}))
    return _events(events)


def _invoked(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a model family in its own words."""
    if "embed" in path:
        return {"embedding": [0.25, -0.5], "inputTextTokenCount": 4}
    if "titan" in path:
        result = {"outputText": ANSWER, "tokenCount": 5, "completionReason": "FINISH"}
        return {"inputTextTokenCount": 9, "results": [result]}
    if "nova" in path:
        return _converse(body)
    if "llama" in path:
        counts = {"prompt_token_count": 9, "generation_token_count": 5}
        return {"generation": ANSWER, **counts, "stop_reason": "stop"}
    return _message(len(body["messages"]) > 1)


def _llama_events() -> list[dict[str, Any]]:
    start = {"generation": ANSWER[:5], "prompt_token_count": 9, "stop_reason": None}
    metrics = {"inputTokenCount": 9, "outputTokenCount": 5, "invocationLatency": 12}
    ending = {"generation": "", "generation_token_count": 5, "stop_reason": "stop"}
    return [
        start,
        {"generation": ANSWER[5:], "stop_reason": None},
        {**ending, "amazon-bedrock-invocationMetrics": metrics},
    ]


def _events(events: list[bytes], *, broken: bool = False) -> Reply:
    if broken:
        kinds = {"exception_type": "throttlingException", "message_type": "exception"}
        exception = event_message(
            {"message": "Slow down"}, content_type="application/json", **kinds
        )
        events = [*events[:3], exception]
    kind = f"application/vnd.amazon.eventstream\r\n{_AMAZON_ID[0]}: {_AMAZON_ID[1]}"
    return stream(events, kind=kind)


_CONVERSE_USAGE = {
    "usage": {"inputTokens": 9, "outputTokens": 5, "totalTokens": 14, "cacheReadInputTokens": 3},
    "metrics": {"latencyMs": 12},
}


def _told(body: dict[str, Any]) -> bool:
    return any("toolResult" in block for m in body["messages"] for block in m["content"])


def _converse(body: dict[str, Any]) -> dict[str, Any]:
    told = _told(body)
    thought = {"reasoningText": {"text": "I should add.", "signature": "c2ln"}}
    use = {"toolUse": {"toolUseId": "tooluse_1", "name": "add", "input": ARGUMENTS}}
    content = [{"text": ANSWER}] if told else [{"reasoningContent": thought}, use]
    message = {"role": "assistant", "content": content}
    reason = "end_turn" if told else "tool_use"
    return {"output": {"message": message}, "stopReason": reason, **_CONVERSE_USAGE}


def _converse_events(body: dict[str, Any]) -> list[bytes]:
    told = _told(body)
    deltas: list[tuple[int, dict[str, Any]]] = []
    if told:
        deltas = [(0, {"text": piece}) for piece in ("The sum", " is 42", ". ✓")]
    else:
        text = json.dumps(ARGUMENTS)
        deltas = [
            (0, {"reasoningContent": {"text": "I should add."}}),
            (0, {"reasoningContent": {"signature": "c2ln"}}),
            (1, {"toolUse": {"input": text[:7]}}),
            (1, {"toolUse": {"input": text[7:]}}),
        ]
    start = {"toolUse": {"toolUseId": "tooluse_1", "name": "add"}}
    events = [_event("messageStart", {"role": "assistant"})]
    last = -1
    for index, delta in deltas:
        if index == 1 and last == 0:
            events.append(_event("contentBlockStop", {"contentBlockIndex": 0}))
            events.append(_event("contentBlockStart", {"contentBlockIndex": 1, "start": start}))
        last = index
        events.append(_event("contentBlockDelta", {"contentBlockIndex": index, "delta": delta}))
    events.append(_event("contentBlockStop", {"contentBlockIndex": last}))
    events.append(_event("messageStop", {"stopReason": "end_turn" if told else "tool_use"}))
    events.append(_event("metadata", {**_CONVERSE_USAGE, "p": "abcdef"}))
    return events


# Ollama.


def _ollama(path: str, body: dict[str, Any]) -> Reply:
    base = {"model": "tiny:1b", "created_at": "2026-01-01T00:00:00Z"}
    done = {"done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 5}
    if path == "/api/generate":
        pieces: list[dict[str, Any]] = [{"response": "forty"}, {"response": "-two"}]
        whole = {"response": "forty-two"}
        done["context"] = [1, 2, 3]
    elif any(message["role"] == "tool" for message in body["messages"]):
        texts = ("The sum", " is 42", ". ✓")
        pieces = [{"message": {"role": "assistant", "content": piece}} for piece in texts]
        whole = {"message": {"role": "assistant", "content": ANSWER}}  # type: ignore[dict-item]
    else:
        call = {"function": {"name": "add", "arguments": ARGUMENTS}}
        thought = {"role": "assistant", "content": "", "thinking": "I should add."}
        asked = {"role": "assistant", "content": "", "tool_calls": [call]}
        pieces = [{"message": thought}, {"message": asked}]
        whole = {"message": {**thought, "tool_calls": [call]}}  # type: ignore[dict-item]
    if body.get("stream") is False:
        return as_json({**base, **whole, **done})
    lines = [{**base, **piece, "done": False} for piece in pieces]
    empty = {"response": ""} if path == "/api/generate" else {}
    last = {"message": {"role": "assistant", "content": ""}} if path == "/api/chat" else empty
    lines.append({**base, **last, **done})
    return stream(
        [json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines],
        kind="application/x-ndjson",
    )


# Mistral.


def _mistral(body: dict[str, Any]) -> Reply:
    """Answer a conversation as Mistral's SDK 3.7 has it."""
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    head = {"object": "conversation.response", "conversation_id": "conv_1"}
    if isinstance(body["inputs"], list) and body["inputs"][-1]["type"] == "function.result":
        thought = {"type": "thinking", "thinking": [{"type": "text", "text": "I have it."}]}
        said = {"type": "message.output", "id": "msg_1", "model": "tiny-1", "role": "assistant"}
        outputs = [{**said, "content": [thought, {"type": "text", "text": ANSWER}]}]
        pieces = [thought, "The sum", " is 42", ". ✓"]
        events = [
            {**said, "type": "message.output.delta", "output_index": 0, "content": piece}
            for piece in pieces
        ]
    else:
        call = {"type": "function.call", "id": "fc_1", "tool_call_id": "call_1", "name": "add"}
        outputs = [{**call, "model": "tiny-1", "arguments": json.dumps(ARGUMENTS)}]
        events = [
            {**outputs[0], "type": "function.call.delta", "output_index": 0, "arguments": piece}
            for piece in ('{"a": 19', ', "b": 23}')
        ]
    if not body.get("stream"):
        return as_json({**head, "outputs": outputs, "usage": usage})
    events.insert(0, {"type": "conversation.response.started", "conversation_id": "conv_1"})
    events.append({"type": "conversation.response.done", "usage": usage})
    return stream(
        [
            f"event: {one['type']}\ndata: {json.dumps(one, ensure_ascii=False)}\n\n".encode()
            for one in events
        ]
    )


# A plain HTTP tool.


def _shop(request: Seen, path: str, body: dict[str, Any]) -> Reply:
    """Answer as a shop's order desk."""
    if path.endswith("/events"):
        return stream(_sse({"state": "packed"}, {"state": "sent"}))
    if path == "/orders/404":
        return as_json({"detail": "no such order"}, 404)
    return as_json({"id": 17, "asked": request.target, **body})


# Agent2Agent.

_CONTEXT = {"id": "task-1", "contextId": "context-1"}


def _agent(path: str, body: dict[str, Any]) -> Reply:
    """Answer as an agent that adds, in the words of 0.3 or, below ``/agent/v1``, of 1.0."""
    if path.endswith("message:send"):
        return as_json({"task": _task("TASK_STATE_COMPLETED")})
    if body["method"] in ("message/stream", "SendStreamingMessage"):
        events = _agent_events(newer=path.endswith("/v1"))
        return stream(
            _sse(*({"jsonrpc": "2.0", "id": body["id"], "result": event} for event in events))
        )
    if body["method"] == "message/send" and "fail" in str(body["params"]):
        error = {"code": -32603, "message": "The agent cannot"}
        return as_json({"jsonrpc": "2.0", "id": body["id"], "error": error})
    state = "working" if body["params"].get("id") == "task-0" else "completed"
    return as_json({"jsonrpc": "2.0", "id": body["id"], "result": _task(state)})


def _task(state: str) -> dict[str, Any]:
    artifact = {"artifactId": "sum", "parts": [{"kind": "text", "text": ANSWER}]}
    return {**_CONTEXT, "kind": "task", "status": {"state": state}, "artifacts": [artifact]}


def _agent_events(*, newer: bool) -> list[dict[str, Any]]:
    place = {"taskId": "task-1", "contextId": "context-1"}
    pieces = [
        {"artifactId": "sum", "parts": [{"kind": "text", "text": text}]}
        for text in (ANSWER[:5], ANSWER[5:])
    ]
    working, done = (
        ("TASK_STATE_WORKING", "TASK_STATE_COMPLETED") if newer else ("working", "completed")
    )
    events: list[tuple[str, str, dict[str, Any]]] = [
        ("task", "task", {**_CONTEXT, "status": {"state": working}}),
        ("artifact-update", "artifactUpdate", {**place, "artifact": pieces[0]}),
        ("artifact-update", "artifactUpdate", {**place, "artifact": pieces[1], "append": True}),
        ("status-update", "statusUpdate", {**place, "status": {"state": done}, "final": True}),
    ]
    if newer:
        return [{name: value} for _, name, value in events]
    return [{"kind": kind, **value} for kind, _, value in events]
