"""The difference between two JSON documents, small where they are alike, and its application.

An importer keeps the difference between the document it read and the one it would write; the
exporter applies it. So nothing that a format holds beyond the protocol is lost on the way.
"""

from typing import cast

from trajectory.canonical import JsonObject, JsonValue, canonical_json


def difference(made: JsonValue, wanted: JsonValue) -> JsonObject:
    """Return what turns ``made`` into ``wanted``; empty when they are the same document."""
    if isinstance(made, dict) and isinstance(wanted, dict):
        return _of_objects(made, wanted)
    if isinstance(made, list) and isinstance(wanted, list) and len(made) == len(wanted):
        changed = {
            str(index): inner
            for index, (mine, theirs) in enumerate(zip(made, wanted, strict=True))
            if (inner := difference(mine, theirs))
        }
        return {"items": cast(JsonObject, changed)} if changed else {}
    if canonical_json(made) == canonical_json(wanted):
        return {}
    return {"value": wanted}


def _of_objects(made: JsonObject, wanted: JsonObject) -> JsonObject:
    patch: JsonObject = {}
    added: JsonObject = {name: item for name, item in wanted.items() if name not in made}
    dropped: list[JsonValue] = [name for name in made if name not in wanted]
    changed = {
        name: inner
        for name, item in wanted.items()
        if name in made and (inner := difference(made[name], item))
    }
    if added:
        patch["add"] = added
    if dropped:
        patch["drop"] = dropped
    if changed:
        patch["fields"] = cast(JsonObject, changed)
    return patch


def apply(made: JsonValue, patch: JsonObject) -> JsonValue:
    """Return ``made`` with the patch applied.

    Parts of the patch that no longer fit (the trajectory was changed after the import) are
    left out.
    """
    if "value" in patch:
        return patch["value"]
    if isinstance(made, dict):
        dropped = patch.get("drop")
        gone = dropped if isinstance(dropped, list) else []
        out = {name: item for name, item in made.items() if name not in gone}
        for name, inner in _objects(patch.get("fields")).items():
            if name in out:
                out[name] = apply(out[name], _objects(inner))
        return {**out, **_objects(patch.get("add"))}
    if isinstance(made, list):
        items = list(made)
        for index, inner in _objects(patch.get("items")).items():
            if index.isascii() and index.isdecimal() and int(index[:9]) < len(items):
                items[int(index)] = apply(items[int(index)], _objects(inner))
        return items
    return made


def _objects(value: JsonValue | None) -> JsonObject:
    return value if isinstance(value, dict) else {}
