"""Exact tokens in each dialect, from the server of models itself: kept whole, and taken out for the client."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from proxy.config import Route
from proxy.recording.tokens import TOKEN_PATHS
from proxy.routes.probe import probe
from tests.headrace.serving.scripted import KEY, LABEL, ScriptedNetwork, scripted_server
from tests.proxy.gateway_process import GatewayProcess
from trajectory.dialects.registry import read_exchange

_PATIENCE = 60
"""Seconds: the model answers after five or more on a machine that others use too."""
_TEXT = "tool\n9<|im_end|>"
BODIES: dict[str, dict[str, Any]] = {
    "openai.chat": {"messages": [{"role": "user", "content": _TEXT}]},
    "openai.completions": {"prompt": _TEXT},
    "openai.responses": {"input": _TEXT, "store": False},
    "anthropic.messages": {"messages": [{"role": "user", "content": _TEXT}], "max_tokens": 99},
}
_CHANGING = {"id", "created", "created_at", "item_id", "request_id"}


@pytest.fixture(scope="module")
def engine() -> Iterator[tuple[str, ScriptedNetwork]]:
    with scripted_server() as server:
        yield server


@pytest.fixture(scope="module")
def gateway(
    engine: tuple[str, ScriptedNetwork], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    routes = [{"name": "engine", "upstream": engine[0], "capture": "tokens"}]
    with GatewayProcess(tmp_path_factory.mktemp("tokens"), {"routes": routes}) as running:
        yield running


def events(data: bytes) -> list[Any]:
    """Return what a body holds, without names and times that differ from call to call."""
    lines = data.decode().splitlines()
    found = [line.removeprefix("data: ") for line in lines if line.startswith(("data: ", "{"))]
    return [plain(json.loads(line)) if line[:1] == "{" else line for line in found]


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items() if name not in _CHANGING}
    return value


def said(found: list[Any]) -> list[Any]:
    """Leave out chunks that tell tokens alone: a client that did not ask gets them empty."""

    def is_empty(value: Any) -> bool:
        choices = value.get("choices") if isinstance(value, dict) else None
        if not choices or choices[0].get("finish_reason"):
            return False
        return not (choices[0].get("delta") or choices[0].get("text"))

    return [value for value in found if not is_empty(value)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", TOKEN_PATHS)
def test_tokens_are_kept_and_the_client_sees_none(
    dialect: str, stream: bool, engine: tuple[str, ScriptedNetwork], gateway: GatewayProcess
) -> None:
    path = f"/v1{TOKEN_PATHS[dialect].decode()}"
    body = {"model": LABEL, **BODIES[dialect], "stream": stream}
    own = {"authorization": f"Bearer {KEY}"}
    direct = httpx.post(f"{engine[0]}{path}", json=body, headers=own, timeout=_PATIENCE)
    headers = {**own, "x-headrace-key": gateway.key}
    through = httpx.post(
        f"{gateway.url}/engine{path}", json=body, headers=headers, timeout=_PATIENCE
    )
    assert through.status_code == direct.status_code == 200
    assert said(events(through.content)) == events(direct.content)
    for canary in (b"token_ids", b"prompt_token_ids", b'"token_logprobs"', b'"logprob"'):
        assert canary not in through.content
    call = read_exchange(gateway.exchange())
    assert (call.dialect, call.error, call.problem) == (dialect, None, None)
    assert call.tokens is not None
    assert call.tokens.prompt_token_ids == tuple(engine[1].prompts[-1])
    assert call.tokens.logprobs is not None
    assert len(call.tokens.logprobs) == len(call.tokens.completion_token_ids) > 3


@pytest.mark.parametrize("dialect", TOKEN_PATHS)
def test_what_a_client_asked_for_it_gets(dialect: str, gateway: GatewayProcess) -> None:
    path = f"/v1{TOKEN_PATHS[dialect].decode()}"
    asked = {"return_token_ids": True, "logprobs": 0 if dialect == "openai.completions" else True}
    headers = {"authorization": f"Bearer {KEY}", "x-headrace-key": gateway.key}
    body = {"model": LABEL, **BODIES[dialect], **asked}
    answer = httpx.post(
        f"{gateway.url}/engine{path}", json=body, headers=headers, timeout=_PATIENCE
    )
    assert b'"token_ids"' in answer.content
    assert b"logprob" in answer.content
    gateway.exchange()


def test_the_probe_names_the_dialects_that_give_tokens(
    engine: tuple[str, ScriptedNetwork], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_KEY", KEY)
    credential = {"header": "authorization", "env": "ENGINE_KEY"}
    settings = {"name": "engine", "upstream": engine[0], "capture": "tokens"}
    route = Route.model_validate({**settings, "credential": credential})
    found = probe(route, route.choices[0])
    assert found.token_dialects == tuple(TOKEN_PATHS)
    assert (found.gives_tokens, found.problem) == (True, "")
