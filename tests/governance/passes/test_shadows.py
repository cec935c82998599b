"""A copy of a call has what its call has, whichever rules its own model would meet, and waits for that call."""

from dataclasses import replace
from pathlib import Path

import pytest

from governance.consent import MemoryConsents, NoAnswerError
from governance.records import GovernedBatch
from governance.stored_content import MemoryKnownContent
from tests.governance.factories import (
    ALL_PURPOSES,
    assembly,
    bundle,
    call,
    child,
    governor,
    placed,
    user,
)
from trajectory.assembly.result import PlacedCall, PlacedLink, PlacedPeople

RULE = "{name: brief, match: {model: 'tried*'}, class: brief}"
HOLD = "{name: case, match: {model: 'small*'}, reference: R1}"
RETENTION = f"{{classes: {{brief: 9000, long: 9999}}, default: long, rules: [{RULE}], legal_holds: [{HOLD}]}}"
CONSENT = "{limits: [{name: no-rl, match: {model: 'small*'}, never: [train_rl]}]}"
LESS = tuple(purpose for purpose in ALL_PURPOSES if purpose != "train_rl")

ROOT = placed(call(1, [user("I am jo@corp.io")], "hi"))
LIVE = child(call(2, [*ROOT.call.context, user("more")], "ok"), ROOT)


def copy_of(live: PlacedCall, number: int) -> PlacedCall:
    one = call(number, [user("more")], "yes", model_served="tried-2")
    one = replace(one, exchange=replace(one.exchange, shadow_of=live.call.exchange.exchange_id))
    return placed(one, trajectory=f"shadow{number}", role_in_graph="shadow", key_source="shadow")


def link_of(live: PlacedCall, copy: PlacedCall) -> PlacedLink:
    at = copy.call.exchange.started_at
    return PlacedLink(
        "acme", "shadow", live.step_id, copy.step_id, copy.trajectory_id, at, "shadow"
    )


def judged(folder: Path, known: MemoryKnownContent, *calls: PlacedCall) -> GovernedBatch:
    policy = bundle(folder, retention=RETENTION, consent=CONSENT)
    links = [link_of(LIVE, one) for one in calls if one.role_in_graph == "shadow"]
    batch = governor(policy, known=known).judge(assembly(*calls, links=links))
    known.add(batch)
    return batch


@pytest.mark.parametrize("batches", [1, 2])
def test_it_has_people_purposes_retention_and_hold_of_its_call(
    tmp_path: Path, batches: int
) -> None:
    known, copy = MemoryKnownContent(), copy_of(LIVE, 3)
    if batches == 2:
        judged(tmp_path, known, ROOT, LIVE)
    judged(tmp_path, known, *([copy] if batches == 2 else [copy, ROOT, LIVE]))
    live, shadow = (known.decisions("acme", [one])[0] for one in (LIVE.step_id, copy.step_id))
    assert shadow.purposes == live.purposes == LESS
    for name in ("retention_class", "expires_at", "legal_hold"):
        assert getattr(shadow, name) == getattr(live, name), name
    assert (shadow.retention_class, shadow.legal_hold) == ("long", True)
    assert {*known.decisions("acme", [ROOT.step_id])[0].subjects} <= {*shadow.subjects}


def test_it_waits_for_a_call_that_is_not_judged_yet(tmp_path: Path) -> None:
    batch = judged(tmp_path, MemoryKnownContent(), copy_of(LIVE, 3))
    assert [(row.disposition, row.reasons) for row in batch.exchanges] == [
        ("quarantined", ("shadow:awaits-call",))
    ]
    assert batch.steps == batch.messages == batch.governance == ()


def test_it_is_left_out_with_its_call(tmp_path: Path) -> None:
    known = MemoryKnownContent()
    out = replace(LIVE, call=call(2, [user("more")], headers=[("x-headrace-opt-out", "all")]))
    batch = judged(tmp_path, known, out, copy_of(LIVE, 3))
    assert [(row.disposition, row.reasons) for row in batch.exchanges][1:] == [
        ("left_out", ("shadow:call-not-stored",))
    ]
    assert judged(tmp_path, known, copy_of(LIVE, 4)).exchanges[0].disposition == "left_out"


def test_what_both_say_is_stored_once(tmp_path: Path) -> None:
    batch = judged(tmp_path, MemoryKnownContent(), ROOT, LIVE, copy_of(LIVE, 3))
    names = [row.message_id for row in batch.messages]
    assert len(names) == len({*names})
    assert {step.step_id for step in batch.steps} == {"step1", "step2", "step3"}


@pytest.mark.parametrize("copied", ["before", "after"])
def test_it_waits_with_its_call_for_an_answer_about_the_calls_user(
    tmp_path: Path, copied: str
) -> None:
    known, copy = MemoryKnownContent(), copy_of(LIVE, 3)
    judged(tmp_path, known, ROOT, LIVE, *([copy] if copied == "before" else []))
    policy = bundle(tmp_path, retention=RETENTION, consent=CONSENT)
    late = PlacedPeople("acme", LIVE.step_id, "maria7", (), ())
    told = replace(assembly(), people=(late,))
    known.add(governor(policy, known=known, consents=Silent()).judge(told))
    if copied == "after":
        judged(tmp_path, known, copy)
    (row,) = known.decisions("acme", [copy.step_id])
    assert row.awaits_answer
    rows = governor(policy, known=known).told([late])
    assert {row.step_id: row.decision for row in rows} == {
        LIVE.step_id: "allow",
        copy.step_id: "allow",
    }


class Silent(MemoryConsents):
    """A consent service that does not answer."""

    def ask(self, tenant_id: str, end_user: str, subject: str) -> None:
        del tenant_id, end_user, subject
        raise NoAnswerError
