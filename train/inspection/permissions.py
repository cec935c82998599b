"""What a changed definition of a tool allows that the one before did not.

A schema is compared keyword by keyword. Only changes that are known to narrow it, and properties that
got another name, pass; whatever else differs is a wider permission until a person says otherwise.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from train.inspection.evidence import Definition
from trajectory.artifact import ToolsContent
from trajectory.json_patch import PatchError, apply_patch

_LOWER_IS_NARROWER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_HIGHER_IS_NARROWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_TEXTS = frozenset({"title", "description", "examples", "$comment", "default", "deprecated"})
"""Keywords that allow nothing; what they say is read with all other texts."""
_LIMIT = re.compile(
    r"\b(?:only|must|never|not|no more than|at most|up to|maximum|limit\w*|unless|except|require\w*|confirm\w*"
    r"|approv\w*|read-?only|forbidden|prohibited)\b",
    re.IGNORECASE,
)
_WIDE = re.compile(
    r"\b(?:any|every|all) (?:amount|account|customer|user|order|file|table|path|host|address|limit|sum|size|url|command)s?\b"
    r"|\bunlimited\b|\bunrestricted\b|\bwithout (?:any )?(?:limit|restriction|approval|confirmation|permission|check)s?\b"
    r"|\bno (?:limit|restriction|maximum)s?\b|\b(?:admin|root|superuser)\b|\bon behalf of\b|\b(?:full|write) access\b",
    re.IGNORECASE,
)
_ORDER_OF_ANOTHER = (
    r"\b(?:call|use|invoke|run|execute|send|pass)\b[^.!?\n]{0,40}?(?<![\w.-])%s(?![\w-])"
)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")


def tool_objections(
    content: ToolsContent,
    known: Mapping[str, Sequence[Definition]],
    live: ToolsContent | None = None,
) -> Iterator[tuple[str, str, str]]:
    """Yield rule, place and what is wrong for each permission that a patch widens.

    Args:
        content: of the candidate.
        known: definitions that agents offer, per tool.
        live: of the version that serves; what it makes of them is then what counts as before.
    """
    strange = sorted(content.names - known.keys())
    for name in strange:
        said = "no agent of the tenant offers this tool, so nobody can tell what is changed"
        yield "unknown_tool", f"tools/{name}", said
    if strange:
        return
    fitting = False
    for offered in _settings(content.names, known):
        try:
            after = apply_patch(offered, content.patch)
        except PatchError:
            continue
        fitting = True
        before = _applied(live, offered)
        for name in sorted(content.names):
            place = f"tools/{name}"
            yield from _compared(place, before[name], after.get(name), known)
    if not fitting:
        said = (
            "it fits no definition that agents of the tenant offer, so nobody can tell what it does"
        )
        yield "unknown_tool", "tools", said


def _settings(
    names: Collection[str], known: Mapping[str, Sequence[Definition]]
) -> Iterator[dict[str, Definition]]:
    """Yield the definitions together: all newest, then all second newest, and so on."""
    for at in range(max(len(known[name]) for name in names)):
        yield {name: known[name][min(at, len(known[name]) - 1)] for name in names}


def _applied(live: ToolsContent | None, offered: dict[str, Definition]) -> dict[str, Definition]:
    if live is None or not live.names <= offered.keys():
        return offered
    try:
        patched: dict[str, Definition] = apply_patch(offered, live.patch)
    except PatchError:
        return offered
    return patched


def _compared(
    place: str, before: Definition, after: Any, known: Mapping[str, Sequence[Definition]]
) -> Iterator[tuple[str, str, str]]:
    if not isinstance(after, dict) or not isinstance(after.get("parameters"), dict):
        yield "wider_permission", place, "the definition is none any more"
        return
    old, new = str(before["description"]), str(after.get("description", ""))
    yield from text_objections(f"{place}/description", old, new)
    for other in sorted(known.keys() - {place.partition("/")[2]}):
        order = re.compile(_ORDER_OF_ANOTHER % re.escape(other), re.IGNORECASE)
        if order.search(new) and not order.search(old):
            said = f"has another tool called: {other}"
            yield "instruction", f"{place}/description", said
    for path, said in wider(before["parameters"], after["parameters"]):
        yield "wider_permission", f"{place}/parameters{path}", said


def text_objections(place: str, old: str, new: str) -> Iterator[tuple[str, str, str]]:
    """Yield what a rewritten text takes away in limits, or adds in permissions."""
    kept = " ".join(new.casefold().split())
    for sentence in _SENTENCE.split(old):
        if _LIMIT.search(sentence) and " ".join(sentence.casefold().split()) not in kept:
            yield (
                "wider_permission",
                place,
                "a sentence that limits what is allowed is gone or rewritten",
            )
            break
    before = {one.group().casefold() for one in _WIDE.finditer(old)}
    if added := {one.group().casefold() for one in _WIDE.finditer(new)} - before:
        yield "wider_permission", place, f"says more than before: {', '.join(sorted(added))}"


def wider(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield each place where a JSON Schema lets through more than another, or may do so."""
    if old == new:
        return
    if not isinstance(old, dict) or not isinstance(new, dict):
        if new is not False:
            yield path, "the schema is another one"
        return
    for key in sorted(old.keys() | new.keys()):
        if key not in _TEXTS and old.get(key) != new.get(key):
            yield from _wider_keyword(key, old, new, f"{path}/{key}")


def _wider_keyword(
    key: str, old: dict[str, Any], new: dict[str, Any], path: str
) -> Iterator[tuple[str, str]]:
    before, after = old.get(key), new.get(key)
    if key == "properties":
        yield from _wider_properties(before or {}, after or {}, old, path)
    elif key == "required":
        lost = {*_names(before)} - {*_names(after)} - {*_renamed(old, new)}
        if lost:
            yield path, f"required no longer: {', '.join(sorted(lost))}"
    elif key == "additionalProperties":
        if before is False or (isinstance(before, dict) and after not in (before, False)):
            yield path, "other properties are allowed"
    elif key in ("enum", "type"):
        allowed, asked = _values(before), _values(after)
        if asked is None or (allowed is not None and any(one not in allowed for one in asked)):
            yield path, "the limit is gone" if asked is None else "more values are allowed"
    elif key in (*_LOWER_IS_NARROWER, *_HIGHER_IS_NARROWER):
        sign = 1 if key in _LOWER_IS_NARROWER else -1
        if (most := _number(after)) is None:
            yield path, "the limit is gone"
        elif (least := _number(before)) is not None and sign * most > sign * least:
            yield path, "the limit is wider"
    elif key == "items":
        yield from wider({} if before is None else before, {} if after is None else after, path)
    elif before is None and key in (
        "pattern",
        "format",
        "const",
        "multipleOf",
        "uniqueItems",
        "not",
    ):
        pass  # a limit that was not there
    elif key == "uniqueItems" and after is True:
        pass
    else:
        yield (
            path,
            "the limit is gone" if after is None else "differs in a way that is not compared",
        )


def _wider_properties(
    before: Mapping[str, Any], after: Mapping[str, Any], old: dict[str, Any], path: str
) -> Iterator[tuple[str, str]]:
    gone = [name for name in before if name not in after]
    for name in sorted(after):
        if name in before:
            yield from wider(before[name], after[name], f"{path}/{name}")
            continue
        same = next((other for other in gone if not any(wider(before[other], after[name]))), None)
        if same is None:
            yield f"{path}/{name}", "a property that was not there"
        else:
            gone.remove(same)
    if gone and old.get("additionalProperties") is not False:
        for name in sorted(gone):
            if _limits(before[name]):
                yield f"{path}/{name}", "the property's limits are gone"


def _limits(schema: Any) -> bool:
    """Tell whether a schema limits a value by more than its type."""
    return isinstance(schema, dict) and bool(schema.keys() - _TEXTS - {"type"})


def _renamed(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield the properties that have another name now, and are required under it."""
    before, after = old.get("properties") or {}, new.get("properties") or {}
    fresh = [name for name in _names(new.get("required")) if name not in before and name in after]
    for name in _names(old.get("required")):
        if name in after or name not in before:
            continue
        same = next((one for one in fresh if not any(wider(before[name], after[one]))), None)
        if same is not None:
            fresh.remove(same)
            yield name


def _names(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _values(value: Any) -> list[Any] | None:
    """Return what ``enum`` or ``type`` allow; None where they are not there."""
    if value is None:
        return None
    found = value if isinstance(value, list) else [value]
    return [*found, "integer"] if "number" in found else list(found)


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
