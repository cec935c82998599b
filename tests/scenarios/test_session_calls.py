"""A client of AReaL against the gateway: its session becomes a trajectory with its reward and its task."""

from pathlib import Path

import httpx
import pytest

from tests.headrace.spool_governor import govern
from tests.proxy.gateway_process import GatewayProcess
from tests.support.provider.sessions import ModelTurn, SessionProvider
from tests.support.upstream import Upstream

pytestmark = pytest.mark.filterwarnings("ignore")


def test_sessions_of_one_task_are_attempts_with_their_rewards(tmp_path: Path) -> None:
    with Upstream(SessionProvider(lambda *_: ModelTurn("Noted."))) as upstream:
        routes = [{"name": "rl", "upstream": f"{upstream.url}/v1", "session_calls": True}]
        with GatewayProcess(tmp_path, {"routes": routes}) as gateway:

            def post(path: str, key: str, body: object) -> httpx.Response:
                headers = {"authorization": f"Bearer {key}"}
                url = f"{gateway.url}/rl/{path}"
                return httpx.post(url, json=body, headers=headers, timeout=30).raise_for_status()

            for reward in (0.0, 1.0):
                started = post("rl/start_session", gateway.key, {"task_id": "sum-3"})
                key = started.json()["api_key"]
                for question in ("What is one and two?", "And how far is the moon?"):
                    messages = [{"role": "user", "content": question}]
                    post("chat/completions", key, {"model": "m", "messages": messages})
                post("rl/set_reward", key, {"interaction_id": None, "reward": reward})
                assert post("rl/end_session", key, {}).json()["interaction_count"] == 2
    lake = govern(tmp_path)
    rows = lake.query(
        "select t.trajectory_id, count(*) as steps, min(s.group_id) as task, any_value(r.value) as reward "
        "from steps s join (select distinct trajectory_id from steps) t using (trajectory_id) "
        "join trajectory_rewards r on r.trajectory_id = t.trajectory_id and r.name = 'reward' "
        "group by t.trajectory_id order by reward"
    ).to_pylist()
    assert [(row["steps"], row["reward"]) for row in rows] == [(2, 0.0), (2, 1.0)]
    assert len({row["task"] for row in rows}) == 1
    assert rows[0]["task"] is not None
