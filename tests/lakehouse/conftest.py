"""Places where a lake can be: a folder, and S3 as moto's server on this machine speaks it."""

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

type Place = tuple[str, dict[str, str]]
"""A lake's path and the options to reach it."""

GIVEN = "HEADRACE_TEST_STORE"
"""Names another store to hold the contract against; see scripts/test-object-stores."""

PLACES = (
    ["given"] if GIVEN in os.environ else ["folder", pytest.param("s3", marks=pytest.mark.slow)]
)
PROGRAM = Path(sys.executable).parent / "moto_server"


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, str]]:
    """Run an S3 server with the bucket ``lakes``; return the options to reach it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [PROGRAM, "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                httpx.put(f"{address}/lakes", trust_env=False)
                break
            except httpx.TransportError:
                time.sleep(0.1)
        else:
            pytest.fail(f"{PROGRAM} did not answer within 60 s")
        yield {
            "AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        }  # fmt: skip
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Return where a lake may be made: once a folder, once a prefix of an S3 bucket."""
    if request.param == "given":
        return f"{os.environ[GIVEN]}/{uuid.uuid4()}", json.loads(os.environ[f"{GIVEN}_OPTIONS"])
    if request.param == "folder":
        return str(tmp_path_factory.mktemp("lake") / "the lake #1, ü 漢 100%"), {}
    return f"s3://lakes/{uuid.uuid4()}", request.getfixturevalue("s3")
