"""Operators: what stands in a value's place, and who can undo it."""

import json
import sqlite3
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Barrier, Thread
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from governance.policy.redaction import RedactionSpec
from governance.redact import RedactionScope, Redactor, build_redactor, subject_id
from governance.redact.generalise import generalised
from governance.redact.pseudonym import Pseudonymizer, PseudonymScope
from governance.redact.reversible import SEALED, parsed, unseal
from governance.redact.subject_keys import FileSubjectKeys, MemorySubjectKeys, SubjectKeys
from tests.governance.redaction_support import KEY, SCOPE, made, text
from trajectory.errors import ConfigurationError, IntegrityError

JO = "Please write to jo.frame@corp-mail.com today"


def with_keys(subjects: SubjectKeys, **spec: object) -> Redactor:
    said = {"names": {"model": None}, "keys": "subject", **spec}
    return build_redactor(RedactionSpec.model_validate(said), pseudonym_key=KEY, subjects=subjects)


@pytest.mark.parametrize(
    ("entity", "value", "wider"),
    [
        ("AGE", "62", "60-69"),
        ("AGE", "90", "90+"),
        ("AGE", "104", "90+"),
        ("POSTCODE", "90210", "902"),
        ("POSTCODE", "03601", "000"),
        ("POSTCODE", "90210-1234", "902"),
        ("POSTCODE", "SW1A 2AA", None),
        ("DATE_OF_BIRTH", "6/24/1991", "1991"),
        ("DATE_OF_BIRTH", "1925-01-02", None),
        ("DATE_TIME", "2005-07-21 18:19:22", "2005"),
        ("DATE_TIME", "friday", None),
    ],
)
def test_wider_forms(entity: str, value: str, wider: str | None) -> None:
    assert generalised(entity, value, ages="decade", today=date(2026, 1, 1)) == wider


def test_ages_up_to_89_stay_where_policy_says_so() -> None:
    assert generalised("AGE", "89", ages="over_89", today=date(2026, 1, 1)) == "89"
    assert generalised("AGE", "90", ages="over_89", today=date(2026, 1, 1)) == "90+"


def test_who_turns_ninety_while_a_process_runs_loses_the_year(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [datetime(2026, 12, 31, tzinfo=UTC)]
    clock = SimpleNamespace(now=lambda _: now[0])
    monkeypatch.setattr("governance.redact.pseudonym.datetime", clock)
    spec = RedactionSpec.model_validate({"entities": {"DATE_OF_BIRTH": "generalise"}})
    pseudonyms, whose = Pseudonymizer(spec, KEY, subject_key=KEY), PseudonymScope("acme", "acme")
    assert pseudonyms.replacement("DATE_OF_BIRTH", "1937-06-24", whose) == "1937"
    now[0] = datetime(2027, 1, 1, tzinfo=UTC)
    assert pseudonyms.replacement("DATE_OF_BIRTH", "1937-06-24", whose) == "<DATE_OF_BIRTH>"


def test_generalised_numbers_stay_numbers() -> None:
    clean = made().redact_json({"patient": {"age": 93, "zip": 90210}}, scope=SCOPE).value
    assert clean == {"patient": {"age": 90, "zip": 902}}
    assert text('{"age": "47"}') == '{"age": "40-49"}'


def test_generalise_is_refused_where_nothing_is_wider() -> None:
    with pytest.raises(ValidationError, match="no wider form"):
        RedactionSpec.model_validate({"entities": {"PERSON": "generalise"}})


def test_realistic_stand_ins_belong_to_nobody() -> None:
    redactor = made(pseudonyms="realistic")
    given = f"{JO} or call (212) 736-5000 from 8.8.4.4; my name is Thandiwe Mbeki."
    clean = redactor.redact_text(given, scope=SCOPE).text
    assert "@mail.invalid" in clean
    assert "-555-01" in clean
    assert "192.0.2." in clean
    assert "Thandiwe" not in clean
    assert "<" not in clean
    assert redactor.redact_text(given, scope=SCOPE).text == clean


def test_a_sealed_value_opens_with_its_subjects_key_alone() -> None:
    subjects = MemorySubjectKeys()
    redactor = with_keys(subjects, entities={"EMAIL_ADDRESS": "encrypt"})
    clean = redactor.redact_text(f"{JO}, I said {JO}", scope=SCOPE).text
    marks = [match.group() for match in SEALED.finditer(clean)]
    assert len(marks) == 2
    assert len(set(marks)) == 1
    assert "jo.frame" not in clean
    sealed = parsed(marks[0])
    assert sealed is not None
    assert sealed.subject == subject_id(KEY, "acme", "jo.frame@corp-mail.com")
    key = subjects.known(sealed.subject)
    assert key is not None
    assert unseal(key, sealed) == "jo.frame@corp-mail.com"
    with pytest.raises(IntegrityError):
        unseal(bytes(32), sealed)
    again = redactor.redact_text(clean, scope=SCOPE).text
    assert again == clean


def test_a_destroyed_key_shreds_pseudonyms() -> None:
    subjects = MemorySubjectKeys()
    redactor = with_keys(subjects)
    before = redactor.redact_text(JO, scope=SCOPE).text
    assert redactor.redact_text(JO, scope=SCOPE).text == before
    subject = subject_id(KEY, "acme", "jo.frame@corp-mail.com")
    assert subjects.destroy([subject]) == 1
    assert subjects.known(subject) is None
    assert redactor.redact_text(JO, scope=SCOPE).text != before


def test_a_file_of_keys_may_be_forgotten_in_another_thread(tmp_path: Path) -> None:
    kept = [FileSubjectKeys(tmp_path / "keys", KEY)]
    closes = kept[0].close
    with ThreadPoolExecutor(1) as other:
        other.submit(kept.clear).result()
    assert not closes.alive


def test_the_store_keeps_keys_and_forgets_them(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "subjects.sqlite"
    store, other = FileSubjectKeys(path, KEY), FileSubjectKeys(path, KEY)
    assert other.known("subject_1") is None
    key = store.key("subject_1")
    assert other.known("subject_1") == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key not in path.read_bytes()
    wrapped = path.read_bytes()
    assert other.destroy(["subject_1", "subject_2"]) == 1
    store.begin()
    assert store.known("subject_1") is None
    assert b"subject_1" in wrapped
    assert b"subject_1" not in path.read_bytes()
    store.key("subject_3")
    with pytest.raises(IntegrityError, match="master key"):
        FileSubjectKeys(path, bytes(32)).known("subject_3")


def test_a_destroyed_key_does_not_come_back_with_a_power_cut(tmp_path: Path) -> None:
    path, kept = tmp_path / "subjects.sqlite", tmp_path / "kept"
    journal = path.with_name(f"{path.name}-journal")
    store = FileSubjectKeys(path, KEY)
    store.expect(["subject_1", "subject_2"])

    def names() -> Iterator[str]:
        yield "subject_1"
        kept.hardlink_to(journal)
        yield "subject_2"

    assert store.destroy(names()) == 2
    store.close()
    kept.replace(journal)  # its folder was not synced after it went
    assert FileSubjectKeys(path, KEY).known("subject_1") is None


def test_a_file_that_refuses_a_key_is_left_to_others(tmp_path: Path) -> None:
    path = tmp_path / "subjects.sqlite"
    store, other = FileSubjectKeys(path, KEY), FileSubjectKeys(path, KEY)
    with closing(sqlite3.connect(path)) as file:
        file.execute(
            "CREATE TRIGGER refuses BEFORE INSERT ON subject_keys BEGIN SELECT raise(ABORT, 'full'); END"
        )
    with pytest.raises(sqlite3.Error, match="full"):
        store.key("subject_1")
    with closing(sqlite3.connect(path)) as file:
        file.execute("DROP TRIGGER refuses")
    assert other.destroy(["subject_1"]) == 0
    assert store.key("subject_1") == other.key("subject_1")


def test_keys_that_were_looked_for_at_once_are_those_that_are_asked_for_one_by_one(
    tmp_path: Path,
) -> None:
    store, other = (FileSubjectKeys(tmp_path / "subjects.sqlite", KEY) for _ in range(2))
    names = [f"subject_{number}" for number in range(1200)]
    store.expect(names)
    kept = {name: store.key(name) for name in names}
    other.expect([*kept, "subject_new"])
    assert {name: other.key(name) for name in kept} == kept
    fresh = other.key("subject_new")
    assert other.key("subject_new") == fresh == store.key("subject_new")


def test_keys_per_subject_need_a_store() -> None:
    with pytest.raises(ConfigurationError, match="no store"):
        made(keys="subject")
    with pytest.raises(ValidationError, match="followed"):
        RedactionSpec.model_validate(
            {"keys": "subject", "scope": "trajectory", "entities": {"PERSON": "encrypt"}}
        )


def test_a_rotated_key_gives_new_pseudonyms_and_the_same_subjects() -> None:
    old, new = made(), made(key_epoch=2)
    first, second = (r.redact_text(JO, scope=SCOPE) for r in (old, new))
    assert first.text != second.text
    assert first.subjects == second.subjects


def test_scopes_do_not_share_sealed_marks() -> None:
    redactor = made(entities={"EMAIL_ADDRESS": "encrypt"})
    marks = {
        redactor.redact_text(JO, scope=RedactionScope(tenant, "t")).text for tenant in ("a", "b")
    }
    assert len(marks) == 2
    assert all("jo.frame" not in json.dumps(mark) for mark in marks)


@pytest.mark.parametrize("how", ["pseudonym", "hash", "encrypt", "realistic"])
def test_a_scope_without_links_leaves_types_only(how: str) -> None:
    spec = {"pseudonyms": how} if how == "realistic" else {"entities": {"EMAIL_ADDRESS": how}}
    scope = RedactionScope(SCOPE.tenant_id, SCOPE.trajectory_id, linked=False)
    redacted = made(**spec).redact_text(JO, scope=scope)
    assert redacted.text == "Please write to <EMAIL_ADDRESS> today"
    assert redacted.report.counts == {"EMAIL_ADDRESS": 1}


def test_two_that_name_a_new_subject_in_the_same_moment_get_one_key(tmp_path: Path) -> None:
    stores = [FileSubjectKeys(tmp_path / "subjects.sqlite", KEY) for _ in range(2)]
    for store in stores:  # both look before either of them is asked for a key
        store.begin()
    for store in stores:
        store.expect(["subject_1"])
    one, other = (store.key("subject_1") for store in stores)
    assert one == other
    one, other = (store.key("subject_2") for store in stores)
    assert one == other == FileSubjectKeys(tmp_path / "subjects.sqlite", KEY).known("subject_2")


def test_two_redactors_give_a_new_subject_one_pseudonym(tmp_path: Path) -> None:
    gate, made = Barrier(2), [list[str](), list[str]()]

    def redact(place: int) -> None:
        store = FileSubjectKeys(tmp_path / "subjects.sqlite", KEY)
        redactor = with_keys(store)
        for number in range(20):
            gate.wait(60)
            said = f"mail jo{number}@corp-mail.com"
            made[place].append(redactor.redact_text(said, scope=SCOPE).text)

    threads = [Thread(target=redact, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made[0] == made[1]
    assert len(set(made[0])) == 20


def test_what_leaves_types_only_makes_no_keys(tmp_path: Path) -> None:
    store = FileSubjectKeys(tmp_path / "subjects.sqlite", KEY)
    scope = RedactionScope(SCOPE.tenant_id, SCOPE.trajectory_id, linked=False)
    with_keys(store).redact_text(JO, scope=scope)
    assert store.known(subject_id(KEY, "acme", "jo.frame@corp-mail.com")) is None


def test_no_two_values_share_a_pseudonym() -> None:
    pseudonyms = Pseudonymizer(RedactionSpec(), KEY, subject_key=KEY)
    whose = PseudonymScope("acme", "acme")
    marks = {
        pseudonyms.replacement("EMAIL_ADDRESS", f"user{number}@corp-mail.com", whose)
        for number in range(20_000)
    }
    assert len(marks) == 20_000


def test_damage_behind_the_first_page_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "subjects.sqlite"
    store = FileSubjectKeys(path, KEY)
    people = [f"b2:{number:064x}" for number in range(500)]
    store.expect(people)
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xaa" * (len(whole) - 4096))
    for use in (
        lambda keys: keys.key(people[7]),
        lambda keys: keys.known(people[7]),
        lambda keys: keys.expect(people),
        lambda keys: keys.destroy(people),
    ):
        with pytest.raises(IntegrityError, match=r"subjects\.sqlite is damaged"):
            use(FileSubjectKeys(path, KEY))


@pytest.mark.parametrize("damage", [b"no database at all" * 40, None], ids=["noise", "cut"])
def test_a_damaged_store_is_told_as_such(tmp_path: Path, damage: bytes | None) -> None:
    path = tmp_path / "subjects.sqlite"
    store = FileSubjectKeys(path, bytes(32))
    for number in range(200):
        store.key(f"b2:{number:032x}")
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    with pytest.raises(IntegrityError, match=r"subjects\.sqlite is damaged"):
        FileSubjectKeys(path, bytes(32))
