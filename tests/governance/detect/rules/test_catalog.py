"""Rules as data: what the YAML files hold, and a rule that a policy adds."""

from pathlib import Path

import pytest

from governance.detect.gate import Gate
from governance.detect.matcher import Runner
from governance.detect.normalized_text import view_of
from governance.detect.prefilter import Prefilter
from governance.detect.rules.catalog import rules, rules_of
from governance.policy.redaction import NamesSpec, RedactionSpec
from governance.redact import build_redactor
from tests.governance.redaction_support import KEY, SCOPE
from trajectory.errors import ConfigurationError

BADGE = """
fragments:
  badge: 'B-\\d{6}'
recognizers:
  - name: badge
    supported_entity: BADGE
    patterns: [{regex: '\\b(?:badge|Ausweis) (<<badge>>)', score: 0.9}]
    group: 1
    needs: [badge, ausweis]
    validate: digits
"""


ZONES = """
fragments:
  word: [zone, 'strefa (?:żółta|niebieska)']
defaults: {supported_entity: BADGE, group: 1, needs: [zone, żółta]}
recognizers:
  - name: zone
    patterns: [{regex: '\\b<<word>> (\\w+)', score: 0.9}]
  - name: zone_of_somebody
    patterns: [{regex: '\\bowner of <<word>> (\\w+)', score: 0.9}]
    needs: [owner]
    around: no_company
"""


def test_each_rule_has_a_name_an_entity_and_a_pattern() -> None:
    for rule in rules():
        assert rule.name
        assert rule.entity.isupper()
        assert rule.regex


def test_a_policy_adds_a_rule_with_a_named_check(tmp_path: Path) -> None:
    file = tmp_path / "badges.yaml"
    file.write_text(BADGE, encoding="utf-8")
    spec = RedactionSpec.model_validate(
        {
            "names": NamesSpec(model=None),
            "entities": {"BADGE": "mask"},
            "recognizers": ["badges.yaml"],
        }
    )
    redactor = build_redactor(spec, pseudonym_key=KEY, base=tmp_path)
    made = redactor.redact_text("lost badge B-482913 and part B-482913", scope=SCOPE)
    assert "badge B-482913" not in made.text
    assert made.report.counts["BADGE"] >= 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (BADGE.replace("validate: digits", "validate: dgits"), "unknown check 'dgits'"),
        (BADGE.replace("group: 1", "grup: 1"), "unknown key 'grup'"),
        (BADGE.replace("<<badge>>", "<<bage>>"), "bage"),
        (BADGE.replace("'B-\\d{6}'", "'<<badge>>'"), "RecursionError"),
        (BADGE.replace("validate: digits", "around: company"), "unknown check 'company'"),
        (BADGE.replace("recognizers", "recognisers"), "recognizers"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, wrong: str, said: str) -> None:
    file = tmp_path / "badges.yaml"
    file.write_text(wrong, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=said):
        rules_of(file)


def test_a_fragment_may_be_a_list_in_any_language(tmp_path: Path) -> None:
    file = tmp_path / "zones.yaml"
    file.write_text(ZONES, encoding="utf-8")
    zone, owned = rules_of(file)
    runner = Runner.of(zone)
    for text in ("zone A7", "strefa żółta A7"):
        gate = Gate(view_of(text))
        assert Prefilter([runner]).of(gate) == (runner,)
        assert [text[hit.start : hit.end] for hit in runner.run(gate, ())] == ["A7"]
    assert list(runner.run(Gate(view_of("strefa żywa A7")), ())) == []
    assert (owned.entity, owned.group, owned.needs) == ("BADGE", 1, ("owner",))
    assert owned.around is not None
    assert zone.around is None
