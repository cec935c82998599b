"""Anthropic's wire format: messages, also as Vertex and Bedrock carry them."""

import json
from typing import Any

from tests.support.provider.answer import Answer, adding, cut, named_sse
from tests.support.upstream import Reply, as_json, stream


def messages(body: dict[str, Any]) -> Reply:
    """Answer a request for a message."""
    if body.get("model") == "rich":
        return stream(named_sse(_rich_events())) if body.get("stream") else as_json(_rich_message())
    answer = reply_to(body)
    return (
        stream(named_sse(message_events(answer)))
        if body.get("stream")
        else as_json(message(answer))
    )


def reply_to(body: dict[str, Any]) -> Answer:
    """Return what the model says to a request."""
    told = len(body["messages"]) > 1
    return adding("msg_2" if told else "msg_1", told=told, call_id="toolu_1")


def message(answer: Answer) -> dict[str, Any]:
    """Return a message of Anthropic's."""
    content: list[dict[str, Any]] = []
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    content += [
        {"type": "tool_use", "id": call.call_id, "name": call.name, "input": call.arguments}
        for call in answer.calls
    ]
    given, made = answer.usage or (10, 6)
    return {
        "id": answer.response_id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": "tool_use" if answer.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": given, "output_tokens": made},
    }


def message_events(answer: Answer) -> list[dict[str, Any]]:
    """Return the events by which a message is streamed."""
    whole = message(answer)
    opening = {**whole, "content": [], "stop_reason": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": opening}]
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            start: dict[str, Any] = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in cut(block["text"], 5)]
        else:
            start = {**block, "input": {}}
            pieces = cut(json.dumps(block["input"]), 7)
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        place = {"index": index}
        events.append({"type": "content_block_start", **place, "content_block": start})
        events += [{"type": "content_block_delta", **place, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", **place})
    ending = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    made = {"output_tokens": whole["usage"]["output_tokens"]}
    events.append({"type": "message_delta", "delta": ending, "usage": made})
    return [*events, {"type": "message_stop"}]


def _rich_message() -> dict[str, Any]:
    """Return a message with a compaction, sources, and counts beside the usual four."""
    source = {"type": "char_location", "cited_text": "The sum is 42.", "document_index": 0}
    source |= {"document_title": "Sums", "start_char_index": 0, "end_char_index": 14}
    whole = message(adding("msg_2", told=True))
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
