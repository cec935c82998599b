"""Fleets: every client finishes its sessions, also on a bad day, and counts what it sent."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.practice import agent
from examples.practice.clients import CLIENTS, DESK_QUESTION, Style, converse, make_sdk
from examples.practice.fleet import Plan, run_fleet
from examples.practice.house_rules import correction_text
from examples.practice.provider import Provider
from examples.practice.shop import money
from examples.practice.tasks import make_tasks
from examples.practice.tools import ToolServer
from tests.practice.conftest import KEY
from trajectory.http_server import HttpServer


def plan(client: str, provider: str, tools: str | None, **changes: object) -> Plan:
    base = provider if client == "anthropic" else f"{provider}/v1"
    defaults: dict[str, object] = {"sessions": 6, "seed": 3, "concurrency": 3, "direct": True}
    return Plan(client, tools, base_url=base, api_key=KEY, **{**defaults, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("client", CLIENTS)
def test_sessions_call_the_tool_and_answer(
    client: str, provider_url: str, tools_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    report = asyncio.run(run_fleet(plan(client, provider_url, tools_url, temperature=0.0)))
    assert len(report.sessions) == 6
    assert all(session.outcome.problem is None for session in report.sessions)
    assert any(session.outcome.steps >= 2 for session in report.sessions)
    answers = [session.outcome.answer for session in report.sessions]
    assert sum("total" in (answer or "") for answer in answers) >= 4
    ids = [session.outcome.response_id for session in report.sessions]
    assert len(set(ids)) == 6
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""


@pytest.mark.parametrize("client", CLIENTS)
def test_a_bad_day_is_survived_and_counted_exactly(client: str, model_folder: Path) -> None:
    provider = Provider(model_folder, key=KEY, faults=0.25, seed=2)
    tools = ToolServer(seed=3, failures=0.3)
    with provider.listen() as model, tools.listen() as shop:
        address = f"http://127.0.0.1:{model.port}"
        tools_url = f"http://127.0.0.1:{shop.port}/mcp"
        report = asyncio.run(run_fleet(plan(client, address, tools_url, sessions=12)))
    assert provider.faults.total() > 0
    assert report.requests["model"] == provider.received.total()
    assert report.requests["tool"] == tools.requests.total()
    counts = report.to_json()
    assert counts["sessions"] == 12
    assert counts["requests_sent"] == provider.received.total() + tools.requests.total()
    assert counts["sdk_retries"] >= provider.faults["error"]
    assert counts["asked_again"] >= 1
    # The little model of the tests may write arguments that are no JSON, again and again, and so
    # much of them that the next turn no longer fits.
    assert set(counts["problems"]) <= {"BrokenAnswerError", "BadRequestError"}
    assert sum(counts["problems"].values()) <= 3


def test_attempts_repeat_a_task_and_share_its_prompt(provider_url: str, tools_url: str) -> None:
    report = asyncio.run(
        run_fleet(plan("openai-chat", provider_url, tools_url, attempts=3, start=5))
    )
    done = sorted((session.task.task_id, session.attempt) for session in report.sessions)
    assert done == [
        (f"practice-3-train-{index}", attempt) for index in (5, 6) for attempt in range(3)
    ]


def test_a_provider_that_is_away_ends_sessions_not_the_fleet(
    tools_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "MAX_ATTEMPTS", 1)
    report = asyncio.run(
        run_fleet(plan("openai-chat", "http://127.0.0.1:9", tools_url, sessions=1))
    )
    assert report.to_json()["problems"] == {"BrokenAnswerError": 1}
    assert report.sessions[0].success is False


def test_the_tool_server_says_what_is_wrong(tools_url: str) -> None:
    from examples.practice.agent import tool_session

    async def call() -> list[tuple[bool, str]]:
        async with (
            httpx.AsyncClient(trust_env=False) as client,
            tool_session(tools_url, client) as session,
        ):
            tools = (await session.list_tools()).tools
            assert [tool.name for tool in tools] == ["quote"]
            assert set(tools[0].inputSchema["required"]) == {"item", "price_list", "quantity"}
            answers = []
            for item, quantity in (("lamps", 7), ("rockets", 7), ("lamps", 0), ("lamps", "x")):
                arguments = {"item": item, "price_list": "trade", "quantity": quantity}
                result = await session.call_tool("quote", arguments)
                answers.append((bool(result.isError), getattr(result.content[0], "text", "")))
            return answers

    right, unknown, none, text = asyncio.run(call())
    assert right[0] is False
    assert right[1].endswith("total 335.30")
    assert unknown == (True, "Error executing tool quote: We do not sell that.")
    assert none[0] is True
    assert text[0] is True


@pytest.mark.parametrize("client", CLIENTS)
def test_a_line_that_loses_answers_is_survived_by_asking_again(
    client: str, model_folder: Path
) -> None:
    provider = Provider(model_folder, key=KEY)
    tools = ToolServer(seed=3)
    with provider.listen() as model, tools.listen() as shop:
        address = f"http://127.0.0.1:{model.port}"
        tools_url = f"http://127.0.0.1:{shop.port}/mcp"
        lossy = plan(client, address, tools_url, lost_answers=1.0, temperature=0.0, sessions=3)
        report = asyncio.run(run_fleet(lossy))
    assert report.retries * 2 == report.requests["model"] == provider.received.total()
    assert len(report.sessions) == 3
    assert all(session.outcome.answer for session in report.sessions)


def test_nameless_orders_hold_nothing_but_the_order(tools_url: str) -> None:
    asked: list[str] = []

    async def listen(request: Request) -> Response:
        asked.extend(
            m["content"] for m in (await request.json())["messages"] if m["role"] == "user"
        )
        return Response(status_code=400)

    door = Starlette(routes=[Route("/v1/chat/completions", listen, methods=["POST"])])
    with HttpServer(door) as server:
        address = f"http://127.0.0.1:{server.port}"
        used = plan("openai-chat", address, tools_url, nameless=True, sessions=3)
        asyncio.run(run_fleet(used))
    tasks = make_tasks(3, "train", 3)
    assert sorted(asked) == sorted(task.order for task in tasks)
    assert all(task.order != task.prompt for task in tasks)


def test_who_got_a_wrong_answer_says_the_rule_and_the_agent_goes_on(tools_url: str) -> None:
    """Of three tasks the second is answered wrongly until somebody corrects it."""
    tasks = {task.order: task for task in make_tasks(3, "train", 3)}
    orders = list(tasks)
    said: list[list[str]] = []

    async def answer(request: Request) -> Response:
        words = [m["content"] for m in (await request.json())["messages"] if m["role"] == "user"]
        said.append(words)
        right = words[0] != orders[1] or len(words) > 1
        text = f"The total is {money(tasks[words[0]].total_cents)}." if right else "It is 1.00."
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
        return JSONResponse({**whole, "choices": [choice]})

    door = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
    with HttpServer(door) as server:
        address = f"http://127.0.0.1:{server.port}"
        asked = plan("openai-chat", address, tools_url, nameless=True, sessions=3, stream_share=0.0)
        assert sum(one.success for one in asyncio.run(run_fleet(asked)).sessions) == 2
        assert all(len(words) == 1 for words in said)
        said.clear()
        corrected = replace(asked, corrects=True)
        assert all(one.success for one in asyncio.run(run_fleet(corrected)).sessions)
    wrong = tasks[orders[1]]
    draw = random.Random(1)  # noqa: S311 - no secret
    possible = {correction_text(draw, wrong.account, wrong.price_list) for _ in range(50)}
    (told,) = [words[1:] for words in said if len(words) > 1]
    assert len(told) == 1
    assert told[0] in possible


@pytest.mark.parametrize("client", CLIENTS)
def test_a_desk_without_tools_asks_once_for_a_decision(client: str, provider_url: str) -> None:
    report = asyncio.run(run_fleet(plan(client, provider_url, None)))
    assert dict(report.requests) == {"model": 6}
    assert [session.outcome.problem for session in report.sessions] == [None] * 6
    assert all(session.outcome.response_id for session in report.sessions)


def test_what_a_desk_decides_is_judged_by_the_house_rule() -> None:
    asked: list[dict[str, Any]] = []

    async def agree(request: Request) -> Response:
        asked.append(await request.json())
        message = {"role": "assistant", "content": "Yes, it is"}
        choice = {"index": 0, "finish_reason": "length", "message": message}
        whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
        return JSONResponse({**whole, "choices": [choice]})

    door = Starlette(routes=[Route("/v1/chat/completions", agree, methods=["POST"])])
    with HttpServer(door) as server:
        address = f"http://127.0.0.1:{server.port}"
        sessions = asyncio.run(run_fleet(plan("openai-chat", address, None))).sessions
    assert {s.success for s in sessions} == {True, False}
    assert all(s.success == (s.task.price_list == "trade") for s in sessions)
    assert not any("tools" in body for body in asked)
    questions = {f"{s.task.prompt}\n{DESK_QUESTION}" for s in sessions}
    assert {body["messages"][-1]["content"] for body in asked} == questions


@pytest.mark.parametrize("client", CLIENTS)
def test_a_person_goes_on_in_each_dialect(client: str) -> None:
    seen: list[object] = []

    async def listen(request: Request) -> Response:
        body = await request.json()
        seen.append((body.get("messages") or body["input"])[-1])
        return Response(status_code=400)

    async def ask(address: str) -> None:
        async with make_sdk(client, no_hook, base_url=address, api_key=KEY, direct=True) as sdk:
            talk = converse(client, sdk, Style("practice", False, 0.0), "Seven lamps.", [])
            talk.add_words("No, eight.")
            await talk.ask()

    async def no_hook(_: object) -> None:
        pass

    door = Starlette(routes=[Route("/{path:path}", listen, methods=["POST"])])
    with HttpServer(door) as server, pytest.raises(Exception, match="400"):
        asyncio.run(ask(f"http://127.0.0.1:{server.port}"))
    assert seen == [{"role": "user", "content": "No, eight."}]
