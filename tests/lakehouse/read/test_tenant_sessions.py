"""Our own statements over one tenant's files: the wall holds, and what came since is seen."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from governance.records import GovernedBatch
from lakehouse.errors import QueryError
from lakehouse.lake import Lake
from lakehouse.read.tenant_sessions import TenantSessions
from tests.lakehouse import make

TOKENS = frozenset({"tokens"})


def test_a_tenant_sees_its_rows_and_what_came_since(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    lake.append(make.batch("t1", steps=2), app_id="a", version=0)
    other = make.step("t2", 0, tenant_id="rival")
    rows = GovernedBatch(exchanges=(make.ledger(other),), steps=(other,))
    lake.append(rows, app_id="a", version=1)
    sessions = TenantSessions(lake, memory_mib=256)

    def tenants(tenant: str | None, sql: str = "SELECT DISTINCT tenant_id FROM steps") -> set[str]:
        found = sessions.query(tenant, TOKENS, sql, None, seconds=60)
        return set(found.column(0).to_pylist())

    assert tenants("acme") == {"acme"}
    assert tenants("nobody") == set()
    assert tenants(None) == {"acme", "rival"}
    for hidden in ("SELECT run_id FROM runs", "SELECT step_id FROM tokens"):
        with pytest.raises(QueryError):
            tenants("acme", hidden)
    signals = "SELECT DISTINCT trajectory_id FROM signals"
    assert tenants("rival", signals) == set()
    lake.append_rows("signals", [make.signal("t2", 1.0, tenant_id="rival")])
    assert tenants("rival", signals) == {"t2"}
    assert "t2" not in tenants("acme", signals)
    for number in range(6):  # more tenants than sessions: the first one's is made anew
        assert tenants(f"tenant-{number}") == set()
    assert tenants("acme") == {"acme"}
    sessions.close()
    assert tenants("rival", signals) == {"t2"}


def test_what_asks_of_one_trajectory_reads_its_days_and_the_messages_that_were_there_before(
    tmp_path: Path,
) -> None:
    lake = Lake.open(str(tmp_path))
    day, shared = datetime(2026, 11, 1, 12, tzinfo=UTC), make.message("system", "be good")
    for number in range(3):
        at = day + timedelta(days=number)
        own = replace(make.message("user", f"question {number}"), first_seen_at=at)
        said = (shared.message_id, own.message_id)
        step = make.step(f"t{number}", 0, started_at=at, context_message_ids=said)
        messages = (replace(shared, first_seen_at=day), own) if number == 0 else (own,)
        rows = GovernedBatch(exchanges=(make.ledger(step),), steps=(step,), messages=messages)
        lake.append(rows, app_id="a", version=number)
    sessions = TenantSessions(lake, memory_mib=256)

    def asked(sql: str, trajectory: str) -> list[object]:
        values, tenant = {"id": trajectory}, "acme"
        found = sessions.query(tenant, TOKENS, sql, values, seconds=60, trajectory=trajectory)
        return list(found.column(0).to_pylist())

    conversation = "SELECT parts FROM conversation WHERE trajectory_id = $id AND NOT is_output ORDER BY position"
    for number in (2, 0, 1):
        parts = asked(conversation, f"t{number}")
        assert ["be good" in str(parts[0]), f"question {number}" in str(parts[1])] == [True, True]
    assert asked("SELECT DISTINCT trajectory_id FROM steps WHERE $id <> ''", "t1") == ["t1"]
    assert asked(conversation, "t9") == []
    late = make.step("t9", 0, started_at=day, context_message_ids=(shared.message_id,))
    rows = GovernedBatch(exchanges=(make.ledger(late),), steps=(late,))
    lake.append(rows, app_id="a", version=3)
    assert len(asked(conversation, "t9")) == 1, (
        "what the index does not know yet is found all the same"
    )
