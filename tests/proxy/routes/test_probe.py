"""The probe: what an engine can is found out; a route whose engine gives no tokens is lowered."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from proxy.config import Route
from proxy.routes.probe import probe
from tests.proxy.gateway_process import GatewayProcess
from tests.proxy.recording.test_tokens import engine
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json, stream


def models(request: ReceivedRequest) -> Reply | None:
    if request.target.endswith("/v1/models"):
        return as_json({"data": [{"id": "tiny"}]})
    return None


def exact(request: ReceivedRequest) -> Reply:
    """Answer like an engine that can."""
    return models(request) or engine(request)


def without(request: ReceivedRequest) -> Reply:
    """Answer like a provider that knows nothing of token ids."""
    found = models(request)
    if found is not None:
        return found
    value: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion", "model": "tiny"}
    message = {"role": "assistant", "content": "ok"}
    if json.loads(request.body).get("stream"):
        return stream([f"data: {json.dumps({**value, 'choices': []})}\n\n".encode()])
    return as_json({**value, "choices": [{"index": 0, "message": message}]})


def wrong(request: ReceivedRequest) -> Reply:
    """Answer with token ids that are not as many as usage says."""
    found = models(request)
    if found is not None:
        return found
    choice = {"index": 0, "message": {"role": "assistant", "content": "ok"}, "token_ids": [1, 2]}
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    return as_json({"choices": [choice], "prompt_token_ids": [1, 2, 3], "usage": usage})


@pytest.fixture(scope="module")
def upstreams() -> Iterator[dict[str, Upstream]]:
    with Upstream(exact) as good, Upstream(without) as poor, Upstream(wrong) as lying:
        yield {"good": good, "poor": poor, "lying": lying}


def route(url: str) -> Route:
    return Route.model_validate({"name": "engine", "upstream": url, "capture": "tokens"})


@pytest.mark.parametrize(("name", "ids"), [("good", True), ("poor", False), ("lying", False)])
def test_what_an_upstream_can(upstreams: dict[str, Upstream], name: str, ids: bool) -> None:
    asked = route(upstreams[name].url)
    found = probe(asked, asked.choices[0])
    assert (found.reachable, found.status, found.model) == (True, 200, "tiny")
    assert found.token_ids is ids
    assert found.gives_tokens is ids
    assert bool(found.problem) is not ids


def test_an_upstream_that_is_down() -> None:
    asked = route("http://127.0.0.1:9")
    found = probe(asked, asked.choices[0])
    assert not found.reachable
    assert found.problem.startswith("ConnectError: ")


def level(gateway: GatewayProcess, name: str) -> str:
    text = httpx.get(f"{gateway.admin}/metrics").text
    levels = re.findall(rf'capture_level{{level="(\w+)",route="{name}"}} 1', text)
    return str(levels[0])


def test_the_level_is_lowered_rather_than_guessed(
    upstreams: dict[str, Upstream], tmp_path_factory: pytest.TempPathFactory
) -> None:
    routes = [
        {"name": name, "upstream": upstream.url, "capture": "tokens"}
        for name, upstream in upstreams.items()
    ]
    routes[1]["name"] = "probed"
    settings = {"routes": routes, "forward_port": None, "probe_at_start": False}
    with GatewayProcess(tmp_path_factory.mktemp("levels"), settings) as gateway:
        headers = {"authorization": f"Bearer {gateway.key}"}
        body = {"model": "m", "messages": []}
        for name in ("good", "lying"):
            for _ in range(4):
                answer = httpx.post(
                    f"{gateway.url}/{name}/v1/chat/completions", json=body, headers=headers
                )
                assert "prompt_token_ids" not in answer.json() or name == "lying"
        asked = [json.loads(e.request.body).get("return_token_ids") for e in gateway.exchanges(8)]
        assert asked == [True] * 7 + [None]
        assert (level(gateway, "good"), level(gateway, "lying")) == ("tokens", "text")
        assert "route lying: the upstream gives no token ids" in gateway.log.read_text()


def test_at_the_start_too(
    upstreams: dict[str, Upstream], tmp_path_factory: pytest.TempPathFactory
) -> None:
    routes = [
        {"name": name, "upstream": upstreams[name].url, "capture": "tokens"}
        for name in ("good", "poor")
    ]
    settings = {"routes": routes, "forward_port": None, "probe_at_start": True}
    with GatewayProcess(tmp_path_factory.mktemp("start"), settings) as gateway:
        deadline = time.monotonic() + 60
        while level(gateway, "poor") != "text":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert level(gateway, "good") == "tokens"
