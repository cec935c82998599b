"""What the scripted provider of the gateway's tests answers."""

import json
import threading
from typing import Any

from tests.support.upstream import Reply, Seen, as_json, plain, stream

CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi"}}
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


def sse(*values: object) -> list[bytes]:
    return [f"data: {json.dumps(value)}\n\n".encode() for value in values]


def chat_chunk(text: str) -> dict[str, Any]:
    return {
        "id": "chatcmpl-2",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
    }


MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Hi"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


GO_ON = threading.Event()
"""What ``/slow`` waits for after each chunk."""


def provider(request: Seen) -> Reply:
    """Answer like the providers do."""
    path = request.target.partition("?")[0]
    if path == "/v1/chat/completions":
        if json.loads(request.body).get("stream"):
            return stream([*sse(chat_chunk("He"), chat_chunk("llo")), b"data: [DONE]\n\n"])
        return as_json(CHAT, 200, ("Set-Cookie", "sid=secret-cookie"), ("X-Request-Id", "abc"))
    if path == "/v1/messages":
        return as_json(MESSAGE)
    if path == "/slow":
        return stream([b"data: 1\n\n", b"data: 2\n\n"], pause=GO_ON)
    if path == "/echo":
        return plain(200, request.body, ("Content-Type", "application/octet-stream"))
    return as_json({"error": {"message": "no such thing", "type": "x"}}, 404)
