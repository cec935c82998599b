"""The scheduler runs what is due, once, also across restarts, and writes down every night."""

import fcntl
import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.app.home import Home
from headrace.schedule.runner import CommandOutcome
from headrace.schedule.scheduler import NightHistory, Scheduler
from tests.headrace.schedule.test_runner import BUILT, planned, schedule, trained
from trajectory.errors import ConfigurationError

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class NightSchedule:
    """A clock that is set by hand, and commands that always work."""

    def __init__(self, home: Path, **spec: Any) -> None:
        self.now = NOON
        self.asked: list[str] = []
        self.schedule = schedule(**spec)
        self.home = Home(home).create()

    def scheduler(self) -> Scheduler:
        return Scheduler(
            [self.schedule],
            self.home,
            self.answer,
            report=lambda _: None,
            now=lambda: self.now,
            pause=self.wait,
        )

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def answer(
        self, arguments: Sequence[str], seconds: float, keep: Sequence[int]
    ) -> CommandOutcome:
        self.asked.append(arguments[1])
        return {"build": BUILT, "plan": planned("sft"), "run": trained("0002")}[arguments[1]]

    def outcomes(self) -> list[str]:
        nights = NightHistory(self.home.state / "schedules", "nightly").nights()
        return [night["outcome"] for night in nights]


def test_each_night_runs_once_also_across_restarts(tmp_path: Path) -> None:
    nights = NightSchedule(tmp_path, conditions={"minimum_new_items": 0})
    nights.scheduler().look(nights.schedule)
    for hours in (14, 14.1, 20, 38, 38.2):
        nights.now = NOON + timedelta(hours=hours)
        nights.scheduler().look(nights.schedule)
    assert nights.outcomes() == ["first seen", "trained", "trained"]
    assert nights.asked.count("run") == 2


def test_missed_nights_are_made_up_for_once_and_that_is_written_down(tmp_path: Path) -> None:
    nights = NightSchedule(tmp_path)
    nights.scheduler().look(nights.schedule)
    nights.now = NOON + timedelta(days=4)
    nights.scheduler().look(nights.schedule)
    nights.scheduler().look(nights.schedule)
    assert nights.outcomes() == ["first seen", "trained"]
    assert (
        NightHistory(nights.home.state / "schedules", "nightly").nights()[-1]["made_up_for"] == "4"
    )


def test_what_was_learned_is_not_new_the_next_night(tmp_path: Path) -> None:
    nights = NightSchedule(tmp_path)
    scheduler = nights.scheduler()
    assert scheduler.run(nights.schedule).outcome == "trained"
    assert scheduler.run(nights.schedule).outcome == "nothing"


def test_conditions_are_waited_for_then_the_night_is_skipped(tmp_path: Path) -> None:
    window = {"opens": "12:30", "closes": "13:00"}
    patient = NightSchedule(tmp_path / "a", conditions={"window": window, "wait_minutes": 40})
    assert patient.scheduler().run(patient.schedule).outcome == "trained"
    hasty = NightSchedule(tmp_path / "b", conditions={"window": window, "wait_minutes": 5})
    night = hasty.scheduler().run(hasty.schedule)
    assert (night.outcome, night.reasons) == ("skipped", ("outside the window 12:30 to 13:00",))
    assert hasty.asked == []


def test_two_nights_of_one_model_never_run_together(tmp_path: Path) -> None:
    nights = NightSchedule(tmp_path)
    inside, go_on = threading.Event(), threading.Event()
    answer = nights.answer

    def slowly(arguments: Sequence[str], seconds: float, keep: Sequence[int]) -> CommandOutcome:
        inside.set()
        assert go_on.wait(30)
        return answer(arguments, seconds, keep)

    nights.answer = slowly  # type: ignore[method-assign]
    first = threading.Thread(target=lambda: nights.scheduler().run(nights.schedule))
    first.start()
    assert inside.wait(30)
    second = nights.scheduler().run(nights.schedule)
    go_on.set()
    first.join(30)
    assert second.reasons == ("another night of this model still runs",)
    assert sorted(nights.outcomes()) == ["skipped", "trained"]


class KilledError(BaseException):
    """Ends a night in its middle."""


def test_a_night_that_was_broken_off_is_made_up_for_as_often_as_what_fails_is_tried(
    tmp_path: Path,
) -> None:
    def kill(arguments: Sequence[str], seconds: float, keep: Sequence[int]) -> CommandOutcome:
        raise KilledError

    for catch_up, tries in ((True, 2), (False, 1)):
        nights = NightSchedule(tmp_path / str(catch_up), catch_up=catch_up)
        nights.scheduler().look(nights.schedule)
        answer, nights.answer = nights.answer, kill  # type: ignore[method-assign]
        nights.now = NOON + timedelta(hours=14)
        for _ in range(4):
            nights.now += timedelta(minutes=1)
            with suppress(KilledError):
                nights.scheduler().look(nights.schedule)
        assert nights.outcomes() == ["first seen", *["interrupted"] * tries]
        nights.answer = answer  # type: ignore[method-assign]
        nights.now = NOON + timedelta(hours=38)
        assert nights.scheduler().look(nights.schedule) is not None


def test_a_night_that_goes_on_is_not_taken_for_one_that_was_broken_off(tmp_path: Path) -> None:
    nights = NightSchedule(tmp_path)
    diary = NightHistory(nights.home.state / "schedules", "nightly")
    moment = NOON.isoformat()
    diary.write({"night": "1", "due": moment, "begun": moment, "outcome": "begun"})
    lock = nights.home.state / "schedules" / "shop.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert nights.scheduler().look(nights.schedule) is None
        assert nights.outcomes() == ["begun"]
    night = nights.scheduler().look(nights.schedule)
    assert night is not None
    assert nights.outcomes() == ["interrupted", "trained"]


def test_a_diary_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    diary = NightHistory(tmp_path, "nightly")
    diary.write({"due": NOON.isoformat(), "outcome": "trained"})
    with diary.path.open("a") as file:
        file.write(json.dumps({"due": "2027"})[:9])
    assert [night["outcome"] for night in diary.nights()] == ["trained"]
    assert diary.looked_after(NOON + timedelta(days=1)) == NOON
    diary.write({"due": NOON.isoformat(), "outcome": "refused"})
    assert [night["outcome"] for night in diary.nights()] == ["trained", "refused"]


@pytest.mark.parametrize(
    "line", ["{}", '{"due": 5, "outcome": "trained"}', '{"due": "2026-11-01", "outcome": "trained"}',
             '{"due": "2026-11-01T02:00:00+00:00"}', "5", "null"],
)  # fmt: skip
def test_a_line_that_tells_of_no_night_is_left_out(tmp_path: Path, line: str) -> None:
    diary = NightHistory(tmp_path, "nightly")
    diary.write({"due": NOON.isoformat(), "outcome": "trained"})
    with diary.path.open("a") as file:
        file.write(line + "\n")
    assert [night["outcome"] for night in diary.nights()] == ["trained"]
    assert diary.looked_after(NOON + timedelta(days=1)) == NOON
    assert diary.broken_off() is None


def test_a_damaged_list_of_items_is_named(tmp_path: Path) -> None:
    diary = NightHistory(tmp_path, "nightly")
    diary.remember_items(["b2:one"])
    (tmp_path / "nightly.items").write_bytes(b"b2:one\xff\xfe")
    with pytest.raises(ConfigurationError, match=r"nightly\.items: cannot be read .*counts as new"):
        diary.learned_items()


def test_a_schedule_waits_for_anothers_night_and_is_not_missed(tmp_path: Path) -> None:
    long = NightSchedule(tmp_path, model="one")
    other = schedule(catch_up=False, model="two")
    other = other.model_copy(
        update={"metadata": other.metadata.model_copy(update={"name": "other"})}
    )

    def answer(arguments: Sequence[str], seconds: float, keep: Sequence[int]) -> CommandOutcome:
        if "one" in arguments:
            long.now += timedelta(hours=5)
        return long.answer(arguments, seconds, keep)

    scheduler = Scheduler(
        [long.schedule, other],
        long.home,
        answer,
        report=lambda _: None,
        now=lambda: long.now,
        pause=lambda _: setattr(long, "now", long.now + timedelta(hours=1)),
    )
    scheduler.watch(until=lambda: long.now > NOON + timedelta(hours=22))
    found = [night["outcome"] for night in scheduler.diary(other).nights()]
    assert found == ["first seen", "trained"]


def test_a_clock_that_was_wrong_once_keeps_no_later_night_from_beginning(tmp_path: Path) -> None:
    nights = NightSchedule(tmp_path, conditions={"minimum_new_items": 0})
    for hours in (0, 24 * 3650, 0.1, 14, 14.1, 38, 38.1):
        nights.now = NOON + timedelta(hours=hours)
        nights.scheduler().look(nights.schedule)
    assert nights.outcomes() == ["first seen", "trained", "trained", "trained"]
