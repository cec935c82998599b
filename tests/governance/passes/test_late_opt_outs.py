"""An opt-out that comes late takes from stored steps what it would have taken in the order of time."""

from dataclasses import replace

from governance.records import GovernedBatch
from governance.stored_content import MemoryKnownContent
from tests.governance.factories import (
    ALL_PURPOSES,
    NOW,
    assembly,
    assistant,
    call,
    child,
    feedback,
    governor,
    placed,
    user,
)
from trajectory.assembly.placer import RESUMED
from trajectory.assembly.result import PlacedCall, PlacedLink

OPT_OUT = {"headers": [("x-headrace-opt-out", "train")]}
FIRST = placed(call(2, [user("hello")], "hi"))
SECOND = child(call(4, [user("hello"), assistant("hi"), user("more")], "ok"), FIRST)
BESIDE = placed(call(5, [user("hello")]), trajectory="t2")


def judged(known: MemoryKnownContent, *calls: PlacedCall) -> GovernedBatch:
    batch = governor(known=known).judge(assembly(*calls))
    known.add(batch)
    return batch


def purposes(batch: GovernedBatch) -> dict[str, tuple[str, ...]]:
    return {row.step_id: row.purposes for row in batch.governance}


def test_later_steps_get_a_decision_without_what_was_taken_away() -> None:
    known = MemoryKnownContent()
    before = judged(known, FIRST, SECOND, BESIDE).governance[1]
    late = judged(known, placed(call(3, [user("I have diabetes")], **OPT_OUT)))
    assert purposes(late) == {"step3": ("debug", "eval"), "step4": ("debug", "eval")}
    (row,) = (one for one in late.governance if one.step_id == "step4")
    after = before.decided_again(NOW)
    assert row == replace(before, decided_at=after, purposes=("debug", "eval"), reasons=row.reasons)
    assert after > before.decided_at
    assert row.reasons[: len(before.reasons)] == before.reasons
    assert "consent:conversation:train_rl" in row.reasons
    # It is done once, and an earlier call that says nothing takes nothing away.
    again = judged(known, placed(call(3, [user("I have diabetes")], **OPT_OUT), "step3b"))
    assert "step4" not in purposes(again)
    assert purposes(judged(known, placed(call(1, [user("x")]))))["step1"] == ("debug", "eval")
    assert purposes(known_rows(known)) == {"step2": ALL_PURPOSES}


def known_rows(known: MemoryKnownContent) -> GovernedBatch:
    return GovernedBatch(governance=tuple(known.decisions("acme", ["step2"])))


def test_feedback_keeps_its_own_decision() -> None:
    known = MemoryKnownContent()
    said = feedback(step="step4", rationale="thank jo@corp.io")
    batch = governor(known=known).judge(assembly(FIRST, SECOND, feedback=[said]))
    known.add(batch)
    assert len(batch.governance) == 3
    late = judged(known, placed(call(3, [user("I have diabetes")], **OPT_OUT)))
    assert purposes(late).keys() == {"step3", "step4"}


def test_a_retry_that_is_a_repetition_counts_too() -> None:
    known = MemoryKnownContent()
    judged(known, FIRST, SECOND)
    late = judged(known, placed(call(3, [user("hello")], "hi", **OPT_OUT)))
    assert [row.disposition for row in late.exchanges] == ["duplicate"]
    assert purposes(late)["step4"] == ("debug", "eval")


def handed_on(number: int, source: PlacedCall, trajectory: str) -> tuple[PlacedCall, PlacedLink]:
    """Return the first call of a session that stands on another one, with its link."""
    one = placed(
        call(number, [user(trajectory)]),
        trajectory=trajectory,
        source_trajectory_id=source.trajectory_id,
    )
    at = one.call.exchange.started_at
    return one, PlacedLink(
        "acme", RESUMED, source.step_id, one.step_id, trajectory, at, "client:x-headrace-session"
    )


def test_sessions_that_stand_on_the_conversation_lose_it_too_if_they_began_later() -> None:
    known = MemoryKnownContent()
    early, to_early = handed_on(3, FIRST, "t3")
    other, to_other = handed_on(6, SECOND, "t4")
    third, to_third = handed_on(7, other, "t5")
    links = [to_early, to_other, to_third]
    batch = assembly(FIRST, early, SECOND, other, third, links=links)
    known.add(governor(known=known).judge(batch))
    late = purposes(judged(known, placed(call(5, [user("I have diabetes")], **OPT_OUT))))
    assert late == dict.fromkeys(("step5", "step6", "step7"), ("debug", "eval"))


def test_what_stands_on_the_conversation_already_without_it_is_decided_once() -> None:
    known = MemoryKnownContent()
    judged(known, placed(call(2, [user("hello")], "hi", **OPT_OUT)))
    one, link = handed_on(3, FIRST, "t3")
    known.add(governor(known=known).judge(assembly(one, links=[link])))
    again = judged(known, placed(call(1, [user("Hello.")], **OPT_OUT)))
    assert purposes(again) == {"step1": ("debug", "eval")}
