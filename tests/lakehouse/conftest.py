"""Places where a lake can be: a folder, and S3 as moto's server on this machine speaks it."""

import json
import os
import subprocess
import sys
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
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, str]]:
    """Run an S3 server with the bucket ``lakes``; return the options to reach it."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.lakehouse.stores.s3_server"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    try:
        address = (server.stdout.readline() if server.stdout else "").strip()
        httpx.put(f"{address}/lakes", timeout=60, trust_env=False).raise_for_status()
        yield {
            "AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        }  # fmt: skip
    finally:
        server.kill()
        server.communicate()


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Return where a lake may be made: once a folder, once a prefix of an S3 bucket."""
    if request.param == "given":
        return f"{os.environ[GIVEN]}/{uuid.uuid4()}", json.loads(os.environ[f"{GIVEN}_OPTIONS"])
    if request.param == "folder":
        return str(tmp_path_factory.mktemp("lake") / "the lake #1, ü 漢 100%"), {}
    return f"s3://lakes/the lake, ü/{uuid.uuid4()}", request.getfixturevalue("s3")
