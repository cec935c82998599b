"""A shadow says what the live call's person said: it is kept, used and erased as that call is."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.cli import run
from lakehouse.lake import Lake
from tests.headrace.installations import ALL, PlantedInstallation, chat
from tests.scenarios.test_unanswered_consent import AskingInstallation
from tests.support.consent_service import consent_service
from trajectory.exchange import Exchange, released_name

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PERSON = "jo.frame@corp-mail.com"
OPT_OUT = ("x-headrace-opt-out", "train")
LEFT = {"debug", "eval"}
ORDERS = ("together", "apart", "shadow first")


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlantedInstallation:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    return PlantedInstallation(tmp_path)


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AskingInstallation]:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    monkeypatch.setattr("headrace.services.consent_service._AWAY_SECONDS", 0.0)
    with consent_service() as service:
        yield AskingInstallation(tmp_path, service)


def call(number: int, text: str, *headers: tuple[str, str], said: str = "done") -> Exchange:
    body = {"user": PERSON} if number == 1 else {}
    one = chat(number, [{"role": "user", "content": text}], said, **body)
    named = (*one.request.headers, ("x-headrace-session", "s1"), *headers)
    return replace(one, request=replace(one.request, headers=named))


def shadow(number: int, live: Exchange, said: str) -> Exchange:
    """The live call's request, answered by a candidate."""
    one = chat(number, [], said)
    copied = released_name(live.exchange_id)  # planting gives each exchange that name
    return replace(one, request=live.request, served="shop@0002", shadow_of=copied)


def govern(
    house: PlantedInstallation, order: str, before: list[Exchange], live: Exchange, copy: Exchange
) -> None:
    """Capture what comes before, then a call and its shadow in one order or another."""
    parts = {
        "together": [[*before, live, copy]],
        "apart": [[*before, live], [copy]],
        "shadow first": [[*before, copy], [live]],
    }
    for part in parts[order]:
        house.govern(*part)


def purposes(house: PlantedInstallation) -> dict[str, set[str]]:
    """Return what the live call and the shadow may be used for now, by who answered."""
    rows = Lake.open(str(house.home.lake)).query(
        "SELECT role_in_graph = 'shadow' AS copied, p.purposes, p.refusal FROM steps s "
        "JOIN permissions p USING (tenant_id, step_id) WHERE s.started_at = ("
        "SELECT max(started_at) FROM steps WHERE role_in_graph <> 'shadow') OR s.role_in_graph = 'shadow'"
    )
    return {
        "shadow" if row["copied"] else "live": set() if row["refusal"] else {*row["purposes"]}
        for row in rows.to_pylist()
    }


@pytest.mark.parametrize("order", ORDERS)
def test_a_shadow_goes_with_a_person_whom_only_the_conversation_names(
    house: PlantedInstallation, capsys: pytest.CaptureFixture[str], order: str
) -> None:
    live = call(2, "The lamp is broken.")
    govern(house, order, [call(1, "Refund me.")], live, shadow(3, live, "The zebras are sent."))
    assert purposes(house) == {"live": {*ALL}, "shadow": {*ALL}}
    assert run(["erase", PERSON, "--tenant", "acme", "--yes", "--json"]) == 0
    capsys.readouterr()
    assert purposes(house) == {}
    lake = Lake.open(str(house.home.lake))
    assert lake.query("SELECT 1 FROM messages").num_rows == 0
    assert lake.query("SELECT 1 FROM governance").num_rows == 0


def test_a_shadow_that_comes_after_the_erasure_is_left_out(
    house: PlantedInstallation, capsys: pytest.CaptureFixture[str]
) -> None:
    live = call(2, "The lamp is broken.")
    house.govern(call(1, "Refund me."), live)
    assert run(["erase", PERSON, "--tenant", "acme", "--yes", "--json"]) == 0
    capsys.readouterr()
    assert house.govern(shadow(3, live, "The zebras are sent.")) == {"left_out": 1}
    assert house.at_rest(["zebras"]) == {}


@pytest.mark.parametrize("order", ORDERS)
def test_a_shadow_obeys_what_its_conversation_lost_before(
    house: PlantedInstallation, order: str
) -> None:
    live = call(2, "The lamp is broken.")
    before = [call(1, "Refund me.", OPT_OUT)]
    govern(house, order, before, live, shadow(3, live, "Sent."))
    assert purposes(house) == {"live": LEFT, "shadow": LEFT}


@pytest.mark.parametrize("order", ORDERS)
def test_a_shadow_obeys_what_is_taken_away_later(
    house: PlantedInstallation, capsys: pytest.CaptureFixture[str], order: str
) -> None:
    live = call(4, "The lamp is broken.")
    govern(house, order, [call(1, "Refund me.")], live, shadow(5, live, "Sent."))
    house.govern(call(2, "I have diabetes.", OPT_OUT))
    assert purposes(house) == {"live": LEFT, "shadow": LEFT}
    assert run(["consent", "withdraw", PERSON, "--tenant", "acme", "--purpose", "eval"]) == 0
    capsys.readouterr()
    assert purposes(house) == {"live": {"debug"}, "shadow": {"debug"}}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("agrees", [False, True])
def test_a_shadow_of_a_held_call_waits_with_it(
    asking: AskingInstallation, order: str, agrees: bool
) -> None:
    asking.service.failure = "other"
    live = call(2, "The lamp is broken.")
    govern(asking, order, [call(1, "Refund me.")], live, shadow(3, live, "The zebras are sent."))
    assert {line for line, _ in asking.ledger()} == {"quarantined"}
    asking.service.failure = ""
    asking.service.granted[PERSON] = [*ALL] if agrees else []
    asking.begin_again()
    assert asking.govern() == {("stored" if agrees else "left_out"): 3}
    assert asking.govern() == {}
    assert purposes(asking) == ({"live": {*ALL}, "shadow": {*ALL}} if agrees else {})
    assert (asking.at_rest(["zebras"]) != {}) == agrees
    assert asking.rows("SELECT 1 FROM quarantined WHERE status = 'held'") == []


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("agrees", [False, True])
def test_a_stored_shadow_may_not_be_used_until_a_late_call_has_its_answer(
    asking: AskingInstallation, order: str, agrees: bool
) -> None:
    live = call(2, "The lamp is broken.")
    copy = shadow(3, live, "Sent.")
    asking.govern(live, *([copy] if order == "before" else []))
    asking.service.failure = "other"
    asking.govern(call(1, "Refund me."))
    if order == "after":
        asking.govern(copy)
    assert purposes(asking) == {"live": set(), "shadow": set()}
    asking.service.failure = ""
    asking.service.granted[PERSON] = [*ALL] if agrees else []
    asking.begin_again()
    asking.govern()
    left = {*ALL} if agrees else set()
    assert purposes(asking) == {"live": left, "shadow": left}


def test_a_shadow_without_its_call_is_never_stored(
    asking: AskingInstallation, capsys: pytest.CaptureFixture[str]
) -> None:
    live = call(2, "The lamp is broken.")
    assert asking.govern(shadow(3, live, "Sent.")) == {"quarantined": 1}
    assert asking.govern() == {}
    assert asking.ledger() == [("quarantined", ["shadow:awaits-call"])]
    asking.service.failure = "other"
    asking.govern(call(1, "Refund me."), live)
    drop = ["quarantine", "drop", "--reason", "consent:awaits-conversation", "--yes"]
    assert run(drop) == 0
    capsys.readouterr()
    assert asking.govern() == {"left_out": 1}
    assert asking.ledger()[-1] == ("left_out", ["shadow:call-not-stored"])


@pytest.mark.parametrize("order", ORDERS)
def test_a_shadow_has_the_people_retention_and_link_of_its_call(
    house: PlantedInstallation, order: str
) -> None:
    live = call(2, "The lamp is broken.")
    govern(house, order, [call(1, "Refund me.")], live, shadow(3, live, "Sent."))
    lake = Lake.open(str(house.home.lake))
    (row,) = lake.query(
        "SELECT a.expires_at = b.expires_at AS ends, a.retention_class = b.retention_class AS kept, "
        "len(b.subjects) > 0 AS named FROM links l "
        "JOIN governance_latest a ON a.step_id = l.from_step_id "
        "JOIN governance_latest b ON b.step_id = l.to_step_id WHERE l.kind = 'shadow'"
    ).to_pylist()
    assert row == {"ends": True, "kept": True, "named": True}
