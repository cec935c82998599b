"""The tool calls in a request: JSON-RPC of MCP and A2A, and plain HTTP tools.

What cannot be read here must not go on: its receiver might read it all the same.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from json import detect_encoding
from typing import NamedTuple
from urllib.parse import parse_qsl, quote

from proxy.clients.credentials import RawFields
from proxy.guard.elicitation import ElicitedAnswer, declares_elicitation, elicited_answer
from proxy.guard.rules import RequestedCall, is_sound_name
from proxy.guard.strict_json import MOST_DEPTH, AmbiguousJsonError, folded, parse_strictly
from proxy.heads import value_of
from proxy.routes.paths import climbs, lenient_reading
from trajectory.assembly.effects import SideEffect, effect_of_method
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.operations import Operation

_ENVELOPE = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
_PARAMETERS = frozenset({"name", "arguments", "uri", "_meta", "message", "task", "tool"})
_HARMLESS = frozenset(
    {
        *("initialize", "ping", "tools/list", "resources/list", "resources/templates/list"),
        *("resources/subscribe", "resources/unsubscribe", "prompts/list", "completion/complete"),
        *("logging/setlevel", "roots/list", "tasks/list", "tasks/get", "tasks/result"),
        *("tasks/cancel", "tasks/resubscribe", "agent/getauthenticatedextendedcard"),
        *("gettask", "listtasks", "canceltask", "subscribetotask", "getextendedagentcard"),
    }
)
"""Methods that call no tool, without case."""
_PLAIN = _HARMLESS | {"tools/call", "resources/read", "prompts/get"}
_SENDS = frozenset({"message/send", "message/stream", "SendMessage", "SendStreamingMessage"})
_READS = frozenset({"resources/read", "prompts/get"})
_REST = re.compile(rb"/message:(send|stream)$")
_SILENT = frozenset({b"GET", b"HEAD", b"OPTIONS", b"DELETE"})
_OVERRIDES = (b"x-http-method-override", b"x-http-method", b"x-method-override")
_MOST_CALLS = 100
_OWN_SIGNS = "/:@!$&'()*+,;=~"
"""What stands in a path as it is; clients code everything else."""
_STEPS = re.compile(r"[^\[\].]+|\[\]")
"""The parts of a field's name that lead into something."""
_END_OF_KIND = re.compile(rb"[;,\s]")
"""Behind it PHP and Rack read no more of a content type."""
_ENDING = re.compile(r"\.[A-Za-z0-9]{1,5}$")
"""By which some servers let a client choose the format of an answer."""


class UnreadableCallError(Exception):
    """A request whose tool calls nobody can vouch for; says why in fixed words."""


class ReadCall(NamedTuple):
    """A tool call, and how it is answered."""

    call: RequestedCall
    method: str = ""
    """Of JSON-RPC; empty for plain HTTP."""
    request_id: JsonValue = None
    progress: JsonValue = None
    """The token under which its client wants to hear how far it is."""


class ReadRequest(NamedTuple):
    """All tool calls of a request."""

    calls: tuple[ReadCall, ...]
    answers: tuple[tuple[JsonValue, str], ...] = ()
    """Id and method of every JSON-RPC request in it, calls or not."""
    is_batch: bool = False
    is_rpc: bool = True
    answered: ElicitedAnswer | None = None
    """What it answers the gateway; such a request is for nobody else."""
    can_elicit: bool = False
    """It begins a session whose client can ask its user."""


NOTHING = ReadRequest(())


def read_request(
    method: bytes,
    path: bytes,
    fields: RawFields,
    body: bytes,
    *,
    caller: RequestedCall,
    operations: Sequence[Operation] | None,
    bases: tuple[str, ...] = (),
) -> ReadRequest:
    """Return the tool calls of a request.

    Args:
        method: of the request.
        path: its target at the upstream, with the query.
        fields: its headers.
        body: all of it.
        caller: whose calls they are; tool and arguments are put in.
        operations: what a plain HTTP tool can do; None where JSON-RPC is spoken.
        bases: paths that the upstreams of the route begin with.

    Raises:
        UnreadableCallError: it must not go on.
    """
    _check_head(fields)
    bare, _, query = path.partition(b"?")
    if climbs(bare):
        raise UnreadableCallError("a path that leads up")
    try:
        if operations is not None:
            return _read_http(method, bare, query, fields, body, caller, operations, bases)
        if method in _SILENT:
            if body:
                raise UnreadableCallError("a body where none belongs")
            return NOTHING
        if method != b"POST":
            raise UnreadableCallError("a method that MCP and A2A do not have")
        if _REST.search(bare):
            given = _object(parse_strictly(body))
            call = caller._replace(tool="message/send", arguments=given.get("message", given))
            return ReadRequest((ReadCall(call),), is_rpc=False)
        return _read_rpc(parse_strictly(body), caller)
    except AmbiguousJsonError as error:
        raise UnreadableCallError(str(error)) from None


def _check_head(fields: RawFields) -> None:
    said: dict[bytes, bytes] = {}
    for name, value in fields:
        name = name.lower()
        if name in said and name in (b"content-encoding", b"content-type"):
            raise UnreadableCallError("a header twice")
        said.setdefault(name, value)
    if said.get(b"content-encoding", b"").strip().lower() not in (b"", b"identity"):
        raise UnreadableCallError("a compressed body")
    kind = said.get(b"content-type", b"").lower()
    if b"charset" in kind and not re.search(rb"charset\s*=\s*\"?utf-?8\b", kind):
        raise UnreadableCallError("another charset")
    if b"upgrade" in said:
        raise UnreadableCallError("another protocol")
    if not said.keys().isdisjoint(_OVERRIDES):
        raise UnreadableCallError("another method in a header")


def _read_rpc(value: JsonValue, caller: RequestedCall) -> ReadRequest:
    messages = value if isinstance(value, list) else [value]
    if not 0 < len(messages) <= _MOST_CALLS:
        raise UnreadableCallError("no messages, or too many")
    calls: list[ReadCall] = []
    answers: list[tuple[JsonValue, str]] = []
    can_elicit = False
    for message in messages:
        given = _object(message)
        _check_keys(given, _ENVELOPE)
        method = given.get("method")
        if method is None and ("result" in given or "error" in given):
            answered = elicited_answer(given)
            if answered is None:
                continue  # what a client answers its server
            if isinstance(value, list):
                raise UnreadableCallError("an answer to the gateway within a batch")
            return ReadRequest((), answered=answered)
        if not isinstance(method, str):
            raise UnreadableCallError("a message without a method")
        request_id = given.get("id")
        if isinstance(request_id, list | dict | bool):
            raise UnreadableCallError("an id that is none")
        if "id" in given:
            answers.append((request_id, method))
        if method == "initialize":
            can_elicit = declares_elicitation(given.get("params"))
        call = _rpc_call(method, given.get("params"), caller)
        if call is not None:
            token = _progress_token(given.get("params"))
            calls.append(ReadCall(call, method, request_id, token))
    is_batch = isinstance(value, list)
    return ReadRequest(tuple(calls), tuple(answers), is_batch, can_elicit=can_elicit)


def _rpc_call(method: str, params: JsonValue, caller: RequestedCall) -> RequestedCall | None:
    plain = folded(method).strip()
    if plain in _PLAIN and method != plain and method not in _CAPITALS:
        raise UnreadableCallError("a method that looks like another")
    if plain in _HARMLESS or method.startswith(("notifications/", "tasks/pushNotificationConfig/")):
        return None
    given: JsonObject = _object(params) if params is not None else {}
    _check_keys(given, _PARAMETERS)
    name, arguments, effect = method, params, SideEffect.UNKNOWN
    if method == "tools/call":
        named = given.get("name")
        if not isinstance(named, str):
            raise UnreadableCallError("a call without a name")
        name, arguments = named, given.get("arguments", {})
        if arguments is None:
            arguments = {}
    elif method in _READS:
        effect = SideEffect.READ
    elif method in _SENDS:
        arguments = given.get("message", params)
    if not is_sound_name(name):
        raise UnreadableCallError("a name that could be taken for another")
    return caller._replace(tool=name, arguments=arguments, effect=effect)


_CAPITALS = frozenset(
    {
        *(
            "logging/setLevel",
            "agent/getAuthenticatedExtendedCard",
            "GetTask",
            "ListTasks",
            "CancelTask",
        ),
        *("SubscribeToTask", "GetExtendedAgentCard"),
    }
)
"""Harmless methods that are written with capital letters."""


def _progress_token(params: JsonValue) -> JsonValue:
    meta = params.get("_meta") if isinstance(params, dict) else None
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if isinstance(token, str | int) and not isinstance(token, bool) else None


def _object(value: JsonValue) -> JsonObject:
    if not isinstance(value, dict):
        raise UnreadableCallError("a message that is no object")
    return value


def _check_keys(given: JsonObject, known: frozenset[str]) -> None:
    """Refuse keys that only some receivers take for the protocol's own."""
    for key in given:
        if key not in known and folded(key).strip() in known:
            raise UnreadableCallError("a key that looks like another")


def _read_http(
    method: bytes,
    path: bytes,
    query: bytes,
    fields: RawFields,
    body: bytes,
    caller: RequestedCall,
    operations: Sequence[Operation],
    bases: tuple[str, ...],
) -> ReadRequest:
    name, arguments, is_known = _operation_of(method.decode("latin-1"), path, operations, bases)
    given: dict[str, JsonValue] = dict(arguments)
    pairs = _pairs(query.decode("latin-1"))
    inside: JsonValue = None
    if body:
        form, inside = _read_body(fields, body)
        pairs += form
    for key, value in pairs:
        _put(given, key, value)
        if (other := _name_in_php(key)) != key:
            _put(given, other, value)
    for key, nested in _nested(pairs).items():
        # As JSON in a text: not every server nests.
        _put(given, key, json.dumps(nested))
    if isinstance(inside, dict):
        for key, one in inside.items():
            _put(given, key, one)
    elif inside is not None:
        _put(given, "body", inside)
    if method == b"POST" and any(folded(key).strip() == "_method" for key in given):
        raise UnreadableCallError("another method in an argument")
    if is_known and not is_sound_name(name):
        raise UnreadableCallError("a name that could be taken for another")
    effect = effect_of_method(method.decode("latin-1"))
    call = caller._replace(tool=name, arguments=given, effect=effect)
    return ReadRequest((ReadCall(call),), is_rpc=False)


def _operation_of(
    verb: str, path: bytes, operations: Sequence[Operation], bases: tuple[str, ...]
) -> tuple[str, JsonObject, bool]:
    """Return the tool that a path calls, what the path says to it, and whether somebody described it.

    What nobody described is a tool too, by its method and the path that its server reads.
    """
    place, reading = path.decode("latin-1"), lenient_reading(path)
    if reading is None:
        raise UnreadableCallError("a path that servers read differently")
    verbs = ("HEAD", "GET") if verb == "HEAD" else (verb,)  # most servers do for HEAD what GET does
    able = [one for name in verbs for one in operations if one.method == name]
    readings = _below(reading, bases)
    is_plain = quote(reading, _OWN_SIGNS, errors="surrogateescape") == place
    places = readings if is_plain else _below(place, bases)
    found = _best([(one, one.arguments(each)) for one in able for each in places])
    lenient = [*readings, *(() if found else map(_without_ending, readings))]
    meant = _best([(one, _loosely(one, each)) for one in able for each in lenient])
    if meant is not None and (found is None or found[0] != meant[0]):
        raise UnreadableCallError("a path that looks like an operation's")
    return (*found, True) if found else (f"{verb}:{readings[-1]}", {}, False)


def _below(path: str, bases: tuple[str, ...]) -> list[str]:
    """Return a path, and behind it what follows the base of an upstream."""
    return [path, *(path[len(base) :] for base in bases if base and path.startswith(base))]


def _best(
    tried: Sequence[tuple[Operation, JsonObject | None]],
) -> tuple[str, JsonObject] | None:
    """Return name and arguments of the most exact operation of those that fit."""
    fitting = [(one, arguments) for one, arguments in tried if arguments is not None]
    if not fitting:
        return None
    found, arguments = max(fitting, key=lambda each: each[0].literals)
    return found.name, arguments


@lru_cache(4096)
def _in_any_case(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _loosely(one: Operation, path: str) -> JsonObject | None:
    """Return what a path says to an operation that is looked for in any case."""
    pattern = _in_any_case(one.pattern.pattern)
    return replace(one, pattern=pattern).arguments(path) if pattern.fullmatch(path) else None


def _without_ending(path: str) -> str:
    return _ENDING.sub("", path)


def _read_body(fields: RawFields, body: bytes) -> tuple[list[tuple[str, str]], JsonValue]:
    """Return the fields of a form, and what any other body says."""
    said = (value_of(fields, b"content-type") or b"").strip()
    kind = _END_OF_KIND.split(said, 1)[0].lower()
    is_json = body.lstrip()[:1] in (b"{", b"[")
    if detect_encoding(body) != "utf-8":
        raise UnreadableCallError("another encoding")
    if not (kind or is_json) and b"=" in body:
        raise UnreadableCallError("a form that does not say so")
    if kind.startswith(b"multipart/"):
        raise UnreadableCallError("a form in parts")
    if kind == b"application/x-www-form-urlencoded":
        if is_json:
            raise UnreadableCallError("a form that is JSON")
        try:
            return _pairs(body.decode()), None
        except UnicodeDecodeError:
            raise UnreadableCallError("no UTF-8") from None
    if is_json or kind.endswith((b"/json", b"+json")):
        return [], parse_strictly(body)
    return [], body.decode("utf-8", "replace")


def _pairs(text: str) -> list[tuple[str, str]]:
    """Return the fields of a query or a form.

    Raises:
        UnreadableCallError: Rack 2 and others see more of them.
    """
    if ";" in text:
        raise UnreadableCallError("fields that servers part differently")
    return parse_qsl(text, keep_blank_values=True)


def _name_in_php(key: str) -> str:
    """Return the name that PHP gives to a field: it knows no dots and no blanks in names.

    Raises:
        UnreadableCallError: it, or another server, leaves out a part that others keep.
    """
    if key != key.strip() or not key.isprintable():
        raise UnreadableCallError("a name that servers read differently")
    outer, bracket, inner = key.partition("[")
    return outer.replace(".", "_").replace(" ", "_") + bracket + inner


def _nested(pairs: Sequence[tuple[str, str]]) -> JsonObject:
    """Return what ``a[b]=1``, ``a.b=1`` and ``a[]=1`` are to servers that nest such names."""
    found: JsonObject = {}
    for key, value in pairs:
        steps = _STEPS.findall(key)
        if len(steps) > MOST_DEPTH:
            raise UnreadableCallError("too deep")
        place = found
        for step in steps[:-1]:
            inner = place.setdefault(step, {})
            if not isinstance(inner, dict):
                raise UnreadableCallError("an argument twice")
            place = inner
        if len(steps) > 1:
            _put(place, steps[-1], value)
    return {key: _with_lists(inner) for key, inner in found.items()}


def _with_lists(value: JsonValue) -> JsonValue:
    """Return lists for objects whose names are places in one."""
    if not isinstance(value, dict):
        return value
    inner = {key: _with_lists(one) for key, one in value.items()}
    is_list = all(key == "[]" or key.isdigit() for key in inner)
    return [*inner.values()] if is_list else inner


def _put(given: dict[str, JsonValue], key: str, value: JsonValue) -> None:
    """Add an argument; the same name in path, query and body is nobody's to choose from."""
    if key in given:
        raise UnreadableCallError("an argument twice")
    given[key] = value
