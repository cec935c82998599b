"""Wire formats of Ollama, Mistral, Agent2Agent and a plain HTTP tool."""

import json
from typing import Any

from tests.support.provider.answer import ANSWER, ARGUMENTS, sse
from tests.support.upstream import ReceivedRequest, Reply, as_json, stream


def ollama(path: str, body: dict[str, Any]) -> Reply:
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


def mistral(body: dict[str, Any]) -> Reply:
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


_THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "I should add."}]}
_SOURCE = {"type": "reference", "reference_ids": [0]}


def mistral_chat(body: dict[str, Any]) -> Reply:
    """Answer a chat as Mistral's models that think do: parts while they think or refer, texts else."""
    told = any(message["role"] == "tool" for message in body["messages"])
    base = {"id": "cmpl-2" if told else "cmpl-1", "created": 1, "model": "magistral-1"}
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    message: dict[str, Any] = {"role": "assistant", "content": [_THOUGHT]}
    thoughts = [
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]}
        for text in ("I should", " add.")
    ]
    if told:
        ends = "stop"
        said = [{"type": "text", "text": "The sum"}, _SOURCE, {"type": "text", "text": " is 42. ✓"}]
        message["content"] = [_THOUGHT, *said]
        pieces: list[dict[str, Any]] = [
            {"content": piece}
            for piece in ("The sum", [_SOURCE], " is", [said[2] | {"text": " 42"}], ". ✓")
        ]
    else:
        ends = "tool_calls"
        function = {"name": "add", "arguments": json.dumps(ARGUMENTS)}
        message["tool_calls"] = [{"id": "call_1", "function": function, "index": 0}]
        pieces = [{"tool_calls": message["tool_calls"]}]
    choice = {"index": 0, "finish_reason": None}
    if not body.get("stream"):
        choices = [{**choice, "message": message, "finish_reason": ends}]
        return as_json({**base, "object": "chat.completion", "choices": choices, "usage": usage})
    deltas = [{"role": "assistant", "content": ""}, *thoughts, *pieces]
    chunk = {**base, "object": "chat.completion.chunk"}
    chunks: list[dict[str, Any]] = [
        {**chunk, "choices": [{**choice, "delta": delta}]} for delta in deltas
    ]
    last = {**choice, "delta": {"content": ""}, "finish_reason": ends}
    chunks.append({**chunk, "choices": [last], "usage": usage})
    return stream([*sse(*chunks), b"data: [DONE]\n\n"])


def shop(request: ReceivedRequest, path: str, body: dict[str, Any]) -> Reply:
    """Answer as a shop's order desk."""
    if path.endswith("/events"):
        return stream(sse({"state": "packed"}, {"state": "sent"}))
    if path == "/orders/404":
        return as_json({"detail": "no such order"}, 404)
    return as_json({"id": 17, "asked": request.target, **body})


_CONTEXT = {"id": "task-1", "contextId": "context-1"}


def agent(path: str, body: dict[str, Any]) -> Reply:
    """Answer as an agent that adds, in the words of 0.3 or, below ``/agent/v1``, of 1.0."""
    if path.endswith("message:send"):
        return as_json({"task": _task("TASK_STATE_COMPLETED")})
    if body["method"] in ("message/stream", "SendStreamingMessage"):
        events = _agent_events(newer=path.endswith("/v1"))
        return stream(
            sse(*({"jsonrpc": "2.0", "id": body["id"], "result": event} for event in events))
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
