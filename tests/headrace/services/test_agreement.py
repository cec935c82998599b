"""Cohen's kappa of each question: as scikit-learn has it, of what both raters judged."""

import random
from typing import Any

import pytest

from headrace.services.agreement import agreement, cohens_kappa, kappa_of
from headrace.services.review_queues import ReviewQueue

QUEUE = ReviewQueue.model_validate({
    "apiVersion": "headrace/v1", "kind": "ReviewQueue", "metadata": {"name": "shop"},
    "spec": {"questions": [
        {"name": "success", "ask": "?", "type": "yes_no"},
        {"name": "fault", "ask": "?", "type": "choice", "choices": ["nothing", "tool", "facts"]},
        {"name": "effort", "ask": "?", "type": "scale", "low": 1, "high": 5},
    ]},
})  # fmt: skip
SUCCESS, FAULT, EFFORT = QUEUE.spec.questions


@pytest.mark.parametrize(
    ("one", "other", "kappa"),
    [
        ([1, 1, 0, 0, 1], [1, 0, 0, 0, 1], 0.6153846153846154),
        ([1, 0, 1, 0], [0, 1, 0, 1], -1.0),
        ([1, 1, 1], [1, 0, 1], 0.0),
    ],
)
def test_kappa_is_agreement_beyond_chance(one: list[int], other: list[int], kappa: float) -> None:
    assert kappa_of(SUCCESS, [*zip(one, other, strict=True)]) == pytest.approx(kappa)


def said_by_two(seed: int, answers: list[Any]) -> list[tuple[Any, Any]]:
    """Return forty answers of two raters who often agree."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    one = [draw.choice(answers) for _ in range(40)]
    return [(said, said if draw.random() < 0.6 else draw.choice(answers)) for said in one]


@pytest.mark.parametrize(
    ("seed", "kappa"),
    [
        (0, 0.42992874109263657),
        (1, 0.3467336683417085),
        (2, 0.201995012468828),
        (3, 0.10224438902743149),
    ],
)
def test_kappa_of_yes_and_no_is_what_scikit_learn_says(seed: int, kappa: float) -> None:
    """``cohen_kappa_score`` of scikit-learn 1.9.1, of the same forty verdicts."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    one = [draw.randint(0, 1) for _ in range(40)]
    other = [said if draw.random() < 0.7 else 1 - said for said in one]
    assert kappa_of(SUCCESS, [*zip(one, other, strict=True)]) == pytest.approx(kappa, rel=1e-12)


@pytest.mark.parametrize(
    ("question", "answers", "seed", "kappa"),
    [
        (FAULT, ["nothing", "tool", "facts"], 0, 0.595959595959596),
        (FAULT, ["nothing", "tool", "facts"], 1, 0.47614593077642664),
        (FAULT, ["nothing", "tool", "facts"], 2, 0.4780987884436161),
        (EFFORT, [1, 2, 3, 4, 5], 0, 0.47590361445783136),
        (EFFORT, [1, 2, 3, 4, 5], 1, 0.4593023255813954),
        (EFFORT, [1, 2, 3, 4, 5], 2, 0.42666666666666664),
        (EFFORT, [1, 2, 5], 7, 0.6886486486486487),
    ],
)
def test_kappa_of_choices_and_scales_is_what_scikit_learn_says(
    question: Any, answers: list[Any], seed: int, kappa: float
) -> None:
    """The same; of scales with ``weights="quadratic"`` and the labels 1 to 5."""
    assert kappa_of(question, said_by_two(seed, answers)) == pytest.approx(kappa, rel=1e-12)


@pytest.mark.parametrize("question", [SUCCESS, FAULT, EFFORT])
def test_where_chance_alone_would_agree_always_there_is_no_kappa(question: Any) -> None:
    assert kappa_of(question, [(1.0, 1.0), (1.0, 1.0)]) is None
    assert cohens_kappa([("a", "b")], lambda one, other: float(one != other)) == 0.0


def test_raters_are_compared_question_by_question_where_both_judged() -> None:
    def row(
        name: str, rater: int, question: str, said: Any, tenant: str = "acme"
    ) -> dict[str, Any]:
        is_number = isinstance(said, float)
        return {
            "tenant_id": tenant, "trajectory_id": name, "source": f"rater-{rater}", "name": question,
            "value": said if is_number else None, "label": None if is_number else said,
        }  # fmt: skip

    rows = [
        row("a", 1, "success", 1.0), row("a", 2, "success", 1.0), row("b", 1, "success", 0.0),
        row("b", 2, "success", 0.0), row("c", 1, "success", 0.0), row("c", 2, "success", 1.0, "globex"),
        row("a", 1, "fault", "tool"), row("a", 2, "fault", "facts"),
        row("b", 1, "fault", "facts"), row("b", 2, "fault", "tool"), row("a", 1, "effort", 2.0),
    ]  # fmt: skip
    raters = {"raters": ["rater-1", "rater-2"], "conversations": 2}
    assert agreement(QUEUE, rows) == [
        {"question": "success", **raters, "kappa": 1.0},
        {"question": "fault", **raters, "kappa": -1.0},
    ]
