"""Plain HTTP tools: requests to configured operations are calls of tools."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from trajectory.call import Call, CallKind, ToolDispatch
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.content_encoding import decode_body
from trajectory.dialects.hints import common_hints, retry_count
from trajectory.dialects.operations import Operation
from trajectory.dialects.reader import DialectOutput
from trajectory.dialects.streams import content_type, streamed_objects
from trajectory.dialects.wire import (
    UnreadableError,
    clean_text,
    error_text,
    header,
    media_bytes_of,
    name_media,
    names,
    parse_json,
    response_bytes,
)
from trajectory.exchange import Exchange, ExchangeOutcome

_CREDENTIAL = "[credential]"
"""What stands for a credential."""
_GRANTS = names(
    "actortoken assertion authreqid clientassertion clientsecret code codeverifier devicecode"
    " password refreshtoken subjecttoken token"
)
"""Fields of a token request that are credentials, folded (RFC 6749, 7523, 7636, 8628, 8693)."""
_TOKENS = names("accesstoken idtoken refreshtoken registrationaccesstoken")
"""Fields of its answer that are."""
_KEY_BYTES = 16
"""Some interfaces call their key ``appid``; a value as long as this is no name of an app."""


class HttpTools:
    """The operations of tool routes; a request that is none of them is not read here."""

    name = "http.tool"
    yields = DialectOutput(
        "operations of routes with `kind: tool`, by URL pattern or OpenAPI document; the operation"
        " is the tool, path, query and body are its arguments",
        CallKind.TOOL,
        streams="SSE, JSON lines",
    )

    def __init__(
        self,
        operations: Mapping[str, Sequence[Operation]] | None = None,
        bases: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Begin with the operations of each route, and the paths that its upstreams put first."""
        self._operations = {
            route: sorted(listed, key=lambda operation: -operation.literals)
            for route, listed in (operations or {}).items()
        }
        self._bases = bases or {}

    def matches(self, exchange: Exchange) -> bool:
        """Tell by route, method and path."""
        return exchange.route in self._operations and self._find(exchange) is not None

    def _find(self, exchange: Exchange) -> tuple[Operation, JsonObject] | None:
        request = exchange.request
        paths = [request.path]
        paths += [
            request.path[len(base) :]
            for base in self._bases.get(exchange.route, ())
            if base and request.path.startswith(f"{base}/")
        ]
        for operation in self._operations.get(exchange.route, ()):
            if operation.method != request.method:
                continue
            for path in paths:
                if (arguments := operation.arguments(path)) is not None:
                    return operation, arguments
        return None

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; see :func:`trajectory.dialects.read_exchange`."""
        found = self._find(exchange)
        if found is None:
            raise UnreadableError("request:unknown-operation")
        operation, arguments = found
        arguments = _with_body(exchange, _with_query(exchange, operation, arguments))
        result, error, streamed = _result(exchange)
        if _asks_for_a_token(arguments):
            arguments, result = _without(_GRANTS, arguments), _without(_TOKENS, result)
        return Call(
            exchange=exchange,
            dialect=self.name,
            kind=CallKind.TOOL,
            streamed=streamed,
            hints=common_hints(exchange),
            retry_count=retry_count(exchange),
            dispatch=ToolDispatch(
                name=operation.name,
                arguments=name_media(_without_key(arguments)),
                result=result,
                is_error=error is not None,
                server=clean_text(exchange.upstream),
            ),
            error=error,
            ext={
                "method": exchange.request.method,
                "url": clean_text(exchange.upstream + exchange.request.path),
            },
        )


def _with_query(exchange: Exchange, operation: Operation, arguments: JsonObject) -> JsonObject:
    """Add the query's parameters; one that is named several times is a list."""
    out = dict(arguments)
    for raw, text in parse_qsl(exchange.request.query, keep_blank_values=True):
        name = clean_text(raw.removesuffix("[]"))
        value = operation.typed(name, clean_text(text))
        before = out.get(name)
        if operation.types.get(name) == "array" or isinstance(before, list):
            out[name] = [*(before if isinstance(before, list) else []), value]
        else:
            out[name] = value if before is None else [before, value]
    return out


def _with_body(exchange: Exchange, arguments: JsonObject) -> JsonObject:
    """Add the body's fields; what is no object, or would hide an argument, stands under ``body``."""
    value = _given(exchange)
    if value is None:
        return arguments
    if isinstance(value, dict) and not set(value) & set(arguments):
        return {**arguments, **value}
    return {**arguments, "body": value}


def _given(exchange: Exchange) -> JsonValue | None:
    headers = exchange.request.headers
    body = decode_body(exchange.request.body, header(headers, "content-encoding"))
    if body.problem is not None:
        raise UnreadableError(f"request:{body.problem}")
    if not body.data:
        return None
    kind = (header(headers, "content-type") or "").partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        pairs = parse_qsl(body.data.decode("utf-8", "replace"), keep_blank_values=True)
        return {clean_text(name): clean_text(text) for name, text in pairs}
    if kind.endswith("json") or not kind:
        return parse_json(body.data, "request")
    return {"body": _other(body.data, kind)}


def _other(data: bytes, kind: str) -> JsonValue:
    """Return text as text, and name what is none."""
    if kind.startswith("text/") or kind.endswith(("xml", "yaml", "csv", "javascript")):
        return data.decode("utf-8", "replace")
    return media_bytes_of(data, kind or "application/octet-stream")


def _asks_for_a_token(arguments: JsonObject) -> bool:
    """Tell a request to an OAuth server, whose fields have plain names such as ``code``."""
    return bool({"granttype", "clientassertion"} & {_folded(name) for name in arguments})


def _without(secret: frozenset[str], value: JsonValue) -> Any:
    """Return an object with a mark in place of the fields whose folded names are ``secret``."""
    if not isinstance(value, dict):
        return value
    return {
        name: _CREDENTIAL if _folded(name) in secret and item else item
        for name, item in value.items()
    }


def _without_key(arguments: JsonObject) -> JsonObject:
    return {
        name: _CREDENTIAL
        if _folded(name) == "appid" and isinstance(item, str) and len(item) >= _KEY_BYTES
        else item
        for name, item in arguments.items()
    }


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _result(exchange: Exchange) -> tuple[JsonValue, str | None, bool]:
    """Return what the tool answered, its error, and whether it was streamed."""
    response = exchange.response
    if response is None:
        return None, f"no response: {exchange.outcome.value}", False
    whole = exchange.outcome is ExchangeOutcome.COMPLETE
    try:
        data = response_bytes(exchange)
        events = streamed_objects(exchange, data)
        kind = content_type(exchange)
        if events is not None:
            result: JsonValue = [*events]
        elif kind.endswith("json") and data:
            result = parse_json(data, "response")
        else:
            result = _other(data, kind) if data else None
    except UnreadableError as error:
        if whole and response.status < 400:
            raise
        return None, f"unreadable {error.args[0]}", False
    failure = None
    if response.status >= 400:
        failure = error_text(data, response.status, response.headers)
    elif not whole:
        failure = f"no answer: {exchange.outcome.value}"
    return name_media(result), failure, events is not None
