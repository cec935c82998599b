"""Traffic for the lake's benchmark: agents that resend their history, sealed into a spool."""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.words import everyday_text
from governance.audit import AuditLog
from governance.governor import Governor
from governance.policy import load_bundle
from governance.quality import RowGate
from governance.records import GovernedBatch
from governance.redact.report import RedactedMessage, RedactedText, RedactionReport, RedactionScope
from headrace.govern.checkpoint import CheckpointStore
from headrace.govern.quarantine_store import QuarantineStore
from headrace.govern.shared_lake import Alone
from headrace.govern.source import Source
from headrace.pipeline import Pipeline
from lakehouse.lake import Lake
from lakehouse.price_records import RecordedPrices
from proxy.spool import RecordKind, SpoolReader, SpoolWriter, records
from trajectory.assembly.result import Assembly
from trajectory.exchange import ClientIdentity, ExchangeOutcome
from trajectory.message import Message
from trajectory.prices import load_prices

KEY = b"s" * 32
STEPS = 10
"""Model calls per conversation; each resends all that was said before."""

_CLIENT = ClientIdentity("acme", "agent", "prod", "key-1", purposes=("debug", "train_sft"))
_HEADERS = (
    (b"content-type", b"application/json"),
    (b"user-agent", b"OpenAI/Python 2.3.0"),
    (b"authorization", b"fp:0123456789abcdef"),
    (b"x-stainless-lang", b"python"),
    (b"x-stainless-retry-count", b"0"),
)
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": "Looks things up. " * 10,
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
        },
    }
    for number in range(8)
]
_SYSTEM = {"role": "system", "content": "You are a careful assistant. " * 40}


class Conversation:
    """One conversation, told call by call, in OpenAI's chat dialect."""

    def __init__(self, number: int, result_words: int) -> None:
        """Begin conversation ``number``; a tool answers with about so many words."""
        self._draw = random.Random(number)  # noqa: S311 (no secret)
        self._result_words = result_words
        self._messages: list[dict[str, Any]] = [
            _SYSTEM,
            {"role": "user", "content": self._text(60)},
        ]

    def call(self) -> tuple[bytes, bytes]:
        """Return request and response of the next call."""
        request = {"model": "m", "messages": self._messages, "tools": _TOOLS, "temperature": 0.7}
        name = f"call_{self._draw.getrandbits(96):024x}"
        arguments = json.dumps({"query": self._text(8)})
        answer = {
            "role": "assistant",
            "content": self._text(25),
            "tool_calls": [
                {
                    "id": name,
                    "type": "function",
                    "function": {"name": "tool_1", "arguments": arguments},
                }
            ],
        }
        response = {
            "id": f"chatcmpl-{self._draw.getrandbits(96):024x}",
            "object": "chat.completion",
            "created": 1_790_000_000,
            "model": "m-2026",
            "choices": [{"index": 0, "message": answer, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 900, "completion_tokens": 60, "total_tokens": 960},
        }
        sent = json.dumps(request).encode()
        words = self._draw.randint(self._result_words // 3, self._result_words * 5 // 3)
        result = {"role": "tool", "tool_call_id": name, "content": self._text(words)}
        self._messages += [answer, result]
        return sent, json.dumps(response).encode()

    def _text(self, words: int) -> str:
        return everyday_text(self._draw, words)


def fill(spool: Path, conversations: int, *, result_words: int) -> int:
    """Write whole conversations; return how many exchanges."""
    number = 0
    with SpoolWriter(spool, KEY) as writer:
        for number, call in enumerate(calls(conversations, result_words=result_words), 1):
            write(writer, number, *call)
    return number


def calls(
    conversations: int, *, result_words: int, at_once: int = 50
) -> Iterator[tuple[bytes, bytes]]:
    """Yield request and response of each call of conversations, ``at_once`` interleaved."""
    for first in range(0, conversations, at_once):
        talks = [
            Conversation(one, result_words)
            for one in range(first, min(first + at_once, conversations))
        ]
        for _ in range(STEPS):
            for talk in talks:
                yield talk.call()


def write(writer: SpoolWriter, number: int, request: bytes, response: bytes) -> None:
    """Write exchange ``number`` as the gateway does."""
    at = 1_790_000_000.0 + number * 0.05
    identity = random.Random(number).randbytes(16)  # noqa: S311 (no secret)
    origin = records.pack_origin(_CLIENT, route="model", mode="base_url", upstream="http://m:1")
    head = records.request_head(
        identity,
        started_at=at,
        origin=origin,
        method=b"POST",
        path=b"/v1/chat/completions",
        query=b"",
        headers=_HEADERS,
    )
    json_type = ((b"content-type", b"application/json"),)
    asked = (
        (RecordKind.REQUEST_HEAD, head),
        (RecordKind.REQUEST_CHUNK, records.request_chunk(identity, 1, request)),
    )
    answered = (
        (
            RecordKind.RESPONSE_HEAD,
            records.response_head(identity, 2, at=at + 1, status=200, headers=json_type),
        ),
        (
            RecordKind.RESPONSE_CHUNK,
            records.response_chunk(identity, 3, at=at + 1.1, data=response),
        ),
        (RecordKind.END, records.end(identity, 4, at=at + 1.2, outcome=ExchangeOutcome.COMPLETE)),
    )
    for pieces in (asked, answered):  # what has passed goes into one frame
        writer.append(*records.bundle(pieces))


class NoRedaction:
    """Redaction switched off."""

    def redact_messages(
        self,
        messages: Sequence[Message],
        *,
        scope: RedactionScope,  # noqa: ARG002
    ) -> list[RedactedMessage]:
        """Return the messages as they are."""
        return [RedactedMessage(message, RedactionReport(), ()) for message in messages]

    def redact_stored(
        self,
        said: Sequence[Message],  # noqa: ARG002
        stored: Sequence[Message],
        *,
        scope: RedactionScope,
    ) -> list[RedactedMessage]:
        """Return what is stored as it is."""
        return self.redact_messages(stored, scope=scope)

    def redact_text(
        self,
        text: str,
        *,
        scope: RedactionScope,  # noqa: ARG002
        path: str = "",  # noqa: ARG002
    ) -> RedactedText:
        """Return the text as it is."""
        return RedactedText(text, RedactionReport(), ())


def pipeline(folder: Path, batch_records: int) -> tuple[Pipeline, Governor]:
    """Put the pipeline of a home together, and its governor under the shipped policies."""
    lake = Lake.open(str(folder / "lake"))
    bundle = load_bundle()
    governor = Governor(
        bundle,
        NoRedaction(),
        message_key=b"m" * 32,
        pseudonym_key=b"p" * 32,
        known=lake.known_content(),
        consents=lake.consents(),
        gate=RowGate(bundle.quality.spec),
    )
    state = folder / "state"
    state.mkdir()
    checkpoints = CheckpointStore(state, lake.notes(), name="bench")
    checkpoints.recover(lake)
    spool = SpoolReader(folder / "spool", KEY)
    work = Pipeline(
        checkpoints=checkpoints,
        source=Source(
            spool, lake.query, checkpoints, assembly_key=b"a" * 32, batch_records=batch_records
        ),
        governor=lambda: governor,
        quarantine=QuarantineStore(folder / "quarantine", b"q" * 32),
        lake=lake,
        audit=AuditLog(folder / "audit.jsonl", b"l" * 32),
        prices=RecordedPrices(lake, load_prices()),
        others=Alone(),
    )
    return work, governor


def keep_batches(governor: Governor) -> list[GovernedBatch]:
    """Return a list that is given what the governor judges from now on."""
    kept: list[GovernedBatch] = []
    judge = governor.judge

    def judge_and_keep(assembly: Assembly, **given: Any) -> GovernedBatch:
        kept.append(judge(assembly, **given))
        return kept[-1]

    governor.judge = judge_and_keep  # type: ignore[method-assign]
    return kept
