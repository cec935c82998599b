"""Errors in the words of each API: their bodies, and whose words a request's client understands."""

import re
from enum import StrEnum

from trajectory.canonical import JsonObject


class Shape(StrEnum):
    """Whose error format an answer has."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    GOOGLE = "google"
    BEDROCK = "bedrock"
    OLLAMA = "ollama"
    JSONRPC = "jsonrpc"


QUOTA = "insufficient_quota"
"""What OpenAI calls a budget that is used up, as type and as code."""
_OPENAI_TYPES = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    404: "invalid_request_error",
    413: "invalid_request_error",
    429: "requests",
    431: "invalid_request_error",
}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    431: "request_too_large",
    503: "overloaded_error",
}
_GOOGLE_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    431: "INVALID_ARGUMENT",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
}


_BEDROCK_PATH = re.compile(rb"/model/[^/]+/(?:converse|invoke|count-tokens)")
_OLLAMA_PATH = re.compile(rb"/api/(?:chat|generate|embed|show|tags|ps)")


def error_body(shape: Shape, status: int, code: str, text: str) -> JsonObject:
    """Return the body of an error; ``code`` says in one word what is wrong."""
    match shape:
        case Shape.ANTHROPIC:
            kind = _ANTHROPIC_TYPES.get(status, "api_error")
            return {"type": "error", "error": {"type": kind, "message": text}}
        case Shape.GOOGLE:
            name = _GOOGLE_STATUS.get(status, "INTERNAL")
            return {"error": {"code": status, "message": text, "status": name}}
        case Shape.BEDROCK:
            return {"message": text}
        case Shape.OLLAMA:
            return {"error": text}
        case Shape.JSONRPC:
            return {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": text}}
        case Shape.OPENAI:
            kind = code if code == QUOTA else _OPENAI_TYPES.get(status, "server_error")
            return {"error": {"message": text, "type": kind, "param": None, "code": code}}


def shape_of(configured: str, kind: str, path: bytes, header_names: frozenset[bytes]) -> Shape:
    """Return the shape for a request: as configured, else told from its path and headers."""
    if configured != "auto":
        return Shape(configured)
    if b"anthropic-version" in header_names or path.find(b"/v1/messages") >= 0:
        return Shape.ANTHROPIC
    if (
        b"x-goog-api-key" in header_names
        or path.find(b"enerateContent") >= 0
        or path.find(b"awPredict") >= 0
    ):
        return Shape.GOOGLE
    if kind == "tool" or b"mcp-protocol-version" in header_names:
        return Shape.JSONRPC
    if path.find(b"/model/") >= 0 and _BEDROCK_PATH.search(path):
        return Shape.BEDROCK
    if path.find(b"/api/") >= 0 and _OLLAMA_PATH.search(path):
        return Shape.OLLAMA
    return Shape.OPENAI
