"""Google's wire formats: Gemini and its interactions."""

import json
from typing import Any

from tests.support.provider.answer import ANSWER, ARGUMENTS, sse
from tests.support.upstream import Reply, as_json, stream

_NOON = "2026-01-01T12:00:00Z"


def gemini(path: str, query: str, body: dict[str, Any]) -> Reply:
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
        return stream([piece.replace(b"\n\n", b"\r\n\r\n") for piece in sse(*chunks)])
    pieces = [json.dumps(chunk, indent=2, ensure_ascii=False).encode() for chunk in chunks]
    array = [b"[" + pieces[0], *(b",\r\n" + piece for piece in pieces[1:]), b"]"]
    return stream(array, kind="application/json; charset=UTF-8")


def interaction(body: dict[str, Any]) -> Reply:
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
    return stream([*sse(*events), b"data: [DONE]\n\n"])
