"""The governor: what is stored, left out, held back, and that nothing slips through."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from governance.consent import ConsentEntry, MemoryConsents
from governance.executor import RedactionAnswer, RedactionRequest
from governance.quality import StepFacts
from governance.records import GovernedBatch
from governance.redact.pseudonym import subject_id, subject_ids
from governance.stored_content import MemoryKnownContent
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
    exchange,
    feedback,
    governor,
    placed,
    system,
    user,
)
from tests.governance.redaction_support import redactor
from trajectory.assembly.result import PlacedCall, PlacedCorrection, PlacedFeedback, PlacedLink
from trajectory.call import Call, CallKind, SessionHint, TokenCapture, ToolDispatch
from trajectory.canonical import JsonObject, content_hash
from trajectory.errors import ConfigurationError
from trajectory.exchange import ExchangeOutcome
from trajectory.message import Message, ToolCallPart, ToolResultPart


def dispositions(batch: GovernedBatch) -> dict[str, str]:
    return {row.step_id or row.exchange_id: row.disposition for row in batch.exchanges}


def text_of(batch: GovernedBatch) -> str:
    return json.dumps(asdict(batch), default=str, ensure_ascii=False)


def test_a_call_becomes_a_step_with_messages_ledger_and_decision() -> None:
    one = placed(call(1, [system("be kind"), user("I am jo@corp.io")], "hello"))
    batch = governor().judge(assembly(one))
    (step,) = batch.steps
    assert dispositions(batch) == {"step1": "stored"}
    assert [row.role for row in batch.messages] == ["system", "user", "assistant"]
    assert step.context_message_ids == tuple(row.message_id for row in batch.messages[:2])
    assert step.output_message_id == batch.messages[2].message_id
    assert step.model_served == "small-1"
    assert step.latency_ms == 900
    (decision,) = batch.governance
    assert decision.decision == "redact"
    assert decision.redaction_counts == {"EMAIL_ADDRESS": 1}
    assert decision.data_classes == ("contact",)
    assert "pii:EMAIL_ADDRESS×1" in decision.reasons
    assert decision.subjects == (subject_id(KEY, "acme", "jo@corp.io"),)
    assert decision.expires_at == one.call.exchange.started_at + timedelta(days=365)
    places = json.loads(decision.redaction_report)["places"]
    assert places == [["EMAIL_ADDRESS", "/messages/1/parts/0/text", 0, 5, "mail"]]
    assert "jo@corp.io" not in text_of(batch)


def test_message_ids_verify_and_differ_between_tenants() -> None:
    acme = governor().judge(assembly(placed(call(1))))
    other = governor().judge(assembly(placed(call(1, client={"tenant_id": "globex"}))))
    row = acme.messages[0]
    assert row.message_id != other.messages[0].message_id
    said = {"role": row.role, "parts": json.loads(row.parts)}
    from governance.identifiers import tenant_key

    assert content_hash(said, key=tenant_key(KEY, "acme")) == row.message_id


def test_a_child_stores_only_what_is_new() -> None:
    first = placed(call(1, [system("s"), user("a")], "b"))
    second = child(call(2, [system("s"), user("a"), assistant("b"), user("c")], "d"), first)
    batch = governor().judge(assembly(first, second))
    step = batch.steps[1]
    assert step.context_keep == 3
    assert len(step.context_message_ids) == 1
    assert len(batch.messages) == 5
    assert step.state_hash != batch.steps[0].state_hash


def test_a_child_of_a_step_in_the_lake_trusts_its_placement() -> None:
    known = MemoryKnownContent()
    first = placed(call(1, [user("a")], "b"))
    known.add(governor(known=known).judge(assembly(first)))
    second = child(call(2, [user("a"), assistant("b"), user("c")], "d"), first)
    batch = governor(known=known).judge(assembly(second))
    assert batch.steps[0].context_keep == 2
    assert [row.role for row in batch.messages] == ["user", "assistant"]


def test_a_child_of_a_step_that_was_never_stored_carries_its_whole_conversation() -> None:
    first = placed(call(1, [user("a")], "b"))
    second = child(call(2, [user("a"), assistant("b"), user("c")], "d"), first)
    batch = governor().judge(assembly(second))
    assert batch.steps[0].context_keep == 0
    assert len(batch.steps[0].context_message_ids) == 3


def test_a_message_is_stored_once_over_batches() -> None:
    known = MemoryKnownContent()
    judge = governor(known=known).judge
    first = judge(assembly(placed(call(1, [system("s"), user("a")], "b"))))
    known.add(first)
    second = judge(assembly(placed(call(2, [system("s"), user("z")], "y"), trajectory="t2")))
    assert len(first.messages) == 3
    assert [json.loads(row.parts)[0]["text"] for row in second.messages] == ["z", "y"]
    assert len(first.harnesses) == 1
    assert second.harnesses == ()


def test_no_consent_leaves_ledger_and_decision_only() -> None:
    silent = {"tenant_id": "globex", "purposes": ()}
    one = placed(
        call(1, [user("secret plans of jo@corp.io")], client=silent, model_requested="mine")
    )
    batch = governor().judge(assembly(one, feedback=[feedback(purposes=())]))
    assert dispositions(batch) == {"step1": "left_out"}
    assert batch.exchanges[0].reasons[0] == "consent:no-purpose"
    stored = (batch.messages, batch.steps, batch.tokens, batch.signals, batch.links)
    assert stored == ((), (), (), (), ())
    assert (batch.harnesses, batch.quarantine) == ((), ())
    assert [row.decision for row in batch.governance] == ["drop", "drop"]
    assert "plans" not in text_of(batch)
    assert "mine" not in text_of(batch)


def test_a_person_found_in_the_text_can_take_purposes_away() -> None:
    consents = MemoryConsents()
    jo = subject_id(KEY, "acme", "jo@corp.io")
    for purpose in ("train_sft", "train_rl"):
        consents.add(ConsentEntry("acme", jo, purpose, granted=False, recorded_at=T0))
    one = placed(call(1, [user("write to jo@corp.io")]))
    other = placed(call(2, [user("write to nobody")]), trajectory="t2")
    batch = governor(consents=consents).judge(assembly(one, other))
    purposes = [row.purposes for row in batch.governance]
    assert purposes == [
        ("debug", "eval", "train_preference"),
        ("debug", "eval", "train_sft", "train_preference", "train_rl"),
    ]
    assert "consent:withdrawn:subject:train_sft" in batch.governance[0].reasons


def test_an_end_user_is_stored_as_a_pseudonym_only() -> None:
    batch = governor().judge(assembly(placed(call(1, end_user="Jo Ann Doe"))))
    # Further subjects are the other ways in which this name is written, such as the family name first.
    assert batch.governance[0].subjects[0] == subject_id(KEY, "acme", "jo ann doe")
    assert "Doe" not in text_of(batch)
    assert "doe" not in repr(batch.governance)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_ids_that_clients_give_of_their_users_are_nowhere_in_clear(one_by_one: bool) -> None:
    ext: JsonObject = {
        "user": "912803456",
        "metadata": {"session_id": "20481234", "user_id": "84712346", "end_user_id": 71234},
    }
    one = call(
        1,
        [user("I am customer 912803456.")],
        end_user="912803456",
        also_named=("84712346", "71234"),
        hints=(SessionHint("client:metadata.session_id", "20481234"),),
        ext=ext,
    )
    spread = RefusingExecutor() if one_by_one else None
    batch = governor(redactor=redactor(), spread=spread).judge(assembly(placed(one)))
    assert len(batch.steps) == 1
    assert "912803456" not in text_of(batch)
    assert "20481234" not in text_of(batch)
    assert "84712346" not in text_of(batch)
    assert "71234" not in text_of(batch)
    names = ("912803456", "84712346", "71234")
    assert batch.governance[0].subjects == tuple(subject_id(KEY, "acme", one) for one in names)


def test_a_withdrawal_under_any_name_that_the_request_gives_counts() -> None:
    consents = MemoryConsents()
    consents.add(ConsentEntry("acme", subject_id(KEY, "acme", "42"), "train_sft", False, NOW))
    one = call(1, end_user="jo", also_named=("42",))
    batch = governor(consents=consents).judge(assembly(placed(one)))
    assert "train_sft" not in batch.governance[0].purposes
    assert "consent:withdrawn:subject:train_sft" in batch.governance[0].reasons


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1-12", "11-2"),
        ("1:12", "11:2"),
        ("12.3", "1.23"),
        ("u_1_12", "u_11_2"),
        ("uncle_bob", "bob"),
        ("bob", "uncle_bob"),
        ("mr_hartwig", "mrs_hartwig"),
        ("ana_kim_md", "ana_kim"),
        ("1234:5678", "12345:678"),
        ("12-345678", "123-45678"),
        ("12345#678", "12345#679"),
        ("user-1234-5678", "user-12345-678"),
        ("user:bob", "customer:bob"),
        ("dr.bob", "bob"),
        ("bob", "dr.bob"),
        ("michael", "michal"),
        ("joy", "joey"),
    ],
)
def test_ids_with_the_same_digits_or_name_are_of_two_people(
    one: str, other: str, tmp_path: Path
) -> None:
    asked = {*subject_ids(KEY, "acme", one)}
    consents = MemoryConsents()
    for subject in asked:
        consents.add(ConsentEntry("acme", subject, "train_sft", granted=True, recorded_at=T0))
    by = governor(
        bundle(tmp_path, consent="{key_purposes: true, subject_grant_required: [train_sft]}"),
        consents=consents,
    )
    calls = [placed(call(1, end_user=one)), placed(call(2, end_user=other), trajectory="t2")]
    batch = by.judge(assembly(*calls))
    assert ["train_sft" in row.purposes for row in batch.governance] == [True, False]
    assert [bool(asked & {*row.subjects}) for row in batch.governance] == [True, False]


class RefusingExecutor:
    """A spread that redacts nothing together, so that each call is redacted on its own."""

    def redact_all(self, requests: Sequence[RedactionRequest]) -> list[RedactionAnswer]:
        return [None for _ in requests]


def test_what_cannot_be_redacted_is_held_back_alone() -> None:
    first = placed(call(1, [user("fine")], "ok"))
    bad = child(call(2, [user("fine"), assistant("ok"), user("BOOM")], "d"), first)
    third = placed(call(3, [user("also fine")], "ok"), trajectory="t2")
    batch = governor().judge(assembly(first, bad, third))
    assert dispositions(batch) == {"step1": "stored", "step2": "quarantined", "step3": "stored"}
    (held,) = batch.quarantine
    assert (held.stage, held.reason) == ("redact", "redaction:RedactionError")
    assert "BOOM" not in text_of(batch)


def test_every_exchange_has_one_line_in_the_ledger() -> None:
    first = placed(call(1))
    again = placed(call(2), duplicate_of="step1")
    control = Call(exchange(3), "mcp", CallKind.CONTROL)
    opaque = Call(exchange(4), "opaque", CallKind.OPAQUE, problem="body is not JSON")
    refused = placed(call(5, outcome=ExchangeOutcome.REFUSED, client={"purposes": ()}))
    left_out = placed(call(6, client={"purposes": ()}), trajectory="t3")
    batch = governor().judge(assembly(first, again, refused, left_out, unplaced=[control, opaque]))
    counted = Counter(row.disposition for row in batch.exchanges)
    assert counted == {
        "stored": 1,
        "duplicate": 1,
        "control": 2,
        "quarantined": 1,
        "left_out": 1,
    }
    assert len({row.exchange_id for row in batch.exchanges}) == 6
    assert [row.reason for row in batch.quarantine] == ["body-is-not-JSON"]


def test_a_repeated_step_goes_but_attempts_in_other_trajectories_stay() -> None:
    first, again = placed(call(1)), placed(call(2), branch=1)
    attempt = placed(call(3), trajectory="t2")
    late = feedback(step="step2")
    batch = governor().judge(assembly(first, again, attempt, feedback=[late]))
    assert dispositions(batch) == {"step1": "stored", "step2": "duplicate", "step3": "stored"}
    assert batch.signals[0].step_id == "step1"


def test_a_child_of_a_repeated_step_hangs_on_the_original() -> None:
    first = placed(call(1, [user("a")], "b"))
    again = placed(call(2, [user("a")], "b"), duplicate_of="step1")
    third = child(call(3, [user("a"), assistant("b"), user("c")], "d"), again)
    batch = governor().judge(assembly(first, again, third))
    assert batch.steps[1].parent_step_id == "step1"
    assert batch.steps[1].context_keep == 2


def test_a_duplicate_of_what_is_not_stored_is_stored_itself() -> None:
    batch = governor().judge(assembly(placed(call(1), duplicate_of="gone")))
    assert dispositions(batch) == {"step1": "stored"}


def test_policy_may_keep_repetitions(tmp_path: Path) -> None:
    policy = bundle(tmp_path, dedup="{identical_retries: keep, repeated_steps: keep}")
    batch = governor(policy).judge(
        assembly(placed(call(1)), placed(call(2), branch=1, duplicate_of="step1"))
    )
    assert len(batch.steps) == 2


def test_a_failed_attempt_is_a_discarded_step_or_a_ledger_line(tmp_path: Path) -> None:
    failed = placed(
        call(
            1, output=None, status=500, error="upstream said no to jo@corp.io", finish_reason=None
        ),
        role_in_graph="discarded",
    )
    batch = governor().judge(assembly(failed))
    assert batch.steps[0].role_in_graph == "discarded"
    assert batch.steps[0].error == "upstream said no to <EMAIL_ADDRESS_abc123>"
    policy = bundle(tmp_path, capture="{failed_attempts: metadata}")
    left = governor(policy).judge(assembly(failed))
    assert left.steps == ()
    assert left.exchanges[0].reasons[0] == "capture:failed-attempt"


def test_a_cut_answer_is_held_and_its_child_stands_alone() -> None:
    cut = placed(
        call(1, [user("a")], "b", finish_reason=None, outcome=ExchangeOutcome.UPSTREAM_ABORT)
    )
    after = child(call(2, [user("a"), assistant("b"), user("go on")], "c"), cut)
    last = child(
        call(3, [user("a"), assistant("b"), user("go on"), assistant("c"), user("ok")], "d"), after
    )
    batch = governor().judge(assembly(cut, after, last))
    assert dispositions(batch) == {"step1": "quarantined", "step2": "stored", "step3": "stored"}
    assert batch.quarantine[0].reason == "quality:answer-not-cut"
    assert (batch.steps[0].context_keep, len(batch.steps[0].context_message_ids)) == (0, 3)
    assert batch.steps[1].context_keep == 4
    ids = {row.message_id for row in batch.messages}
    named = {m for step in batch.steps for m in (*step.context_message_ids, step.output_message_id)}
    assert named == ids


def test_a_left_out_parent_makes_its_child_stand_alone() -> None:
    left_out = placed(call(1, [user("a")], "b", client={"purposes": ()}))
    after = child(call(2, [user("a"), assistant("b"), user("c")], "d"), left_out)
    link = PlacedLink("acme", "prefix", "step1", "step2", "t1", NOW, "prefix")
    batch = governor().judge(assembly(left_out, after, links=[link], feedback=[feedback()]))
    assert dispositions(batch) == {"step1": "left_out", "step2": "stored"}
    assert batch.steps[0].context_keep == 0
    assert batch.links == ()
    assert batch.signals == ()
    assert batch.governance[-1].reasons == ("signal:left-out", "signal:step-not-stored")


def test_tokens_live_only_where_redaction_changed_nothing() -> None:
    tokens = TokenCapture((1, 2), (3, 4), (-0.1, -0.2))
    exact = placed(call(1, tokens=tokens))
    masked = placed(call(2, [user("jo@corp.io")], tokens=tokens), trajectory="t2")
    gone = placed(call(3, [user("x")], "ask jo@corp.io", tokens=tokens), trajectory="t3")
    batch = governor().judge(assembly(exact, masked, gone))
    kept = {row.step_id: (row.token_fidelity, row.prompt_token_ids) for row in batch.tokens}
    assert kept == {"step1": ("exact", (1, 2)), "step2": ("span_masked", None)}
    assert [step.capture_level for step in batch.steps] == ["tokens", "tokens", "text"]
    assert [step.mean_logprob for step in batch.steps] == [pytest.approx(-0.15)] * 3


def test_tokens_of_a_prompt_go_where_artefacts_added_to_it_and_stay_beside_a_trial() -> None:
    tokens = TokenCapture((1, 2), (3, 4), (-0.1, -0.2))

    def shown(number: int, *artifacts: str) -> PlacedCall:
        said = call(number, [user(f"lamp {number}")], tokens=tokens)
        said = replace(said, exchange=replace(said.exchange, artifacts=artifacts))
        return placed(said, trajectory=f"t{number}")

    batch = governor().judge(
        assembly(
            shown(1, "facts@0001=days"), shown(2, "style@0001"), shown(3, "~style@0001 control")
        )
    )
    kept = {row.step_id: (row.token_fidelity, row.prompt_token_ids) for row in batch.tokens}
    assert kept == {
        "step1": ("span_masked", None),
        "step2": ("span_masked", None),
        "step3": ("exact", (1, 2)),
    }


def test_tokens_of_surrogates_are_exact_and_their_people_are_known() -> None:
    tokens = TokenCapture((1, 2), (3, 4), (-0.1, -0.2))
    said = call(1, [user("ask EMAIL_xkdrwqpzmtbnhgcvfj")], tokens=tokens)
    wired = replace(said, exchange=replace(said.exchange, subjects=("subject_1", "subject_2")))
    batch = governor().judge(assembly(placed(wired)))
    (row,) = batch.tokens
    assert (row.token_fidelity, row.prompt_token_ids) == ("pseudonymised_inline", (1, 2))
    assert batch.governance[0].subjects == ("subject_1", "subject_2")


def test_a_provider_s_log_probabilities_are_a_level_of_their_own() -> None:
    told = placed(call(1, [user("x")], "ask jo@corp.io", mean_logprob=-0.25))
    (step,) = governor().judge(assembly(told)).steps
    assert (step.capture_level, step.mean_logprob) == ("logprobs", -0.25)


def test_misaligned_logprobs_are_held() -> None:
    tokens = TokenCapture((1,), (3, 4), (-0.1,))
    batch = governor().judge(assembly(placed(call(1, tokens=tokens))))
    assert batch.quarantine[0].reason == "quality:logprob_misalign"
    assert batch.tokens == ()


def test_a_tool_step_keeps_its_dispatch_redacted() -> None:
    dispatch = ToolDispatch("find", {"mail": "jo@corp.io"}, {"rows": 2}, False, "http://t:1/mcp")
    one = placed(
        call(1, output=None, kind=CallKind.TOOL, dispatch=dispatch, context=(), dialect="mcp")
    )
    (step,) = governor().judge(assembly(one)).steps
    assert step.kind == "tool"
    assert json.loads(step.tool_calls[0].arguments) == {"mail": "<EMAIL_ADDRESS_abc123>"}
    assert json.loads(step.tool_results[0].content) == {"rows": 2}
    assert json.loads(step.ext)["tool_server"] == "http://t:1/mcp"


def test_every_string_of_a_client_is_redacted_or_hashed() -> None:
    mail = "jo@corp.io"
    hidden = Message(
        "assistant", (ToolCallPart(f"id {mail}", f"tool {mail}", {"a": [mail, {"b": mail}]}),)
    )
    result = Message("tool", (ToolResultPart(f"id {mail}", f"got {mail}"),))
    one = placed(
        call(
            1,
            [system(mail), user(mail), hidden, result],
            hidden,
            tools=({"name": mail},),
            sampling={"stop": [mail]},
            model_requested=mail,
            model_served=mail,
            response_id=mail,
            finish_reason=mail,
            end_user=mail,
            error=mail,
            ext={"metadata": {"who": mail}},
            hints=(SessionHint("header:x", mail),),
            headers=[("x-mail", mail)],
        ),
        key_source=f"client:{mail}",
        role_in_graph=mail,
    )
    said = feedback(
        target=mail,
        step=None,
        name=mail,
        label=mail,
        rationale=mail,
        source=mail,
        source_kind=mail,
        source_version=mail,
        supersedes=mail,
        observed_at=mail,
    )
    opaque = Call(exchange(7), "opaque", CallKind.OPAQUE, problem=f"broken near {mail}")
    batch = governor().judge(assembly(one, unplaced=[opaque], feedback=[said]))
    assert len(batch.steps) == 1
    assert len(batch.signals) == 1
    assert mail not in text_of(batch)
    assert "corp.io" not in text_of(batch)


def test_who_was_erased_meanwhile_is_left_out_unless_a_legal_hold_keeps_the_call(
    tmp_path: Path,
) -> None:
    erased = MemoryConsents(erasures={("acme", subject_id(KEY, "acme", "jo@corp.io")): NOW})
    work = assembly(
        placed(call(1, [user("write to jo@corp.io about zebras")])),
        placed(call(2, [user("hello")], end_user="jo@corp.io"), trajectory="t2"),
        placed(call(3, [user("hello")]), trajectory="t3"),
    )
    batch = governor(consents=erased).judge(work)
    assert dispositions(batch) == {"step1": "left_out", "step2": "left_out", "step3": "stored"}
    assert batch.exchanges[0].reasons == ("consent:erased",)
    assert "zebras" not in text_of(batch)
    hold = "[{name: case, match: {tenant: acme}, reference: C-1}]"
    policy = bundle(tmp_path, retention=f"{{classes: {{a: 9}}, default: a, legal_holds: {hold}}}")
    batch = governor(policy, consents=erased).judge(work)
    assert set(dispositions(batch).values()) == {"stored"}


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("told", ["by the request", "in the text"])
@pytest.mark.parametrize("asked", ["withdrawn", "erased"])
def test_where_a_person_may_not_be_kept_calls_of_the_conversation_that_name_nobody_are_not_either(
    asked: str, told: str, batches: int
) -> None:
    jo = subject_id(KEY, "acme", "jo@corp.io")
    consents = MemoryConsents(erasures={("acme", jo): NOW} if asked == "erased" else None)
    for purpose in ALL_PURPOSES if asked == "withdrawn" else ():
        consents.add(ConsentEntry("acme", jo, purpose, granted=False, recorded_at=T0))
    dispatch = ToolDispatch("refund", {"order": "7"}, {"sent": "zebras"}, False, "http://t:1/mcp")
    tool: dict[str, Any] = {"output": None, "kind": CallKind.TOOL, "dispatch": dispatch}
    named: dict[str, Any] = {"end_user": "jo@corp.io"} if told == "by the request" else {}
    first = placed(call(1, [user("refund me, jo@corp.io")], "asked", **named))
    second = placed(
        call(2, context=(), dialect="mcp", **tool), parent_step_id="step1", step_index=1
    )
    beside = placed(call(3, [user("hello")]), trajectory="t2")
    known = MemoryKnownContent()
    whole, found = [first, second, beside], dict[str, str]()
    for part in [whole] if batches == 1 else [[one] for one in whole]:
        batch = governor(consents=consents, known=known).judge(assembly(*part))
        known.add(batch)
        found |= dispositions(batch)
        assert "zebras" not in text_of(batch)
    assert found == {"step1": "left_out", "step2": "left_out", "step3": "stored"}


def test_a_call_of_a_conversation_that_was_erased_belongs_to_whom_it_concerned(
    tmp_path: Path,
) -> None:
    """Its people went with the rows: the call names nobody, and waited in the spool."""
    erased = MemoryConsents(erasures={("acme", "t1"): T0 + timedelta(seconds=2)})
    joined = PlacedCorrection(
        tenant_id="acme", step_id="stepX", started_at=T0, trajectory_id="t2",
        stored_trajectory_id="t1", began=True, step_index=1, parent_step_id="step2", branch=0,
        role_in_graph="agent", key_source="prefix", context_keep=0, context_skip=0,
        results_skip=0, retry_of=None, duplicate_of=None, session_hint=None, group_id=None,
        side_effect=None, links=(),
    )  # fmt: skip
    work = replace(
        assembly(
            placed(call(1, [user("zebras")])),
            placed(call(2, [user("zebras")]), trajectory="t2"),
            placed(call(2, [user("zebras")]), "step0", "t3", source_trajectory_id="t1"),
            placed(call(3, [user("hello")]), "step4", trajectory="t4"),
        ),
        corrections=(joined,),
    )
    batch = governor(consents=erased).judge(work)
    assert dispositions(batch) == {
        "step1": "left_out", "step2": "left_out", "step0": "left_out", "step4": "stored",
    }  # fmt: skip
    assert "zebras" not in text_of(batch)
    since = governor(consents=erased).judge(assembly(placed(call(3, [user("hello")]))))
    assert dispositions(since) == {"step3": "stored"}
    hold = "[{name: case, match: {tenant: acme}, reference: C-1}]"
    policy = bundle(tmp_path, retention=f"{{classes: {{a: 9}}, default: a, legal_holds: {hold}}}")
    kept = governor(policy, consents=erased).judge(work)
    assert set(dispositions(kept).values()) == {"stored"}


class RefusingGate:
    """A gate that lets nothing through."""

    def failures(self, facts: Sequence[StepFacts]) -> dict[str, tuple[str, ...]]:
        return {one.step_id: ("too-short",) for one in facts}


def test_who_takes_part_in_a_call_that_is_held_back_is_found_by_an_erasure() -> None:
    bad = placed(call(1, [user("BOOM")], end_user="jo@corp.io", also_named=("42",)))
    doubtful = placed(call(2, [user("ask ann@corp.io")]), trajectory="t2")
    batch = governor(gate=RefusingGate()).judge(assembly(bad, doubtful))
    assert dispositions(batch) == {"step1": "quarantined", "step2": "quarantined"}
    subjects = {row.step_id: {*row.subjects} for row in batch.governance}
    assert subjects["step1"] >= {subject_id(KEY, "acme", one) for one in ("jo@corp.io", "42")}
    assert subject_id(KEY, "acme", "ann@corp.io") in subjects["step2"]


def test_feedback_that_is_left_out_leaves_the_step_as_it_was() -> None:
    said = [feedback(purposes=()), feedback(rationale="BOOM")]
    batch = governor().judge(assembly(placed(call(1)), feedback=said))
    (step,) = (row for row in batch.governance if row.step_id == "step1")
    assert step.decision == "allow"
    left_out = [row for row in batch.governance if row.step_id != "step1"]
    assert [row.decision for row in left_out] == ["drop", "drop"]
    assert [row.reasons[1] for row in left_out] == ["consent:no-purpose", "error:RedactionError"]
    assert {row.trajectory_id for row in left_out} == {"t1"}


def test_what_was_redacted_in_a_comment_is_reported_under_its_own_name() -> None:
    said = [feedback(rationale="thank jo@corp.io"), feedback(rationale="well done")]
    batch = governor().judge(assembly(placed(call(1)), feedback=said))
    assert len(batch.signals) == 2
    (row,) = (row for row in batch.governance if row.step_id != "step1")
    assert row.step_id == batch.signals[0].signal_id
    assert (row.decision, row.redaction_counts) == ("redact", {"EMAIL_ADDRESS": 1})
    assert row.reasons == ("signal:kept", "pii:EMAIL_ADDRESS×1")
    assert "train_sft" in row.purposes
    assert "/rationale" in row.redaction_report


def test_feedback_that_has_no_trajectory_has_an_end_of_its_own() -> None:
    said = [feedback("g1", step=None, target_kind="group"), feedback("s1", step=None)]
    batch = governor().judge(assembly(placed(call(1)), feedback=said))
    rows = {row.step_id: row for row in batch.governance if row.step_id != "step1"}
    assert rows.keys() == {one.signal_id for one in batch.signals}
    for row in rows.values():
        assert (row.decision, row.reasons, row.trajectory_id) == ("allow", ("signal:kept",), "")
        assert row.expires_at is not None


def test_feedback_on_a_trajectory_that_is_not_stored_is_left_out() -> None:
    def on(trajectory: str) -> PlacedFeedback:
        said = feedback(trajectory, step=None, target_kind="trajectory", rationale="angry")
        return replace(said, trajectory_id=trajectory)

    known = MemoryKnownContent()
    judge = governor(known=known)
    first = judge.judge(assembly(placed(call(1)), feedback=[on("t1")]))
    assert [row.trajectory_id for row in first.signals] == ["t1"]
    known.add(first)
    later = judge.judge(assembly(feedback=[on("t1"), on("t-erased")]))
    assert [row.trajectory_id for row in later.signals] == ["t1"]
    (row,) = later.governance
    assert row.reasons == ("signal:left-out", "signal:trajectory-not-stored")


def test_feedback_joins_the_step_by_the_same_response_id() -> None:
    odd = "resp with spaces"
    batch = governor().judge(
        assembly(
            placed(call(1, response_id=odd)),
            placed(call(2, response_id="chatcmpl-9"), trajectory="t2"),
            feedback=[feedback(odd, step=None), feedback("chatcmpl-9", step=None)],
        )
    )
    assert [row.target_id for row in batch.signals] == [row.response_id for row in batch.steps]
    assert {row.target_kind for row in batch.signals} == {"response"}
    assert odd not in text_of(batch)


def test_signals_keep_numbers_times_and_fixed_words() -> None:
    said = feedback(
        value=True, confidence=0.5, observed_at="2026-11-20T10:00:00+00:00", is_gold=True
    )
    (row,) = governor().judge(assembly(placed(call(1)), feedback=[said])).signals
    assert (row.target_kind, row.target_id, row.value, row.confidence) == (
        "step",
        "step1",
        1.0,
        0.5,
    )
    assert row.observed_at.hour == 10
    assert row.source_kind == "verifier"
    assert row.is_gold
    assert row.signal_id.startswith("b2:")


def test_links_follow_repetitions() -> None:
    first, again = placed(call(1, [user("a")], "b")), placed(call(2, [user("a")], "b"), branch=1)
    third = child(call(3, [user("a"), assistant("b"), user("c")], "d"), again)
    links = [
        PlacedLink("acme", "retry", "step1", "step2", "t1", NOW, "prefix"),
        PlacedLink("acme", "prefix", "step2", "step3", "t1", NOW, "prefix"),
    ]
    batch = governor().judge(assembly(first, again, third, links=links))
    assert [(row.from_step_id, row.to_step_id) for row in batch.links] == [("step1", "step3")]


def test_what_is_past_its_retention_is_not_stored(tmp_path: Path) -> None:
    policy = bundle(tmp_path, retention="{classes: {day: 1}, default: day}")
    late = governor(policy, clock=lambda: T0 + timedelta(days=2)).judge(assembly(placed(call(1))))
    assert late.exchanges[0].disposition == "left_out"
    assert "retention:expired" in late.exchanges[0].reasons
    hold = "{classes: {day: 1}, default: day, legal_holds: [{name: case, match: {tenant: '*'}, reference: R1}]}"
    held = governor(bundle(tmp_path, retention=hold), clock=lambda: T0 + timedelta(days=2)).judge(
        assembly(placed(call(1)))
    )
    assert held.governance[0].legal_hold


def test_retention_of_a_call_dated_ahead_counts_from_its_decision(tmp_path: Path) -> None:
    policy = bundle(tmp_path, retention="{classes: {day: 1}, default: day}")
    now = T0 - timedelta(days=300)
    calls = assembly(placed(call(1)), feedback=[feedback(step=None)])
    batch = governor(policy, clock=lambda: now).judge(calls)
    assert [row.expires_at for row in batch.governance] == [now + timedelta(days=1)] * 2
    assert batch.governance[0].started_at == T0 + timedelta(seconds=1)


@pytest.mark.parametrize(
    ("field", "gone"),
    [("error", "e-text"), ("ext", "x-text"), ("sampling", "s-text"), ("tools", "t-text")],
)
def test_policy_can_leave_fields_out(tmp_path: Path, field: str, gone: str) -> None:
    one = placed(
        call(
            1,
            error="e-text",
            ext={"a": "x-text"},
            sampling={"a": "s-text"},
            tools=({"name": "t-text"},),
        )
    )
    batch = governor(bundle(tmp_path, capture=f"{{without: [{field}]}}")).judge(assembly(one))
    assert gone not in text_of(batch)
    assert gone in text_of(governor().judge(assembly(one)))


def test_a_rule_on_what_was_found_takes_effect_after_redaction(tmp_path: Path) -> None:
    policy = bundle(
        tmp_path,
        capture="{rules: [{name: no-contacts, match: {data_class: contact}, level: metadata}]}",
    )
    one = placed(call(1, [user("jo@corp.io")]))
    other = placed(call(2, [user("nobody")]), trajectory="t2")
    batch = governor(policy).judge(assembly(one, other))
    assert dispositions(batch) == {"step1": "left_out", "step2": "stored"}


def test_left_over_personal_data_is_held_back() -> None:
    class BlindRedactor:
        """A redactor that overlooks everything."""

        def redact_messages(self, messages, *, scope):  # type: ignore[no-untyped-def]
            from governance.redact.report import RedactedMessage, RedactionReport

            return [RedactedMessage(message, RedactionReport(), ()) for message in messages]

        def redact_text(self, text, *, scope, path=""):  # type: ignore[no-untyped-def]
            from governance.redact.report import RedactedText, RedactionReport

            return RedactedText(text, RedactionReport(), ())

    first = placed(call(1, [user("a jo@corp.io")], "b"))
    second = child(call(2, [user("a jo@corp.io"), assistant("b"), user("c")], "d"), first)
    clean = placed(call(3, [user("nothing")]), trajectory="t2")
    batch = governor(redactor=BlindRedactor()).judge(assembly(first, second, clean))
    assert dispositions(batch) == {
        "step1": "quarantined",
        "step2": "quarantined",
        "step3": "stored",
    }
    assert {row.reason for row in batch.quarantine} == {"quality:nothing-personal-left"}
    assert "jo@corp.io" not in text_of(batch)


def test_judging_twice_gives_the_same_rows() -> None:
    first = placed(call(1, [system("s"), user("jo@corp.io")], "b"))
    second = child(call(2, [system("s"), user("jo@corp.io"), assistant("b")], "d"), first)
    work = assembly(first, second, feedback=[feedback()])
    assert governor().judge(work) == governor().judge(work)


def test_a_rule_on_what_was_found_can_take_fields_away(tmp_path: Path) -> None:
    policy = bundle(
        tmp_path,
        capture="{rules: [{name: bare, match: {data_class: contact}, without: [ext, tokens]}]}",
    )
    tokens = TokenCapture((1,), (3,), (-0.1,))
    found = placed(call(1, [user("jo@corp.io")], ext={"a": "x-text"}, tokens=tokens))
    plain = placed(call(2, [user("hi")], ext={"a": "y-text"}, tokens=tokens), trajectory="t2")
    batch = governor(policy).judge(assembly(found, plain))
    assert "x-text" not in text_of(batch)
    assert "y-text" in text_of(batch)
    assert [row.step_id for row in batch.tokens] == ["step2"]


def test_reasoning_can_be_left_out_with_the_tokens_that_hold_it(tmp_path: Path) -> None:
    from trajectory.message import ReasoningPart, TextPart

    answer = Message("assistant", (ReasoningPart("secret thought"), TextPart("hello")))
    one = placed(call(1, output=answer, tokens=TokenCapture((1,), (3,), (-0.1,))))
    batch = governor(bundle(tmp_path, capture="{without: [reasoning]}")).judge(assembly(one))
    assert "secret thought" not in text_of(batch)
    assert batch.tokens == ()
    assert "secret thought" in text_of(governor().judge(assembly(one)))


def test_the_ledger_says_what_decided(tmp_path: Path) -> None:
    policy = bundle(
        tmp_path,
        capture="{rules: [{name: hr, match: {app: hr}, level: metadata}]}",
    )
    batch = governor(policy).judge(
        assembly(
            placed(call(1)),
            placed(call(2, client={"app_id": "hr"}), trajectory="t2"),
            placed(call(3, client={"purposes": ()}), trajectory="t3"),
            placed(call(4, headers=[("x-headrace-opt-out", "all")]), trajectory="t4"),
        )
    )
    assert [row.reasons for row in batch.exchanges] == [
        ("capture:hr",),
        ("consent:no-purpose",),
        ("consent:header:opt-out",),
        (),
    ]


def test_a_client_that_hangs_up_after_the_last_word_has_a_whole_answer() -> None:
    batch = governor().judge(assembly(placed(call(1, outcome=ExchangeOutcome.CLIENT_ABORT))))
    assert dispositions(batch) == {"step1": "stored"}


def test_a_call_that_sends_only_what_is_new_leans_on_its_parent() -> None:
    tokens = TokenCapture((1,), (3,), (-0.1,))
    first = placed(call(1, [user("a jo@corp.io")], "b"))
    second = placed(
        call(2, [user("c")], "d", tokens=tokens),
        parent_step_id="step1",
        context_keep=2,
        context_is_delta=True,
    )
    batch = governor().judge(assembly(first, second))
    step = batch.steps[1]
    assert (step.context_keep, len(step.context_message_ids)) == (2, 1)
    assert [row.token_fidelity for row in batch.tokens] == ["span_masked"]
    whole = placed(call(3, [user("a jo@corp.io"), assistant("b"), user("c")], "x"), trajectory="t2")
    assert step.state_hash == governor().judge(assembly(whole)).steps[0].state_hash


def test_a_delta_on_a_step_in_the_lake_keeps_its_placement() -> None:
    known = MemoryKnownContent()
    first = placed(call(1, [user("a")], "b"))
    second = placed(
        call(2, [user("c")], "d"), parent_step_id="step1", context_keep=2, context_is_delta=True
    )
    third = placed(
        call(3, [user("e")], "f"), parent_step_id="step2", context_keep=4, context_is_delta=True
    )
    known.add(governor(known=known).judge(assembly(first)))
    batch = governor(known=known).judge(assembly(second, third))
    assert [(s.context_keep, len(s.context_message_ids)) for s in batch.steps] == [(2, 1), (4, 1)]
    assert batch.steps[0].state_hash is not None


def test_a_delta_without_its_parent_is_held() -> None:
    alone = placed(
        call(2, [user("c")], "d"), parent_step_id="step1", context_keep=2, context_is_delta=True
    )
    batch = governor().judge(assembly(alone))
    assert [row.reason for row in batch.quarantine] == ["quality:parent-present"]


def test_a_repetition_stands_in_for_an_original_that_is_held() -> None:
    bad = call(1, tokens=TokenCapture((1,), (3, 4), (-0.1,)))
    good = placed(call(2), duplicate_of="step1", branch=1)
    third = placed(call(3), duplicate_of="step1", branch=2)
    batch = governor().judge(assembly(placed(bad), good, third))
    assert dispositions(batch) == {"step1": "quarantined", "step2": "stored", "step3": "duplicate"}
    assert len(batch.exchanges) == 3


def test_what_cannot_be_read_of_a_tenant_without_consent_is_left_out() -> None:
    silent = Call(
        exchange(1, client={"purposes": ()}), "opaque", CallKind.OPAQUE, problem="not-json"
    )
    batch = governor().judge(assembly(unplaced=[silent]))
    assert batch.quarantine == ()
    assert [(r.disposition, r.reasons) for r in batch.exchanges] == [
        ("left_out", ("consent:no-purpose",))
    ]


def test_a_call_whose_rows_cannot_be_made_is_held_back_alone() -> None:
    naive = T0.replace(tzinfo=None)
    odd = placed(call(1, [user("a")], "b", ended_at=naive))
    after = child(call(2, [user("a"), assistant("b"), user("c")], "d"), odd)
    batch = governor().judge(assembly(odd, after))
    assert dispositions(batch) == {"step1": "quarantined", "step2": "stored"}
    assert batch.quarantine[0].reason == "error:TypeError"
    assert batch.steps[0].context_keep == 0


def test_workers_that_have_another_policy_cost_time_and_nothing_else() -> None:
    class MismatchedExecutor:
        def redact_all(self, requests: Sequence[RedactionRequest]) -> list[RedactionAnswer]:
            raise ConfigurationError("the node's policy is another one")

    said = [user("write to jo@example.com")]
    one = placed(call(1, said))
    apart = governor(spread=MismatchedExecutor()).judge(assembly(one))
    assert apart.messages == governor().judge(assembly(one)).messages
    assert "jo@example.com" not in repr(apart)


HEADERS = {
    "opt-out": (("x-headrace-opt-out", "train"), ("debug", "eval")),
    "purposes": (("x-headrace-purposes", "debug"), ("debug",)),
    "privacy control": (("sec-gpc", "1"), ("debug", "eval")),
    "merged by a proxy": (("sec-gpc", "1, 1"), ("debug", "eval")),
    "written otherwise": (("Sec-GPC", '"1"'), ("debug", "eval")),
    "merged otherwise": (("sec-gpc", "0, 1"), ("debug", "eval")),
    "everything": (("x-headrace-opt-out", "all"), ()),
}


@pytest.mark.parametrize("said", HEADERS)
@pytest.mark.parametrize("batches", [1, 2])
def test_what_a_header_took_away_holds_for_the_conversation(said: str, batches: int) -> None:
    header, left = HEADERS[said]
    known = MemoryKnownContent()
    first = placed(call(1, [user("I have diabetes")], "noted", headers=[header]))
    second = child(
        call(2, [user("I have diabetes"), assistant("noted"), user("and now?")], "eat well"), first
    )
    third = child(
        call(3, [*second.call.context, assistant("eat well"), user("thanks")], "bye"), second
    )
    other = placed(call(4, [user("where is my lamp?")], "on its way"), trajectory="t2")
    whole = [first, second, third, other]
    parts = [whole] if batches == 1 else [[one] for one in whole]
    purposes: dict[str, tuple[str, ...]] = {}
    stored = ""
    for part in parts:
        batch = governor(known=known).judge(assembly(*part))
        known.add(batch)
        stored += text_of(batch)
        purposes |= {row.step_id: row.purposes for row in batch.governance}
    assert purposes == {"step1": left, "step2": left, "step3": left, "step4": ALL_PURPOSES}
    assert ("diabetes" in stored) == bool(left)


def test_a_retry_that_opts_out_binds_what_comes_after_it() -> None:
    known = MemoryKnownContent()
    first = placed(call(1, [user("what is 2+2?")], "4"))
    again = placed(call(2, [user("what is 2+2?")], "4", headers=[("x-headrace-opt-out", "train")]))
    later = child(call(3, [user("what is 2+2?"), assistant("4"), user("sure?")], "yes"), first)
    for part in (first, again):
        known.add(governor(known=known).judge(assembly(part)))
    (row,) = governor(known=known).judge(assembly(later)).governance
    assert row.purposes == ("debug", "eval")
    assert "consent:conversation:train_sft" in row.reasons


def test_a_header_counts_for_purposes_that_are_granted_later() -> None:
    known = MemoryKnownContent()
    first = placed(call(1, headers=[("sec-gpc", "1")], client={"purposes": ("debug",)}))
    known.add(governor(known=known).judge(assembly(first)))
    second = child(call(2, [user("hello"), assistant("done"), user("go on")], "ok"), first)
    (row,) = governor(known=known).judge(assembly(second)).governance
    assert row.purposes == ("debug", "eval")


def test_a_repeated_step_is_told_in_a_later_batch_too() -> None:
    known = MemoryKnownContent()

    def judged(*calls: PlacedCall) -> GovernedBatch:
        batch = governor(known=known).judge(assembly(*calls))
        known.add(batch)
        return batch

    first = placed(call(1, [user("what is 2+2?")], "4"))
    second = child(call(2, [user("what is 2+2?"), assistant("4"), user("sure?")], "yes"), first)
    assert dispositions(judged(first)) == {"step1": "stored"}
    assert dispositions(judged(second)) == {"step2": "stored"}
    again = placed(call(3, [user("what is 2+2?")], "4"))
    assert dispositions(judged(again)) == {"step3": "duplicate"}
    assert dispositions(judged(again)) == {"step3": "duplicate"}
    after = replace(second, call=call(4, second.call.context, "yes"), step_id="step4")
    assert dispositions(judged(after)) == {"step4": "duplicate"}
    assert dispositions(judged(second)) == {"step2": "stored"}, "a step does not repeat itself"
    other = placed(call(5, [user("what is 2+2?")], "4"), trajectory="t2")
    longer = placed(call(6, [user("hello"), user("what is 2+2?")], "4"))
    assert dispositions(judged(other, longer)) == {"step5": "stored", "step6": "stored"}


@pytest.mark.parametrize("batches", [1, 2])
def test_the_same_words_later_in_a_conversation_repeat_nothing(batches: int) -> None:
    known = MemoryKnownContent()
    first = placed(call(1, [user("go on")], "ok"))
    later = [
        placed(
            call(number, [user("go on")], "ok"),
            parent_step_id=f"step{number - 1}",
            context_keep=2 * number - 2,
            context_is_delta=True,
        )
        for number in (2, 3)
    ]
    whole = [first, *later]
    stored: dict[str, str] = {}
    for part in [whole] if batches == 1 else [[one] for one in whole]:
        batch = governor(known=known).judge(assembly(*part))
        known.add(batch)
        stored |= dispositions(batch)
    assert stored == {"step1": "stored", "step2": "stored", "step3": "stored"}


def test_a_released_call_that_a_legal_hold_keeps_goes_back_to_quarantine_where_it_would_end(
    tmp_path: Path,
) -> None:
    def released(one: Call) -> Call:
        return replace(one, exchange=replace(one.exchange, released_of="f" * 32))

    mail = "jo@corp.io"
    opaque = released(Call(exchange(7), "opaque", CallKind.OPAQUE, problem="broken"))
    batch = governor(bundle(tmp_path, capture="{level: metadata}")).judge(
        assembly(
            placed(released(call(1, end_user=mail))),
            placed(released(call(2)), trajectory="t2"),
            placed(call(3), trajectory="t3"),
            unplaced=[opaque],
        ),
        is_on_hold=lambda one: one.started_at != call(2).exchange.started_at,
    )
    assert dispositions(batch) == {
        "step1": "quarantined",
        "step2": "left_out",
        "step3": "left_out",
        opaque.exchange.exchange_id: "quarantined",
    }
    assert {(row.stage, row.reason) for row in batch.quarantine} == {
        ("policy", "retention:legal-hold")
    }
    (held,) = (row for row in batch.governance if row.decision == "quarantine")
    assert held.subjects == (subject_id(KEY, "acme", mail),)
    assert "capture:metadata-only" in held.reasons
