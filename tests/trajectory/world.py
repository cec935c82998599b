"""A small world of scripted sessions: exchanges as a gateway would have captured them."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from trajectory.call import Call
from trajectory.dialects.registry import read_exchange
from trajectory.exchange import (
    ClientIdentity,
    Exchange,
    ExchangeOutcome,
    Feedback,
    HttpRequest,
    HttpResponse,
    SpoolPosition,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
CLIENT = ClientIdentity("acme", "bot", "test", "key-1")
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
SYSTEM = {"role": "system", "content": "You are helpful."}


@dataclass
class World:
    """Makes exchanges one second apart; every exchange has its own id."""

    client: ClientIdentity = CLIENT
    counter: Iterator[int] = field(default_factory=itertools.count)
    responses: Iterator[int] = field(default_factory=itertools.count)

    def exchange(
        self,
        path: str,
        request: Any,
        response: Any,
        *,
        method: str = "POST",
        status: int = 200,
        headers: dict[str, str] | None = None,
        response_headers: dict[str, str] | None = None,
        outcome: ExchangeOutcome = ExchangeOutcome.COMPLETE,
        seconds: float = 0.5,
        client: ClientIdentity | None = None,
    ) -> Exchange:
        number = next(self.counter)
        started = START + timedelta(seconds=number)
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        answer = None
        if response is not None:
            data = response if isinstance(response, bytes) else json.dumps(response).encode()
            kind = "text/event-stream" if data[:5] == b"data:" else "application/json"
            names = {"content-type": kind, **(response_headers or {})}
            answer = HttpResponse(status, tuple(names.items()), data)
        return Exchange(
            exchange_id=f"{number:032x}",
            client=client or self.client,
            route="model",
            mode="base_url",
            upstream="http://upstream:1",
            started_at=started,
            first_byte_at=started,
            ended_at=started + timedelta(seconds=seconds),
            request=HttpRequest(method, path, "", tuple((headers or {}).items()), body),
            response=answer,
            outcome=outcome,
            position=SpoolPosition("w", 0, number),
        )

    def chat(
        self,
        messages: list[dict[str, Any]],
        answer: dict[str, Any] | None,
        *,
        response_id: str | None = None,
        tools: list[dict[str, Any]] | None = TOOLS,
        **settings: Any,
    ) -> Call:
        """One chat completion; without an answer, a server error."""
        request: dict[str, Any] = {"model": "m", "messages": messages}
        if tools:
            request["tools"] = tools
        if answer is None:
            settings = {"status": 500, **settings}
            response: Any = {"error": {"message": "boom", "type": "server_error"}}
        else:
            finish = "tool_calls" if answer.get("tool_calls") else "stop"
            response = {
                "id": response_id or f"chatcmpl-{next(self.responses)}",
                "model": "m-1",
                "choices": [{"index": 0, "message": answer, "finish_reason": finish}],
            }
        return read_exchange(self.exchange("/v1/chat/completions", request, response, **settings))

    def cut_stream(self, messages: list[dict[str, Any]], text: str, **settings: Any) -> Call:
        """A stream that broke off in the middle."""
        chunk = {"id": "c", "choices": [{"index": 0, "delta": {"content": text}}]}
        body = f'data: {json.dumps(chunk)}\n\ndata: {{"id"'.encode()
        settings = {"outcome": ExchangeOutcome.UPSTREAM_ABORT, **settings}
        request = {"model": "m", "messages": messages, "stream": True}
        return read_exchange(self.exchange("/v1/chat/completions", request, body, **settings))

    def ended_stream(self, messages: list[dict[str, Any]], text: str, **settings: Any) -> Call:
        """A stream that came to the model's last word."""
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": "stop"}
        body = f"data: {json.dumps({'id': 'c', 'choices': [choice]})}\n\ndata: [DONE]\n\n".encode()
        request = {"model": "m", "messages": messages, "stream": True}
        return read_exchange(self.exchange("/v1/chat/completions", request, body, **settings))

    def tool(
        self, name: str, arguments: Any, result: str, *, session: str = "s", **settings: Any
    ) -> Call:
        """One MCP ``tools/call``."""
        request = {
            "jsonrpc": "2.0",
            "id": 7,
            "method": "tools/call",
            "params": {"name": name, "arguments": arguments},
        }
        content = {"content": [{"type": "text", "text": result}], "isError": False}
        response = {"jsonrpc": "2.0", "id": 7, "result": content}
        headers = {"mcp-session-id": session}
        return read_exchange(self.exchange("/mcp", request, response, headers=headers, **settings))

    def feedback(self, kind: str, target: str, *, client: ClientIdentity | None = None) -> Feedback:
        number = next(self.counter)
        return Feedback(
            feedback_id=f"f{number}",
            client=client or self.client,
            received_at=START + timedelta(seconds=number),
            target_kind=kind,
            target_id=target,
            body={"name": "success", "value": 1.0},
            position=SpoolPosition("w", 0, number),
        )


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def asked(call_id: str, name: str = "add", arguments: str = '{"a": 1, "b": 2}') -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str, text: str = "3") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}
