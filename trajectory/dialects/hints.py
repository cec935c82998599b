"""What the client itself sent to name its session and its end user: headers, URL, trace context, fields.

Order of strength as in the protocol: Headrace headers, URL prefix, trace context, then what
clients send on their own. Dialects add the hints that only they know.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from urllib.parse import unquote

from trajectory.call import Call, HintKind, SessionHint, SpanName
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import as_id, as_object, as_text, header, parse_json_or_none
from trajectory.exchange import Exchange, Headers

VALUE_LIMIT = 512
_URL_SESSION = "x-headrace-url-session"
"""Under this name the gateway notes the session of a path ``/s/<session>/…``, which it takes off."""
_TRACE_PARENT = re.compile(r"^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_VENDOR_SESSION = re.compile(r"^x-(?:[a-z0-9]+-)*?(parent-)?session-id$")
_ANTHROPIC_SESSION = re.compile(r"_session_([0-9a-fA-F][0-9a-fA-F-]{7,})$")
_CLIENT_SESSIONS = frozenset(
    {"session-id", "session_id", "x-session-id", "x-session-affinity", "mcp-session-id"}
)
_BAGGAGE_SESSIONS = frozenset({"session.id", "session_id", "gen_ai.conversation.id"})
_CLIENT_PARENTS = frozenset({"x-codex-parent-thread-id"})
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_CLIENT_THREADS = ("thread-id", "x-claude-code-agent-id")
"""Names of one agent within a session, which come after all names of the session."""
_CLIENT_AGENTS = ("x-claude-code-agent-id", "x-openai-subagent")
"""Headers of sub-agents alone."""


def common_hints(exchange: Exchange) -> tuple[SessionHint, ...]:
    """Return the hints that headers and URL give, strongest first."""
    return _head_hints(exchange.request.headers)


def session_name(headers: Headers, in_url: str | None) -> str | None:
    """Return the strongest name of its session that a request's head holds.

    Args:
        headers: with lower-case names.
        in_url: the session in the path, which is no header yet.
    """
    if in_url is not None:
        headers = (*headers, (_URL_SESSION, in_url))
    return next((hint.value for hint in _head_hints(headers) if hint.kind == "session"), None)


def _head_hints(said: Headers) -> tuple[SessionHint, ...]:
    headers = tuple(one for one in said if _tells(one[0]))
    if not headers:
        return ()
    return (
        *_headrace_hints(headers),
        *_hint("url", unquote(header(headers, _URL_SESSION) or "", errors="replace")),
        *trace_hint(header(headers, "traceparent")),
        *_baggage_hint(header(headers, "baggage")),
        *_client_hints(headers),
    )


@lru_cache(maxsize=1024)
def _tells(name: str) -> bool:
    """Return whether a header of this name can say anything of the session."""
    return (
        name.startswith("x-headrace-")
        or name in ("traceparent", "baggage")
        or name in _CLIENT_PARENTS
        or name in _CLIENT_THREADS
        or name in _CLIENT_AGENTS
        or name in _CLIENT_SESSIONS
        or _VENDOR_SESSION.match(name) is not None
    )


def _hint(
    source: str, value: JsonValue | None, kind: HintKind = "session"
) -> tuple[SessionHint, ...]:
    text = as_text(value)
    if text is None or not text.strip():
        return ()
    return (SessionHint(source, text.strip()[:VALUE_LIMIT], kind),)


def _headrace_hints(headers: Headers) -> tuple[SessionHint, ...]:
    hints: list[SessionHint] = []
    kinds: tuple[HintKind, ...] = ("session", "task", "group", "parent")
    for kind in kinds:
        name = f"x-headrace-{kind}"
        hints.extend(_hint(f"header:{name}", header(headers, name), kind))
    return tuple(hints)


def trace_hint(traceparent: str | None) -> tuple[SessionHint, ...]:
    """Return the trace id of a W3C ``traceparent`` as a hint; nothing when it is malformed."""
    found = _TRACE_PARENT.match((traceparent or "").strip().lower())
    if not found or set(found[1]) == {"0"}:
        return ()
    return _hint("traceparent", found[1])


def span_around(headers: Headers) -> SpanName | None:
    """Return the span that a W3C ``traceparent`` says a request was made within."""
    found = _TRACE_PARENT.match((header(headers, "traceparent") or "").strip().lower())
    return SpanName(found[1], found[2]) if found and found[1].strip("0") else None


def _baggage_hint(baggage: str | None) -> tuple[SessionHint, ...]:
    sessions = (value for name, value in _members(baggage) if name in _BAGGAGE_SESSIONS)
    return _hint("baggage", next(sessions, None))


def _members(baggage: str | None) -> Iterator[tuple[str, str]]:
    """Yield names, in lower case, and values of W3C baggage."""
    for member in (baggage or "").split(","):
        name, _, value = member.partition(";")[0].partition("=")
        yield name.strip().lower(), unquote(value.strip(), errors="replace")


def _client_hints(headers: Headers) -> tuple[SessionHint, ...]:
    hints: list[SessionHint] = []
    for name, value in headers:
        vendor = _VENDOR_SESSION.match(name)
        if name in _CLIENT_PARENTS or (vendor is not None and vendor[1]):
            hints.extend(_hint(f"client:{name}", value, "parent"))
        elif name in _CLIENT_SESSIONS or vendor is not None:
            hints.extend(_hint(f"client:{name}", value))
    hints.sort(key=lambda hint: hint.source == "client:mcp-session-id")
    for name in _CLIENT_THREADS:
        said = header(headers, name)
        if name != "thread-id" or _UUID.fullmatch(said or ""):  # others number their threads
            hints.extend(_hint(f"client:{name}", said))
    for name in _CLIENT_AGENTS:
        hints.extend(_hint(f"client:{name}", header(headers, name), "agent"))
    return tuple(hints)


def openai_hints(request: JsonObject) -> tuple[SessionHint, ...]:
    """Return the hints in the fields of an OpenAI request."""
    conversation = request.get("conversation")
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    metadata = as_object(request.get("metadata"))
    return (
        *_hint("previous_response_id", request.get("previous_response_id"), "response"),
        *_hint("client:conversation", conversation),
        *_hint("client:metadata.session_id", metadata.get("session_id")),
    )


def anthropic_user(request: JsonObject) -> tuple[str | None, tuple[SessionHint, ...]]:
    """Return the end user and the session that Anthropic's ``metadata.user_id`` names.

    Two shapes are in use: ``user_…_session_<uuid>`` and a JSON object in a string.
    """
    user = as_id(as_object(request.get("metadata")).get("user_id"))
    if user is None:
        return None, ()
    source = "client:metadata.user_id"
    if user.startswith("{"):
        fields = as_object(parse_json_or_none(user))
        end_user = as_text(fields.get("account_uuid")) or as_text(fields.get("device_id"))
        return end_user or user, _hint(source, fields.get("session_id"))
    found = _ANTHROPIC_SESSION.search(user)
    if found is None:
        return user, ()
    return user[: found.start()] or None, _hint(source, found[1])


def bedrock_hints(request: JsonObject) -> tuple[SessionHint, ...]:
    """Return the session that a Bedrock request names in its metadata."""
    metadata = as_object(request.get("requestMetadata"))
    return _hint("client:requestMetadata.session_id", metadata.get("session_id"))


def gemini_hints(request: JsonObject) -> tuple[SessionHint, ...]:
    """Return the session that the Gemini CLI names."""
    return _hint("client:session_id", request.get("session_id"))


def realtime_hints(session: JsonObject) -> tuple[SessionHint, ...]:
    """Return the name of a Realtime session."""
    return _hint("client:realtime.session", session.get("id"))


def retry_count(exchange: Exchange) -> int:
    """Return what the client's SDK says of its attempts; 0 when it says nothing."""
    text = header(exchange.request.headers, "x-stainless-retry-count") or "0"
    return min(int(text), 1000) if text.isascii() and text.isdigit() and len(text) < 6 else 0


_USER_HEADER = "x-headrace-end-user"
_SAFETY_HEADER = "openai-safety-identifier"
USER_HEADERS = frozenset({_USER_HEADER, _SAFETY_HEADER, "baggage"})
"""Headers that may name who uses the application."""
_BAGGAGE_USERS = frozenset({"enduser.id", "user.id"})
_MAPS = ("metadata", "labels", "requestMetadata")
"""Fields of requests that applications fill as they like."""
_USER_KEYS = (
    "user_id", "userId", "end_user_id", "end_user", "user.id", "enduser.id", "openai/subject",
)  # fmt: skip


def with_people(call: Call, others: Iterable[str | None] = ()) -> Call:
    """Return the call with everybody whom its request names as the one who used the application.

    The strongest id is the end user's: Headrace's own header, then the dialect's field, then the
    maps that applications fill as they like, then trace context. The rest stand beside it.

    Args:
        call: the call.
        others: whom else it belongs to, whose ids are weaker than those of the dialect's own fields.
    """
    fields = (call.end_user, *call.also_named, *others)
    named = people_in(call.exchange.request.headers, fields, call.ext)
    end_user, others = (named[0] if named else None), named[1:]
    if (end_user, others) == (call.end_user, call.also_named):
        return call
    return replace(call, end_user=end_user, also_named=others)


def people_in(
    headers: Headers, fields: Iterable[str | None], request: JsonObject
) -> tuple[str, ...]:
    """Return everybody whom a request names as the one who used the application, the strongest id first.

    Args:
        headers: names in lower case.
        fields: what the dialect's own fields say.
        request: its other fields, with the maps that applications fill as they like.
    """
    headers = tuple(one for one in headers if one[0] in USER_HEADERS)
    found = [header(headers, _USER_HEADER), *fields]
    found += [*_users_in_maps(request), header(headers, _SAFETY_HEADER)]
    found += [
        value for name, value in _members(header(headers, "baggage")) if name in _BAGGAGE_USERS
    ]
    return tuple(dict.fromkeys(one.strip()[:VALUE_LIMIT] for one in found if one and one.strip()))


def _users_in_maps(request: JsonObject) -> Iterator[str]:
    maps = [as_object(request.get(name)) for name in _MAPS]
    maps.append(as_object(as_object(request.get("params")).get("_meta")))
    for said in filter(None, maps):
        yield from users_in(said)


def users_in(fields: JsonObject) -> Iterator[str]:
    """Yield whom the fields of a map name as the one who used the application, the strongest id first."""
    for key in _USER_KEYS:
        if (value := as_id(fields.get(key))) is not None:
            yield value
