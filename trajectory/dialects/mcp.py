"""The Model Context Protocol over HTTP: JSON-RPC answered by JSON, by a stream, or on another stream.

Over the older HTTP+SSE each post is answered with 202 and its result comes on the session's one
stream; a broken stream is resumed by a GET with ``Last-Event-ID``; a call that became a task has its
result fetched later. :func:`join_answers` puts such results to their calls where both are there,
and what a server asked a person to the answer. A listing of tools on such a stream is read from the
stream itself, so that it counts whenever the stream ends.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import parse_qs, urljoin, urlsplit

from trajectory.call import ELSEWHERE, Call, CallKind, SessionHint, ToolDispatch
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.hints import (
    common_hints,
    retry_count,
    trace_hint,
    users_in,
    with_people,
)
from trajectory.dialects.jsonrpc import (
    JsonRpcAnswer,
    answer_to,
    is_answer,
    method_of,
    posts_json_rpc,
    read_answer,
    request_objects,
)
from trajectory.dialects.reader import DialectOutput
from trajectory.dialects.sse import decode_events
from trajectory.dialects.wire import (
    UnreadableError,
    as_object,
    as_text,
    clean_text,
    event_objects,
    header,
    is_event_stream,
    name_media,
    names,
    objects,
    only,
    response_bytes,
    without,
)
from trajectory.exchange import Exchange

_CALL, _RESULT = "tools/call", "tasks/result"
_ASKED = {"elicitation/create": "approval", "sampling/createMessage": "sampling"}
"""Methods by which a server asks its client, and the event that the answer is."""
_EVENTS = {"resources/read": "retrieval", "prompts/get": "prompt"}
"""Methods by which a client reads, and the event that each is."""
_STREAM, _TASK = "another stream", "task"
"""In ``ext.answer``: where the result of a call came from, if not from its own exchange."""
_OF_BODY = frozenset({"content-type", "content-encoding", "content-length", "transfer-encoding"})
_STEPS = {
    _CALL: names("name arguments"),
    _RESULT: names("taskId"),
    "resources/read": names("uri"),
    "prompts/get": names("name arguments"),
}
"""Methods that bring content, and what their arguments are."""


class Mcp:
    """JSON-RPC posts, and the GET stream and DELETE of a session."""

    name = "mcp"
    yields = DialectOutput(
        "MCP's `tools/call`, `resources/read`, `prompts/get`, `tasks/result`, answered"
        " `elicitation/create` and `sampling/createMessage` over streamable HTTP, HTTP+SSE (where"
        " stream and post end in one batch), or stdio through `headrace tap`; everything else of"
        " MCP is control",
        CallKind.TOOL,
        streams="SSE",
        errors="status and body, JSON-RPC `error`, `isError`",
        identity="`Mcp-Session-Id`, `_meta.traceparent`",
    )

    def matches(self, exchange: Exchange) -> bool:
        """Tell by the protocol's own headers, by a path that ends in ``mcp``, or by the body."""
        request = exchange.request
        if header(request.headers, "mcp-session-id") or header(
            request.headers, "mcp-protocol-version"
        ):
            return True
        if request.path.rstrip("/").rpartition("/")[2] == "mcp":
            return True
        if request.method == "GET":
            return request.path.rstrip("/").endswith("/sse") and is_event_stream(exchange)
        return posts_json_rpc(exchange)

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; see :func:`trajectory.dialects.read_exchange`."""
        if exchange.request.method != "POST":
            call = self._control(exchange, f"http:{exchange.request.method.lower()}")
            return _listed_on_stream(call)
        requests = request_objects(exchange)
        if header(exchange.request.headers, "x-headrace-origin") == "server":
            # What the server asks of its client or tells it, seen by ``headrace tap``.
            call = self._control(exchange, method_of(requests), origin="server")
            questions = (item for item in requests if as_text(item.get("method")) in _ASKED)
            question = next(questions, None)
            if question is None:
                return call
            return _asked(call, question, answer_to(exchange, question.get("id")))
        asked = [item for item in requests if as_text(item.get("method")) in _STEPS]
        if not asked:
            call = self._control(exchange, method_of(requests))
            return _listed(call, requests[0]) if call.ext["method"] == "tools/list" else call
        return self._tool_call(exchange, asked[0], [item for item in requests if item != asked[0]])

    def _control(self, exchange: Exchange, method: str, **more: JsonValue) -> Call:
        error = None
        if exchange.response is not None and exchange.response.status >= 400:
            error = f"HTTP {exchange.response.status}"
        return Call(
            exchange=exchange,
            dialect=self.name,
            kind=CallKind.CONTROL,
            streamed=is_event_stream(exchange),
            hints=_hints(exchange, {}),
            error=error,
            ext={"method": method[:100], **more},
        )

    def _tool_call(self, exchange: Exchange, asked: JsonObject, others: list[JsonObject]) -> Call:
        parameters = as_object(asked.get("params"))
        method = as_text(asked.get("method")) or ""
        answer = answer_to(exchange, asked.get("id"))
        ext: JsonObject = {"answer": ELSEWHERE} if answer.elsewhere else {}
        read = _STEPS.get(method, frozenset())
        if rest := without(parameters, read):
            ext["params"] = rest
        name: JsonValue | None = method
        arguments: JsonValue = only(parameters, read)
        if method == _CALL:
            name, arguments = parameters.get("name"), parameters.get("arguments") or {}
            if task := _task_of(answer):
                ext |= {"answer": ELSEWHERE, "task": task}
                answer = JsonRpcAnswer(elsewhere=True)
        if others:
            ext["batch"] = list(others)
        if method in _EVENTS:
            ext["event"] = _EVENTS[method]
        call = Call(
            exchange=exchange,
            dialect=self.name,
            kind=CallKind.TOOL,
            streamed=is_event_stream(exchange),
            hints=_hints(exchange, as_object(parameters.get("_meta"))),
            retry_count=retry_count(exchange),
            dispatch=ToolDispatch(
                name=as_text(name) or "",
                arguments=arguments,
                result=None,
                is_error=False,
                server=clean_text(exchange.upstream + exchange.request.path),
            ),
            ext=ext,
        )
        return _answered(call, answer)


def _listed(call: Call, asked: JsonObject) -> Call:
    """Return a listing with the tools that the server named."""
    result = as_object(answer_to(call.exchange, asked.get("id")).result)
    return replace(call, tools=tuple(objects(result.get("tools"))))


def _listed_on_stream(call: Call) -> Call:
    """Return a session's stream with the tools that were listed on it, and whose they are."""
    stream = _stream(call.exchange)
    results = [as_object(message.get("result")) for message in stream.messages]
    tools = [tool for result in results for tool in objects(result.get("tools"))]
    if not tools:
        return call
    servers = [call.exchange.upstream + path for path in _posted_to(call.exchange, stream.endpoint)]
    named: list[JsonValue] = [clean_text(server) for server in servers]
    return replace(call, tools=tuple(tools), ext={**call.ext, "servers": named})


def _posted_to(exchange: Exchange, endpoint: str) -> list[str]:
    """Return the paths that calls of a stream's session may have: its own or the one that it names.

    A server behind a route of the gateway names its endpoint with the route before it.
    """
    if not endpoint:
        return [exchange.request.path]
    route = f"/{exchange.route}"
    inner = endpoint.removeprefix(route) if endpoint.startswith(f"{route}/") else endpoint
    return list(dict.fromkeys((endpoint, inner)))


def _answered(call: Call, answer: JsonRpcAnswer) -> Call:
    if call.dispatch is None:
        return call
    failed = answer.error is not None or as_object(answer.result).get("isError") is True
    dispatch = replace(call.dispatch, result=name_media(answer.result), is_error=failed)
    return replace(call, dispatch=dispatch, error=answer.error)


def _task_of(answer: JsonRpcAnswer) -> JsonObject:
    """Return the task that a call became: its result is fetched later."""
    result = as_object(answer.result)
    task = as_object(result.get("task"))
    return task if as_text(task.get("taskId")) and "content" not in result else {}


type _Streams = dict[tuple[str, str], list[JsonObject]]


def join_answers(calls: Sequence[Call]) -> list[Call]:
    """Put results to the calls that asked for them: from another stream of the session, or a task's.

    What a client answered its server becomes a step where the question is there too.
    """
    spoken = [call for call in calls if call.dialect == Mcp.name]
    if not any(_waits(call) or _answers(call) for call in spoken):
        return list(calls)
    streams: _Streams = {}
    for call in spoken:
        if is_event_stream(call.exchange):
            stream = _stream(call.exchange)
            own = streams.setdefault((call.exchange.client.key_id, stream.session), [])
            own.extend(stream.messages)
    joined = [_answered_by_client(_joined(call, streams), streams) for call in calls]
    return _with_tasks(joined)


def _waits(call: Call) -> bool:
    return call.dialect == Mcp.name and call.ext.get("answer") == ELSEWHERE


def _answers(call: Call) -> bool:
    """Tell whether a client posted an answer to its server."""
    said = call.ext.get("method") == "response" and "origin" not in call.ext
    return call.dialect == Mcp.name and said and call.exchange.request.method == "POST"


def _with_tasks(calls: list[Call]) -> list[Call]:
    """Put results of tasks to the calls that became them; the look-ups are no steps then."""
    waiting = {_task_name(call, call.ext["task"]): call for call in calls if "task" in call.ext}
    found: dict[int, Call] = {}
    for look_up in calls if waiting else ():
        told = look_up.dispatch
        if told is None or told.name != _RESULT or _waits(look_up):
            continue
        call = waiting.get(_task_name(look_up, told.arguments))
        if call is not None and call.dispatch is not None and id(call) not in found:
            dispatch = replace(call.dispatch, result=told.result, is_error=told.is_error)
            ext: JsonObject = {**call.ext, "answer": _TASK}
            found[id(call)] = replace(call, dispatch=dispatch, error=look_up.error, ext=ext)
            ext = {**look_up.ext, "method": _RESULT}
            found[id(look_up)] = replace(look_up, kind=CallKind.CONTROL, dispatch=None, ext=ext)
    return [found.get(id(call), call) for call in calls]


def _task_name(call: Call, task: JsonValue) -> tuple[str, str, str]:
    exchange = call.exchange
    server = exchange.upstream + exchange.request.path
    return exchange.client.key_id, server, as_text(as_object(task).get("taskId")) or ""


def _answered_by_client(call: Call, streams: _Streams) -> Call:
    """Return a client's answer to its server's question as a step of its own."""
    if not _answers(call):
        return call
    messages = streams.get((call.exchange.client.key_id, _session(call.exchange)), [])
    for answer in request_objects(call.exchange):
        for question in messages:
            if question.get("method") in _ASKED and question.get("id") == answer.get("id"):
                return _asked(call, question, read_answer(answer))
    return call


def _asked(call: Call, question: JsonObject, answer: JsonRpcAnswer) -> Call:
    """Return a server's question to a person or to its client's model, with the answer, as a step.

    It belongs to whom either names.
    """
    method = as_text(question.get("method")) or ""
    parameters = as_object(question.get("params"))
    ext: JsonObject = {"event": _ASKED[method]}
    if parameters.get("_meta"):
        ext["params"] = only(parameters, names("_meta"))
    dispatch = ToolDispatch(
        name=method,
        arguments=name_media(without(parameters, names("_meta task"))),
        result=None,
        is_error=False,
        server=clean_text(call.exchange.upstream + call.exchange.request.path),
    )
    step = _answered(replace(call, kind=CallKind.TOOL, dispatch=dispatch, ext=ext), answer)
    return with_people(step, users_in(as_object(as_object(answer.result).get("_meta"))))


def _joined(call: Call, streams: _Streams) -> Call:
    if not _waits(call) or "task" in call.ext:
        return call
    session = _session(call.exchange)
    messages = streams.get((call.exchange.client.key_id, session), []) if session else []
    asked = next(
        (m for m in request_objects(call.exchange) if as_text(m.get("method")) in _STEPS), {}
    )
    for message in messages:
        if message.get("id") == asked.get("id") and is_answer(message):
            ext = {**call.ext, "answer": _STREAM}
            return _answered(replace(call, ext=ext), read_answer(message))
    return call


def with_answer(exchange: Exchange, call: Call) -> Exchange:
    """Return a call's exchange with what others brought to it in its response, so that it reads the same alone."""
    dispatch, response = call.dispatch, exchange.response
    if call.dialect != Mcp.name or dispatch is None or response is None:
        return exchange
    posted = request_objects(exchange)
    if call.ext.get("answer") in (_STREAM, _TASK):
        asked = next(one for one in posted if as_text(one.get("method")) in _STEPS)
        answer: JsonObject = {"result": dispatch.result}
        if call.error is not None:
            answer = {"error": {"message": call.error}}
        brought: JsonObject = {"id": asked.get("id"), **answer}
    elif dispatch.name in _ASKED and method_of(posted) == "response":
        answers = (one for one in posted if name_media(one.get("result")) == dispatch.result)
        told = next(answers, posted[0])
        asked_with = {**as_object(dispatch.arguments), **as_object(call.ext.get("params"))}
        question: JsonObject = {"method": dispatch.name, "params": asked_with}
        brought = {"id": told.get("id"), **question}
    else:
        return exchange
    body = f"data: {json.dumps(brought)}\n\n".encode()
    rest = (one for one in response.headers if one[0] not in _OF_BODY)
    headers = (*rest, ("content-type", "text/event-stream"))
    return replace(exchange, response=replace(response, headers=headers, body=body))


def _session(exchange: Exchange) -> str:
    """Return the session of a request: a header's, or in HTTP+SSE the address's."""
    query = parse_qs(exchange.request.query)
    found = [*query.get("session_id", []), *query.get("sessionId", [])]
    return header(exchange.request.headers, "mcp-session-id") or (found[0] if found else "")


class _Stream(NamedTuple):
    """What came on a session's stream."""

    session: str = ""
    endpoint: str = ""
    """In HTTP+SSE: the path that the session posts to."""
    messages: Sequence[JsonObject] = ()


def _stream(exchange: Exchange) -> _Stream:
    """Read a stream; in HTTP+SSE its first event names session and endpoint."""
    if not is_event_stream(exchange):
        return _Stream()
    try:
        events = decode_events(response_bytes(exchange))
    except UnreadableError:
        return _Stream()
    session, endpoint = _session(exchange), ""
    for event in events:
        if event.event == "endpoint" and not endpoint:
            try:
                named = urlsplit(urljoin(exchange.request.path, event.data))
            except ValueError:  # no address at all
                continue
            query, endpoint = parse_qs(named.query), clean_text(named.path)
            found = query.get("session_id", []) + query.get("sessionId", [])
            session = session or next(iter(found), "")
    return _Stream(session, endpoint, event_objects(events))


def _hints(exchange: Exchange, meta: JsonObject) -> tuple[SessionHint, ...]:
    hints = list(common_hints(exchange))
    sources = {hint.source for hint in hints}
    if "traceparent" not in sources:
        # Trace context stands before what clients send on their own.
        strong = [hint for hint in hints if not hint.source.startswith("client:")]
        weak = hints[len(strong) :]
        hints = [*strong, *trace_hint(as_text(meta.get("traceparent"))), *weak]
    if "client:mcp-session-id" not in sources and exchange.response is not None:
        session = header(exchange.response.headers, "mcp-session-id") or _session(exchange)
        if session:
            hints.append(SessionHint("client:mcp-session-id", session))
    return tuple(hints)
