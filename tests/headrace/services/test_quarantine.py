"""Held calls that came with others in one exchange: each is decided by itself, and nothing is stored twice."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from governance.policy.bundle import SHIPPED
from headrace.app.context import AppContext
from headrace.cli import run
from headrace.services import quarantine
from headrace.services.erasure import ErasureRequest, erase_person
from lakehouse.lake import Lake
from lakehouse.maintenance.verify import verify
from proxy.spool import RecordKind, SpoolWriter
from proxy.spool.exchanges import exchange_records
from proxy.spool.records import feedback
from tests.headrace.installations import ALL, PlantedInstallation, chat
from tests.scenarios.test_late_users import (
    TRACE as USERS,
)
from tests.scenarios.test_late_users import (
    export,
    name_of,
    of,
    span,
    steps,
    withdraw,
)
from tests.trajectory.telemetry.test_calls import TRACE, pairs, text
from trajectory.dialects.websocket import pack_message
from trajectory.errors import ConfigurationError
from trajectory.exchange import (
    ClientIdentity,
    Exchange,
    ExchangeOutcome,
    HttpRequest,
    HttpResponse,
    SpoolPosition,
)
from trajectory.imports import document_body, format_header
from trajectory.message import Message, TextPart
from trajectory.portable import PortableStep, Trajectory

WORD = "zorvaquim"
COMMENT = "quibblefast"
"""No detector takes them for personal data, so they rest in clear where they rest at all."""
SHORT, LONG = "done", f"{WORD} " * 20
RULE = """    - name: short-answers
      expectation: expect_column_values_to_be_between
      column: output_characters
      max_value: %d
"""


def began(hours: float = 1) -> datetime:
    """Return a moment of whole seconds some hours ago."""
    return (datetime.now(UTC) - timedelta(hours=hours)).replace(microsecond=0)


def whole(at: datetime, **changes: Any) -> Exchange:
    """Return an exchange of tenant ``acme`` that brings several calls."""
    base = Exchange(
        exchange_id=f"{int(at.timestamp() * 1000):012x}" + "c" * 20,
        client=ClientIdentity("acme", "app", "test", "key", ALL),
        route="r",
        mode="base_url",
        upstream="http://u:1",
        started_at=at,
        first_byte_at=at,
        ended_at=at + timedelta(minutes=5),
        request=HttpRequest("POST", "/", "", (), b""),
        response=HttpResponse(200, (), b""),
        outcome=ExchangeOutcome.COMPLETE,
        position=SpoolPosition("w", 0, 0),
    )
    return replace(base, **changes)


def spans(answers: Sequence[str], at: datetime) -> Exchange:
    """Return a trace export with a model's span for each answer."""
    said: list[dict[str, Any]] = []
    made: list[dict[str, Any]] = []
    for number, answer in enumerate(answers):
        said.append(text("user", f"question {number}"))
        start = int((at + timedelta(seconds=number)).timestamp()) * 1_000_000_000
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.conversation.id": "s1",
            "gen_ai.request.model": "m",
            "gen_ai.response.id": f"r-{number}",
            "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.input.messages": json.dumps(said),
            "gen_ai.output.messages": json.dumps([text("assistant", answer)]),
        }
        made.append(
            {
                "traceId": TRACE,
                "spanId": f"{number + 1:016x}",
                "name": "chat m",
                "startTimeUnixNano": str(start),
                "endTimeUnixNano": str(start + 500_000_000),
                "attributes": pairs(attributes),
            }
        )
        said.append(text("assistant", answer))
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": made}]}]}).encode()
    kind = ("content-type", "application/json")
    return whole(at, mode="otlp", request=HttpRequest("POST", "/v1/traces", "", (kind,), body))


def document(answers: Sequence[str], at: datetime) -> Exchange:
    """Return an imported document with a step for each answer."""
    steps = tuple(
        PortableStep(
            (Message("user", (TextPart(f"question {number}"),)),),
            Message("assistant", (TextPart(answer),)),
        )
        for number, answer in enumerate(answers)
    )
    body = document_body(Trajectory(steps, model="m"))
    name, value = format_header("headrace")
    headers = ((name.decode(), value.decode()),)
    return whole(
        at, mode="import", request=HttpRequest("POST", "/import/headrace", "", headers, body)
    )


def conversation(answers: Sequence[str], at: datetime) -> Exchange:
    """Return a WebSocket connection with a turn for each answer, which sends only what is new."""
    asked, told = b"", b""
    for number, answer in enumerate(answers):
        create: dict[str, Any] = {
            "type": "response.create",
            "model": "m",
            "input": [{"role": "user", "content": f"question {number}"}],
        }
        if number:
            create["previous_response_id"] = f"resp_{number - 1}"
        output = {
            "type": "message",
            "id": f"msg_{number}",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": answer}],
        }
        done = {
            "id": f"resp_{number}",
            "object": "response",
            "model": "m",
            "status": "completed",
            "output": [output],
        }
        moment = at.timestamp() + number
        asked += pack_message(2 * number, moment, json.dumps(create).encode(), is_text=True)
        event = {"type": "response.completed", "response": done}
        told += pack_message(2 * number + 1, moment + 0.5, json.dumps(event).encode(), is_text=True)
    upgrade = (("upgrade", "websocket"), ("connection", "upgrade"))
    return whole(
        at,
        request=HttpRequest("GET", "/v1/responses", "", upgrade, asked),
        response=HttpResponse(101, upgrade, told),
    )


KINDS = {"spans": spans, "steps": document, "turns": conversation}
of_each_kind = pytest.mark.parametrize("kind", KINDS)


class House:
    """An installation whose policy holds long answers back, until it allows them."""

    def __init__(self, folder: Path, rule: str = RULE) -> None:
        self._rule = rule
        self._policy = folder / "policy"
        shutil.copytree(SHIPPED / "default", self._policy)
        redaction = self._policy / "redaction.yaml"
        redaction.write_text(redaction.read_text().replace("model: embedded", "model: null"))
        self._quality = self._policy / "quality.yaml"
        self._shipped = self._quality.read_text()
        self._ask(60)
        self.planted = PlantedInstallation(folder / "home", str(self._policy))
        self.home = self.planted.home

    def _ask(self, most: int) -> None:
        asked = "  expectations:\n"
        self._quality.write_text(self._shipped.replace(asked, asked + self._rule % most, 1))

    def allow(self) -> None:
        self._ask(10_000)

    def capture(self, *exchanges: Exchange) -> dict[str, int]:
        """Write exchanges as a gateway does, and govern them."""
        with SpoolWriter(self.home.spool, self.planted.secrets.derive(b"spool")) as writer:
            for one in exchanges:
                writer.append_all(exchange_records(one))
        return self.planted.govern()

    def say(self, kind: str, target: str, value: float = 1.0) -> None:
        """Send feedback with a comment, and govern it."""
        record = feedback(
            bytes(16),
            ClientIdentity("acme", "app", "test", "key", ALL),
            received_at=datetime.now(UTC).timestamp(),
            feedback_id=f"{kind}-{target}",
            target_kind=kind,
            target_id=target,
            body={"name": "success", "value": value, "rationale": COMMENT},
        )
        with SpoolWriter(self.home.spool, self.planted.secrets.derive(b"spool")) as writer:
            writer.append(RecordKind.FEEDBACK, record)
        self.planted.govern()

    def successes(self) -> list[float]:
        """Return what stands in the lake of all that was said."""
        lake = Lake.open(str(self.home.lake))
        found = lake.query("SELECT value FROM signals_placed WHERE name = 'success'")
        values: list[float] = found["value"].to_pylist()
        return values

    def app(self) -> AppContext:
        return AppContext(self.home.root, debug=False)

    def cases(self, status: str = "held") -> list[quarantine.Case]:
        """Return the cases, the earliest first."""
        return quarantine.cases(self.app(), status=status)[::-1]

    def release(self, *cases: quarantine.Case) -> dict[str, int]:
        """Release cases, and have them judged."""
        assert len(quarantine.release(self.app(), cases, "una")) == len(cases)
        return self.planted.govern()

    def drop(self, case: quarantine.Case) -> None:
        assert quarantine.drop(self.app(), [case], "una") == 1

    def sealed(self) -> list[str]:
        """Return the names of what is kept for a release."""
        return sorted(quarantine.content_of(self.app()).names())

    def steps(self) -> list[dict[str, Any]]:
        """Return the stored steps of the exchange in their order, each once, in a lake without fault."""
        lake = Lake.open(str(self.home.lake))
        report = verify(lake, message_key=self.planted.secrets.derive(b"message"))
        assert report.ok, report.findings
        rows: list[dict[str, Any]] = lake.query(
            "SELECT * FROM steps WHERE dialect <> 'openai.chat' ORDER BY step_index, started_at"
        ).to_pylist()
        return rows


def assert_chain(steps: list[dict[str, Any]], length: int) -> None:
    """Each step goes on from the one before it, in one trajectory."""
    assert [step["step_index"] for step in steps] == [*range(length)]
    assert [step["parent_step_id"] for step in steps[1:]] == [s["step_id"] for s in steps[:-1]]
    assert len({step["trajectory_id"] for step in steps}) == 1


@of_each_kind
def test_a_released_call_takes_its_place_among_those_that_came_with_it(
    kind: str, tmp_path: Path
) -> None:
    house = House(tmp_path)
    captured = KINDS[kind]([SHORT, LONG, SHORT], began())
    house.capture(captured)
    middle, *after = house.cases()
    assert middle["reason"] == "quality:short-answers"
    # A turn that sent only what is new cannot do without the one before it.
    assert [one["reason"] for one in after] == ["quality:parent-present"] * (kind == "turns")
    assert house.sealed() == [captured.exchange_id], "once, under the name of the whole"
    house.allow()
    assert house.release(middle) == {"stored": 1}
    assert house.sealed() == [captured.exchange_id] * len(after)
    for one in after:
        assert house.release(one) == {"stored": 1}
    assert_chain(house.steps(), 3)
    assert (house.cases(), house.sealed()) == ([], [])


@of_each_kind
@pytest.mark.parametrize("most", [1, quarantine.CALLS_AT_ONCE])
def test_calls_of_one_exchange_are_released_at_once(
    kind: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "CALLS_AT_ONCE", most)
    house = House(tmp_path)
    house.capture(KINDS[kind]([LONG] * 3, began()))
    house.allow()
    assert house.release(*house.cases()) == {"stored": 3}
    assert_chain(house.steps(), 3)
    assert (house.cases(), house.sealed()) == ([], [])


@of_each_kind
def test_two_releases_of_one_exchange_are_judged_in_one_batch(kind: str, tmp_path: Path) -> None:
    house = House(tmp_path)
    house.capture(KINDS[kind]([LONG, SHORT, LONG], began()))
    house.allow()
    held = house.cases()
    for one in held[::-1]:
        assert len(quarantine.release(house.app(), [one], "una")) == 1
    assert house.planted.govern() == {"stored": len(held)}
    assert_chain(house.steps(), 3)
    assert house.sealed() == []


@of_each_kind
@pytest.mark.parametrize("first", ["drop", "release"])
def test_one_call_is_dropped_and_another_of_its_exchange_released(
    kind: str, first: str, tmp_path: Path
) -> None:
    house = House(tmp_path)
    captured = KINDS[kind]([LONG, LONG], began())
    house.capture(captured)
    house.allow()
    released, dropped = house.cases()
    if first == "drop":
        house.drop(dropped)
        assert house.sealed() == [captured.exchange_id]
        assert house.release(released) == {"stored": 1}
    else:
        assert house.release(released) == {"stored": 1}
        assert house.sealed() == [captured.exchange_id]
        house.drop(dropped)
    assert house.sealed() == []
    assert [one["status"] for one in house.cases("all")] == ["released", "dropped"]
    assert len(house.steps()) == 1


@of_each_kind
def test_what_the_policy_holds_again_is_kept_again_and_stored_once(
    kind: str, tmp_path: Path
) -> None:
    house = House(tmp_path)
    house.capture(KINDS[kind]([LONG, LONG], began()))
    assert house.release(*house.cases()) == {"quarantined": 2}
    assert len(house.sealed()) == 1
    house.allow()
    for one in house.cases():
        assert house.release(one) == {"stored": 1}
    assert_chain(house.steps(), 2)
    assert (house.cases(), house.sealed()) == ([], [])


@of_each_kind
def test_a_call_finds_its_place_also_where_its_conversation_is_forgotten(
    kind: str, tmp_path: Path
) -> None:
    house = House(tmp_path)
    house.capture(KINDS[kind]([SHORT, LONG], began(hours=30)))
    house.capture(chat(1, [{"role": "user", "content": "later"}]))
    house.allow()
    house.planted.begin_again()
    assert house.release(*house.cases()) == {"stored": 1}
    assert_chain(house.steps(), 2)


@of_each_kind
@pytest.mark.parametrize("governed_between", [False, True])
def test_a_release_that_was_killed_before_it_closed_its_case_is_done_again_once(
    kind: str, governed_between: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path)
    house.capture(KINDS[kind]([SHORT, LONG], began()))
    house.allow()

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(quarantine, "_close", killed)
        with pytest.raises(KeyboardInterrupt):
            quarantine.release(house.app(), house.cases(), "una")
    stored = house.planted.govern() if governed_between else {}
    again = house.release(*house.cases())
    assert stored.get("stored", 0) + again.get("stored", 0) == 1
    assert_chain(house.steps(), 2)
    assert house.sealed() == []


@pytest.mark.parametrize("kind", ["spans", "steps"])
def test_what_comes_again_after_its_release_is_stored_already(kind: str, tmp_path: Path) -> None:
    house = House(tmp_path)
    captured = KINDS[kind]([SHORT, LONG], began(hours=30))
    house.capture(captured)
    house.allow()
    house.release(*house.cases())
    house.capture(chat(1, [{"role": "user", "content": "later"}]))
    assert house.capture(replace(captured, exchange_id="d" * 32)) == {"control": 1}
    assert_chain(house.steps(), 2)


@of_each_kind
def test_nothing_of_a_held_call_rests_outside_the_seal(kind: str, tmp_path: Path) -> None:
    house = House(tmp_path)
    house.capture(KINDS[kind]([SHORT, LONG], began()))
    assert house.planted.at_rest([WORD]) == {}
    house.allow()
    house.release(*house.cases())
    assert house.planted.at_rest([WORD])


def test_a_released_tool_call_has_the_result_that_came_on_another_stream(tmp_path: Path) -> None:
    house, at = House(tmp_path, RULE.replace("output_characters", "http_status")), began()
    session = ("mcp-session-id", "S")
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "find"}}
    found = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": WORD}]}}
    stream = (("content-type", "text/event-stream"),)
    house.capture(
        whole(
            at,
            request=HttpRequest("POST", "/mcp", "", (session,), json.dumps(asked).encode()),
            response=HttpResponse(202, (), b""),
        ),
        whole(
            at + timedelta(seconds=1),
            request=HttpRequest("GET", "/mcp", "", (session,), b""),
            response=HttpResponse(200, stream, f"data: {json.dumps(found)}\n\n".encode()),
        ),
    )
    assert house.planted.at_rest([WORD]) == {}
    house.allow()
    assert house.release(*house.cases()) == {"stored": 1}
    (step,) = house.steps()
    assert WORD in str(step)


@of_each_kind
def test_an_erasure_takes_what_is_held_of_an_exchange(kind: str, tmp_path: Path) -> None:
    house = House(tmp_path)
    house.capture(KINDS[kind]([SHORT, LONG, LONG], began()))
    held = house.cases()
    erased = erase_person(house.app(), ErasureRequest("acme", ["jo"], "oda"), lambda *_: None)
    assert (erased.quarantine.dropped, house.sealed(), house.cases()) == (2, [], [])
    house.allow()
    assert quarantine.release(house.app(), held, "una") == []
    assert house.planted.govern() == {}
    assert len(house.steps()) == 1


@of_each_kind
def test_age_takes_an_exchange_with_all_that_is_held_of_it(kind: str, tmp_path: Path) -> None:
    house = House(tmp_path)
    house.capture(KINDS[kind]([LONG, LONG], began()))
    later = datetime.now(UTC) + timedelta(days=2)
    assert quarantine.content_of(house.app()).expire(1, later) == 1
    one, other = house.cases()
    assert quarantine.release(house.app(), [one, other], "una") == []
    house.drop(one)
    assert house.cases() == [other]


def change(file: Path) -> None:
    """Turn a file's last bit around; once more gives the file as it was."""
    *rest, last = file.read_bytes()
    file.write_bytes(bytes([*rest, last ^ 1]))


def release_by_reason(house: House, capsys: pytest.CaptureFixture[str], code: int) -> str:
    """Release all that the policy held, by the command; return what it tells."""
    reason = ("--reason", "quality:short-answers")
    assert run(["--home", str(house.home.root), "quarantine", "release", *reason]) == code
    return capsys.readouterr().err


def test_a_damaged_exchange_stops_no_release_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    house = House(tmp_path)
    house.capture(asked(1), asked(2), asked(3))
    case, *_ = house.cases()
    file = house.home.held / f"{case['exchange_id']}.sealed"
    change(file)
    house.allow()
    told = release_by_reason(house, capsys, code=1)
    assert f"{case['quarantine_id']} stays held" in told
    assert "Put its file back from a backup, or drop its case." in told
    assert house.planted.govern() == {"stored": 2}
    assert (house.cases(), house.sealed()) == ([case], [case["exchange_id"]])
    change(file)
    release_by_reason(house, capsys, code=0)
    assert house.planted.govern() == {"stored": 1}
    assert house.sealed() == []


TARGETS = {"response": "chatcmpl-1x", "step": f"{1:032x}", "session": "s1"}


def asked(number: int, *headers: tuple[str, str], said: str = LONG) -> Exchange:
    """Return a call of session ``s1``, whose answer the policy holds back."""
    one = chat(number, [{"role": "user", "content": f"question {number}"}], said)
    named = (*one.request.headers, ("x-headrace-session", "s1"), *headers)
    return replace(one, request=replace(one.request, headers=named))


@pytest.mark.parametrize("kind", TARGETS)
def test_what_was_said_of_a_held_call_counts_once_it_is_released(kind: str, tmp_path: Path) -> None:
    house = House(tmp_path)
    house.capture(asked(1))
    house.say(kind, TARGETS[kind])
    house.planted.begin_again()
    assert house.release(*house.cases()) == {"quarantined": 1}
    assert (house.successes(), house.planted.at_rest([COMMENT])) == ([], {})
    house.allow()
    assert house.release(*house.cases()) == {"stored": 1}
    assert house.successes() == [1.0]
    assert house.planted.at_rest([COMMENT])
    assert [*house.home.held.iterdir()] == []


def test_what_was_said_of_a_session_counts_once_however_many_calls_of_it_are_released(
    tmp_path: Path,
) -> None:
    house = House(tmp_path)
    house.capture(asked(1), asked(2), asked(3))
    house.say("session", "s1")
    first, *rest = house.cases()
    house.drop(first)
    house.allow()
    for one in rest:
        assert house.release(one) == {"stored": 1}
        assert house.successes() == [1.0]
    assert [*house.home.held.iterdir()] == []


@pytest.mark.parametrize("end", ["dropped", "expired", "erased"])
@pytest.mark.parametrize("kind", TARGETS)
def test_what_was_said_of_a_held_call_goes_with_its_case(
    kind: str, end: str, tmp_path: Path
) -> None:
    house = House(tmp_path)
    house.capture(asked(1))
    house.say(kind, TARGETS[kind])
    assert len([*house.home.held.iterdir()]) == 2
    if end == "dropped":
        house.drop(*house.cases())
    elif end == "expired":
        later = datetime.now(UTC) + timedelta(days=2)
        assert quarantine.content_of(house.app()).expire(1, later) == 1
    else:
        erase_person(house.app(), ErasureRequest("acme", ["jo"], "oda"), lambda *_: None)
    assert [*house.home.held.iterdir()] == []
    house.say(kind, TARGETS[kind], 0.0)
    assert [*house.home.held.iterdir()] == []
    assert house.planted.at_rest([COMMENT]) == {}


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_released_call_is_of_the_user_whom_its_trace_told_while_it_was_held(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_forgotten: bool,
) -> None:
    house, person = House(tmp_path), "zq4711xv"
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(house.home.root))
    house.capture(asked(3, ("traceparent", f"00-{USERS}-{1:016x}-01")))
    house.capture(export(9, of(person, 1, 6)))
    if is_forgotten:
        house.capture(another_trace(100_000))
    assert house.planted.at_rest([person]) == {}
    withdraw(capsys, person)
    house.allow()
    house.planted.begin_again()
    assert house.release(*house.cases()) == {"stored": 1}
    expected = ([name_of(house.planted, person)], {*ALL} - {"train_sft"}, None)
    assert steps(house.planted) == [expected]
    assert [*house.home.held.iterdir()] == []


def test_a_call_is_not_judged_without_the_user_whom_a_damaged_note_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    house, person = House(tmp_path), "zq4711xv"
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(house.home.root))
    house.capture(asked(3, ("traceparent", f"00-{USERS}-{1:016x}-01")), asked(4))
    house.capture(export(9, of(person, 1, 6)))
    withdraw(capsys, person)
    case, _ = house.cases()
    *_, file = sorted(house.home.held.glob("*.notes/*"))
    change(file)
    house.allow()
    told = release_by_reason(house, capsys, code=1)
    assert f"{case['quarantine_id']} stays held: note {file.parent.name}/{file.name} " in told
    assert house.planted.govern() == {"stored": 1}
    assert (house.cases(), house.sealed()) == ([case], [case["exchange_id"]])
    change(file)
    assert len(quarantine.release(house.app(), [case], "una")) == 1
    change(file)  # between its release and its judgement
    assert house.planted.govern() == {"quarantined": 1}
    (again,) = house.cases()
    assert again["reason"] == "release:damaged-note"
    *_, file = sorted(house.home.held.glob("*.notes/*"))
    change(file)
    assert house.release(again) == {"stored": 1}
    assert ([name_of(house.planted, person)], {*ALL} - {"train_sft"}, None) in steps(house.planted)
    assert [*house.home.held.iterdir()] == []


def another_trace(number: int) -> Exchange:
    """Return the export of a span of another trace."""
    one = export(number, span(number))
    body = one.request.body.replace(USERS.encode(), b"6" * 32)
    return replace(one, request=replace(one.request, body=body))


def test_nobody_drops_what_a_legal_hold_is_about(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.capture(asked(1))
    (case,) = house.cases()
    retention = tmp_path / "policy" / "retention.yaml"
    lifted = retention.read_text()
    hold = "legal_holds: [{name: case-7, reference: T-7, match: {tenant: acme}}]"
    retention.write_text(lifted.replace("legal_holds: []", hold))
    with pytest.raises(ConfigurationError, match="legal hold"):
        quarantine.drop(house.app(), [case], "una")
    assert (house.cases(), len(house.sealed())) == ([case], 1)
    retention.write_text(lifted)
    house.drop(case)
    assert house.sealed() == []


def test_what_a_legal_hold_keeps_stays_held_where_policy_leaves_it_out(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.capture(asked(1))
    retention, capture = (tmp_path / "policy" / f"{name}.yaml" for name in ("retention", "capture"))
    lifted = retention.read_text()
    hold = "legal_holds: [{name: case-7, reference: T-7, match: {tenant: acme}}]"
    retention.write_text(lifted.replace("legal_holds: []", hold))
    capture.write_text(capture.read_text().replace("level: content", "level: metadata"))
    house.allow()
    assert house.release(*house.cases()) == {"quarantined": 1}
    (case,) = house.cases()
    assert (case["stage"], case["reason"]) == ("policy", "retention:legal-hold")
    assert house.sealed() == [case["exchange_id"]]
    retention.write_text(lifted)
    assert house.release(case) == {"left_out": 1}
    assert (house.cases(), house.sealed()) == ([], [])
