"""Operations of plain HTTP tools: patterns, types, OpenAPI documents."""

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory.dialects.operations import operation, read_openapi

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "servers": [{"url": "https://shop.example/api/v2"}],
    "paths": {
        "/orders/{order_id}": {
            "parameters": [{"$ref": "#/components/parameters/order"}],
            "get": {
                "operationId": "getOrder",
                "parameters": [
                    {"name": "full", "in": "query", "schema": {"type": "boolean"}},
                    {"name": "x-trace", "in": "header", "schema": {"type": "string"}},
                ],
            },
            "delete": {},
        },
        "/orders/latest": {"get": {"operationId": "latestOrder"}},
    },
    "components": {
        "parameters": {
            "order": {
                "name": "order_id",
                "in": "path",
                "schema": {"$ref": "#/components/schemas/Id"},
            }
        },
        "schemas": {"Id": {"type": "integer"}},
    },
}


def test_a_pattern_gives_its_variables_with_their_types() -> None:
    found = operation("items", "get", "/orders/{order_id:integer}/items/{name}")
    assert found.method == "GET"
    assert found.arguments("/orders/17/items/blue%20lamp/") == {
        "order_id": 17,
        "name": "blue lamp",
    }
    assert found.arguments("/orders/x17/items/a") == {"order_id": "x17", "name": "a"}
    assert found.arguments("/orders/17/items") is None
    assert found.arguments("/orders/1/2/items/a") is None


@given(st.text(min_size=1, max_size=20).filter(lambda text: "/" not in text))
def test_any_text_comes_back(text: str) -> None:
    found = operation("one", "GET", "/a/{value}/b")
    assert found.arguments(f"/a/{quote(text, safe='')}/b") == {"value": text}


@given(st.text(max_size=30))
def test_any_path_is_survived(path: str) -> None:
    operation("one", "GET", "/a/{value:number}").arguments(path)


@pytest.mark.parametrize("path", ["orders", "/a/{b", "/a/}", "/a/{}", "/a/{b:date}"])
def test_what_is_no_pattern_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is not a path like"):
        operation("one", "GET", path)


def test_an_openapi_document() -> None:
    found = {one.name: one for one in read_openapi(DOCUMENT)}
    assert list(found) == ["getOrder", "delete_orders_order_id", "latestOrder"]
    order = found["getOrder"]
    assert order.types == {"order_id": "integer", "full": "boolean"}
    for path in ("/api/v2/orders/7", "/orders/7"):
        assert order.arguments(path) == {"order_id": 7}
    assert order.typed("full", "true") is True
    assert order.typed("full", "maybe") == "maybe"


@pytest.mark.parametrize("document", [{}, {"paths": {}}, {"openapi": "3.1.0", "paths": {}}])
def test_what_is_no_openapi_document_is_refused(document: Any) -> None:
    with pytest.raises(ValueError, match="OpenAPI document"):
        read_openapi(document)


def test_a_reference_to_itself_ends() -> None:
    loop = {"$ref": "#/components/parameters/loop"}
    document: Any = {
        "swagger": "2.0",
        "basePath": "/v1",
        "paths": {"/a": {"get": {"parameters": [loop]}}},
        "components": {"parameters": {"loop": loop}},
    }
    assert [one.name for one in read_openapi(document)] == ["get_a"]
