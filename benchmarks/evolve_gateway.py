"""The nights of ``evolve_traffic`` as real traffic: a practice agent, a gateway, the governor, redaction.

The agent asks a scripted model through the gateway, runs the tools that the model asks for, and sends what
came of it; judges send feedback. Weeks are worked through in minutes: between spool and governor the
records get the times of their night, and nothing else of them is changed.
"""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.evolve_traffic import TASKS, TENANTS, ShopSession, Traffic
from lakehouse.lake import Lake
from proxy.clients.keys import KeyRegistry
from proxy.spool import SpoolReader
from tests.headrace.spool_governor import govern
from tests.proxy.gateway_process import SPOOL_KEY, GatewayProcess
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json
from trajectory.exchange import Exchange, Feedback, SpoolRecord

_AT_ONCE = 8
"""Sessions that are worked on at a time."""
_TOOLS = [
    {"name": name, "description": "Of the shop.", "input_schema": {"type": "object"}}
    for name in sorted({tool for tools in TASKS.values() for tool in tools})
]
_PROMPTS = {
    1: "You work for a shop. Look things up before you answer.",
    2: "You work for a shop. Answer at once.",
}


@dataclass(slots=True)
class GatewayTraffic:
    """A home whose nights pass a gateway."""

    home: Path
    cpu_seconds: float = 0.0
    """Processor time of the gateways so far."""
    _keys: dict[str, str] = field(default_factory=dict)

    def work(self, traffic: Traffic, first: int, last: int) -> Lake:
        """Let the agents work some nights; return the lake, all governed."""
        if not self._keys:
            self._make_keys()
        sessions = {one.name: one for one in traffic.shop_sessions(first, last)}
        by_night: dict[int, list[ShopSession]] = {}
        for one in sessions.values():
            by_night.setdefault(int(one.name.split("-")[1]), []).append(one)
        with _model(sessions) as url:
            settings = {"routes": [{"name": "model", "upstream": url}]}
            with GatewayProcess(self.home, settings) as gateway:
                port = int(gateway.url.rsplit(":", 1)[1])
                for night in sorted(by_night):
                    asyncio.run(self._night(port, by_night[night]))
                self.cpu_seconds += _cpu_seconds(gateway.pid)
        return govern(self.home, _OnItsNight(self.home / "spool", sessions))

    def _make_keys(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        registry = KeyRegistry.load(self.home / "keys.json")
        for tenant in TENANTS:
            created = registry.create(
                tenant_id=tenant, app_id="shop", environment="prod", purposes=("train_sft",)
            )
            self._keys[tenant] = created.secret

    async def _night(self, port: int, sessions: Sequence[ShopSession]) -> None:
        waiting = iter(sessions)
        said: dict[str, list[dict[str, Any]]] = {tenant: [] for tenant in TENANTS}

        async def one_after_the_other() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for one in waiting:
                said[one.tenant] += await self._session(reader, writer, one)
            writer.close()

        await asyncio.gather(*(one_after_the_other() for _ in range(_AT_ONCE)))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for tenant, items in said.items():
            head = {"authorization": f"Bearer {self._keys[tenant]}"}
            if items:
                await _post(reader, writer, "/headrace/v1/feedback", head, items)
        writer.close()

    async def _session(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, one: ShopSession
    ) -> list[dict[str, Any]]:
        """Work as the agent does; return what is said of it."""
        head = {
            "x-api-key": self._keys[one.tenant], "x-headrace-agent": "support",
            "x-headrace-session": one.name, "anthropic-version": "2023-06-01",
        }  # fmt: skip
        messages: list[Any] = [{"role": "user", "content": f"Job {one.name}: {one.task}, please."}]
        body = {
            "model": "shop", "max_tokens": 200, "system": _PROMPTS[one.harness], "tools": _TOOLS,
            "messages": messages,
        }  # fmt: skip
        while True:
            answer = await _post(reader, writer, "/model/v1/messages", head, body)
            messages.append({"role": "assistant", "content": answer["content"]})
            used = [part for part in answer["content"] if part["type"] == "tool_use"]
            if not used:
                return _said(one, answer["id"])
            results = [_result(one, part) for part in used]
            messages.append({"role": "user", "content": results})


def _cpu_seconds(pid: int) -> float:
    """Return the processor time of a process that runs."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _result(one: ShopSession, used: Mapping[str, Any]) -> dict[str, Any]:
    error = one.errors.get(used["name"])
    return {
        "type": "tool_result", "tool_use_id": used["id"], "content": error or "done",
        "is_error": error is not None,
    }  # fmt: skip


def _said(one: ShopSession, response: str) -> list[dict[str, Any]]:
    at = (one.begun + timedelta(minutes=2)).isoformat()
    success = {
        "response_id": response, "name": "success", "value": float(one.success),
        "source_kind": "verifier", "source": "tests", "source_version": one.judge, "observed_at": at,
    }  # fmt: skip
    correction = {
        "response_id": response, "name": "correction", "value": 1.0,
        "source_kind": "human_explicit", "source": "chat", "observed_at": at,
    }  # fmt: skip
    return [success, correction] if one.corrected else [success]


async def _post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str,
    head: Mapping[str, str], body: Any,
) -> Any:  # fmt: skip
    """Ask over a connection that stays; an HTTP client would take longer than the gateway does."""
    data = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in head.items()]
    lines.append(f"content-length: {len(data)}")
    writer.write("\r\n".join([*lines, "", ""]).encode() + data)
    first, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    sizes = [line.split(":")[1] for line in fields if line.startswith("content-length:")]
    answer = await reader.readexactly(int(sizes[0]))
    if int(first.split()[1]) >= 300:
        raise RuntimeError(f"the gateway answered {first}: {answer!r}")
    return json.loads(answer)


@contextmanager
def _model(sessions: Mapping[str, ShopSession]) -> Iterator[str]:
    """Serve a model that asks for one tool after the other, and then answers."""

    def reply(seen: ReceivedRequest) -> Reply:
        body = json.loads(seen.body)
        upstream.seen.clear()
        one = sessions[body["messages"][0]["content"].split()[1].rstrip(":")]
        index = len(body["messages"]) // 2
        tools = TASKS[one.task]
        if index < len(tools):
            asked = {"order_id": f"A-{index}"}
            content = [{"type": "tool_use", "id": f"toolu_{one.name}_{index}", "name": tools[index],
                        "input": asked}]  # fmt: skip
        else:
            content = [{"type": "text", "text": "That is done."}]
        return as_json({
            "id": f"msg_{one.name}_{index}", "type": "message", "role": "assistant",
            "model": one.model, "content": content, "stop_sequence": None,
            "stop_reason": "tool_use" if index < len(tools) else "end_turn",
            "usage": {"input_tokens": one.tokens, "output_tokens": one.tokens // 10},
        })  # fmt: skip

    with Upstream(reply) as upstream:
        yield upstream.url


class _OnItsNight(SpoolReader):
    """Reads a spool; every record gets the time that its session has in its world."""

    def __init__(self, spool: Path, sessions: Mapping[str, ShopSession]) -> None:
        super().__init__(spool, SPOOL_KEY)
        self._sessions = sessions

    def take(self, *given: Any, **named: Any) -> Any:
        """See the reader."""
        batch = super().take(*given, **named)
        return replace(batch, records=tuple(self._dated(one) for one in batch.records))

    def _dated(self, record: SpoolRecord) -> SpoolRecord:
        if isinstance(record, Feedback):
            begun = self._sessions[record.target_id.split("_")[1]].begun
            return replace(record, received_at=begun + timedelta(minutes=2))
        assert isinstance(record, Exchange)
        begun = self._sessions[dict(record.request.headers)["x-headrace-session"]].begun
        index = len(json.loads(record.request.body)["messages"]) // 2
        at: datetime = begun + timedelta(seconds=5 * index)
        return replace(
            record, exchange_id=f"{int(at.timestamp() * 1000):012x}{record.exchange_id[12:]}",
            started_at=at, first_byte_at=at + timedelta(seconds=2), ended_at=at + timedelta(seconds=3),
        )  # fmt: skip
