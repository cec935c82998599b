"""Bedrock's wire formats: Converse, the families of models, and the AWS event stream."""

import base64
import json
import struct
import zlib
from typing import Any

from tests.support.provider.answer import ANSWER, ARGUMENTS
from tests.support.provider.anthropic import message, message_events, reply_to
from tests.support.upstream import Reply, as_json, stream

AMAZON_ID = ("x-amzn-RequestId", "7b9f1c1e-0000-4000-8000-000000000001")


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


def bedrock(path: str, body: dict[str, Any]) -> Reply:
    operation = path.rpartition("/")[2]
    if operation == "converse":
        return as_json(_converse(body), 200, AMAZON_ID)
    if operation == "converse-stream":
        return _events(_converse_events(body), broken="breaks" in path)
    if operation == "invoke":
        return as_json(_invoked(path, body), 200, AMAZON_ID)
    events = []
    made = _llama_events() if "llama" in path else message_events(reply_to(body))
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
    return message(reply_to(body))


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
    kind = f"application/vnd.amazon.eventstream\r\n{AMAZON_ID[0]}: {AMAZON_ID[1]}"
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
