"""The work of a reviewer: the next conversation of a queue, an answer to its questions, and how far raters agree.

Statements ask for ``listed`` and ``verdicts``: the console has both in its index, a command makes them of the lake.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from headrace.app.context import AppContext
from headrace.services.agreement import agreement
from headrace.services.review_queues import ReviewQueue
from headrace.services.reviews import give_feedback, rater_of
from lakehouse.read.trajectory_index import VERDICTS

_OF_THE_LAKE = f"WITH listed AS (FROM trajectories), verdicts AS ({VERDICTS})\n"
_NEXT = """
SELECT t.tenant_id, t.trajectory_id, t.started_at, t.app_id, t.model_served, t.reward, t.success
FROM listed t ANTI JOIN (
    SELECT tenant_id, trajectory_id FROM verdicts WHERE source = $rater AND name IN ({required})
    GROUP BY ALL HAVING count(DISTINCT name) = {count}) done USING (tenant_id, trajectory_id)
WHERE {condition} AND ($last IS NULL OR (t.started_at, t.trajectory_id) < (
    SELECT (started_at, trajectory_id) FROM listed WHERE trajectory_id = $last LIMIT 1))
ORDER BY t.started_at DESC, t.trajectory_id DESC LIMIT 1
"""
_JUDGED = """
SELECT tenant_id, trajectory_id, name, source, value, label FROM verdicts
WHERE name IN ({names}) AND (value IS NOT NULL OR label IS NOT NULL)
QUALIFY row_number() OVER (
    PARTITION BY tenant_id, trajectory_id, name, source ORDER BY recorded_at DESC) = 1
ORDER BY trajectory_id, source, name LIMIT 20000
"""


class ListedRows(Protocol):
    """Returns the rows of a statement over ``listed`` and ``verdicts``."""

    def __call__(self, sql: str, /, **parameters: Any) -> list[dict[str, Any]]: ...


def rows_of_lake(app: AppContext) -> ListedRows:
    """Return what asks the whole lake, in every tenant's data."""

    def rows(sql: str, /, **parameters: Any) -> list[dict[str, Any]]:
        found = app.lake.query(_OF_THE_LAKE + sql, parameters or None)
        return list(found.to_pylist())

    return rows


def next_conversation(
    rows: ListedRows, queue: ReviewQueue, rater: str, *, last: str | None = None, also: str = "true"
) -> dict[str, Any] | None:
    """Return the latest conversation of a queue that a rater has not answered; None where none is left.

    Args:
        rows: asks.
        queue: the queue.
        rater: who judges.
        last: the conversation after which it goes on.
        also: a condition of the caller's own.
    """
    condition, parameters = queue.spec.match.condition()
    sql = _NEXT.format(
        required=_quoted(queue.required),
        count=len(queue.required),
        condition=f"{condition} AND ({also})",
    )
    found = rows(sql, rater=rater, last=last, **parameters)
    return found[0] if found else None


def how_far_raters_agree(rows: ListedRows, queue: ReviewQueue) -> list[dict[str, Any]]:
    """Return Cohen's κ of each two raters, for each question of a queue."""
    names = [one.name for one in queue.spec.questions if one.options]
    return agreement(queue, rows(_JUDGED.format(names=_quoted(names)))) if names else []


def answer(
    app: AppContext,
    who: str,
    queue: ReviewQueue,
    about: Mapping[str, Any],
    given: Mapping[str, str],
    comment: str = "",
) -> None:
    """Hand what a person answers to a queue's questions to the gateway.

    Args:
        app: the installation.
        who: the person.
        queue: what was asked.
        about: a trajectory, with its tenant.
        given: each answer by its question's name.
        comment: why; it goes with the first answer that has no words of its own.

    Raises:
        ConfigurationError: an answer is wrong or missing, or the gateway takes none.
        WorkError: no gateway answers.
    """
    rater, said = rater_of(app, who), queue.signals(given)
    # A rater may come back to an earlier answer: without its time it would be a repeated item.
    common = {
        "trajectory_id": about["trajectory_id"],
        "source_kind": "human_explicit",
        "source": rater,
        "observed_at": datetime.now(UTC).isoformat(),
    }
    items: list[dict[str, Any]] = [{**common, **one} for one in said]
    why = next((one for one in items if "rationale" not in one), None)
    if comment.strip() and why is not None:
        why["rationale"] = comment.strip()
    give_feedback(app, about["tenant_id"], items)
    app.audit.append(
        actor=who,
        action="review.judged",
        subject=about["trajectory_id"],
        detail={
            "tenant": about["tenant_id"],
            "queue": queue.name,
            "questions": [one["name"] for one in said],
            "rater": rater,
        },
    )


def _quoted(names: Sequence[str]) -> str:
    """Return names of questions as SQL; they are words by their pattern."""
    return ", ".join(f"'{name}'" for name in names)
