"""Feedback that is delivered again changes nothing; what is said anew, without a name of its own, holds."""

import json
from pathlib import Path

import pytest

from lakehouse.lake import Lake
from proxy.spool import RecordKind, SpoolWriter, records
from tests.headrace.pipelines import pipeline
from tests.proxy.spool.scripts import CLIENT, KEY, ExchangeScript, name
from trajectory.exchange import feedback_name


def ask(writer: SpoolWriter) -> None:
    request = {"model": "m", "messages": [{"role": "user", "content": "a question"}]}
    message = {"role": "assistant", "content": "an answer"}
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m-1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
    }
    one = ExchangeScript(writer, 1, at=1_790_000_000.0)
    one.whole(json.dumps(request).encode(), json.dumps(answer).encode())


def say(writer: SpoolWriter, number: int, value: float, key: str | None = None) -> None:
    """Judge the answer, as a client does who names its feedback or does not."""
    body = {"name": "success", "value": value}
    made = feedback_name(CLIENT.tenant_id, "response", "chatcmpl-1", body)
    record = records.feedback(
        name(number),
        CLIENT,
        received_at=1_790_001_000.0 + number,
        feedback_id=key or made,
        target_kind="response",
        target_id="chatcmpl-1",
        body=body,
    )
    writer.append(RecordKind.FEEDBACK, record)


def latest(home: Path) -> list[float]:
    running = pipeline(home)
    while running.run_batch() is not None:
        pass
    rows = Lake.open(str(home / "lake")).query(
        "SELECT value FROM rewards_latest WHERE name = 'success'"
    )
    return list(rows["value"].to_pylist())


@pytest.mark.parametrize(("key", "holds"), [("delivery-1", 0.0), (None, 1.0)])
@pytest.mark.parametrize("batches", [1, 2, 3])
def test_a_delivery_that_comes_again_leaves_what_was_judged_since(
    tmp_path: Path, key: str | None, holds: float, batches: int
) -> None:
    with SpoolWriter(tmp_path / "spool", KEY) as writer:
        ask(writer)
        say(writer, 2, 1.0, key)
        if batches > 1:
            assert latest(tmp_path) == [1.0]
        say(writer, 3, 0.0)
        if batches > 2:
            assert latest(tmp_path) == [0.0]
        say(writer, 4, 1.0, key)
    assert latest(tmp_path) == [holds]


def test_another_judgement_under_the_name_of_the_first_changes_nothing(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "spool", KEY) as writer:
        ask(writer)
        say(writer, 2, 1.0, "mine")
        say(writer, 3, 0.0, "mine")
    assert latest(tmp_path) == [1.0]
    with SpoolWriter(tmp_path / "spool", KEY) as writer:
        say(writer, 4, 0.5, "mine")
    assert latest(tmp_path) == [1.0]
