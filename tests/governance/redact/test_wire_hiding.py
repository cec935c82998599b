"""Places of a request where a value could pass unseen: each is looked into, or the request is refused."""

import json
from base64 import b64encode, urlsafe_b64encode
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from governance.policy import load_bundle
from governance.redact.build import wire_redactors_of
from governance.redact.report import RedactionError
from proxy.inline.dialects import GeminiRequest, MessagesRequest, OllamaRequest
from proxy.inline.openai import ChatRequest, ResponsesRequest
from proxy.inline.requests import UnreadableRequestError, WireRequest
from tests.governance.redact.test_wire import EMAIL, NAME, put
from tests.governance.redaction_support import KEY
from tests.support.inline import inline_setup

CARD = "4111111111111111"
SAID = f"Write to {EMAIL}, her card is {CARD}. "
TEXT = b64encode((SAID * 3).encode()).decode()
VALUES = (EMAIL, NAME, CARD, TEXT, urlsafe_b64encode((SAID * 3).encode()).decode())


def user(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [*parts], **more}]}


def block(role: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": [fields]}]}


TOOL = {"type": "object", "properties": {EMAIL: {"enum": [int(CARD)], "card": int(CARD)}}}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (ChatRequest, {"messages": [{"role": EMAIL, "id": NAME, "status": EMAIL}]}),
        (ChatRequest, {"messages": [{"role": "user", "content": "x", EMAIL: 1}]}),
        (ChatRequest, {"messages": [], "card": int(CARD), "extra": {EMAIL: [int(CARD)]}}),
        (ChatRequest, {"messages": [], "tool_choice": EMAIL, "stream_options": {"x": EMAIL}}),
        (ChatRequest, {"messages": [], "tools": [{"function": {"name": "f", "parameters": TOOL}}]}),
        (ChatRequest, {"messages": [], "tools": [{"function": {"name": f"Mail {EMAIL}"}}]}),
        (ChatRequest, user({"image_url": {"url": f"data:;base64,{EMAIL}"}})),
        (ChatRequest, user({"file": {"file_data": f"data:text/plain;base64,{TEXT}"}})),
        (ChatRequest, user({"image_url": {"url": f"data:image/png;base64,{TEXT}"}})),
        (ChatRequest, user({"input_audio": {"data": SAID, "format": EMAIL}})),
        (MessagesRequest, block("assistant", type="thinking", thinking=SAID, signature="")),
        (MessagesRequest, block("user", type="thinking", thinking=SAID, signature="c2ln")),
        (MessagesRequest, block("assistant", type="thinking", signature="c2ln", note=SAID)),
        (
            MessagesRequest,
            block("user", type="document", source={"type": "base64", "data": TEXT}),
        ),
        (MessagesRequest, {"messages": [], "service_tier": EMAIL, "thinking": {"type": EMAIL}}),
        (
            ResponsesRequest,
            {"input": [{"role": "user", "id": EMAIL, "status": f"My name is {NAME}"}]},
        ),
        (ResponsesRequest, {"input": "x", "include": [EMAIL], "card": int(CARD)}),
        (GeminiRequest, {"contents": [{"parts": [{"inlineData": {"data": TEXT}}]}]}),
        (GeminiRequest, {"contents": [], "labels": {"name": EMAIL, "type": f"My name is {NAME}"}}),
        (OllamaRequest, {"messages": [{"role": "user", "images": [SAID, TEXT]}]}),
        (OllamaRequest, {"messages": [], "format": {"properties": {EMAIL: {"enum": [EMAIL]}}}}),
    ],
)
def test_nothing_hides_in_what_the_protocol_calls_its_own(
    kind: type[WireRequest], body: dict[str, Any]
) -> None:
    told = put(kind(json.dumps(body).encode()))
    assert told.issued
    assert not [value for value in VALUES if value in told.text]


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages": [{"role": "user", "content": "x"}], "messages": []}',
        b'{"messages": [{"role": "assistant", "content": "x", "content": "y"}]}',
    ],
)
def test_a_field_that_stands_twice_is_refused(body: bytes) -> None:
    for kind in (ChatRequest, MessagesRequest):
        with pytest.raises(UnreadableRequestError):
            kind(body)


def test_nobody_holds_the_others_up_longer_than_a_request_may_wait(tmp_path: Path) -> None:
    setup = inline_setup(tmp_path / "policy", routes=["model"])
    made, beside = wire_redactors_of(load_bundle(setup.folder), 2, pseudonym_key=KEY)
    said = [{"role": "user", "content": f"{at} {SAID}"} for at in range(600)]
    request = ChatRequest(json.dumps({"messages": said}).encode())
    put = partial(made.pseudonymise, tenant="acme", key=KEY)
    with pytest.raises(RedactionError, match=r"longer than 0\.01 s"):
        put(request.text, request.place, request.said(), seconds=0.01)
    told = put(request.text, request.place, request.said())
    again = partial(beside.pseudonymise, tenant="acme", key=KEY)
    # What one has looked into another one knows, and needs no time for.
    assert again(request.text, request.place, request.said(), seconds=0.0001) == told


def test_half_of_a_character_does_not_hold_a_request_up() -> None:
    said = "é \\ud83d " + EMAIL
    body = '{"messages": [{"role": "user", "content": "' + said + '"}]}'
    told = put(ChatRequest(body.encode()))
    assert EMAIL not in told.text
    assert json.loads(told.text.encode())["messages"][0]["content"].startswith("é \ud83d ")


def test_settings_and_numbers_of_the_protocol_stay() -> None:
    numbers = {"maximum": 9007199254740991, "minLength": 12}
    tool = {"type": "function", "function": {"name": "get_user", "parameters": numbers}}
    mcp = {"type": "mcp", "server_url": "https://u@x.io", "headers": {"Authorization": "Bearer Xy"}}
    body: dict[str, Any] = {
        "model": "claude-sonnet@20250514",
        "messages": [{"role": "user", "content": "x"}],
        "tools": [tool, mcp],
        "logit_bias": {"50256": -100},
        "seed": int(CARD),
        "max_tokens": 4096,
    }
    written = json.dumps(body)
    assert put(ChatRequest(written.encode())).text == written
