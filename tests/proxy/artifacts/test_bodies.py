"""Bodies: what artefacts change is spliced in, and what a conversation said before is not read again."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.artifacts.blocks import PreparedArtifact
from proxy.artifacts.bodies import (
    BODIES,
    ChatBody,
    Conversations,
    MessagesBody,
    ModelBody,
    ResponsesBody,
)
from proxy.artifacts.said_texts import SAID_CHARACTERS
from trajectory.artifact import ArtifactSpec

BLOCK = "Be brief."
TEXT = st.text(st.characters(exclude_categories=()), max_size=12)
PART = st.fixed_dictionaries({"type": st.just("text"), "text": TEXT})
CONTENT = st.one_of(TEXT, st.lists(PART, max_size=3))
NUMBER = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"]), "content": CONTENT}
)
SYSTEM = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer"]), "content": CONTENT}
)
OTHER = st.dictionaries(
    st.sampled_from(["model", "temperature", "stream", "é"]), NUMBER, max_size=4
)


def tool(dialect: type[ModelBody], name: str) -> dict[str, Any]:
    schema = "input_schema" if dialect is MessagesBody else "parameters"
    definition = {"name": name, "description": "Pays back.", schema: {"maximum": 1}}
    return {"type": "function", "function": definition} if dialect is ChatBody else definition


@st.composite
def conversations(draw: st.DrawFn) -> tuple[type[ModelBody], list[bytes]]:
    """A dialect, and the bodies of a conversation's calls, each longer than the one before."""
    dialect = draw(st.sampled_from(BODIES))
    spoken = {ChatBody: "messages", ResponsesBody: "input", MessagesBody: "messages"}[dialect]
    messages = draw(st.lists(MESSAGE, min_size=1, max_size=6))
    value: dict[str, Any] = {**draw(OTHER), spoken: messages}
    if draw(st.booleans()):
        value["tools"] = [tool(dialect, name) for name in ("refund", "find")]
    leading = draw(st.lists(SYSTEM, max_size=2)) if dialect is ChatBody else []
    if dialect is ResponsesBody and draw(st.booleans()):
        value["instructions"] = draw(TEXT)
    if dialect is MessagesBody and draw(st.booleans()):
        value["system"] = draw(CONTENT)
    value = {name: value[name] for name in draw(st.permutations(sorted(value)))}
    indent, plain = draw(st.sampled_from([None, 2])), draw(st.booleans())
    calls = [
        json.dumps(
            {**value, spoken: [*leading, *messages[:count]]}, indent=indent, ensure_ascii=plain
        ).encode("utf-8", "surrogatepass")
        for count in range(1, len(messages) + 1)
    ]
    return dialect, calls


ARTIFACTS = [
    PreparedArtifact(
        f"a{at}@0001",
        ArtifactSpec.model_validate(
            {"tenant": "acme", "proposer": "jo", "licence": "CC0-1.0", **content}
        ),
    )
    for at, content in enumerate(
        (
            {"harness": {"append": BLOCK}},
            {"harness": {"replace": {"old": "a", "new": "other"}}},
            {"memory": {"facts": [{"id": "one", "text": "a b c"}, {"id": "two", "text": "0 1"}]}},
            {"tools": {"patch": [{"op": "replace", "path": "/refund/description", "value": "é"}]}},
            {"tools": {"patch": [{"op": "add", "path": "/find/parameters/minimum", "value": 0}]}},
        )
    )
]


def told(body: ModelBody) -> bytes:
    for one in ARTIFACTS:
        one.apply(body, None, 1000)
    return body.sent()


@settings(deadline=None)
@given(conversations())
def test_a_call_is_the_same_whether_its_conversation_is_known_or_not(
    calls: tuple[type[ModelBody], list[bytes]],
) -> None:
    dialect, texts = calls
    known = Conversations()
    for text in texts:
        told_now = told(known.read(dialect, text, "acme"))
        assert told_now == told(dialect(text))
        assert type(json.loads(told_now)) is dict
        assert known.read(dialect, text, "acme").sent() == text


@settings(deadline=None)
@given(conversations())
def test_a_block_stands_behind_the_prompt_and_all_else_is_the_clients(
    calls: tuple[type[ModelBody], list[bytes]],
) -> None:
    dialect, texts = calls
    body = dialect(texts[-1])
    body.append(BLOCK)
    sent = body.sent()
    assert dialect(sent).prompt.text.endswith(BLOCK)
    assert dialect(sent).said.length == body.said.length
    value, after = json.loads(texts[-1]), json.loads(sent)
    prompt = {ChatBody: "messages", ResponsesBody: "instructions", MessagesBody: "system"}[dialect]
    assert {k: v for k, v in after.items() if k != prompt} == {
        k: v for k, v in value.items() if k != prompt
    }
    if dialect is ChatBody:
        said = [each for each in value["messages"] if each["role"] not in ("system", "developer")]
        assert after["messages"][-len(said) :] == said


def test_numbers_and_spaces_stay_as_their_client_wrote_them() -> None:
    text = '{ "seed": 1.0e2 , "big":123456789012345678901234567890, "messages" : [ {"role":"user","content":"x"} ] }'
    body = ChatBody(text.encode())
    body.append(BLOCK)
    added = f'{{"role":"system","content":"{BLOCK}"}},'
    assert body.sent().decode() == text.replace("[ {", f"[{added} {{")


@pytest.mark.parametrize(
    "middle",
    [
        b'], "other": [{"role": "user", "content": "b"}',
        b'{"role": "user", "content": "b"}',
        b', {"role": "user", "content": "b"',
        b', {"role": "user", "content": "b"}, NaN',
        b', {"role": "user", "content": "b"}, {}, \xff',
        b",",
        b".5",
        b"e1",
        b"1",
    ],
)
def test_what_does_not_only_add_messages_is_read_anew(middle: bytes) -> None:
    head, tail = b'{"messages": [{"role": "user", "content": "a"}', b'], "model": "m"}'
    body = ChatBody(head + tail)
    said = body.said
    assert not body.extend(head + middle + tail)
    assert body.sent() == head + tail
    assert body.said is said


def test_only_the_end_of_a_conversation_tells_what_it_is_about() -> None:
    long = "x" * SAID_CHARACTERS
    texts = ["refund", long, "cash"]
    messages = [{"role": "user", "content": text} for text in texts]
    body = ChatBody(json.dumps({"messages": messages}).encode())
    assert [one.text for one in body.said.texts] == ["cash", long]


def test_few_conversations_are_remembered_and_of_one_tenant_each() -> None:
    known = Conversations()
    text = json.dumps(
        {"messages": [{"role": "user", "content": "é" * 1_500_000}]}, ensure_ascii=False
    ).encode()
    first = known.read(ChatBody, text, "acme").said
    assert known.read(ChatBody, text, "acme").said.texts[0] is first.texts[0]
    assert known.read(ChatBody, text, "other").said.texts[0] is not first.texts[0]
    known.read(ChatBody, text, "third")
    assert known.read(ChatBody, text, "acme").said.texts[0] is not first.texts[0]


@pytest.mark.parametrize("changing", ["prompt", "words"])
def test_agents_that_share_their_prompt_or_first_words_are_told_apart(changing: str) -> None:
    known = Conversations()
    said = []
    for number in range(3):
        told = {"prompt": "You help. " * 99, "words": "Hello! " * 99}
        told[changing] = f"{number}: {told[changing]}"
        system = {"role": "system", "content": told["prompt"]}
        said.append([system, {"role": "user", "content": told["words"]}])
    first = [known.read(ChatBody, chat(*one), "acme").said.texts[0] for one in said]
    answer = {"role": "assistant", "content": "Which one?"}
    for one, text in zip(said, first, strict=True):
        assert known.read(ChatBody, chat(*one, answer), "acme").said.texts[1] is text


def chat(*messages: dict[str, Any]) -> bytes:
    return json.dumps({"model": "m", "messages": messages}).encode()


def test_conversations_that_grow_push_others_out() -> None:
    known = Conversations()
    asked = [{"role": "user", "content": f"{number}: {'a' * 3_000_000}"} for number in range(2)]
    answer = {"role": "assistant", "content": "b" * 3_000_000}
    first = [known.read(ChatBody, chat(one), "acme").said.texts[0] for one in asked]
    assert known.read(ChatBody, chat(asked[1], answer), "acme").said.texts[1:] == ()
    assert known.read(ChatBody, chat(asked[0]), "acme").said.texts[0] is not first[0]
