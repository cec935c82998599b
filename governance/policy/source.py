"""YAML with line numbers: values as plain data, and for each key path the line where it stands."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from governance.errors import PolicyError
from governance.policy import secrets

type KeyPath = tuple[str | int, ...]

_REFUSED = (
    "looks like a secret. Policies are shared and hashed: keep secrets in the environment or in a "
    "file named by a setting."
)


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


def read_documents(file: Path, shown: str, *, made_up: bool = False) -> list[SourceDocument]:
    """Return the documents of a YAML file.

    Args:
        file: the file to read.
        shown: how errors name it.
        made_up: whether the file holds made-up values (test cases), secrets among them.

    Raises:
        PolicyError: not UTF-8, not YAML, a key written twice, an alias, or a secret in it.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{shown}:1: document: cannot be read ({type(error).__name__})") from None
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        documents = [_build(node, shown) for node in nodes if node is not None]
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise PolicyError(f"{shown}:{line}: document: not YAML ({error.problem})") from None
    except yaml.YAMLError:
        raise PolicyError(
            f"{shown}:1: document: not YAML (a character that it cannot hold)"
        ) from None
    except RecursionError:
        raise PolicyError(f"{shown}:1: document: lists within lists beyond reading") from None
    if not made_up:
        _refuse_secrets(text, shown, documents)
    return documents


def _refuse_secrets(text: str, shown: str, documents: list[SourceDocument]) -> None:
    for number, line_text in enumerate(text.splitlines(), start=1):
        if secrets.in_line(line_text):
            raise PolicyError(f"{shown}:{number}: document: {_REFUSED}")
    for document in documents:
        for path, value in _texts(document.value):
            if secrets.in_value(value):
                raise PolicyError(document.error(path, _REFUSED))


def _texts(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))


def _build(node: yaml.Node, shown: str) -> SourceDocument:
    lines: dict[KeyPath, int] = {}
    seen: set[int] = set()
    constructor = yaml.SafeLoader("")

    def walk(current: yaml.Node, path: KeyPath) -> Any:
        line = current.start_mark.line + 1
        lines.setdefault(path, line)
        if id(current) in seen:
            raise PolicyError(f"{shown}:{line}: {'.'.join(map(str, path))}: write it out, no alias")
        seen.add(id(current))
        if isinstance(current, yaml.MappingNode):
            out: dict[str, Any] = {}
            for key_node, value_node in current.value:
                key = str(key_node.value)
                line = key_node.start_mark.line + 1
                if key in out:
                    raise PolicyError(f"{shown}:{line}: {'.'.join(map(str, path))}: {key} twice")
                lines[(*path, key)] = line
                out[key] = walk(value_node, (*path, key))
            return out
        if isinstance(current, yaml.SequenceNode):
            return [walk(item, (*path, index)) for index, item in enumerate(current.value)]
        try:
            return constructor.construct_object(current)
        except (ValueError, TypeError, AttributeError):  # a date that no calendar has, say
            raise PolicyError(
                f"{shown}:{line}: {'.'.join(map(str, path))}: is no value that YAML can read; "
                "write it in quotes"
            ) from None

    return SourceDocument(shown, walk(node, ()), lines)
