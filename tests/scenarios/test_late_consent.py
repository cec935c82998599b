"""What a call says of consent, or whom it belongs to, holds for its conversation in whatever order calls come."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.cli import run
from lakehouse.lake import Lake
from tests.headrace.installations import ALL, PlantedInstallation, chat
from trajectory.canonical import JsonObject
from trajectory.exchange import Exchange

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PERSON = "jo.frame@corp-mail.com"
OPT_OUT = ("x-headrace-opt-out", "train")
LEFT = {"debug", "eval"}


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlantedInstallation:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    return PlantedInstallation(tmp_path)


def said(text: str) -> list[JsonObject]:
    return [{"role": "user", "content": text}]


def gone_on(text: str) -> list[JsonObject]:
    """Return a conversation that begins with this text."""
    return [*said(text), {"role": "assistant", "content": "done"}, *said("And now?")]


def call(
    number: int,
    messages: list[JsonObject],
    *headers: tuple[str, str],
    session: str = "s1",
    **body: str,
) -> Exchange:
    one = chat(number, messages, **body)
    named = (*one.request.headers, ("x-headrace-session", session), *headers)
    return replace(one, request=replace(one.request, headers=named))


def purposes(house: PlantedInstallation) -> list[set[str]]:
    """Return what each stored step may be used for now, in the order of time."""
    rows = Lake.open(str(house.home.lake)).query(
        "SELECT p.purposes FROM steps s JOIN permissions p USING (tenant_id, step_id) ORDER BY s.started_at"
    )
    return [{*row} for row in rows["purposes"].to_pylist()]


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("killed", [False, True])
def test_a_late_call_that_names_nobody_goes_with_the_erased_person_of_its_conversation(
    house: PlantedInstallation,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    killed: bool,
) -> None:
    """Number 1 came before all that was stored, and begins the trajectory anew."""
    house.govern(call(2, said("Refund me."), user=PERSON), call(9, said("Hello."), session="s2"))
    erase = ["erase", PERSON, "--tenant", "acme", "--yes", "--json"]
    if killed:
        with monkeypatch.context() as patched:
            patched.setattr("headrace.services.erasure.sweep_near", _killed)
            assert run(erase) != 0
    assert run(erase) == 0
    capsys.readouterr()
    late = call(number, said("The zebras are sent."))
    again = call(4, gone_on("Refund me."), session="s3")
    beside = call(5, said("Where is my lamp?"), session="s2")
    assert house.govern(late, again, beside) == {"left_out": 2, "stored": 1}
    assert house.at_rest(["zebras"]) == {}
    left_out = Lake.open(str(house.home.lake)).query(
        "SELECT reasons FROM exchanges WHERE disposition = 'left_out' ORDER BY started_at"
    )
    assert left_out["reasons"].to_pylist()[0] == ["consent:erased"]


def _killed(*_: object, **__: object) -> None:
    raise MemoryError


@pytest.mark.parametrize("number", [1, 3])
def test_an_opt_out_that_comes_late_reaches_later_calls_that_are_stored(
    house: PlantedInstallation, number: int
) -> None:
    house.govern(
        call(2, said("Hello.")), call(4, gone_on("Hello.")), call(5, said("x"), session="s2")
    )
    assert purposes(house) == [{*ALL}] * 3
    house.govern(call(number, said("I have diabetes."), OPT_OUT))
    expected = {
        1: [LEFT, LEFT, LEFT, {*ALL}],
        3: [{*ALL}, LEFT, LEFT, {*ALL}],
    }
    assert purposes(house) == expected[number]
    house.govern(call(6, said("Bye.")))
    assert purposes(house) == [*expected[number], LEFT]


AHEAD = 90_000
"""Number of a call that a clock dated a day ahead."""


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("withdraws", [False, True])
def test_a_call_that_a_clock_dated_ahead_counts_for_its_whole_conversation(
    house: PlantedInstallation,
    capsys: pytest.CaptureFixture[str],
    batches: int,
    withdraws: bool,
) -> None:
    """Nobody knows what came before it."""
    first = call(AHEAD, said("I am Jo."), user=PERSON)
    if not withdraws:
        first = call(AHEAD, said("I have diabetes."), OPT_OUT)
    whole = [first, call(2, said("Thanks.")), call(3, said("Hello."), session="s9")]
    for part in [whole] if batches == 1 else [whole[:1], whole[1:]]:
        house.govern(*part)
    if withdraws:
        withdraw = ["consent", "withdraw", PERSON, "--tenant", "acme", "--purpose"]
        for purpose in sorted({*ALL} - LEFT):
            assert run([*withdraw, purpose]) == 0
    capsys.readouterr()
    assert purposes(house) == [LEFT, {*ALL}, LEFT]


@pytest.mark.parametrize("batches", [1, 2])
def test_an_opt_out_goes_with_a_history_that_another_session_takes_over(
    house: PlantedInstallation, batches: int
) -> None:
    whole = [
        call(1, said("I have diabetes."), OPT_OUT),
        call(2, gone_on("I have diabetes."), session="s2"),
        call(3, said("Thanks."), session="s2"),
        call(4, said("Hello."), session="s3"),
    ]
    for part in [whole] if batches == 1 else [whole[:1], whole[1:]]:
        house.govern(*part)
    assert purposes(house) == [LEFT, LEFT, LEFT, {*ALL}]


def handed_on(number: int, how: str, *headers: tuple[str, str], session: str = "s2") -> Exchange:
    """Return the first call of a session that takes over the history of session s1, or that its agent started."""
    if how == "history":
        return call(number, gone_on("Refund me."), *headers, session=session)
    parent = ("x-headrace-parent", "s1")
    return call(number, said("Look it up."), parent, *headers, session=session)


HOW = pytest.mark.parametrize("how", ["history", "sub-agent"])


@HOW
@pytest.mark.parametrize("batches", [1, 2])
def test_an_opt_out_goes_with_what_is_handed_on_to_another_session(
    house: PlantedInstallation, how: str, batches: int
) -> None:
    whole = [
        call(1, said("Refund me."), OPT_OUT),
        handed_on(2, how),
        call(3, said("Thanks."), session="s2"),
        call(4, said("Hello."), session="s3"),
    ]
    for part in [whole] if batches == 1 else [whole[:1], whole[1:]]:
        house.govern(*part)
    assert purposes(house) == [LEFT, LEFT, LEFT, {*ALL}]


@HOW
@pytest.mark.parametrize("number", [1, 3, 7])
def test_an_opt_out_that_comes_late_reaches_what_was_handed_on_after_it(
    house: PlantedInstallation, how: str, number: int
) -> None:
    """Number 1 came before all that was stored, and begins the trajectory anew; 7 came after it was handed on."""
    house.govern(
        call(2, said("Refund me.")),
        handed_on(4, how),
        call(5, said("Thanks."), session="s2"),
        call(6, said("Ask him."), ("x-headrace-parent", "s2"), session="s3"),
        call(9, said("Hello."), session="s9"),
    )
    assert purposes(house) == [{*ALL}] * 5
    house.govern(call(number, said("I have diabetes."), OPT_OUT))
    lost, kept = [LEFT], [{*ALL}]
    expected = {1: [*lost * 5, *kept], 3: [*kept, *lost * 4, *kept], 7: [*kept * 4, *lost, *kept]}
    assert purposes(house) == expected[number]
    house.govern(call(10, said("And now?"), session="s3"))
    assert purposes(house) == [*expected[number], *(kept if number == 7 else lost)]


@HOW
@pytest.mark.parametrize("first", [1, 2])
def test_an_opt_out_reaches_stored_calls_of_a_session_that_turns_out_to_stand_on_it(
    house: PlantedInstallation, how: str, first: int
) -> None:
    """What was handed on comes last, or what it was handed on by."""
    whole = [
        call(1, said("Refund me."), OPT_OUT),
        handed_on(2, how),
        call(3, said("Thanks."), session="s2"),
    ]
    late = whole.pop(first - 1)
    house.govern(*whole)
    house.govern(late)
    assert purposes(house) == [LEFT] * 3


@HOW
@pytest.mark.parametrize("late", [False, True])
def test_an_erasure_takes_what_was_handed_on_to_other_sessions(
    house: PlantedInstallation, capsys: pytest.CaptureFixture[str], how: str, late: bool
) -> None:
    """The first session's words stand in the second one, and that one's in the third, which names nobody."""
    first = [call(1, said("Hello."), session="s9"), call(2, said("Refund me."), user=PERSON)]
    others = [
        handed_on(3, how),
        call(4, said("The zebras are sent."), session="s2"),
        call(5, said("Ask him."), ("x-headrace-parent", "s2"), session="s3"),
    ]
    for part in [others, first] if late else [[*first, *others]]:
        house.govern(*part)
    assert run(["erase", PERSON, "--tenant", "acme", "--yes", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["reach"]["trajectories"]) == 3
    assert purposes(house) == [{*ALL}]
    assert house.at_rest(["zebras"]) == {}
    assert house.govern(call(6, said("And now?"), session="s3")) == {"left_out": 1}


@HOW
def test_an_erasure_leaves_what_was_handed_on_before_the_person_came(
    house: PlantedInstallation, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    house.govern(
        call(1, said("Refund me.")), handed_on(2, how), call(3, said("I am Jo."), user=PERSON)
    )
    assert run(["erase", PERSON, "--tenant", "acme", "--yes", "--json"]) == 0
    capsys.readouterr()
    rows = Lake.open(str(house.home.lake)).query("SELECT started_at FROM steps")
    assert rows.num_rows == 1


@HOW
def test_a_withdrawal_reaches_what_was_handed_on_to_other_sessions(
    house: PlantedInstallation, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    house.govern(
        call(1, said("Refund me."), user=PERSON),
        handed_on(2, how),
        call(3, said("Thanks."), session="s2"),
        call(4, said("Ask him."), ("x-headrace-parent", "s2"), session="s3"),
        call(5, said("Hello."), session="s9"),
    )
    assert purposes(house) == [{*ALL}] * 5
    assert run(["consent", "withdraw", PERSON, "--tenant", "acme", "--purpose", "eval"]) == 0
    capsys.readouterr()
    assert purposes(house) == [*[{*ALL} - {"eval"}] * 4, {*ALL}]


def made_now(one: Exchange) -> Exchange:
    at = datetime.now(UTC)
    return replace(one, started_at=at, first_byte_at=at, ended_at=at)


def refusals(house: PlantedInstallation) -> list[str | None]:
    """Return why each stored step may not be used, in the order of time."""
    rows = Lake.open(str(house.home.lake)).query(
        "SELECT p.refusal FROM steps s JOIN permissions p USING (tenant_id, step_id) ORDER BY s.started_at"
    )
    found: list[str | None] = rows["refusal"].to_pylist()
    return found


@pytest.mark.parametrize("how", ["the same session", "history", "sub-agent"])
def test_what_goes_on_after_an_erasure_from_the_erased_conversation_is_the_erased_persons(
    house: PlantedInstallation, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    """The agent still holds the person's words, and sends them again under nobody's name."""
    house.govern(call(2, said("Refund me."), user=PERSON), call(3, said("Hello."), session="s9"))
    erase = ["erase", PERSON, "--tenant", "acme", "--yes", "--json"]
    assert run(erase) == 0
    capsys.readouterr()
    session = "s1" if how == "the same session" else "s2"
    first = call(4, gone_on("Refund me."), session=session)
    later = first if how == "the same session" else handed_on(4, how)
    assert house.govern(made_now(later)) == {"stored": 1}
    zebras = call(5, said("The zebras are sent."), session=session)
    beside = call(6, said("And me?"), session="s9")
    assert house.govern(made_now(zebras), made_now(beside)) == {"stored": 2}
    assert refusals(house) == [None, "erased", "erased", None]
    assert run(erase) == 0
    assert json.loads(capsys.readouterr().out)["rows"]["steps"] == 2
    assert house.at_rest(["zebras"]) == {}
    assert refusals(house) == [None, None]


@HOW
def test_a_withdrawal_reaches_what_an_older_version_handed_on_without_the_person(
    house: PlantedInstallation,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    with monkeypatch.context() as older:
        older.setattr("governance.passes.admit.Admissions._hand_on", lambda *_: None)
        house.govern(
            call(1, said("Refund me."), user=PERSON),
            handed_on(2, how),
            call(3, said("Thanks."), session="s2"),
            call(4, said("Ask him."), ("x-headrace-parent", "s2"), session="s3"),
            call(5, said("Hello."), session="s9"),
        )
    assert run(["consent", "withdraw", PERSON, "--tenant", "acme", "--purpose", "eval"]) == 0
    capsys.readouterr()
    assert purposes(house) == [*[{*ALL} - {"eval"}] * 4, {*ALL}]


@HOW
@pytest.mark.parametrize("asked", ["withdrawal", "erasure"])
def test_what_was_handed_on_follows_a_person_whom_a_late_call_names(
    house: PlantedInstallation, capsys: pytest.CaptureFixture[str], how: str, asked: str
) -> None:
    house.govern(
        call(1, said("Refund me.")),
        handed_on(3, how),
        call(4, said("Thanks."), session="s2"),
        call(5, said("Hello."), session="s9"),
    )
    house.govern(call(2, said("I am Jo."), user=PERSON))
    person = [PERSON, "--tenant", "acme"]
    if asked == "withdrawal":
        assert run(["consent", "withdraw", *person, "--purpose", "eval"]) == 0
        expected = [{*ALL}, *[{*ALL} - {"eval"}] * 3, {*ALL}]
    else:
        assert run(["erase", *person, "--yes"]) == 0
        expected = [{*ALL}]
    capsys.readouterr()
    assert purposes(house) == expected
