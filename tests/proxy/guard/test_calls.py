"""The tool calls in requests: all are found, and what some receivers would read otherwise is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.guard.calls import ReadRequest, UnreadableCallError, read_request
from proxy.guard.conditions import ArgumentCondition, ArgumentTest
from proxy.guard.elicitation import ElicitedAnswer
from proxy.guard.json_path import JsonPath
from proxy.guard.rules import RequestedCall
from trajectory.assembly.effects import SideEffect
from trajectory.dialects.operations import operation

CALLER = RequestedCall("", None, tenant="acme")
OPERATIONS = (
    operation("get_order", "GET", "/orders/{id:integer}"),
    operation("cancel_order", "POST", "/orders/{id:integer}/cancel"),
)
JSON = ((b"content-type", b"application/json"),)


def read(body: Any, method: bytes = b"POST", path: bytes = b"/mcp", **more: Any) -> ReadRequest:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = more.pop("fields", JSON)
    operations = more.pop("operations", None)
    return read_request(method, path, fields, raw, caller=CALLER, operations=operations, **more)


def rpc(method: str, params: Any = None, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params, **more}


def test_a_call_of_mcp() -> None:
    meta = {"progressToken": 5}
    told = read(rpc("tools/call", {"name": "f", "arguments": {"a": 1}, "_meta": meta}))
    (one,) = told.calls
    assert (one.call.tool, one.call.arguments, one.call.tenant) == ("f", {"a": 1}, "acme")
    assert (one.request_id, one.progress, told.answers) == (1, 5, ((1, "tools/call"),))


def test_an_answer_to_the_gateway_is_for_nobody_else() -> None:
    answer = {"jsonrpc": "2.0", "id": "headrace-approval-1", "result": {"action": "accept"}}
    assert read(answer).answered == ElicitedAnswer("headrace-approval-1", approves=True)
    assert read({**answer, "id": 1}).answered is None
    with pytest.raises(UnreadableCallError, match="within a batch"):
        read([rpc("ping"), answer])
    with pytest.raises(UnreadableCallError):
        read(json.dumps(answer).replace('"id"', '"id": 1, "id"').encode())
    # With a method it is a request, whatever else it says.
    (one,) = read({**answer, **rpc("tools/call", {"name": "f"})}).calls
    assert one.call.tool == "f"


def test_a_session_begins_with_what_its_client_can_do() -> None:
    assert read(rpc("initialize", {"capabilities": {"elicitation": {}}})).can_elicit
    assert not read(rpc("initialize", {"capabilities": {}})).can_elicit
    assert not read(rpc("tools/list", {"capabilities": {"elicitation": {}}})).can_elicit


def test_calls_of_a_batch_are_all_found() -> None:
    call = rpc("tools/call", {"name": "f"})
    told = read([rpc("ping"), call, {**call, "id": 2}])
    assert told.is_batch
    assert [one.request_id for one in told.calls] == [1, 2]
    assert [one for one, _ in told.answers] == [1, 1, 2]


@pytest.mark.parametrize(
    ("method", "params", "tool", "arguments"),
    [
        ("resources/read", {"uri": "file:///x"}, "resources/read", {"uri": "file:///x"}),
        ("prompts/get", {"name": "p"}, "prompts/get", {"name": "p"}),
        ("message/send", {"message": {"parts": []}}, "message/send", {"parts": []}),
        ("SendMessage", {"message": {"parts": []}}, "SendMessage", {"parts": []}),
        ("server/own", {"a": 1}, "server/own", {"a": 1}),
    ],
)
def test_other_methods_that_do_something_are_tools_too(
    method: str, params: Any, tool: str, arguments: Any
) -> None:
    (one,) = read(rpc(method, params)).calls
    assert (one.call.tool, one.call.arguments) == (tool, arguments)


@pytest.mark.parametrize(
    "method",
    ["initialize", "ping", "tools/list", "logging/setLevel", "notifications/initialized",
     "tasks/get", "GetTask", "agent/getAuthenticatedExtendedCard"],
)  # fmt: skip
def test_methods_that_call_nothing_pass(method: str) -> None:
    assert read(rpc(method)).calls == ()


def test_what_a_client_answers_its_server_passes() -> None:
    assert read({"jsonrpc": "2.0", "id": 1, "result": {"action": "accept"}}).calls == ()


CALL = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"f","arguments":{}}}'


@pytest.mark.parametrize(
    "body",
    [
        CALL.replace('"method"', '"Method"'),
        CALL.replace("{", '{"METHOD":"ping",', 1),
        CALL.replace("tools/call", "TOOLS/CALL"),
        CALL.replace("tools/call", "tools/call "),
        CALL.replace("tools/call", "tools/call\\u200b"),
        CALL.replace('"name"', '"Name"'),
        CALL.replace('"name":"f"', '"name":"f","name":"g"'),
        CALL.replace('"name":"f"', '"name":"f","NAME":"g"'),
        CALL.replace('"f"', '"ｆ"'),
        CALL.replace('"f"', '"f\\u0000"'),
        CALL.replace('"f"', '["f"]'),
        CALL.replace('"f"', "null"),
        CALL.replace('{"name":"f","arguments":{}}', '["f", {}]'),
        CALL.replace('"tools/call"', "7"),
        CALL.replace('"id":1', '"id":{"a":1}'),
        CALL.replace("{}", "1e999"),
        "[]",
        "[1]",
        "[[" + CALL + "]]",
        "null",
        "",
        CALL + CALL,
        CALL + "\n" + CALL,
    ],
)
def test_what_could_be_another_call_is_refused(body: str) -> None:
    with pytest.raises(UnreadableCallError):
        read(body.encode())


@pytest.mark.parametrize(
    "fields",
    [
        ((b"content-encoding", b"gzip"),),
        ((b"content-type", b"application/json; charset=utf-16"),),
        ((b"upgrade", b"websocket"),),
        ((b"x-http-method-override", b"DELETE"),),
        ((b"content-encoding", b"identity"), (b"content-encoding", b"gzip")),
        (*JSON, (b"content-type", b"application/json; charset=utf-16")),
        (*JSON, *JSON),
    ],
)
def test_heads_that_change_what_a_body_says_are_refused(fields: Any) -> None:
    with pytest.raises(UnreadableCallError):
        read(CALL.encode(), fields=fields)
    assert read(CALL.encode(), fields=((b"content-type", b"text/plain; charset=UTF-8"),)).calls


def test_other_ways_to_send_a_body_are_refused() -> None:
    for method in (b"PUT", b"PATCH", b"GET", b"DELETE"):
        with pytest.raises(UnreadableCallError):
            read(CALL.encode(), method=method)
    assert read(b"", method=b"GET").calls == ()
    for path in (b"/mcp/../x", b"/mcp/%2e%2e/x"):
        with pytest.raises(UnreadableCallError):
            read(CALL.encode(), path=path)


def test_a2a_over_plain_http() -> None:
    told = read({"message": {"parts": []}}, path=b"/v1/message:send")
    assert not told.is_rpc
    assert told.calls[0].call.tool == "message/send"
    assert told.calls[0].call.arguments == {"parts": []}


def test_operations_of_a_plain_http_tool() -> None:
    told = read({"why": "late"}, path=b"/orders/7/cancel?notify=yes", operations=OPERATIONS)
    (one,) = told.calls
    assert one.call.tool == "cancel_order"
    assert one.call.arguments == {"id": 7, "notify": "yes", "why": "late"}
    got = read(b"", method=b"GET", path=b"/orders/7", operations=OPERATIONS, fields=()).calls[0]
    assert (got.call.tool, got.call.effect) == ("get_order", SideEffect.READ)


def test_head_is_a_call_of_what_get_does() -> None:
    more = (*OPERATIONS, operation("look_up", "HEAD", "/orders/{id:integer}"))
    for operations, tool in ((OPERATIONS, "get_order"), (more, "look_up")):
        (one,) = read(b"", method=b"HEAD", path=b"/orders/7", operations=operations).calls
        assert (one.call.tool, one.call.arguments) == (tool, {"id": 7})


def test_what_nobody_described_is_a_tool_by_method_and_path() -> None:
    (one,) = read(b"", method=b"DELETE", path=b"/orders/7", operations=OPERATIONS).calls
    assert (one.call.tool, one.call.effect) == ("DELETE:/orders/7", SideEffect.DESTRUCTIVE)


def test_an_operation_behind_a_base() -> None:
    (one,) = read(
        b"", method=b"GET", path=b"/api/orders/7", operations=OPERATIONS, bases=("/api",)
    ).calls
    assert one.call.tool == "get_order"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (b"/orders/7/cancel?id=8", b""),
        (b"/orders/7/cancel?a=1&a=2", b""),
        (b"/orders/7/cancel?a=1", b'{"a": 2}'),
        (b"/orders/7/cancel", b'{"a": 1, "a": 2}'),
    ],
)
def test_an_argument_that_is_given_twice_is_refused(path: bytes, body: bytes) -> None:
    with pytest.raises(UnreadableCallError):
        read(body, path=path, operations=OPERATIONS)


@pytest.mark.parametrize(
    "path",
    [
        b"/orders/7/%63ancel",
        b"//orders/7/cancel",
        b"/orders//7/cancel",
        b"/orders/7/cancel//",
        b"/orders/7/./cancel",
        b"/orders/7/%2e/cancel",
        b"/orders/7%2fcancel",
        b"/orders/7%252Fcancel",
        b"/orders/7%c0%afcancel",
        b"/orders/7\\cancel",
        b"/orders/7/cancel;x=1",
        b"/orders/7/cancel%3bx=1",
        b"/orders/7/cancel%20",
        b"/orders/7/cancel%00",
        b"/orders/7/can%00cel",
        b"/orders/7/cancel%23x",
        b"/orders/7/cancel.json",
        b"/ORDERS/7/Cancel",
        b"/api//orders/7/cancel",
    ],
)
def test_a_path_that_a_server_could_take_for_an_operation_s_is_refused(path: bytes) -> None:
    with pytest.raises(UnreadableCallError):
        read(b"", path=path, operations=OPERATIONS, bases=("/api",))


def test_a_path_that_is_an_operation_s_own_way_to_write_it_is_read() -> None:
    files = (operation("read_file", "GET", "/files/{path}"), *OPERATIONS)
    for path, found in ((b"/files/a%2Fb", "a/b"), (b"/files/a%20b.json", "a b.json")):
        (one,) = read(b"", method=b"GET", path=path, operations=files).calls
        assert (one.call.tool, one.call.arguments) == ("read_file", {"path": found})
    # Another operation could be meant.
    more = (*files, operation("read_secret", "GET", "/files/secret/{name}"))
    with pytest.raises(UnreadableCallError):
        read(b"", method=b"GET", path=b"/files/secret%2Fa", operations=more)


def test_what_nobody_described_has_the_name_that_its_server_reads() -> None:
    for path in (b"/%61dmin/x", b"//admin/x", b"/admin\\x", b"/admin%2Fx", b"/admin;a=1/x"):
        (one,) = read(b"", path=path, operations=OPERATIONS).calls
        assert one.call.tool == "POST:/admin/x"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("kind", [b"application/json", b"text/plain"])
def test_json_in_another_encoding_is_refused(encoding: str, kind: bytes) -> None:
    body, fields = '{"amount": 5000}'.encode(encoding), ((b"content-type", kind),)
    with pytest.raises(UnreadableCallError):
        read(body, path=b"/orders/7/cancel", operations=OPERATIONS, fields=fields)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"application/json", b"amount=5000"),
        (b"application/vnd.shop+json", b"amount: 5000"),
        (b"application/x-www-form-urlencoded", b'{"amount": 5000}'),
        (b"application/x-www-form-urlencoded", b"amount=\xff"),
    ],
)
def test_a_body_that_is_not_what_its_head_says_is_refused(kind: bytes, body: bytes) -> None:
    fields = ((b"content-type", kind),)
    with pytest.raises(UnreadableCallError):
        read(body, path=b"/orders/7/cancel", operations=OPERATIONS, fields=fields)


FORM = b"application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        (b"?_method=DELETE", b"application/json", b"{}"),
        (b"?_METHOD=DELETE", b"application/json", b""),
        (b"", FORM, b"_method=DELETE"),
        (b"", FORM, b"%5Fmethod=put"),
        (b"", FORM, b".method=put"),
        (b"", b"application/json", b'{"_method": "DELETE"}'),
    ],
)
def test_another_method_in_an_argument_is_refused(path: bytes, kind: bytes, body: bytes) -> None:
    """Rails, Laravel and others do what it says."""
    fields = ((b"content-type", kind),)
    with pytest.raises(UnreadableCallError, match="another method"):
        read(body, path=b"/orders/7" + path, operations=OPERATIONS, fields=fields)
    (one,) = read(b"", method=b"GET", path=b"/orders/7?_method=x", operations=OPERATIONS).calls
    assert one.call.arguments == {"id": 7, "_method": "x"}


def test_fields_behind_a_semicolon_are_refused() -> None:
    for path, body in ((b"?a=1;amount=5", b""), (b"", b"a=1;amount=5"), (b"?amount=5;", b"")):
        with pytest.raises(UnreadableCallError, match="part differently"):
            read(
                body,
                path=b"/orders/7/cancel" + path,
                operations=OPERATIONS,
                fields=((b"content-type", FORM),),
            )
    (one,) = read(b"", path=b"/orders/7/cancel?a=1%3Bb", operations=OPERATIONS).calls
    assert one.call.arguments == {"id": 7, "a": "1;b"}


def test_a_name_is_seen_as_php_reads_it() -> None:
    path = b"/orders/7/cancel?card.number=5&the%20name=x&plain=y"
    (one,) = read(b"", path=path, operations=OPERATIONS).calls
    told = one.call.arguments
    assert isinstance(told, dict)
    assert (told["card_number"], told["the_name"], told["plain"]) == ("5", "x", "y")
    for odd in (b"%20amount=5", b"amount%00=5", b"amount%00x=5", b"amount%20=5", b"a%0Ab=5"):
        with pytest.raises(UnreadableCallError, match="read differently"):
            read(b"", path=b"/orders/7/cancel?" + odd, operations=OPERATIONS)


def test_a_form_is_one_as_lenient_servers_read_its_head() -> None:
    for kind in (FORM + b", x", FORM + b" x", FORM.upper() + b";charset=utf-8"):
        fields = ((b"content-type", kind),)
        (one,) = read(b"a=1", path=b"/orders/7/cancel", operations=OPERATIONS, fields=fields).calls
        assert one.call.arguments == {"id": 7, "a": "1"}
    for without in ((), ((b"content-type", b""),)):
        with pytest.raises(UnreadableCallError):
            read(b"a=1", path=b"/orders/7/cancel", operations=OPERATIONS, fields=without)
        (one,) = read(
            b"late", path=b"/orders/7/cancel", operations=OPERATIONS, fields=without
        ).calls
        assert one.call.arguments == {"id": 7, "body": "late"}


@pytest.mark.parametrize(
    ("query", "path", "amount"),
    [
        ("amount[]=5000", "$.amount", 1000),
        ("amount[0]=5000", "$.amount", 1000),
        ("payment[amount]=5000", "$.payment.amount", 1000),
        ("payment[to]=a&payment[amount]=5000&payment[by]=b", "$.payment.amount", 1000),
        ("payments[1][amount]=5&payments[0][amount]=5000", "$.payments[*].amount", 1000),
        ("payment.amount=5000", "$.payment.amount", 1000),
        ("a[payments][0][amount]=5000", "$..amount", 1000),
        ("payments[][amount]=5000", "$.payments[*].amount", 1000),
    ],
)
@pytest.mark.parametrize("in_form", [True, False])
def test_arguments_in_brackets_are_seen_as_servers_nest_them(
    query: str, path: str, amount: float, in_form: bool
) -> None:
    form = ((b"content-type", b"application/x-www-form-urlencoded"),)
    body, target = (query.encode(), "") if in_form else (b"", f"?{query}")
    told = read(
        body, path=b"/orders/7/cancel" + target.encode(), operations=OPERATIONS, fields=form
    )
    condition = ArgumentCondition(JsonPath.parse(path), ArgumentTest.ABOVE, (amount,))
    answer = condition.answer(told.calls[0].call.arguments)
    assert (answer.possibly, answer.surely) == (True, False)


def test_an_argument_with_and_without_brackets_is_given_twice() -> None:
    twice = (
        b"amount=5&amount[]=5000",
        b"amount[]=5000&amount=5",
        b"a[b]=1&a[b][c]=2",
        b"a.b=1&a[b]=2",
    )
    for query in twice:
        with pytest.raises(UnreadableCallError):
            read(b"", path=b"/orders/7/cancel?" + query, operations=OPERATIONS)


def test_a_text_for_a_plain_http_tool_is_its_body() -> None:
    fields = ((b"content-type", b"text/plain"),)
    (one,) = read(b"hello", path=b"/orders/7/cancel", operations=OPERATIONS, fields=fields).calls
    assert one.call.arguments == {"id": 7, "body": "hello"}


def test_a_form_is_read_and_one_in_parts_is_not() -> None:
    form = ((b"content-type", b"application/x-www-form-urlencoded"),)
    (one,) = read(b"a=1&b=%20", path=b"/orders/7/cancel", operations=OPERATIONS, fields=form).calls
    assert one.call.arguments == {"id": 7, "a": "1", "b": " "}
    parts = ((b"content-type", b"multipart/form-data; boundary=x"),)
    with pytest.raises(UnreadableCallError):
        read(b"--x", path=b"/orders/7/cancel", operations=OPERATIONS, fields=parts)


KINDS = ["application/json", "application/x-www-form-urlencoded", "text/plain"]


@given(st.binary(max_size=60), st.sampled_from(KINDS))
def test_bytes_of_any_kind_are_read_or_refused(body: bytes, kind: str) -> None:
    fields = ((b"content-type", kind.encode()),)
    for operations in (None, OPERATIONS):
        try:
            read(body, path=b"/orders/7/cancel", operations=operations, fields=fields)
        except UnreadableCallError:
            continue


@given(st.binary(max_size=40))
def test_paths_of_any_kind_are_read_or_refused(path: bytes) -> None:
    try:
        read(b"", path=b"/orders/" + path, operations=OPERATIONS)
    except UnreadableCallError:
        return
