"""From pydantic's errors to lines of ``file:line: field: problem. Valid: …``."""

import re
import types
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import Annotated, Any, TypeAliasType, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError

from trajectory.documents.source import KeyPath, SourceDocument
from trajectory.errors import DocumentError


def validate[M: BaseModel](
    model: type[M], source: SourceDocument, value: Any = None, *, within: KeyPath = ()
) -> M:
    """Return a document, or the ``value`` that stands ``within`` it, as its model.

    Raises:
        DocumentError: with one line per problem.
    """
    try:
        return model.model_validate(source.value if value is None else value)
    except ValidationError as error:
        raise DocumentError("\n".join(describe(error, source, model, within=within))) from None


def describe(
    error: ValidationError,
    source: SourceDocument,
    model: type[BaseModel],
    *,
    within: KeyPath = (),
) -> list[str]:
    """Return one line per problem, in the order of the file."""
    found: list[tuple[int, str]] = []
    for item in error.errors(include_url=False):
        if item["type"] == "too_short" and len(item["input"]) >= item["ctx"]["min_length"]:
            continue  # its items are wrong, and told one by one
        path = _written_path((*within, *item["loc"]), source)
        if item["type"] == "value_error" and path not in source.lines:
            path = path[:-1]  # said of a member of a union as a whole
        text = _problem(
            item["type"], item["msg"], item.get("ctx", {}), item["loc"], item["input"], model
        )
        found.append((source.line_of(path), source.error(path, text)))
    return [text for _, text in sorted(found)]


def _written_path(location: tuple[str | int, ...], source: SourceDocument) -> KeyPath:
    """Return the location without the names of unions' members, which nobody wrote."""
    path: KeyPath = ()
    for index, part in enumerate(location):
        last = index == len(location) - 1
        if (*path, part) in source.lines or last:
            path = (*path, part)
    return path


def _problem(
    kind: str,
    message: str,
    context: dict[str, Any],
    location: tuple[str | int, ...],
    said: object,
    model: Any,
) -> str:
    if kind == "extra_forbidden":
        names = _field_names(model, location[:-1])
        return f"unknown field. Valid: {', '.join(names)}{meant(location[-1], names)}"
    if kind == "missing":
        return "is required"
    if kind == "too_short":
        if context["min_length"] > 1:
            return f"has too few entries. Name at least {context['min_length']}"
        return "is empty. Name at least one, or leave the field out"
    if kind in ("tuple_type", "list_type"):
        return "must be a list"
    if kind in ("literal_error", "enum"):
        return _unknown("value", said, context.get("expected", ""))
    if kind == "union_tag_invalid":
        return _unknown(context["discriminator"], context["tag"], context["expected_tags"])
    if kind == "union_tag_not_found":
        return f"{context['discriminator']} is required"
    text = message.removeprefix("Value error, ")
    return text[:1].lower() + text[1:] if text.startswith("Input ") else text


def _unknown(what: str, said: object, valid: str) -> str:
    return f"unknown {what}. Valid: {valid}{meant(said, re.findall("'([^']*)'", valid))}"


def meant(word: object, valid: Collection[str]) -> str:
    """Return ``. Did you mean …?`` for a word that is nearly one of the valid ones."""
    said = str(word).strip().casefold()
    by_case = {one.casefold(): one for one in valid}
    longer = [one for one in by_case if len(said) > 3 and one.startswith(said)]
    found = longer or get_close_matches(said, by_case, 1)
    return f". Did you mean {' or '.join(by_case[one] for one in found)}?" if found else ""


def _field_names(model: Any, location: tuple[str | int, ...]) -> list[str]:
    names: set[str] = set()
    for found in _models_at(model, location):
        names |= {field.alias or name for name, field in found.model_fields.items()}
    return sorted(names)


def _models_at(annotation: Any, location: tuple[str | int, ...]) -> Iterator[type[BaseModel]]:
    """Yield the models that a location can mean, through lists, mappings and unions."""
    if isinstance(annotation, TypeAliasType):
        yield from _models_at(annotation.__value__, location)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if not location:
            yield annotation
            return
        for name, field in annotation.model_fields.items():
            if location[0] in (name, field.alias):
                yield from _models_at(field.annotation, location[1:])
    elif get_origin(annotation) in (Union, types.UnionType, Annotated):
        members = get_args(annotation)
        for member in members[:1] if get_origin(annotation) is Annotated else members:
            yield from _models_at(member, location)
            if location and _is_tag(member, location[0]):
                yield from _models_at(member, location[1:])
    elif get_args(annotation) and location:
        for member in get_args(annotation):
            yield from _models_at(member, location[1:])


def _is_tag(member: Any, part: str | int) -> bool:
    """Return whether ``part`` is the discriminator's value for this member of a union."""
    if get_origin(member) is Annotated:
        return any(isinstance(one, Tag) and one.tag == part for one in get_args(member)[1:])
    fields = getattr(member, "model_fields", {})
    return any(part in get_args(field.annotation) for field in fields.values())
