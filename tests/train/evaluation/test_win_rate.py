"""Wins are counted per task; what a suite loses is counted among what was mastered."""

from train.evaluation.evaluate import TaskResult
from train.evaluation.intervals import wilson
from train.evaluation.win_rate import regression_of, wins_of


def results(*outcomes: tuple[str, float, bool]) -> list[TaskResult]:
    attempts: dict[str, int] = {}
    found = []
    for task, reward, success in outcomes:
        attempts[task] = attempts.get(task, -1) + 1
        found.append(TaskResult(task, attempts[task], success, reward))
    return found


def test_attempts_at_one_task_are_one_comparison() -> None:
    before = results(("a", 0.0, False), ("a", 1.0, True), ("b", 1.0, True), ("c", 0.2, False))
    after = results(("a", 1.0, True), ("a", 1.0, True), ("b", 0.0, False), ("c", 0.2, False))
    found = wins_of(before, after, against="shop@0001", confidence=0.95)
    assert (found.wins, found.ties, found.losses) == (1, 1, 1)
    assert found.rate == wilson(1, 2, 0.95)


def test_success_goes_before_reward() -> None:
    before = results(("a", 0.9, False), ("b", 0.1, True))
    after = results(("a", 0.1, True), ("b", 0.2, True))
    found = wins_of(before, after, against="x", confidence=0.95)
    assert (found.wins, found.ties, found.losses) == (2, 0, 0)


def test_models_that_are_alike_give_no_rate() -> None:
    alike = results(("a", 1.0, True), ("b", 0.0, False))
    found = wins_of(alike, alike, against="x", confidence=0.95)
    assert (found.ties, found.rate.low, found.rate.high) == (2, 0.0, 1.0)


def test_what_was_not_mastered_cannot_be_broken() -> None:
    before = results(
        ("a", 1, True), ("b", 0, False), ("c", 1, True), ("c", 1, True), ("c", 0, False)
    )
    after = results(
        ("a", 0, False), ("b", 0, False), ("c", 1, True), ("c", 0, False), ("c", 1, True)
    )
    found = regression_of(before, after, confidence=0.95)
    assert (found.tasks, found.mastered, found.broken) == (3, 2, 1)
    assert found.share.estimate == 0.5


def test_a_later_look_needs_clearer_wins() -> None:
    names = [str(number) for number in range(30)]
    before = results(*((name, 0, False) for name in names))
    after = results(*((name, 1, True) for name in names[:9]), *((n, 0, False) for n in names[9:]))
    first, later = (
        wins_of(before, after, against="x", confidence=0.95, look=look) for look in (1, 30)
    )
    assert first.rate == first.rate_at_look == later.rate
    assert first.rate_at_look.low > 0.5 > later.rate_at_look.low
