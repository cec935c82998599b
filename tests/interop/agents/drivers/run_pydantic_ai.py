"""pydantic-ai: parallel tools, an answer as an object, and runs that go on from a history."""

import asyncio
import json
import sys
from typing import Any

from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class Plan(BaseModel):
    """What the agent answers."""

    city: str
    day: str


def weather(city: str, day: int) -> str:
    """Tell the weather of a city on a day."""
    if day % 9 == 0:
        raise ModelRetry("that day is too far away, take another")
    return f"{city}: {day % 6 + 10} degrees, dry"


def trains(city: str, day: int) -> list[str]:
    """List the trains to a city on a day."""
    return [f"08:0{day % 4} to {city}", "17:12"]


async def session(client: AsyncOpenAI, number: int, task: str) -> None:
    """Run one session: a task and, in some, another one on its history."""
    await asyncio.sleep(number * 0.01)
    over = OpenAIResponsesModel if number % 2 else OpenAIChatModel
    agent: Agent[None, Any] = Agent(
        over("gpt-test", provider=OpenAIProvider(openai_client=client)),
        instructions="You plan journeys by train.",
        tools=[weather, trains],
        output_type=Plan if number % 3 == 0 else str,
        retries=3,
    )
    if number % 4 < 2:
        result = await agent.run(task)
        history = result.all_messages()
    else:
        async with agent.run_stream(task) as streamed:
            await streamed.get_output()
            history = streamed.all_messages()
    if number % 5 == 0:
        await agent.run("And the way back?", message_history=history)


async def main() -> None:
    """Run all sessions; the plan comes on standard input."""
    plan = json.load(sys.stdin)
    async with AsyncOpenAI(base_url=plan["base_url"], api_key=plan["key"]) as client:
        await asyncio.gather(
            *(session(client, number, task) for number, task in enumerate(plan["tasks"]))
        )


asyncio.run(main())
