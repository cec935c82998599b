"""Review: one conversation of a queue after the other, with its questions; how far two raters agree."""

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException

from headrace.app.context import AppContext
from headrace.console.page import Page, PageRequest
from headrace.console.pages.trajectories import correct, parts_of, text_of
from headrace.console.users import ADMIN, PRIVACY, REVIEWER
from headrace.services.review_answers import answer, how_far_raters_agree, next_conversation
from headrace.services.review_queues import (
    OUTCOMES,
    SUCCESS_QUEUE,
    ReviewQueue,
    YesNoQuestion,
    queue_of,
    queues_of,
)
from headrace.services.reviews import rater_of
from trajectory.errors import ConfigurationError

_ANSWER = "answer."
"""What the name of a form's field begins with that is an answer to a question."""
_MESSAGES = 200
_SAID = f"""
SELECT step_id, step_index, position, is_output, role, name, role_in_graph, parts FROM conversation
WHERE trajectory_id = $id AND tenant_id = $tenant
ORDER BY started_at, step_index, step_id, position LIMIT {_MESSAGES}
"""  # noqa: S608 - a number of our own


def _review(asked: PageRequest) -> Mapping[str, Any]:
    running = asked.console.running
    queue = _chosen(asked)
    last = _settle(asked, queue) if asked.sent else None
    one = next_conversation(
        asked.listed,
        queue,
        rater_of(running, asked.user.name),
        last=last,
        also=OUTCOMES.get(asked.query.get("outcome", ""), "true"),
    )
    messages = [] if one is None else _read(asked, one)
    answers = [one for one in messages if one["is_output"] and text_of(one["parts"])]
    return {
        "queues": [
            {"name": one.name, "description": one.metadata.description}
            for one in _shown(running, asked)
        ],
        "queue": queue.name,
        "questions": [{**one.model_dump(), "options": one.options} for one in queue.spec.questions],
        "one_click": queue.one_click is not None,
        "outcomes": [*OUTCOMES],
        "trajectory": one,
        "messages": messages,
        "last_answer": (
            {"step_id": answers[-1]["step_id"], "text": text_of(answers[-1]["parts"])}
            if answers
            else None
        ),
        "settled": last,
        "unlisted_days": asked.unlisted_days,
        "agreement": how_far_raters_agree(asked.listed, queue),
    }


def _shown(running: AppContext, asked: PageRequest) -> list[ReviewQueue]:
    """Return the queues of whose data are shown: a tenant sees no questions about another one."""
    return [
        one
        for one in queues_of(running)
        if asked.reads_every_tenant or one.spec.match.tenant in (None, asked.tenant)
    ]


def _chosen(asked: PageRequest) -> ReviewQueue:
    running = asked.console.running
    queue = queue_of(running, asked.query.get("queue") or SUCCESS_QUEUE.name)
    if queue.name not in {one.name for one in _shown(running, asked)}:
        raise HTTPException(404)
    return queue


def _read(asked: PageRequest, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    name = about["trajectory_id"]
    asked.note("content.read", name, page="/review")
    rows = asked.rows_of(name, _SAID, id=name, tenant=about["tenant_id"])
    return [row | {"parts": parts_of(row["parts"])} for row in rows]


def _settle(asked: PageRequest, queue: ReviewQueue) -> str:
    """Say what the form says of its trajectory; return its id, after which the queue goes on."""
    sent = asked.sent
    name, verdict = sent.get("trajectory", ""), sent.get("verdict", "answer")
    found = asked.rows_of(
        name,
        "SELECT tenant_id, trajectory_id FROM steps WHERE trajectory_id = $id LIMIT 1",
        id=name,
    )
    if not found:
        raise HTTPException(404)
    if verdict == "skip":
        return name
    if verdict not in ("answer", "correct"):
        raise ConfigurationError("a conversation is answered, corrected or skipped")
    given = {
        field.removeprefix(_ANSWER): said
        for field, said in sent.items()
        if field.startswith(_ANSWER)
    }
    if verdict == "correct" and isinstance(queue.one_click, YesNoQuestion):
        # A conversation whose last answer had to be corrected did not go right.
        given.setdefault(queue.one_click.name, "no")
    queue.signals(given)  # what is wrong is told before anything is kept
    if verdict == "correct":
        correct(asked, name)
    who = asked.user.name
    answer(asked.console.running, who, queue, found[0], given, sent.get("comment", ""))
    return name


PAGES = (
    Page(
        path="/review",
        title="Review",
        roles=frozenset({REVIEWER, PRIVACY, ADMIN}),
        senders=frozenset({REVIEWER, ADMIN}),
        template="review.html",
        data=_review,
    ),
)
