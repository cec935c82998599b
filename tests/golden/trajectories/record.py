"""Records golden wire files: official SDKs against a scripted server on this machine.

Run ``python -m tests.golden.trajectories.record`` from the repository's root; it writes one
``<scenario>.json`` beside itself, a list of exchanges in the order of their start. The model's
answers are scripted here; requests, SDK headers and MCP traffic are whatever the SDKs make.
"""

import asyncio
import base64
import contextlib
import json
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

FOLDER = Path(__file__).parent
TOOL = {
    "name": "add",
    "description": "Add two integers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
QUESTION = "What is 19 + 23? Use the tool. Grüße 🙂"
_DROPPED_HEADERS = {"authorization", "x-api-key", "user-agent", "host", "date", "server"}
_MACHINE_HEADERS = ("x-stainless-os", "x-stainless-arch", "x-stainless-runtime")

type Asgi = Callable[[Any, Any, Any], Awaitable[None]]


class Recorder:
    """An ASGI wrapper that keeps every exchange as it passed."""

    def __init__(self, app: Asgi) -> None:
        self.app = app
        self.exchanges: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        record: dict[str, Any] = {
            "method": scope["method"],
            "path": scope["path"],
            "query": scope["query_string"].decode(),
            "request_headers": _headers(scope["headers"]),
            "started": time.monotonic(),
            "outcome": "complete",
        }
        self.exchanges.append(record)
        given, made = bytearray(), bytearray()

        async def hear() -> Any:
            message = await receive()
            if message["type"] == "http.request":
                given.extend(message.get("body", b""))
            return message

        async def say(message: Any) -> None:
            if message["type"] == "http.response.start":
                record["status"] = message["status"]
                record["response_headers"] = _headers(message["headers"])
            elif message["type"] == "http.response.body":
                made.extend(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, hear, say)
        except ConnectionAbortedError:
            record["outcome"] = "upstream_abort"
            raise
        finally:
            record["ended"] = time.monotonic()
            record["request_body"] = _body(bytes(given))
            record["response_body"] = _body(bytes(made))

    def save(self, name: str) -> None:
        """Write what was recorded and begin anew."""
        for record in self.exchanges:
            record.pop("started")
            record.pop("ended", None)
        text = json.dumps(self.exchanges, indent=1, ensure_ascii=False, sort_keys=True)
        (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        self.exchanges.clear()


def _headers(raw: list[tuple[bytes, bytes]]) -> dict[str, str]:
    pairs = {name.decode().lower(): value.decode("latin-1") for name, value in raw}
    return {
        name: value
        for name, value in pairs.items()
        if name not in _DROPPED_HEADERS and not name.startswith(_MACHINE_HEADERS)
    }


def _body(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def sse_event(value: Any, name: str | None = None) -> bytes:
    lead = f"event: {name}\n" if name else ""
    return f"{lead}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def sse_stream(events: list[bytes], *, cut: bool = False) -> StreamingResponse:
    async def body() -> AsyncIterator[bytes]:
        for event in events:
            half = len(event) // 2  # every event arrives in two pieces
            yield event[:half]
            yield event[half:]
            await asyncio.sleep(0)
        if cut:
            raise ConnectionAbortedError("scripted")

    return StreamingResponse(body(), media_type="text/event-stream")


class Provider:
    """Scripted answers: asks for the tool first, then says the sum."""

    def __init__(self) -> None:
        self.failures = 0
        self.cuts = 0

    def app(self) -> Starlette:
        """Return the server."""
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/v1/responses", self.responses, methods=["POST"]),
                Route("/v1/messages", self.messages, methods=["POST"]),
                Route("/v1/models", self.models, methods=["GET"]),
            ]
        )

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "tiny", "object": "model"}]})

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        if self.failures:
            self.failures -= 1
            error = {"message": "The server had an error", "type": "server_error", "code": None}
            return JSONResponse({"error": error}, status_code=500)
        told = any(message["role"] == "tool" for message in body["messages"])
        name = "chatcmpl-2" if told else "chatcmpl-1"
        tokens = body.get("return_token_ids", False)
        if body.get("stream"):
            cut = bool(self.cuts)
            self.cuts = max(0, self.cuts - 1)
            events = [sse_event(chunk) for chunk in _chat_chunks(name, told, tokens)]
            ending = [] if cut else [b"data: [DONE]\n\n"]
            return sse_stream(events[: 4 if cut else None] + ending, cut=cut)
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        if told:
            message |= {"content": "The sum is 42. ✓", "annotations": []}
        else:
            message["tool_calls"] = [
                {
                    "id": "call_add_1",
                    "type": "function",
                    "function": {"name": "add", "arguments": '{"a": 19, "b": 23}'},
                }
            ]
        choice: dict[str, Any] = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": "stop" if told else "tool_calls",
        }
        answer: dict[str, Any] = {
            "id": name,
            "object": "chat.completion",
            "created": 1,
            "model": "tiny-1",
            "choices": [choice],
            "usage": _chat_usage(),
            "system_fingerprint": "fp_1",
        }
        if tokens:
            choice["token_ids"] = [7, 8, 9]
            choice["logprobs"] = {"content": [_logprob(item) for item in (7, 8, 9)]}
            answer["prompt_token_ids"] = [1, 2, 3, 4]
        return JSONResponse(answer)

    async def responses(self, request: Request) -> Response:
        body = await request.json()
        given = body["input"]
        told = isinstance(given, list) and any(
            item.get("type") == "function_call_output" for item in given
        )
        answer = _response("resp_2" if told else "resp_1", told, body)
        if body.get("stream"):
            return sse_stream([sse_event(item, item["type"]) for item in _response_events(answer)])
        return JSONResponse(answer)

    async def messages(self, request: Request) -> Response:
        body = await request.json()
        told = len(body["messages"]) > 1
        if body.get("stream"):
            return sse_stream([sse_event(item, item["type"]) for item in _message_events(told)])
        return JSONResponse(_message(told))


def _chat_usage() -> dict[str, Any]:
    return {
        "prompt_tokens": 4,
        "completion_tokens": 3,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 2},
    }


def _logprob(token: int) -> dict[str, Any]:
    return {"token": f"t{token}", "logprob": -token / 10, "bytes": None, "top_logprobs": []}


def _chat_chunks(name: str, told: bool, tokens: bool) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if told:
        deltas += [{"content": piece} for piece in ("The sum", " is 42", ". ✓")]
    else:
        first = {
            "index": 0,
            "id": "call_add_1",
            "type": "function",
            "function": {"name": "add", "arguments": ""},
        }
        deltas.append({"tool_calls": [first]})
        for piece in ('{"a": 19,', ' "b": 23}'):
            deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    base = {"id": name, "object": "chat.completion.chunk", "created": 1, "model": "tiny-1"}
    chunks: list[dict[str, Any]] = []
    for position, delta in enumerate(deltas):
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None}
        chunk = {**base, "choices": [choice]}
        if tokens and position == 0:
            chunk["prompt_token_ids"] = [1, 2, 3, 4]
        elif tokens:
            choice["token_ids"] = [position + 6]
            choice["logprobs"] = {"content": [_logprob(position + 6)]}
        chunks.append(chunk)
    ending = {"index": 0, "delta": {}, "finish_reason": "stop" if told else "tool_calls"}
    chunks.append({**base, "choices": [ending]})
    chunks.append({**base, "choices": [], "usage": _chat_usage()})
    return chunks


def _response(name: str, told: bool, body: dict[str, Any]) -> dict[str, Any]:
    if told:
        text = {"type": "output_text", "text": "The sum is 42. ✓", "annotations": []}
        output: list[dict[str, Any]] = [
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [text],
            }
        ]
    else:
        thought = {"type": "summary_text", "text": "I should add."}
        output = [
            {"id": "rs_1", "type": "reasoning", "summary": [thought]},
            {
                "id": "fc_1",
                "type": "function_call",
                "call_id": "call_add_1",
                "name": "add",
                "arguments": '{"a": 19, "b": 23}',
                "status": "completed",
            },
        ]
    return {
        "id": name,
        "object": "response",
        "created_at": 1.0,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "model": "tiny-1",
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": body.get("previous_response_id"),
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": body.get("tools", []),
        "top_p": 1.0,
        "usage": {
            "input_tokens": 9,
            "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": 14,
        },
    }


def _response_events(answer: dict[str, Any]) -> list[dict[str, Any]]:
    started = {**answer, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": started},
        {"type": "response.in_progress", "response": started},
    ]
    for index, item in enumerate(answer["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        events += _item_events(place, index, item)
    events.append({"type": "response.completed", "response": answer})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _item_events(place: dict[str, Any], index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    opening = {**item}
    pieces: list[dict[str, Any]] = []
    if item["type"] == "function_call":
        opening |= {"arguments": "", "status": "in_progress"}
        text, kind = item["arguments"], "response.function_call_arguments"
        pieces = [
            {"type": f"{kind}.delta", **place, "delta": text[i : i + 6]}
            for i in range(0, len(text), 6)
        ]
        pieces.append({"type": f"{kind}.done", **place, "arguments": text, "name": item["name"]})
    elif item["type"] == "reasoning":
        opening |= {"summary": []}
        text, kind, where = (
            item["summary"][0]["text"],
            "response.reasoning_summary_text",
            {"summary_index": 0},
        )
        part = {"type": "summary_text", "text": ""}
        pieces = [
            {"type": "response.reasoning_summary_part.added", **place, **where, "part": part},
            {"type": f"{kind}.delta", **place, **where, "delta": text},
            {"type": f"{kind}.done", **place, **where, "text": text},
        ]
    else:
        opening |= {"content": [], "status": "in_progress"}
        where = {"content_index": 0}
        text, kind = item["content"][0]["text"], "response.output_text"
        part = {"type": "output_text", "text": "", "annotations": []}
        pieces = [{"type": "response.content_part.added", **place, **where, "part": part}]
        pieces += [
            {"type": f"{kind}.delta", **place, **where, "delta": text[i : i + 5], "logprobs": []}
            for i in range(0, len(text), 5)
        ]
        pieces.append({"type": f"{kind}.done", **place, **where, "text": text, "logprobs": []})
    return [
        {"type": "response.output_item.added", "output_index": index, "item": opening},
        *pieces,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _message(told: bool) -> dict[str, Any]:
    if told:
        content: list[dict[str, Any]] = [{"type": "text", "text": "The sum is 42. ✓"}]
    else:
        content = [
            {"type": "thinking", "thinking": "I should add.", "signature": "c2ln"},
            {"type": "text", "text": "Let me add."},
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 19, "b": 23}},
        ]
    return {
        "id": "msg_2" if told else "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "tiny-1",
        "content": content,
        "stop_reason": "end_turn" if told else "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 4,
            "cache_creation_input_tokens": 1,
            "output_tokens": 6,
        },
    }


def _message_events(told: bool) -> list[dict[str, Any]]:
    whole = _message(told)
    opening = {**whole, "content": [], "stop_reason": None}
    opening["usage"] = {**whole["usage"], "output_tokens": 1}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": opening}, {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        if block["type"] == "tool_use":
            start: dict[str, Any] = {**block, "input": {}}
            text = json.dumps(block["input"])
            deltas = [
                {"type": "input_json_delta", "partial_json": piece}
                for piece in ("", text[:7], text[7:])
            ]
        elif block["type"] == "thinking":
            start = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        else:
            start = {"type": "text", "text": ""}
            text = block["text"]
            deltas = [{"type": "text_delta", "text": piece} for piece in (text[:5], text[5:])]
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [
            {"type": "content_block_delta", "index": index, "delta": item} for item in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    ending = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": whole["usage"]["output_tokens"]}
    events.append({"type": "message_delta", "delta": ending, "usage": usage})
    events.append({"type": "message_stop"})
    return events


async def record_openai(url: str, recorder: Recorder, provider: Provider) -> None:
    """Chat completions and responses, streamed and not, retried, cut, with tokens."""
    import openai

    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
    tools: Any = [{"type": "function", "function": TOOL}]

    async def chat_loop(stream: bool, **more: Any) -> None:
        messages: list[Any] = [
            {"role": "system", "content": "You are a calculator."},
            {"role": "user", "content": QUESTION},
        ]
        for _ in range(2):
            settings = {
                "model": "tiny",
                "tools": tools,
                "temperature": 0.5,
                "user": "user-7",
                **more,
            }
            if stream:
                async with client.chat.completions.stream(
                    messages=messages, stream_options={"include_usage": True}, **settings
                ) as events:
                    async for _ in events:
                        pass
                    message = (await events.get_final_completion()).choices[0].message
            else:
                answer = await client.chat.completions.create(messages=messages, **settings)
                message = answer.choices[0].message
            messages.append(message.model_dump(exclude={"parsed"}) if stream else message)
            messages.extend(
                {"role": "tool", "tool_call_id": call.id, "content": "42"}
                for call in message.tool_calls or []
            )

    await client.models.list()
    await chat_loop(stream=False)
    recorder.save("openai_chat")
    await chat_loop(stream=True)
    recorder.save("openai_chat_stream")
    provider.failures = 2
    await chat_loop(stream=False)
    recorder.save("openai_chat_retry")
    extra = {"return_token_ids": True}
    await chat_loop(stream=False, logprobs=True, top_logprobs=0, extra_body=extra)
    recorder.save("openai_chat_tokens")
    await chat_loop(stream=True, logprobs=True, top_logprobs=0, extra_body=extra)
    recorder.save("openai_chat_tokens_stream")
    provider.cuts = 1
    with contextlib.suppress(Exception):
        await chat_loop(stream=True)
    await chat_loop(stream=True)
    recorder.save("openai_chat_cut")
    await record_responses(client, recorder)


async def record_responses(client: Any, recorder: Recorder) -> None:
    """Responses: the whole input again, streamed and not, and the response before by name."""
    tools = [{"type": "function", **TOOL, "strict": False}]
    settings: dict[str, Any] = {"model": "tiny", "tools": tools, "instructions": "You calculate."}
    told = {"type": "function_call_output", "call_id": "call_add_1", "output": "42"}
    for stream in (False, True):
        given: list[Any] = [{"role": "user", "content": QUESTION}]
        for _ in range(2):
            if stream:
                async with client.responses.stream(input=given, **settings) as events:
                    async for _ in events:
                        pass
                    answer = await events.get_final_response()
            else:
                answer = await client.responses.create(input=given, **settings)
            given += [item.model_dump(exclude_none=True) for item in answer.output]
            given.append(told)
        recorder.save("openai_responses_stream" if stream else "openai_responses")
    answer = await client.responses.create(input=QUESTION, **settings)
    await client.responses.create(input=[told], previous_response_id=answer.id, **settings)
    recorder.save("openai_responses_previous")


async def record_anthropic(url: str, recorder: Recorder) -> None:
    """Messages, streamed and not."""
    import anthropic

    client = anthropic.AsyncAnthropic(base_url=url, api_key="none")
    tool: Any = {k: v for k, v in TOOL.items() if k != "parameters"}
    tool["input_schema"] = TOOL["parameters"]
    session = "user_ab12_account__session_0b9c1f7e-3f3c-4d53-9a5e-5d1f6f1f7a10"
    for stream in (False, True):
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        for _ in range(2):
            settings: Any = {
                "model": "tiny",
                "max_tokens": 100,
                "system": "You calculate.",
                "tools": [tool],
                "messages": messages,
                "metadata": {"user_id": session},
            }
            if stream:
                async with client.messages.stream(**settings) as events:
                    answer = await events.get_final_message()
            else:
                answer = await client.messages.create(**settings)
            messages.append(
                {
                    "role": "assistant",
                    "content": [b.model_dump(exclude_none=True) for b in answer.content],
                }
            )
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": block.id,
                    "content": [{"type": "text", "text": "42"}],
                    "cache_control": {"type": "ephemeral"},
                }
                for block in answer.content
                if block.type == "tool_use"
            ]
            messages.append({"role": "user", "content": [*results]})
        recorder.save("anthropic_messages_stream" if stream else "anthropic_messages")


async def record_mcp() -> None:
    """A whole MCP session over streamable HTTP: the official client and server."""
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client
    from mcp.server.fastmcp import FastMCP

    for as_json in (False, True):
        server = FastMCP("calculator", json_response=as_json, log_level="ERROR")

        @server.tool()
        def add(a: int, b: int) -> int:
            """Add two integers."""
            if a < 0:
                raise ValueError("no negative numbers")
            return a + b

        async with serving(server.streamable_http_app()) as (url, recorder):
            async with (
                streamablehttp_client(f"{url}/mcp") as (reader, writer, _),
                ClientSession(reader, writer) as session,
            ):
                await session.initialize()
                await session.list_tools()
                await session.call_tool("add", {"a": 19, "b": 23})
                await session.call_tool("add", {"a": -1, "b": 0})
                await asyncio.sleep(0.2)
            await asyncio.sleep(0.2)
        recorder.save("mcp_json" if as_json else "mcp")


@contextlib.asynccontextmanager
async def serving(app: Any) -> AsyncIterator[tuple[str, Recorder]]:
    """Serve ``app`` behind a recorder on a free port."""
    recorder = Recorder(app)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(recorder, log_level="critical", lifespan="on"))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:  # noqa: ASYNC110 - uvicorn offers no event
            await asyncio.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{port}", recorder
        finally:
            server.should_exit = True
            await task


async def main() -> None:
    """Record everything."""
    logging.disable(logging.CRITICAL)
    provider = Provider()
    async with serving(provider.app()) as (url, recorder):
        await record_openai(url, recorder, provider)
        await record_anthropic(url, recorder)
    await record_mcp()


if __name__ == "__main__":
    asyncio.run(main())
