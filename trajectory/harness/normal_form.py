"""The normal form of a harness: what stays of prompt and tools when the rest was rendered anew.

Dates, times, numbers, ids, paths, the state of a git repository and the marks of redaction become
fixed marks. Tools of every dialect become one shape. Sampling and its seed are left out. So one
agent in three SDKs has one normal form, and so has its prompt of the next minute. A changed
sentence changes it.
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache

from trajectory.canonical import JsonObject, JsonValue, canonical_json

MARK, PATH, IDENTIFIER, TIME, NUMBER, VALUE = "‹mark›", "‹path›", "‹id›", "‹time›", "0", "‹value›"

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?|"
    r"januar|februar|märz|mai|juni|juli|oktober|dezember)\.?"
)
_DAY = (
    r"(?:mon(?:day)?|tue(?:s(?:day)?)?|wed(?:nesday)?|thu(?:rs(?:day)?)?|fri(?:day)?|sat(?:urday)?|"
    r"sun(?:day)?|montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag)"
)
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?"
_DATE = (
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2})\b"
    rf"|{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?\b(?:,?\s+\d{{4}})?"
    rf"|\d{{1,2}}(?:st|nd|rd|th|\.)?\s+{_MONTH}(?:,?\s+\d{{4}})?|\b{_MONTH}\s+\d{{4}})"
)
_ZONE = r"(?:\s*(?:z|utc|gmt|[ecmp][sd]t|cest?|wes?t|bst)\b)?(?:\s*[+-]\d{2}:?\d{2}\b)?"
_MOMENT = re.compile(
    rf"\b(?=[\djfmasondtw])(?:{_DAY},?\s+)?(?:\b{_DATE}(?:(?:t|,?\s+(?:at\s+)?){_CLOCK})?|\b{_CLOCK})"
    rf"(?:\s*[ap]\.?m\b\.?)?{_ZONE}(?:\s+\d{{4}}\b)?(?:,?\s*\(?{_DAY}\b\)?)?",
    re.IGNORECASE,
)
_WEEKDAY = re.compile(
    rf"\b(?=[tidw])(today|it|day(?: of (?:the )?week)?|weekday)(\s+is\s+(?:a\s+)?|\s*[:=]\s*){_DAY}\b",
    re.IGNORECASE,
)
REDACTION_MARK = re.compile(
    r"<[A-Z][A-Z0-9_]{1,40}(?:_[0-9a-f]{6,32}|:[0-9a-f]{16}|~(?:[0-9a-f]{32}|0)\.[A-Za-z0-9_\-]{20,4000})?>"
    r"|\*{4}"
)
"""What redaction writes in a value's place; ``governance.redact.pseudonym`` makes it."""
_ADDRESS = re.compile(
    r"\b([a-z][a-z0-9+.-]{1,11}://)([^\s/\"'<>`)\]]+)(/[^\s\"'<>`)\]]*)?", re.IGNORECASE
)
_SEGMENT = rf"(?:{MARK}|[\w.@+~-])*(?:{MARK}|[\w@+~-])"
_FOLDERS = re.compile(
    rf"(?<![\w/.:<])(?:~|\.{{1,2}}|[A-Za-z]:|{MARK})?(?:[\\/]{_SEGMENT}){{2,}}[\\/]?"
    rf"|(?<![\w/.:<])~[\\/](?:{_SEGMENT})?"
)
_SEVERAL = re.compile(rf"({PATH}|{MARK})(?:[\s,;:]+\1)+")
_TITLED = re.compile(
    rf"\b(?:mr|mrs|ms|miss|mx|dr|prof|sir|madam|herr|frau|m|mme|sr|sra)\b\.?\s+(?={MARK})",
    re.IGNORECASE,
)
"""How a person is addressed, before the mark that stands for the name."""
_HASHED = re.compile(
    r"\b(?=[0-9a-z_-]{7})(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,128}\b"
    r"|(?=[A-Za-z_-]*\d)(?=[\d_-]*[A-Za-z])(?:[A-Za-z]{1,12}[_-])?(?=\w*\d\w*[A-Za-z]\w*\d)[A-Za-z0-9]{12,128}\b)",
    re.IGNORECASE,
)
_AROUND_MARK = re.compile(rf"(?=[0-9a-z]*{MARK})(?:[0-9a-z]|{MARK})+", re.IGNORECASE)
"""An id of which redaction took a part for something else."""
_DIGITS = re.compile(r"\d+(?:[.,:]\d+)*")
_LABELLED = re.compile(
    r"^(\W*(?:the )?(?:(?:primary |current |additional )?working director(?:y|ies)|cwd|workspace(?: root| path)?"
    r"|project root|home(?: directory)?|(?:operating )?system|os(?: version)?|platform|shell|hostname"
    r"|user(?:name)?|is (?:the )?(?:(?:working )?directory )?a git repo(?:sitory)?"
    r"|(?:current |main )?branch(?: \([^)]*\))?|git user|time ?zone|locale"
    r"|today(?:'s date)?|(?:current )?(?:date|time)(?: and time)?)\W*[:=])\s*\S.*$",
    re.IGNORECASE,
)
"""A line that tells the machine, the user or the moment: its label stays."""
_GIT = re.compile(
    r"^\W*git[ _]?status\b\W*(?:[:>].*)?$|^[^:]{0,80}:\s*this is the git status\b.*$", re.IGNORECASE
)
"""The line with which the state of a git repository begins; redaction may take its label for a name."""
_OF_GIT = re.compile(
    r"^[ \t]?[MADRCUT?!]{1,2}[ \t]+\S+(?:[ \t]+->[ \t]+\S+)?$"  # a changed file
    r"|^[ \t]*(?:\*[ \t]+)?[0-9a-f]{7,40}[ \t]+\S.*$"  # a commit
    r"|^\((?:clean|no (?:changes|commits)[^)]*)\)$|^</git_?status>$"
    r"|^(?:status|recent commits|git user|(?:current |main )?branch(?: \([^)]*\))?)\s*:.*$",
    re.IGNORECASE,
)
"""What stands in it, and is left out with it: not every folder is a repository."""
_BULLET = re.compile(r"^\W*$")

_LINES = 16_384
_FORMS = 512


@dataclass(frozen=True, slots=True)
class NormalForm:
    """A harness without what changes from one rendering to the next."""

    lines: tuple[str, ...]
    """The prompt's lines, normalised; empty ones are left out."""
    tools: tuple[str, ...]
    """Canonical JSON of each tool, by name."""

    @property
    def value(self) -> JsonValue:
        """What the form's keyed name is made of."""
        return [[*self.lines], [*self.tools]]


@lru_cache(maxsize=_FORMS)
def normal_form(system_prompt: str, tools: str) -> NormalForm:
    """Return the normal form of a redacted harness.

    The last few hundred harnesses are remembered, and so are the lines of prompts. A prompt that is rendered anew
    differs in a line or two.

    Args:
        system_prompt: the system prompt.
        tools: JSON list of tool definitions, in the shape of any dialect.
    """
    return NormalForm(tuple(_prompt_lines(system_prompt)), _tools_in(tools))


@lru_cache(maxsize=_FORMS)
def _tools_in(text: str) -> tuple[str, ...]:
    return canonical_tools(json.loads(text))


def _prompt_lines(text: str) -> list[str]:
    found: list[str] = []
    in_git = False
    for line in text.splitlines():
        begins_git = _begins_git(line)
        if begins_git is None:
            continue
        in_git = in_git or begins_git
        if not (in_git and (begins_git or _OF_GIT.match(line))):
            found.append(_normal_line(line))
    return found


@lru_cache(maxsize=_LINES)
def _begins_git(line: str) -> bool | None:
    """Return whether the state of a git repository begins here; None for a line without words."""
    return None if _BULLET.match(line) else _GIT.match(line) is not None


@lru_cache(maxsize=_LINES)
def _normal_line(line: str) -> str:
    if labelled := _LABELLED.match(line):
        return f"{' '.join(labelled[1].split())} {VALUE}"
    # A search that can find nothing takes the longest, so each has a cheap sign of what it looks for.
    text = line
    if "<" in text or "****" in text:
        text = REDACTION_MARK.sub(MARK, text)
    if MARK in text:
        text = _TITLED.sub("", text)
    if "://" in text:
        text = _ADDRESS.sub(
            lambda found: found[1] + found[2] + (f"/{PATH}" if found[3] else ""), text
        )
    if "/" in text or "\\" in text:
        text = _FOLDERS.sub(PATH, text)
    if _DIGITS.search(text):
        if MARK in text:
            text = _AROUND_MARK.sub(_whole_id, text)
        text = _MOMENT.sub(TIME, text)
        text = _HASHED.sub(IDENTIFIER, text)
        text = _DIGITS.sub(NUMBER, text)
    text = _WEEKDAY.sub(rf"\1\2{TIME}", text)
    if PATH in text or MARK in text:
        text = _SEVERAL.sub(r"\1", text)
    return " ".join(text.split())


def _whole_id(found: re.Match[str]) -> str:
    return IDENTIFIER if _DIGITS.search(found[0]) else found[0]


def canonical_tools(tools: JsonValue) -> tuple[str, ...]:
    """Return tool definitions in one shape, whatever dialect they were sent in, by name."""
    found = {canonical_json(tool).decode("utf-8", "replace") for tool in _tools(tools)}
    return tuple(sorted(found))


def _tools(tools: JsonValue) -> list[JsonObject]:
    if not isinstance(tools, list):
        return []
    found: list[JsonObject] = []
    for tool in tools:
        if not isinstance(tool, dict):
            continue
        listed = (
            tool.get("functionDeclarations")
            or tool.get("function_declarations")
            or tool.get("tools")
        )
        if isinstance(listed, list):  # Gemini's list, or a namespace of OpenAI's
            found += _tools(listed)
        else:
            found.append(_tool(tool))
    return found


_SCHEMAS = (
    "parameters",
    "parametersJsonSchema",
    "parameters_json_schema",
    "input_schema",
    "inputSchema",
)


def _tool(tool: JsonObject) -> JsonObject:
    """Return one tool: name, description and schema; one that the provider runs keeps its kind."""
    inner = tool.get("function") or tool.get("toolSpec") or tool
    if not isinstance(inner, dict):
        inner = tool
    if "name" not in inner:
        kind = tool.get("type") or next(iter(sorted(tool)), "")
        return {"provider": _normal_text(str(kind))}
    schema = next((inner[name] for name in _SCHEMAS if inner.get(name)), {})
    if isinstance(schema, dict) and isinstance(schema.get("json"), dict):
        schema = schema["json"]
    return {
        "name": inner["name"],
        "description": _normal_text(str(inner.get("description") or "")),
        "schema": _schema(schema),
    }


_OF_SDKS = frozenset({"title", "$schema", "$id", "additionalProperties", "additional_properties"})
"""What SDKs add to a JSON schema of their own."""


def _schema(schema: JsonValue) -> JsonValue:
    """Return a JSON schema without what SDKs add: titles, strictness, empty lists, upper-case types."""
    if isinstance(schema, list):
        return [_schema(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, JsonValue] = {}
    for name, value in schema.items():
        if name in _OF_SDKS or value is None or value in ([], {}, ""):
            continue
        if name in ("properties", "$defs", "definitions") and isinstance(value, dict):
            found[name] = {key: _schema(one) for key, one in value.items()}
        elif name == "type" and isinstance(value, str):
            found[name] = value.lower()
        elif name == "required" and isinstance(value, list):
            found[name] = [*sorted(map(str, value))]
        elif name == "description":
            found[name] = _normal_text(str(value))
        else:
            found[name] = _schema(value)
    return found


def _normal_text(text: str) -> str:
    return "\n".join(_prompt_lines(text))
