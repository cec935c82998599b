"""The state of the lake on a screen: bars, sizes, spans, and every number that JSON has."""

import json
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.cli import run
from headrace.services.lake_report import ago, bar, size
from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import compact
from tests.lakehouse import make


def test_bars_sizes_and_spans() -> None:
    assert [bar(value, 100) for value in (100, 50, 0)] == ["█" * 24, "█" * 12, ""]
    assert len(bar(1, 10**9)) == 1
    assert bar(5, 0) == ""
    assert [size(count) for count in (0, 1023, 1536, 5 << 30)] == [
        "0 B", "1023 B", "1.5 KiB", "5.0 GiB",
    ]  # fmt: skip
    assert [ago(seconds) for seconds in (-1, 59, 90, 7200, 200_000)] == [
        "0 s", "59 s", "1.5 min", "2.0 h", "2.3 d",
    ]  # fmt: skip


def test_the_status_of_a_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    lake = Lake.open(str(tmp_path / "lake"))
    for number in range(2):
        whole = make.batch(f"t{number}")
        dated = [
            replace(row, expires_at=make.NOON + timedelta(days=36500)) for row in whole.governance
        ]
        lake.append(replace(whole, governance=tuple(dated)), app_id="a", version=number)
    compact(lake, tables=["steps"], small_files=2)
    assert run(["lake", "status"]) == 0
    shown = capsys.readouterr().out
    for word in (
        "growth per day",
        "2026-11-20",
        "█",
        "expires",
        "2126-10",
        "next vacuum frees",
        "waiting in the spool",
    ):
        assert word in shown
    begun = time.monotonic()
    assert run(["lake", "status", "--json"]) == 0
    assert time.monotonic() - begun < 30
    lake_state = json.loads(capsys.readouterr().out)["lake"]
    assert lake_state["rows"] == sum(table["rows"] for table in lake_state["tables"])
    assert {"vacuum_files", "vacuum_bytes", "freshness_s", "growth", "expiring"} <= set(lake_state)
