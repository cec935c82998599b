"""The free place of a trace: an attribute of its first span."""

import json
from collections.abc import Callable

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import as_object, objects, parse_json_or_none
from trajectory.formats.document import KEY, Carrier


def _put(document: JsonObject, rest: JsonObject) -> JsonObject | None:
    text = json.dumps(rest, ensure_ascii=False)
    return _first_span(document, lambda kept: [*kept, _attribute(text)])


def _attribute(text: str) -> JsonObject:
    return {"key": KEY, "value": {"stringValue": text}}


def _take(document: JsonObject) -> tuple[JsonObject, JsonObject]:
    found: list[JsonObject] = []

    def without(attributes: list[JsonValue]) -> list[JsonValue]:
        for item in objects(attributes):
            value = as_object(item.get("value")).get("stringValue")
            rest = parse_json_or_none(value) if isinstance(value, str) else None
            if item.get("key") == KEY and isinstance(rest, dict):
                found.append(rest)
                return [one for one in attributes if one is not item]
        return attributes

    changed = _first_span(document, without)
    return (changed, found[0]) if changed is not None and found else (document, {})


def _first_span(
    document: JsonObject, change: Callable[[list[JsonValue]], list[JsonValue]]
) -> JsonObject | None:
    """Return the document with the attributes of its first span changed; None without a span."""
    groups = document.get("resourceSpans")
    scoped = as_object(groups[0]).get("scopeSpans") if isinstance(groups, list) and groups else None
    spans = as_object(scoped[0]).get("spans") if isinstance(scoped, list) and scoped else None
    if not isinstance(groups, list) or not isinstance(scoped, list) or not isinstance(spans, list):
        return None
    first = spans[0] if spans else None
    attributes = as_object(first).get("attributes", [])
    if not isinstance(first, dict) or not isinstance(attributes, list):
        return None
    changed: JsonObject = {**first, "attributes": change(attributes)}
    scope: JsonObject = {**as_object(scoped[0]), "spans": [changed, *spans[1:]]}
    group: JsonObject = {**as_object(groups[0]), "scopeSpans": [scope, *scoped[1:]]}
    return {**document, "resourceSpans": [group, *groups[1:]]}


FIRST_ATTRIBUTE = Carrier(_put, _take, f"attribute {KEY} of the first span")

__all__ = ["FIRST_ATTRIBUTE"]
