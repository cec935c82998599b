"""What every format shares: reading and writing plainly, and carrying what the format has no place for.

An importer keeps the difference between the document it read and the one it would write; the
exporter applies it. So nothing that a format holds beyond the protocol is lost on the way.

A format says how it reads and writes what it can hold. The rest is found by comparison, never by
a list kept by hand: the document that was written is read again. What is not there travels in the
format's free place, or is named as lost where it has none. The other way round, what an imported document holds beyond the protocol stays in ``Trajectory.ext``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from trajectory.canonical import JsonObject, JsonValue, canonical_json
from trajectory.dialects.hints import VALUE_LIMIT, users_in
from trajectory.dialects.wire import as_id, as_object, objects
from trajectory.json_form import FormError, from_json, to_json
from trajectory.portable import Trajectory


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


KEY = "headrace"
"""Name of the rest within a format's free place."""


class Carrier(NamedTuple):
    """A format's free place: how the rest is put into a document and taken out again."""

    put: Callable[[JsonObject, JsonObject], JsonObject | None]
    """Return the document with the rest, None when this document has no room."""
    take: Callable[[JsonObject], tuple[JsonObject, JsonObject]]
    """Return the document without the rest, and the rest."""
    place: str
    """Where it is, for the documents: ``extra.headrace``."""


@dataclass(frozen=True, slots=True)
class WrittenDocument:
    """A document, and what it does not hold."""

    document: JsonObject
    lost: tuple[str, ...] = ()
    """Fields of the trajectory, by path: ``steps[].tokens``."""


_MAPS = ("metadata", "extra", "details", "episode_metadata", "info")
"""Fields of documents and of their turns that applications fill as they like."""


@dataclass(frozen=True, slots=True)
class DocumentFormat:
    """One format: one document a trajectory."""

    name: str
    version: str
    """Which version of the format is read and written."""
    read: Callable[[JsonObject, str], Trajectory]
    """Reads a document plainly; raises :class:`FormError` that begins with the second argument."""
    write: Callable[[Trajectory], JsonObject]
    """Writes a trajectory plainly."""
    carrier: Carrier | None = None
    """Free place; None when the format has none."""

    def import_document(self, document: JsonValue, *, where: str = "document") -> Trajectory:
        """Return the trajectory of a document.

        Raises:
            FormError: it is no such document; the text names ``where`` and the field.
        """
        if not isinstance(document, dict):
            raise FormError(f"{where}: expected an object, one {self.name} document")
        rest: JsonObject = {}
        if self.carrier is not None:
            document, rest = self.carrier.take(document)
        if rest and self.carrier is not None:
            form = {} if "value" in rest else _form(self._read(document, where))
            place = f"{where}: {self.carrier.place}"
            trajectory = _named(from_json(Trajectory, apply(form, rest), where=place), document)
        else:
            trajectory = self._read(document, where)
        patch = difference(self.write(trajectory), document)
        if not patch:
            return trajectory
        return replace(trajectory, ext={**trajectory.ext, self.name: patch})

    def write_document(self, trajectory: Trajectory) -> WrittenDocument:
        """Return a trajectory as a document, with the names of what it does not hold."""
        patch = trajectory.ext.get(self.name)
        others = {name: value for name, value in trajectory.ext.items() if name != self.name}
        plain = replace(trajectory, ext=others)
        document = self.write(plain)
        if isinstance(patch, dict):
            changed = apply(document, patch)
            document = changed if isinstance(changed, dict) else document
        rest = self._rest(document, plain)
        if not rest:
            return WrittenDocument(document)
        carried = None if self.carrier is None else self.carrier.put(document, rest)
        if carried is None:
            return WrittenDocument(document, _lost(rest))
        return WrittenDocument(carried)

    def _rest(self, document: JsonObject, wanted: Trajectory) -> JsonObject:
        """Return what the document does not hold: everything, when it cannot be read alone."""
        try:
            read = self._read(document, "document")
        except FormError:
            return {"value": _form(wanted)}
        if wanted.end_user is None and wanted.also_named is None:
            # Out of a lake, which knows nobody by an id.
            read = replace(read, end_user=None, also_named=None)
        return difference(_form(read), _form(wanted))

    def _read(self, document: JsonObject, where: str) -> Trajectory:
        return _named(self.read(document, where), document)

    def export_document(self, trajectory: Trajectory) -> JsonObject:
        """Return a trajectory as a document; see :meth:`write_document` for what it may lose."""
        return self.write_document(trajectory).document


def _named(trajectory: Trajectory, document: JsonObject) -> Trajectory:
    """Return a trajectory with everybody whom its document names as the one who used the application."""
    said = (*(trajectory.also_named or ()), *_users(document))
    ids = dict.fromkeys(one.strip()[:VALUE_LIMIT] for one in said)
    others = [one for one in ids if one and one != (trajectory.end_user or "").strip()]
    if trajectory.end_user is not None:
        return replace(trajectory, also_named=tuple(others) or None)
    return replace(
        trajectory, end_user=next(iter(others), None), also_named=tuple(others[1:]) or None
    )


def _users(document: JsonObject) -> Iterator[str]:
    """Yield whom a document and its turns name, by the names that calls use for this; the strongest id first."""
    if (user := as_id(document.get("user"))) is not None:
        yield user
    turns = (turn for value in document.values() for turn in objects(value))
    for said in (document, *turns):
        for one in (said, *(as_object(said.get(name)) for name in _MAPS)):
            yield from users_in(one)


def _form(trajectory: Trajectory) -> JsonObject:
    return {name: item for name, item in to_json(trajectory).items() if name != "schema_version"}


def _lost(rest: JsonObject) -> tuple[str, ...]:
    if "value" in rest:
        rest = difference(_form(Trajectory(())), rest["value"])
    return lost_fields(rest)


def lost_fields(patch: JsonObject, path: str = "") -> tuple[str, ...]:
    """Return the fields that a patch speaks of, positions in lists left out, each once."""
    if "value" in patch:
        return (path,)
    found: list[str] = []
    prefix = f"{path}." if path else ""
    added, dropped = patch.get("add"), patch.get("drop")
    found += [f"{prefix}{name}" for name in (added if isinstance(added, dict) else ())]
    found += [f"{prefix}{name}" for name in (dropped if isinstance(dropped, list) else ())]
    for name, inner in _objects(patch.get("fields")).items():
        found += lost_fields(_objects(inner), f"{prefix}{name}")
    for inner in _objects(patch.get("items")).values():
        found += lost_fields(_objects(inner), f"{path}[]")
    return tuple(dict.fromkeys(found))


def at_path(*path: str) -> Carrier:
    """Return the carrier that keeps the rest in an object at a path of field names."""

    def put(document: JsonObject, rest: JsonObject) -> JsonObject | None:
        return _put(document, path, rest)

    def take(document: JsonObject) -> tuple[JsonObject, JsonObject]:
        return _take(document, path)

    return Carrier(put, take, ".".join((*path, KEY)))


def _put(value: JsonObject, path: tuple[str, ...], rest: JsonObject) -> JsonObject | None:
    if not path:
        return {**value, KEY: rest}
    inner = value.get(path[0], {})
    if not isinstance(inner, dict):
        return None
    changed = _put(inner, path[1:], rest)
    return None if changed is None else {**value, path[0]: changed}


def _take(value: JsonObject, path: tuple[str, ...]) -> tuple[JsonObject, JsonObject]:
    name = path[0] if path else KEY
    inner = value.get(name)
    if not isinstance(inner, dict):
        return value, {}
    if not path:
        return {key: item for key, item in value.items() if key != KEY}, inner
    left, rest = _take(inner, path[1:])
    if not rest:
        return value, {}
    if not left:
        return {key: item for key, item in value.items() if key != name}, rest
    return {**value, name: left}, rest


def need_list(value: JsonObject, name: str, where: str) -> list[JsonObject]:
    """Return a field that must be a list of objects.

    Raises:
        FormError: it is none; the text names the item.
    """
    items = value.get(name)
    if not isinstance(items, list):
        raise FormError(f"{where}: {name}: expected a list of objects")
    return need_objects(items, f"{where}: {name}")


def need_objects(items: list[JsonValue], where: str) -> list[JsonObject]:
    """Return a list whose items must be objects.

    Raises:
        FormError: one is none; the text names it.
    """
    found: list[JsonObject] = []
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise FormError(f"{where}[{index}]: expected an object")
        found.append(item)
    return found


def need_text(value: JsonObject, name: str, where: str) -> str:
    """Return a field that must be text.

    Raises:
        FormError: it is none.
    """
    text = value.get(name)
    if not isinstance(text, str):
        raise FormError(f"{where}: {name}: expected text")
    return text
