"""Bodies that repeat are parsed as any other JSON is, and what was sent before is the same object."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory.canonical import JsonValue
from trajectory.dialects import resends as bodies
from trajectory.dialects.resends import Bodies, UnusualError
from trajectory.dialects.wire import UnreadableError, parse_body, parse_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
INDENTS = st.sampled_from([None, 0, 2])


def outcome(parse: Any, data: bytes) -> Any:
    try:
        return repr(parse(data, "request"))
    except UnreadableError as error:
        return error.args


@given(st.dictionaries(st.text(), JSON | st.lists(JSON), max_size=4) | JSON, INDENTS, st.booleans())
def test_a_body_is_what_any_json_parser_says(value: Any, indent: int | None, ascii_: bool) -> None:
    data = json.dumps(value, indent=indent, ensure_ascii=ascii_).encode("utf-8", "surrogatepass")
    assert outcome(parse_body, data) == outcome(parse_json, data)
    assert outcome(parse_body, data) == outcome(parse_json, data)


PIECES = st.lists(
    st.sampled_from([
        "{", "}", "[", "]", ",", ":", '"a"', '"b"', '"\\ud800"', '"\\ud83d\\ude00"', " ", "\n", "1",
        "1.5", "-", "NaN", "null", "tru", "true", '{"a":1}', '{"a":1,"b":[{}]}', "\ufeff", "é", "\\",
        '"', "\x00",
    ]),
    max_size=14,
)  # fmt: skip


@given(PIECES, st.booleans())
def test_so_it_is_of_what_is_no_json(pieces: list[str], wrapped: bool) -> None:
    text = "".join(pieces)
    data = ('{"messages":[' + text + "]}" if wrapped else text).encode()
    assert outcome(parse_body, data) == outcome(parse_json, data)


@pytest.mark.parametrize("levels", [125, 126, 127, 128, 129, 5000, 200_000])
@pytest.mark.parametrize("around", ['{{"a":{}}}', '{{"a":[{{"b":{}}}]}}', '{{"a":[{}]}}'])
def test_what_is_nested_too_deep_is_refused_alike(levels: int, around: str) -> None:
    data = around.format("[" * levels + "]" * levels).encode()
    assert outcome(parse_body, data) == outcome(parse_json, data)


def test_an_object_that_was_sent_before_is_the_same_object() -> None:
    def body(*texts: str) -> bytes:
        sent = [{"role": "user", "content": text} for text in texts]
        return json.dumps({"model": "m", "messages": sent}).encode()

    one, other = "hello " * 20, "hello there " * 20
    first: Any = parse_body(body(one, other), "request")
    again: Any = parse_body(body(one, other, "more"), "request")
    assert [id(one) for one in again["messages"]][:2] == [id(one) for one in first["messages"]]
    assert again == json.loads(body(one, other, "more"))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_LIMIT_CHARACTERS", 2_000)
    parsed = Bodies(json.JSONDecoder().scan_once, _as_it_is)
    texts = [json.dumps({"messages": [{"n": number, "text": "x" * 90}]}) for number in range(200)]
    first: list[Any] = [parsed.parse(text)["messages"] for text in texts]
    again: list[Any] = [parsed.parse(text)["messages"] for text in reversed(texts)]
    kept = sum(one[0] is other[0] for one, other in zip(first, reversed(again), strict=True))
    assert 0 < kept < 60


def test_what_is_no_object_is_unusual() -> None:
    with pytest.raises(UnusualError):
        Bodies(json.JSONDecoder().scan_once, _as_it_is).parse("[1]")


def _as_it_is(value: JsonValue, _text: str, _depth: int) -> JsonValue:
    return value
