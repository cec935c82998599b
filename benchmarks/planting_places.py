"""Plants values where text hides: file names, addresses, ids, errors, headers, escapes, packed bodies.

Trace exports and what the tap of a stdio server records stand here too.
"""

import base64
import gzip
import html
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import brotli
import zstandard
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.planting import Secret
from trajectory.canonical import JsonObject, JsonValue
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
    return _base64_of(text.encode())


def _base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


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
            national = re.sub(r"\A\+(?:1 |\d\d )", lambda m: "" if m[0] == "+1 " else "0", value)
            value = " ".join(char for char in national if char.isdigit())
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


def _with_headers(number: int, some: list[Secret]) -> Exchange:
    """Headers, most of which are never kept: who calls with what, from where, and what came back."""
    body = {"model": "m", "messages": [{"role": "user", "content": f"How are you, {number}?"}]}
    plain = exchange_of("/v1/chat/completions", body, _answer("Well."), _JSON)
    # Nothing but the words around it tells a password, and a header's value has none.
    plain_or_told = [one.sentence if one.kind == "password" else bare(one) for one in some]
    said = [quote(text, safe=" @.:/=+") for text in plain_or_told]
    sent = (
        ("user-agent", f"agent/1.0 ({said[0]})"), ("x-headrace-agent", said[1]), ("cookie", said[2]),
        ("x-headrace-session", said[3]), ("referer", f"https://shop.example.com/{said[0]}"),
        ("x-headrace-region", said[1]), ("x-headrace-purposes", f"train_sft, {said[2]}"),
    )  # fmt: skip
    came = (_JSON, ("x-request-id", said[4]), ("set-cookie", f"id={said[4]}"))
    assert plain.response is not None
    return replace(
        plain,
        request=replace(plain.request, headers=(*plain.request.headers, *sent)),
        response=replace(plain.response, headers=came),
    )


def _with_ids(number: int, some: list[Secret]) -> Exchange:
    """Ids that a client made of what it knows: of users, sessions, calls, answers, participants."""
    user, session, call, answer, name = some
    called: JsonObject = {"name": "look_up", "arguments": "{}"}
    messages: list[JsonValue] = [
        {"role": "user", "name": name.sentence, "content": f"Look it up, {number}."},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": f"call {call.sentence}", "type": "function", "function": called}]},
        {"role": "tool", "tool_call_id": f"call {call.sentence}", "content": "nothing"},
    ]  # fmt: skip
    body = {
        "model": "m",
        "user": bare(user),
        "metadata": {"session_id": bare(session), "user_id": bare(user)},
        "messages": messages,
    }
    said = {**json.loads(_answer("Nothing there.")), "id": f"chatcmpl {answer.sentence}"}
    return exchange_of("/v1/chat/completions", body, json.dumps(said).encode(), _JSON)


def _compressed(number: int, some: list[Secret]) -> Exchange:
    """Bodies as many clients and servers send them: packed, in both directions."""
    sent, came = _PACKERS[number % len(_PACKERS)], _PACKERS[(number + 1) % len(_PACKERS)]
    messages = [{"role": "user", "content": secret.sentence} for secret in some[:3]]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    answer = _answer(f"{some[3].sentence}\n{some[4].sentence}")
    plain = exchange_of("/v1/chat/completions", body, answer, _JSON)
    assert plain.response is not None
    heads = (*plain.request.headers, ("content-encoding", sent[0]))
    back = (_JSON, ("content-encoding", came[0]))
    return replace(
        plain,
        request=replace(plain.request, headers=heads, body=sent[1](body)),
        response=replace(plain.response, headers=back, body=came[1](answer)),
    )


_PACKERS: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("gzip", gzip.compress),
    ("zstd", zstandard.ZstdCompressor().compress),
    ("br", brotli.compress),
    ("deflate", zlib.compress),
)


def _tapped(number: int, some: list[Secret]) -> Exchange:
    """A call of a stdio MCP server, as the tap records its lines."""
    arguments = {some[0].key: bare(some[0]), "note": some[1].sentence}
    call = {"jsonrpc": "2.0", "id": number, "method": "tools/call",
            "params": {"name": "look_up", "arguments": arguments,
                       "_meta": {"progressToken": some[2].sentence}}}  # fmt: skip
    content = [{"type": "text", "text": some[3].sentence}]
    answer = {"jsonrpc": "2.0", "id": number,
              "result": {"content": content, "structuredContent": {some[4].key: bare(some[4])}}}  # fmt: skip
    plain = exchange_of("/mcp", call, json.dumps(answer).encode(), _JSON)
    session = ("mcp-session-id", f"run-{number}")
    request = replace(plain.request, headers=(*plain.request.headers, session))
    return replace(plain, mode="stdio", route="files", upstream="stdio://files", request=request)


def _wrapped(number: int, some: list[Secret]) -> Exchange:
    """Base64 over several lines, hexadecimal digits, an attachment that is packed."""
    mail = "Dear all, " + " ".join(secret.sentence for secret in some[:3])
    packed = _base64_of(gzip.compress(some[4].sentence.encode(), mtime=0))
    text = (
        f"part {number}:\n{base64.encodebytes(mail.encode()).decode()}\n"
        f"dump {('note ' + some[3].sentence).encode().hex()}\nattachment {packed}"
    )
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    return exchange_of("/v1/chat/completions", body, _answer("I see."), _JSON)


WHOLE: tuple[Callable[[int, list[Secret]], Exchange], ...] = (
    _with_headers, _with_ids, _compressed, _tapped, _wrapped,
)  # fmt: skip
"""Exchanges whose headers, mode or bytes matter."""

HIDDEN: tuple[Callable[[int, list[Secret]], Wire], ...] = (
    _files, _escaped, _disguised, _failed, _traces,
)  # fmt: skip
