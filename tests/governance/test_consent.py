"""Consent: unknown means no, grants add up, and nothing that takes away can be outvoted."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.consent import (
    EVERY_SUBJECT,
    BatchConsent,
    ConsentEntry,
    ConsentRequest,
    ConsentVerdict,
    MemoryConsents,
    judge_consent,
)
from governance.policy.consent import ConsentSpec, Purpose
from governance.policy.selector import Facts
from tests.governance.factories import T0

MINUTE = timedelta(minutes=1)
PURPOSES = [purpose.value for purpose in Purpose]


def entry(
    purpose: str, *, granted: bool, subject: str = "p1", minute: int = 0, tenant: str = "acme"
) -> ConsentEntry:
    moment = T0 + timedelta(minutes=minute)
    return ConsentEntry(tenant, subject, purpose, granted, recorded_at=moment, reference="R1")


def ask(
    spec: dict[str, object] | None = None,
    entries: tuple[ConsentEntry, ...] = (),
    *,
    key: tuple[str, ...] = (),
    headers: tuple[tuple[str, str], ...] = (),
    end_user: str | None = None,
    subjects: tuple[str, ...] = (),
    allowed: tuple[str, ...] | None = None,
) -> ConsentVerdict:
    question = ConsentRequest(
        Facts(tenant="acme"), key, headers, end_user, subjects, allowed=allowed
    )
    return judge_consent(ConsentSpec.model_validate(spec or {}), MemoryConsents(entries), question)


def test_unknown_means_no() -> None:
    verdict = ask()
    assert verdict.purposes == ()
    assert verdict.legal_basis == "none"
    assert verdict.reasons == ("consent:no-purpose",)


def test_grants_add_up_and_name_their_proof() -> None:
    grant = {
        "name": "g",
        "match": {"tenant": "acme"},
        "purposes": ["eval"],
        "legal_basis": "contract",
        "reference": "DPA-1",
    }
    verdict = ask({"grants": [grant]}, key=("debug", "unheard-of"))
    assert verdict.purposes == ("debug", "eval")
    assert (verdict.legal_basis, verdict.reference) == ("contract", "DPA-1")
    assert verdict.reasons == ("consent:key", "consent:grant:g")


def test_a_grant_for_another_tenant_is_none() -> None:
    grant = {"name": "g", "match": {"tenant": "other"}, "purposes": ["eval"]}
    assert ask({"grants": [grant]}).purposes == ()
    stranger = entry("eval", granted=True, subject=EVERY_SUBJECT, tenant="other")
    assert ask(entries=(stranger,)).purposes == ()


def test_the_latest_entry_counts_and_a_tie_withdraws() -> None:
    given_back = (entry("eval", granted=False), entry("eval", granted=True, minute=1))
    assert ask(entries=given_back, key=("eval",), end_user="p1").purposes == ("eval",)
    tie = (entry("eval", granted=False), entry("eval", granted=True))
    assert ask(entries=tie, key=("eval",), end_user="p1").purposes == ()


def test_a_persons_grant_alone_does_not_bind_the_tenant() -> None:
    assert ask(entries=(entry("eval", granted=True),), end_user="p1").purposes == ()


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("all", ()),
        ("train", ("debug",)),
        ("train_sft", ("debug", "train_rl")),
        ("Train_SFT , debug", ("train_rl",)),
        ("yes", ()),
        ("", ("debug", "train_sft", "train_rl")),
    ],
)
def test_opt_out_header(value: str, left: tuple[str, ...]) -> None:
    headers = (("x-headrace-opt-out", value),)
    verdict = ask(key=("debug", "train_sft", "train_rl"), headers=headers)
    assert verdict.purposes == left


def test_a_header_cannot_grant() -> None:
    assert ask(headers=(("x-headrace-purposes", "debug,eval"),)).purposes == ()


def test_header_names_are_policy() -> None:
    spec: dict[str, object] = {
        "headers": {"opt_out": "X-No-Train", "global_privacy_control": ["eval"]}
    }
    headers = (("x-no-train", "train"), ("sec-gpc", "1"))
    key = ("eval", "share", "train_sft")
    assert ask(spec, key=key, headers=headers).purposes == ("share",)


purposes = st.lists(st.sampled_from(PURPOSES), unique=True)
entries = st.lists(
    st.builds(
        entry,
        st.sampled_from(PURPOSES),
        granted=st.booleans(),
        subject=st.sampled_from(["p1", "p2", EVERY_SUBJECT]),
        minute=st.integers(0, 3),
    ),
    max_size=8,
)


@given(
    key=purposes,
    never=purposes,
    registry=entries,
    grants=purposes,
    opted_out=purposes,
    only=st.none() | purposes,
    private=st.booleans(),
)
def test_the_strictest_wins(
    key: list[str],
    never: list[str],
    registry: list[ConsentEntry],
    grants: list[str],
    opted_out: list[str],
    only: list[str] | None,
    private: bool,
) -> None:
    spec: dict[str, object] = {}
    if never:
        spec["limits"] = [{"name": "l", "never": never}]
    if grants:
        spec["grants"] = [{"name": "g", "match": {"tenant": "*"}, "purposes": grants}]
    headers = [("x-headrace-opt-out", ",".join(opted_out)), ("sec-gpc", "1" if private else "0")]
    headers += [] if only is None else [("x-headrace-purposes", ",".join(only))]
    verdict = ask(
        spec,
        tuple(registry),
        key=tuple(key),
        headers=tuple(headers),
        end_user="p1",
        subjects=("p2",),
    )
    allowed = set(verdict.purposes)
    assert not allowed & {*never, *opted_out}
    assert allowed <= (set(PURPOSES) if only is None else set(only))
    assert not private or allowed <= {"debug", "eval"}
    for subject in ("p1", "p2", EVERY_SUBJECT):
        for purpose in PURPOSES:
            mine = [e for e in registry if e.subject == subject and e.purpose == purpose]
            last = max((e.recorded_at for e in mine), default=None)
            if any(e.recorded_at == last and not e.granted for e in mine):
                assert purpose not in allowed
    by_registry = {e.purpose for e in registry if e.granted and e.subject == EVERY_SUBJECT}
    assert allowed <= set(key) | set(grants) | by_registry
    less = ask(
        spec, (*registry, entry("debug", granted=False, minute=9)), key=tuple(key), end_user="p1"
    )
    assert "debug" not in less.purposes


def test_a_batch_asks_once_for_calls_that_name_nobody() -> None:
    asked = 0

    class CountingConsents(MemoryConsents):
        def entries(self, tenant_id: str, subjects: Collection[str]) -> Sequence[ConsentEntry]:
            nonlocal asked
            asked += 1
            return super().entries(tenant_id, subjects)

    spec = ConsentSpec.model_validate({})
    batch = BatchConsent(spec, CountingConsents([entry("debug", granted=False, subject="p1")]))
    plain = ConsentRequest(Facts(tenant="acme"), ("debug", "eval"), (("accept", "a"),), None)
    opted = (("x-headrace-opt-out", "eval"), ("accept", "b"))
    questions = [
        plain,
        replace(plain, headers=(("accept", "c"),)),
        replace(plain, headers=opted),
        replace(plain, end_user="p1"),
        replace(plain, subjects=("p1",)),
        replace(plain, facts=Facts(tenant="other")),
        replace(plain, allowed=("eval",)),
    ]
    found = [batch.judge(question) for question in questions]
    assert found == [
        judge_consent(spec, CountingConsents([entry("debug", granted=False)]), question)
        for question in questions
    ]
    assert asked == 6 + len(questions)
    assert found[2].purposes == ("debug",)
    assert found[3].purposes == ("eval",)


def test_what_was_captured_before_an_erasure_serves_nothing() -> None:
    registry = MemoryConsents(erasures={("acme", "p1"): T0, ("acme", "p2"): T0 + MINUTE})
    question = ConsentRequest(
        Facts(tenant="acme"), ("debug",), (), "p1", ("p2",), captured_at=T0 + MINUTE
    )
    verdict = judge_consent(ConsentSpec(), registry, question)
    assert (verdict.purposes, verdict.refusals) == ((), ("consent:erased",))
    for other in (
        replace(question, captured_at=T0 + 2 * MINUTE),
        replace(question, captured_at=T0 + MINUTE, subjects=()),
        replace(question, captured_at=None),
        replace(question, facts=Facts(tenant="globex")),
    ):
        assert judge_consent(ConsentSpec(), registry, other).purposes == ("debug",)


def test_a_document_allows_no_more_than_it_says() -> None:
    spec: dict[str, object] = {
        "grants": [{"name": "g", "match": {"tenant": "acme"}, "purposes": ["share"]}]
    }
    verdict = ask(spec, key=("debug", "eval"), allowed=("eval", "train_sft", "of another time"))
    assert verdict.purposes == ("eval",)
    assert "consent:document:purposes" in verdict.reasons
    assert {"debug", "share"} <= verdict.withheld
    assert ask(spec, key=("debug",), allowed=()).purposes == ()
    assert ask(spec, key=("debug",)).purposes == ("debug", "share")
