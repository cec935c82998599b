"""Known content follows the lake: own appends, other writers, deletions and compaction."""

from pathlib import Path

from lakehouse.lake import Lake
from tests.lakehouse import make


def test_what_is_stored_is_known_per_tenant(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    known = lake.known_content()
    ids = {message.message_id for message in make.batch("t1").messages}
    assert known.known_messages("acme", ids) == set()
    lake.append(make.batch("t1"), app_id="a", version=0)
    assert known.known_messages("acme", [*ids, "stranger"]) == ids
    assert known.known_messages("other", ids) == set()
    assert known.known_messages("acme", []) == set()
    assert known.known_steps("acme", ["t1-s0", "t9-s0"]) == {"t1-s0"}
    assert known.known_harnesses("acme", ["h-t1", "h-t2"]) == {"h-t1"}


def test_other_writers_and_deletions_are_seen(tmp_path: Path) -> None:
    lake, other = Lake.open(str(tmp_path)), Lake.open(str(tmp_path))
    known = lake.known_content()
    other.append(make.batch("t1"), app_id="b", version=0)
    assert known.known_steps("acme", ["t1-s0"]) == {"t1-s0"}
    other.table("steps").delete("step_id = 't1-s0'")
    assert known.known_steps("acme", ["t1-s0", "t1-s1"]) == {"t1-s1"}
