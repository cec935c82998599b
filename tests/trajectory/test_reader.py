"""Exchanges that bring several calls, read again when some of them are released from quarantine."""

import json
from dataclasses import replace

from tests.trajectory.telemetry.test_calls import CHAT, exchange, pairs, span, text
from trajectory.assembly import Assembler
from trajectory.call import Call, CallKind
from trajectory.exchange import Exchange
from trajectory.reader import read_records

KEY = b"k" * 32
JUDGED = {"gen_ai.evaluation.name": "right", "gen_ai.evaluation.score.value": 1}


def export() -> Exchange:
    """Return an export of two calls, the second of which is judged."""
    asked, answer = [text("user", "hi")], text("assistant", "hello")
    spans = []
    for number in (1, 2):
        spans.append(
            span(
                number,
                {
                    **CHAT,
                    "gen_ai.input.messages": json.dumps(asked),
                    "gen_ai.output.messages": json.dumps([answer]),
                    "gen_ai.response.id": f"r{number}",
                },
                [{"name": "gen_ai.evaluation.result", "attributes": pairs(JUDGED)}],
            )
        )
        asked = [*asked, answer, text("user", "more")]
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    return exchange(body)


def released(*calls: str) -> Exchange:
    """Return the export again, with some calls released."""
    known = tuple((one, f"{number:032x}") for number, one in enumerate(calls))
    return replace(export(), exchange_id="e" * 32, released_of="0" * 32, released_calls=known)


def read(one: Exchange) -> list[Call]:
    return [*read_records([one])[0]]


def test_of_an_exchange_with_released_calls_the_others_come_along() -> None:
    own, first, second = read(export())
    held = second.exchange.exchange_id
    again, feedback = read_records([released(held)])
    assert (len(read_records([export()])[1]), feedback) == (2, [])
    judged = [one for one in again if not one.exchange.is_context]
    assert [(o.exchange.exchange_id, o.exchange.first_id) for o in judged] == [("0" * 32, held)]
    assert (judged[0].context, judged[0].output) == (second.context, second.output)
    along = [one.exchange.exchange_id for one in again if one.exchange.is_context]
    assert along == [own.exchange.exchange_id, first.exchange.exchange_id]
    assert {one.exchange.part_of for one in again} == {"e" * 32}


def test_a_released_call_stands_where_the_others_put_it_and_comes_alone() -> None:
    calls = read(export())
    remembering, forgetful = Assembler(KEY), Assembler(KEY)
    placed = remembering.assemble(calls).placed
    for assembler in (remembering, forgetful):
        for number, one in enumerate(placed):
            assembly = assembler.assemble(read(released(one.call.exchange.exchange_id)))
            (again,) = assembly.placed
            assert (again.step_id, again.parent_step_id) == (one.step_id, one.parent_step_id)
            assert again.trajectory_id == one.trajectory_id
            assert again.step_index == number
            assert assembly.unplaced == ()


def test_of_two_releases_in_one_batch_both_are_judged() -> None:
    names = [one.exchange.exchange_id for one in read(export())[1:]]
    apart = [one for name in names for one in read(released(name))]
    again = [
        replace(one, exchange=replace(one.exchange, exchange_id=f"{number:032x}"))
        if one.exchange.released_of
        else one
        for number, one in enumerate(apart)
    ]
    for calls in (again, again[::-1]):
        placed = Assembler(KEY).assemble(calls).placed
        assert [one.call.exchange.first_id for one in placed] == names


def test_a_released_call_that_is_not_found_any_more_is_opaque() -> None:
    (missing,) = [one for one in read(released("9" * 32)) if not one.exchange.is_context]
    assert (missing.kind, missing.problem) == (CallKind.OPAQUE, "release:not-found")
    assert (missing.exchange.exchange_id, missing.exchange.first_id) == ("0" * 32, "9" * 32)
