"""Golden wire traffic of every dialect through assembly and the governor with the real redactor."""

from dataclasses import replace

import pytest

from governance.policy import load_bundle
from governance.redact import build_redactor
from governance.redact.trajectory import CallRedactor
from governance.stored_content import MemoryKnownContent
from tests.golden.calls.replay import CONFIGURED, SCENARIOS, load
from tests.governance.factories import ALL_PURPOSES, KEY, governor
from trajectory.assembly import Assembler
from trajectory.call import CallKind
from trajectory.reader import read_records


@pytest.fixture(scope="module")
def redactor() -> CallRedactor:
    bundle = load_bundle()
    return build_redactor(bundle.redaction.spec, pseudonym_key=KEY, base=bundle.path)


@pytest.mark.parametrize("name", SCENARIOS)
def test_it_is_stored_and_nothing_is_taken_for_personal(redactor: CallRedactor, name: str) -> None:
    exchanges = [
        replace(one, client=replace(one.client, purposes=ALL_PURPOSES)) for one, _ in load(name)
    ]
    calls, _ = read_records(exchanges, CONFIGURED)
    govern = governor(redactor=redactor, known=MemoryKnownContent())
    batch = govern.judge(Assembler(KEY).assemble(calls, []))
    content = [call for call in calls if call.kind in (CallKind.MODEL, CallKind.TOOL)]
    assert batch.quarantine == ()
    assert len(batch.exchanges) == len(calls)
    assert len({step.step_id for step in batch.steps}) == len(batch.steps)
    assert {step.dialect for step in batch.steps} <= {call.dialect for call in content}
    reasons = {step.finish_reason for step in batch.steps}
    assert "other" not in reasons
    assert {row.redaction_counts == {} for row in batch.governance} <= {True}
