"""What of a harness changes from rendering to rendering is gone; what somebody edits is not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory.harness.normal_form import NormalForm, normal_form

PROMPT = """You are the refund agent of a shop. Answer in German.

<env>
Working directory: {folder}
Is directory a git repo: Yes
Platform: {platform}
OS Version: {os}
Today's date: {date}
</env>
It is {time} on {day}, and you are session {session} of {person}.
Scratch files lie in {folder}/tmp/{session}; you have {tokens} tokens left.

gitStatus: This is the git status at the start of the conversation.
Current branch: {branch}

Status:
{status}

Recent commits:
{commits}

Never promise what the shop cannot keep."""
FIRST = {
    "folder": "/home/anna/shop", "platform": "linux", "os": "Linux 5.15.0-91-generic",
    "date": "2026-11-23", "time": "14:05", "day": "Monday, 23 November 2026",
    "session": "3f2a9c1e-1111-4222-8333-123456789abc", "person": "<PERSON_ab12cd>",
    "tokens": "17,200", "branch": "main", "status": "(clean)",
    "commits": "abc1234 Mend the till\n0f9e8d7 Begin",
}  # fmt: skip
OTHER = {
    "folder": r"C:\Users\bob\shop", "platform": "darwin", "os": "Darwin 24.1.0",
    "date": "November 24, 2026", "time": "9:15:07 PM UTC", "day": "Tue Nov 24 2026",
    "session": "01HF3Z8Q5N2M4K7J9X0BA1B2C3", "person": "<PERSON_0123456789abcdef>",
    "tokens": "9", "branch": "feature/till", "status": " M till.py\n?? notes.txt\nR  a.py -> b.py",
    "commits": "1234abcd Mend it again",
}  # fmt: skip


def form(prompt: str, tools: Any = ()) -> NormalForm:
    return normal_form(prompt, json.dumps([*tools]))


@pytest.mark.parametrize("value", sorted(FIRST))
def test_what_is_rendered_anew_is_no_new_form(value: str) -> None:
    assert form(PROMPT.format(**FIRST)) == form(PROMPT.format(**{**FIRST, value: OTHER[value]}))


def test_a_folder_that_is_no_repository_is_no_new_form() -> None:
    block = PROMPT[PROMPT.index("gitStatus") : PROMPT.index("Never")]
    bare = PROMPT.replace(block, "").replace("repo: Yes", "repo: No")
    assert form(bare.format(**FIRST)) == form(PROMPT.format(**OTHER))
    advice = "Run git status before you commit."
    assert form(f"{PROMPT}\n{advice}".format(**FIRST)) != form(PROMPT.format(**FIRST))


@pytest.mark.parametrize(
    ("told", "redacted"),
    [
        ("gitStatus: This", "<PERSON_0c1f42de31daf095>: This"),
        (
            "Your session is ab6286cd3672d6ae12b8.",
            "Your session is f0bd0<NAME_0c1f42de31daf095>12b8.",
        ),
    ],
    ids=["the label of git's state", "a part of an id"],
)
def test_what_redaction_takes_for_a_name_is_no_new_form(told: str, redacted: str) -> None:
    prompt = f"Your session is ab6286cd3672d6ae12b8.\n{PROMPT}"
    other = prompt.replace(told, redacted, 1)
    assert other != prompt
    assert form(other.format(**OTHER)) == form(prompt.format(**FIRST))


def test_a_whole_new_rendering_is_no_new_form() -> None:
    assert form(PROMPT.format(**FIRST)) == form(PROMPT.format(**OTHER))


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("Answer in German.", "Answer in French."),
        ("Never promise", "You may promise"),
        ("refund agent", "return agent"),
        ("\n\nNever promise what the shop cannot keep.", ""),
        ("Answer in German.", "Answer in German. A short answer is best."),
    ],
)
def test_a_changed_sentence_is_a_new_form(was: str, becomes: str) -> None:
    edited = PROMPT.replace(was, becomes)
    assert edited != PROMPT
    assert form(PROMPT.format(**FIRST)) != form(edited.format(**FIRST))


@pytest.mark.parametrize(
    "sentence",
    [
        "The shop is closed on Sunday.",
        "Customers may march in line and may ask in May.",
        "Deface no facade; a cafe is no decade.",
        "Read and/or write, never input/output.",
        "A friendly word helps.",
    ],
)
def test_plain_words_are_left_as_they_are(sentence: str) -> None:
    assert form(sentence).lines == (sentence,)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "You serve Mrs. <PERSON_ab12cd> today.",
            "You serve Mr. <PERSON_ab12cd> <PERSON_0123ab> today.",
        ),
        ("Notes: /home/<PERSON_ab12cd>/shop/a.md", "Notes: /Users/ann/b.md"),
        ("Read /a/b.md, /c/d.md", "Read /a/b.md"),
    ],
)
def test_a_value_is_a_value_however_it_was_redacted(one: str, other: str) -> None:
    assert form(one) == form(other)


def test_white_space_says_nothing() -> None:
    assert form("Be  kind.\n\n\nBe\tshort. ") == form("Be kind.\r\nBe short.")


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"order": {"type": "string", "description": "The order."}, "title": {"type": "string"}},
    "required": ["order"],
}  # fmt: skip
PYDANTIC = {
    **SCHEMA, "title": "Refund", "additionalProperties": False,
    "$schema": "http://json-schema.org/draft-07/schema#",
    "properties": {
        "title": {"type": "string", "title": "Title"},
        "order": {"description": "The order.", "type": "string", "title": "Order"},
    },
}  # fmt: skip
GEMINI = {
    "type": "OBJECT",
    "properties": {"order": {"type": "STRING", "description": "The order."}, "title": {"type": "STRING"}},
    "required": ["order"],
}  # fmt: skip
NAMED: dict[str, Any] = {"name": "refund", "description": "Refunds an order."}
DIALECTS: dict[str, Any] = {
    "openai.chat": {"type": "function", "function": {**NAMED, "parameters": PYDANTIC, "strict": True}},
    "openai.responses": {"type": "function", **NAMED, "parameters": PYDANTIC, "strict": True},
    "anthropic.messages": {**NAMED, "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}},
    "google.gemini": {"functionDeclarations": [{**NAMED, "parameters": GEMINI}]},
    "google.gemini with a JSON schema": {"functionDeclarations": [{**NAMED, "parametersJsonSchema": SCHEMA}]},
    "bedrock.converse": {"toolSpec": {**NAMED, "inputSchema": {"json": SCHEMA}}},
    "ollama": {"type": "function", "function": {**NAMED, "parameters": SCHEMA}},
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
def test_one_tool_has_one_form_in_every_dialect(dialect: str) -> None:
    assert form("", [DIALECTS[dialect]]) == form("", [DIALECTS["anthropic.messages"]])
    assert '"title"' in form("", [DIALECTS[dialect]]).tools[0]  # a property, not pydantic's own


def test_the_order_of_tools_says_nothing_and_what_they_are_does() -> None:
    one, other = DIALECTS["openai.chat"], {"name": "look", "input_schema": SCHEMA}
    assert form("", [one, other]) == form("", [other, one])
    renamed = {**NAMED, "input_schema": {**SCHEMA, "properties": {"number": {"type": "string"}}}}
    told_otherwise = {**NAMED, "description": "Refunds a whole order.", "input_schema": SCHEMA}
    assert len({form("", [tool]) for tool in (one, other, renamed, told_otherwise)}) == 4


def test_a_tool_of_the_provider_is_its_kind() -> None:
    for tool in ({"type": "web_search", "max_uses": 3}, {"google_search": {}}):
        assert form("", [tool]).tools
    assert form("", [{"type": "web_search"}]) != form("", [{"type": "code_interpreter"}])


@given(
    st.text(max_size=200),
    st.lists(st.dictionaries(st.text(max_size=8), st.none() | st.text()), max_size=3),
)
def test_any_text_has_a_form_that_is_its_own(prompt: str, tools: list[Any]) -> None:
    found = form(prompt, tools)
    assert found == form(prompt, tools)
    again = form("\n".join(found.lines))
    assert len(again.lines) <= len(found.lines)
