"""The feedback API's input: valid items get stable names, wrong ones a sentence."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.api.feedback import FeedbackError, read_feedback_items

GOOD = {"response_id": "r", "name": "success", "value": 1.0}


def read(value: object) -> list[str]:
    return [
        item.feedback_id for item in read_feedback_items(json.dumps(value).encode(), tenant_id="t")
    ]


def test_the_same_feedback_has_the_same_name() -> None:
    assert read(GOOD) == read([GOOD])
    assert read(GOOD) != read({**GOOD, "value": 0.5})
    assert read({**GOOD, "idempotency_key": "mine"}) == ["mine"]
    other = read_feedback_items(json.dumps(GOOD).encode(), tenant_id="other")
    assert other[0].feedback_id != read(GOOD)[0]


def test_every_target_is_taken() -> None:
    for kind in ("response", "step", "trajectory", "session", "group"):
        body = {
            f"{kind}_id": "x",
            "name": "n",
            "label": "good",
            "observed_at": "2026-01-01T00:00:00Z",
        }
        (item,) = read_feedback_items(json.dumps(body).encode(), tenant_id="t")
        assert (item.target_kind, item.target_id) == (kind, "x")
        assert item.body["source_kind"] == "human_explicit"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"response_id": None}, "exactly one of"),
        ({"step_id": "s"}, "exactly one of"),
        ({"name": None}, "name is missing"),
        ({"value": None}, "one of value, label, rationale"),
        ({"value": True}, "value must be a number"),
        ({"value": 10**400}, "value is out of range"),
        ({"confidence": 2}, "confidence is out of range"),
        ({"source_kind": "gut"}, "source_kind must be one of"),
        ({"observed_at": "yesterday"}, "ISO 8601"),
        ({"observed_at": "2026-01-01T00:00:00"}, "time zone"),
        ({"observed_at": "9999-12-31T23:59:59-14:00"}, "years 1 to 9999"),
        ({"observed_at": "0001-01-01T00:00:00+14:00"}, "years 1 to 9999"),
        ({"is_gold": 1}, "is_gold"),
        ({"vlaue": 1}, "'vlaue' is not a known field"),
        ({"response_id": 5}, "response_id must be a string"),
        ({"idempotency_key": "guard:0197:0:no-deletes"}, "idempotency_key may not begin with"),
    ],
)
def test_wrong_items_are_explained(change: dict[str, object], message: str) -> None:
    with pytest.raises(FeedbackError, match=f"item 1: .*{message}"):
        read([GOOD, {**GOOD, **change}])


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused_not_crashed(data: bytes) -> None:
    with contextlib.suppress(FeedbackError):
        read_feedback_items(data, tenant_id="t")


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"trajectory_id": "t", "span": {"start": 0, "end": 1}}, "a span belongs to step_id"),
        ({"step_id": "s", "span": 3}, "an object of unit, start and end"),
        ({"step_id": "s", "span": {"start": 0, "end": 1, "to": 2}}, "an object of unit, start and end"),
        ({"step_id": "s", "span": {"unit": "words", "start": 0, "end": 1}}, "characters, tokens"),
        ({"step_id": "s", "span": {"start": 3, "end": 3}}, "0 <= start < end"),
        ({"step_id": "s", "span": {"start": -1, "end": 3}}, "0 <= start < end"),
        ({"step_id": "s", "span": {"start": 0, "end": 10**9}}, "0 <= start < end"),
        ({"step_id": "s", "span": {"start": 0, "end": True}}, "0 <= start < end"),
        ({"step_id": "s", "span": {"start": 0.0, "end": 2.0}}, "0 <= start < end"),
    ],
)  # fmt: skip
def test_a_span_that_makes_no_sense_is_refused(item: dict[str, object], text: str) -> None:
    with pytest.raises(FeedbackError, match=text):
        read_feedback_items(json.dumps({"name": "x", "value": 1, **item}).encode(), tenant_id="t")


def test_a_span_is_counted_in_characters_where_nothing_is_said() -> None:
    body = {"response_id": "r", "name": "x", "value": 1, "span": {"start": 2, "end": 5}}
    (item,) = read_feedback_items(json.dumps(body).encode(), tenant_id="t")
    assert item.body["span"] == {"unit": "characters", "start": 2, "end": 5}
