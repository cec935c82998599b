"""A name that is told later goes from what was stored before, in whatever batch it came."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from governance.redact import subject_id
from lakehouse.erasure.late_names import forget_replaced
from lakehouse.lake import Lake
from lakehouse.maintenance.verify import verify
from proxy.spool import RecordKind, SpoolWriter, records
from tests.headrace.installations import PlantedInstallation, chat, exchange
from trajectory.canonical import JsonObject
from trajectory.exchange import Exchange

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

NAMES = ("zorvaquim", "Zorvaquim", "teldrax", "Teldrax")
"""In small letters no detector takes them for names; told as a name they are one."""
FIRST: list[JsonObject] = [
    {"role": "user", "content": "Book the zorvaquim table, the teldrax way."}
]
SECOND: list[JsonObject] = [
    *FIRST,
    {"role": "assistant", "content": "Done, the zorvaquim one."},
    {"role": "user", "content": "Thanks. My name is Zorvaquim Teldrax, phone 415-555-0132."},
]


def one(number: int, messages: Sequence[JsonObject], answer: str) -> Exchange:
    return chat(number, messages, answer)


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlantedInstallation:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    return PlantedInstallation(tmp_path)


def lake_of(house: PlantedInstallation) -> Lake:
    return Lake.open(str(house.home.lake))


def rows(house: PlantedInstallation, sql: str) -> list[Any]:
    return list(lake_of(house).query(sql).to_pylist())


def is_sound(house: PlantedInstallation) -> None:
    report = verify(lake_of(house), message_key=house.secrets.derive(b"message"))
    assert report.ok, report.findings


def test_a_name_told_later_goes_from_what_was_stored(house: PlantedInstallation) -> None:
    first = one(1, FIRST, "Done, the zorvaquim one.")
    assert house.govern(first) == {"stored": 1}
    assert "zorvaquim" in house.at_rest(NAMES)
    assert house.govern(one(2, SECOND, "You are welcome, Zorvaquim.")) == {"stored": 1}
    assert house.at_rest(NAMES) == {}
    said = [
        row["parts"] for row in rows(house, "SELECT parts FROM messages ORDER BY first_seen_at")
    ]
    assert len(said) == 4
    marks = {mark for text in said for mark in text.split("<")[1:] if mark.startswith("PERSON")}
    assert len({mark.partition(">")[0] for mark in marks}) == 1
    subjects = rows(
        house,
        "SELECT list_sort(subjects) AS s FROM governance "
        "QUALIFY row_number() OVER (PARTITION BY step_id ORDER BY decided_at DESC) = 1",
    )
    assert set(subjects[0]["s"]) & set(subjects[1]["s"])
    conversations = lake_of(house).conversations(
        trajectory_ids=[rows(house, "SELECT DISTINCT trajectory_id AS t FROM steps")[0]["t"]]
    )
    whole = [[message.text() for message in c.context] for c in conversations.values()]
    assert [len(texts) for texts in whole] == [1, 3]
    assert whole[0][0] == whole[1][0]
    is_sound(house)


def test_a_later_trajectory_with_a_rewritten_message_is_found_under_that_person(
    house: PlantedInstallation,
) -> None:
    house.govern(one(1, FIRST, "Done, the zorvaquim one."))
    house.govern(one(2, SECOND, "You are welcome, Zorvaquim."))
    (first, _) = rows(
        house,
        "SELECT g.subjects AS s FROM steps JOIN governance g USING (step_id) "
        "QUALIFY row_number() OVER (PARTITION BY step_id ORDER BY decided_at DESC) = 1 "
        "ORDER BY steps.started_at",
    )
    assert first["s"]
    again: list[JsonObject] = [{"role": "system", "content": "Be brief."}, *FIRST]
    other: list[JsonObject] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi."},
    ]
    house.govern(one(3, again, "It is booked."), one(4, other, "Hi."))
    (new, unconcerned) = rows(
        house,
        "SELECT s.trajectory_id AS t, g.subjects AS subjects FROM steps s JOIN governance g USING (step_id) "
        "ORDER BY s.started_at DESC LIMIT 2",
    )[::-1]
    assert new["t"] != unconcerned["t"]
    assert set(first["s"]) <= set(new["subjects"])
    assert unconcerned["subjects"] == []


def test_the_same_again_changes_nothing(house: PlantedInstallation) -> None:
    house.govern(one(1, FIRST, "Done, the zorvaquim one."))
    house.govern(one(2, SECOND, "You are welcome, Zorvaquim."))
    before = lake_of(house).versions()["messages"]
    third = [
        *SECOND,
        {"role": "assistant", "content": "You are welcome, Zorvaquim."},
        {"role": "user", "content": "It is Zorvaquim Teldrax again, mail z.t@corp-mail.com."},
    ]
    house.govern(one(3, third, "Hello."))
    assert lake_of(house).versions()["messages"] == before + 1  # its own messages alone
    assert house.at_rest(NAMES) == {}
    is_sound(house)


def test_tool_calls_and_results_that_are_stored_are_reached(house: PlantedInstallation) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "book", "arguments": ""}}
    call["function"] = {"name": "book", "arguments": json.dumps({"note": "the zorvaquim table"})}
    body: list[JsonObject] = [
        {"role": "user", "content": "Book it."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": json.dumps({"booked": "the teldrax one"}),
        },
    ]
    answer: JsonObject = {
        "id": "chatcmpl-1", "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": body[1]}],
    }  # fmt: skip
    asked: JsonObject = {"model": "m", "messages": body[:1]}
    house.govern(exchange(1, "/v1/chat/completions", asked, answer))
    house.govern(one(2, body, "Booked."))
    assert "zorvaquim" in house.at_rest(NAMES)
    later = [
        *body,
        {"role": "assistant", "content": "Booked."},
        {"role": "user", "content": "My name is Zorvaquim Teldrax."},
    ]
    house.govern(one(3, later, "Good."))
    assert house.at_rest(NAMES) == {}
    is_sound(house)


def test_a_crash_in_between_leaves_nothing_in_clear(
    house: PlantedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.govern(one(1, FIRST, "Done, the zorvaquim one."))
    with monkeypatch.context() as patched:
        patched.setattr("lakehouse.erasure.late_names.forget_replaced", _crash)
        with pytest.raises(KeyboardInterrupt):
            house.govern(one(2, SECOND, "You are welcome, Zorvaquim."))
    assert "zorvaquim" in house.at_rest(NAMES)
    assert "zorvaquim" not in str(rows(house, "SELECT parts FROM messages"))
    forget_replaced(lake_of(house))  # what maintenance does
    assert house.at_rest(NAMES) == {}
    house.begin_again()
    assert house.govern() == {"stored": 1}
    assert house.at_rest(NAMES) == {}
    latest = rows(
        house,
        "SELECT subjects FROM governance "
        "QUALIFY row_number() OVER (PARTITION BY step_id ORDER BY decided_at DESC) = 1",
    )
    assert set(latest[0]["subjects"]) & set(latest[1]["subjects"])
    is_sound(house)


def say_of_first_answer(
    house: PlantedInstallation,
    number: int,
    rationale: str,
    about: tuple[str, str] = ("response", "chatcmpl-1x"),
) -> None:
    """Capture feedback on the first answer, or on something else."""
    client = one(1, FIRST, "").client
    body: JsonObject = {"name": "success", "value": 1.0, "rationale": rationale}
    record = records.feedback(
        bytes.fromhex(f"{100 + number:032x}"),
        client,
        received_at=datetime.now(UTC).timestamp(),
        feedback_id=f"f{number}",
        target_kind=about[0],
        target_id=about[1],
        body=body,
    )
    with SpoolWriter(house.home.spool, house.secrets.derive(b"spool")) as writer:
        writer.append(RecordKind.FEEDBACK, record)


def test_a_name_told_later_goes_from_feedback(house: PlantedInstallation) -> None:
    house.govern(one(1, FIRST[:1], "Done."))
    say_of_first_answer(house, 1, "the zorvaquim guest was happy")
    house.govern()
    assert "zorvaquim guest" in str(rows(house, "SELECT rationale FROM signals"))
    later = [*FIRST, {"role": "assistant", "content": "Done."}, SECOND[-1]]
    assert house.govern(one(2, later, "You are welcome.")) == {"stored": 1}
    assert house.at_rest(NAMES) == {}
    (said,) = rows(house, "SELECT rationale, value FROM signals")
    assert said["rationale"].startswith("the <PERSON")
    assert said["rationale"].endswith(" guest was happy")
    assert said["value"] == 1.0
    is_sound(house)


def test_a_name_told_later_goes_from_feedback_on_the_group(house: PlantedInstallation) -> None:
    in_group = ("x-headrace-group", "s-17")

    def said(number: int, messages: Sequence[JsonObject], answer: str) -> Exchange:
        plain = one(number, messages, answer)
        request = replace(plain.request, headers=(*plain.request.headers, in_group))
        return replace(plain, request=request)

    house.govern(said(1, FIRST[:1], "Done."))
    say_of_first_answer(house, 1, "the zorvaquim guest was happy", ("group", "s-17"))
    house.govern()
    (signal,) = rows(house, "SELECT rationale, trajectory_id FROM signals")
    assert (signal["rationale"], signal["trajectory_id"]) == ("the zorvaquim guest was happy", None)
    later = [*FIRST, {"role": "assistant", "content": "Done."}, SECOND[-1]]
    assert house.govern(said(2, later, "You are welcome.")) == {"stored": 1}
    assert house.at_rest(NAMES) == {}
    is_sound(house)


@pytest.mark.parametrize(
    ("header", "kind"), [("x-headrace-group", "group"), ("x-headrace-session", "session")]
)
def test_feedback_on_a_group_or_session_comes_after_the_name_was_told(
    house: PlantedInstallation, header: str, kind: str
) -> None:
    def said_in(name: str, plain: Exchange) -> Exchange:
        headers = (*plain.request.headers, (header, name))
        return replace(plain, request=replace(plain.request, headers=headers))

    told = said_in("s-17", one(1, SECOND, "You are welcome."))
    assert house.govern(told, said_in("s-18", one(2, FIRST[:1], "Done."))) == {"stored": 2}
    say_of_first_answer(house, 1, "the zorvaquim guest was happy", (kind, "s-17"))
    say_of_first_answer(house, 2, "the zorvaquim guest was happy", (kind, "s-18"))
    house.govern()
    said = rows(house, "SELECT rationale FROM signals ORDER BY rationale")
    assert [row["rationale"].startswith("the zorvaquim") for row in said] == [False, True]
    assert said[0]["rationale"].startswith("the <PERSON")


def _crash(_lake: Lake) -> int:
    raise KeyboardInterrupt


def test_parts_of_names_are_remembered_by_their_hashes(house: PlantedInstallation) -> None:
    house.govern(one(1, SECOND, "You are welcome."))
    lake = lake_of(house)
    name = lake.query("SELECT trajectory_id AS t FROM steps")["t"][0].as_py()
    parts = lake.known_content().name_parts("acme", [name, "another"])
    assert {*parts} == {name}
    assert len(parts[name]) >= 2
    assert len({part.mark for part in parts[name]}) == 1
    assert lake.known_content().name_parts("umbra", [name]) == {}


def test_an_older_lake_gets_the_column(house: PlantedInstallation) -> None:
    house.govern(one(1, FIRST, "Done."))
    assert rows(house, "SELECT DISTINCT content_id FROM messages") == [{"content_id": None}]


def test_trajectories_that_share_a_message_share_whom_it_names_and_keep_their_prompt(
    house: PlantedInstallation,
) -> None:
    prompt: JsonObject = {"role": "system", "content": "You serve the zorvaquim hotel."}
    alike = [prompt, *FIRST]
    assert house.govern(one(1, alike, "Done.")) == {"stored": 1}
    assert house.govern(one(2, alike, "A table for two, then?")) == {"stored": 1}
    told = [*alike, {"role": "assistant", "content": "Done."}, SECOND[-1]]
    assert house.govern(one(3, told, "You are welcome.")) == {"stored": 1}
    latest = rows(
        house,
        "SELECT s.trajectory_id AS t, g.subjects AS s FROM governance_latest g "
        "JOIN steps s USING (tenant_id, step_id)",
    )
    assert len({row["t"] for row in latest}) == 2
    assert set.intersection(*(set(row["s"]) for row in latest))
    assert not any(
        "zorvaquim table" in row["parts"] for row in rows(house, "SELECT * FROM messages")
    )
    for told in ("parts FROM messages", "system_prompt FROM harnesses"):
        assert "the zorvaquim hotel" in str(rows(house, f"SELECT {told}"))
    is_sound(house)


def test_trajectories_that_share_a_message_may_be_told_names_at_once(
    house: PlantedInstallation,
) -> None:
    people = {"Done.": "Zorvaquim Belmonte", "A table for two, then?": "Teldrax Okafor"}
    told: list[Exchange] = []
    for number, (answer, name) in enumerate(people.items(), start=1):
        assert house.govern(one(number, FIRST, answer)) == {"stored": 1}
        answered: JsonObject = {"role": "assistant", "content": answer}
        named: JsonObject = {"role": "user", "content": f"My name is {name}."}
        told.append(one(number + 2, [*FIRST, answered, named], "You are welcome."))
    assert house.govern(*told) == {"stored": 2}
    (shared,) = rows(house, "SELECT parts FROM messages WHERE parts LIKE '%Book the%'")
    assert not any(name in shared["parts"] for name in NAMES)
    key = house.secrets.derive(b"pseudonym")
    concerned = {subject_id(key, "acme", name) for name in people.values()}
    began = rows(
        house,
        "SELECT g.subjects AS s FROM governance_latest g JOIN steps s USING (tenant_id, step_id) "
        "WHERE s.step_index = 0",
    )
    assert [concerned <= {*row["s"]} for row in began] == [True, True]
    is_sound(house)


def exact(number: int, messages: Sequence[JsonObject], answer: str) -> Exchange:
    """Return an exchange whose engine gives token ids."""
    said: JsonObject = {"role": "assistant", "content": answer}
    asked: JsonObject = {"model": "m", "messages": [*messages]}
    choice: JsonObject = {"index": 0, "finish_reason": "stop", "message": said, "token_ids": [4, 5]}
    told: JsonObject = {
        "id": f"chatcmpl-{number}x",
        "object": "chat.completion",
        "model": "m",
        "prompt_token_ids": [1, 2, 3],
        "choices": [choice],
    }
    return exchange(number, "/v1/chat/completions", asked, told)


def test_tokens_go_from_every_trajectory_that_holds_the_message(house: PlantedInstallation) -> None:
    assert house.govern(exact(1, FIRST, "Done.")) == {"stored": 1}
    assert house.govern(exact(2, FIRST, "A table for two, then?")) == {"stored": 1}
    assert len(rows(house, "SELECT * FROM tokens")) == 2
    told = [*FIRST, {"role": "assistant", "content": "Done."}, SECOND[-1]]
    assert house.govern(one(3, told, "You are welcome.")) == {"stored": 1}
    assert rows(house, "SELECT * FROM tokens") == []
    assert rows(house, "SELECT DISTINCT capture_level FROM steps") == [{"capture_level": "text"}]
    is_sound(house)
