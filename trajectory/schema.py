"""The published JSON Schema of the protocol, made from its types and the docstrings of their fields."""

import ast
import inspect
import sys
from dataclasses import MISSING, Field, fields
from datetime import datetime
from enum import StrEnum
from textwrap import dedent
from types import NoneType, UnionType
from typing import Any, Literal, TypeAliasType, Union, get_args, get_origin, get_type_hints

from trajectory.canonical import JsonObject, JsonValue
from trajectory.exchange import Exchange, Feedback
from trajectory.json_form import DOCUMENTS
from trajectory.message import Message, Part
from trajectory.portable import Trajectory
from trajectory.step import (
    Correction,
    Harness,
    Link,
    Signal,
    Step,
    StoredMessage,
    Tokens,
    ToolCall,
    ToolResult,
)
from trajectory.version import SCHEMA_VERSION

PUBLISHED: tuple[type, ...] = (
    Trajectory,
    Message,
    Exchange,
    Feedback,
    Step,
    ToolCall,
    ToolResult,
    StoredMessage,
    Tokens,
    Signal,
    Link,
    Harness,
    Correction,
)
"""Types that the schema defines; what they hold is defined with them."""

_SCALARS: dict[type, JsonObject] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    datetime: {"type": "string", "format": "date-time"},
}


def json_schema() -> JsonObject:
    """Return the schema; the document itself is a trajectory, ``$defs`` holds every type."""
    definitions: dict[str, JsonValue] = {}
    for kind in PUBLISHED:
        _define(kind, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:headrace:trajectory:{SCHEMA_VERSION}",
        "title": "Headrace trajectory protocol",
        "description": (
            "A document is a Trajectory. Validate another type against #/$defs/<type>."
            " A field that is null may be left out. docs/protocol.md says what the fields mean."
        ),
        "$ref": "#/$defs/Trajectory",
        "$defs": dict(sorted(definitions.items())),
    }


def _define(kind: type, definitions: dict[str, JsonValue]) -> None:
    if kind.__name__ in definitions:
        return
    definitions[kind.__name__] = {}
    texts, hints = _docstrings(kind), get_type_hints(kind)
    properties: JsonObject = {}
    required: list[JsonValue] = []
    if isinstance(getattr(kind, "type", None), str):
        properties["type"] = {"const": str(vars(kind)["type"])}
        required.append("type")
    if kind in DOCUMENTS:
        properties["schema_version"] = {"const": SCHEMA_VERSION}
    for field in fields(kind):
        schema = _of(hints[field.name], definitions)
        if text := texts.get(field.name):
            schema = {**schema, "description": text}
        properties[field.name] = schema
        if _is_required(field, hints[field.name]):
            required.append(field.name)
    definitions[kind.__name__] = {
        "type": "object",
        "description": inspect.cleandoc(kind.__doc__ or ""),
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _is_required(field: Field[Any], hint: Any) -> bool:
    if field.default is not MISSING or field.default_factory is not MISSING:
        return False
    if isinstance(hint, TypeAliasType):
        return hint.__name__ != "JsonValue"
    return NoneType not in get_args(hint)


def _of(hint: Any, definitions: dict[str, JsonValue]) -> JsonObject:
    if isinstance(hint, TypeAliasType):
        if hint.__name__ == "JsonValue":
            return {}
        hint = hint.__value__ if hint is not Part else get_args(hint.__value__)
    if isinstance(hint, tuple):
        return {"oneOf": [_of(kind, definitions) for kind in hint]}
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _nullable(get_args(hint), definitions)
    if origin is Literal:
        return {"enum": list(get_args(hint))}
    if origin is tuple:
        return _array(get_args(hint), definitions)
    if origin is dict:
        return {"type": "object"}
    if issubclass(hint, StrEnum):
        return {"enum": [item.value for item in hint]}
    if hint in _SCALARS:
        return dict(_SCALARS[hint])
    _define(hint, definitions)
    return {"$ref": f"#/$defs/{hint.__name__}"}


def _nullable(kinds: tuple[Any, ...], definitions: dict[str, JsonValue]) -> JsonObject:
    inner = _of(next(kind for kind in kinds if kind is not NoneType), definitions)
    if isinstance(inner.get("type"), str):
        return {**inner, "type": [inner["type"], "null"]}
    return {"anyOf": [inner, {"type": "null"}]}


def _array(kinds: tuple[Any, ...], definitions: dict[str, JsonValue]) -> JsonObject:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return {"type": "array", "items": _of(kinds[0], definitions)}
    items: list[JsonValue] = [_of(kind, definitions) for kind in kinds]
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


def _docstrings(kind: type) -> dict[str, str]:
    """Return the texts that stand below the fields of a class."""
    body = ast.parse(dedent(inspect.getsource(sys.modules[kind.__module__]))).body
    found = next(one for one in body if isinstance(one, ast.ClassDef) and one.name == kind.__name__)
    texts = {}
    for before, after in zip(found.body, found.body[1:], strict=False):
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            texts[before.target.id] = inspect.cleandoc(str(after.value.value))
    return texts


__all__ = ["PUBLISHED", "json_schema"]
