"""The practice floor's reward function agrees with its verifier and reads only the customer's words."""

import pytest

from examples.practice.clients import DESK_QUESTION
from examples.practice.prompts import SYSTEM_PROMPT
from examples.practice.rewards import decision, order, success
from examples.practice.shop import money
from examples.practice.tasks import make_tasks
from examples.practice.verifier import decided_rightly, succeeded


def test_every_task_can_be_read_from_its_prompt() -> None:
    for task in make_tasks(5, "train", 200):
        assert order(task.prompt) == (task.account, task.item, task.quantity)


@pytest.mark.parametrize("off", [0, 100, -5])
def test_it_agrees_with_the_verifier(off: int) -> None:
    for task in make_tasks(6, "heldout", 30):
        answer = f"{task.quantity} {task.item}: total {money(task.total_cents + off)}."
        prompt = [
            {"role": "system", "content": SYSTEM_PROMPT},
            {"role": "user", "content": task.prompt},
        ]
        said = success(prompt, [{"role": "assistant", "content": answer}])
        assert said == float(succeeded(task.task_id, answer)) == float(off == 0)


def test_an_episode_that_ends_with_a_tool_has_not_answered() -> None:
    (task,) = make_tasks(7, "train", 1)
    prompt = [{"role": "user", "content": task.prompt}]
    answer = f"total {money(task.total_cents)}"
    assert success(prompt, [{"role": "tool", "content": answer}]) == 0.0
    assert success(prompt, []) == 0.0


@pytest.mark.parametrize("answer", ["Yes", "no.", "Perhaps", ""])
def test_of_a_decision_it_agrees_with_the_verifier(answer: str) -> None:
    for task in make_tasks(6, "heldout", 30):
        prompt = [{"role": "user", "content": f"{task.prompt}\n{DESK_QUESTION}"}]
        said = decision(prompt, [{"role": "assistant", "content": answer}])
        assert said == float(decided_rightly(task.task_id, answer))


def test_without_an_order_nothing_is_scored() -> None:
    assert decision([{"role": "user", "content": "Good morning."}], []) is None
    assert success([{"role": "user", "content": "Good morning."}], []) is None
