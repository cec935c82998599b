"""The independent verifier: knows the truth of every task and posts rewards after sessions.

It sees the task's id and the agent's last words, nothing else: not how the agent came to them and
nothing of the training side. Agents with the price tool are to name a total; a desk without tools is to
decide who gets the trade price.
"""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from examples.practice.tasks import find_task

if TYPE_CHECKING:
    import httpx

SOURCE, VERSION = "practice-verifier", "1"

_DECISION = re.compile(r"\W*(yes|no)\b", re.IGNORECASE)
_AMOUNT = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d{1,2})?|\d+(?:\.\d{1,2})?")


def amounts(text: str) -> set[int]:
    """Return the amounts of money that a text states, in cents; every number counts."""
    found = set()
    for match in _AMOUNT.finditer(text):
        whole, _, cents = match.group().replace(",", "").partition(".")
        found.add(int(whole) * 100 + int(cents.ljust(2, "0") or 0))
    return found


def succeeded(task_id: str, answer: str | None) -> bool:
    """Say whether the answer states the right total and no other amount.

    The number of pieces may be repeated: an agent that writes "7 lamps cost 335.30" is right.
    """
    task = find_task(task_id)
    stated = amounts(answer or "") - {task.quantity * 100}
    return stated == {task.total_cents}


def decided(text: str) -> bool | None:
    """Return whether a text begins with yes or with no; None: with neither."""
    found = _DECISION.match(text)
    return None if found is None else found[1].lower() == "yes"


def decided_rightly(task_id: str, answer: str | None) -> bool:
    """Say whether the answer gives the trade price to whom the house rule gives it."""
    return decided(answer or "") == (find_task(task_id).price_list == "trade")


def reward(response_id: str, *, right: bool) -> dict[str, Any]:
    """Return the reward of a session as the feedback API takes it."""
    return {
        "response_id": response_id,
        "name": "success",
        "value": 1.0 if right else 0.0,
        "source_kind": "verifier",
        "source": SOURCE,
        "source_version": VERSION,
        "observed_at": datetime.now(UTC).isoformat(),
        "idempotency_key": f"{SOURCE}-{VERSION}-{response_id}",
    }


async def post_rewards(
    client: "httpx.AsyncClient", base: str, key: str, rewards: list[dict[str, Any]]
) -> int:
    """Post rewards to a Headrace gateway; return how many it took.

    Raises:
        httpx.HTTPStatusError: the gateway refused them.
    """
    response = await client.post(
        f"{base.rstrip('/')}/headrace/v1/feedback",
        json=rewards,
        headers={"authorization": f"Bearer {key}"},
    )
    response.raise_for_status()
    return int(response.json()["accepted"])
