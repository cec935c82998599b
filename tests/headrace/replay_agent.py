"""The practice agent pointed somewhere; as a program: ``KIND STREAM PROMPT``.

Addresses come from the environment. ``CHANGE`` in it makes the agent call its tool with another
quantity than the model asked.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx

from examples.practice.agent import Outcome, solve, tool_session
from examples.practice.clients import Style, converse, make_sdk


class DivergentConversation:
    """A conversation whose tool calls come out a little different."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def ask(self) -> Any:
        """Ask, and change what came."""
        turn = await self._inner.ask()
        calls = tuple(
            replace(call, arguments={**call.arguments, "quantity": 7}) for call in turn.calls
        )
        return replace(turn, calls=calls)

    def add_results(self, results: Any) -> None:
        """Pass results on."""
        self._inner.add_results(results)


async def work(kind: str, stream: bool, prompt: str, environment: Mapping[str, str]) -> str:
    """Run one session; return the answer, or nothing when an error ended it."""

    async def nothing(_: Any) -> None:
        return

    provider = "ANTHROPIC" if kind == "anthropic" else "OPENAI"
    base_url = environment[f"{provider}_BASE_URL"]
    key = environment.get(f"{provider}_API_KEY", "none")
    headers = {"authorization": f"Bearer {key}"}
    outcome = Outcome()
    # The end of an agent that was refused is no matter of the tests.
    with suppress(Exception):
        async with (
            make_sdk(kind, nothing, direct=True, base_url=base_url, api_key=key) as sdk,
            httpx.AsyncClient(headers=headers, timeout=30, trust_env=False) as http,
            tool_session(environment["HEADRACE_REPLAY_MCP_URL"], http) as tools,
        ):
            listed = (await tools.list_tools()).tools
            conversation: Any = converse(kind, sdk, Style("practice", stream, 0.5), prompt, listed)
            if environment.get("CHANGE"):
                conversation = DivergentConversation(conversation)
            await solve(conversation, tools, outcome)
    return str(outcome.answer)


if __name__ == "__main__":
    assert "HEADRACE_MASTER_KEY" not in os.environ
    answer = asyncio.run(work(sys.argv[1], sys.argv[2] == "stream", sys.argv[3], os.environ))
    sys.stdout.write(f"{answer}\n")
