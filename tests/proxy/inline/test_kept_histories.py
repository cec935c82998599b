"""Histories of responses that providers keep: for their own client key alone, sealed, and not for long."""

from dataclasses import dataclass, replace
from pathlib import Path

from proxy.inline.kept_histories import HistoryOwner, KeptHistories, KeptHistory

OWNER = HistoryOwner("acme", "key-1", "model")
KEPT = KeptHistory(
    scope=("session", "s"),
    values={"EMAIL_bcdfghjklmnpqrstvw": "ada@example.org", "PERSON_bcdfghjklmnpqrstv": 'Größe "3"'},
    numbers=("PHONE_bcdfghjklmnpqrstvw",),
    subjects=("subject-1",),
    earned={"look_up": ("EMAIL_bcdfghjklmnpqrstvw",)},
    calls={"call-1": "look_up"},
    asked="What is your name?",
)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_another_process_finds_it_and_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "state" / "histories.sqlite"
    KeptHistories(path, b"k" * 32, 60).keep(OWNER, "resp_1", KEPT)
    again = KeptHistories(path, b"k" * 32, 60)
    assert again.find(OWNER, "resp_1") == KEPT
    assert again.find(OWNER, "resp_2") is None
    for other in ({"tenant": "b"}, {"key_id": "key-2"}, {"route": "other"}):
        assert again.find(replace(OWNER, **other), "resp_1") is None
    assert KeptHistories(path, b"x" * 32, 60).find(OWNER, "resp_1") is None


def test_nobody_reads_it_from_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "histories.sqlite"
    KeptHistories(path, b"k" * 32, 60).keep(OWNER, "resp_1", KEPT)
    raw = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    for told in (b"ada@example.org", b"EMAIL_", b"resp_1", b"key-1", b"look_up"):
        assert told not in raw
    assert path.stat().st_mode & 0o777 == 0o600


def test_it_is_gone_when_its_time_is_over(tmp_path: Path) -> None:
    path, clock = tmp_path / "histories.sqlite", Clock()
    histories = KeptHistories(path, b"k" * 32, 60, clock)
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


def test_one_without_end_is_not_kept(tmp_path: Path) -> None:
    histories = KeptHistories(tmp_path / "histories.sqlite", b"k" * 32, 60)
    histories.keep(OWNER, "resp_1", replace(KEPT, asked="x" * 2**20))
    assert histories.find(OWNER, "resp_1") is None
