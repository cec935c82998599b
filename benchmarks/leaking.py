"""Plants values in captured traffic of every dialect, governs it, and searches everything at rest.

    python -m benchmarks.leaking [--quick] [--seed N]

The last line is one JSON object: ``planted, exchanges, leaked, files``. Whole installations are
searched but for the sealed spool: raw, escaped, encoded, compressed, in Delta logs and statistics.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.planting import Secret, planted
from benchmarks.planting_places import HIDDEN, WHOLE, bare, exchange_of
from benchmarks.planting_wires import exchanges, scenarios
from headrace.app.home import Home
from headrace.app.master_key import load_secrets
from headrace.app.setting_sources import load_settings
from headrace.govern.quarantine_store import write_again
from headrace.govern.worker import build_pipeline, govern_once
from lakehouse.maintenance.scan import scan
from proxy.spool import RecordKind, SpoolWriter, records
from trajectory.canonical import JsonObject
from trajectory.exchange import ClientIdentity, Exchange

_JSON = ("content-type", "application/json")
_SSE = ("content-type", "text/event-stream")
_PIECE = 5
_FEEDBACK_EVERY = 40
_EACH = 5
"""Values in one exchange: system prompt, question, tool definition, tool result, answer."""
_SETTINGS = """
gateway:
  routes:
    - name: shop
      upstream: http://127.0.0.1:1
      kind: tool
      operations:
        - {name: get_order, method: GET, path: "/orders/{order_id:integer}"}
        - {name: create_order, method: POST, path: /orders}
        - {name: watch_order, method: GET, path: "/orders/{order_id:integer}/events"}
"""


def world(seed: int, count: int) -> Iterator[tuple[Exchange, list[Secret]]]:
    """Yield exchanges of every dialect, streamed and not, with the values in them."""
    secrets = (secret for secret, _, _ in planted(seed, 10**9))
    start = datetime.now(UTC) - timedelta(hours=1)
    planted_so_far = number = 0
    while planted_so_far < count:
        for exchange, some in _round(secrets, number):
            moment = start + timedelta(milliseconds=10 * number)
            number += 1
            yield (
                replace(
                    exchange,
                    exchange_id=f"{number:032x}",
                    client=ClientIdentity("acme", "app", "test", "key", ("debug", "train_sft")),
                    started_at=moment,
                    first_byte_at=moment,
                    ended_at=moment,
                ),
                some,
            )
            planted_so_far += len(some)
            if planted_so_far >= count:
                return


def _round(secrets: Iterator[Secret], number: int) -> Iterator[tuple[Exchange, list[Secret]]]:
    """Yield each way of speaking once: ours with a place for each value, then the golden files."""
    for place, wire in enumerate((*_WIRES, *HIDDEN)):
        some = [next(secrets) for _ in range(_EACH)]
        yield exchange_of(*wire(number + place, some)), some
    for place, whole in enumerate(WHOLE):
        some = [next(secrets) for _ in range(_EACH)]
        yield whole(number + place, some), some
    for name in scenarios():
        yield from exchanges(name, secrets)


def _messages(some: list[Secret]) -> list[dict[str, Any]]:
    call = {"name": "look_up", "arguments": json.dumps({some[3].key: bare(some[3])})}
    return [
        {"role": "system", "content": some[0].sentence},
        {"role": "user", "content": some[1].sentence},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
        },
        {
            "role": "tool",
            "tool_call_id": "call_1",
            "content": json.dumps({"found": {some[3].key: bare(some[3])}}),
        },
    ]


def _tool(some: list[Secret]) -> dict[str, Any]:
    return {"name": "look_up", "description": some[2].sentence, "parameters": {"type": "object"}}


def _pieces(text: str) -> list[str]:
    return [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]


def _events(events: list[Any], *, named: bool) -> bytes:
    lines = []
    for event in events:
        head = f"event: {event['type']}\n" if named else ""
        lines.append(f"{head}data: {json.dumps(event)}\n\n")
    return "".join(lines).encode()


def _chat(number: int, some: list[Secret]) -> tuple[str, Any, bytes, tuple[str, str]]:
    body = {
        "model": "m",
        "messages": _messages(some),
        "tools": [{"type": "function", "function": _tool(some)}],
    }
    message = {"role": "assistant", "content": some[4].sentence}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    answer = {"id": f"chatcmpl-{number}", "object": "chat.completion", "model": "m"}
    return "/v1/chat/completions", body, json.dumps({**answer, "choices": [choice]}).encode(), _JSON


def _chat_stream(number: int, some: list[Secret]) -> tuple[str, Any, bytes, tuple[str, str]]:
    path, body, _, _ = _chat(number, some)
    base = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "model": "m"}
    deltas: list[Any] = [
        {**base, "choices": [{"index": 0, "delta": {"role": "assistant", "content": piece}}]}
        for piece in _pieces(some[4].sentence)
    ]
    deltas.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return path, {**body, "stream": True}, _events(deltas, named=False) + b"data: [DONE]\n\n", _SSE


def _claude(number: int, some: list[Secret]) -> tuple[str, Any, bytes, tuple[str, str]]:
    tool = _tool(some)
    body = {
        "model": "m",
        "max_tokens": 100,
        "system": some[0].sentence,
        "messages": [
            {"role": "user", "content": some[1].sentence},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t1", "name": "look_up", "input": {"q": 1}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": some[3].sentence}
                ],
            },
        ],
        "tools": [{"name": "look_up", "description": tool["description"], "input_schema": {}}],
    }
    answer = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": some[4].sentence}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    return "/v1/messages", body, json.dumps(answer).encode(), _JSON


def _claude_stream(number: int, some: list[Secret]) -> tuple[str, Any, bytes, tuple[str, str]]:
    path, body, answer, _ = _claude(number, some)
    whole = json.loads(answer)
    begin = {**whole, "content": [], "stop_reason": None}
    block = {"type": "text", "text": ""}
    events: list[Any] = [
        {"type": "message_start", "message": begin},
        {"type": "content_block_start", "index": 0, "content_block": block},
    ]
    events += [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": piece},
        }
        for piece in _pieces(some[4].sentence)
    ]
    events += [
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 1},
        },
        {"type": "message_stop"},
    ]
    return path, {**body, "stream": True}, _events(events, named=True), _SSE


def _responses(number: int, some: list[Secret]) -> tuple[str, Any, bytes, tuple[str, str]]:
    body = {
        "model": "m",
        "instructions": some[0].sentence,
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": some[1].sentence}]},
            {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": some[3].sentence},
        ],
        "tools": [{"type": "function", **_tool(some)}],
    }
    text = {"type": "output_text", "text": some[4].sentence, "annotations": []}
    answer = {
        "id": f"resp_{number}",
        "object": "response",
        "model": "m",
        "status": "completed",
        "output": [{"type": "message", "role": "assistant", "id": "m1", "content": [text]}],
    }
    return "/v1/responses", body, json.dumps(answer).encode(), _JSON


def _mcp(number: int, some: list[Secret]) -> tuple[str, Any, bytes, tuple[str, str]]:
    arguments = {some[0].key: bare(some[0]), "note": some[1].sentence, "about": some[2].sentence}
    body = {
        "jsonrpc": "2.0",
        "id": number,
        "method": "tools/call",
        "params": {"name": "look_up", "arguments": arguments},
    }
    content = [
        {"type": "text", "text": some[3].sentence},
        {"type": "text", "text": json.dumps({some[4].key: bare(some[4])})},
    ]
    answer = {"jsonrpc": "2.0", "id": number, "result": {"content": content}}
    return "/mcp", body, json.dumps(answer).encode(), _JSON


_WIRES = (_chat, _chat_stream, _claude, _claude_stream, _responses, _mcp)


def _feedback(writer: SpoolWriter, number: int, some: list[Secret]) -> None:
    """Write feedback on the first exchange whose free texts hold values."""
    client = ClientIdentity("acme", "app", "test", "key", ("debug", "train_sft"))
    body: JsonObject = {
        "name": "quality",
        "value": 1.0,
        "label": some[0].sentence,
        "rationale": f"{some[1].sentence} {some[2].sentence}",
        "source": some[3].sentence,
    }
    record = records.feedback(
        number.to_bytes(16, "big"),
        client,
        received_at=datetime.now(UTC).timestamp(),
        feedback_id=f"f{number} {some[4].sentence}",
        target_kind="response",
        target_id="chatcmpl-0",
        body=body,
    )
    writer.append(RecordKind.FEEDBACK, record)


def measured(folder: Path, seed: int, count: int) -> dict[str, Any]:
    """Plant, govern and search; return the figures."""
    home = Home(folder).create()
    secrets = load_secrets(home.secrets, create=True)
    values: list[Secret] = []
    count_of = 0
    home.settings_file.write_text(_SETTINGS, encoding="utf-8")
    opinions = (secret for secret, _, _ in planted(seed + 10**6, 10**9))
    with SpoolWriter(home.spool, secrets.derive(b"spool")) as writer:
        for exchange, some in world(seed, count):
            write_again(writer, exchange)
            values += some
            count_of += 1
            if count_of % _FEEDBACK_EVERY == 0:
                said = [next(opinions) for _ in range(_EACH)]
                _feedback(writer, count_of, said)
                values += said
    pipeline = build_pipeline(
        load_settings(home=folder), home, secrets, lambda text: print(text, end="", file=sys.stderr)
    )
    dispositions: dict[str, int] = {}
    for report in govern_once(pipeline):
        for name, number in report.dispositions.items():
            dispositions[name] = dispositions.get(name, 0) + number
    found = scan(
        [folder], [secret.value for secret in values], skip=lambda path: path == home.spool
    )
    for hit in found.hits:
        place = f"{Path(hit.path).relative_to(folder).parts[:2]} {hit.where} {hit.form}"
        sys.stderr.write(f"leak: {values[hit.value - 1].kind} in {place}\n")
    return {
        "planted": len(values),
        "kinds": len({secret.kind for secret in values}),
        "exchanges": count_of,
        "dispositions": dispositions,
        "leaked": found.values_found,
        "files": found.files,
    }


def main() -> None:
    """Read the options, measure, print one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within 50 seconds")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        count = 600 if options.quick else 10_000
        print(json.dumps(measured(Path(folder), options.seed, count)))


if __name__ == "__main__":
    main()
