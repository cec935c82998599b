"""Exchanges that come late or twice, in any batches: the lake reads as if they had come in order."""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.assembly_worlds import Mixture, generate
from lakehouse.lake import Lake
from lakehouse.maintenance.verify import verify
from tests.governance.factories import bundle, governor
from tests.lakehouse.sandbox_results import query_untrusted
from tests.trajectory.assembly.test_signals import conversation
from tests.trajectory.world import World
from trajectory.assembly import Assembler, AssemblerState
from trajectory.assembly.signals import harvest
from trajectory.call import Call

KEY = b"k" * 32
NOW = datetime(2026, 1, 2, tzinfo=UTC)
BUSY = Mixture(tasks=4, steps=(1, 5), sdk_retry=0.2, fork=0.2, compaction=0.3, auxiliary=0.6)

READ = {
    "steps": "SELECT * EXCLUDE (ext) FROM steps ORDER BY step_id",
    "links": "SELECT * EXCLUDE (event_date) FROM links ORDER BY ALL",
    "trajectories": "SELECT * FROM trajectories ORDER BY trajectory_id",
    "conversation": "SELECT * EXCLUDE (parts) FROM conversation ORDER BY ALL",
    "eligible": "SELECT step_id, trajectory_id, role_in_graph, purposes, reward "
    "FROM eligible_steps ORDER BY step_id",
    "agent_steps": "SELECT * FROM agent_steps ORDER BY step_id",
    "permissions": "SELECT step_id, trajectory_id, refusal FROM permissions ORDER BY step_id",
    "ledger": "SELECT exchange_id, trajectory_id, step_id, disposition FROM exchanges "
    "ORDER BY exchange_id",
    "tools": "SELECT * FROM tool_events ORDER BY ALL",
    "reliability": "SELECT * FROM reliability ORDER BY ALL",
    "tokens": "SELECT * FROM tokens ORDER BY step_id",
    "signals": "SELECT * EXCLUDE (signal_id) FROM part.signals_in_force ORDER BY ALL",
    "rewards": "SELECT step_id, name, value FROM rewards_latest ORDER BY ALL",
}


def allowed(call: Call) -> Call:
    """Return the call of a client whose traffic may be kept and learned from."""
    client = replace(call.exchange.client, purposes=("debug", "train_sft"))
    return replace(call, exchange=replace(call.exchange, client=client))


def numbered_apart(call: Call) -> Call:
    """Return the call of another world: the worlds number their exchanges alike."""
    name = "f" + call.exchange.exchange_id[1:]
    return replace(call, exchange=replace(call.exchange, exchange_id=name))


def fill(root: Path, batches: Iterable[Sequence[Call]], policy: Any) -> Lake:
    """Carry batches into a lake, with a restart after each."""
    lake, saved = Lake.open(str(root)), AssemblerState().to_json()
    for number, batch in enumerate(batches):
        assembler = Assembler(KEY, AssemblerState.from_json(json.loads(json.dumps(saved))))
        judge = governor(
            policy,
            known=lake.known_content(),
            clock=lambda number=number: NOW + timedelta(minutes=number),
        )
        assembly = assembler.assemble(batch)
        assembly = replace(assembly, feedback=harvest(assembler, assembly))
        lake.append(judge.judge(assembly), app_id="t", version=number)
        saved = assembler.state.to_json()
    return lake


def read(lake: Lake) -> dict[str, Any]:
    found = {name: lake.query(sql).to_pylist() for name, sql in READ.items()}
    steps = [row["step_id"] for row in found["steps"]]
    found["conversations"] = {
        step: (one.trajectory_id, one.context, one.output, one.complete)
        for step, one in lake.conversations(step_ids=steps).items()
    }
    return found


def cut(calls: list[Call], dice: random.Random) -> list[list[Call]]:
    """Return the calls in any order, some twice, in batches of any size."""
    shuffled = calls + dice.sample(calls, len(calls) // 3)
    dice.shuffle(shuffled)
    found = []
    while shuffled:
        size = dice.randint(1, 25)
        found.append(shuffled[:size])
        shuffled = shuffled[size:]
    return found


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 5))]
)
def test_the_lake_reads_the_same_in_whatever_order_and_batches(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 (no secret)
    calls = [allowed(call) for call in generate(4, seed=seed, mixture=BUSY).calls]
    calls += [allowed(numbered_apart(call)) for call in conversation(World())]
    policy = bundle()
    wanted = read(fill(tmp_path / "sorted", [calls], policy))
    assert len({row["name"] for row in wanted["signals"]}) >= 6
    late = fill(tmp_path / "late", cut(calls, dice), policy)
    assert late.query("SELECT 1 FROM corrections").num_rows
    found = read(late)
    for name in wanted:
        assert found[name] == wanted[name], name
    assert verify(late).ok
    one = found["trajectories"][0]["trajectory_id"]
    sql = f"SELECT step_id FROM steps WHERE trajectory_id = '{one}' ORDER BY 1"  # noqa: S608
    strangers = query_untrusted(late, sql, tenant="acme").table.to_pylist()
    assert strangers == late.query(sql).to_pylist()
