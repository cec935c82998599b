"""Near-duplicates while governing: who goes, who stays, and that attempts at one task all stay."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from governance.governor import Governor
from governance.near.register import NearRegister, NearStep
from governance.policy import PolicyBundle
from governance.policy.dedup import NearDuplicates
from governance.policy.quality import QualitySpec
from governance.quality import RowGate
from governance.records import GovernedBatch
from governance.stored_content import MemoryKnownContent
from tests.governance.factories import (
    NOW,
    assembly,
    assistant,
    bundle,
    call,
    child,
    governor,
    placed,
    system,
    user,
)
from tests.lakehouse.power import Power
from trajectory.assembly.result import PlacedCall, PlacedLink
from trajectory.message import Message

QUESTION = (
    "Please tell me what twelve brass lamps for the corridor of the old house by the harbour cost, "
    "delivered before the end of the month, with the dimmers that we talked about on the phone{}"
)
ANSWER = "Twelve lamps with dimmers cost 480, delivery before the end of the month is included{}"


def lamps(number: int, end: str = ".", answer: str | None = None, **changes: Any) -> PlacedCall:
    said = ANSWER.format(end) if answer is None else answer
    context = [system(f"rules {number}"), user(QUESTION.format(end))]
    return placed(call(number, context, said), trajectory=f"t{number}", **changes)


@pytest.fixture
def policy(tmp_path: Path) -> PolicyBundle:
    return bundle(tmp_path, dedup="{near_duplicates: {}}")


def keeping(folder: Path, rule: str, **more: str) -> PolicyBundle:
    said = ", ".join(f"{name}: {value}" for name, value in {"keep": rule, **more}.items())
    return bundle(folder, dedup=f"{{near_duplicates: {{{said}}}}}")


class RememberingGovernor:
    """A governor with the memory of what it stored."""

    def __init__(self, policy: PolicyBundle, **changes: Any) -> None:
        self.known = MemoryKnownContent()
        self.governor: Governor = governor(policy, known=self.known, **changes)

    def add(self, *calls: PlacedCall, **more: Any) -> GovernedBatch:
        batch = self.governor.judge(assembly(*calls, **more))
        self.known.add(batch)
        self.governor.stored(batch)
        return batch


def stored(batch: GovernedBatch) -> list[str]:
    return [step.step_id for step in batch.steps]


def test_it_is_off_unless_policy_asks() -> None:
    assert stored(RememberingGovernor(bundle()).add(lamps(1), lamps(2, "!"))) == ["step1", "step2"]


def test_a_near_duplicate_leaves_a_line_and_the_better_ones_name(policy: PolicyBundle) -> None:
    lake = RememberingGovernor(policy)
    assert stored(lake.add(lamps(1))) == ["step1"]
    link = PlacedLink("acme", "fork", "step1", "step2", "t2", NOW, "prefix")
    batch = lake.add(lamps(2, "!"), lamps(3, " please."), links=[link])
    assert (batch.steps, batch.messages, batch.links) == ((), (), ())
    assert {row.disposition for row in batch.exchanges} == {"duplicate"}
    assert {row.reasons for row in batch.exchanges} == {("dedup:near-duplicate",)}
    assert {row.decision for row in batch.governance} == {"drop"}
    assert all("dedup:same-as:step1" in row.reasons for row in batch.governance)
    assert all(row.purposes == () and row.subjects == () for row in batch.governance)


def test_within_one_batch_the_first_stays(policy: PolicyBundle) -> None:
    assert stored(RememberingGovernor(policy).add(lamps(1), lamps(2, "!"), lamps(3, "?"))) == [
        "step1"
    ]


def test_another_answer_to_almost_the_same_question_stays(policy: PolicyBundle) -> None:
    other = "I cannot say, the price list of this supplier ends in the year before last."
    assert len(stored(RememberingGovernor(policy).add(lamps(1), lamps(2, "!", other)))) == 2


def test_attempts_at_one_task_and_steps_of_one_trajectory_all_stay(policy: PolicyBundle) -> None:
    lake = RememberingGovernor(policy)
    attempts = [lamps(n, "." * n, group_id="task-1") for n in range(1, 4)]
    assert len(stored(lake.add(*attempts))) == 3
    assert stored(lake.add(lamps(5, "?", group_id="task-2"))) == []
    alone = RememberingGovernor(policy)
    assert len(stored(alone.add(lamps(1), replace(lamps(2, "!"), trajectory_id="t1")))) == 2


def test_tenants_never_meet_and_apps_only_where_policy_says(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    def of(number: int, **client: str) -> PlacedCall:
        context = [user(QUESTION.format("!" * number))]
        return placed(call(number, context, ANSWER, client=client), trajectory=f"t{number}")

    calls = [of(1), of(2, tenant_id="globex"), of(3, app_id="desk"), of(4)]
    by_tenant = RememberingGovernor(keeping(tmp_path / "a", "earliest")).add(*calls)
    by_app = RememberingGovernor(keeping(tmp_path / "b", "earliest", scope="app")).add(*calls)
    assert stored(by_tenant) == ["step1", "step2"]
    assert stored(by_app) == ["step1", "step2", "step3"]


@pytest.mark.parametrize("rule", ["latest", "longest"])
def test_a_better_one_takes_the_place_of_a_stored_one(tmp_path: Path, rule: str) -> None:
    lake = RememberingGovernor(keeping(tmp_path, rule))
    first = lake.add(lamps(1))
    batch = lake.add(lamps(2, " please."))
    assert stored(batch) == ["step2"]
    (before,) = first.governance
    (new, old) = batch.governance
    assert (new.step_id, new.decision) == ("step2", "allow")
    assert (old.step_id, old.decision, old.decided_at) == (
        "step1",
        "drop",
        before.decided_again(NOW),
    )
    assert old.reasons[-2:] == ("dedup:near-duplicate", "dedup:same-as:step2")
    assert (old.expires_at, old.subjects) == (before.expires_at, before.subjects)
    assert old.redaction_counts == {}
    worse = lake.add(lamps(3 if rule == "longest" else 0))
    assert stored(worse) == []
    assert "dedup:same-as:step2" in worse.governance[0].reasons


def test_a_child_of_one_that_went_carries_its_whole_conversation(policy: PolicyBundle) -> None:
    lake = RememberingGovernor(policy)
    lake.add(lamps(1))
    gone = lamps(2, "!")
    context: list[Message] = [*gone.call.context, assistant(ANSWER.format("!")), user("Which?")]
    going_on = child(call(3, context, "The small ones of the catalogue's second page."), gone)
    batch = lake.add(gone, going_on)
    (step,) = batch.steps
    assert (step.step_id, step.context_keep, len(step.context_message_ids)) == ("step3", 0, 4)
    assert batch.quarantine == ()


def test_what_a_later_call_may_name_is_never_left_out(policy: PolicyBundle) -> None:
    def named(number: int) -> PlacedCall:
        one = lamps(number, "!" * number)
        return replace(one, call=replace(one.call, dialect="openai.responses"))

    assert len(stored(RememberingGovernor(policy).add(named(1), named(2)))) == 2


def test_when_the_gate_holds_the_better_one_the_other_stands_in(policy: PolicyBundle) -> None:
    cut = {"expectations": [{"name": "whole", "expectation": "expect_column_values_to_be_in_set",
                             "column": "finished", "value_set": [1]}]}  # fmt: skip
    lake = RememberingGovernor(policy, gate=RowGate(QualitySpec.model_validate(cut)))
    held = lamps(1)
    held = replace(held, call=replace(held.call, finish_reason=None))
    batch = lake.add(held, lamps(2, "!"))
    assert stored(batch) == ["step2"]
    assert [row.step_id for row in batch.quarantine] == ["step1"]


def test_what_the_register_says_of_itself_outlasts_a_power_cut(tmp_path: Path) -> None:
    """The note would name steps that nothing is compared with any more."""
    root = tmp_path / "near"
    root.mkdir()
    with Power(root) as power:
        register = NearRegister(NearDuplicates(), root / "one")
        register.find([NearStep("acme", "app", "step", ("t",), NOW, "What do lamps cost?", "480.")])
        register.keep({"step"}, NOW)
    power.cut()
    assert NearRegister.reopen(root / "one").seen == NOW
    assert any(path.is_dir() for path in (root / "one").iterdir()), "the tenant's index"


def test_what_was_erased_meanwhile_stands_for_nothing(
    policy: PolicyBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = RememberingGovernor(policy)
    lake.add(lamps(1))
    monkeypatch.setattr(lake.known, "known_steps", lambda _tenant, _ids: set())
    assert stored(lake.add(lamps(2, "!"))) == ["step2"]


def test_a_batch_that_was_not_stored_is_not_compared_with(policy: PolicyBundle) -> None:
    lake = RememberingGovernor(policy)
    lake.governor.judge(assembly(lamps(1)))
    assert stored(lake.add(lamps(1))) == ["step1"]
    assert stored(lake.add(lamps(1))) == ["step1"]


INSTRUCTION = "Read the ticket and answer with one word: refund, delivery, defect or account. " * 30
GOODS = ("lamp", "chair", "desk", "sofa", "rug", "towel", "mirror", "clock")
PROBLEMS = ("arrived broken", "never came", "has the wrong colour", "was billed twice")


@pytest.mark.parametrize("template", ["before", "behind", "around"])
def test_tickets_behind_one_long_instruction_are_not_alike(
    policy: PolicyBundle, template: str
) -> None:
    before = INSTRUCTION if template != "behind" else ""
    behind = INSTRUCTION if template != "before" else ""
    words = ("refund", "delivery", "defect", "account")
    tickets = [
        f"Ticket {at}: the {good} {problem}."
        for at, (good, problem) in enumerate(product(GOODS, PROBLEMS))
    ]
    calls = [
        placed(call(at, [user(before + said + behind)], words[at % 4]), trajectory=f"t{at}")
        for at, said in enumerate(tickets, 1)
    ]
    lake = RememberingGovernor(policy)
    assert len(stored(lake.add(*calls[:20]))) + len(stored(lake.add(*calls[20:]))) == len(tickets)
    again = before + tickets[4].replace(".", "!") + behind
    repeated = placed(call(99, [user(again)], words[1]), trajectory="t99")
    # What stands before a long end is known by its hash alone, and so is what differs there.
    assert (stored(lake.add(repeated)) == []) == (template != "around")


def test_long_conversations_that_end_alike_are_told_apart_by_their_beginning(
    policy: PolicyBundle,
) -> None:
    end = [assistant("Noted."), user("And now the whole list again, please. " * 80)]
    first = placed(call(1, [user("A lamp of brass"), *end], "Yes."), trajectory="t1")
    other = placed(call(2, [user("A sofa in green"), *end], "Yes."), trajectory="t2")
    same = placed(call(3, [user("A lamp of brass"), *end], "Yes."), trajectory="t3")
    assert stored(RememberingGovernor(policy).add(first, other, same)) == ["step1", "step2"]


def test_a_near_duplicate_that_a_legal_hold_keeps_is_held_again(policy: PolicyBundle) -> None:
    near = lamps(2, "!")
    whole = replace(near.call.exchange, released_of="f" * 32)
    near = replace(near, call=replace(near.call, exchange=whole))
    work = assembly(lamps(1), near)
    batch = governor(policy).judge(work, is_on_hold=lambda _: True)
    assert (stored(batch), [row.step_id for row in batch.quarantine]) == (["step1"], ["step2"])
