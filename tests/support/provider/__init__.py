"""The fake provider: it speaks each wire format as its documentation has it.

The bytes are written by hand here, not by the product, so that both can be wrong apart only.
``provider`` asks for the tool ``add`` first, then says the sum. ``SessionProvider`` follows a script
for agents and keeps the truth.
"""

import json
import threading
from typing import Any

from tests.support.provider.anthropic import messages
from tests.support.provider.bedrock import AMAZON_ID, bedrock
from tests.support.provider.google import gemini, interaction
from tests.support.provider.openai import openai
from tests.support.provider.others import agent, mistral, mistral_chat, ollama, shop
from tests.support.upstream import ReceivedRequest, Reply, as_json, plain, stream

GO_ON = threading.Event()
"""What ``/slow`` waits for after each chunk."""


def provider(request: ReceivedRequest) -> Reply:
    """Answer like the provider whose path this is."""
    path, _, query = request.target.partition("?")
    if path == "/slow":
        return stream([b"data: 1\n\n", b"data: 2\n\n"], pause=GO_ON)
    if path == "/echo":
        return plain(200, request.body, ("Content-Type", "application/octet-stream"))
    body = _body(request)
    if "fail" in str(body.get("model", "")) or "fail" in path:
        return _failure(path)
    if path.startswith("/model/"):
        return bedrock(path, body)
    if path.endswith("/count-tokens:rawPredict"):
        return as_json({"input_tokens": 14})
    if path.endswith("awPredict"):
        return messages(body)
    if "/models/" in path and ":" in path.rpartition("/")[2]:
        return gemini(path, query, body)
    if path.endswith("/interactions"):
        return interaction(body)
    if path.startswith("/api/"):
        return ollama(path, body)
    if "inputs" in body:
        return mistral(body)
    if str(body.get("model", "")).startswith("magistral"):
        return mistral_chat(body)
    if path.startswith("/orders"):
        return shop(request, path, body)
    if path.startswith("/agent"):
        return agent(path, body)
    if path.endswith("/messages/count_tokens"):
        return as_json({"input_tokens": 14})
    if path.endswith("/messages"):
        return messages(body)
    return openai(request, path, body)


def _body(request: ReceivedRequest) -> dict[str, Any]:
    try:
        body = json.loads(request.body)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _failure(path: str) -> Reply:
    if path.startswith("/model/"):
        error = {"message": "Too many requests"}
        return as_json(error, 429, ("x-amzn-ErrorType", "ThrottlingException"), AMAZON_ID)
    if "/models/" in path:
        error = {"code": 429, "message": "Quota exceeded", "status": "RESOURCE_EXHAUSTED"}
        return as_json({"error": error}, 429)
    if path.startswith("/api/"):
        return as_json({"error": "model 'fail' not found"}, 404)
    return as_json({"error": {"message": "No such model", "type": "invalid_request_error"}}, 404)
