"""What the provider says to each kind of agent: a few turns each, alike over all sessions."""

import json
import re
from typing import Any

from tests.support.provider.sessions import MARKER, ModelRequest, ModelTurn, Session

_TASKS = (
    "My parcel of bolts arrived broken. I want my money back.",
    "Please refund the order of last week, the screws have the wrong size.",
    "Where is my order? If it is lost, I want the money.",
    "The invoice is wrong.",
    "Half of the boxes are missing, please help.",
)


def same_tasks(sessions: int) -> list[str]:
    """Return tasks of which many sessions share each one, word for word."""
    return [_TASKS[number % len(_TASKS)] for number in range(sessions)]


def marked_tasks(sessions: int) -> list[str]:
    """Return tasks that are alike but for a number."""
    return [f"{_TASKS[n % len(_TASKS)]} It was task {n} of this week." for n in range(sessions)]


def refunds(session: Session, asked: ModelRequest) -> ModelTurn:
    """Look up, hand off, refund, answer; then answer what is asked afterwards."""
    order = 1000 + session.number
    fail = session.turns in (1, 2) and session.number % 6 == session.turns
    if session.turns == 0:
        return ModelTurn(calls=(("lookup_order", {"order": order}),))
    if session.turns == 1:
        return ModelTurn("One moment.", calls=(("transfer_to_refunds", {}),), fail=fail)
    if session.turns == 2:
        assert "issue_refund" in asked.tools
        return ModelTurn(calls=(("issue_refund", {"order": order, "amount": 12.4}),), fail=fail)
    return ModelTurn("The money is on its way." if session.turns == 3 else "Within three days.")


def shelves(session: Session, asked: ModelRequest) -> ModelTurn:
    """Make a title when no tools are there; search twice, the second time in parallel; answer."""
    if not asked.tools:
        return ModelTurn("Order on the shelves", role="auxiliary")
    shelf = 100 + session.number
    if session.turns == 0:
        fail = session.number % 5 == 4
        return ModelTurn(calls=(("search_shelf", {"shelf": shelf, "item": "bolts"}),), fail=fail)
    if session.turns == 1:
        items = ("screws", "nuts", "washers")
        calls = tuple(("search_shelf", {"shelf": shelf, "item": item}) for item in items)
        return ModelTurn("Now the small parts.", calls=calls)
    if session.turns == 3:
        return ModelTurn(calls=(("search_shelf", {"shelf": shelf - 1, "item": "bolts"}),))
    return ModelTurn("All of it is there.")


def journeys(session: Session, asked: ModelRequest) -> ModelTurn:
    """Ask for weather and trains at once, ask again where a tool refused, answer as wanted."""
    day = session.number
    if session.turns == 0:
        calls: list[tuple[str, dict[str, Any]]] = [
            ("weather", {"city": city, "day": day}) for city in ("Lisbon", "Porto")
        ]
        return ModelTurn("Let me see.", calls=(*calls, ("trains", {"city": "Porto", "day": day})))
    if session.turns == 1 and day % 9 == 0:
        again = [("weather", {"city": city, "day": day + 1}) for city in ("Lisbon", "Porto")]
        return ModelTurn(calls=tuple(again), fail=day % 2 == 0)
    if "final_result" in asked.tools:
        return ModelTurn(calls=(("final_result", {"city": "Porto", "day": "Monday"}),))
    return ModelTurn("Take the train to Porto on Monday.")


def sales(session: Session, asked: ModelRequest) -> ModelTurn:
    """Quote twice at once, then reserve, then answer."""
    quantity = 10 + session.number
    fail = session.turns == 1 and session.number % 6 == 0
    if session.turns == 0:
        calls = tuple(("quote", {"item": i, "quantity": quantity}) for i in ("bolts", "nuts"))
        return ModelTurn(calls=calls)
    if session.turns == 1:
        return ModelTurn(calls=(("reserve", {"item": "bolts", "quantity": quantity}),), fail=fail)
    return ModelTurn("Reserved for you.")


HELPER_ORDERS = (
    "Count the files in this folder for errand {0} and report back in one sentence, please;"
    " it belongs to task {0}."
)


def errands(session: Session, asked: ModelRequest) -> ModelTurn:
    """For Claude Code: a sub-agent where there is one, else two quotes at once; then answer."""
    if not asked.tools:
        return ModelTurn("Errands", role="auxiliary")
    if asked.said[0].rstrip().endswith(HELPER_ORDERS[-20:].format(marker(asked))):
        if asked.turns == 0:
            return ModelTurn(calls=(("Bash", {"command": "ls"}),), thread="helper")
        return ModelTurn("There is no file in the folder of this errand at all.", thread="helper")
    if asked.turns == 0 and "Agent" in asked.tools:
        orders = {"description": "count", "prompt": HELPER_ORDERS.format(marker(asked))}
        return ModelTurn(calls=(("Agent", {**orders, "subagent_type": "general-purpose"}),))
    if asked.turns == 0 and "mcp__shop__quote" not in asked.tools:
        # The first turn does not wait for tool servers that are slow to connect.
        return ModelTurn("I will look around.", calls=(("Bash", {"command": "ls"}),))
    if asked.turns == 0:
        quotes = [{"item": item, "quantity": 10 + session.number} for item in ("bolts", "nuts")]
        calls = tuple(("mcp__shop__quote", quote) for quote in quotes)
        return ModelTurn("Two prices are needed.", calls=calls)
    return ModelTurn("That is all.", fail=asked.turns == 1 and session.number % 10 == 3)


def marker(asked: ModelRequest) -> str:
    """Return the number of the task."""
    return next(MARKER.findall(said)[-1] for said in asked.said if MARKER.search(said))


REPAIRS = (
    "Please have the {} half of the lamps in this house looked at by three helpers, all of them at"
    " once, and tell me in the end what there is to be repaired; it is task 1."
)
HELPERS, HELPER_STEPS = 3, 25
_LOOK = "Look at lamp {0} of task 1, at everything there is to it, and report what you find."
_SUMMARY = (
    "<summary>The user wants the lamps of the house to be looked at for task 1; three helpers looked"
    " at the first half and found that none of these needs any repair so far.</summary>"
)


def repairs(session: Session, asked: ModelRequest) -> ModelTurn:
    """Have three helpers look around at length, in each of two halves; in between, summarise."""
    if not asked.tools:
        return ModelTurn("Lamps of the house", role="auxiliary")
    helper = next(
        (n for n in range(6) if any(_LOOK.format(n) in said for said in asked.said)), None
    )
    if helper is not None:
        return _look(helper, asked.turns, ("Bash", {"command": f"echo lamp {helper}"}))
    if "summary" in asked.said[-1] and session.turns == 2:
        return ModelTurn(_SUMMARY, role="compaction")
    if "second half" in asked.said[-1]:
        return _send(3)
    return (
        _send(0) if "first half" in asked.said[-1] else ModelTurn("No lamp needs to be repaired.")
    )


def _send(first: int) -> ModelTurn:
    """Send the helpers of a half of the house."""
    orders = [
        {"description": f"lamp {n}", "prompt": _LOOK.format(n), "subagent_type": "general-purpose"}
        for n in range(first, first + HELPERS)
    ]
    return ModelTurn("I send three helpers.", calls=tuple(("Agent", order) for order in orders))


def _look(helper: int, turns: int, call: tuple[str, dict[str, Any]]) -> ModelTurn:
    """Look for a while, then report."""
    thread = f"helper {helper}"
    if turns < HELPER_STEPS - 1:
        return ModelTurn(f"Step {turns} of helper {helper}.", calls=(call,), thread=thread)
    return ModelTurn(f"Lamp {helper} of the house is in order, as far as I can see.", thread=thread)


TEAMWORK = (
    "Please have the shelves of this house looked at by two helpers, both at once, and tell me in"
    " the end what there is to be bought; it is task {0}."
)
TEAM = ("left", "right")
_SHELVES = (
    "Look at the {0} shelf of task {1}, at everything that stands on it, and report what you find"
    " in one sentence."
)
_CHECKPOINT = (
    "The user wants the shelves of the house to be looked at for task {0}; two helpers looked at both"
    " of them and found that there is nothing at all to be bought this week."
)
_AGENT = re.compile(r'\\"agent_id\\":\\"([0-9a-f-]{36})')


def teamwork(session: Session, asked: ModelRequest) -> ModelTurn:
    """For Codex: two helpers that work on their own, a wait for both, a compaction, an answer."""
    task = marker(asked)
    shelf = next((s for s in TEAM if any(_SHELVES.format(s, task) in t for t in asked.said)), None)
    if shelf is not None and not any(TEAMWORK.format(task) in said for said in asked.said):
        if asked.turns == 0:
            return ModelTurn(calls=(("exec_command", {"cmd": f"echo {shelf}"}),), thread=shelf)
        return ModelTurn(
            f"The {shelf} shelf of the house is full, as it ought to be.", thread=shelf
        )
    if "CONTEXT CHECKPOINT" in asked.said[-1]:
        return ModelTurn(_CHECKPOINT.format(task), role="compaction")
    if session.turns == 0:
        calls = tuple(("spawn_agent", {"message": _SHELVES.format(s, task)}) for s in TEAM)
        return ModelTurn(calls=tuple((f"multi_agent_v1.{name}", order) for name, order in calls))
    if session.turns == 1:
        helpers = list(dict.fromkeys(_AGENT.findall(json.dumps(asked.body["input"]))))
        order = {"targets": helpers, "timeout_ms": 20_000}
        return ModelTurn(calls=(("multi_agent_v1.wait_agent", order),))
    if session.turns == 2:
        # So long a context has Codex compact it before it goes on.
        return ModelTurn(calls=(("exec_command", {"cmd": "echo both"}),), tokens=900_000)
    return ModelTurn("Nothing is to be bought.")
