"""Reads one YAML document of ours into a pydantic model, with errors that name file, line and field."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from train.errors import DocumentError

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"


class StrictModel(BaseModel):
    """Base of our document parts: unknown fields are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Metadata(StrictModel):
    """What a document is called."""

    name: str = Field(pattern=NAME_PATTERN)
    description: str = ""


class Document(StrictModel):
    """The one shape of all documents: ``apiVersion, kind, metadata, spec``."""

    apiVersion: Literal["headrace/v1"]  # noqa: N815 (the name in YAML)
    kind: str
    metadata: Metadata


def read_yaml(path: Path) -> tuple[Any, yaml.Node]:
    """Return the content of a YAML file and its node tree (for line numbers).

    Raises:
        DocumentError: the file is missing, no YAML, or empty.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise DocumentError(f"{path}: is no UTF-8 text; write it anew") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        value = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DocumentError(f"{path}:{line}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError):
        raise DocumentError(
            f"{path}: not valid YAML: a value that it cannot hold (a date that no calendar has, a "
            "character), or lists within lists beyond reading; write it in quotes"
        ) from None
    if node is None:
        raise DocumentError(f"{path}: is empty; a document has apiVersion, kind, metadata, spec")
    return value, node


def parse[M: BaseModel](
    model: type[M],
    value: Any,
    *,
    path: Path,
    node: yaml.Node,
    within: tuple[int | str, ...] = (),
) -> M:
    """Validate a document, or the part of it that stands at ``within``.

    Raises:
        DocumentError: with one line per wrong field.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        lines = []
        for details in error.errors(include_url=False, include_context=True):
            location = (*within, *details["loc"])
            lines.append(f"{path}:{_line(node, location)}: {_field(location)}: {_explain(details)}")
        raise DocumentError("\n".join(lines)) from None


def load[D: Document](model: type[D], path: Path) -> D:
    """Read and validate the document in a file."""
    value, node = read_yaml(path)
    return parse(model, value, path=path, node=node)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the values of ``over`` laid over it, mapping by mapping."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = merge(below, value)
        else:
            merged[key] = value
    return merged


def _field(location: Sequence[int | str]) -> str:
    return ".".join(str(part) for part in location) or "document"


def _explain(details: Any) -> str:
    """Pydantic's message, with the remedy for the kinds that people meet most."""
    message = str(details["msg"])
    if details["type"] == "extra_forbidden":
        return "unknown field; remove it or correct its name"
    if details["type"] == "missing":
        return "is missing; add it"
    return message[0].lower() + message[1:]


def _line(node: yaml.Node, location: Sequence[int | str]) -> int:
    """Line of the deepest node along the location that the file has."""
    line = node.start_mark.line
    for part in location:
        found = next(_children(node, part), None)
        if found is None:
            break
        mark, node = found
        line = mark.line
    return line + 1


def _children(node: yaml.Node, part: int | str) -> Iterator[tuple[yaml.Mark, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(part):
                yield key.start_mark, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        yield node.value[part].start_mark, node.value[part]
