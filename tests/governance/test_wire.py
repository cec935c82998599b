"""Recorded wire traffic of each dialect through assembly and the governor with the real redactor."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from governance.policy import load_bundle
from governance.records import GovernedBatch
from governance.redact import build_redactor
from governance.redact.trajectory import CallRedactor
from governance.stored_content import MemoryKnownContent
from tests.golden.trajectories.replay import SCENARIOS, load
from tests.governance.factories import ALL_PURPOSES, KEY, governor
from trajectory.assembly import Assembler
from trajectory.call import CallKind
from trajectory.dialects.registry import read_exchange


@pytest.fixture(scope="module")
def redactor() -> CallRedactor:
    bundle = load_bundle()
    return build_redactor(bundle.redaction.spec, pseudonym_key=KEY, base=bundle.path)


def judged(redactor: CallRedactor, name: str, batches: int = 1) -> Sequence[GovernedBatch]:
    exchanges = [
        replace(one, client=replace(one.client, purposes=ALL_PURPOSES)) for one in load(name)
    ]
    known, assembler = MemoryKnownContent(), Assembler(KEY)
    govern = governor(redactor=redactor, known=known)
    size = -(-len(exchanges) // batches)
    done = []
    for start in range(0, len(exchanges), size):
        calls = [read_exchange(one) for one in exchanges[start : start + size]]
        done.append(govern.judge(assembler.assemble(calls, [])))
        known.add(done[-1])
    return done


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_dialect_is_stored_and_nothing_is_taken_for_personal(
    redactor: CallRedactor, name: str
) -> None:
    (batch,) = judged(redactor, name)
    calls = [read_exchange(one) for one in load(name)]
    content = [one for one in calls if one.kind in (CallKind.MODEL, CallKind.TOOL)]
    assert len(batch.steps) == len(content)
    assert batch.quarantine == ()
    assert [row.redaction_counts for row in batch.governance] == [{}] * len(content)
    answers = {one.response_id for one in content}
    assert {step.response_id for step in batch.steps} == answers
    assert {row.token_fidelity for row in batch.tokens} <= {"exact"}


@pytest.mark.parametrize("name", SCENARIOS)
def test_one_exchange_a_batch_gives_the_same_conversations(
    redactor: CallRedactor, name: str
) -> None:
    (whole,) = judged(redactor, name)
    parts = judged(redactor, name, batches=100)
    for column in ("messages", "steps", "exchanges"):
        together = {_name(row) for row in getattr(whole, column)}
        assert {_name(row) for part in parts for row in getattr(part, column)} == together


def _name(row: object) -> object:
    for field in ("message_id", "step_id", "exchange_id"):
        if hasattr(row, field):
            return getattr(row, field)
    raise AssertionError(row)
