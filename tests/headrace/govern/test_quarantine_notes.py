"""Notes on held calls: sealed, added to, and gone with what they are about."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from governance.records import GovernedBatch, HeldFeedback, QuarantineRecord
from headrace.govern.quarantine_store import QuarantineStore
from tests.governance.factories import assembly, placed
from tests.headrace.installations import ALL, chat
from trajectory.assembly.result import Assembly, PlacedPeople
from trajectory.errors import IntegrityError
from trajectory.exchange import ClientIdentity, Feedback, SpoolPosition
from trajectory.reader import read_records

KEY = b"q" * 32
WORD, PERSON = "zorvaquim", "jo.frame@corp-mail.com"
HELD = chat(1, [{"role": "user", "content": "hello"}])
LATER = datetime.now(UTC) + timedelta(days=15)


def said(number: int, *calls: tuple[str, str]) -> HeldFeedback:
    one = Feedback(
        feedback_id=f"f{number}",
        client=ClientIdentity("acme", "app", "test", "key", ALL),
        received_at=datetime(2026, 1, 1, tzinfo=UTC),
        target_kind="response",
        target_id="chatcmpl-1x",
        body={"name": "success", "value": 1.0, "rationale": WORD},
        position=SpoolPosition("w", 0, number),
    )
    return HeldFeedback(one, calls)


def keep(
    store: QuarantineStore, *feedback: HeldFeedback, people: PlacedPeople | None = None
) -> None:
    told = Assembly((), (), (), (), people=(people,) if people is not None else ())
    store.notes.keep(told, GovernedBatch(feedback_held=feedback), store.names)


@pytest.fixture
def store(tmp_path: Path) -> QuarantineStore:
    made = QuarantineStore(tmp_path, KEY)
    made.keep([HELD])
    return made


def test_what_was_said_comes_back_as_it_was_and_rests_sealed(
    store: QuarantineStore, tmp_path: Path
) -> None:
    one, two = (said(number, ("s1", HELD.exchange_id)) for number in (1, 2))
    keep(store, one)
    keep(store, one, two)
    note = store.notes.of("s1")
    assert note is not None
    assert note.feedback == (one.feedback, two.feedback)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert WORD.encode() not in b"".join(path.read_bytes() for path in files)


def test_people_who_are_told_later_are_added_where_a_call_is_held(store: QuarantineStore) -> None:
    named = PlacedPeople("acme", "s1", PERSON, (), ())
    keep(store, people=named)
    assert store.notes.of("s1") is None, "nobody holds such a call"
    keep(store, said(1, ("s1", HELD.exchange_id)))
    keep(store, people=named)
    note = store.notes.of("s1")
    assert note is not None
    assert (note.people, len(note.feedback)) == ((PERSON,), 1)


def test_nothing_is_kept_of_a_call_whose_exchange_is_gone(store: QuarantineStore) -> None:
    store.drop([HELD.exchange_id])
    keep(store, said(1, ("s1", HELD.exchange_id)), said(2, ("s2", "")))
    assert store.notes.of("s1") is None
    assert store.notes.of("s2") is not None, "it is on its way back to the governor"


def test_notes_expire_with_their_exchange_and_what_was_left_by_its_age(
    store: QuarantineStore, tmp_path: Path
) -> None:
    keep(store, said(1, ("s1", HELD.exchange_id)), said(2, ("s2", "")))
    assert store.expire(14, LATER, is_held=lambda _: True) == 0
    assert [store.notes.of(step) is not None for step in ("s1", "s2")] == [True, False]
    assert store.expire(14, LATER) == 1
    assert not [*tmp_path.iterdir()]


def test_an_erasure_takes_the_notes_of_its_tenant_but_for_what_is_kept(
    store: QuarantineStore,
) -> None:
    keep(store, said(1, ("s1", HELD.exchange_id)), said(2, ("s2", "")))
    assert store.notes.drop_of("globex", kept=()) == 0
    assert store.notes.drop_of("acme", kept={HELD.exchange_id}) == 1
    assert store.notes.drop_of("acme", kept=()) == 1


def change(store: QuarantineStore, folder: Path) -> Path:
    """Damage the first note; return its file."""
    file = min(folder.glob("*.notes/*"))
    file.write_bytes(file.read_bytes()[:-1])
    assert store.notes.damage("s1")
    return file


def test_a_note_that_does_not_open_is_told_and_no_later_one_hides_it(
    store: QuarantineStore, tmp_path: Path
) -> None:
    keep(store, said(1, ("s1", HELD.exchange_id)))
    with pytest.raises(IntegrityError, match="does not open"):
        QuarantineStore(tmp_path, b"p" * 32).notes.of("s1")
    file = change(store, tmp_path)
    keep(store, said(2, ("s1", HELD.exchange_id)))
    keep(store, people=PlacedPeople("acme", "s1", PERSON, (), ()))
    assert f"note {file.parent.name}/{file.name} " in store.notes.damage("s1")
    file.unlink()
    note = store.notes.of("s1")
    assert note is not None
    assert (note.people, len(note.feedback)) == ((PERSON,), 1)


def test_a_note_that_does_not_open_stays_with_its_exchange_and_goes_with_it(
    store: QuarantineStore, tmp_path: Path
) -> None:
    keep(store, said(1, ("s1", HELD.exchange_id)))
    change(store, tmp_path)
    assert store.expire(14, LATER, is_held=lambda _: True) == 0
    assert store.notes.drop_of("acme", kept={HELD.exchange_id}) == 0
    assert store.notes.damage("s1")
    assert store.expire(14, LATER) == 1
    assert not [*tmp_path.iterdir()]


def test_a_note_stays_with_the_exchange_that_brings_a_call_which_is_held_again(
    store: QuarantineStore, tmp_path: Path
) -> None:
    keep(store, said(1, ("s1", HELD.exchange_id)))
    again = replace(HELD, exchange_id="a" * 32, released_of=HELD.exchange_id)
    (call,), _ = read_records([again], ())
    work = assembly(placed(call, "s1"))
    case = QuarantineRecord(
        tenant_id="acme",
        quarantine_id="q",
        exchange_id=again.exchange_id,
        trajectory_id="t1",
        step_id="s1",
        started_at=again.started_at,
        recorded_at=again.started_at,
        stage="quality",
        reason="quality:answer-not-cut",
        detail="{}",
        policy_hash="b2:1",
    )
    store.drop([HELD.exchange_id])
    store.keep([again])
    store.notes.keep(work, GovernedBatch(quarantine=(case,)), store.names)
    keep(store, people=PlacedPeople("acme", "s1", PERSON, (), ()))
    assert store.notes.drop_of("acme", kept=store.names()) == 0
    assert store.expire(14, LATER, is_held=lambda _: True) == 0
    note = store.notes.of("s1")
    assert note is not None
    assert (note.people, len(note.feedback)) == ((PERSON,), 1)
