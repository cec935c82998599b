"""The verifier: reads amounts as people write them, and posts rewards that name the response."""

import asyncio
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from examples.practice.shop import money, total_cents
from examples.practice.tasks import make_task
from examples.practice.verifier import (
    amounts,
    decided,
    decided_rightly,
    post_rewards,
    reward,
    succeeded,
)
from trajectory.http_server import HttpServer


@pytest.mark.parametrize(
    ("text", "cents"),
    [
        ("The total is 335.30.", {33530}),
        ("1,284.50 in total", {128450}),
        ("12 pieces: 1284.5", {1200, 128450}),
        ("no idea", set()),
    ],
)
def test_amounts(text: str, cents: set[int]) -> None:
    assert amounts(text) == cents


def test_only_the_right_total_alone_is_a_success() -> None:
    task = make_task(9, "heldout", 4)
    right, other = money(task.total_cents), "retail" if task.price_list == "trade" else "trade"
    wrong = money(total_cents(task.item, task.quantity, other))
    assert succeeded(task.task_id, f"The total is {right}.")
    assert succeeded(task.task_id, f"{task.quantity} {task.item} cost {right}")
    assert not succeeded(task.task_id, f"The total is {wrong}.")
    assert not succeeded(task.task_id, f"It is {right} or {wrong}.")
    assert not succeeded(task.task_id, None)


@pytest.mark.parametrize(
    ("text", "trade"),
    [
        ("Yes.", True),
        ("yes", True),
        ("**No**, sorry", False),
        ("NO", False),
        ("Nobody", None),
        ("", None),
    ],
)
def test_a_decision_is_the_first_word(text: str, trade: bool | None) -> None:
    assert decided(text) is trade
    for task in (make_task(9, "heldout", index) for index in range(12)):
        right = trade is not None and trade == (task.price_list == "trade")
        assert decided_rightly(task.task_id, text) is right


def test_who_did_not_answer_decided_nothing() -> None:
    assert not any(decided_rightly(f"practice-9-heldout-{index}", None) for index in range(12))


def test_rewards_are_posted_with_the_key() -> None:
    got: list[tuple[str, Any]] = []

    async def feedback(request: Request) -> JSONResponse:
        got.append((request.headers["authorization"], await request.json()))
        return JSONResponse({"accepted": 1, "feedback_ids": ["x"]}, status_code=202)

    app = Starlette(routes=[Route("/headrace/v1/feedback", feedback, methods=["POST"])])

    async def post(base: str) -> int:
        task = make_task(9, "heldout", 4)
        item = reward("chatcmpl-1", right=succeeded(task.task_id, money(task.total_cents)))
        async with httpx.AsyncClient(trust_env=False) as client:
            return await post_rewards(client, base, "hr_a_b", [item])

    with HttpServer(app) as server:
        assert asyncio.run(post(f"http://127.0.0.1:{server.port}/")) == 1
    ((authorization, (item,)),) = got
    assert authorization == "Bearer hr_a_b"
    assert (item["response_id"], item["name"], item["value"]) == ("chatcmpl-1", "success", 1.0)
    assert item["source_kind"] == "verifier"
