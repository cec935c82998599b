"""Parts of a name that an earlier batch told go from calls that do not say the name again."""

import json
import random
import string
from dataclasses import replace

import pytest

from governance.records import GovernedBatch
from governance.redact import subject_id
from governance.stored_content import MemoryKnownContent
from tests.governance.factories import (
    ALL_PURPOSES,
    KEY,
    assembly,
    call,
    child,
    feedback,
    governor,
    placed,
    user,
)
from tests.governance.redaction_support import made
from trajectory.assembly.result import PlacedCall
from trajectory.call import CallKind, ToolDispatch

NAME = "Priya Raghunathan"


def _told(known: MemoryKnownContent) -> tuple[PlacedCall, GovernedBatch]:
    one = placed(call(1, [user(f"My name is {NAME}, find my order.")], "Sure, Priya."))
    batch = governor(redactor=made(), known=known).judge(assembly(one))
    known.add(batch)
    return one, batch


def _text(batch: GovernedBatch) -> str:
    rows = [
        [m.parts for m in batch.messages],
        [(s.tool_calls, s.tool_results) for s in batch.steps],
    ]
    return str([*rows, [s.rationale for s in batch.signals]])


def test_a_call_that_sends_only_what_is_new() -> None:
    known = MemoryKnownContent()
    one, first = _told(known)
    said = "raghunathan's order is the blue one, ask @priya"
    new = (user(said),)
    two = replace(
        child(call(2, new, "Shipped to Raghunathan.", dialect="openai.responses"), one),
        context_is_delta=True, context_keep=2, new_messages=new,
    )  # fmt: skip
    batch = governor(redactor=made(), known=known).judge(assembly(two))
    assert "aghunathan" not in _text(batch)
    assert "priya" not in _text(batch)
    mark = json.loads(first.messages[0].parts)[0]["text"].partition("is ")[2].partition(",")[0]
    assert _text(batch).count(mark) == 2
    assert "ask @<USERNAME_" in _text(batch)
    assert subject_id(KEY, "acme", NAME) not in _text(batch)
    assert batch.governance[0].subjects == first.governance[0].subjects


def test_a_tool_that_is_called_by_itself() -> None:
    known = MemoryKnownContent()
    one, _ = _told(known)
    dispatch = ToolDispatch(
        "crm", {"q": "raghunathan"}, {"content": [{"text": "raghunathan: gold, contact Priya"}]}, False, "x"
    )  # fmt: skip
    base = call(3, [], None)
    tool = replace(
        base, kind=CallKind.TOOL, dialect="mcp", context=(), output=None, dispatch=dispatch
    )
    batch = governor(redactor=made(), known=known).judge(
        assembly(placed(tool, step="tool3", trajectory=one.trajectory_id))
    )
    assert len(batch.steps) == 1
    assert "aghunathan" not in _text(batch)
    assert "Priya" not in _text(batch)


@pytest.mark.parametrize("said", ["Dear Priya, it is booked.", "Mr. Raghunathan agreed."])
def test_a_part_that_a_cue_names_stands_for_the_name_that_was_told_before(said: str) -> None:
    known = MemoryKnownContent()
    one, first = _told(known)
    mark = json.loads(first.messages[0].parts)[0]["text"].partition("is ")[2].partition(",")[0]
    new = (user(said),)
    two = replace(
        child(call(2, new, "ok", dialect="openai.responses"), one),
        context_is_delta=True, context_keep=2, new_messages=new,
    )  # fmt: skip
    other = replace(call(3, [], None), kind=CallKind.TOOL, dialect="mcp", context=(), output=None)
    tool = replace(other, dispatch=ToolDispatch("crm", {"q": said}, {}, False, "x"))
    for alone in (two, placed(tool, step="tool3", trajectory=one.trajectory_id)):
        batch = governor(redactor=made(), known=known).judge(assembly(alone))
        assert _text(batch).count(mark) == 1
        assert batch.governance[0].subjects == first.governance[0].subjects


@pytest.mark.parametrize("together", [True, False])
def test_feedback(together: bool) -> None:
    known = MemoryKnownContent()
    said = feedback(rationale="raghunathan was unhappy; Priya's refund", purposes=ALL_PURPOSES)
    one = placed(call(1, [user(f"My name is {NAME}.")], "Sure."))
    judge = governor(redactor=made(), known=known)
    if together:
        batch = judge.judge(assembly(one, feedback=(said,)))
    else:
        known.add(judge.judge(assembly(one)))
        batch = judge.judge(assembly(feedback=(said,)))
    assert len(batch.signals) == 1
    assert "aghunathan" not in _text(batch)
    assert "Priya" not in _text(batch)


def test_parts_that_are_words_need_their_capital_here_too() -> None:
    known = MemoryKnownContent()
    one = placed(call(1, [user("My name is Grace Raghunathan.")], "Sure."))
    known.add(governor(redactor=made(), known=known).judge(assembly(one)))
    new = (user("a period of grace for Grace"),)
    two = replace(
        child(call(2, new, "ok", dialect="openai.responses"), one),
        context_is_delta=True, context_keep=2, new_messages=new,
    )  # fmt: skip
    batch = governor(redactor=made(), known=known).judge(assembly(two))
    assert "a period of grace for <PERSON_" in _text(batch)


def test_no_name_can_be_read_from_what_is_kept() -> None:
    _, first = _told(MemoryKnownContent())
    names = json.loads(first.governance[0].redaction_report)["names"]
    assert len(names) >= 2
    assert "riya" not in json.dumps(names)
    other = placed(call(1, [user(f"My name is {NAME}.")], "Sure."), trajectory="another")
    batch = governor(redactor=made(), known=MemoryKnownContent()).judge(assembly(other))
    again = json.loads(batch.governance[0].redaction_report)["names"]
    assert not {one[0] for one in names} & {one[0] for one in again}


def test_secrets_in_the_addresses_of_tools_and_servers_are_not_stored() -> None:
    drawn = random.Random(20)  # noqa: S311 - made-up secrets
    token = "".join(drawn.choices(string.ascii_lowercase + string.digits, k=32))
    addresses = [
        ("https://hook.eu1.make.com:443", f"/{token}"),
        ("https://mcp.zapier.com:443", f"/api/mcp/s/{token}/mcp"),
        ("https://hooks.slack.com:443", f"/services/T02AB3C4D/B05EF6G7H/{token}"),
        ("https://api.telegram.org:443", f"/bot5012345678:{token}/sendMessage"),
    ]
    for number, (upstream, path) in enumerate(addresses, 1):
        address = upstream + path
        hook = path.removeprefix("/bot").partition("/")[0] if ":" in path else token
        tool = ToolDispatch("post", {"hook": hook, "text": "hi"}, {"ok": True}, False, address)
        base = call(number, [], None, ext={"method": "POST", "url": address})
        one = replace(base, kind=CallKind.TOOL, dialect="mcp", context=(), output=None)
        batch = governor(redactor=made()).judge(assembly(placed(replace(one, dispatch=tool))))
        (step,) = batch.steps
        assert token not in str(batch)
        assert json.loads(step.ext or "")["tool_server"].startswith(upstream)
