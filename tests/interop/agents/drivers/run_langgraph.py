"""LangGraph: a graph that makes a title, then loops over tools; threads with two questions."""

import asyncio
import json
import operator
import sys
from typing import Annotated, Any, TypedDict

import httpx
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def search_shelf(shelf: int, item: str) -> str:
    """Look for an item on a shelf."""
    return f"shelf {shelf % 5} holds 12 {item}"


class State(TypedDict):
    """What the graph carries."""

    messages: Annotated[list[AnyMessage], operator.add]
    title: str


def build(base_url: str, key: str, number: int, client: httpx.AsyncClient) -> Any:
    """Return the compiled graph of one session."""
    model = ChatOpenAI(
        model="gpt-test",
        base_url=base_url,
        api_key=key,  # type: ignore[arg-type]
        streaming=number % 2 == 0,
        use_responses_api=number % 3 == 0,
        http_async_client=client,
    )
    with_tools = model.bind_tools([search_shelf])
    system = SystemMessage("You keep the shelves of a warehouse in order.")

    async def title(state: State) -> dict[str, Any]:
        asked = f"Write a title of at most five words for this:\n\n{state['messages'][-1].content}"
        return {"title": (await model.ainvoke(asked)).text}

    async def work(state: State) -> dict[str, Any]:
        return {"messages": [await with_tools.ainvoke([system, *state["messages"]])]}

    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_node("tools", ToolNode([search_shelf]))
    graph.add_conditional_edges("work", tools_condition)
    graph.add_edge("tools", "work")
    if number % 5 == 0:
        graph.add_node("title", title)
        graph.add_conditional_edges(START, lambda s: "work" if s.get("title") else "title")
        graph.add_edge("title", "work")
    else:
        graph.add_edge(START, "work")
    return graph.compile(checkpointer=InMemorySaver())


async def session(plan: Any, number: int, task: str, client: httpx.AsyncClient) -> None:
    """Run one thread: a task, and a second question on the restored state."""
    await asyncio.sleep(number * 0.01)
    graph = build(plan["base_url"], plan["key"], number, client)
    thread: Any = {"configurable": {"thread_id": str(number)}}
    await graph.ainvoke({"messages": [HumanMessage(task)]}, thread)
    if number % 3 == 0:
        await graph.ainvoke({"messages": [HumanMessage("And on the shelf below?")]}, thread)


async def main() -> None:
    """Run all sessions; the plan comes on standard input."""
    plan = json.load(sys.stdin)
    async with httpx.AsyncClient(timeout=60) as client:
        await asyncio.gather(
            *(session(plan, number, task, client) for number, task in enumerate(plan["tasks"]))
        )


asyncio.run(main())
