"""A session in the URL: from the gateway through governance into the lake, and feedback about it."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.headrace.spool_governor import govern
from tests.proxy.gateway_process import GatewayProcess
from tests.support.provider.sessions import ModelTurn, SessionProvider
from tests.support.upstream import Upstream

pytestmark = pytest.mark.filterwarnings("ignore")


def test_calls_under_one_session_in_the_url_are_one_trajectory(tmp_path: Path) -> None:
    with Upstream(SessionProvider(lambda *_: ModelTurn("Noted."))) as upstream:
        routes = [{"name": "model", "upstream": upstream.url}]
        with GatewayProcess(tmp_path, {"routes": routes}) as gateway:
            headers = {"authorization": f"Bearer {gateway.key}"}
            for path, question in (
                ("/s/run%207/model", "We need bolts."),
                ("/model/s/run%207", "How far is it to the moon?"),
                ("/s/run%208/model", "Which colour has the sky?"),
            ):
                body: dict[str, Any] = {
                    "model": "m",
                    "messages": [{"role": "user", "content": question}],
                }
                answer = httpx.post(
                    f"{gateway.url}{path}/v1/chat/completions",
                    json=body,
                    headers={**headers, "x-headrace-url-session": "forged"},
                    timeout=30,
                )
                assert answer.status_code == 200
            said = {"session_id": "run 7", "name": "success", "value": 1.0}
            answer = httpx.post(
                f"{gateway.url}/headrace/v1/feedback", json=said, headers=headers, timeout=30
            )
            assert answer.status_code == 202
    lake = govern(tmp_path)
    rows = lake.query("select trajectory_id, key_source from steps order by started_at").to_pylist()
    assert [row["key_source"] for row in rows] == ["url"] * 3
    first, second, third = (row["trajectory_id"] for row in rows)
    assert first == second != third
    (signal,) = lake.query("select trajectory_id from signals where name = 'success'").to_pylist()
    assert signal["trajectory_id"] == first
