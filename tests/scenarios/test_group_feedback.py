"""Feedback on a group or a session reaches the steps in it, however late it comes."""

import json
from pathlib import Path
from typing import Any

import pytest

from lakehouse.lake import Lake
from proxy.spool import RecordKind, SpoolWriter, records
from tests.headrace.pipelines import pipeline
from tests.proxy.spool.scripts import CLIENT, KEY, ExchangeScript, name


def ask(writer: SpoolWriter, number: int, header: tuple[bytes, bytes], word: str) -> None:
    request = {"model": "m", "messages": [{"role": "user", "content": f"question {word}"}]}
    answer = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "model": "m-1",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": f"answer {number}"},
            }
        ],
    }
    one = ExchangeScript(writer, number, at=1_790_000_000.0 + 10 * number, headers=(header,))
    one.whole(json.dumps(request).encode(), json.dumps(answer).encode())


def say(writer: SpoolWriter, number: int, kind: str, target: str, value: float) -> None:
    record = records.feedback(
        name(number),
        CLIENT,
        received_at=1_790_001_000.0 + number,
        feedback_id=f"f{number}",
        target_kind=kind,
        target_id=target,
        body={"name": "success", "value": value},
    )
    writer.append(RecordKind.FEEDBACK, record)


def governed(home: Path) -> Lake:
    running = pipeline(home)
    while running.run_batch() is not None:
        pass
    return Lake.open(str(home / "lake"))


def rewards(lake: Lake) -> dict[str, Any]:
    rows = lake.query(
        "SELECT e.exchange_id, r.value FROM trajectory_rewards r "
        "JOIN exchanges e ON e.tenant_id = r.tenant_id AND e.trajectory_id = r.trajectory_id"
    ).to_pylist()
    return {row["exchange_id"].lstrip("0"): row["value"] for row in rows}


@pytest.mark.parametrize("header", [b"x-headrace-group", b"x-headrace-task"])
def test_feedback_on_a_group_reaches_every_attempt_in_it(tmp_path: Path, header: bytes) -> None:
    with SpoolWriter(tmp_path / "spool", KEY) as writer:
        ask(writer, 1, (header, b"order of jo@corp.io"), "one")
        ask(writer, 2, (header, b"order of jo@corp.io"), "two")
        ask(writer, 3, (header, b"another"), "three")
        say(writer, 8, "group", "order of jo@corp.io", 1.0)
    lake = governed(tmp_path)
    assert rewards(lake) == {"1": 1.0, "2": 1.0}
    (signal,) = lake.query("SELECT target_kind, target_id FROM signals").to_pylist()
    assert signal["target_kind"] == "group"
    assert "jo@" not in signal["target_id"]
    eligible = lake.query("SELECT reward FROM eligible_steps ORDER BY started_at")["reward"]
    assert eligible.to_pylist() == [1.0, 1.0, None]

    group = lake.query("SELECT min(group_id) AS g FROM steps WHERE step_id IN "
                       "(SELECT step_id FROM exchanges WHERE exchange_id LIKE '%3')")  # fmt: skip
    with SpoolWriter(tmp_path / "spool", KEY) as writer:
        say(writer, 9, "group", group["g"][0].as_py(), 0.5)
    assert rewards(governed(tmp_path)) == {"1": 1.0, "2": 1.0, "3": 0.5}


def test_feedback_on_a_session_that_comes_before_its_calls_reaches_it(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "spool", KEY) as writer:
        say(writer, 8, "session", "monday", 1.0)
    governed(tmp_path)
    with SpoolWriter(tmp_path / "spool", KEY) as writer:
        ask(writer, 1, (b"x-headrace-session", b"monday"), "one")
        ask(writer, 2, (b"x-headrace-session", b"tuesday"), "two")
    assert rewards(governed(tmp_path)) == {"1": 1.0}
