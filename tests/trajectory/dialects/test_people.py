"""Whom a request names, in every place that the dialects and applications have for it."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from trajectory.call import Call
from trajectory.canonical import JsonObject
from trajectory.dialects.mcp import with_answer
from trajectory.dialects.registry import read_exchange
from trajectory.exchange import (
    ClientIdentity,
    Exchange,
    ExchangeOutcome,
    Headers,
    HttpRequest,
    HttpResponse,
    SpoolPosition,
)
from trajectory.reader import read_records

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
CHAT, GEMINI = "/v1/chat/completions", "/v1/models/gemini-x:generateContent"
RESPONSES, BEDROCK = "/v1/responses", "/model/nova/converse"
TOOL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
SEND = {"jsonrpc": "2.0", "id": 1, "method": "message/send"}
ASK: JsonObject = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "elicitation/create",
    "params": {"message": "Sure?", "_meta": {"user_id": "q"}},
}


def read(path: str, body: JsonObject, headers: Headers = ()) -> Call:
    exchange = Exchange(
        exchange_id="0" * 32,
        client=ClientIdentity("acme", "shop", "prod", "key1", ()),
        route="r",
        mode="base_url",
        upstream="https://api.example:443",
        started_at=NOW,
        first_byte_at=NOW,
        ended_at=NOW,
        request=HttpRequest("POST", path, "", headers, json.dumps(body).encode()),
        response=HttpResponse(200, (("content-type", "application/json"),), b"{}"),
        outcome=ExchangeOutcome.COMPLETE,
        position=SpoolPosition("w1", 0, 1),
    )
    return read_exchange(exchange)


@pytest.mark.parametrize(
    ("path", "body", "headers", "named"),
    [
        (CHAT, {"user": "a", "safety_identifier": "b"}, (), ("a", "b")),
        (CHAT, {"safety_identifier": "b"}, (), ("b",)),
        (CHAT, {"metadata": {"user_id": "123456"}, "user": "a"}, (), ("a", "123456")),
        (CHAT, {"metadata": {"user_id": 77}}, (), ("77",)),
        (CHAT, {"user": 77}, (), ("77",)),
        (RESPONSES, {"input": "x", "user": 77}, (), ("77",)),
        (CHAT, {"user": True, "safety_identifier": 1.5}, (), ()),
        ("/v1/messages", {"metadata": {"user_id": 77}}, (), ("77",)),
        (CHAT, {"user": "a", "metadata": {"user_id": "a"}}, (), ("a",)),
        (CHAT, {"user": "  ", "prompt_cache_key": "p"}, (), ()),
        (RESPONSES, {"input": "x", "metadata": {"end_user_id": "e"}}, (), ("e",)),
        ("/v1/messages", {"metadata": {"user_id": "123456"}}, (), ("123456",)),
        (GEMINI, {"labels": {"user_id": "9"}}, (), ("9",)),
        (BEDROCK, {"requestMetadata": {"user_id": "9"}}, (), ("9",)),
        ("/mcp", {**TOOL, "params": {"name": "t", "_meta": {"openai/subject": "s"}}}, (), ("s",)),
        (
            "/v1/realtime",
            {"session": {}, "response": {"metadata": {"user_id": "9"}}, "items": []},
            (),
            ("9",),
        ),
        (
            "/v1/realtime",
            {
                "session": {"tracing": {"metadata": {"user_id": "t"}}},
                "response": {"metadata": {"user_id": "9"}},
                "items": [],
            },
            (),
            ("9", "t"),
        ),
        ("/v1/realtime", {"session": {"tracing": "auto"}, "items": []}, (), ()),
        ("/mcp", ASK, (("x-headrace-origin", "server"),), ("q",)),
        (
            "/agent",
            {
                **SEND,
                "params": {"message": {"metadata": {"userId": "m"}}, "metadata": {"user_id": "p"}},
            },
            (),
            ("p", "m"),
        ),
        ("/agent/message:send", {"message": {"metadata": {"end_user": "m"}}}, (), ("m",)),
        (CHAT, {"user": "a"}, (("x-headrace-end-user", "h"),), ("h", "a")),
        (
            CHAT,
            {},
            (("x-headrace-end-user", "J\udcfcrgen"),),
            ("J\u00fcrgen",),
        ),  # Latin-1, as Node sends
        (CHAT, {}, (("x-headrace-end-user", "J\u00fcrgen"),), ("J\u00fcrgen",)),
        (CHAT, {}, (("openai-safety-identifier", "s"),), ("s",)),
        (CHAT, {}, (("baggage", "x=1,enduser.id=j%20d;p=1,user.id=u"),), ("j d", "u")),
        (CHAT, {"metadata": "no map", "labels": ["user_id"]}, (), ()),
    ],
)
def test_everybody_is_named(
    path: str, body: JsonObject, headers: Headers, named: tuple[str, ...]
) -> None:
    call = read(path, body, headers)
    assert call.kind != "opaque"
    assert call.people == named


def test_an_answer_to_a_servers_question_is_of_whom_either_names() -> None:
    """Also where it is read again without the stream that brought the question."""
    answer: JsonObject = {"action": "accept", "_meta": {"user_id": "a"}}
    session = (("mcp-session-id", "s"),)
    posted = read("/mcp", {"jsonrpc": "2.0", "id": 1, "result": answer}, session).exchange
    told = b"data: " + json.dumps(ASK).encode() + b"\n\n"
    stream = replace(
        posted,
        exchange_id="1" * 32,
        request=replace(posted.request, method="GET", body=b""),
        response=HttpResponse(200, (("content-type", "text/event-stream"),), told),
    )
    (joined, _), _ = read_records([posted, stream])
    assert joined.people == ("a", "q")
    (alone,), _ = read_records([with_answer(joined.exchange, joined)])
    assert alone.people == ("a", "q")


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/v1/responses/resp_1", {"background": True, "metadata": {"user_id": "9"}}),
        ("/v1beta/interactions/i1", {"labels": {"user_id": "9"}}),
    ],
)
def test_a_look_up_is_of_whom_the_answer_names(path: str, answer: JsonObject) -> None:
    told = {"id": "resp_1", "status": "completed", **answer}
    body = json.dumps(told).encode()
    asked = read(CHAT, {}).exchange
    request = replace(asked.request, method="GET", path=path, body=b"")
    response = HttpResponse(200, (("content-type", "application/json"),), body)
    call = read_exchange(replace(asked, request=request, response=response))
    assert (call.kind, call.end_user) == ("model", "9")
