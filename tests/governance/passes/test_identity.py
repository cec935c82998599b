"""Steps say which agent they are of, and which version of its harness they had."""

from dataclasses import replace
from typing import Any

import pytest

from governance.passes.identity import MemoryLineages
from governance.redact.pseudonym import MARK
from tests.governance.factories import assembly, call, governor, placed, system, user
from trajectory.canonical import JsonObject
from trajectory.harness import normal_form
from trajectory.step import Step

PROMPT = "You are the refund agent. Be polite to everybody who asks. It is {}."
TOOL: JsonObject = {"name": "refund", "description": "Refunds.", "input_schema": {"type": "object"}}


def steps(*calls: Any, **settings: Any) -> list[Step]:
    batch = assembly(*(placed(one, trajectory=f"t{at}") for at, one in enumerate(calls)))
    return list(governor(**settings).judge(batch).steps)


def asked(number: int, prompt: str, **changes: Any) -> Any:
    return call(number, context=(system(prompt), user(f"question {number}")), **changes)


def test_neither_the_minute_nor_the_seed_makes_a_new_version() -> None:
    found = steps(*(
        asked(n, PROMPT.format(f"12:0{n}"), sampling={"seed": n, "temperature": 1.0}) for n in range(1, 5)
    ))  # fmt: skip
    assert len({step.harness_id for step in found}) == 4, "the exact hash stays exact"
    assert {(step.harness_name, step.harness_version) for step in found} == {
        (found[0].harness_name, 1)
    }
    assert {step.agent_role for step in found} == {found[0].harness_name}


def test_a_changed_sentence_is_the_next_version_in_later_batches_too() -> None:
    lineages = MemoryLineages()
    one = steps(asked(1, PROMPT.format("12:01")), lineages=lineages)
    two = steps(asked(2, PROMPT.format("12:02").replace("polite", "brief")), lineages=lineages)
    again = steps(asked(3, PROMPT.format("12:03")), lineages=lineages)
    assert [step.harness_version for step in (*one, *two, *again)] == [1, 2, 1]
    assert len({step.harness_name for step in (*one, *two, *again)}) == 1


def test_dialects_share_a_version() -> None:
    chat: JsonObject = {"type": "function", "function": {
        "name": "refund", "description": "Refunds.", "parameters": {"type": "object"}}}  # fmt: skip
    found = steps(
        asked(1, PROMPT, tools=(TOOL,), dialect="anthropic.messages"),
        asked(2, PROMPT, tools=(chat,)),
    )
    assert {step.harness_version for step in found} == {1}
    assert len({step.harness_name for step in found}) == 1


def test_the_agents_own_name_is_redacted_and_names_the_harness() -> None:
    found = steps(
        asked(1, PROMPT, agent="refunds"),
        asked(2, "Something else entirely.", agent="refunds"),
        asked(3, PROMPT, agent="ann@example.com"),
    )
    assert [(one.agent_role, one.harness_name, one.harness_version) for one in found] == [
        ("refunds", "refunds", 1),
        ("refunds", "refunds", 2),
        ("<EMAIL_ADDRESS_abc123>", "<EMAIL_ADDRESS_abc123>", 1),
    ]


def test_a_role_that_is_only_inferred_does_not_name_the_harness() -> None:
    one, other = steps(asked(1, PROMPT, acts_as="refunds"), asked(2, PROMPT))
    assert one.agent_role == "refunds"
    assert one.harness_name == other.harness_name == other.agent_role


def test_a_step_without_a_harness_has_a_role_at_most() -> None:
    (step,) = steps(replace(call(1), agent="planner"))
    assert (step.agent_role, step.harness_name, step.harness_version) == ("planner", None, None)


def test_what_is_held_back_has_no_number() -> None:
    lineages = MemoryLineages()
    held = replace(asked(1, PROMPT), context=(system(PROMPT), user("BOOM")))
    (step,) = steps(held, asked(2, PROMPT.replace("polite", "brief")), lineages=lineages)
    assert step.harness_version == 1


def test_the_marks_of_redaction_are_the_marks_that_normal_forms_leave_out() -> None:
    assert MARK.pattern == normal_form.REDACTION_MARK.pattern


@pytest.mark.parametrize("field", ["agent", "acts_as"])
@pytest.mark.parametrize("number", ["8856781098", "88-5678 1098"])
def test_a_long_number_in_place_of_a_name_leaves_as_its_hash(field: str, number: str) -> None:
    """Nothing around it tells whose number it is: detection cannot know an account from a counter."""
    first, second = steps(replace(call(1), **{field: number}), replace(call(2), **{field: number}))
    assert first.agent_role is not None
    assert first.agent_role.startswith("b2:")
    assert first.agent_role == second.agent_role


def test_a_short_number_is_an_agents_name() -> None:
    (step,) = steps(replace(call(1), agent="12"))
    assert step.agent_role == "12"
