"""Twenty scripted agents whose tool call is denied, over official SDKs: how many go on and finish.

Each asks a model for a tool call that a rule denies, or holds until time is up; at a guarded route of tools or
in the model's answer. The provider is as strict as real ones: a call in the history without its result is refused.
"""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from anthropic import AsyncAnthropic
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from openai import AsyncOpenAI

from tests.proxy.gateway_process import GatewayProcess
from tests.support.guard import GuardSetup
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json, plain

RULES: dict[str, Any] = {
    "rules": [
        {"name": "deletes", "match": {"tools": "delete_file"}, "decision": "deny"},
        {"name": "mails", "match": {"tools": "mail"}, "decision": "hold", "wait_seconds": 1},
    ]
}
_FORBIDDEN, _ALLOWED = ("delete_file", "mail"), "read_file"
_FINISHED, _DENIED, _DONE = "FINISHED", "Headrace: ", "done"
_MOST_TURNS = 6

type Tool = Callable[[str], Awaitable[str]]
"""Calls a tool; returns what it says."""


class Agent(NamedTuple):
    """One scripted agent."""

    name: str
    run: Callable[[str, str, Tool, str], Awaitable[bool]]
    """Takes base URL, key, tool and the forbidden tool's name; tells whether the agent finished."""
    route: str
    """Of its model: one whose answers are judged, or not."""
    forbidden: str


class Provider:
    """A model that wants a forbidden tool first, then another one, and then has finished; and an MCP server."""

    def __init__(self) -> None:
        self._stored: dict[str, list[Any]] = {}
        self._count = 0

    def __call__(self, request: ReceivedRequest) -> Reply:
        """Answer one request."""
        if request.method != "POST":
            return plain(405, b"")
        body = json.loads(request.body)
        self._count += 1
        if request.target.endswith("/chat/completions"):
            return self._chat(body["messages"])
        if request.target.endswith("/responses"):
            return self._response(body)
        if request.target.endswith("/messages"):
            return self._message(body["messages"])
        return _served(body)

    def _chat(self, messages: list[Any]) -> Reply:
        asked = [one["id"] for said in messages for one in said.get("tool_calls") or ()]
        answered = [said["tool_call_id"] for said in messages if said["role"] == "tool"]
        if asked != answered:
            return _refused("tool_calls must be followed by tool messages")
        tool, call_id = _next(messages), f"call_{self._count}"
        message: dict[str, Any] = {"role": "assistant", "content": None if tool else _FINISHED}
        if tool:
            function = {"name": tool, "arguments": "{}"}
            message["tool_calls"] = [{"id": call_id, "type": "function", "function": function}]
        finish = "tool_calls" if tool else "stop"
        choice = {"index": 0, "finish_reason": finish, "message": message}
        whole = {"id": f"chatcmpl-{self._count}", "object": "chat.completion", "created": 1}
        return as_json({**whole, "model": "m", "choices": [choice]})

    def _response(self, body: dict[str, Any]) -> Reply:
        history = [*self._stored.get(body.get("previous_response_id", ""), ()), *body["input"]]
        asked = [one["call_id"] for one in history if one.get("type") == "function_call"]
        answered = [one["call_id"] for one in history if one.get("type") == "function_call_output"]
        if asked != answered:
            return _refused("No tool output found for function call")
        tool, name = _next(history), f"resp_{self._count}"
        item: dict[str, Any] = {
            "type": "message",
            "id": f"msg_{self._count}",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": _FINISHED, "annotations": []}],
        }
        if tool:
            item = {"type": "function_call", "id": f"fc_{self._count}", "name": tool}
            item |= {"call_id": f"call_{self._count}", "arguments": "{}", "status": "completed"}
        self._stored[name] = [*history, item]
        whole = {"id": name, "object": "response", "created_at": 1, "status": "completed"}
        whole |= {"model": "m", "output": [item], "tools": [], "tool_choice": "auto"}
        return as_json({**whole, "parallel_tool_calls": False})

    def _message(self, messages: list[Any]) -> Reply:
        blocks = [
            part
            for said in messages
            if isinstance(said["content"], list)
            for part in said["content"]
        ]
        asked = [one["id"] for one in blocks if one["type"] == "tool_use"]
        if asked != [one["tool_use_id"] for one in blocks if one["type"] == "tool_result"]:
            return _refused("tool_use ids were found without tool_result blocks")
        tool = _next(messages)
        block: dict[str, Any] = {"type": "text", "text": _FINISHED}
        if tool:
            block = {"type": "tool_use", "id": f"toolu_{self._count}", "name": tool, "input": {}}
        whole = {"id": f"msg_{self._count}", "type": "message", "role": "assistant", "model": "m"}
        usage = {"input_tokens": 1, "output_tokens": 1}
        stop = "tool_use" if tool else "end_turn"
        return as_json({**whole, "content": [block], "stop_reason": stop, "usage": usage})


def _served(body: dict[str, Any]) -> Reply:
    """Answer as an MCP server."""
    if "id" not in body:
        return plain(202, b"")
    result: dict[str, Any] = {"content": [{"type": "text", "text": _DONE}]}
    if body["method"] == "initialize":
        server = {"name": "files", "version": "1"}
        version = body["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    elif body["method"] == "tools/list":
        names = (*_FORBIDDEN, _ALLOWED)
        result = {"tools": [{"name": one, "inputSchema": {"type": "object"}} for one in names]}
    return as_json({"jsonrpc": "2.0", "id": body["id"], "result": result})


def _refused(why: str) -> Reply:
    error = {"type": "invalid_request_error", "message": why}
    return plain(400, json.dumps({"error": error}).encode(), ("Content-Type", "application/json"))


def _next(history: Iterable[Any]) -> str | None:
    """Return the tool that the model wants; None where it has finished."""
    said = json.dumps([*history])
    if f'"{_DONE}"' in said:
        return None
    return _ALLOWED if _DENIED in said else next(one for one in _FORBIDDEN if one in said)


async def _chats(url: str, key: str, tool: Tool, forbidden: str) -> bool:
    messages: list[Any] = [{"role": "user", "content": f"Use {forbidden}."}]
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        for _ in range(_MOST_TURNS):
            told = await client.chat.completions.create(model="m", messages=messages)
            message = told.choices[0].message
            if _FINISHED in (message.content or ""):
                return True
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls or ():
                said = await tool(call.function.name)  # type: ignore[union-attr]
                messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
            if not message.tool_calls:
                messages.append({"role": "user", "content": "Go on."})
    return False


async def _responds(url: str, key: str, tool: Tool, forbidden: str, *, stored: bool) -> bool:
    new: list[Any] = [{"role": "user", "content": f"Use {forbidden}."}]
    history, before = new, None
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        for _ in range(_MOST_TURNS):
            more: dict[str, Any] = {"previous_response_id": before} if stored and before else {}
            told = await client.responses.create(
                model="m",
                input=new if stored else history,
                **more,
            )
            if _FINISHED in told.output_text:
                return True
            calls = [one for one in told.output if one.type == "function_call"]
            new = []
            for call in calls:
                said = await tool(call.name)
                new.append(
                    {"type": "function_call_output", "call_id": call.call_id, "output": said}
                )
            new = new or [{"role": "user", "content": "Go on."}]
            output = [one.model_dump(exclude_none=True) for one in told.output]
            history, before = [*history, *output, *new], told.id
    return False


async def _stateless(url: str, key: str, tool: Tool, forbidden: str) -> bool:
    return await _responds(url, key, tool, forbidden, stored=False)


async def _stored(url: str, key: str, tool: Tool, forbidden: str) -> bool:
    return await _responds(url, key, tool, forbidden, stored=True)


async def _messages(url: str, key: str, tool: Tool, forbidden: str) -> bool:
    messages: list[Any] = [{"role": "user", "content": f"Use {forbidden}."}]
    async with AsyncAnthropic(base_url=url, api_key=key, max_retries=0) as client:
        for _ in range(_MOST_TURNS):
            told = await client.messages.create(model="m", max_tokens=99, messages=messages)
            blocks = [one.model_dump(exclude_none=True) for one in told.content]
            if _FINISHED in json.dumps(blocks):
                return True
            results: list[Any] = [
                {
                    "type": "tool_result",
                    "tool_use_id": one["id"],
                    "content": await tool(one["name"]),
                }
                for one in blocks
                if one["type"] == "tool_use"
            ]
            messages.append({"role": "assistant", "content": blocks})
            messages.append({"role": "user", "content": results or "Go on."})
    return False


async def _mcp_alone(url: str, key: str, tool: Tool, forbidden: str) -> bool:  # noqa: ARG001 - no model
    """Call what is forbidden, and then what the denial leaves."""
    return _DENIED in await tool(forbidden) and await tool(_ALLOWED) == _DONE


def agents() -> Iterator[Agent]:
    """Yield all twenty."""
    models = {"chat": _chats, "responses": _stateless, "stored": _stored, "messages": _messages}
    for forbidden in _FORBIDDEN:
        for name, run in models.items():
            for route in ("free", "models"):
                yield Agent(f"{name}, {forbidden} at {route}", run, route, forbidden)
        for number in range(2):
            yield Agent(f"MCP {number}, {forbidden}", _mcp_alone, "free", forbidden)


@contextlib.asynccontextmanager
async def _tool(url: str, key: str) -> AsyncIterator[Tool]:
    """Open a session of the official MCP client; yield what calls its tools."""
    headers = {"authorization": f"Bearer {key}"}
    async with (
        streamablehttp_client(f"{url}/tools/mcp", headers=headers) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()

        async def call(name: str) -> str:
            told = await session.call_tool(name, {})
            return "".join(getattr(one, "text", "") for one in told.content)

        yield call


async def _finished(agent: Agent, url: str, key: str) -> bool:
    try:
        async with _tool(url, key) as tool:
            return await agent.run(f"{url}/{agent.route}", key, tool, agent.forbidden)
    except Exception as error:  # noqa: BLE001 - an agent that fails has not finished
        print(f"{agent.name}: {type(error).__name__}: {str(error)[:200]}")
        return False


def finished_agents(listener: str = "plain") -> dict[str, bool]:
    """Run all agents through a gateway with a listener; return which of them finished."""
    with tempfile.TemporaryDirectory() as folder, Upstream(Provider()) as upstream:
        kinds = {"tools": "tool", "free": "model", "models": "model"}
        routes = [
            {"name": name, "upstream": upstream.url, "kind": kind} for name, kind in kinds.items()
        ]
        home = Path(folder)
        setup = GuardSetup(home / "approvals.sqlite", RULES, answers=("models",))
        with GatewayProcess(
            home, settings={"routes": routes, "listener": listener}, guard=setup
        ) as gateway:

            async def work() -> dict[str, bool]:
                return {
                    one.name: await _finished(one, gateway.url, gateway.key) for one in agents()
                }

            return asyncio.run(work())
