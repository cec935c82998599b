"""While the consent service does not answer, nothing that may need its answer is kept; then all gets its decision."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from governance.consent import MemoryConsents
from headrace.app.context import AppContext
from headrace.app.settings import ConsentSettings
from headrace.cli import run
from headrace.services import quarantine
from headrace.services.awaited_people import AwaitedPeople
from headrace.services.consent_service import ServiceConsents
from lakehouse.lake import Lake
from proxy.spool import SpoolUnavailableError, SpoolWriter
from tests.headrace.installations import ALL, PlantedInstallation, chat
from tests.scenarios.test_late_users import TRACE, called, export, name_of, of, span
from tests.support.consent_service import FAILURES, ConsentService, consent_service
from trajectory.assembly.result import PlacedPeople
from trajectory.exchange import Exchange

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PERSON, OTHER = "jo.frame@corp-mail.com", "mia.frame@corp-mail.com"


class AskingInstallation(PlantedInstallation):
    """An installation that asks a consent service."""

    def __init__(self, folder: Path, service: ConsentService) -> None:
        self.service = service
        super().__init__(folder)
        with self.home.settings_file.open("a", encoding="utf-8") as settings:
            settings.write(f"consent: {{url: '{service.url}'}}\n")
        self.begin_again()

    def rows(self, sql: str) -> list[dict[str, object]]:
        """Ask the lake."""
        return list(Lake.open(str(self.home.lake)).query(sql).to_pylist())

    def ledger(self) -> list[tuple[object, object]]:
        """Return where each exchange ended and why, those of one time in the order of their decisions."""
        rows = self.rows(
            "SELECT disposition, reasons FROM exchanges ORDER BY started_at, disposition = 'quarantined' DESC"
        )
        return [(row["disposition"], row["reasons"]) for row in rows]

    def usable(self) -> list[set[object]]:
        """Return what each stored step may be used for now, in the order of time."""
        rows = self.rows(
            "SELECT CASE WHEN p.refusal IS NULL THEN p.purposes ELSE [] END AS left FROM steps s "
            "JOIN permissions p USING (tenant_id, step_id) ORDER BY s.started_at"
        )
        return [{*row["left"]} for row in rows]  # type: ignore[misc]


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AskingInstallation]:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    monkeypatch.setattr("headrace.services.consent_service._AWAY_SECONDS", 0.0)
    with consent_service() as service:
        service.granted = {PERSON: [], OTHER: [*ALL]}
        yield AskingInstallation(tmp_path, service)


def call(number: int, text: str, session: str = "s1", **body: str) -> Exchange:
    one = chat(number, [{"role": "user", "content": text}], **body)
    named = (*one.request.headers, ("x-headrace-session", session))
    return replace(one, request=replace(one.request, headers=named))


AWAITS = ("quarantined", ["consent:awaits-answer"])
BEHIND = ("quarantined", ["consent:awaits-conversation"])


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("agrees", [False, True])
def test_calls_wait_for_the_answer_and_then_get_what_they_would_have_got(
    house: AskingInstallation, failure: str, batches: int, agrees: bool
) -> None:
    house.service.failure = failure
    whole = [
        call(1, "Refund me.", user=PERSON),
        call(2, "The zebras are sent."),
        call(3, "Where is my lamp?", session="s2"),
    ]
    for part in [whole] if batches == 1 else [whole[:1], whole[1:]]:
        house.govern(*part)
    house.begin_again()
    assert house.govern() == {}
    assert house.ledger() == [AWAITS, BEHIND, ("stored", [])]
    assert house.at_rest(["zebras"]) == {}
    house.service.failure = ""
    if agrees:
        house.service.granted[PERSON] = [*ALL]
    assert house.govern() == {("stored" if agrees else "left_out"): 2}
    assert house.govern() == {}
    assert [line for line, _ in house.ledger()] == [
        *("quarantined", "stored" if agrees else "left_out") * 2,
        "stored",
    ]
    assert house.usable() == [{*ALL}] * (3 if agrees else 1)
    assert house.rows("SELECT 1 FROM quarantined WHERE status = 'held'") == []
    assert list(house.home.held.glob("*.sealed")) == []


def test_an_answer_about_one_person_is_none_about_another(house: AskingInstallation) -> None:
    house.service.silent_for = {PERSON}
    counts = house.govern(
        call(1, "Refund me.", user=PERSON),
        call(2, "Refund me, too.", session="s2", user=OTHER),
        call(3, "And a lamp.", session="s2"),
    )
    assert counts == {"quarantined": 1, "stored": 2}
    assert house.ledger() == [AWAITS, ("stored", []), ("stored", [])]


@pytest.mark.parametrize("parts", [[[1, 2, 3, 4]], [[1], [2, 3, 4]], [[2, 3, 4], [1]]])
def test_what_the_service_refuses_the_later_calls_of_the_conversation_do_without(
    house: AskingInstallation, parts: list[list[int]]
) -> None:
    """They repeat what that person said, and may name nobody, or somebody else."""
    house.service.granted[PERSON] = ["debug", "eval"]
    calls = {
        1: call(1, "Refund me.", user=PERSON),
        2: call(2, "The zebras are sent."),
        3: call(3, "Refund me, too.", user=OTHER),
        4: call(4, "Where is my lamp?", session="s2"),
    }
    for part in parts:
        house.govern(*(calls[number] for number in part))
    assert house.usable() == [*[{"debug", "eval"}] * 3, {*ALL}]
    house.govern(call(5, "And now?"))
    assert house.usable()[-1] == {"debug", "eval"}


@pytest.mark.parametrize("granted", [[], ["eval"], [*ALL]])
@pytest.mark.parametrize("waits", [False, True])
def test_what_the_service_refuses_to_one_id_of_a_call_it_refuses_to_the_call(
    house: AskingInstallation, granted: list[str], waits: bool
) -> None:
    house.service.granted = {OTHER: [*ALL], "u-17": granted}
    house.service.silent_for = {"u-17"} if waits else set()
    both = call(1, "Refund me.", user=OTHER, safety_identifier="u-17")
    counts = house.govern(both, call(2, "Hello.", "s2", user=OTHER))
    if waits:
        assert counts == {"quarantined": 1, "stored": 1}
        house.service.silent_for = set()
        house.govern()
    assert house.usable() == [*([{*granted}] if granted else []), {*ALL}]


def test_people_whom_a_step_turns_out_to_name_one_after_another_wait_together(
    house: AskingInstallation,
) -> None:
    house.govern(call(1, "Hello."))
    (row,) = house.rows("SELECT step_id FROM steps")
    app = AppContext(house.home.root, debug=False)
    settings = ConsentSettings(url=house.service.url)
    waiting = AwaitedPeople(app, ServiceConsents(MemoryConsents(), settings))
    first = PlacedPeople("acme", str(row["step_id"]), PERSON, (), ())
    beside = replace(first, end_user=None, also_named=("u-17",))
    waiting.keep([first])
    waiting.keep([beside])
    assert waiting.answered() == [replace(first, also_named=("u-17",))]
    assert house.service.names() == [PERSON, "u-17"]
    house.service.silent_for = {"u-18"}
    waiting.keep([replace(beside, also_named=("u-18",), before=(PERSON,))])
    assert waiting.answered() == []
    house.service.silent_for = set()
    (both,) = waiting.answered()
    assert both.people == ("u-18", "u-17")


def test_a_person_of_whom_the_service_never_speaks_stops_nobody(house: AskingInstallation) -> None:
    house.service.failure = "status"
    house.service.silent_for = {PERSON}
    house.govern(
        call(1, "Refund me.", user=PERSON),
        *(call(number, f"Item {number}.", f"s{number}", user=OTHER) for number in range(2, 6)),
    )
    house.service.failure = ""
    counts = [house.govern() for _ in range(2)]
    assert counts in ([{"stored": 4}, {}], [{}, {"stored": 4}])
    before = len(house.service.asked)
    assert house.govern() == {}
    assert house.service.names()[before:] == [PERSON], "one vain question each round"


@pytest.mark.parametrize("agrees", [False, True])
def test_what_is_stored_already_may_not_be_used_until_a_late_call_has_its_answer(
    house: AskingInstallation, agrees: bool
) -> None:
    house.govern(call(1, "Hello."), call(5, "The zebras are sent."))
    assert house.usable() == [{*ALL}, {*ALL}]
    house.service.failure = "other"
    house.govern(call(3, "Refund me.", user=PERSON))
    assert house.usable() == [{*ALL}, set()]
    assert house.rows("SELECT refusal FROM permissions WHERE refusal IS NOT NULL") == [
        {"refusal": "consent_unanswered"}
    ]
    house.service.failure = ""
    if agrees:
        house.service.granted[PERSON] = [*ALL]
    house.govern()
    assert house.usable() == ([{*ALL}] * 3 if agrees else [{*ALL}, set()])


@pytest.mark.parametrize("agrees", [False, True])
def test_what_was_handed_on_waits_for_the_answer_of_a_late_call_too(
    house: AskingInstallation, agrees: bool
) -> None:
    started = call(6, "Look it up.", "s2")
    parent = (*started.request.headers, ("x-headrace-parent", "s1"))
    started = replace(started, request=replace(started.request, headers=parent))
    house.govern(
        call(1, "Hello."), call(5, "The zebras are sent."), started, call(7, "Thanks.", "s2")
    )
    assert house.usable() == [{*ALL}] * 4
    house.service.failure = "other"
    house.govern(call(3, "Refund me.", user=PERSON))
    assert house.usable() == [{*ALL}, set(), set(), set()]
    house.service.failure = ""
    if agrees:
        house.service.granted[PERSON] = [*ALL]
    house.govern()
    assert house.usable() == ([{*ALL}] * 5 if agrees else [{*ALL}, set(), set(), set()])


def test_after_a_call_that_was_dropped_without_an_answer_its_conversation_is_not_kept(
    house: AskingInstallation, capsys: pytest.CaptureFixture[str]
) -> None:
    house.service.failure = "other"
    house.govern(call(1, "Refund me.", user=PERSON), call(2, "The zebras are sent."))
    drop = ["quarantine", "drop", "--reason", "consent:awaits-answer", "--yes"]
    assert run(drop) == 0
    capsys.readouterr()
    house.service.failure = ""
    assert house.govern(call(3, "And now?"), call(4, "Hello.", "s2")) == {
        "left_out": 2,
        "stored": 1,
    }
    assert house.ledger()[-2:] == [("left_out", ["consent:no-answer"]), ("stored", [])]
    assert house.at_rest(["zebras"]) == {}


@pytest.mark.parametrize("agrees", [False, True])
@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_call_whose_user_only_its_trace_names_goes_on_with_the_answer_about_that_person(
    house: AskingInstallation, agrees: bool, is_forgotten: bool
) -> None:
    house.service.failure = "status"
    one = call(3, "Refund me.")
    within = (*one.request.headers, ("traceparent", f"00-{TRACE}-{1:016x}-01"))
    traced = replace(one, request=replace(one.request, headers=within))
    assert house.govern(traced, export(9, of(PERSON, 1, 6))) == {"quarantined": 1, "control": 1}
    if is_forgotten:  # a day of another trace's has passed
        later = export(100_000, span(100_000))
        body = later.request.body.replace(TRACE.encode(), b"6" * 32)
        house.govern(replace(later, request=replace(later.request, body=body)))
    house.begin_again()
    house.service.failure = ""
    house.service.granted[PERSON] = [*ALL] if agrees else []
    assert house.govern() == {("stored" if agrees else "left_out"): 1}
    assert house.govern() == {}
    assert house.usable() == ([{*ALL}] if agrees else [])
    (row,) = house.rows(
        "SELECT subjects FROM governance_latest WHERE decision IN ('allow', 'redact', 'drop')"
    )
    assert row["subjects"] == ([name_of(house, PERSON)] if agrees else [])
    assert [*house.home.held.iterdir()] == []


def test_calls_of_one_export_go_on_with_the_answers_about_their_own_users(
    house: AskingInstallation,
) -> None:
    house.service.failure = "status"
    spans = [
        called(number, 9, f"Item {number}.", user__id=person)
        for number, person in ((1, PERSON), (2, OTHER))
    ]
    assert house.govern(export(5, *spans)) == {"control": 1, "quarantined": 2}
    house.service.failure, house.service.granted[PERSON] = "", [*ALL]
    before = len(house.service.asked)
    assert house.govern() == {"stored": 2}
    assert {*house.service.names()[before:]} == {PERSON, OTHER}
    assert house.usable() == [{*ALL}] * 2
    assert list(house.home.held.glob("*.sealed")) == []


MEBIBYTE = 1024 * 1024


def padded(one: Exchange) -> Exchange:
    """Return a call with a body of a quarter of a mebibyte, most of which says nothing."""
    body = one.request.body + b" " * (MEBIBYTE // 4)
    return replace(one, request=replace(one.request, body=body))


def test_calls_that_wait_take_no_room_that_captures_need(
    house: AskingInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than the spool may hold waits, and more than it may hold came meanwhile."""
    with house.home.settings_file.open("a", encoding="utf-8") as settings:
        settings.write(f"gateway: {{spool: {{max_bytes: {MEBIBYTE}}}}}\n")
    house.begin_again()
    shed: list[bool] = []
    wrote = quarantine.write_again

    def noted(writer: SpoolWriter, one: Exchange) -> str:
        name = wrote(writer, one)
        shed.append(writer.shedding)
        return name

    monkeypatch.setattr(quarantine, "write_again", noted)
    house.service.failure = "other"
    held = [padded(call(number, "Refund me.", f"s{number}", user=PERSON)) for number in range(6)]
    assert house.govern(*held) == {"quarantined": 6}
    house.service.failure, house.service.granted[PERSON] = "", [*ALL]
    beside = [padded(call(number, "Hello.", f"s{number}")) for number in range(10, 16)]
    stored = house.govern(*beside)["stored"]
    while more := house.govern():
        stored += more["stored"]
    assert stored == 12
    assert shed == [False] * 6
    assert house.rows("SELECT 1 FROM quarantined WHERE status = 'held'") == []
    assert list(house.home.held.glob("*.sealed")) == []


def test_a_disk_that_takes_no_release_stops_no_batch(
    house: AskingInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch makes room, and the next round releases them."""
    house.service.failure = "other"
    house.govern(call(1, "Refund me.", user=PERSON))
    house.service.failure, house.service.granted[PERSON] = "", [*ALL]

    def refused(*_: object) -> str:
        raise SpoolUnavailableError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(quarantine, "write_again", refused)
        assert house.govern(call(2, "Where is my lamp?", session="s2")) == {"stored": 1}
    assert house.govern() == {"stored": 1}
    assert house.govern() == {}


def within_trace(one: Exchange) -> Exchange:
    headers = (*one.request.headers, ("traceparent", f"00-{TRACE}-{1:016x}-01"))
    return replace(one, request=replace(one.request, headers=headers))


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("granted", [[], ["eval"], [*ALL]])
def test_a_stored_call_whose_user_is_told_late_waits_for_the_answer(
    house: AskingInstallation, granted: list[str], restarts: bool
) -> None:
    house.govern(within_trace(call(1, "Hello.")), call(2, "Where is my lamp?"))
    house.service.failure = "status"
    house.govern(export(9, of(PERSON, 1, 6)))
    assert house.usable() == [set(), set()]
    assert house.govern(call(12, "The zebras are sent.")) == {"quarantined": 1}
    assert house.ledger()[-1] == BEHIND
    assert house.at_rest([PERSON, "zebras"]) == {}
    if restarts:
        house.begin_again()
    house.service.failure, house.service.granted[PERSON] = "", granted
    house.govern()
    house.govern()
    assert house.ledger()[-1][0] == ("stored" if granted else "left_out")
    first, second, *_ = house.usable()
    assert first == {*granted}
    assert second == {*granted}  # it repeats what that person said
    rows = house.rows("SELECT decision FROM governance ORDER BY started_at, decided_at")
    assert [row["decision"] for row in rows][:3] == ["allow", "quarantine", "allow"]
    asked = house.service.names()
    assert house.govern() == {}
    assert house.service.names() == asked, "there is nothing left to ask"


def test_a_user_of_whom_the_service_never_speaks_stops_no_other_who_was_told_late(
    house: AskingInstallation,
) -> None:
    spans = [called(number, 9, f"Item {number}.") for number in (1, 2)]
    other = [{**one, "traceId": "9" * 32} for one in spans[1:]]
    house.govern(export(5, spans[0]), export(6, *other))
    house.service.failure = "status"
    house.govern(export(10, of(PERSON, 9, 9)), export(11, {**of(OTHER, 9, 9), "traceId": "9" * 32}))
    assert house.usable() == [set(), set()]
    house.service.failure, house.service.silent_for = "", {PERSON}
    house.govern()
    house.govern()
    assert house.usable() == [set(), {*ALL}]


def test_whom_an_erasure_took_waits_for_no_answer(
    house: AskingInstallation, capsys: pytest.CaptureFixture[str]
) -> None:
    house.govern(within_trace(call(1, "Hello.")))
    house.service.failure = "status"
    house.govern(export(9, of(PERSON, 1, 6)))
    with closing(sqlite3.connect(house.home.awaited)) as file:
        ((kept,),) = file.execute("SELECT sealed FROM awaited").fetchall()
    assert run(["erase", PERSON, "--tenant", "acme", "--yes"]) == 0
    capsys.readouterr()
    assert house.rows("SELECT step_id FROM steps") == []
    before = house.service.names()
    house.govern()
    assert house.service.names() == before
    with closing(sqlite3.connect(house.home.awaited)) as file:
        assert file.execute("SELECT count(*) FROM awaited").fetchone() == (0,)
    beside = house.home.state.glob("awaited.sqlite*")
    assert not any(kept in path.read_bytes() for path in beside)


def test_an_erasure_before_the_user_was_told_needs_no_answer(
    house: AskingInstallation, capsys: pytest.CaptureFixture[str]
) -> None:
    house.govern(within_trace(call(1, "Hello.")))
    assert run(["erase", PERSON, "--tenant", "acme", "--yes"]) == 0
    house.service.failure = "status"
    house.govern(export(9, of(PERSON, 1, 6)))
    assert run(["lake", "expire", "--json"]) == 0
    capsys.readouterr()
    assert house.rows("SELECT step_id FROM steps") == []


@pytest.mark.parametrize(
    "step",
    ["lakehouse.lake.Lake.append_rows", "headrace.services.awaited_people.AwaitedPeople.forget"],
)
def test_a_crash_between_the_new_decision_and_its_end_changes_nothing(
    house: AskingInstallation, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    house.govern(within_trace(call(1, "Hello.")))
    house.service.failure = "status"
    house.govern(export(9, of(PERSON, 1, 6)))
    house.service.failure, house.service.granted[PERSON] = "", ["eval"]
    with monkeypatch.context() as patched:
        patched.setattr(step, _crash)
        with pytest.raises(KeyboardInterrupt):
            house.govern()
    house.begin_again()
    for _ in range(2):
        house.govern()
        assert house.usable() == [{"eval"}]
    assert len(house.rows("SELECT decision FROM governance")) == 3


def _crash(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
