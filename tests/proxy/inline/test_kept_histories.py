"""Histories of responses that providers keep: for their own client key alone, sealed, and not for long."""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest

from proxy.inline.kept_histories import (
    HistoryOwner,
    KeptHistories,
    KeptHistory,
    LongHistoryError,
    SurrogateConflictError,
    read_kept_history,
)
from trajectory.errors import IntegrityError

OWNER = HistoryOwner("acme", "key-1", "model")
KEPT = KeptHistory(
    scope=("session", "s"),
    values={"EMAIL_bcdfghjklmnpqrstvw": "ada@example.org", "PERSON_bcdfghjklmnpqrstv": 'Größe "3"'},
    entities={"EMAIL_bcdfghjklmnpqrstvw": "EMAIL_ADDRESS", "PERSON_bcdfghjklmnpqrstv": "PERSON"},
    numbers=("PHONE_bcdfghjklmnpqrstvw",),
    subjects=("subject-1",),
    earned={"look_up": ("EMAIL_bcdfghjklmnpqrstvw",)},
    calls={"call-1": "look_up"},
    asked="What is your name?",
    in_json=True,
)


type Opens = Callable[..., KeptHistories]


@pytest.fixture
def opened() -> Iterator[Opens]:
    """Open files, and close them in the end."""
    with ExitStack() as stack:

        def open_(
            path: Path, key: bytes = b"k" * 32, clock: Callable[[], float] = time.time
        ) -> KeptHistories:
            histories = KeptHistories(path, key, 60, clock)
            stack.callback(histories.close)
            return histories

        yield open_


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_names_a_person_is_forgotten_whoever_owns_it(tmp_path: Path, opened: Opens) -> None:
    path = tmp_path / "state" / "histories.sqlite"
    assert opened(path).forget(["subject-1"]) == 0
    assert not path.exists()
    kept, other = opened(path), replace(OWNER, key_id="key-2")
    kept.keep(OWNER, "resp_1", KEPT)
    kept.keep(other, "resp_2", replace(KEPT, subjects=("subject-2", "subject-1")))
    kept.keep(OWNER, "resp_3", replace(KEPT, subjects=("subject-2",)))
    opened(path, b"x" * 32).keep(OWNER, "resp_1", KEPT)  # under another key of the installation
    assert opened(path).forget(["subject-1", "subject-9"]) == 2
    assert kept.find(OWNER, "resp_1") is None
    assert kept.find(other, "resp_2") is None
    assert kept.find(OWNER, "resp_3") is not None
    assert opened(path).forget(["subject-1"]) == 0


def test_another_process_finds_it_and_nobody_else(tmp_path: Path, opened: Opens) -> None:
    path = tmp_path / "state" / "histories.sqlite"
    opened(path).keep(OWNER, "resp_1", KEPT)
    again = opened(path)
    assert again.find(OWNER, "resp_1") == KEPT
    assert again.find(OWNER, "resp_2") is None
    for other in ({"tenant": "b"}, {"key_id": "key-2"}, {"route": "other"}):
        assert again.find(replace(OWNER, **other), "resp_1") is None
    assert opened(path, b"x" * 32).find(OWNER, "resp_1") is None


def test_nobody_reads_it_from_the_disk(tmp_path: Path, opened: Opens) -> None:
    path = tmp_path / "histories.sqlite"
    opened(path).keep(OWNER, "resp_1", KEPT)
    raw = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    for told in (b"ada@example.org", b"EMAIL_", b"resp_1", b"key-1", b"look_up"):
        assert told not in raw
    assert path.stat().st_mode & 0o777 == 0o600


def test_it_is_gone_when_its_time_is_over(tmp_path: Path, opened: Opens) -> None:
    path, clock = tmp_path / "histories.sqlite", Clock()
    histories = opened(path, clock=clock)
    histories.keep(OWNER, "resp_1", KEPT)
    clock.now = 59
    assert histories.find(OWNER, "resp_1") == KEPT
    clock.now = 60
    assert histories.find(OWNER, "resp_1") is None
    clock.now = 0
    histories.keep(OWNER, "resp_2", KEPT)
    clock.now = 61
    histories.keep(OWNER, "resp_3", KEPT)
    clock.now = 0  # what is over is deleted, not only hidden
    assert histories.find(OWNER, "resp_1") is None
    assert histories.find(OWNER, "resp_2") is None
    assert histories.find(OWNER, "resp_3") == KEPT


def test_one_without_end_is_not_kept(tmp_path: Path, opened: Opens) -> None:
    histories = opened(tmp_path / "histories.sqlite")
    with pytest.raises(LongHistoryError):
        histories.keep(OWNER, "resp_1", replace(KEPT, asked="x" * 2**21))
    assert histories.find(OWNER, "resp_1") is None
    histories.keep(OWNER, "conv_1", KEPT)
    with pytest.raises(LongHistoryError):
        histories.merge(OWNER, "conv_1", replace(KEPT, asked="x" * 2**21))
    assert histories.find(OWNER, "conv_1") == KEPT


def test_writers_of_a_conversation_add_to_it_and_begin_none(tmp_path: Path, opened: Opens) -> None:
    path = tmp_path / "histories.sqlite"
    one, other = opened(path), opened(path)
    assert not one.merge(OWNER, "conv_1", KEPT)
    assert one.find(OWNER, "conv_1") is None
    one.keep(OWNER, "conv_1", KeptHistory(scope=("session", "s")))
    names = [f"EMAIL_{number}" for number in range(40)]

    def add(name: str) -> None:
        (one, other)[int(name[-1]) % 2].merge(
            OWNER, "conv_1", KeptHistory(values={name: f"{name}@x.org"}, earned={"t": (name,)})
        )

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add, names))
    found = opened(path).find(OWNER, "conv_1")
    assert found is not None
    assert found.scope == ("session", "s")
    assert found.values == {name: f"{name}@x.org" for name in names}
    assert found.earned == {"t": tuple(sorted(names))}
    with pytest.raises(SurrogateConflictError):
        other.merge(OWNER, "conv_1", KeptHistory(values={names[0]: "somebody@else.org"}))
    assert one.find(OWNER, "conv_1") == found  # and nobody's lock is left
    one.merge(OWNER, "conv_1", KeptHistory(asked="Who?"))
    again = other.find(OWNER, "conv_1")
    assert again is not None
    assert (again.asked, again.values) == ("Who?", found.values)
    other.drop(OWNER, "conv_1")
    assert one.find(OWNER, "conv_1") is None


def test_what_a_version_before_kept_is_read(tmp_path: Path, opened: Opens) -> None:
    histories = opened(tmp_path / "histories.sqlite")
    histories.keep(OWNER, "resp_1", KEPT)
    later = {"entities", "conversation", "requests", "is_answers"}
    before = {name: one for name, one in asdict(KEPT).items() if name not in later}
    assert read_kept_history(json.loads(json.dumps(before))) == replace(KEPT, entities={})


def test_the_type_that_a_value_had_first_stays() -> None:
    name, other = KEPT.values
    later = KeptHistory(entities={name: "USERNAME", "URL_x": "PERSONAL_URL"})
    assert KEPT.joined(later).entities == {
        name: "EMAIL_ADDRESS",
        other: "PERSON",
        "URL_x": "PERSONAL_URL",
    }


def test_what_is_answered_late_is_kept_longer(tmp_path: Path, opened: Opens) -> None:
    clock = Clock()
    histories = opened(tmp_path / "histories.sqlite", clock=clock)
    histories.keep(OWNER, "batch_1", KEPT, longer=10)
    clock.now = 69
    assert histories.find(OWNER, "batch_1") == KEPT
    clock.now = 70
    assert histories.find(OWNER, "batch_1") is None


def test_a_file_that_was_deleted_is_made_anew(tmp_path: Path, opened: Opens) -> None:
    path = tmp_path / "histories.sqlite"
    one, other = opened(path), opened(path)
    one.keep(OWNER, "resp_1", KEPT)
    assert other.find(OWNER, "resp_1") == KEPT
    for each in tmp_path.iterdir():
        each.unlink()
    assert other.find(OWNER, "resp_1") is None
    one.keep(OWNER, "resp_2", KEPT)
    assert other.find(OWNER, "resp_2") == KEPT


def test_a_damaged_file_is_named_to_who_goes_on_from_it(tmp_path: Path, opened: Opens) -> None:
    path = tmp_path / "histories.sqlite"
    path.write_bytes(b"no database at all, and longer than a header of one" * 100)
    histories = opened(path)
    for work in (
        lambda: histories.keep(OWNER, "resp_1", KEPT),
        lambda: histories.merge(OWNER, "resp_1", KEPT),
        lambda: histories.find(OWNER, "resp_1"),
        lambda: histories.drop(OWNER, "resp_1"),
    ):
        with pytest.raises(IntegrityError, match=r"histories\.sqlite is damaged .*move it away"):
            work()


@pytest.mark.parametrize("kept", [0, 4096])
def test_a_damaged_file_goes_whole_where_somebody_is_forgotten(
    tmp_path: Path, opened: Opens, kept: int
) -> None:
    """Nobody can tell whom it names, and what is sealed in its remains may be theirs."""
    path = tmp_path / "histories.sqlite"
    one, other = opened(path), opened(path)
    for number in range(50):
        one.keep(OWNER, f"resp_{number}", KEPT)
    one.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:kept] + b"\xaa" * (len(whole) - kept))
    assert other.forget(["subject-1"]) is None
    assert list(tmp_path.iterdir()) == []
    other.keep(OWNER, "resp_1", KEPT)
    assert one.find(OWNER, "resp_1") == KEPT


@pytest.mark.parametrize("kept", [0, 5, 20])
def test_a_history_that_was_cut_short_is_none(tmp_path: Path, opened: Opens, kept: int) -> None:
    path = tmp_path / "histories.sqlite"
    histories = opened(path)
    histories.keep(OWNER, "resp_1", KEPT)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("UPDATE histories SET sealed = substr(sealed, 1, ?)", (kept,))
    assert histories.find(OWNER, "resp_1") is None
    assert histories.forget(["subject-1"]) == 0


def test_threads_share_it(tmp_path: Path, opened: Opens) -> None:
    histories = opened(tmp_path / "histories.sqlite")
    with ThreadPoolExecutor(4) as threads:
        names = [f"resp_{number}" for number in range(40)]
        list(threads.map(lambda name: histories.keep(OWNER, name, KEPT), names))
        assert list(threads.map(lambda name: histories.find(OWNER, name), names)) == [KEPT] * 40
