"""Fifty concurrent sessions of official SDKs, one key, one system prompt, no session header.

The provider is scripted, its ids are random, some attempts fail and some streams break off; the
truth is kept in a header that is taken away before the traffic is read. What fails is written down
and no matter of chance or time. Of sessions that open with the same bytes one at most fails with
its first request: two whose first attempts are cut at the same time are told apart by nothing.
"""

import asyncio
import json
import random
from collections import Counter, defaultdict
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from zlib import crc32

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from tests.golden.trajectories.record import Recorder, serving, sse_event, sse_stream
from tests.trajectory.world import CLIENT
from trajectory.assembly import Assembler
from trajectory.call import Call, CallKind
from trajectory.dialects.registry import read_exchange
from trajectory.exchange import Exchange, ExchangeOutcome, HttpRequest, HttpResponse, SpoolPosition

SYSTEM = "You add numbers with the tool."
TASKS = ["What is 1 + 2?", "What is 3 + 4?", "Please add 5 and 6 for me, thank you."]
MARK = "x-test-session"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
SESSIONS = 50


FIRST_FAILS = {0: "cut", 8: "cut", 7: "error", 1: "error", 5: "error", 2: "error", 6: "error"}
"""Sessions whose first request fails; each opens with other bytes."""
LATER_FAILS = ("error", "cut", *[""] * 6)


class Provider:
    """Answers with the tool twice, then with a sum; first attempts fail or break off as written."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - a script, not a secret
        self.asked: set[tuple[int, int]] = set()

    def name(self, prefix: str) -> str:
        return f"{prefix}_{self.dice.getrandbits(64):016x}"

    async def think(self, request: Request, turn: int) -> tuple[str, dict[str, int]]:
        """Return how this attempt fails, and what the tool is asked: no two sessions ask the same."""
        await asyncio.sleep(self.dice.uniform(0, 0.03))
        session = int(request.headers[MARK])
        again = (session, turn) in self.asked
        self.asked.add((session, turn))
        fails = FIRST_FAILS.get(session, "") if turn == 0 else _later(session, turn)
        return "" if again else fails, {"a": session, "b": turn}

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        turn = sum(message["role"] == "tool" for message in body["messages"])
        fails, arguments = await self.think(request, turn)
        if fails == "error":
            return JSONResponse({"error": {"message": "busy"}}, status_code=500)
        message: dict[str, Any] = {"role": "assistant", "content": None}
        if turn < 2:
            function = {"name": "add", "arguments": json.dumps(arguments)}
            call = {"id": self.name("call"), "type": "function", "function": function}
            message["tool_calls"] = [{"index": 0, **call} if body.get("stream") else call]
        else:
            message["content"] = "That is all."
        choice = {"index": 0, "finish_reason": "tool_calls" if turn < 2 else "stop"}
        answer = {"id": self.name("chatcmpl"), "model": "m", "created": 1}
        if not body.get("stream"):
            choice |= {"message": message}
            return JSONResponse({**answer, "object": "chat.completion", "choices": [choice]})
        answer["object"] = "chat.completion.chunk"
        first = {**answer, "choices": [{"index": 0, "delta": message}]}
        last = {**answer, "choices": [{**choice, "delta": {}}]}
        if fails == "cut":
            return sse_stream([sse_event(first)], cut=True)
        return sse_stream([sse_event(first), sse_event(last), b"data: [DONE]\n\n"])

    async def responses(self, request: Request) -> Response:
        body = await request.json()
        given = body["input"] if isinstance(body["input"], list) else []
        told = any(item.get("type") == "function_call_output" for item in given)
        fails, arguments = await self.think(request, int(told))
        if fails == "error":
            return JSONResponse({"error": {"message": "busy"}}, status_code=500)
        text = {"type": "output_text", "text": "That is all.", "annotations": []}
        output: dict[str, Any] = {"type": "message", "id": self.name("msg"), "role": "assistant"}
        output |= {"status": "completed", "content": [text]}
        if not told:
            output = {"type": "function_call", "id": self.name("fc"), "name": "add"}
            output |= {"call_id": self.name("call"), "arguments": json.dumps(arguments)}
        answer = {"id": self.name("resp"), "object": "response", "status": "completed"}
        answer |= {"model": "m", "created_at": 1, "output": [output], "tools": []}
        return JSONResponse({**answer, "parallel_tool_calls": True, "tool_choice": "auto"})

    async def messages(self, request: Request) -> Response:
        body = await request.json()
        fails, arguments = await self.think(request, len(body["messages"]) // 2)
        if fails == "error":
            return JSONResponse({"error": {"type": "overloaded_error"}}, status_code=529)
        content: list[dict[str, Any]] = [{"type": "text", "text": "That is all."}]
        if len(body["messages"]) < 4:
            call = {"type": "tool_use", "id": self.name("toolu"), "name": "add"}
            content = [{**call, "input": arguments}]
        answer = {"id": self.name("msg"), "type": "message", "role": "assistant", "model": "m"}
        answer |= {"content": content, "stop_reason": "end_turn", "stop_sequence": None}
        return JSONResponse({**answer, "usage": {"input_tokens": 1, "output_tokens": 1}})


def _later(session: int, turn: int) -> str:
    return LATER_FAILS[crc32(f"{session}/{turn}".encode()) % len(LATER_FAILS)]


class Agents:
    """Clients that know nothing but a URL."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def chat(self, client: Any, number: int, use_tool: Any) -> None:
        tools: Any = [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}]
        messages: list[Any] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": TASKS[number % len(TASKS)]},
        ]
        while True:
            if number % 2:
                answer = await client.chat.completions.create(
                    model="m", messages=messages, tools=tools
                )
                message = answer.choices[0].message
            else:
                message = await self._streamed(client, messages, tools)
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return
            for call in message.tool_calls:
                text = await use_tool(json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})

    async def _streamed(self, client: Any, messages: list[Any], tools: Any) -> Any:
        while True:
            with suppress(Exception):
                async with client.chat.completions.stream(
                    model="m", messages=messages, tools=tools
                ) as events:
                    async for _ in events:
                        pass
                    return (await events.get_final_completion()).choices[0].message

    async def responses(self, client: Any, number: int, use_tool: Any) -> None:
        tools: Any = [{"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}]
        settings: Any = {"model": "m", "instructions": SYSTEM, "tools": tools}
        given: list[Any] = [{"role": "user", "content": TASKS[number % len(TASKS)]}]
        first = await client.responses.create(input=given, **settings)
        call: Any = first.output[0]
        text = await use_tool(json.loads(call.arguments))
        told = {"type": "function_call_output", "call_id": call.call_id, "output": text}
        if number % 2:
            await client.responses.create(input=[told], previous_response_id=first.id, **settings)
        else:
            given += [call.model_dump(exclude_none=True), told]
            await client.responses.create(input=given, **settings)

    async def messages(self, client: Any, number: int, use_tool: Any) -> None:
        tools: Any = [{"name": "add", "input_schema": SCHEMA}]
        messages: list[Any] = [{"role": "user", "content": TASKS[number % len(TASKS)]}]
        while True:
            answer = await client.messages.create(
                model="m", max_tokens=9, system=SYSTEM, tools=tools, messages=messages
            )
            content = [block.model_dump(exclude_none=True) for block in answer.content]
            messages.append({"role": "assistant", "content": content})
            calls: list[Any] = [block for block in answer.content if block.type == "tool_use"]
            if not calls:
                return
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": call.id,
                    "content": await use_tool(call.input),
                }
                for call in calls
            ]
            messages.append({"role": "user", "content": results})

    async def run(self, number: int) -> None:
        import anthropic
        import openai
        from mcp import ClientSession
        from mcp.client.streamable_http import streamablehttp_client

        await asyncio.sleep(number * 0.005)
        async with (
            streamablehttp_client(f"{self.url}/tools/mcp", headers={MARK: str(number)}) as (
                reader,
                writer,
                _,
            ),
            ClientSession(reader, writer) as tools,
        ):
            await tools.initialize()

            async def use_tool(arguments: dict[str, Any]) -> str:
                content = (await tools.call_tool("add", arguments)).content[0]
                return str(getattr(content, "text", ""))

            settings: Any = {
                "api_key": "k",
                "default_headers": {MARK: str(number)},
                "max_retries": 5,
            }
            if number % 4 == 2:
                async with anthropic.AsyncAnthropic(base_url=self.url, **settings) as client:
                    await self.messages(client, number, use_tool)
                return
            talk = self.responses if number % 4 == 1 else self.chat
            async with openai.AsyncOpenAI(base_url=f"{self.url}/v1", **settings) as openai_client:
                await talk(openai_client, number // 4, use_tool)


async def record() -> list[tuple[int, Exchange]]:
    from mcp.server.fastmcp import FastMCP

    server = FastMCP("calculator", log_level="ERROR")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    provider = Provider(seed=1)
    tools = server.streamable_http_app()
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", provider.chat, methods=["POST"]),
            Route("/v1/responses", provider.responses, methods=["POST"]),
            Route("/v1/messages", provider.messages, methods=["POST"]),
            Mount("/tools", tools),
        ],
        lifespan=lambda _: server.session_manager.run(),
    )
    async with serving(app) as (url, recorder):
        agents = Agents(url)
        await asyncio.gather(*(agents.run(number) for number in range(SESSIONS)))
        await asyncio.sleep(0.2)
    return exchanges(recorder)


def exchanges(recorder: Recorder) -> list[tuple[int, Exchange]]:
    found = []
    for position, record in enumerate(recorder.exchanges):
        headers = dict(record["request_headers"])
        session = int(headers.pop(MARK))
        response = HttpResponse(
            record.get("status", 200),
            tuple(record.get("response_headers", {}).items()),
            record["response_body"]["text"].encode(),
        )
        started, ended = (
            datetime.fromtimestamp(record[name], UTC) for name in ("started", "ended")
        )
        exchange = Exchange(
            exchange_id=f"{position:032x}",
            client=CLIENT,
            route="r",
            mode="base_url",
            upstream="http://u:1",
            started_at=started,
            first_byte_at=started,
            ended_at=ended,
            request=HttpRequest(
                record["method"],
                record["path"],
                "",
                tuple(headers.items()),
                record["request_body"]["text"].encode(),
            ),
            response=response,
            outcome=ExchangeOutcome(record["outcome"]),
            position=SpoolPosition("w", 0, position),
        )
        found.append((session, exchange))
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_rebuilt_trajectories_equal_the_truth() -> None:
    recorded = asyncio.run(record())
    truth = {exchange.exchange_id: session for session, exchange in recorded}
    calls: list[Call] = [read_exchange(exchange) for _, exchange in recorded]
    placed = Assembler(b"k" * 32).assemble(calls).placed
    assert not [call.problem for call in calls if call.problem]
    found: dict[str, set[int]] = defaultdict(set)
    parts: dict[int, set[str]] = defaultdict(set)
    for item in placed:
        # A first attempt that failed cannot be told from another session's that sent the same bytes.
        if item.role_in_graph == "discarded" and item.parent_step_id is None:
            continue
        session = truth[item.call.exchange.exchange_id]
        found[item.trajectory_id].add(session)
        parts[session].add(item.trajectory_id)
    roles = Counter(item.role_in_graph for item in placed)
    sources = Counter(item.key_source for item in placed)
    assert roles["discarded"] > 5
    assert sources["tool_call"] == sum(item.call.kind is CallKind.TOOL for item in placed)
    wrong = {session: names for session, names in parts.items() if len(names) > 1}
    mixed = {name: sessions for name, sessions in found.items() if len(sessions) > 1}
    assert len(parts) == SESSIONS
    assert not wrong
    assert not mixed
