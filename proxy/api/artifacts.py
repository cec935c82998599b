"""Artefacts for agents that fetch them: as JSON over HTTP, and as resources and prompts of MCP.

What serves is what routes name and what is live, for everybody or for the tenant of the client's key.
Where an artefact comes from stays here: evidence, proposer and decision are not told.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from proxy.artifacts.shelf import Shelf
from proxy.config import ENDPOINT_PREFIX
from proxy.request_json import parsed
from proxy.responses import LocalReply, json_reply
from trajectory.artifact import ArtifactSpec
from trajectory.canonical import JsonObject

ARTIFACTS_PATH = f"{ENDPOINT_PREFIX}v1/artifacts"
MCP_PATH = f"{ENDPOINT_PREFIX}v1/mcp"
_SCHEME = "headrace://artifacts/"
_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Of the protocol, the newest first; what is told here is the same in all."""
_UNKNOWN_METHOD, _BAD_PARAMETERS, _BAD_REQUEST, _NO_RESOURCE = -32601, -32602, -32600, -32002


class _ProtocolError(Exception):
    def __init__(self, code: int, text: str) -> None:
        self.told: JsonObject = {"code": code, "message": text}


class FetchedArtifacts:
    """Answers requests for the artefacts of a gateway's routes."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def takes(self, path: str) -> bool:
        """Tell whether a path asks for artefacts."""
        return path in (ARTIFACTS_PATH, MCP_PATH) or path.startswith(f"{ARTIFACTS_PATH}/")

    def fetch(self, path: str, tenant: str) -> LocalReply:
        """Answer a GET for the list, or for one by its name."""
        if path == ARTIFACTS_PATH:
            return json_reply(200, {"artifacts": [_named(*one) for one in self._live(tenant)]})
        wanted = path.removeprefix(f"{ARTIFACTS_PATH}/")
        for label, spec in self._live(tenant):
            if label.partition("@")[0] == wanted:
                return json_reply(200, {**_named(label, spec), **_content(spec)})
        text = f"no live artefact has this name; GET {ARTIFACTS_PATH} lists them"
        return json_reply(404, {"error": {"message": text, "type": "invalid_request_error"}})

    def call(self, body: bytes, tenant: str) -> LocalReply:
        """Answer a message of MCP, whose transport is streamable HTTP without sessions."""
        try:
            message = parsed(body)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            error: JsonObject = {"code": _BAD_REQUEST, "message": "send one JSON-RPC request"}
            return json_reply(400, {"jsonrpc": "2.0", "id": None, "error": error})
        if "id" not in message:
            return LocalReply(202, ((b"content-length", b"0"),), b"")
        answer: JsonObject = {"jsonrpc": "2.0", "id": message["id"]}
        given = message.get("params")
        try:
            answer["result"] = self._result(
                message["method"], given if isinstance(given, dict) else {}, tenant
            )
        except _ProtocolError as error:
            answer["error"] = error.told
        return json_reply(200, answer)

    def _result(self, method: str, given: Mapping[str, Any], tenant: str) -> dict[str, Any]:
        live = {label.partition("@")[0]: (label, spec) for label, spec in self._live(tenant)}
        match method:
            case "initialize":
                wanted = given.get("protocolVersion")
                return {
                    "protocolVersion": wanted if wanted in _VERSIONS else _VERSIONS[0],
                    "capabilities": {"resources": {}, "prompts": {}},
                    "serverInfo": {"name": "headrace", "version": "1"},
                }
            case "ping":
                return {}
            case "resources/list":
                return {"resources": [_resource(*one) for one in live.values()]}
            case "resources/templates/list":
                return {"resourceTemplates": []}
            case "resources/read":
                uri = str(given.get("uri"))
                found = live.get(uri.removeprefix(_SCHEME)) if uri.startswith(_SCHEME) else None
                if found is None:
                    raise _ProtocolError(_NO_RESOURCE, "no such resource; resources/list tells all")
                told = {"uri": uri, "mimeType": _type(found[1]), "text": _text(found[1])}
                return {"contents": [told]}
            case "prompts/list":
                return {"prompts": [_prompt(*one) for one in live.values() if one[1].skill]}
            case "prompts/get":
                found = live.get(str(given.get("name")))
                if found is None or found[1].skill is None:
                    raise _ProtocolError(_BAD_PARAMETERS, "no such prompt; prompts/list tells all")
                content = {"type": "text", "text": _text(found[1])}
                return {
                    "description": found[1].skill.title,
                    "messages": [{"role": "user", "content": content}],
                }
            case _:
                raise _ProtocolError(_UNKNOWN_METHOD, "this server has resources and prompts")

    def _live(self, tenant: str) -> Iterator[tuple[str, ArtifactSpec]]:
        """Yield ``name@version`` and content of what is live for a tenant."""
        for one in self._shelf.live():
            if one.tenant in (None, tenant):
                yield one.label, one.spec


def _named(label: str, spec: ArtifactSpec) -> JsonObject:
    name, _, version = label.partition("@")
    return {"name": name, "version": version, "surface": spec.surface, "licence": spec.licence}


def _content(spec: ArtifactSpec) -> JsonObject:
    value: dict[str, Any] = spec.model_dump(
        mode="json", exclude_none=True, include={str(spec.surface)}
    )
    for fact in value.get("memory", {}).get("facts", ()):
        del fact["evidence"]
    return value


def _text(spec: ArtifactSpec) -> str:
    """Return what an artefact says, as an agent reads it."""
    if spec.memory is not None:
        return "\n".join(f"- {fact.text}" for fact in spec.memory.facts)
    if spec.skill is not None:
        return f"# {spec.skill.title}\n\n{spec.skill.procedure}"
    return json.dumps(_content(spec), ensure_ascii=False)


def _type(spec: ArtifactSpec) -> str:
    return "text/markdown" if spec.memory or spec.skill else "application/json"


def _resource(label: str, spec: ArtifactSpec) -> dict[str, Any]:
    name = label.partition("@")[0]
    about = f"{spec.surface}, {label}"
    return {
        "uri": f"{_SCHEME}{name}",
        "name": name,
        "description": about,
        "mimeType": _type(spec),
    }


def _prompt(label: str, spec: ArtifactSpec) -> dict[str, Any]:
    assert spec.skill is not None  # noqa: S101 - for the type checker
    about = f"{spec.skill.title}. Use when: {', '.join(spec.skill.trigger.phrases)}."
    return {"name": label.partition("@")[0], "description": about, "arguments": []}
