"""Plants values where text hides: file names, addresses, ids, errors, headers, escapes, trace exports."""

import base64
import html
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.planting import Secret
from trajectory.exchange import (
    ClientIdentity,
    Exchange,
    ExchangeOutcome,
    HttpRequest,
    HttpResponse,
    SpoolPosition,
)

type Wire = tuple[str, Any, bytes, tuple[str, str]]
"""Path, request (a JSON value, or bytes as they are), answer and its content type."""

_JSON = ("content-type", "application/json")
_NOBODY = ClientIdentity("", "", "", "", ())
_LOOKALIKE = str.maketrans({"a": "\u0430", "e": "\u0435", "o": "\u043e"})
_WIDE = {ord("0") + digit: 0xFF10 + digit for digit in range(10)}
_SPACED = ("card", "ssn", "phone")


def bare(secret: Secret) -> str:
    """Return what stands alone under a key; two kinds are recognised in their sentence only."""
    return secret.sentence if secret.kind in ("url_login", "person") else secret.value


def exchange_of(path: str, body: Any, answer: bytes, kind: tuple[str, str]) -> Exchange:
    """Return an exchange whose identity and times are still to be set."""
    path, _, query = path.partition("?")
    now = datetime.now(UTC)
    export = path == "/v1/traces"
    status = 400 if answer.startswith(b'{"error"') else 200
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = ("content-type", "application/x-protobuf") if export else _JSON
    return Exchange(
        exchange_id="",
        client=_NOBODY,
        route="r",
        mode="otlp" if export else "base_url",
        upstream="http://127.0.0.1:1",
        started_at=now,
        first_byte_at=now,
        ended_at=now,
        request=HttpRequest("POST", path, query, (sent,), raw),
        response=HttpResponse(status, (kind,), answer),
        outcome=ExchangeOutcome.COMPLETE,
        position=SpoolPosition("w", 0, 0),
    )


def _answer(text: str) -> bytes:
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": text},
    }
    return json.dumps({"object": "chat.completion", "model": "m", "choices": [choice]}).encode()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _files(number: int, some: list[Secret]) -> Wire:
    """File names, data URLs, addresses with queries, ids, and the query of the request itself."""
    name, data, address, query, user = some
    parts = [
        {"type": "text", "text": "What is in these?"},
        {"type": "file", "file": {
            "filename": f"{name.sentence.replace('/', ' ')}.txt",
            "file_data": f"data:text/plain;base64,{_base64(data.sentence)}",
        }},
        {"type": "image_url", "image_url": {
            "url": f"https://img.example.com/a.png?{address.key}={quote(bare(address), safe='')}"
        }},
    ]  # fmt: skip
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": parts}],
        "metadata": {"session_id": f"{number}", "note": user.sentence},
    }
    path = f"/v1/chat/completions?{query.key}={quote(bare(query), safe='')}"
    return path, body, _answer("A lamp."), _JSON


def _escaped(number: int, some: list[Secret]) -> Wire:
    """Percent signs, HTML, JSON in JSON, base64 in a sentence, zero-width characters."""
    percent, markup, nested, blob, invisible = (secret.sentence for secret in some)
    inner = json.dumps({"body": json.dumps({"n": number, "note": nested})})
    messages = [
        {"role": "user", "content": f"decode {quote(percent)} please"},
        {"role": "user", "content": f"<p>{html.escape(markup).replace('@', '&#64;')}</p>"},
        {"role": "user", "content": inner},
        {"role": "user", "content": f"attached: {_base64('Note. ' + blob)} end"},
    ]
    return "/v1/chat/completions", {"model": "m", "messages": messages}, _answer(
        "\u200b" + invisible.replace("-", "\u2011")
    ), _JSON  # fmt: skip


def _disguised(number: int, some: list[Secret]) -> Wire:
    """Homoglyphs in addresses, digits in other scripts and with spaces between: the values change."""
    for place, secret in enumerate(some):
        value = secret.value
        if secret.kind in _SPACED:
            plus = "+" if value.startswith("+") else ""
            value = plus + " ".join(char for char in value if char.isdigit())
        elif secret.kind == "ipv4":
            value = value.translate(_WIDE)
        elif secret.kind == "email":
            value = value.translate(_LOOKALIKE)
        said = secret.sentence.replace(secret.value, value)
        some[place] = replace(secret, value=value, sentence=said)
    messages = [{"role": "user", "content": secret.sentence} for secret in some]
    body = {"model": f"m{number % 3}", "messages": messages}
    return "/v1/chat/completions", body, _answer("Yes."), _JSON


def _failed(number: int, some: list[Secret]) -> Wire:
    """An error whose text repeats what was asked."""
    messages = [{"role": "user", "content": secret.sentence} for secret in some[:3]]
    error = {"message": f"Invalid: {some[3].sentence}", "type": "invalid_request_error",
             "param": some[4].sentence, "code": f"e{number % 7}"}  # fmt: skip
    body = {"model": "m", "messages": messages}
    return "/v1/chat/completions", body, json.dumps({"error": error}).encode(), _JSON


def _traces(number: int, some: list[Secret]) -> Wire:
    """An OpenTelemetry export of a model's span and a tool's."""
    export = ExportTraceServiceRequest()
    spans = export.resource_spans.add().scope_spans.add().spans

    def span(place: int, name: str, values: dict[str, str]) -> None:
        one = spans.add()
        one.trace_id, one.span_id = (
            number.to_bytes(16, "big"),
            (number * 4 + place + 1).to_bytes(8, "big"),
        )
        one.name = name
        one.start_time_unix_nano = one.end_time_unix_nano = int(datetime.now(UTC).timestamp() * 1e9)
        for key, value in values.items():
            one.attributes.add(key=key).value.string_value = value

    def said(role: str, secret: Secret) -> str:
        part = {"type": "text", "content": secret.sentence}
        return json.dumps([{"role": role, "parts": [part], "finish_reason": "stop"}])

    system = json.dumps([{"type": "text", "content": some[0].sentence}])
    span(0, "chat m", {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
        "gen_ai.system_instructions": system,
        "gen_ai.input.messages": said("user", some[1]),
        "gen_ai.output.messages": said("assistant", some[2]),
    })  # fmt: skip
    span(1, "execute_tool look_up", {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look_up",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": json.dumps({some[3].key: bare(some[3])}),
        "gen_ai.tool.call.result": some[4].sentence,
    })  # fmt: skip
    return "/v1/traces", export.SerializeToString(), b"{}", _JSON


HIDDEN: tuple[Callable[[int, list[Secret]], Wire], ...] = (
    _files, _escaped, _disguised, _failed, _traces,
)  # fmt: skip
