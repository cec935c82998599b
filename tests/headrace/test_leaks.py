"""Values planted in traffic of every dialect are nowhere at rest, in whatever form."""

from pathlib import Path

import pytest

from benchmarks.leaking import measured


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_nothing_planted_rests_outside_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    found = measured(tmp_path, seed=5, count=200)
    assert found["planted"] >= 200
    assert set(found["dispositions"]) <= {"stored", "control", "duplicate"}
    assert found["dispositions"]["stored"] > 50
    assert found["leaked"] == 0
    assert found["files"] > 10
