"""The JSON Schema of policy documents, for editors and for checks elsewhere."""

from typing import cast

from pydantic import TypeAdapter

from governance.policy.documents import Document
from trajectory.canonical import JsonObject


def json_schema() -> JsonObject:
    """Return the schema (draft 2020-12) that one policy document must fit."""
    schema = cast(JsonObject, TypeAdapter[object](Document).json_schema(by_alias=True))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Headrace policy document",
        **schema,
    }
