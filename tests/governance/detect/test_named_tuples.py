"""The short way to make a named tuple gives what the type's own constructor gives."""

from governance.detect.finding import Finding
from governance.detect.named_tuples import new


def test_both_ways_agree() -> None:
    made = Finding("PERSON", 3, 9, 0.6, "name_rules.cue")
    short = new(Finding, ("PERSON", 3, 9, 0.6, "name_rules.cue"))
    assert short == made
    assert type(short) is Finding
    assert short._asdict() == made._asdict()
