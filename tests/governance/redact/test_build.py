"""Every shipped redaction policy builds, and does what its description says."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import policies
from governance.policy import PolicyError, load_bundle
from governance.policy.redaction import DEFAULT_ENTITIES, RedactionSpec
from governance.redact import Redactor, build_redactor, redactor_of
from governance.redact.subject_keys import MemorySubjectKeys
from tests.governance.redaction_support import KEY, SCOPE
from trajectory.errors import ConfigurationError

SHIPPED = sorted(Path(policies.__file__ or "").parent.glob("*/redaction.yaml"))
SENTENCE = "On 2024-05-01 Brenda Thistlewood flew to Lisbon, see https://example.com/x."


def built(path: Path) -> Redactor:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    spec = RedactionSpec.model_validate(document["spec"])
    return build_redactor(spec, pseudonym_key=KEY, subjects=MemorySubjectKeys())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.parent.name)
def test_shipped_policies_take_people_and_secrets_away(path: Path) -> None:
    clean = built(path).redact_text(f"{SENTENCE} password: Tr0ub4dor9", scope=SCOPE).text
    assert "Thistlewood" not in clean
    assert clean.endswith("password: <PASSWORD>")


def test_the_default_keeps_places_dates_and_addresses_on_the_web() -> None:
    (path,) = (path for path in SHIPPED if path.parent.name == "default")
    clean = built(path).redact_text(SENTENCE, scope=SCOPE).text
    assert clean.startswith("On 2024-05-01 <PERSON_")
    assert clean.endswith("flew to Lisbon, see https://example.com/x.")


def test_strict_takes_them_away() -> None:
    (path,) = (path for path in SHIPPED if path.parent.name == "strict")
    clean = built(path).redact_text(SENTENCE, scope=SCOPE).text
    assert clean.startswith("On <DATE_TIME> <PERSON_")
    assert "Lisbon" not in clean
    assert "example.com" not in clean


def test_every_default_entity_can_be_found() -> None:
    assert set(built(SHIPPED[0]).operators) >= set(DEFAULT_ENTITIES) - {"LOCATION"}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "entities: {}",
            "entities: {SHOE_SIZE: mask}",
            ":16: spec.entities.SHOE_SIZE: no detector",
        ),
        (
            "entities: {}",
            "subjects: [EMAIL_ADRESS]",
            ":16: spec.subjects: unknown entity type",
        ),
        (
            "embedded",
            "no_such_pipeline",
            ":18: spec.names.model: names.model 'no_such_pipeline' can",
        ),
        ("entities: {}", "recognizers: [more/ours.yaml]", ":16: spec.recognizers: "),
    ],
)
def test_what_cannot_load_is_told_with_file_and_line(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    for file in (SHIPPED[0].parent.parent / "default").glob("*.yaml"):
        (tmp_path / file.name).write_text(file.read_text().replace(old, new))
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "ours.yaml").write_text("recognizers: 7\n")
    with pytest.raises(PolicyError) as caught:
        redactor_of(load_bundle(tmp_path), pseudonym_key=KEY)
    assert f"redaction.yaml{says}" in str(caught.value)


def test_short_keys_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="16 to 64 bytes"):
        build_redactor(RedactionSpec(), pseudonym_key=b"short")


LONG_RUNNING = """
import gc
from governance.redact import settle
kept = [[] for _ in range(100_000)]  # as open conversations
settle()
seen = []
gc.callbacks.append(lambda phase, about: seen.append(about["generation"]))
more = [[] for _ in range(300_000)]
assert gc.get_freeze_count() > 100_000
assert seen and 2 not in seen and len(seen) < 100
settle()
assert gc.get_freeze_count() > 400_000
"""


def test_what_is_there_when_a_process_settles_is_not_looked_through_again() -> None:
    # In a process of its own: a freeze would hold all objects of the other tests.
    done = subprocess.run([sys.executable, "-c", LONG_RUNNING], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
