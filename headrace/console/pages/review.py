"""Review: one conversation after the other, accepted, rejected, corrected or skipped; how far two raters agree."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from starlette.exceptions import HTTPException

from headrace.console.page import Page, PageRequest
from headrace.console.pages.trajectories import OUTCOMES, correct, parts_of, text_of
from headrace.console.users import ADMIN, PRIVACY, REVIEWER
from headrace.services.reviews import give_feedback, rater_of
from trajectory.errors import ConfigurationError

SIGNAL = "success"
"""Name of the signal that a verdict is."""
_VERDICTS = {"accept": 1.0, "reject": 0.0, "correct": 0.0}
"""A conversation whose last answer had to be corrected did not go right."""
_MESSAGES = 200
_NEXT = """
SELECT t.tenant_id, t.trajectory_id, t.started_at, t.app_id, t.model_served, t.reward, t.success
FROM listed t
WHERE {condition} AND ($last IS NULL OR (t.started_at, t.trajectory_id) < (
    SELECT (started_at, trajectory_id) FROM listed WHERE trajectory_id = $last LIMIT 1))
  AND NOT EXISTS (FROM verdicts s WHERE s.tenant_id = t.tenant_id AND s.trajectory_id = t.trajectory_id
                  AND s.name = $name AND s.source = $rater)
ORDER BY t.started_at DESC, t.trajectory_id DESC LIMIT 1
"""
_SAID = f"""
SELECT step_id, step_index, position, is_output, role, name, role_in_graph, parts FROM conversation
WHERE trajectory_id = $id AND tenant_id = $tenant
ORDER BY started_at, step_index, step_id, position LIMIT {_MESSAGES}
"""  # noqa: S608 - a number of our own
_JUDGED = """
SELECT trajectory_id, source, value FROM verdicts
WHERE name = $name AND value IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY tenant_id, trajectory_id, source ORDER BY recorded_at DESC) = 1
ORDER BY trajectory_id, source LIMIT 20000
"""


def _review(asked: PageRequest) -> Mapping[str, Any]:
    rater = rater_of(asked.console.running, asked.user.name)
    last = _settle(asked, rater) if asked.sent else None
    condition = OUTCOMES.get(asked.query.get("outcome", ""), "true")
    found = asked.listed(_NEXT.format(condition=condition), last=last, name=SIGNAL, rater=rater)
    one = found[0] if found else None
    messages: list[dict[str, Any]] = []
    if one is not None:
        asked.note("content.read", one["trajectory_id"], page="/review")
        name = one["trajectory_id"]
        rows = asked.rows_of(name, _SAID, id=name, tenant=one["tenant_id"])
        messages = [row | {"parts": parts_of(row["parts"])} for row in rows]
    answers = [one for one in messages if one["is_output"] and text_of(one["parts"])]
    return {
        "outcomes": [*OUTCOMES],
        "trajectory": one,
        "messages": messages,
        "last_answer": (
            {"step_id": answers[-1]["step_id"], "text": text_of(answers[-1]["parts"])}
            if answers
            else None
        ),
        "settled": last,
        "agreement": agreement(asked.listed(_JUDGED, name=SIGNAL)),
    }


def _settle(asked: PageRequest, rater: str) -> str:
    """Say what the form says of its trajectory; return its id, after which the queue goes on."""
    sent = asked.sent
    name, verdict = sent.get("trajectory", ""), sent.get("verdict", "")
    rows = asked.rows_of(
        name, "SELECT tenant_id FROM steps WHERE trajectory_id = $id LIMIT 1", id=name
    )
    if not rows:
        raise HTTPException(404)
    if verdict == "correct":
        correct(asked, name)
    if verdict in _VERDICTS:
        comment = sent.get("comment", "").strip()
        item = {
            "trajectory_id": name,
            "name": SIGNAL,
            "value": _VERDICTS[verdict],
            "source_kind": "human_explicit",
            "source": rater,
        }
        give_feedback(
            asked.console.running,
            rows[0]["tenant_id"],
            item | ({"rationale": comment} if comment else {}),
        )
        asked.note("review.judged", name, verdict=verdict, rater=rater)
    elif verdict != "skip":
        raise ConfigurationError("a conversation is accepted, rejected, corrected or skipped")
    return name


def agreement(judged: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return for each two raters how many conversations both judged, and Cohen's κ of them."""
    said: dict[str, dict[str, float]] = defaultdict(dict)
    for row in judged:
        said[row["source"]][row["trajectory_id"]] = row["value"]
    found = []
    for one, other in combinations(sorted(said), 2):
        both = [(said[one][name], said[other][name]) for name in said[one] if name in said[other]]
        if both:
            found.append(
                {"raters": [one, other], "conversations": len(both), "kappa": cohens_kappa(both)}
            )
    return found


def cohens_kappa(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return how far two raters agree beyond chance; None where chance alone would agree always."""
    total = len(pairs)
    alike = sum(one == other for one, other in pairs) / total
    first, second = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    by_chance = sum(first[value] * second[value] for value in first) / total**2
    return None if by_chance == 1 else (alike - by_chance) / (1 - by_chance)


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
