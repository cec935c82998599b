"""What the views of the control plane count, against plain Python over the rows that were written."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest

from benchmarks.evolve_traffic import T0, TASKS, Rows, ShopSession, Traffic, lake_of
from evolve.policy import Dimension
from lakehouse.lake import Lake
from trajectory.step import ToolResult

TRAFFIC = Traffic(9, "tool_renamed", 1, sessions=120)
ABANDONED = range(0, 60, 7)
RETRIED = range(0, 90, 11)


@dataclass(frozen=True, slots=True)
class Written:
    lake: Lake
    sessions: tuple[ShopSession, ...]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Two nights, some sessions of which somebody abandoned and some calls of which were repeated."""
    lake = lake_of(str(tmp_path_factory.mktemp("lake")), TRAFFIC, 0)
    sessions = tuple(TRAFFIC.shop_sessions(0, 2))
    rows = Rows()
    for one in sessions:
        one.add_to(rows)
    first = {one.trajectory_id: one for one in rows.steps if one.step_index == 0}
    success = {one.trajectory_id: one for one in rows.signals if one.name == "success"}
    for at in RETRIED:
        step = first[sessions[at].name]
        rows.steps.append(replace(step, step_id=f"{step.step_id}-again", retry_of=step.step_id))
    for at in ABANDONED:
        signal = success[sessions[at].name]
        rows.signals.append(
            replace(signal, signal_id=f"{signal.signal_id}-left", name="abandoned", value=1.0)
        )
    rows.write(lake)
    return Written(lake, sessions)


def level(one: ShopSession, number: int) -> int:
    """Return the level of a session's cost: input at 3 and output at 15 a million, four to a doubling."""
    calls = len(TASKS[one.task]) + 1 + (number in RETRIED)
    cost = calls * (one.tokens * 3.0 + one.tokens // 10 * 15.0) / 1e6
    return math.floor(4 * math.log2(cost))


def refused(one: ShopSession) -> bool:
    return any("unknown field" in text for text in one.errors.values())


@pytest.mark.parametrize(
    ("signal", "counts", "happened"),
    [
        ("success", lambda _: True, lambda one, _: not one.success),
        ("correction_rate", lambda _: True, lambda one, _: one.corrected),
        ("abandonment", lambda _: True, lambda _, number: number in ABANDONED),
        ("retries", lambda _: True, lambda _, number: number in RETRIED),
        ("invalid_arguments", lambda one: TASKS[one.task], lambda one, _: refused(one)),
    ],
)
def test_a_signal_counts_sessions(
    written: Written, signal: str, counts: Callable[..., Any], happened: Callable[..., bool]
) -> None:
    expected = Counter[Any]()
    for number, one in enumerate(written.sessions):
        if counts(one):
            key = one.tenant, one.begun.date()
            expected[*key, "sessions"] += 1
            expected[*key, "events"] += happened(one, number)
    rows = written.lake.query(
        "SELECT tenant_id, day, sessions, events FROM evolution_signals WHERE signal = $signal",
        {"signal": signal},
    ).to_pylist()
    found = Counter({
        (row["tenant_id"], row["day"], name): row[name]
        for row in rows for name in ("sessions", "events")
    })  # fmt: skip
    assert +found == +expected
    assert any(row["events"] for row in rows)


def test_tool_errors_count_sessions_that_called_the_tool(written: Written) -> None:
    classes = {"timed out": "timeout", "unknown field": "invalid_arguments"}
    happened = Counter(
        f"{tool}: {name}"
        for one in written.sessions for tool, text in one.errors.items()
        for words, name in classes.items() if words in text
    )  # fmt: skip
    called = Counter(tool for one in written.sessions for tool in TASKS[one.task])
    rows = written.lake.query(
        "SELECT subject, sum(sessions)::INT AS sessions, sum(events)::INT AS events "
        "FROM evolution_signals WHERE signal = 'tool_errors' GROUP BY subject"
    ).to_pylist()
    assert {row["subject"]: row["events"] for row in rows} == happened
    assert {row["subject"]: row["sessions"] for row in rows} == {
        name: called[name.split(":")[0]] for name in happened
    }


def test_costs_are_counted_by_level_and_the_mix_by_tenant_and_first_tool(written: Written) -> None:
    costs, mix = Counter[Any](), Counter[str]()
    for number, one in enumerate(written.sessions):
        costs[level(one, number), one.success] += 1
        first = TASKS[one.task][:1]
        mix[" ".join(["shop/prod", one.tenant, *first])] += 1
    rows = written.lake.query(
        "SELECT level, sum(sessions)::INT AS sessions, sum(events)::INT AS events "
        "FROM evolution_signals WHERE signal = 'cost_per_success' GROUP BY level"
    ).to_pylist()
    assert {row["level"]: (row["sessions"], row["events"]) for row in rows} == {
        at: (costs[at, True] + costs[at, False], costs[at, True]) for at, _ in costs
    }
    rows = written.lake.query(
        "SELECT subject, sum(sessions)::INT AS n FROM evolution_signals "
        "WHERE signal = 'mix' GROUP BY subject"
    ).to_pylist()
    assert {row["subject"]: row["n"] for row in rows} == mix


def shared(one: ShopSession, dimension: str) -> Iterable[str]:
    """Return what a session shares, by hand; a message's form is told by its class alone."""
    tools = TASKS[one.task]
    failed = [
        (tool, "invalid_arguments" if "unknown" in text else "timeout")
        for tool, text in one.errors.items()
    ]
    return {
        "tenant": [one.tenant],
        "workload": ["shop/prod"],
        "model_version": [one.model],
        "harness_version": [f"support@{one.harness}"],
        "tool": tools,
        "procedure": [" > ".join(tools)] if len(tools) > 1 else [],
        "error_class": [f"{tool}: {name}" for tool, name in failed],
        "argument_path": [f"{tool}: {name}: order_id" for tool, name in failed if name[0] == "i"],
        "message": [f"{tool}: {name}: " for tool, name in failed],
    }[dimension]


@pytest.mark.parametrize("dimension", get_args(Dimension))
def test_failures_are_grouped_by_everything_that_sessions_share(
    written: Written, dimension: str
) -> None:
    expected = Counter[Any]()
    for one in written.sessions:
        for value in shared(one, dimension):
            expected[value, "sessions"] += 1
            expected[value, "events"] += not one.success
    rows = written.lake.query(
        "SELECT value, sum(sessions)::INT AS sessions, sum(events)::INT AS events "
        "FROM failure_clusters WHERE signal = 'success' AND dimension = $dimension GROUP BY value",
        {"dimension": dimension},
    ).to_pylist()
    found = Counter[Any]()
    for row in rows:
        value = row["value"][: -12 if dimension == "message" else None]
        found[value, "sessions"] += row["sessions"]
        found[value, "events"] += row["events"]
    assert rows
    assert +found == +expected


def test_messages_that_differ_by_values_have_one_form(tmp_path: Path) -> None:
    """Numbers, identifiers and what stands in quotes or brackets differ from call to call."""
    texts = [
        "order 17 of 'anna' was not found (request 3f2a91bc)",
        "Order 4711 of 'bert' was not found (request 0017aaff)",
        "order 17 was not accepted",
    ]
    rows = Traffic(1, None, 9, sessions=40).nights(0, 1)
    failing = [one for one in rows.steps if one.step_index == 1][: len(texts)]
    lake = lake_of(str(tmp_path), TRAFFIC, 0)
    changed = [
        replace(one, started_at=T0 + timedelta(hours=at), tool_results=tuple(
            ToolResult(result.call_id, text, is_error=True) for result in one.tool_results))
        for at, (one, text) in enumerate(zip(failing, texts, strict=True))
    ]  # fmt: skip
    lake.append_rows("steps", changed)
    found = lake.query(
        "SELECT message FROM part.failed_calls JOIN steps USING (tenant_id, trajectory_id) "
        "ORDER BY started_at"
    )["message"].to_pylist()
    assert found[0] == found[1] != found[2]
    assert not any(word in str(found) for word in ("anna", "17", "order"))
