"""What exams of artefacts found, one line each beside the versions; a line holds figures and no content.

Refused candidates stand there too, though they are no version. Each try at the same tasks is one more chance to
pass by luck, so the next gets a wider interval.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from trajectory.files import READABLE, append_line, read_json_lines

EXAMS = "exams.jsonl"


@dataclass(frozen=True, slots=True)
class PairedGain:
    """Share of tasks solved without an artefact and with it, on the same tasks."""

    tasks: int
    base: float
    """What serves, or no artefact where none does."""
    candidate: float
    gain: float
    low: float
    """Lower end of the gain's interval, as the first look has it."""
    high: float
    low_at_look: float
    """Lower end of the interval by which the gate judges."""


@dataclass(frozen=True, slots=True)
class ExamRecord:
    """What one exam of one candidate found."""

    at: str
    content_hash: str
    """Of the candidate's content."""
    control: str
    """Version that it was compared with; empty for none."""
    model: str
    """``name@version`` that was given it."""
    substrate: str | None
    """``name@version`` whose held-out tasks were tried; None where it was asked about safety alone."""
    look: int
    """The how-manieth candidate it was since one passed or what serves changed."""
    passed: bool
    findings: tuple[str, ...]
    """Rule by rule, in words."""
    tried: PairedGain | None = None
    """At held-out tasks."""


def read_exams(home: Path) -> list[ExamRecord]:
    """Return the exams of a name, oldest first; a line cut off by a crash is left out."""
    found = []
    for line in read_json_lines(home / EXAMS):
        with suppress(TypeError, KeyError):
            tried = line["tried"] and PairedGain(**line["tried"])
            found.append(ExamRecord(**{**line, "findings": (*line["findings"],), "tried": tried}))
    return found


def append_exam(home: Path, record: ExamRecord) -> None:
    """Write down what an exam found; it is on disk when this returns."""
    append_line(home / EXAMS, json.dumps(asdict(record), sort_keys=True), READABLE)


def exam_of(records: Iterable[ExamRecord], content: str) -> ExamRecord | None:
    """Return the newest exam of what has this content."""
    return next((one for one in [*records][::-1] if one.content_hash == content), None)


def look_of(records: Sequence[ExamRecord], content: str, since: str) -> int:
    """Return the how-manieth candidate one is since another passed or since a change of what serves.

    The same content tried again is the same look.
    """
    others: set[str] = set()
    for one in reversed(records):
        if one.tried is None:
            continue
        if one.at <= since or one.passed:
            break
        others.add(one.content_hash)
    return len(others - {content}) + 1
