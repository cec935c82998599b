"""Ways round a guard that is no route of tools: calls in model answers, and lines of MCP over stdio."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

SSE, JSON = "text/event-stream", "application/json"
FORBIDDEN = b"delete"
"""Stands in each call that must not pass, and nowhere else."""


class AnswerEvasion(NamedTuple):
    """An answer of a model with a call that must not reach the agent."""

    name: str
    kind: str
    """Its content type."""
    body: bytes


def _events(*values: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in values)


def _chat(*deltas: dict[str, Any]) -> bytes:
    ends = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    return _events(*({"choices": [{"index": 0, "delta": one}]} for one in deltas), ends)


def _call(name: str, arguments: str = "{}", number: str = "c1") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": 0, "id": number, "type": "function", "function": function}]}


def in_answers() -> Iterator[AnswerEvasion]:
    """Yield all of them."""
    delete = _chat(_call("delete_file"))
    block = {"type": "tool_use", "id": "t", "name": "delete_file", "input": {}}
    item = {"type": "function_call", "call_id": "c", "name": "delete_file", "arguments": "{}"}
    read = {**item, "name": "read_file"}
    yield AnswerEvasion("another case", SSE, _chat(_call("Delete-File")))
    yield AnswerEvasion(
        "arguments in pieces", SSE, _chat(_call("delete_file", "{"), _call("", "}"))
    )
    yield AnswerEvasion(
        "a second call under the same index",
        SSE,
        _chat(_call("read_file"), _call("delete_file", "{}", "c2")),
    )
    yield AnswerEvasion("look-alike letters", SSE, _chat(_call("delete_f\u0456le")))
    yield AnswerEvasion(
        "arguments with a key twice", SSE, _chat(_call("run", '{"a":"delete","a":1}'))
    )
    yield AnswerEvasion("lines that end in CR", SSE, delete.replace(b"\n", b"\r"))
    yield AnswerEvasion(
        "a whole answer as an event", SSE, _events({"choices": [{"message": _call("delete_file")}]})
    )
    yield AnswerEvasion(
        "another dialect in the stream",
        SSE,
        _events(
            {"choices": []}, {"type": "content_block_start", "index": 0, "content_block": block}
        ),
    )
    yield AnswerEvasion(
        "two names for one item",
        SSE,
        _events(
            {"type": "response.output_item.added", "output_index": 0, "item": read},
            {"type": "response.output_item.done", "output_index": 0, "item": read},
            {"type": "response.completed", "response": {"object": "response", "output": [item]}},
        ),
    )
    yield AnswerEvasion(
        "a call in an unknown field",
        JSON,
        json.dumps({"required_action": _call("delete_file")}).encode(),
    )
    escaped = json.dumps({"choices": [{"message": _call("delete_file")}]}).encode()
    yield AnswerEvasion("escaped keys", JSON, escaped.replace(b"tool_calls", b"\\u0074ool_calls"))
    yield AnswerEvasion("a body of unknown kind", "application/octet-stream", escaped)
    yield AnswerEvasion("a call in an array", JSON, b"[1," + escaped + b"]")


def on_lines() -> Iterator[tuple[str, bytes]]:
    """Yield lines that a stdio server must not get, each with its name."""
    params = {"name": "delete_file", "arguments": {}}
    delete = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    ).encode()
    ping = b'{"jsonrpc":"2.0","id":2,"method":"ping"}'
    yield "batch", b"[" + ping + b"," + delete + b"]"
    yield "a message within a line", ping[:-1] + b',"params":\r' + delete + b"\r}"
    yield "duplicate keys", delete.replace(b'"name"', b'"name": "list_files", "name"')
    yield "keys in another case", delete.replace(b'"method"', b'"method": "ping", "METHOD"')
    yield "another case", delete.replace(b"delete_file", b"Delete-File")
    yield "byte order mark", b"\xef\xbb\xbf" + delete
    yield "UTF-16", delete.decode().encode("utf-16-le")
    yield "a line without an end", delete
