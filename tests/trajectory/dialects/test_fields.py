"""What providers send beside plain words is read too: documents, compactions, phases, failures."""

import json
from typing import Any

import pytest

from tests.trajectory.world import World
from trajectory.assembly import Assembler
from trajectory.call import Call, CallKind
from trajectory.dialects import read_exchange

KEY = b"k" * 32
QUESTION = "How do lamps and chairs differ, please?"


def sse(*events: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def message(content: list[Any], **more: Any) -> dict[str, Any]:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1"}
    return {
        **head,
        "content": content,
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 2},
        **more,
    }


def claude(
    given: Any, answer: Any = None, *, world: World | None = None, path: str = "/v1/messages"
) -> Call:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": given}]}
    said = message([{"type": "text", "text": "Fine."}]) if answer is None else answer
    return read_exchange((world or World()).exchange(path, body, said))


def responses(answer: Any, world: World | None = None, **request: Any) -> Call:
    body = {"model": "m", "input": QUESTION, **request}
    return read_exchange((world or World()).exchange("/v1/responses", body, answer))


def response(output: list[Any], **more: Any) -> dict[str, Any]:
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m-1", "tools": []}
    return {**head, "status": "completed", "output": output, **more}


@pytest.mark.parametrize(
    "request_body",
    [
        {"tools": [{"name": "rpc", "input_schema": {"properties": {"jsonrpc": {}}}}]},
        {"system": 'Write "jsonrpc": "2.0" first.', "metadata": {"jsonrpc": "2.0"}},
    ],
)
def test_a_key_of_json_rpc_within_a_model_call_makes_no_tool_call(
    request_body: dict[str, Any],
) -> None:
    body = {**request_body, "model": "m", "max_tokens": 9}
    body["messages"] = [{"role": "user", "content": "call it"}]
    call = read_exchange(
        World().exchange("/v1/messages", body, message([{"type": "text", "text": "Done."}]))
    )
    assert (call.dialect, call.kind) == ("anthropic.messages", CallKind.MODEL)
    assert call.output is not None
    assert call.output.text() == "Done."


@pytest.mark.parametrize("pad", [0, 100_000])
def test_json_rpc_is_known_by_its_own_key_wherever_it_stands(pad: int) -> None:
    parameters = {"name": "add", "arguments": {"a": "x" * pad}}
    asked = {"method": "tools/call", "params": parameters, "id": 7, "jsonrpc": "2.0"}
    answer = {"jsonrpc": "2.0", "id": 7, "result": {"content": [{"type": "text", "text": "42"}]}}
    for path in ("/messages", "/rpc"):
        call = read_exchange(World().exchange(path, asked, answer))
        assert (call.dialect, call.kind) == ("mcp", CallKind.TOOL)


def test_a_text_document_stays_text() -> None:
    words = "The grass is green. The sky is blue."
    source = {"type": "text", "media_type": "text/plain", "data": words}
    document = {"type": "document", "source": source, "title": "Colours"}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [document]}
    call = claude([document, {"type": "text", "text": "Which?"}, result])
    for one in call.context:
        assert words in json.dumps(one.to_json()), one


@pytest.mark.parametrize(
    ("data", "media_type", "is_kept"),
    [
        ("The grass is green.", "text/plain", True),
        ("word", "text/plain", True),
        ("a,b\n1,2\n", "text/csv", True),
        ("VGhlIGdyYXNzIGlzIGdyZWVuLg==", "text/plain", False),
        ("aGVsbG8gd29ybGQ=", "image/png", False),
        ("aGVsbG8gd29y\nbGQ_-w", "image/png", False),
        ("no base64 at all!", "image/png", True),
    ],
)
def test_only_encoded_bytes_are_named_by_their_hash(
    data: str, media_type: str, is_kept: bool
) -> None:
    block = {"type": "odd", "data": data, "media_type": media_type}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [block]}
    (told,) = claude([result]).context
    assert (json.dumps(data) in json.dumps(told.to_json())) is is_kept


def test_a_streamed_compaction_reads_like_the_answer_in_one_piece() -> None:
    managed = {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 3}]}
    summary = "Summary: the user wants the red lamp."
    block = {"type": "compaction", "content": summary, "encrypted_content": "enc"}
    whole = message([block, {"type": "text", "text": "Fine."}], context_management=managed)
    begun = {**whole, "content": [], "stop_reason": None}
    del begun["context_management"]
    delta = {"type": "compaction_delta", "content": summary, "encrypted_content": "enc"}
    streamed = sse(
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "compaction"}},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Fi"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "ne."}},
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 2},
            "context_management": managed,
        },
        {"type": "message_stop"},
    )
    left, right = claude("hi", whole), claude("hi", streamed)
    assert left.output == right.output
    assert summary in json.dumps(right.output.to_json() if right.output else None)
    assert left.ext == right.ext
    assert right.ext["response"] == {"context_management": managed}


_BEGUN = (
    {"type": "response.created", "response": response([], status="in_progress")},
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {"type": "message", "role": "assistant", "content": []},
    },
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "A la"},
)
_ERROR = {"code": "server_error", "message": "The model broke"}


@pytest.mark.parametrize(
    "end",
    [
        {"type": "response.failed", "response": response([], status="failed", error=_ERROR)},
        {"type": "error", **_ERROR, "param": None, "sequence_number": 9},
        {"type": "error", "error": _ERROR},
        {"type": "response.cancelled", "response": response([], status="cancelled")},
    ],
    ids=["failed", "error", "nested", "cancelled"],
)
def test_a_stream_that_failed_half_way_is_a_failed_attempt(end: dict[str, Any]) -> None:
    world = World()
    failed = responses(sse(*_BEGUN, end), world, stream=True)
    assert failed.finish_reason is None
    assert failed.error in ("server_error: The model broke", "cancelled")
    assert failed.output is not None
    assert failed.output.text() == "A la"
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "x"}],
    }
    again = responses(response([said], id="resp_2"), world, stream=True)
    first, second = Assembler(KEY).assemble([failed, again]).placed
    assert first.role_in_graph == "discarded"
    assert second.retry_of == first.step_id


def test_an_unstreamed_answer_that_failed_is_a_failed_attempt() -> None:
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "x"}],
    }
    for status in ("failed", "cancelled"):
        error = _ERROR if status == "failed" else None
        call = responses(response([said], status=status, error=error))
        assert call.finish_reason is None
        assert call.error
        (placed,) = Assembler(KEY).assemble([call]).placed
        assert placed.role_in_graph == "discarded"
