"""A span of an answer lies where its characters lie in the stored text, by a map of each character."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from tests.lakehouse import make
from tests.lakehouse.credit.worlds import bound
from trajectory.canonical import canonical_json
from trajectory.step import StoredMessage

MARK = "<PERSON_0123456789abcdef>"


class Answer:
    """An answer of one or two text parts, as it came and as it is stored."""

    def __init__(self, draw: random.Random) -> None:
        self.came = ""
        self.stored = ""
        self.where: list[int | None] = []
        """For each character as it came its place in the stored text; None in what was redacted."""
        self.parts: list[dict[str, str]] = []
        self.places: list[list[Any]] = []
        for part in range(draw.randint(1, 2)):
            came, stored = "", ""
            for _ in range(draw.randint(0, 4)):
                word = "".join(draw.choice("ab é🙂\n<>") for _ in range(draw.randint(0, 4)))
                self.where += range(len(self.stored + stored), len(self.stored + stored + word))
                came, stored = came + word, stored + word
                if draw.random() < 0.6:
                    gone = "x" * draw.randint(1, 30)
                    path = f"/output/parts/{part}/text"
                    self.places.append(["PERSON", path, len(came), len(came + gone), "d"])
                    self.where += [None] * len(gone)
                    came, stored = came + gone, stored + MARK
            self.came, self.stored = self.came + came, self.stored + stored
            self.parts.append({"type": "text", "text": stored})
        draw.shuffle(self.places)

    def place(self, start: int, end: int) -> tuple[str, int | None, int | None]:
        if end > len(self.came):
            return "outside", None, None
        first, last = self.where[start], self.where[end - 1]
        if first is None or last is None:
            return "redacted", None, None
        return "exact", first, last + 1


def spans(answer: Answer, asked: list[tuple[int, int]]) -> list[dict[str, Any]]:
    parts = canonical_json(answer.parts).decode()
    message = StoredMessage("acme", "m", "assistant", parts, 1, make.NOON)
    step = replace(make.step("t", 0), output_message_id="m")
    report = json.dumps({"places": answer.places, "counts": {}, "versions": {}})
    signals = [
        make.signal("t", 1.0, signal_id=f"{n:03d}", target_kind="token_span", target_id="t-s0",
                    step_id="t-s0", span_unit="characters", span_start=start, span_end=end)
        for n, (start, end) in enumerate(asked)
    ]  # fmt: skip
    session = bound(
        steps=[step],
        messages=[message],
        signals=signals,
        governance=[make.governed(step, redaction_report=report)],
    )
    return session.query("SELECT * FROM span_signals ORDER BY signal_id").to_pylist()


@pytest.mark.parametrize("seed", range(30))
def test_each_span_lies_where_its_characters_lie(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 (no secret)
    answer = Answer(draw)
    asked = []
    for _ in range(25):
        start = draw.randint(0, len(answer.came))
        asked.append((start, start + draw.randint(1, 12)))
    for row, span in zip(spans(answer, asked), asked, strict=True):
        state, start, end = answer.place(*span)
        assert (row["state"], row["stored_start"], row["stored_end"]) == (state, start, end), span
        shown = None if start is None else answer.stored[start:end]
        assert row["span_text"] == shown


def test_what_was_redacted_again_later_has_no_places() -> None:
    answer = Answer(random.Random(1))  # noqa: S311 (no secret)
    answer.parts, answer.places = [{"type": "text", "text": f"Ask {MARK} about it."}], []
    (row,) = spans(answer, [(0, 3)])
    assert (row["state"], row["span_text"]) == ("redacted", None)
