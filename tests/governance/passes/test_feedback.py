"""Feedback's texts are prose of people: names in them leave, whatever the field is called."""

import pytest

from governance.redact import build_redactor
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
