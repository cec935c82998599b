"""Realistic surrogates on the wire: what goes, what comes back, and what redaction at rest makes of them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from governance.policy.redaction import RedactionSpec
from governance.redact.build import build_detectors, build_redactor
from governance.redact.own_marks import check_key
from governance.redact.redactor import Redactor
from governance.redact.report import RedactionScope
from governance.redact.wire import WireRedactor, wire_spec
from proxy.inline.dialects import GeminiRequest, MessagesRequest, OllamaRequest
from proxy.inline.openai import ChatRequest, CompletionRequest, ResponsesRequest
from proxy.inline.requests import WireRequest
from proxy.inline.restorer import IssuedSurrogates, restored
from tests.governance.redact.test_wire import (
    CHAT,
    COMPLETION,
    EMAIL,
    GEMINI,
    MESSAGES,
    NAME,
    OLLAMA,
    PHONE,
    RESPONSES,
)
from tests.governance.redaction_support import KEY, redactor
from trajectory.realistic_surrogate import drawn, own_spans
from trajectory.surrogate import FORM, PseudonymisedText

SPEC = RedactionSpec.model_validate(
    {"names": {"model": None}, "inline": {"routes": ["model"], "surrogates": "realistic"}}
)
CHECK = check_key(KEY)
SCOPE = RedactionScope("acme", "t1")


@cache
def wire() -> WireRedactor:
    sought = wire_spec(SPEC, tuple(SPEC.operators()))
    found = build_detectors(sought, frozenset(sought.operators()), Path())
    return WireRedactor(sought, found, pseudonym_key=KEY)


@cache
def at_rest() -> Redactor:
    return build_redactor(SPEC, pseudonym_key=KEY)


def put(request: WireRequest, *, key: bytes = KEY) -> PseudonymisedText:
    return wire().pseudonymise(request.text, request.place, request.said(), tenant="acme", key=key)


def chat(*said: str) -> ChatRequest:
    messages = [{"role": "user", "content": one} for one in said]
    return ChatRequest(json.dumps({"messages": messages}, ensure_ascii=False).encode())


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (ChatRequest, CHAT),
        (MessagesRequest, MESSAGES),
        (ResponsesRequest, RESPONSES),
        (CompletionRequest, COMPLETION),
        (GeminiRequest, GEMINI),
        (OllamaRequest, OLLAMA),
    ],
)
def test_values_go_and_what_stands_for_them_is_left_alone(
    kind: type[WireRequest], body: dict[str, Any]
) -> None:
    written = json.dumps(body, indent=1)
    told = put(kind(written.encode()))
    seen = json.loads(told.text)
    if kind is MessagesRequest:  # a signature holds for each letter
        del seen["messages"][1]["content"][0]
    assert not any(value in json.dumps(seen) for value in (EMAIL, *NAME.split(), str(PHONE)))
    assert all(FORM.fullmatch(name) for name in told.numbers)
    again = put(kind(told.text.encode()))
    assert (again.text, again.issued) == (told.text, {})


SAID = (
    "My name is {name}, mail {mail}. Call {phone}, from 10.20.30.40, card 5555 4444 3333 1111, "
    "SSN 078-05-1120, IBAN DE89 3704 0044 0532 0130 00. Born on 1984-05-06."
)


def test_each_type_has_what_belongs_to_nobody() -> None:
    said = SAID.format(name=NAME, mail=EMAIL, phone="+49 151 23456789")
    told = put(chat(said))
    back = told.text
    for name, value in told.issued.items():
        back = back.replace(name, value)
    assert json.loads(back)["messages"][0]["content"] == said
    left = [name for name in told.issued if not [*own_spans(name, CHECK)]]
    assert all(FORM.fullmatch(name) for name in left)
    assert len(told.issued) - len(left) >= 7
    first, last = NAME.split()
    words = {value: name for name, value in told.issued.items()}
    assert f"My name is {words[first]} {words[last]}, mail {words[EMAIL]}. " in told.text
    entities = {told.issued[name]: entity for name, entity in told.entities.items()}
    assert told.entities.keys() == told.issued.keys()
    assert (entities[first], entities[last], entities[EMAIL]) == (
        "PERSON",
        "PERSON",
        "EMAIL_ADDRESS",
    )


def test_redaction_at_rest_leaves_them_and_takes_a_persons_own() -> None:
    told = put(chat(SAID.format(name=NAME, mail=EMAIL, phone="+49 151 23456789")))
    kept = at_rest().redact_text(told.text, scope=SCOPE, path="/parts/0/text")
    assert kept.text == told.text
    real = "My name is Sebastian Karimova, mail sebastian.karimova@mail.invalid."
    assert "arimova" not in at_rest().redact_text(real, scope=SCOPE).text
    assert "arimova" not in put(chat(real)).text


def test_words_of_a_name_agree_wherever_they_stand() -> None:
    told = put(chat(f"My name is {NAME}.", "Dear Ms Ostrova, Petra OSTROVA wrote."))
    first, second = (one["content"] for one in json.loads(told.text)["messages"])
    name, last = first.removeprefix("My name is ").removesuffix(".").split()
    assert second == f"Dear Ms {last}, {name} {last.upper()} wrote."


def test_a_conversation_keeps_them_over_its_turns() -> None:
    first = json.loads(put(chat(f"I am {NAME}, {EMAIL}")).text)["messages"]
    more = json.loads(put(chat(f"I am {NAME}, {EMAIL}", "And card 5555 4444 3333 1111?")).text)
    assert more["messages"][0] == first[0]
    assert json.loads(put(chat(f"I am {NAME}, {EMAIL}"), key=b"o" * 32).text)["messages"] != first


def test_two_values_never_have_one() -> None:
    phones = [f"+49 151 2{at:07d}" for at in range(600)]  # some of 72,000 lines meet
    told = put(chat(*(f"Tel. {one}" for one in phones)))
    assert set(told.issued.values()) >= set(phones)
    assert len(set(told.issued)) == len(told.issued)
    said = [one["content"] for one in json.loads(told.text)["messages"]]
    assert len(set(said)) == len(phones)


@given(
    st.sampled_from(
        [
            "PERSON",
            "EMAIL_ADDRESS",
            "USERNAME",
            "PERSONAL_URL",
            "PHONE_NUMBER",
            "IP_ADDRESS",
            "CREDIT_CARD",
            "US_SSN",
            "IBAN_CODE",
        ]
    ),
    st.text(min_size=1, max_size=9),
    st.sampled_from(["", "password: ", "My name is ", "Dear ", "user=", "Tel. ", "Card: "]),
    st.sampled_from(["", ".", " and so on", "\n", ", born", '"']),
)
def test_no_detector_finds_one(entity: str, value: str, before: str, behind: str) -> None:
    made = drawn(KEY, entity, value, check=CHECK)
    assert made is not None
    done = at_rest().redact_text(f"{before}{made}{behind}", scope=SCOPE, path="/parts/0/text")
    assert made in done.text


RESERVED = st.one_of(
    st.from_regex(r"Call (?:\+1[- ])?[2-9][0-8][0-9]-555-01[0-9]{2}", fullmatch=True),
    st.from_regex(r"Call (?:\+1[- ])?[2-9]9[0-9]-[2-9][0-9]{2}-[0-9]{4}", fullmatch=True),
    st.from_regex(r"Tel\. [2-9]9[0-9][2-9][0-9]{6}", fullmatch=True),
    st.from_regex(r"from 198\.1[89]\.[12][0-4][0-9]\.[12][0-4][0-9]", fullmatch=True),
    st.from_regex(r"from 24[0-9](\.[12][0-4][0-9]){3}", fullmatch=True),
    st.from_regex(r"from 2001:db8(:[0-9a-f]{4}){6}", fullmatch=True),
    st.from_regex(r"SSN (?:000-[0-9]{2}|[5-8][0-9]{2}-00)-[0-9]{4}", fullmatch=True),
    st.from_regex(r"IBAN XX[0-9]{2}( [0-9]{4}){4}", fullmatch=True),
    st.from_regex(r"card 4000 00[0-9]{2} [0-9]{4} [0-9]{4}", fullmatch=True),
    st.from_regex(r"mail [a-z]{3,9}\.[a-z]{3,9}@mail\.invalid", fullmatch=True),
)
"""Values of people that stand in ranges of surrogates, and what is said before them."""


@given(st.lists(RESERVED, min_size=1, max_size=4))
@example(["Call 212-555-0147", "from 198.18.120.130", "Call 929-555-0147"])
def test_told_values_of_their_ranges_go_like_any_other(told: list[str]) -> None:
    said = "; ".join(told)
    assume(not [*own_spans(said, CHECK)])  # one in a thousand is an own one by chance
    sent = put(chat(said))
    seen = json.loads(sent.text)["messages"][0]["content"]
    kept = redactor().redact_text(said, scope=SCOPE, path="/parts/0/text").text
    for value in (one.partition(" ")[2] for one in told):
        assert value in kept or value not in seen
    assert restored(seen, IssuedSurrogates(sent.issued)) == said
