"""The one shape of all documents: ``apiVersion, kind, metadata, spec``."""

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from trajectory.canonical import JsonObject
from trajectory.documents.problems import validate
from trajectory.documents.source import read_document

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"


class StrictModel(BaseModel):
    """Base of the parts of documents: unknown fields are errors, numbers finite, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DocumentMetadata(StrictModel):
    """Who a document is."""

    name: str = Field(pattern=NAME_PATTERN)
    description: str = Field(default="", description="What the document promises, for its readers.")


class Document(StrictModel):
    """A document; each kind has its own ``spec``."""

    apiVersion: Literal["headrace/v1"]  # noqa: N815 (the name in YAML)
    kind: str
    metadata: DocumentMetadata


def load_document[D: Document](model: type[D], path: Path) -> D:
    """Return the document in a file.

    Raises:
        DocumentError: it is wrong; each line names file, line and field.
    """
    return validate(model, read_document(path))


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


def json_schema(models: Iterable[type[BaseModel]]) -> JsonObject:
    """Return the schema (draft 2020-12) that a document of any of these kinds must fit."""
    either: Any = Annotated[reduce(or_, models), Field(discriminator="kind")]
    schema = cast(JsonObject, TypeAdapter[object](either).json_schema(by_alias=True))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Headrace document",
        **schema,
    }
