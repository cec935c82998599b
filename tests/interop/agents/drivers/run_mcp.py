"""An agent on the MCP client of the official SDK (2.x) and chat completions; tools over HTTP."""

import asyncio
import json
import sys
from typing import Any

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from openai import AsyncOpenAI


async def session(plan: Any, openai: AsyncOpenAI, number: int, task: str) -> None:
    """Run one session: connect, list the tools, let the model call them until it answers."""
    await asyncio.sleep(number * 0.01)
    async with (
        httpx2.AsyncClient(headers={"x-api-key": plan["key"]}, timeout=60) as http,
        Client(streamable_http_client(plan["tools_url"], http_client=http)) as tools,
    ):
        listed = (await tools.list_tools()).tools
        functions: Any = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description or "",
                    "parameters": tool.input_schema,
                },
            }
            for tool in listed
        ]
        messages: list[Any] = [
            {"role": "system", "content": "You sell screws and bolts."},
            {"role": "user", "content": task},
        ]
        while True:
            answer = await openai.chat.completions.create(
                model="gpt-test", messages=messages, tools=functions
            )
            message: Any = answer.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return
            used = [
                tools.call_tool(call.function.name, json.loads(call.function.arguments))
                for call in message.tool_calls
            ]
            for call, result in zip(message.tool_calls, await asyncio.gather(*used), strict=True):
                text = "\n".join(getattr(block, "text", "") for block in result.content)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


async def main() -> None:
    """Run all sessions; the plan comes on standard input."""
    plan = json.load(sys.stdin)
    async with AsyncOpenAI(base_url=plan["base_url"], api_key=plan["key"]) as client:
        await asyncio.gather(
            *(session(plan, client, number, task) for number, task in enumerate(plan["tasks"]))
        )


asyncio.run(main())
