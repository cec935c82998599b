"""A provider that says again what it was told, in every dialect, whole or in small pieces."""

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.provider.bedrock import event_message
from tests.support.upstream import ReceivedRequest, Reply, as_json, stream

PIECE = 7
"""Characters of each piece of a stream: fewer than any surrogate has."""
CALLED = ("send", "fetch", "look_up")
"""Tools that the provider calls, each with what it was told last."""


def _texts(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text", "")) for part in content or ())


def _told(body: dict[str, Any]) -> str:
    """Return the latest words of the user."""
    if isinstance(body.get("input"), str):
        return str(body["input"])
    if "contents" in body:
        return _texts(body["contents"][-1]["parts"])
    said = body.get("messages", body.get("input"))
    return [_texts(one["content"]) for one in said or () if one.get("role") == "user"][-1]


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + PIECE] for at in range(0, len(text), PIECE))


def _sse(events: list[dict[str, Any]], *, named: bool, end: bytes = b"") -> Reply:
    parts = []
    for event in events:
        head = f"event: {event['type']}\n" if named else ""
        parts.append(f"{head}data: {json.dumps(event)}\n\n".encode())
    return stream([*parts, *([end] if end else [])])


def echo(request: ReceivedRequest, says: Callable[[dict[str, Any]], str] = _told) -> Reply:
    """Answer in the dialect of the path; ``says`` picks the text from the request's body."""
    if not request.body:
        return as_json({"data": []})
    body = json.loads(request.body)
    told = says(body)
    has_tools = body.get("tools") or body.get("toolConfig")
    calls = [(name, json.dumps({"to": told})) for name in CALLED] if has_tools else []
    by_end = {"/chat/completions": _chat, "/responses": _responses, "/messages": _messages}
    path = request.target.partition("?")[0]
    by_end |= {"enerateContent": _gemini, "/api/chat": _ollama}
    by_end |= {"/converse": _converse, "/converse-stream": _converse}
    by_end |= {"/invoke": _messages, "/invoke-with-response-stream": _invoked}
    write = next(one for end, one in by_end.items() if path.endswith(end))
    streamed = bool(body.get("stream")) or path.endswith((":streamGenerateContent", "-stream"))
    return write(f"You said: {told}!", calls, streamed=streamed)


def _chat(text: str, calls: list[tuple[str, str]], *, streamed: bool) -> Reply:
    base = {"id": "chatcmpl-1", "created": 1, "model": "m"}
    finish = "tool_calls" if calls else "stop"
    if not streamed:
        listed = [
            {"id": name, "type": "function", "function": {"name": name, "arguments": said}}
            for name, said in calls
        ]
        message = {
            "role": "assistant",
            "content": text,
            **({"tool_calls": listed} if listed else {}),
        }
        choice = {"index": 0, "finish_reason": finish, "message": message}
        return as_json({**base, "object": "chat.completion", "choices": [choice]})

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {**base, "object": "chat.completion.chunk", "choices": [choice]}

    events = [chunk({"role": "assistant", "content": ""})]
    events += [chunk({"content": piece}) for piece in _pieces(text)]
    for at, (name, said) in enumerate(calls):
        first = {"index": at, "id": name, "type": "function"}
        first["function"] = {"name": name, "arguments": ""}
        events.append(chunk({"tool_calls": [first]}))
        events += [
            chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
            for piece in _pieces(said)
        ]
    return _sse([*events, chunk({}, finish)], named=False, end=b"data: [DONE]\n\n")


def _messages(text: str, calls: list[tuple[str, str]], *, streamed: bool) -> Reply:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}]
    blocks += [
        {"type": "tool_use", "id": name, "name": name, "input": json.loads(said)}
        for name, said in calls
    ]
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    message |= {"usage": {"input_tokens": 1, "output_tokens": 1}, "stop_sequence": None}
    reason = "tool_use" if calls else "end_turn"
    if not streamed:
        return as_json({**message, "content": blocks, "stop_reason": reason})
    start = {**message, "content": [], "stop_reason": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    for at, block in enumerate(blocks):
        is_text = block["type"] == "text"
        empty = {**block, "text": ""} if is_text else {**block, "input": {}}
        events.append({"type": "content_block_start", "index": at, "content_block": empty})
        whole = text if is_text else json.dumps(block["input"])
        for piece in _pieces(whole):
            delta = (
                {"type": "text_delta", "text": piece}
                if is_text
                else {"type": "input_json_delta", "partial_json": piece}
            )
            events.append({"type": "content_block_delta", "index": at, "delta": delta})
        events.append({"type": "content_block_stop", "index": at})
    ends = {"stop_reason": reason, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ends, "usage": {"output_tokens": 1}})
    return _sse([*events, {"type": "message_stop"}], named=True)


def _gemini(text: str, calls: list[tuple[str, str]], *, streamed: bool) -> Reply:
    called = [{"functionCall": {"name": name, "args": json.loads(said)}} for name, said in calls]

    def chunk(parts: list[dict[str, Any]], **more: str) -> dict[str, Any]:
        return {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0, **more}]}

    if not streamed:
        return as_json(chunk([{"text": text}, *called], finishReason="STOP"))
    events = [chunk([{"text": piece}]) for piece in _pieces(text)]
    return _sse([*events, chunk(called or [{"text": ""}], finishReason="STOP")], named=False)


def _ollama(text: str, calls: list[tuple[str, str]], *, streamed: bool) -> Reply:
    listed = [{"function": {"name": n, "arguments": json.loads(said)}} for n, said in calls]
    message = {"role": "assistant", "content": text, "tool_calls": listed}
    if not streamed:
        return as_json({"model": "m", "message": message, "done": True})
    lines: list[dict[str, Any]] = [
        {"message": {"role": "assistant", "content": piece}} for piece in _pieces(text)
    ]
    lines.append({"message": {**message, "content": ""}, "done": True})
    data = [json.dumps({"model": "m", "done": False, **one}).encode() + b"\n" for one in lines]
    return stream(data, kind="application/x-ndjson")


def _converse(text: str, calls: list[tuple[str, str]], *, streamed: bool) -> Reply:
    used = [{"toolUseId": f"use-{name}", "name": name} for name, _ in calls]
    inputs = [json.loads(said) for _, said in calls]
    if not streamed:
        blocks: list[dict[str, Any]] = [{"text": text}]
        blocks += [{"toolUse": {**u, "input": i}} for u, i in zip(used, inputs, strict=True)]
        message = {"role": "assistant", "content": blocks}
        return as_json({"output": {"message": message}, "stopReason": "end_turn"})
    events: list[tuple[str, dict[str, Any]]] = [("messageStart", {"role": "assistant"})]
    starts = [None, *({"toolUse": one} for one in used)]
    wholes = [text, *(said for _, said in calls)]
    for at, (start, whole) in enumerate(zip(starts, wholes, strict=True)):
        place = {"contentBlockIndex": at, "p": "abc"}
        if start is not None:
            events.append(("contentBlockStart", {**place, "start": start}))
        for piece in _pieces(whole):
            delta = {"text": piece} if start is None else {"toolUse": {"input": piece}}
            events.append(("contentBlockDelta", {**place, "delta": delta}))
        events.append(("contentBlockStop", place))
    events += [("messageStop", {"stopReason": "end_turn"}), ("metadata", {"usage": {}})]
    return stream([_frame(kind, value) for kind, value in events], kind=_AWS)


def _invoked(text: str, calls: list[tuple[str, str]], *, streamed: bool) -> Reply:
    frames = []
    for piece in _messages(text, calls, streamed=True).pieces[1:]:
        for line in piece.split(b"\n") if isinstance(piece, bytes) else ():
            if line.startswith(b"data: "):
                held = {"bytes": base64.b64encode(line[6:]).decode(), "p": "abc"}
                frames.append(_frame("chunk", held))
    return stream(frames, kind=_AWS)


_AWS = "application/vnd.amazon.eventstream"


def _frame(kind: str, value: dict[str, Any]) -> bytes:
    return event_message(
        value, event_type=kind, content_type="application/json", message_type="event"
    )


def _responses(text: str, calls: list[tuple[str, str]], *, streamed: bool) -> Reply:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    items: list[dict[str, Any]] = [
        {
            "type": "message",
            "id": "m1",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
    ]
    items += [
        {"type": "function_call", "id": f"f_{name}", "call_id": name, "name": name}
        | {"arguments": said, "status": "completed"}
        for name, said in calls
    ]
    whole = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": items}
    whole |= {
        "status": "completed",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    if not streamed:
        return as_json(whole)
    opened = {**whole, "output": [], "status": "in_progress"}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": opened}]
    for at, item in enumerate(items):
        here = {"output_index": at, "item_id": item["id"]}
        is_text = item["type"] == "message"
        empty = {**item, "content": []} if is_text else {**item, "arguments": ""}
        events.append({"type": "response.output_item.added", "output_index": at, "item": empty})
        if is_text:
            here |= {"content_index": 0}
            empty = {**part, "text": ""}
            events.append({"type": "response.content_part.added", **here, "part": empty})
            events += [
                {"type": "response.output_text.delta", **here, "delta": piece, "logprobs": []}
                for piece in _pieces(text)
            ]
            done = {"type": "response.output_text.done", **here, "text": text, "logprobs": []}
            events += [done, {"type": "response.content_part.done", **here, "part": part}]
        else:
            said = item["arguments"]
            events += [
                {"type": "response.function_call_arguments.delta", **here, "delta": piece}
                for piece in _pieces(said)
            ]
            events.append(
                {"type": "response.function_call_arguments.done", **here, "arguments": said}
                | {"name": item["name"]}
            )
        events.append({"type": "response.output_item.done", "output_index": at, "item": item})
    events.append({"type": "response.completed", "response": whole})
    numbered = [{**event, "sequence_number": at} for at, event in enumerate(events)]
    return _sse(numbered, named=True)
