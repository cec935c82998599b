"""Who used the application: the ids of people that a request names, in headers and known fields."""

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import unquote

from trajectory.call import Call
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import as_object, header
from trajectory.exchange import Headers

_LIMIT = 512
_HEADER = "x-headrace-end-user"
_PROVIDERS_HEADER = "openai-safety-identifier"
_HEADERS = frozenset({_HEADER, _PROVIDERS_HEADER, "baggage"})
_BAGGAGE = frozenset({"enduser.id", "user.id"})
_PLACES = ("metadata", "labels", "requestMetadata")
_KEYS = ("user_id", "userId", "end_user_id", "end_user", "user.id", "enduser.id", "openai/subject")


def with_people(call: Call) -> Call:
    """Return the call with everybody whom its request names as the one who used the application.

    The strongest id is the end user's: Headrace's own header, then the dialect's field, then the
    maps that applications fill as they like, then trace context. The others stand beside it.
    """
    headers = tuple(one for one in call.exchange.request.headers if one[0] in _HEADERS)
    found = [header(headers, _HEADER), call.end_user, *call.also_named]
    found += [*_mapped(call.ext), header(headers, _PROVIDERS_HEADER), *_carried(headers)]
    named = tuple(dict.fromkeys(one.strip()[:_LIMIT] for one in found if one and one.strip()))
    end_user, others = (named[0] if named else None), named[1:]
    if (end_user, others) == (call.end_user, call.also_named):
        return call
    return replace(call, end_user=end_user, also_named=others)


def _mapped(ext: JsonObject) -> Iterator[str]:
    maps = [as_object(ext.get(place)) for place in _PLACES]
    maps.append(as_object(as_object(ext.get("params")).get("_meta")))
    for said in filter(None, maps):
        for key in _KEYS:
            yield from _text(said.get(key))


def _text(value: JsonValue | None) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)


def _carried(headers: Headers) -> Iterator[str]:
    """Yield the users in W3C baggage."""
    if not headers:
        return
    for member in (header(headers, "baggage") or "").split(","):
        name, _, value = member.partition(";")[0].partition("=")
        if name.strip().lower() in _BAGGAGE:
            yield unquote(value.strip(), errors="replace")
