"""The gateway's own API: who may use it, what it refuses, that it never reaches an upstream."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.proxy.gateway_process import GatewayProcess
from tests.support.upstream import Upstream
from trajectory.exchange import Feedback

ITEM = {"session_id": "s-1", "name": "done", "label": "task-end", "source_kind": "env"}


@pytest.fixture(scope="module")
def gateway(
    upstream: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    settings = {"routes": [{"name": "up", "upstream": upstream.url}], "forward_port": None}
    with GatewayProcess(tmp_path_factory.mktemp("endpoints"), settings) as running:
        yield running


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {gateway.key}"}
    with httpx.Client(base_url=gateway.url, headers=headers) as client:
        yield client


@pytest.mark.parametrize(
    ("target", "more"),
    [
        ("response_id", {"name": "success", "value": 1.0}),
        (
            "step_id",
            {"name": "correction", "rationale": "It is 42.", "source_kind": "human_explicit"},
        ),
        ("trajectory_id", {"name": "comment", "rationale": "Too slow.", "source": "helpdesk"}),
        (
            "session_id",
            {"name": "done", "label": "task-end", "observed_at": "2026-01-31T12:00:00Z"},
        ),
        ("group_id", {"name": "rank", "value": 2, "confidence": 0.5, "is_gold": True}),
    ],
)
def test_all_kinds_of_feedback_on_all_targets(
    gateway: GatewayProcess, client: httpx.Client, target: str, more: dict[str, object]
) -> None:
    item = {target: "not-seen-yet", **more}
    first = client.post("/headrace/v1/feedback", json=item)
    again = client.post("/headrace/v1/feedback", json=[item])
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["feedback_ids"] == again.json()["feedback_ids"]
    one, two = gateway.records(2)
    assert isinstance(one, Feedback)
    assert isinstance(two, Feedback)
    assert (one.target_kind, one.feedback_id) == (target.removesuffix("_id"), two.feedback_id)
    assert one.body["name"] == more["name"]


def test_bodies_may_be_compressed(gateway: GatewayProcess, client: httpx.Client) -> None:
    body = gzip.compress(json.dumps([ITEM]).encode())
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    assert client.post("/headrace/v1/feedback", content=body, headers=headers).status_code == 202
    gateway.records(1)
    broken = client.post("/headrace/v1/feedback", content=body[:20], headers=headers)
    assert broken.status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/headrace/v1/feedback", 405),
        ("POST", "/headrace/v1/nothing", 404),
        ("GET", "/headrace/", 404),
    ],
)
def test_what_is_not_there(
    client: httpx.Client, upstream: Upstream, method: str, path: str, status: int
) -> None:
    before = len(upstream.seen)
    assert client.request(method, path).status_code == status
    assert len(upstream.seen) == before


def test_too_much_is_refused_whole(gateway: GatewayProcess, client: httpx.Client) -> None:
    many = client.post("/headrace/v1/feedback", json=[ITEM] * 1001)
    assert many.status_code == 400
    large = client.post("/headrace/v1/feedback", content=b" " * (5 * 1024 * 1024))
    assert large.status_code == 413
    assert gateway.records(1, seconds=0.1) == []


def test_a_gateway_that_captures_nothing_says_so(upstream: Upstream, tmp_path: Path) -> None:
    settings = {
        "routes": [{"name": "up", "upstream": upstream.url}],
        "forward_port": None,
        "capture": False,
    }
    with GatewayProcess(tmp_path, settings) as gateway:
        headers = {"authorization": f"Bearer {gateway.key}"}
        answer = httpx.post(f"{gateway.url}/headrace/v1/feedback", json=ITEM, headers=headers)
        assert answer.status_code == 503
        assert httpx.post(f"{gateway.url}/up/echo", content=b"x", headers=headers).content == b"x"
