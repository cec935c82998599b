"""Trajectories: find them by what they are, read one as a conversation, or step by step as a tree."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from starlette.exceptions import HTTPException

from headrace.console.page import PAGE_ROWS, Page, PageRequest, paged, place_of
from headrace.console.users import ADMIN, PRIVACY, REVIEWER, ROLES, TRAINER
from headrace.services.review_queues import OUTCOMES
from headrace.services.reviews import correct_answer
from train.substrate.content import CORRECTION

READERS = frozenset({REVIEWER, PRIVACY, TRAINER, ADMIN})
"""Who may read what people and agents said."""
CORRECTORS = frozenset({REVIEWER, ADMIN})
"""Who may say what an answer should have been."""
_MESSAGES = 100
"""Messages, or steps, of one page of a trajectory."""
_FACETS = ("app_id", "environment", "model_served", "harness_name")
_LISTED = """
SELECT tenant_id, trajectory_id, app_id, environment, started_at, ended_at, steps, tool_calls,
       tool_failures, failed_steps, input_tokens, output_tokens, model_served, harness_name,
       harness_version, reward, success
FROM listed
WHERE {conditions}
ORDER BY started_at DESC, trajectory_id DESC LIMIT {most}
"""
_COUNTED = """
SELECT facet, value, trajectories FROM (
    SELECT unnest(['app_id', 'environment', 'model_served', 'harness_name', 'tenant_id']) AS facet,
           unnest([app_id, environment, model_served, harness_name, tenant_id]) AS value, trajectories
    FROM (SELECT app_id, environment, model_served, harness_name, tenant_id, count(*) AS trajectories
          FROM listed WHERE {conditions}
          GROUP BY GROUPING SETS ((app_id), (environment), (model_served), (harness_name), (tenant_id))))
WHERE value IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY facet ORDER BY trajectories DESC, value) <= 12
ORDER BY facet, trajectories DESC, value
"""
_ONE = """
SELECT *, epoch(ended_at) - epoch(started_at) AS seconds FROM trajectories WHERE trajectory_id = $id LIMIT 1
"""
_COST = "SELECT currency, sum(cost) AS cost FROM step_costs WHERE trajectory_id = $id AND cost IS NOT NULL GROUP BY currency"
_STEPS = """
SELECT tenant_id, step_id, parent_step_id, step_index, branch, kind, role_in_graph, model_served,
       started_at, latency_ms, time_to_first_token_ms, input_tokens, output_tokens, http_status,
       error, finish_reason, retry_of, tool_calls, tool_results
FROM steps
WHERE trajectory_id = $id
  AND ($at IS NULL OR (started_at, step_index, step_id) > ($at, $step_index, $step_id))
ORDER BY started_at, step_index, step_id LIMIT {most}
"""
_SAID = """
SELECT step_id, step_index, started_at, position, is_output, role, name, role_in_graph, parts
FROM conversation
WHERE trajectory_id = $id
  AND ($at IS NULL OR (started_at, step_index, step_id, position) > ($at, $step_index, $step_id, $position))
ORDER BY started_at, step_index, step_id, position LIMIT {most}
"""
_REWARDS = """
SELECT name, value, label, source_kind, recorded_at FROM trajectory_rewards
WHERE trajectory_id = $id ORDER BY name
"""


def _list(asked: PageRequest) -> Mapping[str, Any]:
    conditions, parameters = _conditions(asked.query)
    at, last = place_of(asked.query.get("after"), datetime, str)
    after = [*conditions, "($at IS NULL OR (started_at, trajectory_id) < ($at, $last))"]
    listed = _LISTED.format(conditions=" AND ".join(after), most=PAGE_ROWS + 1)
    found = asked.listed(listed, **parameters, at=at, last=last)
    counted = asked.listed(_COUNTED.format(conditions=" AND ".join(conditions)), **parameters)
    rows, after_them = paged(found, ("started_at", "trajectory_id"))
    facets: dict[str, list[dict[str, Any]]] = {name: [] for name in _FACETS}
    if asked.reads_every_tenant:
        facets = {"tenant": [], **facets}
    for row in counted:
        facet = "tenant" if row["facet"] == "tenant_id" else row["facet"]
        if facet in facets:
            facets[facet].append({"value": row["value"], "trajectories": row["trajectories"]})
    return {
        "trajectories": rows,
        "facets": facets,
        "after": after_them,
        "outcomes": [*OUTCOMES],
        "unlisted_days": asked.unlisted_days,
    }


def _conditions(query: Mapping[str, str]) -> tuple[list[str], dict[str, Any]]:
    """Return what the URL asks for as SQL; each value is a parameter."""
    conditions, parameters = ["true"], dict[str, Any]()
    for name in _FACETS:
        if query.get(name):
            conditions.append(f"{name} = ${name}")
            parameters[name] = query[name]
    if query.get("q"):
        conditions.append("(starts_with(trajectory_id, $q) OR session_hint = $q OR group_id = $q)")
        parameters["q"] = query["q"].strip()
    if query.get("outcome") in OUTCOMES:
        conditions.append(OUTCOMES[query["outcome"]])
    for name, how in (("since", ">="), ("until", "<")):
        if query.get(name):
            conditions.append(f"started_at {how} CAST(${name} AS TIMESTAMPTZ)")
            parameters[name] = query[name]
    return conditions, parameters


_CORRECTED = """
SELECT step_id, rationale AS text, source, recorded_at FROM rewards_latest
WHERE trajectory_id = $id AND name = $name AND step_id IS NOT NULL AND rationale IS NOT NULL
ORDER BY recorded_at
"""


def _one(asked: PageRequest) -> Mapping[str, Any]:
    trajectory = asked.path["trajectory_id"]
    corrected = correct(asked, trajectory) if asked.sent else None
    by_steps = asked.query.get("view") == "steps"
    kinds: tuple[type, ...] = (datetime, int, str) if by_steps else (datetime, int, str, int)
    names = ("at", "step_index", "step_id", "position")
    place = dict(zip(names, place_of(asked.query.get("after"), *kinds), strict=False))
    about = asked.rows_of(trajectory, _ONE, id=trajectory)
    if not about:
        raise HTTPException(404)
    rows = asked.rows_of(
        trajectory,
        (_STEPS if by_steps else _SAID).format(most=_MESSAGES + 1),
        id=trajectory,
        **place,
    )
    keys = ("started_at", "step_index", "step_id", "position")[: len(kinds)]
    shown, after = paged(rows, keys, _MESSAGES)
    data: dict[str, Any] = {
        "trajectory": about[0],
        "costs": asked.rows_of(trajectory, _COST, id=trajectory),
        "rewards": asked.rows_of(trajectory, _REWARDS, id=trajectory),
        "after": after,
        "view": "steps" if by_steps else "conversation",
        "corrections": asked.rows_of(trajectory, _CORRECTED, id=trajectory, name=CORRECTION),
        "corrected": corrected,
    }
    if by_steps:
        return data | {"steps": _with_depth(shown)}
    return data | {"messages": [_message(row) for row in shown]}


def _message(row: dict[str, Any]) -> dict[str, Any]:
    parts = parts_of(row["parts"])
    return row | {"parts": parts, "text": text_of(parts)}


def correct(asked: PageRequest, trajectory: str) -> str:
    """Hand on what the form says that an answer should have been; return its step."""
    step = asked.sent.get("step", "")
    found = asked.rows_of(
        trajectory,
        "SELECT 1 FROM steps WHERE trajectory_id = $id AND step_id = $step",
        id=trajectory,
        step=step,
    )
    if not found:
        raise HTTPException(404)
    correct_answer(asked.console.running, asked.user.name, step, asked.sent.get("correction", ""))
    return step


def text_of(parts: Sequence[Any]) -> str:
    """Return what a message says in words."""
    texts = [
        one.get("text") for one in parts if isinstance(one, dict) and one.get("type") == "text"
    ]
    return "\n".join(text for text in texts if isinstance(text, str))


def parts_of(text: str | None) -> list[Any]:
    """Return the parts of a message; what cannot be read as such is shown as it is."""
    try:
        parts = json.loads(text or "[]")
    except (ValueError, RecursionError):
        parts = [{"type": "opaque", "content": text}]
    return parts if isinstance(parts, list) else [parts]


def _with_depth(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return steps with how deep each stands: one deeper where another agent, branch or role begins."""
    of: dict[str, dict[str, Any]] = {}
    for step in steps:
        parent = of.get(step["parent_step_id"] or "")
        depth = 0
        if parent is not None:
            turns = any(step[name] != parent[name] for name in ("branch", "role_in_graph", "kind"))
            depth = min(parent["depth"] + turns, 12)
        of[step["step_id"]] = step | {"depth": depth}
    return list(of.values())


def _compare(asked: PageRequest) -> Mapping[str, Any]:
    """Return two trajectories, what was said in them and what they came to, to be seen side by side."""
    sides: list[Mapping[str, Any] | None] = []
    for name in ("one", "other"):
        trajectory = asked.query.get(name, "").strip()
        about = asked.rows_of(trajectory, _ONE, id=trajectory) if trajectory else []
        if not about:
            sides.append(None)
            continue
        asked.note("content.read", trajectory[:200], page="/compare")
        nowhere = dict.fromkeys(("at", "step_index", "step_id", "position"))
        said = asked.rows_of(trajectory, _SAID.format(most=_MESSAGES), id=trajectory, **nowhere)
        sides.append(
            {
                "trajectory": about[0],
                "costs": asked.rows_of(trajectory, _COST, id=trajectory),
                "messages": [_message(row) for row in said],
            }
        )
    return {"sides": sides}


PAGES = (
    Page(
        path="/trajectories",
        title="Trajectories",
        roles=ROLES,
        template="trajectories.html",
        data=_list,
    ),
    Page(
        path="/trajectories/{trajectory_id}",
        title="Trajectory",
        roles=READERS,
        template="trajectory.html",
        data=_one,
        senders=CORRECTORS,
        shows_content=True,
        is_listed=False,
    ),
    Page(
        path="/compare",
        title="Compare",
        roles=READERS,
        template="compare.html",
        data=_compare,
        is_listed=False,
    ),
)
