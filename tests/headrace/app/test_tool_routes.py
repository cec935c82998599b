"""Tool routes in the settings: operations by pattern and by OpenAPI document."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from headrace.app.installation import http_tools
from proxy.config import Route
from tests.trajectory.dialects.test_operations import DOCUMENT
from tests.trajectory.world import World
from trajectory.dialects.registry import read_calls
from trajectory.errors import ConfigurationError


def route(**settings: Any) -> Route:
    return Route.model_validate(
        {"name": "model", "upstream": "http://tools:1/base", "kind": "tool", **settings}
    )


@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump])
def test_patterns_and_documents_together(write: Any, tmp_path: Path) -> None:
    path = tmp_path / "openapi.yaml"
    path.write_text(write(DOCUMENT), encoding="utf-8")
    pattern = {"name": "ping", "path": "/ping"}
    tools = http_tools([route(operations=[pattern], openapi=str(path))])
    world = World()
    paths = ("/base/ping", "/base/orders/7", "/base/api/v2/orders/7", "/orders/7")
    calls = [
        call
        for path_ in paths
        for call in read_calls(world.exchange(path_, b"", {}, method="GET"), (tools,))
    ]
    assert [call.dispatch and call.dispatch.name for call in calls] == [
        "ping",
        "getOrder",
        "getOrder",
        "getOrder",
    ]


def test_a_document_that_is_none_is_said_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "openapi.json"
    with pytest.raises(ConfigurationError, match=r"model: openapi: .*No such file"):
        http_tools([route(openapi=str(path))])
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="neither JSON nor YAML"):
        http_tools([route(openapi=str(path))])
    path.write_text("info: {version: 2021-02-30}", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="neither JSON nor YAML"):
        http_tools([route(openapi=str(path))])
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        http_tools([route(openapi=str(path))])
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="not an OpenAPI document"):
        http_tools([route(openapi=str(path))])


def test_only_tool_routes_have_operations() -> None:
    with pytest.raises(ValidationError, match="kind: tool"):
        route(kind="model", operations=[{"name": "x", "path": "/x"}])
    with pytest.raises(ValidationError, match="is not a path like"):
        route(operations=[{"name": "x", "path": "x"}])
