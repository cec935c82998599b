"""Plain HTTP tools: operations become tool steps, joined to the model step that asked for them."""

import json
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trajectory.dialects.test_hostile import check
from tests.trajectory.dialects.test_operations import DOCUMENT
from tests.trajectory.world import World, user
from trajectory.assembly import Assembler
from trajectory.call import Call, CallKind
from trajectory.dialects.http_tools import HttpTools
from trajectory.dialects.operations import operation, read_openapi
from trajectory.dialects.registry import read_calls, read_exchange
from trajectory.exchange import ExchangeOutcome

TOOLS = HttpTools(
    {
        "model": [  # the route of the scripted world
            operation("search", "GET", "/search"),
            operation("create", "POST", "/orders"),
            operation("order", "GET", "/orders/{order_id:integer}"),
            *read_openapi(DOCUMENT),
        ]
    },
    {"model": ("/shop",)},
)


def call(path: str, request: Any = b"", response: Any = b"", **settings: Any) -> Call:
    query = settings.pop("query", "")
    exchange = World().exchange(path, request, response, **settings)
    asked = replace(exchange.request, query=query)
    (found,) = read_calls(replace(exchange, request=asked), (TOOLS,))
    check(found)
    return found


def test_path_query_and_body_are_the_arguments() -> None:
    found = call("/shop/search", b"", {"hits": 2}, method="GET", query="q=lamp&tag=a&tag=b&empty=")
    assert found.dispatch is not None
    assert found.dispatch.arguments == {"q": "lamp", "tag": ["a", "b"], "empty": ""}
    assert found.dispatch.result == {"hits": 2}
    assert (found.kind, found.dispatch.name) == (CallKind.TOOL, "search")
    body = {"item": "lamp", "quantity": 3}
    made = call("/orders", body, {"id": 17}, headers={"content-type": "application/json"})
    assert made.dispatch is not None
    assert made.dispatch.arguments == body
    looked = call("/api/v2/orders/17", b"", {"id": 17}, method="GET", query="full=true")
    assert looked.dispatch is not None
    assert looked.dispatch.arguments == {"order_id": 17, "full": True}


def test_the_more_exact_path_counts() -> None:
    found = call("/orders/latest", b"", {"id": 17}, method="GET")
    assert found.dispatch is not None
    assert found.dispatch.name == "latestOrder"


@pytest.mark.parametrize(
    ("kind", "body", "arguments"),
    [
        ("application/x-www-form-urlencoded", b"item=blue+lamp", {"item": "blue lamp"}),
        ("application/json", b"[1, 2]", {"body": [1, 2]}),
        ("text/plain", "Grüße".encode(), {"body": "Grüße"}),
    ],
)
def test_bodies_of_other_kinds(kind: str, body: bytes, arguments: Any) -> None:
    found = call("/orders", body, {}, headers={"content-type": kind})
    assert found.dispatch is not None
    assert found.dispatch.arguments == arguments


SECRET = "Xy7_short"


@pytest.mark.parametrize(
    "grant",
    [
        {"grant_type": "authorization_code", "code": SECRET, "code_verifier": SECRET},
        {"grant_type": "client_credentials", "client_assertion": SECRET, "client_id": "shop"},
        {"grant_type": "refresh_token", "refresh_token": SECRET, "clientSecret": SECRET},
        {"client_assertion": SECRET, "token": SECRET},
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded"])
def test_a_token_request_keeps_no_credential(grant: dict[str, str], kind: str) -> None:
    body = json.dumps(grant) if kind.endswith("json") else urlencode(grant)
    answer = {"access_token": SECRET, "id_token": SECRET, "expires_in": 60, "scope": "orders"}
    found = call("/orders", body.encode(), answer, headers={"content-type": kind})
    assert found.dispatch is not None
    assert SECRET not in json.dumps([found.dispatch.arguments, found.dispatch.result])
    assert found.dispatch.arguments.keys() == grant.keys()  # type: ignore[union-attr]
    result = found.dispatch.result
    assert isinstance(result, dict)
    assert (result["expires_in"], result["scope"]) == (60, "orders")


def test_an_app_id_that_is_a_key_is_not_kept_and_code_for_a_tool_is() -> None:
    key = "9d8f" * 8
    sent = {"appid": key, "code": "print(1)", "token": "lamp"}
    found = call("/orders", sent, {"id": 1}, headers={"content-type": "application/json"})
    assert found.dispatch is not None
    assert found.dispatch.arguments == {**sent, "appid": "[credential]"}
    short = call("/orders", {"appid": "shop"}, {}, headers={"content-type": "application/json"})
    assert short.dispatch is not None
    assert short.dispatch.arguments == {"appid": "shop"}


def test_bytes_are_named_not_kept() -> None:
    found = call(
        "/orders", b"\xff\xd8", b"\x89PNG", headers={"content-type": "image/jpeg"},
        response_headers={"content-type": "image/png"},
    )  # fmt: skip
    assert found.dispatch is not None
    assert found.dispatch.arguments["body"]["media_type"] == "image/jpeg"  # type: ignore[index,call-overload]
    assert found.dispatch.result["size_bytes"] == 4  # type: ignore[index,call-overload]


def test_errors_and_broken_answers() -> None:
    refused = call("/orders/9", b"", {"detail": "no such order"}, method="GET", status=404)
    assert refused.dispatch is not None
    assert (refused.dispatch.is_error, refused.error) == (True, "no such order")
    gone = call("/orders/9", b"", None, method="GET", outcome=ExchangeOutcome.UPSTREAM_ABORT)
    assert gone.error == "no response: upstream_abort"
    cut = call("/orders/9", b"", b'{"a', method="GET", outcome=ExchangeOutcome.UPSTREAM_ABORT)
    assert cut.error == "unreadable response:not-json"
    assert call("/orders/9", b"", b'{"a', method="GET").problem == "response:not-json"


def test_what_no_operation_names_is_not_a_tool() -> None:
    assert call("/other", b"", {}, method="GET").problem == "dialect:unknown"
    assert call("/orders/17", b"", {}, method="PUT").problem == "dialect:unknown"


def test_it_is_joined_to_the_step_that_asked() -> None:
    world = World()
    function = {"name": "order", "arguments": '{"order_id": 17}'}
    asked = {"tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    message = {"role": "assistant", "content": None, **asked}
    answer = {"id": "r1", "choices": [{"index": 0, "message": message}]}
    model = world.exchange("/v1/chat/completions", {"messages": [user("where?")]}, answer)
    tool = world.exchange("/orders/17", b"", {"state": "sent"}, method="GET")
    calls = [found for exchange in (model, tool) for found in read_calls(exchange, (TOOLS,))]
    first, second = Assembler(b"k" * 32).assemble(calls).placed
    assert second.parent_step_id == first.step_id
    assert second.key_source == "tool_call"


@given(st.data())
def test_any_request_is_survived(data: st.DataObject) -> None:
    world = World()
    body = data.draw(st.binary(max_size=20) | st.just(json.dumps({"a": [1]}).encode()))
    kinds = ["application/json", "application/x-www-form-urlencoded", "text/plain", "", "image/x"]
    exchange = world.exchange(
        data.draw(st.sampled_from(["/orders", "/orders/9", "/search"])),
        body,
        data.draw(st.binary(max_size=20)),
        method=data.draw(st.sampled_from(["GET", "POST"])),
        headers={"content-type": data.draw(st.sampled_from(kinds))},
        response_headers={"content-type": data.draw(st.sampled_from(kinds))},
        outcome=data.draw(st.sampled_from(list(ExchangeOutcome))),
    )
    check(read_exchange(exchange, (TOOLS,)))


def test_the_address_is_told_whole_so_that_a_secret_in_it_is_known_by_its_host() -> None:
    found = call("/orders/9", b"", {"id": 9}, method="GET")
    assert found.ext == {"method": "GET", "url": f"{found.exchange.upstream}/orders/9"}
