"""Agent2Agent over JSON-RPC or plain HTTP: one agent gives another a task; a tool, seen from outside.

Versions 0.3 (``message/send``, events with a ``kind``) and 1.0 (``SendMessage``, events under a
name) are read.
"""

import re
from collections.abc import Iterable, Iterator
from typing import cast

from trajectory.call import Call, CallKind, SessionHint, ToolDispatch
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.hints import common_hints, retry_count, users_in
from trajectory.dialects.jsonrpc import (
    JsonRpcAnswer,
    answer_objects,
    is_answer,
    method_of,
    read_answer,
    request_objects,
)
from trajectory.dialects.reader import DialectOutput
from trajectory.dialects.wire import (
    UnreadableError,
    as_object,
    as_text,
    clean_text,
    error_text,
    header,
    is_event_stream,
    name_media,
    objects,
    response_bytes,
    without,
)
from trajectory.exchange import Exchange

_SENDS = frozenset({"message/send", "message/stream", "SendMessage", "SendStreamingMessage"})
_LOOKS = frozenset({"tasks/get", "tasks/resubscribe", "GetTask", "SubscribeToTask"})
_METHOD = re.compile(
    rb'"method"\s*:\s*"(?:message/(?:send|stream)|tasks/[a-zA-Z/]+|agent/[a-zA-Z]+'
    rb'|Send(?:Streaming)?Message|(?:Get|List|Cancel|SubscribeTo)Tasks?|[A-Z][a-zA-Z]*Push[a-zA-Z]+)"'
)
_REST = re.compile(r"/message:(send|stream)$")
_OVER = ("completed", "failed", "canceled", "rejected", "input-required", "auth-required")
_UPDATES = {
    "task": "task",
    "message": "message",
    "statusUpdate": "status-update",
    "artifactUpdate": "artifact-update",
}


class A2a:
    """JSON-RPC posts with A2A's methods, and ``POST …/message:send``."""

    name = "a2a"
    yields = DialectOutput(
        "A2A's `message/send` and `message/stream`, `tasks/get` and `tasks/resubscribe` where they"
        " bring a finished task; its other requests are control",
        CallKind.TOOL,
        streams="SSE",
        errors="status and body, JSON-RPC `error`, the task's state",
        identity="`contextId`",
    )

    def matches(self, exchange: Exchange) -> bool:
        """Tell by the method in the body; MCP has tasks too, and says who it is in headers."""
        request = exchange.request
        if request.method != "POST":
            return False
        if _REST.search(request.path):
            return True
        named = any(
            header(request.headers, name) for name in ("mcp-session-id", "mcp-protocol-version")
        )
        return not named and bool(_METHOD.search(request.body[:65536]))

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; see :func:`trajectory.dialects.read_exchange`."""
        asked = request_objects(exchange)[0]
        rest = _REST.search(exchange.request.path)
        method = f"message/{rest[1]}" if rest else method_of([asked])
        parameters = asked if rest else as_object(asked.get("params"))
        answer = _answer(exchange)
        task = as_object(answer.result)
        given: JsonValue = parameters
        if method in _SENDS:
            given = parameters.get("message")
        told = _told(parameters) if method in _SENDS else {}
        is_step = method in _SENDS or (method in _LOOKS and _state(task) in _OVER)
        return Call(
            exchange=exchange,
            dialect=self.name,
            kind=CallKind.TOOL if is_step else CallKind.CONTROL,
            streamed=is_event_stream(exchange),
            hints=(*common_hints(exchange), *_hints(as_object(given), task)),
            retry_count=retry_count(exchange),
            also_named=tuple(_people(parameters)),
            error=answer.error,
            ext={"method": method[:100], **({"params": told} if told else {})},
            dispatch=_dispatch(exchange, method, given, answer) if is_step else None,
        )


def _people(parameters: JsonObject) -> Iterator[str]:
    """Yield whom a request, or the message in it, names as the one who used the application."""
    for holder in (parameters, as_object(parameters.get("message"))):
        yield from users_in(as_object(holder.get("metadata")))


def _told(parameters: JsonObject) -> JsonObject:
    """Return what was said beside the message; where to push news holds credentials."""
    told = without(parameters, frozenset({"message"}))
    if isinstance(told.get("configuration"), dict):
        wishes = as_object(told["configuration"])
        told["configuration"] = {k: v for k, v in wishes.items() if "push" not in k.lower()}
    return told


def _dispatch(
    exchange: Exchange, method: str, given: JsonValue, answer: JsonRpcAnswer
) -> ToolDispatch:
    state = _state(as_object(answer.result))
    return ToolDispatch(
        name=method,
        arguments=name_media(given),
        result=name_media(answer.result),
        is_error=answer.error is not None or state in ("failed", "rejected"),
        server=clean_text(exchange.upstream + exchange.request.path),
    )


def _hints(message: JsonObject, task: JsonObject) -> tuple[SessionHint, ...]:
    context = as_text(message.get("contextId")) or as_text(task.get("contextId"))
    return (SessionHint("client:a2a.contextId", context[:512]),) if context else ()


def _state(task: JsonObject) -> str:
    """Return a task's state in the words of 0.3 (``TASK_STATE_INPUT_REQUIRED`` in 1.0)."""
    state = as_text(as_object(task.get("status")).get("state")) or ""
    return state.removeprefix("TASK_STATE_").replace("_", "-").lower()


def _answer(exchange: Exchange) -> JsonRpcAnswer:
    response = exchange.response
    if response is None:
        return JsonRpcAnswer(error=f"no response: {exchange.outcome.value}")
    try:
        data = response_bytes(exchange)
        if response.status >= 400:
            return JsonRpcAnswer(error=error_text(data, response.status, response.headers))
        messages = answer_objects(exchange, data)
    except UnreadableError as error:
        return JsonRpcAnswer(error=f"unreadable {error.args[0]}")
    answers = [read_answer(m) if is_answer(m) else JsonRpcAnswer(m) for m in messages]
    failure = next((answer.error for answer in answers if answer.error), None)
    task = join_updates(as_object(answer.result) for answer in answers)
    if not task and failure is None:
        failure = f"no answer: {exchange.outcome.value}"
    return JsonRpcAnswer(task or None, failure)


def join_updates(updates: Iterable[JsonObject]) -> JsonObject:
    """Return the task (or the message) that a stream's updates make; one answer is one update."""
    task: JsonObject = {}
    for update in updates:
        kind, value = _kind(update)
        if kind == "status-update":
            status = as_object(value.get("status"))
            task = {**_named(value), **task, "status": status}
            if said := status.get("message"):
                task["history"] = [*objects(task.get("history")), as_object(said)]
        elif kind == "artifact-update":
            task = {**_named(value), **task}
            task["artifacts"] = _artifacts(objects(task.get("artifacts")), value)
        elif value:
            task = {**task, **value}
    return task


def _kind(update: JsonObject) -> tuple[str, JsonObject]:
    """Return what an update is, and its fields."""
    kind = as_text(update.get("kind"))
    if kind is not None:
        return kind, update
    for name, wanted in _UPDATES.items():
        if isinstance(update.get(name), dict) and len(update) == 1:
            return wanted, as_object(update[name])
    return "task", update


def _named(value: JsonObject) -> JsonObject:
    named: JsonObject = {"id": value.get("taskId"), "contextId": value.get("contextId")}
    return {name: item for name, item in named.items() if item is not None}


def _artifacts(known: list[JsonObject], update: JsonObject) -> list[JsonValue]:
    """Return the artifacts with one more, or with one that goes on."""
    artifact = as_object(update.get("artifact"))
    name = artifact.get("artifactId")
    found: list[JsonValue] = []
    placed = False
    for item in known:
        if item.get("artifactId") != name:
            found.append(item)
            continue
        placed = True
        parts = objects(artifact.get("parts"))
        if update.get("append") is True:
            parts = [*objects(item.get("parts")), *parts]
        found.append({**item, **artifact, "parts": cast(JsonValue, parts)})
    return found if placed else [*found, artifact]
