"""The gateway's own answers, in the error shape of the client's provider."""

import json
from dataclasses import dataclass
from enum import StrEnum

from trajectory.canonical import JsonValue
from trajectory.dialects.errors import QUOTA, Shape, error_body


class Reason(StrEnum):
    """Why the gateway answers itself; also the value of a metric's label."""

    NO_KEY = "no_key"
    NO_ROUTE = "no_route"
    SPOOL_FULL = "spool_full"
    RATE = "rate"
    TOKENS = "tokens"
    MONEY = "money"
    SESSION_STEPS = "session_steps"
    UNCOUNTED = "uncounted"
    UNREACHABLE = "unreachable"
    BAD_REQUEST = "bad_request"
    HEAD_TOO_LARGE = "head_too_large"
    BODY_TOO_LARGE = "body_too_large"
    NO_MODEL = "no_model"
    FAULT = "fault"
    UNREADABLE = "unreadable"
    UNKNOWN_RESPONSE = "unknown_response"
    NOT_PSEUDONYMISED = "not_pseudonymised"
    UNREADABLE_CALL = "unreadable_call"
    UNREADABLE_ANSWER = "unreadable_answer"
    CALLS = "calls"
    CALLS_OF_KEY = "calls_of_key"


@dataclass(frozen=True, slots=True)
class LocalReply:
    """Status, headers and body of an answer of the gateway's own."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


def json_reply(status: int, value: JsonValue) -> LocalReply:
    """Return an answer of the gateway's own API."""
    body = json.dumps(value).encode()
    headers = ((b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)))
    return LocalReply(status, headers, body)


_TEXTS = {
    Reason.NO_KEY: (
        401,
        "invalid_api_key",
        "Headrace: missing, wrong or revoked client key; `headrace keys create` makes one.",
    ),
    Reason.NO_ROUTE: (
        404,
        "not_found",
        "Headrace: no route of this gateway fits the path; it begins with a route's name, /openai/v1, "
        "and holds no client key.",
    ),
    Reason.SPOOL_FULL: (
        503,
        "overloaded",
        "Headrace: capture is mandatory and has no room now; the gateway's /metrics say why.",
    ),
    Reason.RATE: (
        429,
        "rate_limit_exceeded",
        "Headrace: this key has made its requests of this minute.",
    ),
    Reason.TOKENS: (429, QUOTA, "Headrace: this key has used its tokens of today."),
    Reason.MONEY: (429, QUOTA, "Headrace: this key has spent its money of today."),
    Reason.SESSION_STEPS: (
        429,
        QUOTA,
        "Headrace: this session has taken the steps that its key allows.",
    ),
    Reason.UNCOUNTED: (
        400,
        "invalid_request",
        "Headrace: this key has a budget of tokens or money, and what a batch, a fine-tuning job or another "
        "order of this kind takes is told by no answer: use a key without a budget for it.",
    ),
    Reason.UNREACHABLE: (
        502,
        "upstream_error",
        "Headrace: the upstream did not answer; the gateway's log or `headrace gateway probe` says why.",
    ),
    Reason.BAD_REQUEST: (400, "invalid_request", "Headrace: the request is not valid HTTP."),
    Reason.HEAD_TOO_LARGE: (
        431,
        "request_too_large",
        "Headrace: the request's head is larger than 64 KiB.",
    ),
    Reason.BODY_TOO_LARGE: (
        413,
        "request_too_large",
        "Headrace: the request's body is longer than gateway.body_bytes allows.",
    ),
    Reason.NO_MODEL: (
        503,
        "overloaded",
        "Headrace: no version of this route's model serves now; see `headrace train list`.",
    ),
    Reason.UNREADABLE: (
        400,
        "invalid_request",
        "Headrace: personal data is replaced on this route, and this request cannot be read: send JSON, "
        "uncompressed, to chat completions, completions, responses, messages, Gemini or Ollama, with the "
        "whole conversation in it, or a file of text.",
    ),
    Reason.UNKNOWN_RESPONSE: (
        400,
        "invalid_request",
        "Headrace: personal data is replaced on this route, and the response or conversation that this "
        "request goes on from is not known: it is too old, another client key's, or none of this route. "
        "Send the whole conversation.",
    ),
    Reason.NOT_PSEUDONYMISED: (
        503,
        "overloaded",
        "Headrace: personal data could not be replaced in this request in time; nothing was sent. The "
        "gateway's /metrics say why.",
    ),
    Reason.UNREADABLE_CALL: (
        400,
        "invalid_request",
        "Headrace: tool calls of this route are judged before they are sent, and this request cannot be "
        "read for certain: send JSON-RPC (or the operation's own JSON) in UTF-8, uncompressed, each key once.",
    ),
    Reason.UNREADABLE_ANSWER: (
        502,
        "upstream_error",
        "Headrace: tool calls in answers of this route are judged, and this answer cannot be read for "
        "certain: it must be JSON, server-sent events, lines or AWS events, uncompressed, over HTTP.",
    ),
    Reason.CALLS: (
        503,
        "overloaded",
        "Headrace: as many calls are in flight as gateway.calls allows; ask again in a moment.",
    ),
    Reason.CALLS_OF_KEY: (
        429,
        "rate_limit_exceeded",
        "Headrace: this key has as many calls in flight as gateway.calls_per_key allows.",
    ),
    Reason.FAULT: (
        500,
        "gateway_error",
        "Headrace: the gateway could not admit this request; its log names the fault.",
    ),
}
_BEDROCK_TYPES = {
    400: b"ValidationException",
    401: b"UnrecognizedClientException",
    404: b"ResourceNotFoundException",
    413: b"ValidationException",
    429: b"ThrottlingException",
    431: b"ValidationException",
    503: b"ServiceUnavailableException",
}


def status_of(reason: Reason) -> int:
    """Return the status with which a reason is answered."""
    return _TEXTS[reason][0]


def answer(
    reason: Reason, shape: Shape, *, status: int | None = None, retry_after: int = 1
) -> LocalReply:
    """Return the answer for a reason; ``status`` overrides the usual one.

    Clients are told when to ask again; where that is long off, SDKs are told not to retry.
    """
    usual, code, text = _TEXTS[reason]
    status = usual if status is None else status
    body = json.dumps(error_body(shape, status, code, text)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status in (429, 503):
        headers.append((b"retry-after", b"%d" % retry_after))
    if reason in (Reason.TOKENS, Reason.MONEY, Reason.SESSION_STEPS):
        headers.append((b"x-should-retry", b"false"))
    if shape is Shape.BEDROCK:
        kind = _BEDROCK_TYPES.get(status, b"InternalServerException")
        headers.append((b"x-amzn-errortype", kind))
    return LocalReply(status, tuple(headers), body)
