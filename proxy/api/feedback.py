"""The feedback API's input: one object or a list, each checked, each with a stable name."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from proxy.request_json import parsed
from trajectory.canonical import JsonObject, JsonValue
from trajectory.errors import ConfigurationError
from trajectory.exchange import feedback_name
from trajectory.portable import SOURCE_KINDS, SPAN_UNITS

TARGETS = ("response_id", "step_id", "trajectory_id", "session_id", "group_id")
MAX_ITEMS = 1000

_TEXTS = ("name", "label", "rationale", "source_kind", "source", "source_version", "supersedes")
_NUMBERS = ("value", "confidence")
_FIELDS = {*TARGETS, *_TEXTS, *_NUMBERS, "observed_at", "idempotency_key", "is_gold", "span"}
_OWN_NAMES = "approval:", "guard:", "implicit:"
"""What Headrace says itself is named so; the first of a name stands, so nobody else may take one."""
_MAX_TEXT = 65_536
_MAX_SPAN = 10_000_000


class FeedbackError(ConfigurationError):
    """An item of feedback is not valid; the text says which one and which field."""


@dataclass(frozen=True, slots=True)
class FeedbackItem:
    """One valid piece of feedback."""

    feedback_id: str
    target_kind: str
    target_id: str
    body: JsonObject


def read_feedback_items(raw: bytes, *, tenant_id: str) -> Sequence[FeedbackItem]:
    """Read a request body of the feedback API.

    Raises:
        FeedbackError: it is not JSON, or an item is not valid; then no item is taken.
    """
    try:
        value: JsonValue = parsed(raw)
    except (ValueError, RecursionError):
        raise FeedbackError("the body is not JSON; send one object or a list of objects") from None
    items = value if isinstance(value, list) else [value]
    if not 0 < len(items) <= MAX_ITEMS:
        raise FeedbackError(f"a request carries 1 to {MAX_ITEMS} items")
    return [_item(item, index, tenant_id) for index, item in enumerate(items)]


def _item(value: JsonValue, index: int, tenant_id: str) -> FeedbackItem:
    if not isinstance(value, dict):
        raise FeedbackError(f"item {index}: not an object")
    for name in value:
        if name not in _FIELDS:
            shown = repr(name) if name.isidentifier() and len(name) < 40 else "a name"
            raise FeedbackError(
                f"item {index}: {shown} is not a known field; known: {', '.join(sorted(_FIELDS))}"
            )
    targets = [name for name in TARGETS if value.get(name) is not None]
    if len(targets) != 1:
        raise FeedbackError(f"item {index}: exactly one of {', '.join(TARGETS)} is needed")
    target = _text(value, targets[0], index)
    if not target:
        raise FeedbackError(f"item {index}: {targets[0]} is empty")
    body = _body(value, index)
    kind = targets[0].removesuffix("_id")
    span = value.get("span")
    if span is not None:
        if kind not in ("step", "response"):
            raise FeedbackError(f"item {index}: a span belongs to step_id or response_id")
        body["span"] = _span(span, index)
    key = _text(value, "idempotency_key", index)
    if key is None:
        key = feedback_name(tenant_id, kind, target, body)
    elif key.startswith(_OWN_NAMES):
        raise FeedbackError(
            f"item {index}: idempotency_key may not begin with {', '.join(_OWN_NAMES)}"
        )
    return FeedbackItem(key, kind, target, body)


def _body(value: JsonObject, index: int) -> JsonObject:
    body: JsonObject = {}
    for name in _TEXTS:
        text = _text(value, name, index)
        if text is not None:
            body[name] = text
    for name in _NUMBERS:
        number = value.get(name)
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise FeedbackError(f"item {index}: {name} must be a number")
        if not _is_finite(number) or (name == "confidence" and not 0 <= number <= 1):
            raise FeedbackError(f"item {index}: {name} is out of range")
        body[name] = number
    if "name" not in body:
        raise FeedbackError(f"item {index}: name is missing")
    if "value" not in body and "label" not in body and "rationale" not in body:
        raise FeedbackError(f"item {index}: one of value, label, rationale is needed")
    kind = body.setdefault("source_kind", "human_explicit")
    if kind not in SOURCE_KINDS:
        raise FeedbackError(f"item {index}: source_kind must be one of {', '.join(SOURCE_KINDS)}")
    body.setdefault("source", "api")
    observed = _text(value, "observed_at", index)
    if observed is not None:
        body["observed_at"] = _time(observed, index)
    gold = value.get("is_gold")
    if gold is not None:
        if not isinstance(gold, bool):
            raise FeedbackError(f"item {index}: is_gold must be true or false")
        body["is_gold"] = gold
    return body


def _span(value: JsonValue, index: int) -> JsonObject:
    """Return a span of an answer: from ``start`` up to ``end``, counted from 0."""
    where = f"item {index}: span"
    if not isinstance(value, dict) or set(value) - {"unit", "start", "end"}:
        raise FeedbackError(f"{where} must be an object of unit, start and end")
    unit = value.get("unit", "characters")
    if unit not in SPAN_UNITS:
        raise FeedbackError(f"{where}: unit must be one of {', '.join(SPAN_UNITS)}")
    start, end = value.get("start"), value.get("end")
    if type(start) is not int or type(end) is not int or not 0 <= start < end <= _MAX_SPAN:
        raise FeedbackError(
            f"{where}: start and end must be whole numbers with 0 <= start < end <= {_MAX_SPAN}"
        )
    return {"unit": unit, "start": start, "end": end}


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # JSON has whole numbers of any length
        return False


def _text(value: JsonObject, name: str, index: int) -> str | None:
    text = value.get(name)
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > _MAX_TEXT:
        raise FeedbackError(
            f"item {index}: {name} must be a string of at most {_MAX_TEXT} characters"
        )
    return text


def _time(text: str, index: int) -> str:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise FeedbackError(f"item {index}: observed_at must be an ISO 8601 time") from None
    if when.tzinfo is None:
        raise FeedbackError(
            f"item {index}: observed_at needs a time zone, like 2026-01-31T12:00:00Z"
        )
    try:
        when.astimezone(UTC)
    except OverflowError:  # no reader of the lake could show it
        raise FeedbackError(
            f"item {index}: observed_at lies outside the years 1 to 9999 of UTC"
        ) from None
    return when.isoformat()
