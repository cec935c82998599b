"""Values whose names stand beside them: ``{"name": …, "value": …}``, columns with their rows, a head row.

Environments of containers, headers, cookies, parameter stores, forms and answers of SQL servers are written so.
There the key ``value`` says nothing, so the name is one more step of the value's key path.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from governance.detect.questions import key_of_answer
from governance.redact.json_text import Literal
from governance.redact.places import HiddenKey
from trajectory.canonical import JsonObject, JsonValue

_NAMES = frozenset(
    [
        "name",
        "Name",
        "key",
        "Key",
        "label",
        "Label",
        "field",
        "Field",
        "header",
        "question",
        "variable",
        "property",
    ]
)
_VALUES = frozenset(["value", "Value", "answer", "Answer"])
_COLUMNS = frozenset(["columns", "headers", "header", "column_names", "fields", "cols", "schema"])
_ROWS = frozenset(["rows", "data", "values", "records", "results"])
_SAYS_LITTLE = frozenset(["name", "id", "key", "value", "type", "label", "title"])
"""Names that many things have: what tags and fields call so is nobody's."""
_NAME = re.compile(r"[^\W\d_][\w .\-]{0,59}\Z")
_LEADS_TO = re.compile(r".*[/:]")
_LONGEST = 200

type _Keys = tuple[str, ...]


def named(name: str, value: object) -> tuple[str, ...]:
    """Return the step that a name adds to the key path of a value; nothing where it says too little."""
    if name.endswith("?"):
        key = key_of_answer(name, value) if isinstance(value, str) else None
        return () if key is None else (HiddenKey(key),)
    name = _LEADS_TO.sub("", name)
    if _NAME.match(name) is None or name.lower() in _SAYS_LITTLE or name.count(" ") > 3:
        return ()
    return (HiddenKey(name),)


def name_beside(value: JsonObject) -> str | None:
    """Return what an object calls the value that it holds."""
    if _VALUES.isdisjoint(value):
        return None
    said = (one for key, one in value.items() if key in _NAMES)
    return next((one for one in said if isinstance(one, str) and len(one) <= _LONGEST), None)


def is_value(key: str) -> bool:
    """Whether a key says no more than that this is the value."""
    return key in _VALUES


def heads_of(value: JsonObject) -> Sequence[str]:
    """Return the names of the columns that an object tells beside its rows."""
    if _ROWS.isdisjoint(value):
        return ()
    for key, listed in value.items():
        if key in _COLUMNS and isinstance(listed, list) and listed:
            heads = [_head(one) for one in listed]
            if all(heads):
                return heads
    return ()


def are_rows(key: str) -> bool:
    """Whether rows of a table may stand under a key."""
    return key in _ROWS


def head_row(value: Sequence[JsonValue]) -> Sequence[str]:
    """Return the first of several rows where it names the columns."""
    first = value[0] if len(value) > 1 else None
    if not isinstance(first, list) or not isinstance(value[1], list):
        return ()
    heads = [one for one in first if isinstance(one, str) and _NAME.match(one)]
    return heads if len(heads) == len(first) else ()


def _head(one: JsonValue) -> str:
    if isinstance(one, dict):
        one = next((one[key] for key in ("name", "Name", "field", "key") if key in one), None)
    return one if isinstance(one, str) else ""


def placed(found: Iterable[Literal]) -> list[Literal]:
    """Return the literals of a JSON text, with the names that stand beside values in their key paths."""
    literals = list(found)
    names: dict[_Keys, str] = {}
    heads: dict[_Keys, dict[str, str]] = {}
    """By what comes before a row's number and a cell's, the names of columns."""
    for _, _, keys, kind, said in literals:
        if kind != "string" or not keys or len(said) > _LONGEST:
            continue
        around, last = keys[:-1], keys[-1]
        before = around[-1] if around else ""
        if last in _NAMES:
            names.setdefault(around, said)
            if before.isdigit() and len(around) > 1 and around[-2] in _COLUMNS:
                _tell(heads, around[:-2], before, said)
        elif last.isdigit() and before in _COLUMNS:
            _tell(heads, around[:-1], last, said)
        elif last.isdigit() and before == "0" and _NAME.match(said):
            heads.setdefault(around[:-1], {})[last] = said
    if not names and not heads:
        return literals
    return [
        (start, end, keys if kind == "key" else keys + _step(keys, said, names, heads), kind, said)
        for start, end, keys, kind, said in literals
    ]


def _tell(heads: dict[_Keys, dict[str, str]], table: _Keys, column: str, said: str) -> None:
    for key in _ROWS:
        heads.setdefault((*table, key), {})[column] = said


def _step(
    keys: _Keys, said: str, names: Mapping[_Keys, str], heads: Mapping[_Keys, Mapping[str, str]]
) -> _Keys:
    """Return the step that the name beside a value adds to its key path."""
    name = None
    if keys and keys[-1] in _VALUES:
        name = names.get(keys[:-1])
    elif len(keys) > 1 and keys[-1].isdigit() and keys[:-2] in heads:
        name = heads[keys[:-2]].get(keys[-1])
    return () if name is None or name == said else named(name, said)
