"""Comments of feedback: stored where a known conversation may still be used; numbers count without them."""

from dataclasses import replace
from typing import Any

import pytest

from governance.consent import ConsentEntry, MemoryConsents
from governance.policy.consent import Purpose
from governance.records import GovernedBatch
from governance.redact.pseudonym import subject_id
from governance.stored_content import MemoryKnownContent
from tests.governance.factories import (
    KEY,
    T0,
    assembly,
    assistant,
    call,
    child,
    feedback,
    governor,
    placed,
    user,
)
from trajectory.assembly.result import PlacedFeedback
from trajectory.canonical import JsonObject
from trajectory.exchange import ASKED_BY

SAID = "quibblefast"
FIRST = placed(call(1, [user("hello")], "hi", end_user="jo"), session_hint="b2:monday")


def said(about: str, kind: str, **changes: Any) -> PlacedFeedback:
    one = feedback(about, step=None, target_kind=kind, rationale=SAID)
    return replace(one, **changes)


ON_SESSION = said("monday", "session", target="b2:monday")


def judged(*words: PlacedFeedback, **changes: Any) -> GovernedBatch:
    """Judge feedback on a stored conversation that is no longer remembered."""
    known = MemoryKnownContent()
    known.add(governor(known=known).judge(assembly(FIRST)))
    return governor(known=known, **changes).judge(assembly(feedback=words))


@pytest.mark.parametrize(
    "one",
    [
        ON_SESSION,
        said("chatcmpl-1", "response"),
        said("step1", "step"),
        said(f"{1:032x}", "step"),
        said("t1", "trajectory"),
        said("chatcmpl-1", "response", trajectory_id="t1", step_id="step1"),
    ],
)
def test_a_comment_on_a_stored_conversation_is_kept(one: PlacedFeedback) -> None:
    (signal,) = judged(one).signals
    assert (signal.value, signal.rationale) == (1.0, SAID)


def test_a_comment_on_a_session_of_the_same_batch_is_kept() -> None:
    (signal,) = governor().judge(assembly(FIRST, feedback=[ON_SESSION])).signals
    assert signal.rationale == SAID


@pytest.mark.parametrize(
    "one",
    [
        said("tuesday", "session", target="b2:tuesday"),
        said("many", "group", target="b2:many"),
        said("chatcmpl-2", "response"),
        said("step2", "step"),
    ],
)
def test_of_what_nobody_knows_the_comment_stays_out(one: PlacedFeedback) -> None:
    batch = judged(one)
    (signal,) = batch.signals
    assert (signal.value, signal.rationale) == (1.0, None)
    assert batch.governance[0].reasons == ("signal:kept", "signal:comment-left-out")


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ({"source": "approvals", ASKED_BY: f"{2:032x}"}, True),
        ({"source": "approvals"}, False),  # as any client can say
        ({"source": "approvals:client", ASKED_BY: f"{2:032x}"}, False),
    ],
)
def test_an_approver_s_comment_comes_before_its_call(more: JsonObject, kept: bool) -> None:
    one = said("step2", "step")
    one = replace(one, feedback=replace(one.feedback, body={**one.feedback.body, **more}))
    (signal,) = judged(one).signals
    assert (signal.rationale == SAID) is kept


@pytest.mark.parametrize("one", [ON_SESSION, said("t1", "trajectory", trajectory_id="t1")])
@pytest.mark.parametrize(("words", "kept"), [("train", True), ("all", False)])
@pytest.mark.parametrize("later", [True, False])
def test_who_opted_out_is_not_quoted(
    one: PlacedFeedback, words: str, kept: bool, later: bool
) -> None:
    known = MemoryKnownContent()
    judge = governor(known=known)
    known.add(judge.judge(assembly(FIRST)))
    more = [user("hello"), assistant("hi"), user("more")]
    away = child(call(2, more, headers=[("x-headrace-opt-out", words)]), FIRST)
    batch = judge.judge(assembly(away, feedback=[] if later else [one]))
    if later:
        known.add(batch)
        batch = judge.judge(assembly(feedback=[one]))
    assert (SAID in {signal.rationale for signal in batch.signals}) is kept


@pytest.mark.parametrize("purposes", [["train_sft"], [*Purpose]])
def test_who_withdrew_everything_is_not_quoted(purposes: list[str]) -> None:
    consents, person = MemoryConsents(), subject_id(KEY, "acme", "jo")
    for purpose in purposes:
        consents.add(ConsentEntry("acme", person, purpose, granted=False, recorded_at=T0))
    (signal,) = judged(ON_SESSION, consents=consents).signals
    assert (signal.value, signal.rationale) == (1.0, SAID if len(purposes) == 1 else None)


def test_who_was_erased_is_not_quoted() -> None:
    moment = ON_SESSION.feedback.received_at
    consents = MemoryConsents(erasures={("acme", subject_id(KEY, "acme", "jo")): moment})
    (signal,) = judged(ON_SESSION, consents=consents).signals
    assert signal.rationale is None
