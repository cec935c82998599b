"""A query that takes too long is ended, and the lake goes on."""

import threading
import time
from pathlib import Path

import pytest

from lakehouse.errors import QueryError
from lakehouse.lake import Lake
from lakehouse.sandbox.deadline import NotListeningError, QueryTimeoutError, within
from tests.lakehouse import make


def test_the_lake_answers_after_a_query_that_was_ended(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    lake.append(make.batch("t1"), app_id="a", version=0)
    endless = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
    begun = time.monotonic()
    with pytest.raises(QueryTimeoutError, match=r"after 0\.5 s"):
        lake.query(endless, seconds=0.5)
    with pytest.raises(QueryTimeoutError):
        lake.query(endless, seconds=0.5, as_of={"steps": 1})
    assert time.monotonic() - begun < 40
    assert lake.query("SELECT count(*) AS n FROM steps", seconds=30)["n"].to_pylist() == [2]
    with pytest.raises(QueryError, match="nosuch"):
        lake.query("SELECT nosuch", seconds=30)


def test_what_does_not_listen_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakehouse.sandbox.deadline._GRACE_SECONDS", 0.05)
    over = threading.Event()
    with pytest.raises(NotListeningError):
        within(0.05, lambda: over.wait(5), lambda: None)
    over.set()
    assert within(None, lambda: 1, lambda: None) == within(5, lambda: 1, lambda: None)
