"""OpenAI's wire formats: chat completions (also as Azure has them), completions, responses."""

import json
from typing import Any

from tests.support.provider.answer import Answer, adding, cut, encoded, named_sse, sse
from tests.support.upstream import ReceivedRequest, Reply, as_json, stream

_USAGE = {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}


def openai(request: ReceivedRequest, path: str, body: dict[str, Any]) -> Reply:
    """Answer a path of OpenAI's."""
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
    return as_json({"error": {"message": "no such thing", "type": "not_found"}}, 404)


def _chat(request: ReceivedRequest, path: str, body: dict[str, Any]) -> Reply:
    told = any(message["role"] == "tool" for message in body.get("messages", ()))
    name = "chatcmpl-2" if told else "chatcmpl-1"
    answer = adding(name, told=told or not body.get("tools"))
    azure = "/deployments/" in path
    if body.get("stream"):
        return chat_stream(answer, azure=azure)
    completion = chat_completion(answer)
    if azure:
        filters = {"hate": {"filtered": False, "severity": "safe"}}
        completion["choices"][0]["content_filter_results"] = filters
    wanted = request.header("x-test-encoding")
    if wanted is not None:
        return encoded(wanted, json.dumps(completion).encode())
    if answer.calls or told:
        return as_json(completion)
    # Tests look for this cookie where no secret may be.
    return as_json(completion, 200, ("Set-Cookie", "sid=secret-cookie"), ("X-Request-Id", "abc"))


def chat_completion(answer: Answer) -> dict[str, Any]:
    """Return a whole chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in answer.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": _finish(answer)}
    base = {"id": answer.response_id, "created": 1, "model": answer.model}
    whole = {**base, "object": "chat.completion", "choices": [choice]}
    return {**whole, "usage": _chat_usage(answer)}


def chat_stream(answer: Answer, *, azure: bool = False) -> Reply:
    """Return a chat completion as a stream."""
    return stream([*sse(*_chat_chunks(answer, azure=azure)), b"data: [DONE]\n\n"])


def _finish(answer: Answer) -> str:
    return "tool_calls" if answer.calls else "stop"


def _chat_usage(answer: Answer) -> dict[str, int]:
    if answer.usage is None:
        return _USAGE
    given, made = answer.usage
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}


def _chat_chunks(answer: Answer, *, azure: bool) -> list[dict[str, Any]]:
    base = {"id": answer.response_id, "created": 1, "model": answer.model}
    base["object"] = "chat.completion.chunk"
    chunks: list[dict[str, Any]] = []
    if azure:
        filters = [{"prompt_index": 0, "content_filter_results": {}}]
        head = {"choices": [], "id": "", "model": "", "object": "", "created": 0}
        chunks.append({**head, "prompt_filter_results": filters})
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in cut(answer.text, 7, 13)]
    for index, call in enumerate(answer.calls):
        function = {"name": call.name, "arguments": ""}
        opening = {"index": index, "id": call.call_id, "type": "function", "function": function}
        deltas.append({"tool_calls": [opening]})
        for piece in cut(json.dumps(call.arguments), 9):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    chunks += [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    ending = {"index": 0, "delta": {}, "finish_reason": _finish(answer)}
    last = {**base, "choices": [], "usage": _chat_usage(answer)}
    return [*chunks, {**base, "choices": [ending]}, last]


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
        return stream([*sse(*chunks, ending, last), b"data: [DONE]\n\n"])
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
        usage = response_object(adding("", told=True))["usage"]
        answer = {"id": "cmp_resp_1", "object": "response.compaction", "created_at": 1}
        return as_json({**answer, "output": [sealed], "usage": usage})
    name = path.rpartition("/")[2]
    return as_json({**response_object(adding(name, told=True)), "background": True})


def _rich_response(body: dict[str, Any]) -> dict[str, Any]:
    """Return a response with a phase and a function in a namespace."""
    name = "resp_3" if body.get("conversation") else "resp_1"
    answer = response_object(adding(name, told=True))
    said = {**answer["output"][0], "phase": "commentary"}
    call = {**response_object(adding("", told=False))["output"][0], "namespace": "sums"}
    return {**answer, "output": [said, {**call, "caller": {"type": "direct"}}]}


def _responses(body: dict[str, Any]) -> Reply:
    if body.get("background"):
        queued = response_object(adding("resp_bg", told=False))
        return as_json({**queued, "status": "queued", "background": True, "output": []})
    if body["model"] == "breaks":
        answer = response_object(adding("resp_1", told=True))
        failed = {**answer, "status": "failed", "output": []}
        failed["error"] = {"code": "server_error", "message": "The model broke"}
        events = response_events(answer)[:-2]
        events.append({"type": "response.failed", "response": failed, "sequence_number": 99})
        return stream(named_sse(events))
    if body["model"] == "rich" and not body.get("stream"):
        return as_json(_rich_response(body))
    given = body["input"]
    told = isinstance(given, list) and any(
        item.get("type") == "function_call_output" for item in given
    )
    answer = response_object(adding("resp_2" if told else "resp_1", told=told))
    return stream(named_sse(response_events(answer))) if body.get("stream") else as_json(answer)


def response_object(answer: Answer) -> dict[str, Any]:
    """Return a response of OpenAI's newer interface."""
    output: list[dict[str, Any]] = []
    if answer.text:
        text = {"type": "output_text", "text": answer.text, "annotations": []}
        message = {"type": "message", "id": f"msg_{answer.items}", "role": "assistant"}
        message["status"] = "completed"
        output.append({**message, "content": [text]})
    for number, call in enumerate(answer.calls):
        name = f"fc_{answer.items}" + (f"_{number}" if number else "")
        item = {"type": "function_call", "id": name, "call_id": call.call_id}
        namespace, _, function = call.name.rpartition(".")
        if namespace:
            item["namespace"] = namespace
        item |= {"name": function, "arguments": json.dumps(call.arguments), "status": "completed"}
        output.append(item)
    given, made = answer.usage or (9, 5)
    usage: dict[str, Any] = {"input_tokens": given, "output_tokens": made}
    usage["total_tokens"] = given + made
    usage["input_tokens_details"] = {"cached_tokens": 3, "cache_write_tokens": 0}
    usage["output_tokens_details"] = {"reasoning_tokens": 2}
    return {
        "id": answer.response_id,
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": answer.model,
        "output": output,
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
            pieces = [{"type": f"{kind}.delta", **place, "delta": one} for one in cut(text, 6)]
            pieces.append(done)
        else:
            opening["content"] = []
            where, text = {**place, "content_index": 0}, item["content"][0]["text"]
            part = {"type": "output_text", "text": "", "annotations": []}
            kind = "response.output_text"
            pieces = [{"type": "response.content_part.added", **where, "part": part}]
            pieces += [
                {"type": f"{kind}.delta", **where, "delta": piece, "logprobs": []}
                for piece in cut(text, 5)
            ]
            pieces.append({"type": f"{kind}.done", **where, "text": text, "logprobs": []})
        events.append(
            {"type": "response.output_item.added", "output_index": index, "item": opening}
        )
        events += pieces
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": answer})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]
