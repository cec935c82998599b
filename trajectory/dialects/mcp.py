"""The Model Context Protocol over streamable HTTP: JSON-RPC answered by JSON or by a stream."""

from trajectory.call import Call, CallKind, SessionHint, ToolDispatch
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.hints import common_hints, retry_count, trace_hint
from trajectory.dialects.reading import Yields
from trajectory.dialects.wire import (
    UnreadableError,
    as_object,
    as_text,
    clean_text,
    error_of,
    error_text,
    header,
    is_event_stream,
    name_media,
    objects,
    parse_json,
    response_bytes,
    stream_objects,
    without,
)
from trajectory.encoding import decode_body
from trajectory.exchange import Exchange

_ERROR_LIMIT = 4000


class Mcp:
    """JSON-RPC posts, and the GET stream and DELETE of a session."""

    name = "mcp"
    yields = Yields(
        "MCP's `tools/call` over streamable HTTP, HTTP+SSE, or stdio through `headrace tap`;"
        " everything else of MCP is control",
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
        return request.method == "POST" and b'"jsonrpc"' in request.body[:4096]

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; see :func:`trajectory.dialects.read_exchange`."""
        if exchange.request.method != "POST":
            return self._control(exchange, f"http:{exchange.request.method.lower()}")
        requests = _request_objects(exchange)
        if header(exchange.request.headers, "x-headrace-origin") == "server":
            # What the server asks of its client or tells it, seen by ``headrace tap``.
            return self._control(exchange, _method(requests), origin="server")
        asked = [item for item in requests if item.get("method") == "tools/call"]
        if not asked:
            return self._control(exchange, _method(requests))
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
        result, error = _answer(exchange, asked.get("id"))
        ext: JsonObject = {}
        if rest := without(parameters, frozenset({"name", "arguments"})):
            ext["params"] = rest
        if others:
            ext["batch"] = list(others)
        is_error = error is not None or as_object(result).get("isError") is True
        return Call(
            exchange=exchange,
            dialect=self.name,
            kind=CallKind.TOOL,
            streamed=is_event_stream(exchange),
            hints=_hints(exchange, as_object(parameters.get("_meta"))),
            retry_count=retry_count(exchange),
            dispatch=ToolDispatch(
                name=as_text(parameters.get("name")) or "",
                arguments=parameters.get("arguments") or {},
                result=name_media(result),
                is_error=is_error,
                server=clean_text(exchange.upstream + exchange.request.path),
            ),
            error=error,
            ext=ext,
        )


def _method(messages: list[JsonObject]) -> str:
    """Return the first method that messages name; answers name none."""
    return next((text for item in messages if (text := as_text(item.get("method")))), "response")


def _request_objects(exchange: Exchange) -> list[JsonObject]:
    encoding = header(exchange.request.headers, "content-encoding")
    body = decode_body(exchange.request.body, encoding)
    if body.problem is not None:
        raise UnreadableError(f"request:{body.problem}")
    value = parse_json(body.data, "request")
    if isinstance(value, dict):
        return [value]
    found = objects(value)
    if not found:
        raise UnreadableError("request:not-json-rpc")
    return found


def _hints(exchange: Exchange, meta: JsonObject) -> tuple[SessionHint, ...]:
    hints = list(common_hints(exchange))
    sources = {hint.source for hint in hints}
    if "traceparent" not in sources:
        # Trace context stands before what clients send on their own.
        strong = [hint for hint in hints if not hint.source.startswith("client:")]
        weak = hints[len(strong) :]
        hints = [*strong, *trace_hint(as_text(meta.get("traceparent"))), *weak]
    if "client:mcp-session-id" not in sources and exchange.response is not None:
        session = header(exchange.response.headers, "mcp-session-id")
        if session:
            hints.append(SessionHint("client:mcp-session-id", session))
    return tuple(hints)


def _answer(exchange: Exchange, request_id: JsonValue | None) -> tuple[JsonValue, str | None]:
    """Return result and error of the JSON-RPC request with this id."""
    response = exchange.response
    if response is None:
        return None, f"no response: {exchange.outcome.value}"
    try:
        data = response_bytes(exchange)
        if response.status >= 400:
            return None, error_text(data, response.status)
        if is_event_stream(exchange):
            answers = stream_objects(data)
        else:
            value = parse_json(data, "response")
            answers = objects(value) if isinstance(value, list) else [as_object(value)]
    except UnreadableError as error:
        return None, f"unreadable {error.args[0]}"
    for answer in answers:
        if answer.get("id") == request_id and ("result" in answer or "error" in answer):
            if answer.get("error"):
                return None, (error_of(answer) or "error")[:_ERROR_LIMIT]
            return answer.get("result"), None
    return None, f"no answer: {exchange.outcome.value}"
