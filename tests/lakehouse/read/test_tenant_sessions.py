"""Our own statements over one tenant's files: the wall holds, and what came since is seen."""

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
