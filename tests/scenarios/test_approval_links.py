"""What a person decides of a held call: a link and a signal in the lake, once, and gone with their trajectory."""

import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from lakehouse.erasure.removal import remove_trajectories
from lakehouse.lake import Lake
from lakehouse.maintenance.verify import verify
from tests.governance.factories import bundle, governor
from tests.proxy.gateway_process import GatewayProcess
from tests.proxy.guard.test_route import RULES, call, script
from tests.support.guard import GuardSetup
from tests.support.upstream import Upstream
from trajectory.assembly import Assembler, AssemblerState
from trajectory.dialects.registry import read_exchange
from trajectory.exchange import Exchange, Feedback

KEY = b"k" * 32
LINKS = "SELECT from_step_id, to_step_id, trajectory_id FROM links WHERE kind = 'approval'"
SIGNALS = "SELECT step_id, label, value, rationale FROM signals_placed WHERE name = 'approval'"


def post(gateway: GatewayProcess, session: str, **arguments: Any) -> None:
    httpx.post(
        f"{gateway.url}/tools/mcp",
        json=call("pay", **arguments),
        headers={"authorization": f"Bearer {gateway.key}", "mcp-session-id": session},
        timeout=60,
        trust_env=False,
    )


def decided(home: Path) -> tuple[list[Exchange], list[Feedback]]:
    """Return two held calls of two sessions, one let go on and one denied, and what the guard says."""
    setup = GuardSetup(home / "approvals.sqlite", RULES)
    with Upstream(script) as upstream:
        route = {"name": "tools", "upstream": upstream.url, "kind": "tool"}
        with GatewayProcess(home, settings={"routes": [route]}, guard=setup) as gateway:
            for session in ("one", "two"):
                held = threading.Thread(
                    target=post, args=(gateway, session), kwargs={"to": session}
                )
                held.start()
                while not (waiting := setup.approvals().list()):
                    time.sleep(0.05)
                setup.approvals().decide(
                    waiting[0].approval_id, approve=session == "one", who="ann", reason="Known."
                )
                held.join()
            records = []
            while len(records) < 6:  # two exchanges, two holds, two answers
                records += gateway.records(1)
    return (
        [one for one in records if isinstance(one, Exchange)],
        [one for one in records if isinstance(one, Feedback)],
    )


def governed(root: Path, batches: Sequence[tuple[list[Exchange], list[Feedback]]]) -> Lake:
    """Carry batches into a lake, with a restart after each."""
    lake, saved, policy = Lake.open(str(root)), AssemblerState().to_json(), bundle()
    for number, (exchanges, feedback) in enumerate(batches):
        assembler = Assembler(KEY, AssemblerState.from_json(saved))
        judge = governor(
            policy,
            known=lake.known_content(),
            clock=lambda number=number: datetime.now(UTC) + timedelta(seconds=number),
        )
        assembly = assembler.assemble([read_exchange(one) for one in exchanges], feedback)
        lake.append(judge.judge(assembly), app_id="t", version=number)
        saved = assembler.state.to_json()
    return lake


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_persons_answer_is_a_link_and_a_signal(tmp_path: Path) -> None:
    exchanges, feedback = decided(tmp_path / "gateway")
    for number, batches in enumerate(
        (
            [(exchanges, feedback)],
            [(exchanges, []), ([], feedback)],
            [([], feedback), (exchanges, [])],
        )
    ):
        lake = governed(tmp_path / f"lake-{number}", batches)
        steps = lake.query("SELECT step_id, trajectory_id FROM steps").to_pylist()
        places = {one["step_id"]: one["trajectory_id"] for one in steps}
        assert len(places) == len(set(places.values())) == 2
        links = lake.query(LINKS).to_pylist()
        assert sorted((one["from_step_id"], one["to_step_id"]) for one in links) == sorted(
            (step, step) for step in places
        )
        assert {one["to_step_id"]: one["trajectory_id"] for one in links} == places
        signals = lake.query(SIGNALS).to_pylist()
        assert sorted((one["label"], one["value"], one["rationale"]) for one in signals) == [
            ("approved", 1.0, "Known."),
            ("denied", 0.0, "Known."),
        ]
        assert {one["step_id"] for one in signals} == {*places}
        assert verify(lake).ok

        gone, left = places.values()
        remove_trajectories(lake, exchanges[0].client.tenant_id, [gone], reason="erased")
        assert [one["trajectory_id"] for one in lake.query(LINKS).to_pylist()] == [left]
        (signal,) = lake.query(SIGNALS).to_pylist()
        assert places[signal["step_id"]] == left
