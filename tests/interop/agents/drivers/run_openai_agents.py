"""The OpenAI Agents SDK: a triage agent that hands off to a refunds agent; many sessions at once."""

import asyncio
import json
import sys
from typing import Any

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI


@function_tool
def lookup_order(order: int) -> str:
    """Look an order up."""
    return f"order {order % 7}: three boxes of bolts, paid 12.40"


@function_tool
def issue_refund(order: int, amount: float) -> str:
    """Give the money back."""
    return f"refund of {amount:.2f} accepted"


def triage(client: AsyncOpenAI, number: int) -> Agent[Any]:
    """Return the first agent, over one of the two APIs."""
    over = OpenAIChatCompletionsModel if number % 4 >= 2 else OpenAIResponsesModel
    model = over("gpt-test", client)
    refunds = Agent(
        name="refunds",
        instructions="You give money back when the order allows it.",
        model=model,
        tools=[issue_refund],
    )
    return Agent(
        name="triage",
        instructions="You find out what customers want, and hand off.",
        model=model,
        tools=[lookup_order],
        handoffs=[refunds],
    )


async def session(client: AsyncOpenAI, number: int, task: str) -> None:
    """Run one session: a task and, in some, a question afterwards."""
    await asyncio.sleep(number * 0.01)
    # Summed-up hand-offs rewrite the conversation; named responses send only what is new.
    config = RunConfig(nest_handoff_history=number % 10 == 7, tracing_disabled=True)
    chained = number % 8 == 4
    agent = triage(client, number)
    settings: Any = {"run_config": config, "auto_previous_response_id": chained}
    if number % 2:
        result: Any = Runner.run_streamed(agent, task, **settings)
        async for _ in result.stream_events():
            pass
    else:
        result = await Runner.run(agent, task, **settings)
    if number % 10 == 0:
        asked = {"role": "user", "content": "Thank you. When will it be there?"}
        more = [asked] if chained else [*result.to_input_list(), asked]
        if chained:
            settings["previous_response_id"] = result.last_response_id
        await Runner.run(result.last_agent, more, **settings)


async def main() -> None:
    """Run all sessions; the plan comes on standard input."""
    set_tracing_disabled(True)
    plan = json.load(sys.stdin)
    async with AsyncOpenAI(base_url=plan["base_url"], api_key=plan["key"]) as client:
        await asyncio.gather(
            *(session(client, number, task) for number, task in enumerate(plan["tasks"]))
        )


asyncio.run(main())
