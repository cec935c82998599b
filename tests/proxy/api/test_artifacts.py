"""Artefacts for agents that fetch them: over HTTP and by a client of MCP, each tenant its own."""

import json
from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import McpError
from pydantic import AnyUrl

from tests.proxy.gateway_process import GatewayProcess

ORIGIN = {"proposer": "jo", "licence": "CC0-1.0"}
FACT = {"id": "days", "text": "A refund takes three days.", "evidence": ["step-1"]}
SKILL = {
    "title": "Paying back",
    "trigger": {"phrases": ["money back"]},
    "procedure": "Ask for the order's number first.",
}
CONTENTS: dict[str, dict[str, Any]] = {
    "facts": {"tenant": "acme", "decision": "d-1", "memory": {"facts": [FACT]}},
    "asking": {"skill": SKILL},
    "foreign": {"tenant": "other", "memory": {"facts": [{"id": "a", "text": "Other words."}]}},
    "style": {"harness": {"append": "Be brief."}},
}


@pytest.fixture(scope="module", params=["plain", "mitmproxy"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("fetched")
    for name, content in CONTENTS.items():
        version = home / "artifacts" / name / "0002"
        version.mkdir(parents=True)
        (version / "artifact.json").write_text(json.dumps({**ORIGIN, **content}))
        (version.parent / "live.json").write_text(json.dumps({"version": "0002"}))
    names = [*CONTENTS, "absent"]
    route = {"name": "up", "upstream": "http://127.0.0.1:9", "evolve": {"artifacts": names}}
    settings = {
        "routes": [route],
        "artifacts": str(home / "artifacts"),
        "listener": request.param,
    }
    with GatewayProcess(home, settings) as running:
        yield running


def get(gateway: GatewayProcess, path: str, **headers: str) -> httpx.Response:
    return httpx.get(
        f"{gateway.url}/headrace/v1/artifacts{path}",
        headers={"authorization": f"Bearer {gateway.key}", **headers},
        trust_env=False,
        timeout=60,
    )


def test_a_tenant_fetches_what_is_live_for_it(gateway: GatewayProcess) -> None:
    listed = get(gateway, "").json()["artifacts"]
    assert [one["name"] for one in listed] == ["asking", "facts", "style"]
    assert listed[1] == {
        "name": "facts",
        "version": "0002",
        "surface": "memory",
        "licence": "CC0-1.0",
    }
    assert get(gateway, "/style").json()["harness"] == {"append": "Be brief."}
    told = get(gateway, "/facts")
    assert told.json()["memory"]["facts"] == [{"id": "days", "text": FACT["text"]}]
    assert not {"evidence", "decision", "proposer"} & told.json().keys()


def test_others_get_nothing(gateway: GatewayProcess) -> None:
    assert get(gateway, "/foreign").status_code == 404
    assert get(gateway, "/absent").status_code == 404
    assert get(gateway, "", authorization="Bearer none").status_code == 401
    url = f"{gateway.url}/headrace/v1/mcp"
    assert httpx.post(url, json={}, trust_env=False).status_code == 401
    key = {"authorization": f"Bearer {gateway.key}"}
    assert httpx.get(url, headers=key, trust_env=False).status_code == 405
    assert httpx.post(url, headers=key, content=b"[", trust_env=False).status_code == 400


def test_a_client_of_mcp_reads_resources_and_prompts(gateway: GatewayProcess) -> None:
    async def talk() -> None:
        headers = {"authorization": f"Bearer {gateway.key}"}
        url = f"{gateway.url}/headrace/v1/mcp"
        async with (
            httpx.AsyncClient(headers=headers, trust_env=False, timeout=60) as http,
            streamable_http_client(url, http_client=http) as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            await session.send_ping()
            resources = (await session.list_resources()).resources
            assert [one.name for one in resources] == ["asking", "facts", "style"]
            told = (await session.read_resource(resources[1].uri)).contents[0]
            assert told.model_dump()["text"] == "- A refund takes three days."
            assert told.mimeType == "text/markdown"
            (prompt,) = (await session.list_prompts()).prompts
            assert (prompt.name, "money back" in str(prompt.description)) == ("asking", True)
            shown = (await session.get_prompt("asking")).messages[0].content
            assert "Ask for the order's number first." in shown.model_dump()["text"]
            with pytest.raises(McpError, match="no such resource"):
                await session.read_resource(AnyUrl("headrace://artifacts/foreign"))
            with pytest.raises(McpError, match="no such prompt"):
                await session.get_prompt("facts")
            with pytest.raises(McpError, match="resources and prompts"):
                await session.list_tools()

    anyio.run(talk)
