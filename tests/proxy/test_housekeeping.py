"""Housekeeping of a running gateway: a rotated spool key is followed, a broken one changes nothing;
raw captures that nobody governs do not grow old."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from proxy.spool import Cursor, SpoolReader, SpoolWriter
from proxy.spool.keys import KeyRing, rotate
from tests.proxy.gateway_process import SPOOL_KEY, GatewayProcess
from tests.proxy.spool.scripts import ExchangeScript
from tests.support.upstream import Upstream, plain
from trajectory.exchange import Exchange


def captured(spool: Path, hours: float) -> Path:
    """Return the segment of a gateway that died so long ago."""
    with SpoolWriter(spool, SPOOL_KEY) as writer:
        ExchangeScript(writer, 1).whole()
    path = spool / writer.writer / "00000001.spool"
    then = time.time() - hours * 3600
    os.utime(path, (then, then))
    return path


def test_a_spool_key_is_rotated_and_old_captures_go_under_way(tmp_path: Path) -> None:
    file, spool = tmp_path / "spool.key", tmp_path / "spool"
    old = captured(spool, hours=3)
    with Upstream(lambda seen: plain(200, seen.body)) as upstream:
        settings = {
            "routes": [{"name": "up", "upstream": upstream.url}],
            "forward_port": None,
            "spool": {"key_file": str(file), "max_age_hours": 2},
        }
        with GatewayProcess(tmp_path, settings) as gateway:
            headers = {"authorization": f"Bearer {gateway.key}"}

            def call(body: bytes) -> None:
                answer = httpx.post(f"{gateway.url}/up/x", content=body, headers=headers)
                assert answer.content == body

            def logged(text: str) -> None:
                deadline = time.monotonic() + 30
                while text not in gateway.log.read_text():
                    assert time.monotonic() < deadline
                    time.sleep(0.05)

            logged("nobody governed")
            assert not old.exists()
            counted = httpx.get(f"{gateway.admin}/metrics").text
            assert "headrace_spool_expired_segments_total 1.0\n" in counted
            call(b"one")
            rotate(file, spool)
            logged("another key")
            call(b"two")
            whole = file.read_text()
            file.write_text("broken")
            logged("the one in use stays")
            call(b"three")
            file.write_text(whole)
            newest = KeyRing(SPOOL_KEY, file=file).newest
            assert newest.hex() not in gateway.log.read_text()
    records = SpoolReader(spool, SPOOL_KEY, key_file=file).take(Cursor()).records
    bodies = [r.request.body for r in records if isinstance(r, Exchange)]
    assert bodies == [b"one", b"two", b"three"]


def test_a_clock_that_leapt_deletes_no_raw_captures(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    old = captured(spool, hours=3)
    settings = {"routes": [], "forward_port": None, "spool": {"max_age_hours": 2}}
    for noted, stays in (({"swept-at": 4000}, True), ({"clock-leapt-at": 1}, False)):
        for name, days in noted.items():
            (spool / name).write_text((datetime.now(UTC) - timedelta(days=days)).isoformat())
        with GatewayProcess(tmp_path, settings) as gateway:
            deadline = time.monotonic() + 30
            told = "4000 days ahead" if stays else "nobody governed"
            while told not in gateway.log.read_text():
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert old.exists() == stays
    assert not (spool / "clock-leapt-at").exists()
