"""Whom a stored call belongs to, told late: it loses what the person takes away, and is found under their name."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from governance.consent import ConsentEntry, MemoryConsents, NoAnswerError
from governance.records import GovernanceRecord, GovernedBatch
from governance.redact.pseudonym import subject_id
from governance.stored_content import MemoryKnownContent, UnansweredCall
from tests.governance.factories import (
    ALL_PURPOSES,
    KEY,
    NOW,
    T0,
    assembly,
    assistant,
    bundle,
    call,
    child,
    governor,
    placed,
    user,
)
from trajectory.assembly.result import Assembly, PlacedPeople

FIRST = placed(call(2, [user("hello")], "hi"))
SECOND = child(call(4, [user("hello"), assistant("hi"), user("mail jo@corp.io")], "ok"), FIRST)
MARIA, KIM = (subject_id(KEY, "acme", name) for name in ("maria7", "kim8"))
NOTHING = assembly()


def told(
    step: str, end_user: str | None = "maria7", *others: str, before: Sequence[str] = ()
) -> Assembly:
    people = PlacedPeople("acme", step, end_user, others, tuple(before))
    return replace(NOTHING, people=(people,))


def stored(**changes: Any) -> tuple[MemoryKnownContent, GovernedBatch]:
    known = MemoryKnownContent()
    batch = governor(known=known, **changes).judge(assembly(FIRST, SECOND))
    known.add(batch)
    return known, batch


def judged(known: MemoryKnownContent, late: Assembly, **changes: Any) -> GovernedBatch:
    batch = governor(known=known, **changes).judge(late)
    known.add(batch)
    return batch


def withdrawn(subject: str, *purposes: str) -> MemoryConsents:
    entries = [
        ConsentEntry("acme", subject, one, granted=False, recorded_at=T0) for one in purposes
    ]
    return MemoryConsents(entries)


def one(batch: GovernedBatch) -> GovernanceRecord:
    (row,) = batch.governance
    return row


def test_a_stored_step_is_named_after_its_user_and_loses_what_they_took_back() -> None:
    known, before = stored()
    row = one(judged(known, told("step2"), consents=withdrawn(MARIA, "train_sft", "share")))
    assert row == replace(
        before.governance[0],
        decided_at=NOW + timedelta(microseconds=1),
        subjects=(MARIA,),
        purposes=tuple(one for one in ALL_PURPOSES if one != "train_sft"),
        reasons=(*before.governance[0].reasons, "consent:withdrawn:subject:train_sft"),
    )
    # Told again, nothing changes.
    assert judged(known, told("step2")).governance == ()


def test_who_is_in_the_content_stays_beside_the_user() -> None:
    known, before = stored()
    row = one(judged(known, told("step4", "maria7", "kim8")))
    assert before.governance[1].subjects
    assert row.subjects == (MARIA, KIM, *before.governance[1].subjects)
    assert (row.purposes, row.redaction_counts) == (ALL_PURPOSES, {"EMAIL_ADDRESS": 1})


def test_the_nearer_user_takes_the_place_of_the_one_before() -> None:
    known, _ = stored()
    judged(known, told("step2", "kim8"), consents=withdrawn(KIM, "eval"))
    row = one(judged(known, told("step2", "maria7", before=["kim8"])))
    assert row.subjects == (MARIA,)
    assert "eval" not in row.purposes  # nothing is given back
    row = one(judged(known, told("step2", None, before=["maria7"])))
    assert row.subjects == ()
    # Where redaction found something, the one before may be in it.
    judged(known, told("step4", "kim8"))
    assert {MARIA, KIM} <= {*one(judged(known, told("step4", before=["kim8"]))).subjects}


def test_with_nothing_left_the_conversation_obeys_too() -> None:
    known, _ = stored()
    row, _ = judged(known, told("step2"), consents=withdrawn(MARIA, *ALL_PURPOSES)).governance
    assert row.purposes == ()
    assert known.withheld("acme", ["t1"]) == {"t1": {*ALL_PURPOSES}}


def test_what_a_service_refuses_in_part_the_conversation_obeys_too() -> None:
    known, _ = stored()
    no = ConsentEntry("acme", MARIA, "eval", granted=False, recorded_at=T0, at_capture=True)
    rows = judged(known, told("step2"), consents=MemoryConsents([no])).governance
    left = tuple(one for one in ALL_PURPOSES if one != "eval")
    assert {row.step_id: row.purposes for row in rows} == {"step2": left, "step4": left}
    assert known.withheld("acme", ["t1"]) == {"t1": {"eval"}}
    assert judged(known, told("step2"), consents=MemoryConsents([no])).governance == ()


def test_what_belongs_to_an_erased_person_is_due_at_once(tmp_path: Path) -> None:
    gone = MemoryConsents(erasures={("acme", MARIA): NOW})
    known, _ = stored()
    row, later = judged(known, told("step2"), consents=gone).governance
    assert (row.purposes, row.expires_at, row.subjects) == ((), NOW, (MARIA,))
    assert (later.step_id, later.purposes) == ("step4", ())
    assert "consent:erased" in row.reasons
    earlier = MemoryConsents(erasures={("acme", MARIA): T0})
    known, before = stored()
    row = one(judged(known, told("step2"), consents=earlier))
    assert (row.purposes, row.expires_at) == (ALL_PURPOSES, before.governance[0].expires_at)
    held = bundle(
        tmp_path,
        retention="{classes: {a: 9}, default: a, "
        "legal_holds: [{name: case, match: {tenant: acme}, reference: R1}]}",
    )
    known, before = stored(policy=held)
    row = one(judged(known, told("step2"), consents=gone, policy=held))
    assert (row.purposes, row.expires_at) == (ALL_PURPOSES, before.governance[0].expires_at)


class Service(MemoryConsents):
    """A consent service that answers about one person, says nothing, or fails."""

    def __init__(self, *refused: str, fails: bool = False, silent: bool = False) -> None:
        super().__init__()
        self.refused, self.fails, self.silent = refused, fails, silent
        self.asked: list[str] = []

    def ask(self, tenant_id: str, end_user: str, subject: str) -> None:
        self.asked.append(end_user)
        if self.silent:
            raise NoAnswerError
        if self.fails:
            raise OSError
        for purpose in self.refused:
            self.add(ConsentEntry(tenant_id, subject, purpose, granted=False, recorded_at=T0))


def test_a_consent_service_is_asked_and_without_an_answer_nothing_is_allowed() -> None:
    known, _ = stored()
    service = Service("eval")
    row = one(judged(known, told("step2", "maria7", "kim8"), consents=service))
    assert service.asked == ["maria7", "kim8"]
    assert {*ALL_PURPOSES} - {*row.purposes} == {"eval"}
    row = one(judged(known, told("step4"), consents=Service(fails=True)))
    assert row.purposes == ()
    assert "error:OSError" in row.reasons


def test_calls_of_this_batch_and_calls_that_are_not_stored_get_no_second_decision() -> None:
    known = MemoryKnownContent()
    fresh = placed(call(2, [user("hello")], "hi", end_user="maria7"))
    whole = replace(assembly(fresh), people=told("step2").people)
    assert [row.step_id for row in judged(known, whole).governance] == ["step2"]
    opted_out = placed(
        call(9, [user("x")], headers=[("x-headrace-opt-out", "all")]), trajectory="t9"
    )
    assert one(judged(known, assembly(opted_out))).decision == "drop"
    assert judged(known, told("step9")).governance == ()
    assert judged(known, told("unknown")).governance == ()


def test_a_grant_that_is_required_counts_for_the_user_who_is_told(tmp_path: Path) -> None:
    policy = bundle(
        tmp_path,
        consent="{key_purposes: true, key_legal_basis: consent, subject_grant_required: [eval]}",
    )
    known, before = stored(policy=policy)
    assert "eval" not in before.governance[0].purposes
    granted = MemoryConsents([ConsentEntry("acme", MARIA, "eval", granted=True, recorded_at=T0)])
    row = one(judged(known, told("step2"), policy=policy, consents=granted))
    assert "eval" not in row.purposes  # nothing is given back
    assert row.subjects == (MARIA,)


def answered(
    known: MemoryKnownContent, batch: GovernedBatch, service: Service
) -> dict[str, GovernanceRecord]:
    rows = governor(known=known, consents=service).told(batch.awaited)
    known.add(GovernedBatch(governance=rows))
    return {row.step_id: row for row in rows}


def test_without_an_answer_the_step_may_not_be_used_until_there_is_one() -> None:
    known, before = stored()
    batch = judged(known, told("step2"), consents=Service(silent=True))
    row = one(batch)
    assert (row.decision, row.purposes, row.subjects) == ("quarantine", ALL_PURPOSES, (MARIA,))
    assert (batch.awaited, batch.answered) == (told("step2").people, ())
    waits = UnansweredCall("step2", row.started_at, is_given_up=False)
    assert known.unanswered("acme", ["t1"]) == {"t1": [waits]}
    assert judged(known, told("step2"), consents=Service(silent=True)).governance == ()
    assert answered(known, batch, Service(silent=True)) == {}
    (again,) = answered(known, batch, Service("eval")).values()
    assert again.decision == before.governance[0].decision
    assert again.purposes == tuple(purpose for purpose in ALL_PURPOSES if purpose != "eval")
    assert again.reasons == (
        *before.governance[0].reasons,
        "consent:withdrawn:subject:eval",
    )
    assert again.decided_at > row.decided_at > before.governance[0].decided_at
    assert known.unanswered("acme", ["t1"]) == {}
    assert answered(known, batch, Service("eval")) == {}


def test_a_step_waits_for_the_answer_about_whom_it_names_beside_its_user() -> None:
    known, before = stored()
    batch = judged(known, told("step2", None, "kim8"), consents=Service(silent=True))
    assert (one(batch).decision, one(batch).purposes) == ("quarantine", ALL_PURPOSES)
    assert batch.awaited == told("step2", None, "kim8").people
    other = judged(known, told("step2", "maria7"), consents=Service())
    assert (one(other).decision, other.answered) == ("quarantine", ())
    (again,) = answered(known, batch, Service("eval")).values()
    assert again.decision == before.governance[0].decision
    assert {*ALL_PURPOSES} - {*again.purposes} == {"eval"}


def test_what_is_taken_while_a_step_waits_is_not_given_back() -> None:
    known, _ = stored()
    batch = judged(known, told("step4"), consents=Service(silent=True))
    opts_out = placed(call(3, [user("x")], headers=[("x-headrace-opt-out", "train")]))
    judged(known, assembly(opts_out))
    assert answered(known, batch, Service())["step4"].purposes == ("debug", "eval")


def test_another_span_that_names_no_user_answers_nothing() -> None:
    known, _ = stored()
    judged(known, told("step2"), consents=Service(silent=True))
    batch = judged(known, told("step2", None, "kim8"))
    assert (one(batch).decision, one(batch).subjects) == ("quarantine", (KIM, MARIA))
    assert (batch.awaited, batch.answered) == ((), ())
    batch = judged(known, told("step2", None, before=["maria7"]))
    assert (one(batch).decision, one(batch).subjects) == ("allow", (KIM,))
    assert batch.answered == (("acme", "step2"),)


def test_who_allows_nothing_takes_later_stored_calls_of_the_conversation_too() -> None:
    known, _ = stored()
    rows = judged(known, told("step2"), consents=withdrawn(MARIA, *ALL_PURPOSES)).governance
    assert {row.step_id: row.purposes for row in rows} == {"step2": (), "step4": ()}
    known, _ = stored()
    rows = judged(known, told("step4"), consents=withdrawn(MARIA, *ALL_PURPOSES)).governance
    assert [row.step_id for row in rows] == ["step4"]
    known, _ = stored()
    batch = judged(known, told("step2"), consents=Service(silent=True))
    found = answered(known, batch, Service(*ALL_PURPOSES))
    assert {step: row.purposes for step, row in found.items()} == {"step2": (), "step4": ()}


def test_a_call_of_the_batch_that_tells_of_its_conversations_user_loses_what_they_take() -> None:
    known = MemoryKnownContent()
    known.add(governor(known=known).judge(assembly(FIRST)))
    both = replace(assembly(SECOND), people=told("step2").people)
    batch = judged(known, both, consents=withdrawn(MARIA, *ALL_PURPOSES))
    assert {row.step_id: row.purposes for row in batch.governance} == {"step2": (), "step4": ()}


def test_all_who_are_told_of_one_step_in_a_batch_count() -> None:
    known, _ = stored()
    both = replace(NOTHING, people=(*told("step2").people, *told("step2", None, "kim8").people))
    assert one(judged(known, both)).subjects == (MARIA, KIM)


def test_a_decision_holds_although_the_clock_was_ahead_at_the_one_before() -> None:
    known, before = stored(clock=lambda: NOW + timedelta(days=300))
    row = one(judged(known, told("step2"), consents=withdrawn(MARIA, "eval")))
    assert row.decided_at > before.governance[0].decided_at
