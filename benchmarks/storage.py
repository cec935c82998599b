"""Measures what the lake keeps of conversations that resend their whole history; last line is JSON.

Conversations of twenty steps (a tool call and its answer each) arrive interleaved, so that every
call brings the whole conversation so far. They go through assembly and governance into a lake,
which is compacted. ``bytes_vs_unique``: all data files of all tables, names, decisions and ledger
included, over the same content written once: two Parquet files, sorted, with the same compression,
one of each different message and one of what each call says of itself (its id, the response's id,
times, model, tokens). ``fresh_vs_unique``: the same before compaction. ``bytes_vs_messages``: over
the messages alone. ``naive_vs_unique``: one row per call with all that was sent and answered.
"""

import argparse
import json
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.words import everyday_text
from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import compact
from lakehouse.read.connection import connect
from lakehouse.read.sources import literal
from lakehouse.schema.tables import TABLES
from tests.headrace.pipelines import lake_governor
from trajectory.assembly import Assembler
from trajectory.call import Call, CallKind, Usage
from trajectory.canonical import JsonObject, canonical_json
from trajectory.exchange import (
    ClientIdentity,
    Exchange,
    ExchangeOutcome,
    HttpRequest,
    HttpResponse,
    SpoolPosition,
)
from trajectory.message import Message, TextPart, ToolCallPart, ToolResultPart

STEPS = 20
BATCH = 500
KEY = b"benchmark" * 4
PARQUET = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3"
"""As compaction writes; what the lake is compared with is written alike."""

_SYSTEM = Message("system", (TextPart("You are a careful assistant. " * 40),))
_TOOLS: tuple[JsonObject, ...] = tuple(
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": "Looks things up. " * 10,
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
        },
    }
    for number in range(8)
)


class Conversation:
    """One conversation, told call by call; text as in real tools' answers: few words often, many rarely."""

    def __init__(self, number: int, result_words: int) -> None:
        self._draw = random.Random(number)  # noqa: S311 (no secret)
        self._number = number
        self._result_words = result_words
        self.context: list[Message] = [_SYSTEM, Message("user", (TextPart(self._text(60)),))]

    def call(self, position: int) -> Call:
        """Return the next call, which resends everything so far."""
        name = f"call_{self._draw.getrandbits(96):024x}"
        arguments: JsonObject = {"query": self._text(8)}
        output = Message(
            "assistant", (TextPart(self._text(25)), ToolCallPart(name, "tool_1", arguments))
        )
        made = _call(self.context, output, position, f"chatcmpl-{self._draw.getrandbits(96):024x}")
        result = self._text(self._draw.randint(self._result_words // 3, self._result_words * 2))
        self.context = [
            *self.context,
            output,
            Message("tool", (ToolResultPart(name, result),)),
        ]
        return made

    def _text(self, words: int) -> str:
        return everyday_text(self._draw, words)


def _call(context: Sequence[Message], output: Message, position: int, response: str) -> Call:
    draw = random.Random(position)  # noqa: S311 (no secret)
    started = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=0.5 * (position + draw.random()))
    answered = started + timedelta(seconds=draw.uniform(0.1, 0.4))
    exchange = Exchange(
        exchange_id=f"{draw.getrandbits(128):032x}",
        client=ClientIdentity("acme", "agent", "prod", "key-1", purposes=("debug", "train_sft")),
        route="model",
        mode="base_url",
        upstream="http://model:1",
        started_at=started,
        first_byte_at=answered,
        ended_at=answered + timedelta(seconds=draw.uniform(0.5, 4)),
        request=HttpRequest("POST", "/v1/chat/completions", "", (), str(position).encode()),
        response=HttpResponse(200, (), b""),
        outcome=ExchangeOutcome.COMPLETE,
        position=SpoolPosition("w", 0, position),
    )
    return Call(
        exchange=exchange,
        dialect="openai.chat",
        kind=CallKind.MODEL,
        context=tuple(context),
        output=output,
        tools=_TOOLS,
        model_requested="m",
        model_served="m-2026",
        response_id=response,
        finish_reason="tool_calls",
        usage=Usage(100 * len(context) + draw.randrange(100), 40 + draw.randrange(50)),
    )


def interleaved(conversations: int, result_words: int) -> Iterator[Call]:
    """Yield one call of each conversation, then the next of each, and so on."""
    talks = [Conversation(number, result_words) for number in range(conversations)]
    position = 0
    for _ in range(STEPS):
        for talk in talks:
            yield talk.call(position)
            position += 1


def fill(lake: Lake, calls: Iterator[Call]) -> Iterator[list[Call]]:
    """Carry calls into the lake as the governing process does; yield each batch."""
    governor = lake_governor(lake)
    assembler = Assembler(KEY)
    version = 0
    while batch := list(islice(calls, BATCH)):
        governed = governor.judge(assembler.assemble(batch))
        lake.append(governed, app_id="bench", version=version)
        version += 1
        yield batch


def data_bytes(lake: Lake) -> dict[str, int]:
    """Return table → bytes of its active files."""
    sizes = {name: sum(Path(f).stat().st_size for f in lake.snapshot_of(name)) for name in TABLES}
    return {name: size for name, size in sizes.items() if size}


def written(rows: dict[str, list[Any]], order: str, path: Path) -> int:
    """Write rows as one Parquet file; return its bytes."""
    connection = connect()
    connection.register("rows", pa.table(rows))
    connection.execute(
        f"COPY (SELECT * FROM rows {order}) TO {literal(str(path))} ({PARQUET})"  # noqa: S608
    )
    connection.close()
    return path.stat().st_size


def _text(messages: Sequence[Message]) -> str:
    return canonical_json([message.to_json() for message in messages]).decode()


def _facts(call: Call) -> dict[str, Any]:
    exchange = call.exchange
    return {
        "exchange_id": exchange.exchange_id,
        "response_id": call.response_id,
        "started_at": exchange.started_at,
        "first_byte_at": exchange.first_byte_at,
        "ended_at": exchange.ended_at,
        "model": call.model_served,
        "input_tokens": call.usage.input_tokens,
        "output_tokens": call.usage.output_tokens,
    }


def measure(conversations: int, result_words: int, folder: Path) -> dict[str, Any]:
    """Fill a lake and the two files that it is compared with."""
    lake = Lake.open(str(folder / "lake"))
    unique: dict[str, tuple[int, str, str]] = {}
    naive: list[str] = []
    facts: list[dict[str, Any]] = []
    for batch in fill(lake, interleaved(conversations, result_words)):
        for call in batch:
            whole = (*call.context, call.output) if call.output else call.context
            naive.append(_text(whole))
            facts.append(_facts(call))
            talk = call.exchange.position.offset % conversations
            for message in whole:
                unique.setdefault(_text([message]), (talk, message.role, _text([message])))
    fresh = data_bytes(lake)
    compact(lake)
    sizes = data_bytes(lake)
    columns = {
        name: [row[place] for row in unique.values()]
        for place, name in enumerate(("conversation", "role", "said"))
    }
    told = {name: [row[name] for row in facts] for name in facts[0]}
    messages = written(columns, "ORDER BY conversation", folder / "messages.parquet")
    once = messages + written(told, "ORDER BY started_at", folder / "calls.parquet")
    resent = written({**told, "said": naive}, "", folder / "naive.parquet")
    steps = lake.query("SELECT count(*) AS n, count(DISTINCT trajectory_id) AS t FROM steps")
    assert steps.to_pylist() == [{"n": conversations * STEPS, "t": conversations}]
    return {
        "conversations": conversations,
        "steps": conversations * STEPS,
        "unique_bytes": once,
        "lake_bytes": sum(sizes.values()),
        "bytes_vs_unique": round(sum(sizes.values()) / once, 3),
        "fresh_vs_unique": round(sum(fresh.values()) / once, 3),
        "bytes_vs_messages": round(sum(sizes.values()) / messages, 3),
        "naive_vs_unique": round(resent / once, 2),
        "bytes_per_step_beside_content": round(
            (sum(sizes.values()) - once) / conversations / STEPS
        ),
        "tables": sizes,
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within 50 s")
    parser.add_argument("--conversations", type=int, default=300)
    parser.add_argument(
        "--result-words", type=int, default=350, help="mean words of a tool's answer"
    )
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        conversations = min(100, options.conversations) if options.quick else options.conversations
        print(json.dumps(measure(conversations, options.result_words, folder)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
