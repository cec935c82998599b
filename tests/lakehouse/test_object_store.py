"""The same lake on S3: exactly once, conflicts, views, maintenance, against a server on this machine.

The server is moto's; its program lies beside the interpreter or is named by ``HEADRACE_TEST_MOTO_SERVER``.
"""

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from lakehouse.erase import erase_subject
from lakehouse.lake import Lake, _batch_tables
from lakehouse.maintenance import maintain
from lakehouse.status import lake_status
from lakehouse.verify import verify
from tests.lakehouse import make

ROOT = Path(__file__).parents[2]
BESIDE = Path(sys.executable).parent / "moto_server"
PROGRAM = os.environ.get("HEADRACE_TEST_MOTO_SERVER") or str(BESIDE)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path(PROGRAM).exists(), reason="moto_server is not installed; install moto[server]"
    ),
]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [PROGRAM, "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                httpx.put(f"{address}/lakes", trust_env=False)
                break
            except httpx.TransportError:
                time.sleep(0.1)
        else:
            pytest.fail(f"{PROGRAM} did not answer within 30 s")
        yield address
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def place(endpoint: str) -> tuple[str, dict[str, str]]:
    options = {
        "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
    }  # fmt: skip
    return f"s3://lakes/{uuid.uuid4()}", options


def test_batches_views_and_conversations(place: tuple[str, dict[str, str]]) -> None:
    path, options = place
    lake = Lake.open(path, options=options)
    for number in range(3):
        lake.append(make.batch(f"t{number}", steps=3), app_id="a", version=number)
    assert lake.append(make.batch("t2", steps=3), app_id="a", version=2).repeated
    again = Lake.open(path, options=options, create=False)
    assert again.committed_version("a") == 2
    assert again.query("SELECT count(*) AS n FROM eligible_steps")["n"].to_pylist() == [9]
    assert [len(one.context) for one in again.conversation("t1")] == [1, 3, 5]
    assert again.known_content().known_steps("acme", ["t1-s0", "x"]) == {"t1-s0"}
    assert verify(again).ok
    assert lake_status(again).rows == lake_status(lake).rows


def test_an_interrupted_batch_is_finished(place: tuple[str, dict[str, str]]) -> None:
    path, options = place
    lake = Lake.open(path, options=options)
    lake._intents.write("a", 0, _batch_tables(make.batch("t1")))
    again = Lake.open(path, options=options)
    assert again.committed_version("a") == 0
    assert again.query("SELECT count(*) AS n FROM steps")["n"].to_pylist() == [2]
    assert list(again._intents.pending()) == []


def test_concurrent_ingesters_lose_and_double_nothing(place: tuple[str, dict[str, str]]) -> None:
    path, options = place
    Lake.open(path, options=options)

    script = (
        "import json, sys; from lakehouse.lake import Lake; from tests.lakehouse import make\n"
        "path, options, name = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]\n"
        "lake = Lake.open(path, options=options)\n"
        "for n in range(4):\n"
        "    lake.append(make.batch(f'{name}{n}', steps=1), app_id=name, version=n)\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", script, path, json.dumps(options), name], cwd=ROOT)
        for name in "ab"
    ]
    assert [process.wait(timeout=100) for process in running] == [0, 0]
    lake = Lake.open(path, options=options)
    found = lake.query("SELECT count(*) AS n, count(DISTINCT step_id) AS d FROM steps").to_pylist()
    assert found == [{"n": 8, "d": 8}]
    assert verify(lake).ok


def test_upkeep_and_erasure(place: tuple[str, dict[str, str]]) -> None:
    path, options = place
    lake = Lake.open(path, options=options)
    for number in range(3):
        lake.append(make.batch(f"t{number}"), app_id="a", version=number)
    reports = {report.table: report for report in maintain(lake, small_files=2)}
    assert reports["steps"].files_after == 1
    assert lake.query("SELECT count(*) AS n FROM conversation")["n"].to_pylist() == [12]
    assert erase_subject(lake, "acme", ["nobody"]).reach.trajectories == ()
    assert lake.committed_version("a") == 2
