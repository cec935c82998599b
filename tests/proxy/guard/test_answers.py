"""What clients hear of calls that were not sent, and of those that waited."""

import json
from typing import Any

import pytest

from proxy.guard.answers import StreamedAnswer, as_events, comment, denial, progress, takes_events
from proxy.guard.calls import ReadCall, ReadRequest
from proxy.guard.rules import RequestedCall
from trajectory.dialects.errors import Shape

READ = ReadRequest((ReadCall(RequestedCall("f", {}), "tools/call", 7),), ((7, "tools/call"),))


def messages(events: bytes) -> list[Any]:
    """Return what a client reads in a stream."""
    found = []
    for block in events.decode().split("\n\n"):
        data = [line[6:] for line in block.split("\n") if line.startswith("data: ")]
        if data:
            found.append(json.loads("\n".join(data)))
    return found


def test_a_method_that_is_no_tool_call_gets_an_error() -> None:
    read = ReadRequest((ReadCall(RequestedCall("resources/read", {}), "resources/read", "a"),),
                       (("a", "resources/read"),))  # fmt: skip
    said = json.loads(denial(read, {0: "No."}, Shape.JSONRPC).body)
    assert said == {"jsonrpc": "2.0", "id": "a", "error": {"code": -32001, "message": "No."}}


def test_a_plain_http_tool_gets_403() -> None:
    reply = denial(READ._replace(is_rpc=False), {0: "No."}, Shape.OPENAI)
    assert reply.status == 403
    assert json.loads(reply.body)["error"]["message"] == "No."


def test_a_reply_becomes_events() -> None:
    reply = denial(READ, {0: "No.\nReally."}, Shape.JSONRPC)
    (said,) = messages(as_events(reply))
    assert said["result"]["content"][0]["text"] == "No.\nReally."
    assert messages(comment("x") + progress("t", 3, "waits")) == [
        {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": "t", "progress": 3, "message": "waits"},
        }
    ]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("status", "kind", "body", "told"),
    [
        (200, b"application/json", b'{\n "id": 7,\n "result": {}\n}', [{"id": 7, "result": {}}]),
        (200, b"text/event-stream", b'data: {"id": 7}\n\n', [{"id": 7}]),
        (202, b"", b"", []),
    ],
)
def test_an_upstreams_answer_becomes_events(
    size: int, status: int, kind: bytes, body: bytes, told: list[Any]
) -> None:
    answer = StreamedAnswer(READ, status, ((b"content-type", kind),))
    out = b"".join(answer.feed(body[at : at + size]) for at in range(0, len(body), size))
    assert messages(out + answer.feed(b"")) == told


def test_an_upstreams_error_becomes_an_error_of_each_request() -> None:
    answer = StreamedAnswer(READ, 404, ((b"content-type", b"text/plain"),))
    answer.feed(b"no such session")
    (said,) = messages(answer.feed(b""))
    assert (said["id"], said["error"]["code"]) == (7, -32001)
    assert "404" in said["error"]["message"]


def test_who_takes_events() -> None:
    assert takes_events(((b"accept", b"application/json, Text/Event-Stream"),))
    assert not takes_events(((b"accept", b"application/json"),))
    assert not takes_events(())
