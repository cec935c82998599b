"""What an artefact adds: never more than there is room for, and nothing of what does not fit."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.artifacts.blocks import (
    FactIndex,
    MalformedArtifactError,
    NoRoomError,
    PreparedArtifact,
    tokens_of,
)
from proxy.artifacts.bodies import (
    BODIES,
    ChatBody,
    MessagesBody,
    ModelBody,
    ResponsesBody,
)
from proxy.artifacts.said_texts import said_in
from trajectory.artifact import ArtifactSpec

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(
    lambda text: "headrace-artifact" not in text.lower()
)
WORDS = st.lists(st.sampled_from(["refund", "cash", "day", "shop", "lamp", "é"]), max_size=12)


def prepared(**content: Any) -> PreparedArtifact:
    said = {"tenant": "acme", "proposer": "jo", "licence": "CC0-1.0", **content}
    return PreparedArtifact("one@0001", ArtifactSpec.model_validate(said))


def spoken(dialect: type[ModelBody], system: str, said: str, tool: str) -> dict[str, Any]:
    message = {"role": "user", "content": said}
    if dialect is ChatBody:
        function = {"name": "refund", "description": tool, "parameters": {}}
        return {
            "messages": [{"role": "system", "content": system}, message],
            "tools": [{"type": "function", "function": function}],
        }
    if dialect is ResponsesBody:
        definition = {"type": "function", "name": "refund", "description": tool, "parameters": {}}
        return {"instructions": system, "input": [message], "tools": [definition]}
    definition = {"name": "refund", "description": tool, "input_schema": {}}
    return {"system": system, "messages": [message], "tools": [definition]}


CONTENTS = st.one_of(
    st.builds(lambda text: {"harness": {"append": text}}, TEXT),
    st.builds(lambda text: {"harness": {"replace": {"old": "You", "new": text}}}, TEXT),
    st.builds(
        lambda texts: {
            "memory": {
                "best": 9,
                "facts": [
                    {"id": f"f{at}", "text": f"{' '.join(words)} {text}"}
                    for at, (words, text) in enumerate(texts)
                ],
            }
        },
        st.lists(st.tuples(WORDS, TEXT), min_size=1, max_size=12),
    ),
    st.builds(
        lambda text: {
            "skill": {"title": "T", "trigger": {"phrases": ["refund"]}, "procedure": text}
        },
        TEXT,
    ),
    st.builds(
        lambda text: {
            "tools": {"patch": [{"op": "replace", "path": "/refund/description", "value": text}]}
        },
        TEXT,
    ),
)


def read(dialect: type[ModelBody], value: dict[str, Any]) -> ModelBody:
    return dialect(json.dumps(value).encode())


def size(body: ModelBody) -> int:
    """Return the bytes of everything that artefacts may change."""
    sent = type(body)(body.sent())
    tools = json.dumps(sent.tools.definitions, separators=(",", ":"), ensure_ascii=False).encode()
    return len(sent.prompt.text.encode()) + len(tools)


@settings(deadline=None)
@given(
    dialect=st.sampled_from(BODIES),
    contents=st.lists(CONTENTS, min_size=1, max_size=4),
    system=st.sampled_from(["", "You help."]),
    words=WORDS,
    cap=st.integers(1, 120),
)
def test_the_cap_holds(
    dialect: type[ModelBody], contents: list[Any], system: str, words: list[str], cap: int
) -> None:
    body = read(dialect, spoken(dialect, system, " ".join(words), "Pays back."))
    before, room = size(body), cap
    for content in contents:
        held = body.sent()
        try:
            added = prepared(**content).apply(body, None, room)
        except NoRoomError:
            assert body.sent() == held
            continue
        if added is None:
            assert body.sent() == held
        else:
            room -= added.tokens
    assert room >= 0
    assert tokens_of(size(body) - before) <= cap


def test_a_description_of_other_letters_is_no_room_for_more() -> None:
    """Escaped as ASCII it would be longer than what replaces it."""
    body = read(ChatBody, spoken(ChatBody, "You help.", "a", "汉字" * 10))
    patch = [{"op": "replace", "path": "/refund/description", "value": "Pays back. " * 8}]
    with pytest.raises(NoRoomError):
        prepared(tools={"patch": patch}).apply(body, None, 5)
    odd = read(ChatBody, spoken(ChatBody, "You help.", "a", "\ud800"))
    assert prepared(tools={"patch": patch}).apply(odd, None, 100) is not None


def best(index: FactIndex, said: str, most: int) -> list[int]:
    return index.ranked(index.shared(said_in([{"role": "user", "content": said}])))[:most]


def test_facts_are_found_by_what_is_rare() -> None:
    index = FactIndex(
        ["the shop sells lamps", "the shop opens at nine", "the shop repairs old lamps too"]
    )
    assert best(index, "When does the SHOP open? It opens...", 2) == [1, 0]
    assert best(index, "lamps to repair: repairs", 3)[0] == 2
    assert best(index, "bicycles", 3) == []
    assert best(FactIndex([]), "anything", 3) == []


def chat(system: str = "You help.\nBe polite.") -> ModelBody:
    return read(ChatBody, spoken(ChatBody, system, "a refund, please", "Pays back."))


def test_a_template_is_replaced_only_where_it_stands_and_only_for_its_agent() -> None:
    edit = {"agent": "shop", "replace": {"old": "Be polite.", "new": "Be brief."}}
    body = chat()
    assert prepared(harness=edit).apply(body, "other", 100) is None
    assert prepared(harness=edit).apply(chat("You help."), "shop", 100) is None
    assert prepared(harness=edit).apply(body, "shop", 100) is not None
    assert body.prompt.text == "You help.\nBe brief."


def test_a_block_is_added_only_to_the_prompt_that_holds_a_text() -> None:
    one = prepared(harness={"prompt_holds": "Be polite.", "append": "Be brief."})
    assert one.apply(chat("You help."), None, 100) is None
    body = chat()
    assert one.apply(body, None, 100) is not None
    sent = ChatBody(body.sent())
    assert sent.prompt.text.startswith("You help.\nBe polite.\n\n<headrace-artifact")


@pytest.mark.parametrize(
    ("path", "value"),
    [("/refund/parameters", 7), ("/refund/description", {}), ("/refund/parameters/a/b", 1)],
)
def test_a_patch_that_makes_no_definition_changes_nothing(path: str, value: Any) -> None:
    body = chat()
    before = body.sent()
    one = prepared(tools={"patch": [{"op": "add", "path": path, "value": value}]})
    with pytest.raises((MalformedArtifactError, ValueError)):
        one.apply(body, None, 100)
    assert body.sent() == before


def test_a_patch_is_for_the_definitions_that_it_tests() -> None:
    test = {"op": "test", "path": "/refund/description", "value": "Something else."}
    change = {"op": "replace", "path": "/refund/description", "value": "Changed."}
    body = chat()
    assert prepared(tools={"patch": [test, change]}).apply(body, None, 100) is None
    absent = {"op": "add", "path": "/nothing/description", "value": "x"}
    assert prepared(tools={"patch": [absent]}).apply(body, None, 100) is None
    assert body.offered.definitions["refund"]["description"] == "Pays back."


def test_messages_say_parameters_in_their_own_way() -> None:
    body = read(MessagesBody, spoken(MessagesBody, "", "x", "Pays back."))
    patch = [{"op": "add", "path": "/refund/parameters/type", "value": "object"}]
    assert prepared(tools={"patch": patch}).apply(body, None, 100) is not None
    assert json.loads(body.sent())["tools"][0]["input_schema"] == {"type": "object"}
