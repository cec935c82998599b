"""What holds for every format: nothing is lost silently, documents come back identical, errors are told."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trajectory.documents import own_trajectory
from trajectory.call import TokenCapture, Usage
from trajectory.canonical import canonical_json
from trajectory.formats.catalog import FORMATS
from trajectory.formats.document import KEY
from trajectory.json_form import FormError, to_json
from trajectory.message import (
    NOTES,
    MediaPart,
    Message,
    OpaquePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from trajectory.portable import PortableSignal, PortableStep, Trajectory

NAMES = list(FORMATS)
HOLDS_ALL = [name for name in NAMES if FORMATS[name].place or name == "headrace"]
SINGLE = [name for name in HOLDS_ALL if name not in ("trl-preference", "trl-unpaired", "openenv")]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
WORD = st.sampled_from(["a", "b1", "call_7", "f"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=2)
PART = st.one_of(
    st.builds(TextPart, TEXT),
    st.builds(ReasoningPart, TEXT, st.none() | TEXT),
    st.builds(MediaPart, st.just("image/png"), st.none() | TEXT, st.none() | st.integers(0, 9)),
    st.builds(MediaPart, st.just("image/png"), st.none(), st.none(), TEXT),
    st.builds(OpaquePart, JSON),
    st.builds(
        lambda kind, value: OpaquePart({"type": kind, "x": value}),
        st.sampled_from(sorted(NOTES)),
        JSON,
    ),
)
CALL = st.builds(ToolCallPart, WORD, WORD, JSON, st.booleans())
OBSERVED = st.one_of(
    st.builds(
        Message,
        st.sampled_from(["system", "developer", "user"]),
        st.lists(PART, max_size=2).map(tuple),
        st.none() | WORD,
    ),
    st.builds(
        lambda part: Message("tool", (part,)),
        st.builds(ToolResultPart, WORD, JSON, st.booleans()),
    ),
)
SIGNAL = st.builds(
    PortableSignal,
    WORD,
    st.none() | st.floats(-1, 1) | st.integers(-1, 1),
    label=st.none() | TEXT,
    rationale=st.none() | TEXT,
    confidence=st.none() | st.floats(0, 1),
)
TOKENS = st.builds(
    TokenCapture,
    st.none() | st.lists(st.integers(0, 9), max_size=2).map(tuple),
    st.lists(st.integers(0, 9), min_size=1, max_size=2).map(tuple),
    st.none(),
)
STEP = st.builds(
    PortableStep,
    st.lists(OBSERVED, max_size=2).map(tuple),
    st.builds(
        lambda parts, calls: Message("assistant", (*parts, *calls)),
        st.lists(PART, max_size=2),
        st.lists(CALL, max_size=2),
    ),
    step_id=st.none() | WORD,
    timestamp=st.none() | TEXT | st.just("2026-01-01T00:00:00Z"),
    ended_at=st.none() | TEXT | st.just("2026-01-01T00:00:01Z"),
    model=st.none() | WORD,
    response_id=st.none() | WORD,
    finish_reason=st.none() | WORD,
    sampling=st.just({}) | st.just({"temperature": 0.5, "zip": [1]}),
    usage=st.builds(Usage, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)),
    cost_usd=st.none() | st.floats(0, 1),
    tokens=st.none() | TOKENS,
    loss_mask=st.none() | st.just((True, False)),
    signals=st.lists(SIGNAL, max_size=2).map(tuple),
    purposes=st.none() | st.lists(WORD, max_size=2).map(tuple),
    legal_basis=st.none() | WORD,
    subjects=st.none() | st.lists(WORD, max_size=2).map(tuple),
)
TRAJECTORY = st.builds(
    Trajectory,
    st.lists(STEP, min_size=1, max_size=3).map(tuple),
    st.lists(OBSERVED, max_size=1).map(tuple),
    trajectory_id=st.none() | WORD,
    session_id=st.none() | WORD,
    agent_name=st.none() | WORD,
    agent_version=st.none() | WORD,
    model=st.none() | WORD,
    tools=st.lists(OBJECT, max_size=1).map(tuple),
    end_user=st.none() | WORD,
    signals=st.lists(SIGNAL, max_size=1).map(tuple),
)


def once(name: str, trajectory: Trajectory) -> Any:
    """Return the document of one trajectory, as a file would hold it."""
    (written,) = FORMATS[name].write([trajectory])
    assert written.lost == ()
    return json.loads(json.dumps(written.document))


def same(one: Trajectory, other: Trajectory) -> bool:
    return canonical_json(to_json(one)) == canonical_json(to_json(other))


@pytest.mark.parametrize("name", SINGLE)
@settings(max_examples=40, deadline=None)
@given(TRAJECTORY)
def test_every_trajectory_survives_the_way_out_and_in(name: str, trajectory: Trajectory) -> None:
    (again,) = FORMATS[name].read(once(name, trajectory), "x")
    assert same(again, trajectory)


@pytest.mark.parametrize("name", [name for name in HOLDS_ALL if name != "trl-preference"])
def test_what_a_real_client_sent_survives_and_needs_no_patch(name: str) -> None:
    document = once(name, own_trajectory())
    (again,) = FORMATS[name].read(document, "x")
    assert same(again, own_trajectory())
    assert again.ext == {}


@pytest.mark.parametrize("through", ["atif", "otel-genai", "adp", "rlds", "openenv"])
def test_a_document_survives_another_format(through: str) -> None:
    document = {**once("atif", own_trajectory()), "notes": "what only ATIF holds"}
    (trajectory,) = FORMATS["atif"].read(document, "x")
    (again,) = FORMATS[through].read(once(through, trajectory), "x")
    assert canonical_json(once("atif", again)) == canonical_json(document)


def naming(name: str, document: Any) -> Any:
    """Return a document that names two people, where the format has places for that."""
    match name:
        case "headrace":
            return {**document, "end_user": "u-17", "also_named": ["u-18"]}
        case "atif":
            first, *others = document["steps"]
            steps = [{**first, "extra": {"user_id": "u-18"}}, *others]
            return {**document, "extra": {"user_id": "u-17"}, "steps": steps}
        case "adp":
            return {**document, "details": {"user_id": "u-17", "end_user": "u-18"}}
        case "rlds":
            return {**document, "episode_metadata": {"user_id": "u-17", "user.id": "u-18"}}
        case "openenv":
            (turn,) = document["turns"]
            request = {**turn["request"], "user": "u-17"}
            turn = {**turn, "request": request, "metadata": {"user_id": "u-18"}}
            return {**document, "turns": [turn]}
        case "otel-genai" | "openinference":
            (group,) = document["resourceSpans"]
            (scope,) = group["scopeSpans"]
            root, first, *others = scope["spans"]
            root, first = _naming_span(root, "u-17"), _naming_span(first, "u-18")
            scope = {**scope, "spans": [root, first, *others]}
            return {**document, "resourceSpans": [{**group, "scopeSpans": [scope]}]}
        case _:
            return {**document, "user": "u-17", "metadata": {"user_id": "u-18"}}


def _naming_span(span: Any, person: str) -> Any:
    said = {"key": "user.id", "value": {"stringValue": person}}
    return {**span, "attributes": [*span["attributes"], said]}


@pytest.mark.parametrize("name", [name for name in HOLDS_ALL if name != "trl-preference"])
def test_everybody_whom_a_document_names_is_read_and_written_again(name: str) -> None:
    document = naming(name, without_rest(DOCUMENTS[name]))
    (read,) = FORMATS[name].read(document, "x")
    assert (read.end_user, read.also_named) == ("u-17", ("u-18",))
    (again,) = FORMATS[name].read(once(name, read), "x")
    assert (again.end_user, again.also_named) == ("u-17", ("u-18",))


def mutated(data: st.DataObject, document: Any) -> Any:
    """Return a document with one value anywhere replaced, removed or added."""
    inner: Any = {"": document}
    name: Any = ""
    while isinstance(inner[name], dict | list) and inner[name] and data.draw(st.integers(0, 5)):
        inner = inner[name]
        keys = sorted(inner) if isinstance(inner, dict) else range(len(inner))
        name = data.draw(st.sampled_from(list(keys)))
    if data.draw(st.booleans()) or name == "":
        inner[name] = data.draw(JSON)
    else:
        del inner[name]
    return inner[""] if name == "" else document


def without_rest(value: Any) -> Any:
    """Return a document as others would write it: nothing of ours in its free place."""
    if isinstance(value, list):
        kept = [item for item in value if not isinstance(item, dict) or item.get("key") != KEY]
        return [without_rest(item) for item in kept]
    if isinstance(value, dict):
        return {name: without_rest(item) for name, item in value.items() if name != KEY}
    return value


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_wrong_document_is_named_and_a_right_one_comes_back(
    name: str, data: st.DataObject
) -> None:
    foreign = data.draw(st.booleans())
    given_one = without_rest(DOCUMENTS[name]) if foreign else DOCUMENTS[name]
    document = mutated(data, json.loads(json.dumps(given_one)))
    try:
        found = FORMATS[name].read(document, "a.jsonl:3")
    except FormError as error:
        words = str(error)
    else:
        words = ""
    if words:
        assert words.startswith("a.jsonl:3: ")
        return
    written = [one.document for one in FORMATS[name].write(found)]
    if foreign and name not in ("trl-preference", "otel-genai", "openinference"):
        assert [canonical_json(one) for one in written] == [canonical_json(document)]


def pair() -> Any:
    good, bad = own_trajectory(), own_trajectory()
    worse = PortableStep(bad.steps[-1].observed, Message("assistant", (TextPart("no"),)))
    better = PortableStep(
        good.steps[-1].observed,
        Message("assistant", (TextPart("yes"),)),
        signals=(PortableSignal("success", 1.0),),
    )
    lost = PortableSignal("success", 0.0)
    (row,) = FORMATS["trl-preference"].write(
        [
            Trajectory((*bad.steps[:-1], worse), signals=(lost,), tools=bad.tools),
            Trajectory((*good.steps[:-1], better), tools=good.tools),
        ]
    )
    return row.document


DOCUMENTS = {
    name: pair()
    if name == "trl-preference"
    else next(FORMATS[name].write([own_trajectory()])).document
    for name in NAMES
}


def test_what_prompt_only_rows_lose_is_told() -> None:
    (written,) = FORMATS["trl-prompt-only"].write([own_trajectory()])
    assert written.lost == ("trajectory_id", "session_id", "steps", "trailing", "signals")


def test_preference_rows_pair_better_with_worse_answers() -> None:
    row = pair()
    assert row["chosen"] == [{"role": "assistant", "content": "yes"}]
    assert row["rejected"] == [{"role": "assistant", "content": "no"}]
    chosen, rejected = FORMATS["trl-preference"].read(row, "x")
    again = next(FORMATS["trl-preference"].write([rejected, chosen])).document
    assert canonical_json(again) == canonical_json(row)
