"""Operations of plain HTTP tools: patterns or OpenAPI say which requests call which tool.

A pattern is a path whose variable parts stand in braces, with a type where it is not text:
``/orders/{order_id:integer}/items``.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from trajectory.canonical import JsonObject, JsonValue

_METHODS = frozenset({"get", "put", "post", "delete", "patch", "head", "options"})
_VARIABLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)(?::(integer|number|boolean|string))?\}")
_REFERENCES_LIMIT = 8


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that a tool can do."""

    name: str
    """The tool's name in steps."""
    method: str
    """In upper case."""
    pattern: re.Pattern[str] = field(repr=False)
    """Matches the whole path; its groups are the variables in their order."""
    variables: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    """Types of variables and query parameters that are no text, as JSON Schema names them."""
    literals: int = 0
    """Characters of the path that are fixed: where two patterns fit, the more exact one counts."""

    def arguments(self, path: str) -> JsonObject | None:
        """Return the variables of a path; None where the path is not this operation's."""
        found = self.pattern.fullmatch(path)
        if found is None:
            return None
        texts = zip(self.variables, found.groups(), strict=True)
        return {name: self.typed(name, unquote(text, errors="replace")) for name, text in texts}

    def typed(self, name: str, text: str) -> JsonValue:
        """Return a value as its declared type; as text where it is none of that type."""
        kind = self.types.get(name)
        if kind == "boolean" and text in ("true", "false"):
            return text == "true"
        if kind == "integer" and re.fullmatch(r"-?[0-9]{1,18}", text):
            return int(text)
        if kind == "number" and re.fullmatch(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?", text):
            return float(text) if "." in text else int(text)
        return text


def operation(
    name: str, method: str, path: str, *, types: Mapping[str, str] | None = None, base: str = ""
) -> Operation:
    """Return the operation of a method and a pattern; ``base`` may stand before its path.

    Raises:
        ValueError: the pattern has braces that name nothing.
    """
    pieces: list[str] = []
    variables: list[str] = []
    declared = dict(types or {})
    at = literals = 0
    for found in _VARIABLE.finditer(path):
        literal = path[at : found.start()]
        literals += len(literal)
        pieces += [re.escape(literal), "([^/]+)"]
        variables.append(found[1])
        if found[2]:
            declared[found[1]] = found[2]
        at = found.end()
    rest = path[at:].rstrip("/")
    if not path.startswith("/") or set("{}") & set(_VARIABLE.sub("", path)):
        raise ValueError(f"{path!r} is not a path like /orders/{{order_id:integer}}")
    prefix = f"(?:{re.escape(base.rstrip('/'))})?" if base.strip("/") else ""
    pattern = re.compile(prefix + "".join(pieces) + re.escape(rest) + "/?")
    return Operation(
        name, method.upper(), pattern, tuple(variables), declared, literals + len(rest)
    )


def read_openapi(document: JsonObject) -> list[Operation]:
    """Return the operations of an OpenAPI document (3.x, or Swagger 2.0).

    Raises:
        ValueError: it is no such document, or has no operation.
    """
    paths = document.get("paths")
    if not isinstance(paths, dict) or not ("openapi" in document or "swagger" in document):
        raise ValueError("not an OpenAPI document: it has no `openapi` version with `paths`")
    base = _base(document)
    found = [
        _operation(document, base, path, method, shared, value)
        for path, item in paths.items()
        if isinstance(item, dict)
        for shared in [item.get("parameters")]
        for method, value in item.items()
        if method in _METHODS and isinstance(value, dict)
    ]
    if not found:
        raise ValueError("the OpenAPI document has no operation")
    return found


def _base(document: JsonObject) -> str:
    servers = document.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else {}
    url = first.get("url") if isinstance(first, dict) else None
    if isinstance(url, str):
        return urlsplit(url).path
    base = document.get("basePath")
    return base if isinstance(base, str) else ""


def _operation(
    document: JsonObject,
    base: str,
    path: str,
    method: str,
    shared: JsonValue | None,
    value: JsonObject,
) -> Operation:
    types: dict[str, str] = {}
    for parameter in (
        *_parameters(document, shared),
        *_parameters(document, value.get("parameters")),
    ):
        kind = _resolved(document, parameter.get("schema"), 0).get("type", parameter.get("type"))
        if isinstance(kind, str):
            types[str(parameter.get("name"))] = kind
    name = value.get("operationId")
    if not isinstance(name, str) or not name:
        name = re.sub(r"[^a-zA-Z0-9]+", "_", f"{method}_{path}").strip("_")
    return operation(name, method, path, types=types, base=base)


def _parameters(document: JsonObject, listed: JsonValue | None) -> Iterator[JsonObject]:
    for item in listed if isinstance(listed, list) else []:
        parameter = _resolved(document, item, 0)
        if parameter.get("in") in ("path", "query"):
            yield parameter


def _resolved(document: JsonObject, value: JsonValue | None, depth: int) -> JsonObject:
    """Return an object, behind its reference within the document where it is one."""
    if not isinstance(value, dict):
        return {}
    reference = value.get("$ref")
    if not isinstance(reference, str) or depth > _REFERENCES_LIMIT:
        return value
    target: JsonValue | None = document
    for word in reference.removeprefix("#/").split("/"):
        name = word.replace("~1", "/").replace("~0", "~")
        target = target.get(name) if isinstance(target, dict) else None
    return _resolved(document, target, depth + 1)
