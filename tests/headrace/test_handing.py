"""Batches handed from one process to another: the same values, each message once."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace import handing
from headrace.checkpoint import NO_MEMORY
from headrace.handing import Receiver, Sender
from headrace.intake import Intake, Placed, Source
from proxy.spool import Cursor, SpoolReader
from tests.headrace.test_pipeline import fill
from tests.proxy.spool.writing import KEY
from trajectory.exchange import ClientIdentity, Feedback, SpoolPosition
from trajectory.placement import PlacedFeedback


@pytest.fixture
def batches(tmp_path: Path) -> list[Placed]:
    fill(tmp_path)
    intake = Intake(Source(SpoolReader(tmp_path / "spool", KEY), b"a" * 32), NO_MEMORY)
    found, cursor = [], Cursor()
    while (placed := intake.take(cursor, 5)) is not None:
        found.append(placed)
        cursor = placed.batch.cursor
    return found


def test_what_arrives_is_what_was_sent(batches: list[Placed]) -> None:
    sender, receiver = Sender(), Receiver()
    for placed in batches:
        assert receiver.load(sender.dump(placed)) == placed


def test_a_message_goes_over_once_and_is_one_object(batches: list[Placed]) -> None:
    sender, receiver = Sender(), Receiver()
    sizes = [len(sender.dump(batches[0])) for _ in range(2)]
    assert sizes[1] < sizes[0]
    sender = Sender()
    first, second = (receiver.load(sender.dump(batches[0])) for _ in range(2))
    for one, other in zip(first.assembly.placed, second.assembly.placed, strict=True):
        assert all(a is b for a, b in zip(one.call.context, other.call.context, strict=True))


def test_what_both_sides_forget_is_sent_again(
    batches: list[Placed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handing, "_LIMIT_BYTES", 300)
    sender, receiver = Sender(), Receiver()
    for placed in [*batches, *batches]:
        assert receiver.load(sender.dump(placed)) == placed
        assert len(receiver._messages) < 40


def test_feedback_goes_over(batches: list[Placed]) -> None:
    client = ClientIdentity("acme", "a", "prod", "k", purposes=("debug",))
    said = Feedback(
        "f", client, datetime(2026, 1, 1, tzinfo=UTC), "step", "s", {"value": 1.0}, SpoolPosition("w", 0, 1)
    )  # fmt: skip
    placed = PlacedFeedback(said, None, "s")
    found = Receiver().load(Sender().dump(_with(batches[0], placed)))
    assert found.assembly.feedback[-1] == placed


def _with(one: Placed, feedback: PlacedFeedback) -> Placed:
    assembly = replace(one.assembly, feedback=(*one.assembly.feedback, feedback))
    return Placed(one.batch, assembly)
