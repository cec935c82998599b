"""The gateway's own answers: each reason in each provider's shape, as that provider's clients read it."""

import json
from typing import Any

import pytest

from proxy.responses import Reason, answer, status_of
from trajectory.dialects.errors import Shape, shape_of

ERROR_FIELDS = {
    Shape.OPENAI: {"message", "type", "param", "code"},
    Shape.ANTHROPIC: {"type", "message"},
    Shape.GOOGLE: {"code", "message", "status"},
    Shape.BEDROCK: {"message"},
    Shape.OLLAMA: {"error"},
    Shape.JSONRPC: {"code", "message"},
}


@pytest.mark.parametrize("shape", Shape)
@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_every_shape(reason: Reason, shape: Shape) -> None:
    reply = answer(reason, shape, retry_after=7)
    body: dict[str, Any] = json.loads(reply.body)
    headers = dict(reply.headers)
    assert reply.status == status_of(reason)
    error = body if shape in (Shape.BEDROCK, Shape.OLLAMA) else body["error"]
    assert set(error) == ERROR_FIELDS[shape]
    assert error.get("message", error.get("error")).startswith("Headrace: ")
    assert (b"x-amzn-errortype" in headers) is (shape is Shape.BEDROCK)
    assert headers[b"content-length"] == b"%d" % len(reply.body)
    assert headers.get(b"retry-after") == (b"7" if reply.status in (429, 503) else None)
    used_up = reason in (Reason.TOKENS, Reason.MONEY, Reason.SESSION_STEPS)
    assert (b"x-should-retry" in headers) is used_up
    if shape is Shape.OPENAI:
        assert (error["type"] == error["code"] == "insufficient_quota") is used_up


@pytest.mark.parametrize(
    ("path", "names", "kind", "shape"),
    [
        (b"/v1/chat/completions", set(), "model", Shape.OPENAI),
        (b"/v1/messages", set(), "model", Shape.ANTHROPIC),
        (b"/x", {b"anthropic-version"}, "model", Shape.ANTHROPIC),
        (b"/v1beta/models/m:streamGenerateContent", set(), "model", Shape.GOOGLE),
        (b"/x", {b"x-goog-api-key"}, "model", Shape.GOOGLE),
        (b"/v1/publishers/anthropic/models/c:rawPredict", set(), "model", Shape.GOOGLE),
        (b"/model/amazon.nova%3A0/converse-stream", set(), "model", Shape.BEDROCK),
        (b"/model/m/invoke", set(), "model", Shape.BEDROCK),
        (b"/api/chat", set(), "model", Shape.OLLAMA),
        (b"/mcp", set(), "tool", Shape.JSONRPC),
        (b"/mcp", {b"mcp-protocol-version"}, "model", Shape.JSONRPC),
    ],
)
def test_the_shape_is_told_from_the_request(
    path: bytes, names: set[bytes], kind: str, shape: Shape
) -> None:
    assert shape_of("auto", kind, path, frozenset(names)) is shape
    assert shape_of("google", kind, path, frozenset(names)) is Shape.GOOGLE
