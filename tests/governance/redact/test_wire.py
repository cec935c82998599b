"""Redaction on the wire: what goes, what stays byte for byte, and what comes out of a second look."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.policy.redaction import DEFAULT_ENTITIES, RedactionSpec
from governance.redact.build import build_detectors
from governance.redact.report import RedactionScope
from governance.redact.wire import WireRedactor, wire_spec
from proxy.inline.bedrock import ConverseRequest
from proxy.inline.dialects import GeminiRequest, MessagesRequest, OllamaRequest
from proxy.inline.openai import ChatRequest, CompletionRequest, ResponsesRequest
from proxy.inline.requests import WireRequest
from tests.governance.redaction_support import KEY, redactor
from trajectory.surrogate import FORM, PseudonymisedText, surrogate

EMAIL, NAME, PHONE = "petra.ostrova@example.org", "Petra Ostrova", 4915123456789


@cache
def wire(*entities: str) -> WireRedactor:
    spec = RedactionSpec.model_validate({"names": {"model": None}})
    sought = wire_spec(spec, entities or tuple(spec.operators()))
    found = build_detectors(sought, frozenset(sought.operators()), Path())
    return WireRedactor(sought, found, pseudonym_key=KEY)


def put(request: WireRequest, *entities: str) -> PseudonymisedText:
    return wire(*entities).pseudonymise(
        request.text, request.place, request.said(), tenant="acme", key=KEY
    )


CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": f"Write to {EMAIL}."},
        {"role": "user", "content": [{"type": "text", "text": f"My name is {NAME}"}]},
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {
                        "name": "petra_ostrova",
                        "arguments": json.dumps({"phone": PHONE, "note": f"for {NAME}"}),
                    },
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": json.dumps({"to": [EMAIL]})},
    ],
    "metadata": {"who": NAME},
    "tools": [{"type": "function", "function": {"name": "f", "description": f"Ask {EMAIL}"}}],
    "temperature": 0.5,
}
MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 5,
    "system": [{"type": "text", "text": f"Write to {EMAIL}.", "cache_control": {"type": "x"}}],
    "messages": [
        {"role": "user", "content": f"My name is {NAME}"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": f"{NAME} says", "signature": "c2ln"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"phone": PHONE, EMAIL: 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": f"sent to {EMAIL}"},
                {"type": "document", "source": {"type": "text", "data": f"By {EMAIL}"}},
            ],
        },
    ],
}
RESPONSES: dict[str, Any] = {
    "model": "m",
    "instructions": f"Write to {EMAIL}.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": f"My name is {NAME}"}]},
        {"type": "reasoning", "id": "r1", "encrypted_content": "x" * 60, "summary": []},
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "f",
            "arguments": json.dumps({"to": EMAIL, "phone": PHONE}),
        },
        {"type": "function_call_output", "call_id": "c1", "output": f"sent to {EMAIL}"},
    ],
}
GEMINI: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": f"Write to {EMAIL}."}]},
    "contents": [
        {"role": "user", "parts": [{"text": f"My name is {NAME}"}]},
        {
            "role": "model",
            "parts": [
                {
                    "functionCall": {"name": "f", "args": {"phone": PHONE, "to": EMAIL}},
                    "thoughtSignature": "c2lnbmF0dXJl",
                }
            ],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "f", "response": {"to": [EMAIL]}}}],
        },
    ],
    "tools": [{"functionDeclarations": [{"name": "f", "description": f"Ask {EMAIL}"}]}],
}
OLLAMA: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": f"Write to {EMAIL}."},
        {"role": "user", "content": f"My name is {NAME}"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"function": {"name": "f", "arguments": {"phone": PHONE, "name": NAME}}}
            ],
        },
        {"role": "tool", "tool_name": "f", "content": f"sent to {EMAIL}"},
    ],
}
CONVERSE: dict[str, Any] = {
    "system": [{"text": f"Write to {EMAIL}."}],
    "messages": [
        {"role": "user", "content": [{"text": f"My name is {NAME}"}]},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "I see.", "signature": "c2ln"}}},
                {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"phone": PHONE, EMAIL: 1}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "t1", "content": [{"json": {"to": [EMAIL]}}]}},
                {"document": {"format": "txt", "name": "d", "source": {"text": f"By {EMAIL}"}}},
                {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgoAAAANSUhEUg"}}},
            ],
        },
    ],
    "toolConfig": {"tools": [{"toolSpec": {"name": "f", "description": f"Ask {EMAIL}"}}]},
    "inferenceConfig": {"maxTokens": 5},
}
COMPLETION: dict[str, Any] = {"model": "m", "prompt": [f"Mail {EMAIL}", f"I am {NAME}, hello"]}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (ChatRequest, CHAT),
        (MessagesRequest, MESSAGES),
        (ResponsesRequest, RESPONSES),
        (CompletionRequest, COMPLETION),
        (GeminiRequest, GEMINI),
        (OllamaRequest, OLLAMA),
        (ConverseRequest, CONVERSE),
        (OllamaRequest, {"model": "m", "system": f"Write to {EMAIL}", "prompt": f"I am {NAME}."}),
    ],
)
def test_values_go_and_all_else_stays_byte_for_byte(
    kind: type[WireRequest], body: dict[str, Any]
) -> None:
    written = json.dumps(body, indent=1)
    told = put(kind(written.encode()))
    seen = json.loads(told.text)
    if kind is MessagesRequest:  # a signature holds for each letter
        assert seen["messages"][1]["content"][0] == body["messages"][1]["content"][0]
        del seen["messages"][1]["content"][0]
    assert not any(value in json.dumps(seen) for value in (EMAIL, NAME, str(PHONE)))
    back = told.text
    for name, value in told.issued.items():
        if name in told.numbers:
            back = back.replace(f'\\"{name}\\"', value).replace(f'"{name}"', value)
        back = back.replace(name, value)
    assert back == written
    assert told.subjects
    entities = {told.issued[name]: entity for name, entity in told.entities.items()}
    assert told.entities.keys() == told.issued.keys()
    assert (entities[EMAIL], entities[NAME]) == ("EMAIL_ADDRESS", "PERSON")
    again = put(kind(told.text.encode()))
    assert (again.text, again.issued) == (told.text, {})


def test_only_the_types_that_are_asked_for_go() -> None:
    told = put(ChatRequest(json.dumps(CHAT).encode()), "EMAIL_ADDRESS")
    assert EMAIL not in told.text
    assert NAME in told.text
    assert {name.partition("_")[0] for name in told.issued} == {"EMAIL"}


def test_a_value_from_before_has_the_type_as_which_it_is_found_again() -> None:
    request = ChatRequest(
        b'{"messages": [{"role": "user", "content": "mail %s"}]}' % EMAIL.encode()
    )
    name = surrogate(KEY, "EMAIL_ADDRESS", EMAIL)
    known = {name: EMAIL, surrogate(KEY, "PERSON", NAME): NAME}
    told = wire().pseudonymise(
        request.text, request.place, request.said(), tenant="acme", key=KEY, known=known
    )
    assert told.issued == known
    assert told.entities == {name: "EMAIL_ADDRESS"}


HIDDEN = "data:;base64,x " + EMAIL


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (ChatRequest, {"messages": [{"role": "user", "content": f"data: {EMAIL}"}]}),
        (ChatRequest, {"messages": [{"role": "user", "content": HIDDEN}]}),
        (ChatRequest, {"messages": [], "metadata": {EMAIL: "x", "id": EMAIL, "phone": PHONE}}),
        (MessagesRequest, {"messages": [], "metadata": {EMAIL: "x", "id": EMAIL}}),
        (ResponsesRequest, {"input": HIDDEN}),
        (ResponsesRequest, {"input": [{"role": "user", "name": EMAIL, "content": "x"}]}),
        (
            ResponsesRequest,
            {"input": [{"type": "file_search_call", "results": [{"attributes": {"id": EMAIL}}]}]},
        ),
        (
            MessagesRequest,
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "tool_result",
                                "tool_use_id": "t",
                                "content": [
                                    {"type": "document", "source": {"type": "text", "data": EMAIL}}
                                ],
                            }
                        ],
                    }
                ]
            },
        ),
    ],
)
def test_nothing_hides_behind_the_protocol(kind: type[WireRequest], body: dict[str, Any]) -> None:
    told = put(kind(json.dumps(body).encode()))
    assert EMAIL not in told.text
    assert str(PHONE) not in told.text


def test_bytes_of_media_and_names_of_the_protocol_stay() -> None:
    url = "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUg" * 40
    parts: Any = [
        {"type": "image_url", "image_url": {"url": url, "detail": "high"}},
        {"type": "input_audio", "input_audio": {"data": url, "format": "wav"}},
        {"type": "file", "file": {"file_data": url, "file_id": "file-1"}},
    ]
    body = json.dumps({"messages": [{"role": "user", "content": parts}]})
    assert put(ChatRequest(body.encode())).text == body
    source = {"type": "base64", "media_type": "image/png", "data": url}
    block = {"type": "image", "source": source}
    result = {
        "type": "tool_result",
        "tool_use_id": "toolu_01A09q90qw90lq917835lq9",
        "content": [block],
    }
    body = json.dumps({"messages": [{"role": "user", "content": [block, result]}]})
    assert put(MessagesRequest(body.encode())).text == body
    item = {"type": "input_image", "image_url": url}
    body = json.dumps({"input": [{"role": "user", "content": [item]}]})
    assert put(ResponsesRequest(body.encode())).text == body


def test_a_short_answer_is_looked_at_with_its_question() -> None:
    said = [("assistant", "What is your password?"), ("user", "Sunshine-42")]
    body = {"messages": [{"role": role, "content": text} for role, text in said]}
    assert "Sunshine" not in put(ChatRequest(json.dumps(body).encode())).text


@given(
    st.sampled_from(sorted(DEFAULT_ENTITIES)),
    st.text(min_size=1, max_size=9),
    st.sampled_from(
        ["", "password: ", "My name is ", "Dear ", "user=", "api_key=", "Tel. ", "https://x.io/?e="]
    ),
    st.sampled_from(["", ".", " and so on", "\n", "s", "@x"]),
)
def test_no_detector_finds_a_surrogate(entity: str, value: str, before: str, behind: str) -> None:
    made = surrogate(KEY, entity, value)
    at_rest = redactor().redact_text(
        f"{before}{made}{behind}", scope=RedactionScope("acme", "t1"), path="/parts/0/text"
    )
    assert made in at_rest.text


def test_what_has_the_form_of_a_surrogate_holds_no_value() -> None:
    assert not FORM.search("EMAIL_ada_example_org_x_y")
    assert not FORM.search("PHONE_4915123456789012345")
