"""How far people who judged the same conversations agree: Cohen's κ, question by question."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

from headrace.services.review_queues import Question, ReviewQueue, ScaleQuestion


def agreement(queue: ReviewQueue, judged: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return for each question, of each two raters, how many conversations both judged, and κ of them.

    Args:
        queue: what was asked.
        judged: the last answer of each rater to each question about each conversation.
    """
    found = []
    for question in queue.spec.questions:
        said: dict[str, dict[tuple[str, str], Any]] = defaultdict(dict)
        for row in judged:
            if row["name"] == question.name:
                about = (row["tenant_id"], row["trajectory_id"])
                said[row["source"]][about] = row["label"] if row["value"] is None else row["value"]
        for one, other in combinations(sorted(said), 2):
            both = [
                (said[one][name], said[other][name]) for name in said[one] if name in said[other]
            ]
            if both:
                row = {"raters": [one, other], "conversations": len(both)}
                found.append({"question": question.name, **row, "kappa": kappa_of(question, both)})
    return found


def kappa_of(question: Question, pairs: Sequence[tuple[Any, Any]]) -> float | None:
    """Return κ of the answers to a question; on a scale, points that are far apart count more."""
    if isinstance(question, ScaleQuestion):
        return cohens_kappa(pairs, lambda one, other: (one - other) ** 2)
    return cohens_kappa(pairs, lambda one, other: float(one != other))


def cohens_kappa(
    pairs: Sequence[tuple[Any, Any]], apart: Callable[[Any, Any], float]
) -> float | None:
    """Return how far two raters agree beyond chance; None where chance alone would agree always.

    Args:
        pairs: what both said of each thing.
        apart: how far two answers are from each other.
    """
    first, second = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    by_chance = sum(
        first[one] * second[other] * apart(one, other) for one in first for other in second
    ) / len(pairs)
    return None if by_chance == 0 else 1 - sum(apart(*pair) for pair in pairs) / by_chance
