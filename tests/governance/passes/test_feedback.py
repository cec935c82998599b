"""Feedback's texts are prose of people: names in them leave, whatever the field is called."""

from datetime import UTC, datetime

import pytest

from governance.redact import build_redactor
from governance.stored_content import MemoryKnownContent
from tests.governance.factories import KEY, assembly, bundle, call, feedback, governor, placed


@pytest.mark.parametrize("field", ["label", "rationale"])
@pytest.mark.parametrize("said", ["Please call {} back.", "{} was rude", "{}"])
def test_people_named_in_feedback_are_redacted(field: str, said: str) -> None:
    policy = bundle()
    redactor = build_redactor(policy.redaction.spec, pseudonym_key=KEY, base=policy.path)
    person = "Yolanda Okonkwo"
    work = assembly(placed(call(1)), feedback=[feedback(**{field: said.format(person)})])
    (signal,) = governor(policy, redactor=redactor).judge(work).signals
    text = getattr(signal, field)
    assert "<PERSON" in text
    assert not any(part in text for part in person.split())


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "soon"])
def test_a_time_that_nobody_could_read_again_counts_as_none(at: str) -> None:
    said = feedback(label="good", observed_at=at)
    (signal,) = governor(bundle()).judge(assembly(placed(call(1)), feedback=[said])).signals
    assert signal.observed_at == said.feedback.received_at


def test_a_time_is_kept_as_utc() -> None:
    said = feedback(label="good", observed_at="2026-01-31T12:00:00+02:00")
    (signal,) = governor(bundle()).judge(assembly(placed(call(1)), feedback=[said])).signals
    assert signal.observed_at == datetime(2026, 1, 31, 10, tzinfo=UTC)


def test_what_is_delivered_again_says_nothing_new() -> None:
    known = MemoryKnownContent()
    said = assembly(placed(call(1)), feedback=[feedback(key="mine")])
    first = governor(known=known).judge(said)
    assert len(first.signals) == 1
    known.add(first)
    again = governor(known=known).judge(assembly(feedback=[feedback(key="mine", value=0.0)]))
    assert (again.signals, again.governance) == ((), ())


def test_what_has_the_name_of_its_content_is_said_anew() -> None:
    known = MemoryKnownContent()
    known.add(governor(known=known).judge(assembly(placed(call(1)), feedback=[feedback()])))
    assert len(governor(known=known).judge(assembly(feedback=[feedback()])).signals) == 1
