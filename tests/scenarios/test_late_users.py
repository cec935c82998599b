"""A trace's user is told by a span that comes after its calls: their steps are that person's all the same."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from governance.redact.pseudonym import subject_id
from headrace.cli import run
from lakehouse.lake import Lake
from lakehouse.maintenance.verify import verify
from tests.headrace.installations import ALL, PlantedInstallation, chat, exchange
from trajectory.canonical import JsonObject, JsonValue
from trajectory.exchange import Exchange

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PERSON, OTHER = "zq4711xv", "kk0815yw"
TRACE = "5b8efff798038103d269b633813fc60c"


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlantedInstallation:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    return PlantedInstallation(tmp_path)


def span(number: int, parent: int | None = None, until: int = 0, **said: str) -> JsonObject:
    """Return the span of this number, which began at that second and ended half a second after another."""
    begun, ended = (exchange(n, "", {}, {}).started_at for n in (number, until or number))
    attributes: list[JsonValue] = [
        {"key": name.replace("__", "."), "value": {"stringValue": value}}
        for name, value in said.items()
    ]
    one: JsonObject = {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "name": "work",
        "startTimeUnixNano": str(int(begun.timestamp() * 1e9)),
        "endTimeUnixNano": str(int(ended.timestamp() * 1e9) + 500_000_000),
        "attributes": attributes,
    }
    return one if parent is None else {**one, "parentSpanId": f"{parent:016x}"}


def called(number: int, parent: int, text: str, **said: str) -> JsonObject:
    """Return the span of a model's call."""
    asked = [{"role": "user", "parts": [{"type": "text", "content": text}]}]
    answer = [{"role": "assistant", "parts": [{"type": "text", "content": "done"}]}]
    return span(
        number,
        parent,
        gen_ai__operation__name="chat",
        gen_ai__input__messages=json.dumps(asked),
        gen_ai__output__messages=json.dumps(answer),
        **said,
    )


def of(person: str, number: int, until: int, parent: int | None = None) -> JsonObject:
    return span(number, parent, until, user__id=person)


def export(number: int, *spans: JsonObject) -> Exchange:
    body: JsonObject = {"resourceSpans": [{"scopeSpans": [{"spans": [*spans]}]}]}
    return replace(exchange(number, "/v1/traces", body, {}), mode="otlp")


def lake_of(house: PlantedInstallation) -> Lake:
    return Lake.open(str(house.home.lake))


def name_of(house: PlantedInstallation, person: str) -> str:
    return subject_id(house.secrets.derive(b"pseudonym"), "acme", person)


def steps(house: PlantedInstallation) -> list[tuple[list[str], set[str], str | None]]:
    """Return whose each stored step is and what it may be used for now, in the order of time."""
    rows = lake_of(house).query(
        "SELECT p.subjects, p.purposes, p.refusal FROM steps s "
        "JOIN permissions p USING (tenant_id, step_id) ORDER BY s.started_at"
    )
    return [(one["subjects"], {*one["purposes"]}, one["refusal"]) for one in rows.to_pylist()]


def done(capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
    code = run([*arguments])
    assert code == 0, capsys.readouterr().err
    capsys.readouterr()


def withdraw(capsys: pytest.CaptureFixture[str], person: str) -> None:
    done(capsys, "consent", "withdraw", person, "--tenant", "acme", "--purpose", "train_sft")


@pytest.mark.parametrize("first", ["calls", "user", "together"])
@pytest.mark.parametrize("restarts", [False, True])
def test_all_calls_of_a_trace_are_of_the_user_whom_a_span_around_them_names(
    house: PlantedInstallation, capsys: pytest.CaptureFixture[str], first: str, restarts: bool
) -> None:
    withdraw(capsys, PERSON)
    calls = export(9, called(2, 1, "Where is my lamp?"), called(3, 8, "Sum it up."))
    root = export(10, of(PERSON, 1, 6), span(8, 1, until=5))
    order = [calls, root] if first == "calls" else [root, calls]
    for part in [order] if first == "together" else [order[:1], order[1:]]:
        house.govern(*part)
        if restarts:
            house.begin_again()
    expected = ([name_of(house, PERSON)], {*ALL} - {"train_sft"}, None)
    assert steps(house) == [expected, expected]
    columns = lake_of(house).query("SELECT purposes FROM governance_latest")["purposes"].to_pylist()
    assert all("train_sft" not in purposes for purposes in columns)


def test_an_erasure_finds_the_steps_of_a_user_told_late(
    house: PlantedInstallation, capsys: pytest.CaptureFixture[str]
) -> None:
    house.govern(export(9, called(2, 1, "The zebras are mine.")))
    house.govern(export(10, of(PERSON, 1, 6)))
    assert house.at_rest(["zebras"])
    done(capsys, "erase", PERSON, "--tenant", "acme", "--yes", "--json")
    assert house.at_rest(["zebras"]) == {}


def test_what_is_of_a_user_who_was_erased_before_that_was_told_goes(
    house: PlantedInstallation, capsys: pytest.CaptureFixture[str]
) -> None:
    house.govern(export(9, called(2, 1, "The zebras are mine.")))
    done(capsys, "erase", PERSON, "--tenant", "acme", "--yes", "--json")
    house.govern(export(10, of(PERSON, 1, 6)))
    assert steps(house) == [([name_of(house, PERSON)], set(), "erased")]
    done(capsys, "lake", "expire", "--json")
    assert house.at_rest(["zebras"]) == {}
    assert house.govern(export(11, called(3, 1, "And the gnus."))) == {"left_out": 1, "control": 1}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_the_nearest_user_holds_in_whatever_order_exports_come(
    house: PlantedInstallation, order: tuple[int, ...]
) -> None:
    exports = [
        export(9, called(3, 2, "Hello."), called(5, 1, "Bye.")),
        export(10, of(PERSON, 2, 4, parent=1)),
        export(11, of(OTHER, 1, 6)),
    ]
    for number in order:
        house.govern(exports[number])
    found = [subjects for subjects, _, _ in steps(house)]
    assert found == [[name_of(house, PERSON)], [name_of(house, OTHER)]]


def test_a_trace_names_nobody_of_another_tenant_or_application(house: PlantedInstallation) -> None:
    house.govern(export(9, called(2, 1, "Hello.")))
    root = export(10, of(PERSON, 1, 6))
    for change in ({"tenant_id": "other"}, {"app_id": "other"}):
        house.govern(replace(root, client=replace(root.client, **change)))
    assert steps(house) == [([], {*ALL}, None)]


def test_the_users_id_goes_from_texts_that_were_stored_before(house: PlantedInstallation) -> None:
    house.govern(export(9, called(2, 1, f"Look at account {PERSON}, please.")))
    assert house.at_rest([PERSON])
    house.govern(export(10, of(PERSON, 1, 6)))
    house.begin_again()
    assert house.at_rest([PERSON]) == {}
    assert [subjects for subjects, _, _ in steps(house)] == [[name_of(house, PERSON)]]
    (said,) = lake_of(house).query("SELECT parts FROM messages WHERE role = 'user'")["parts"]
    assert "account <USERNAME_" in said.as_py()
    report = verify(lake_of(house), message_key=house.secrets.derive(b"message"))
    assert report.ok, report.findings


def test_a_call_that_passed_the_gateway_within_the_trace_is_of_its_user(
    house: PlantedInstallation,
) -> None:
    one = chat(2, [{"role": "user", "content": "Hello."}])
    within = (*one.request.headers, ("traceparent", f"00-{TRACE}-{3:016x}-01"))
    house.govern(replace(one, request=replace(one.request, headers=within)))
    house.govern(export(9, span(3, 1, until=4)))
    house.begin_again()
    house.govern(export(10, of(PERSON, 1, 6)))
    assert [subjects for subjects, _, _ in steps(house)] == [[name_of(house, PERSON)]]


@pytest.mark.parametrize("batches", ["1", "2", "3", "own"])
def test_a_call_that_passed_the_gateway_is_of_the_user_of_the_span_that_tells_it_again(
    house: PlantedInstallation, capsys: pytest.CaptureFixture[str], batches: str
) -> None:
    """The span is left out as a repetition; whose call it is holds for the step that stands for both."""
    withdraw(capsys, PERSON)
    passed = chat(3, [{"role": "user", "content": "Hello."}])
    tells = {"gen_ai__response__id": "chatcmpl-3x"}
    if batches == "own":
        tells["user__id"] = PERSON
    whole = [passed, export(9, called(3, 1, "Hello.", **tells)), export(10, of(PERSON, 1, 6))]
    parts = {"1": [whole], "2": [whole[:1], whole[1:]]}.get(batches, [[one] for one in whole])
    for part in parts:
        house.govern(*part)
        house.begin_again()
    assert steps(house) == [([name_of(house, PERSON)], {*ALL} - {"train_sft"}, None)]


def test_a_lost_state_is_told_again_by_the_spool(house: PlantedInstallation) -> None:
    """The calls are in the lake; what named their user was taken, and never governed."""
    house.govern(export(9, called(2, 1, "Hello.")))
    for path in house.home.state.glob("checkpoint.sqlite*"):
        path.unlink()
    for note in (house.home.lake / "_notes").glob("*-state*"):
        note.unlink()
    house.begin_again()
    house.govern(export(9, called(2, 1, "Hello.")), export(10, of(PERSON, 1, 6)))
    assert [subjects for subjects, _, _ in steps(house)] == [[name_of(house, PERSON)]]
