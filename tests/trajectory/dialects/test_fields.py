"""What providers send beside plain words is read too: documents, compactions, phases, failures."""

import json
from typing import Any

import pytest

from tests.trajectory.world import World
from train.chat import to_chat
from trajectory.assembly import Assembler
from trajectory.call import Call, CallKind, Usage
from trajectory.canonical import JsonObject
from trajectory.dialects.registry import read_exchange, write_answer
from trajectory.dialects.writer import ModelAnswer
from trajectory.message import MediaPart, Message, OpaquePart, ToolResultPart, is_note

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


@pytest.mark.parametrize("kind", ["text", "content", "blocks"])
def test_a_text_document_is_text_and_can_be_trained_on(kind: str) -> None:
    words = "The grass is green."
    source: dict[str, Any] = {"type": "content", "content": words}
    if kind == "text":
        source = {"type": "text", "media_type": "text/plain", "data": words}
    elif kind == "blocks":
        source["content"] = [{"type": "text", "text": words}]
    block = {"type": "document", "source": source, "title": "T"}
    (given,) = claude([block, {"type": "text", "text": "Which?"}]).context
    assert given.text() == f"{words}\nWhich?"
    fields = {"type": "media_fields", "kind": "document", "media_type": "text/plain", "title": "T"}
    assert OpaquePart(fields) in given.parts
    assert to_chat(given) == [{"role": "user", "content": f"{words}\nWhich?"}]


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


SOURCE = {"type": "char_location", "cited_text": "The grass is green.", "document_index": 0}


def cited_answer() -> Message:
    blocks = [
        {"type": "text", "text": "The grass is "},
        {"type": "text", "text": "green", "citations": [SOURCE]},
        {"type": "text", "text": "."},
    ]
    output = claude("Which colour?", message(blocks)).output
    assert output is not None
    return output


def test_cited_text_is_one_text_with_its_sources_beside_it() -> None:
    output = cited_answer()
    assert output.text() == "The grass is green."
    (note,) = [part for part in output.parts if is_note(part)]
    assert isinstance(note, OpaquePart)
    assert note.value == {"type": "citations", "cited": [{"text": "green", "citations": [SOURCE]}]}


def test_cited_text_of_bedrock_is_text_too() -> None:
    content = [
        {"citationsContent": {"content": [{"text": "green"}], "citations": [{"title": "T"}]}}
    ]
    body = {"messages": [{"role": "user", "content": [{"text": "Which?"}]}]}
    answer = {"output": {"message": {"role": "assistant", "content": content}}}
    call = read_exchange(
        World().exchange("/model/m/converse", body, {**answer, "stopReason": "end_turn"})
    )
    assert call.output is not None
    assert call.output.text() == "green"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["anthropic.messages", "openai.responses", "google.gemini"])
def test_a_replay_writes_sources_and_phases_where_the_dialect_has_a_place(
    dialect: str, stream: bool
) -> None:
    said = {
        "anthropic.messages": cited_answer(),
        "openai.responses": responses(
            response([commentary(), asked_in("crm"), asked_in(None)])
        ).output,
        "google.gemini": cited_answer(),
    }[dialect]
    assert said is not None
    tools: JsonObject = {"tools": [{"type": "namespace", "name": "crm", "tools": []}]}
    body: JsonObject = {"model": "m", "stream": stream, "messages": [], "input": [], **tools}
    path = {
        "anthropic.messages": "/v1/messages",
        "openai.responses": "/v1/responses",
        "google.gemini": f"/models/m:{'streamG' if stream else 'g'}enerateContent",
    }[dialect]
    wire = write_answer(dialect, ModelAnswer(said, "id", "m"), body, path=path, query="alt=sse")
    headers = {"content-type": wire.content_type}
    answer = b"".join(wire.pieces)
    again = read_exchange(World().exchange(path, body, answer, response_headers=headers)).output
    if dialect == "google.gemini":
        said = Message(said.role, tuple(part for part in said.parts if not is_note(part)))
    assert again == said


def commentary() -> dict[str, Any]:
    words = [{"type": "output_text", "text": "Looking.", "annotations": [{"type": "file_path"}]}]
    return {"type": "message", "role": "assistant", "phase": "commentary", "content": words}


def asked_in(namespace: str | None) -> dict[str, Any]:
    item = {
        "type": "function_call",
        "call_id": f"call_{namespace}",
        "name": "get",
        "arguments": "{}",
    }
    caller = {"caller": {"type": "program", "caller_id": "p1"}}
    return {**item, **caller, "namespace": namespace} if namespace else item


def test_functions_of_two_namespaces_and_phases_are_told_apart() -> None:
    output = responses(response([commentary(), asked_in("crm"), asked_in("billing")])).output
    assert output is not None
    assert [call.name for call in output.tool_calls()] == ["crm.get", "billing.get"]
    values = [part.value for part in output.parts if isinstance(part, OpaquePart)]
    caller = {"type": "program", "caller_id": "p1"}
    assert {"type": "phase", "phase": "commentary"} in values
    assert {"type": "call_fields", "call_id": "call_crm", "fields": {"caller": caller}} in values


def test_results_of_a_local_shell_are_put_to_their_call() -> None:
    call = {
        "type": "local_shell_call",
        "id": "lsh_1",
        "call_id": "call_9",
        "action": {"type": "exec"},
    }
    told = {"type": "local_shell_call_output", "id": "call_9", "output": "a"}
    context = responses(response([]), input=[call, told]).context
    (result,) = context[-1].parts
    assert isinstance(result, ToolResultPart)
    assert result.call_id == "call_9" == context[0].tool_calls()[0].call_id


def test_media_that_a_tool_of_gemini_made_are_named() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "aGVsbG8="}}
    told = {"id": "f1", "name": "shot", "response": {"output": "ok"}, "parts": [image]}
    contents = [
        {"role": "model", "parts": [{"functionCall": {"id": "f1", "name": "shot", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {**told, "scheduling": "SILENT"}}]},
    ]
    answer = {"candidates": [{"content": {"parts": [{"text": "nice"}]}, "finishReason": "STOP"}]}
    call = read_exchange(
        World().exchange("/models/g:generateContent", {"contents": contents}, answer)
    )
    result, note = call.context[-1].parts
    assert isinstance(result, ToolResultPart)
    text = json.dumps(result.content)
    assert "sha256" in text
    assert "aGVsbG8" not in text
    assert '"output": "ok"' in text
    assert isinstance(note, OpaquePart)
    assert "SILENT" in json.dumps(note.value)


def test_documents_keep_what_is_said_of_them() -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "aGVsbG8="}
    block = {"type": "document", "source": source, "title": "T", "citations": {"enabled": True}}
    media, note = claude([block]).context[0].parts
    assert isinstance(media, MediaPart)
    assert isinstance(note, OpaquePart)
    assert note.value == {"type": "media_fields", "title": "T", "citations": {"enabled": True}}


@pytest.mark.parametrize("data", ["data:application/pdf;base64,aGVsbG8=", "aGVsbG8="])
def test_files_given_to_openai_are_named_with_or_without_their_type(data: str) -> None:
    file = {"file_data": data, "filename": "a.pdf"}
    chat = {"type": "file", "file": file}
    body = {"model": "m", "messages": [{"role": "user", "content": [chat]}]}
    call = read_exchange(World().exchange("/v1/chat/completions", body, {"id": "x", "choices": []}))
    told = {
        "type": "function_call_output",
        "call_id": "c",
        "output": [{"type": "input_file", **file}],
    }
    items: Any = [{"role": "user", "content": [{"type": "input_file", **file}]}, told]
    for message in (*call.context, *responses(response([]), input=items).context):
        text = json.dumps(message.to_json())
        assert "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" in text
        assert "aGVsbG8" not in text
        assert "a.pdf" in text


def test_usage_beside_the_four_numbers_is_kept() -> None:
    usage = {
        "input_tokens": 1,
        "output_tokens": 9,
        "cache_creation_input_tokens": 5,
        "cache_creation": {"ephemeral_1h_input_tokens": 5, "ephemeral_5m_input_tokens": 0},
        "output_tokens_details": {"thinking_tokens": 7},
        "server_tool_use": {"web_search_requests": 3},
        "inference_geo": None,
    }
    call = claude("hi", message([{"type": "text", "text": "x"}], usage=usage))
    assert call.usage == Usage(6, 9, None, 7)
    assert call.ext["response"] == {
        "usage": {
            "cache_creation_input_tokens": 5,
            "cache_creation": {"ephemeral_1h_input_tokens": 5},
            "server_tool_use": {"web_search_requests": 3},
        }
    }
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 4},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 10,
    }
    call = responses(response([commentary()], usage=usage))
    assert call.ext["response"] == {"usage": {"input_tokens_details": {"cache_write_tokens": 4}}}


def test_an_interaction_in_its_older_form_has_its_answer() -> None:
    answer = {"id": "i1", "status": "completed", "outputs": [{"type": "text", "text": "hello"}]}
    call = read_exchange(World().exchange("/v1beta/interactions", {"input": "hi"}, answer))
    assert call.output is not None
    assert call.output.text() == "hello"
    assert call.ext == {}


def test_gemini_s_internal_interface_of_its_command_line_is_read() -> None:
    inner = {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "systemInstruction": {"parts": [{"text": "Be kind."}]},
        "generationConfig": {"temperature": 0},
        "session_id": "cli-1",
    }
    body = {"model": "gemini-3", "project": "p", "user_prompt_id": "u", "request": inner}
    part = {"candidates": [{"content": {"role": "model", "parts": [{"text": "hel"}]}}]}
    last = {"candidates": [{"content": {"parts": [{"text": "lo"}]}, "finishReason": "STOP"}]}
    last |= {
        "usageMetadata": {"promptTokenCount": 3},
        "modelVersion": "gemini-3",
        "responseId": "r",
    }
    whole = {"response": {**last, "candidates": [{"content": {"parts": [{"text": "hello"}]}}]}}
    for path, answer in (
        ("/v1internal:streamGenerateContent", sse({"response": part}, {"response": last})),
        ("/v1internal:generateContent", {**whole, "traceId": "t"}),
    ):
        call = read_exchange(World().exchange(path, body, answer))
        assert (call.dialect, call.kind) == ("google.gemini", CallKind.MODEL)
        assert [message.role for message in call.context] == ["system", "user"]
        assert call.output is not None
        assert call.output.text() == "hello"
        assert (call.model_requested, call.response_id) == ("gemini-3", "r")
        assert call.sampling == {"temperature": 0}
        assert call.ext["project"] == "p"
        assert [(hint.source, hint.value) for hint in call.hints] == [
            ("client:session_id", "cli-1")
        ]
    beside = read_exchange(World().exchange("/v1internal:loadCodeAssist", {"metadata": {}}, {}))
    assert beside.kind is CallKind.CONTROL


COMPACTED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}


def test_what_artefacts_added_is_not_read_from_what_an_answer_repeats() -> None:
    block = '<headrace-artifact name="facts@0001">\nKnown facts:\n- A refund takes 3 days.\n</headrace-artifact>'
    output = [commentary()]
    bare = responses(response(output, instructions=block, input_messages=[{"content": block}]))
    assert "refund" not in json.dumps(bare.ext)
    assert "instructions" not in bare.ext["response"]  # type: ignore[operator]
    stored = responses(response(output, instructions=f"Be kind.\n\n{block}"), prompt={"id": "pmpt"})
    told: Any = stored.ext["response"]
    assert told["instructions"] == "Be kind."


def test_a_compaction_of_responses_is_a_compaction_and_linked_to_what_goes_on_from_it() -> None:
    world = World()
    asked: Any = {"role": "user", "content": "Count the lamps in this house, please."}
    kept = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "Count."}],
    }
    body = {"model": "m", "input": [asked, commentary()], "instructions": "Be kind."}
    answer = {
        "id": "cmp",
        "object": "response.compaction",
        "created_at": 1,
        "output": [kept, COMPACTED],
    }
    compact = read_exchange(world.exchange("/v1/responses/compact", body, answer))
    assert (compact.dialect, compact.finish_reason) == ("openai.responses", "completed")
    assert compact.output is not None
    assert [part.type for part in compact.output.parts] == ["opaque"]
    settings: Any = {"instructions": "Be kind."}
    first = responses(response([commentary()]), world, input=[asked], **settings)
    after = responses(
        response([commentary()], id="resp_9"), world, input=[kept, COMPACTED, asked], **settings
    )
    found = Assembler(KEY).assemble([first, compact, after])
    ids = {item.call.exchange.exchange_id: item for item in found.placed}
    step, root = ids[compact.exchange.exchange_id], ids[after.exchange.exchange_id]
    assert step.role_in_graph == "compaction"
    assert [(link.kind, link.from_step_id, link.to_step_id) for link in found.links] == [
        ("compaction", step.step_id, root.step_id)
    ]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/messages/batches"),
        ("GET", "/v1/messages/batches/b/results"),
        ("POST", "/v1/files"),
        ("GET", "/v1/files/f/content"),
        ("POST", "/v1/batches"),
        ("POST", "/v1/conversations"),
        ("POST", "/v1/conversations/c/items"),
        ("GET", "/v1/conversations/c/items"),
        ("DELETE", "/v1/conversations/c"),
        ("POST", "/v1beta/models/g:batchGenerateContent"),
        ("POST", "/v1beta/cachedContents"),
        ("POST", "/upload/v1beta/files"),
        ("GET", "/v1/responses/r/input_items"),
        ("GET", "/v1/chat/completions/x"),
        ("DELETE", "/v1/chat/completions/x"),
        ("POST", "/v1beta/interactions/i/cancel"),
        ("DELETE", "/v1beta/interactions/i"),
    ],
)
def test_what_is_kept_at_a_provider_is_control(method: str, path: str) -> None:
    call = read_exchange(World().exchange(path, {}, {}, method=method))
    assert (call.kind, call.problem) == (CallKind.CONTROL, None)


@pytest.mark.parametrize("path", ["/files/f", "/v1/files-of-mine/f", "/v1/shop/batches"])
def test_other_paths_stay_unknown(path: str) -> None:
    call = read_exchange(World().exchange(path, {}, {}))
    assert call.problem == "dialect:unknown"


CHUNK = {"id": "c", "choices": [{"index": 0, "delta": {"content": "A la"}, "finish_reason": None}]}
BROKEN = {
    "choices": [{"index": 0, "delta": {}, "finish_reason": "error"}],
    "error": {"code": 502, "message": "No provider"},
}
START = {"type": "message_start", "message": message([], stop_reason=None)}
DELTA = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "A la"}}
ENDS: list[tuple[str, bytes, str | None]] = [
    ("/v1/chat/completions", sse(CHUNK, BROKEN), "502: No provider"),
    ("/v1/chat/completions", sse(CHUNK, {**BROKEN, "error": None}), "error"),
    ("/v1/chat/completions", sse(CHUNK, {"object": "error", "message": "out"}), "out"),
    ("/v1/chat/completions", sse(CHUNK), "the stream ended early"),
    ("/v1/chat/completions", sse(CHUNK) + b"data: [DONE]\n\n", None),
    ("/v1/messages", sse(START, DELTA), "the stream ended early"),
    ("/v1/responses", sse(*_BEGUN), "the stream ended early"),
    (
        "/v1/models/m:streamGenerateContent",
        sse({"candidates": [{"content": {"parts": [{"text": "A la"}]}}]}),
        "the stream ended early",
    ),
    (
        "/api/chat",
        b'{"message":{"role":"assistant","content":"A la"},"done":false}\n',
        "the stream ended early",
    ),
    ("/api/chat", b'{"message":{"role":"assistant","content":"A la"},"done":true}\n', None),
]


@pytest.mark.parametrize(("path", "body", "error"), ENDS)
def test_a_stream_that_did_not_end_well_is_a_failed_attempt(
    path: str, body: bytes, error: str | None
) -> None:
    kind = "application/x-ndjson" if path.startswith("/api") else "text/event-stream"
    request = {"model": "m", "messages": [], "contents": [], "input": "x", "stream": True}
    headers = {"content-type": kind}
    call = read_exchange(World().exchange(path, request, body, response_headers=headers))
    assert call.output is not None
    assert call.output.text() == "A la"
    assert (call.error, call.finish_reason) == (error, None)
    (placed,) = Assembler(KEY).assemble([call]).placed
    assert placed.role_in_graph == ("agent" if error is None else "discarded")


def test_streamed_calls_that_a_server_numbers_alike_are_two() -> None:
    def piece(**call: Any) -> dict[str, Any]:
        delta = {"tool_calls": [{"index": 0, **call}]}
        return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}

    first = piece(id="c1", function={"name": "look", "arguments": '{"a":'})
    rest = piece(function={"arguments": " 1}"})
    second = piece(id="c2", function={"name": "look", "arguments": '{"a": 2}'})
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    body = sse(first, rest, second, end) + b"data: [DONE]\n\n"
    headers = {"content-type": "text/event-stream"}
    asked = {"model": "m", "messages": [], "stream": True}
    call = read_exchange(
        World().exchange("/v1/chat/completions", asked, body, response_headers=headers)
    )
    assert call.output is not None
    made = [(one.call_id, one.arguments) for one in call.output.tool_calls()]
    assert made == [("c1", {"a": 1}), ("c2", {"a": 2})]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/sessions"),
        ("POST", "/v1/sessions/sesn_1/events"),
        ("GET", "/v1/sessions/sesn_1/events/stream"),
        ("POST", "/v1/agents/agent_1/versions"),
        ("GET", "/v1/environments"),
    ],
)
def test_agents_that_anthropic_runs_are_control(method: str, path: str) -> None:
    headers = {"anthropic-version": "2023-06-01"}
    call = read_exchange(World().exchange(path, {}, {}, method=method, headers=headers))
    assert (call.kind, call.problem) == (CallKind.CONTROL, None)
    other = read_exchange(World().exchange(path, {}, {}, method=method))
    assert other.problem == "dialect:unknown"
