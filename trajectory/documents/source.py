"""YAML with line numbers: values as plain data, and for each key path the line where it stands."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trajectory.errors import DocumentError
from trajectory.files import read_file

_WHOLE = "tag:yaml.org,2002:int"
_PLAIN_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
"""A number that means to YAML 1.1 what it means to people: 0100 is 64 there, and 1:30 is 90."""

type KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """One document of a YAML file."""

    file: str
    value: Any
    lines: dict[KeyPath, int]

    def line_of(self, path: KeyPath) -> int:
        """Return the line of ``path``, or of the nearest part of it that is written down."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def error(self, path: KeyPath, problem: str) -> str:
        """Return one line of an error message."""
        names = ".".join(str(part) for part in path) or "document"
        return f"{self.file}:{self.line_of(path)}: {names}: {problem}"


_LONGEST = 16 * 1024 * 1024
"""Bytes of a file; reading 100 MB of YAML takes minutes."""


def read_documents(file: Path, shown: str = "") -> list[SourceDocument]:
    """Return the documents of a YAML file.

    Args:
        file: the file to read.
        shown: how errors name it; its path, when left out.

    Raises:
        DocumentError: there is no such file, or it is too long, not UTF-8, not YAML, a key written twice, or an
            alias.
    """
    shown = shown or str(file)
    return parse_documents(read_text(file, shown), shown)


def read_text(file: Path, shown: str) -> str:
    """Return the text of a YAML file; errors name it as ``shown``.

    Raises:
        DocumentError: there is no such file, or it is too long or not UTF-8.
    """
    try:
        if file.stat().st_size > _LONGEST:
            raise DocumentError(f"{shown}:1: document: longer than 16 MiB; share it among several")
        return read_file(file).decode()
    except FileNotFoundError:
        raise DocumentError(f"{shown}: there is no such file; check its path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError(
            f"{shown}:1: document: cannot be read ({type(error).__name__})"
        ) from None


def parse_documents(text: str, shown: str) -> list[SourceDocument]:
    """Return the documents of a YAML text; errors name it as ``shown``.

    Raises:
        DocumentError: not YAML, a key written twice, or an alias.
    """
    try:
        # libyaml's parser would be ten times as fast, but crashes at 100,000 lists within lists.
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        return [_build(node, shown) for node in nodes if node is not None]
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DocumentError(f"{shown}:{line}: document: not YAML ({error.problem})") from None
    except yaml.YAMLError:
        raise DocumentError(
            f"{shown}:1: document: not YAML (a character that it cannot hold)"
        ) from None
    except RecursionError:
        raise DocumentError(f"{shown}:1: document: lists within lists beyond reading") from None


def read_document(file: Path) -> SourceDocument:
    """Return the first document of a YAML file.

    Raises:
        DocumentError: it cannot be read, or the file is empty.
    """
    for document in read_documents(file):
        return document
    raise DocumentError(f"{file}:1: document: is empty; it has apiVersion, kind, metadata, spec")


def read_data(text: str) -> Any:
    """Return a YAML or JSON text in a format of other programs: aliases and repeated keys are theirs.

    Raises:
        ValueError: it is neither; the message holds nothing of the text.
    """
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError):
        raise ValueError("neither JSON nor YAML") from None


def _build(node: yaml.Node, shown: str) -> SourceDocument:
    lines: dict[KeyPath, int] = {}
    seen: set[int] = set()
    constructor = yaml.SafeLoader("")

    def walk(current: yaml.Node, path: KeyPath) -> Any:
        line = current.start_mark.line + 1
        lines.setdefault(path, line)
        if id(current) in seen:
            raise DocumentError(
                f"{shown}:{line}: {'.'.join(map(str, path))}: write it out, no alias"
            )
        seen.add(id(current))
        if isinstance(current, yaml.MappingNode):
            out: dict[str, Any] = {}
            for key_node, value_node in current.value:
                key = str(key_node.value)
                line = key_node.start_mark.line + 1
                if key in out:
                    at = ".".join(map(str, path)) or "document"
                    raise DocumentError(f"{shown}:{line}: {at}: {key} twice")
                lines[(*path, key)] = line
                out[key] = walk(value_node, (*path, key))
            return out
        if isinstance(current, yaml.SequenceNode):
            return [walk(item, (*path, index)) for index, item in enumerate(current.value)]
        at = f"{shown}:{line}: {'.'.join(map(str, path))}"
        try:
            value = constructor.construct_object(current)
            if type(value) is int and value.bit_length() > 63:
                raise ValueError("no program reads a number so long")
        except (ValueError, TypeError, AttributeError):  # a date that no calendar has, say
            raise DocumentError(
                f"{at}: is no value that YAML can read; write it in quotes"
            ) from None
        if current.tag == _WHOLE and not _PLAIN_WHOLE.fullmatch(current.value):
            raise DocumentError(
                f"{at}: YAML reads {current.value} as {value}; write the number so, or in quotes"
            )
        return value

    return SourceDocument(shown, walk(node, ()), lines)
