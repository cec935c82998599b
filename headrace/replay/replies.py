"""What a replay answers to one request, without sockets: model APIs and MCP."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from governance.policy import load_bundle
from governance.redact import redactor_of
from governance.redact.report import RedactionScope
from headrace.app.home import Home
from headrace.app.master_key import Secrets, subject_keys_of
from headrace.app.settings import Settings
from trajectory.call import Call, CallKind
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.registry import read_request, write_answer
from trajectory.dialects.wire import as_object, as_text, objects
from trajectory.dialects.writer import UnwritableError
from trajectory.exchange import Headers
from trajectory.message import Message, ToolCallPart
from trajectory.replay import Player, RecordedAnswer, ReplayDivergence

type Clean = Callable[[Sequence[Message]], tuple[Message, ...]]

_PROTOCOL = "2025-06-18"
_NO_METHOD = -32601


@dataclass(frozen=True, slots=True)
class ReplayResponse:
    """What goes back."""

    status: int
    content_type: str = "application/json"
    pieces: tuple[bytes, ...] = field(default=(), repr=False)
    headers: Headers = ()


@dataclass(slots=True)
class IgnoredDifferences:
    """What differed without deciding anything."""

    system_prompts: int = 0
    """Requests whose system prompt is not the recorded one."""
    models: int = 0
    """Requests that named another model than the one that answered."""


def cleaner(
    settings: Settings, home: Home, secrets: Secrets, *, tenant_id: str, trajectory_id: str
) -> Clean:
    """Return what redacts messages as governance did when it stored the trajectory.

    A name that governance found only in a later message may still stand in an earlier one here;
    the comparison lets a mark in the recording stand for it.
    """
    bundle = load_bundle(settings.policy.folder)
    redactor = redactor_of(
        bundle,
        pseudonym_key=secrets.derive(b"pseudonym"),
        subjects=subject_keys_of(home, secrets),
    )
    scope = RedactionScope(tenant_id, trajectory_id)

    def clean(messages: Sequence[Message]) -> tuple[Message, ...]:
        return tuple(one.message for one in redactor.redact_messages(messages, scope=scope))

    return clean


class Replies:
    """Answers requests from a player; what comes is redacted before it is compared."""

    def __init__(self, player: Player, clean: Clean) -> None:
        self.player = player
        self.drift = IgnoredDifferences()
        self._clean = clean
        self._lock = Lock()

    def model(self, path: str, query: str, headers: Headers, body: bytes) -> ReplayResponse:
        """Answer a request to a model API in its own wire format."""
        call = read_request(path, headers, body)
        if call.kind is not CallKind.MODEL:
            return problem(404, f"a replay knows no {path}")
        context = self._context(call)
        found = self.player.answer(context)
        if isinstance(found, ReplayDivergence):
            return problem(422, _told(found))
        self._note_drift(call, context, found)
        try:
            asked = as_object(json.loads(body))
            wire = write_answer(call.dialect, found.answer, asked, path=path, query=query)
        except UnwritableError as error:
            return problem(501, str(error))
        return ReplayResponse(200, wire.content_type, wire.pieces, wire.headers)

    def _context(self, call: Call) -> tuple[Message, ...]:
        own = self._redacted(call.context)
        named = next((hint.value for hint in call.hints if hint.kind == "response"), None)
        before = self.player.earlier(named) if named is not None else None
        return (*before, *own) if before is not None else own

    def _redacted(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        with self._lock:
            return self._clean(messages)

    def _note_drift(self, call: Call, context: tuple[Message, ...], found: RecordedAnswer) -> None:
        if _system(context) != _system(found.context):
            self.drift.system_prompts += 1
        served = found.answer.model
        if call.model_requested is not None and not served.startswith(call.model_requested):
            self.drift.models += 1

    def tools(self, body: bytes) -> ReplayResponse:
        """Answer JSON-RPC as a tool server over streamable HTTP."""
        try:
            asked: JsonValue = json.loads(body)
        except ValueError:
            return problem(400, "the body is not JSON")
        several = isinstance(asked, list)
        requests = objects(asked) if isinstance(asked, list) else [as_object(asked)]
        answers: list[JsonValue] = [
            answer for request in requests if (answer := self._rpc(request)) is not None
        ]
        if not answers:
            return ReplayResponse(202)
        text = json.dumps(answers if several else answers[0], ensure_ascii=False)
        return ReplayResponse(200, pieces=(text.encode(),))

    def _rpc(self, request: JsonObject) -> JsonObject | None:
        method = as_text(request.get("method"))
        if "id" not in request or method is None:
            return None
        head: JsonObject = {"jsonrpc": "2.0", "id": request["id"]}
        parameters = as_object(request.get("params"))
        if method == "initialize":
            version = as_text(parameters.get("protocolVersion")) or _PROTOCOL
            info: JsonObject = {"name": "headrace-replay", "version": "1"}
            own: JsonObject = {"protocolVersion": version, "capabilities": {"tools": {}}}
            return {**head, "result": {**own, "serverInfo": info}}
        if method == "tools/list":
            return {**head, "result": {"tools": list(self.player.recording.definitions)}}
        if method == "tools/call":
            return {**head, "result": self._tool(parameters)}
        if method in ("resources/read", "prompts/get"):
            given = {name: value for name, value in parameters.items() if name != "_meta"}
            return {**head, "result": self._tool({"name": method, "arguments": given})}
        if method == "ping":
            return {**head, "result": {}}
        if method in ("prompts/list", "resources/list", "resources/templates/list"):
            name = "resourceTemplates" if "templates" in method else method.partition("/")[0]
            return {**head, "result": {name: []}}
        return {**head, "error": {"code": _NO_METHOD, "message": f"a replay knows no {method}"}}

    def _tool(self, parameters: JsonObject) -> JsonValue:
        name, arguments = as_text(parameters.get("name")) or "", parameters.get("arguments") or {}
        asked = Message("assistant", (ToolCallPart("", name, arguments),))
        [part] = self._redacted((asked,))[0].tool_calls()
        found = self.player.tool(name, part.arguments)
        if isinstance(found, ReplayDivergence):
            text: JsonObject = {"type": "text", "text": _told(found)}
            return {"content": [text], "isError": True}
        return found.result


def problem(status: int, text: str) -> ReplayResponse:
    """Return an error in a shape that the SDKs of all providers show."""
    error: JsonObject = {"type": "invalid_request_error", "message": text, "code": "replay"}
    body = json.dumps({"type": "error", "error": error, "message": text}, ensure_ascii=False)
    return ReplayResponse(status, pieces=(body.encode(),))


def _told(found: ReplayDivergence) -> str:
    where = f" at {found.where}" if found.where else ""
    return f"replay: this run left the recorded path{where}; the replay's report says how"


def _system(context: tuple[Message, ...]) -> list[str]:
    return [one.text().strip() for one in context if one.role in ("system", "developer")]
