"""Approvals: asked once, answered once, used once; across processes that are killed."""

import multiprocessing
import os
import signal
import sqlite3
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from proxy.guard.approvals import Approvals
from proxy.guard.rules import ActionRule, RequestedCall, Ruling
from trajectory.errors import ConfigurationError, RetryableError

KEY = b"k" * 32
RULE = ActionRule("payments", Ruling.HOLD, seconds=60)
CALL = RequestedCall("pay", {"to": "Ada Lovelace", "amount": 5}, tenant="acme")


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def approvals(tmp_path: Path, clock: Clock) -> Approvals:
    return Approvals(tmp_path / "state" / "approvals.sqlite", KEY, clock)


def ask(approvals: Approvals, call: RequestedCall = CALL, key_id: str = "k1") -> str:
    return approvals.ask(call, RULE, key_id=key_id, route="tools", step_id="01").approval_id


def test_a_call_that_waits_is_asked_once(approvals: Approvals) -> None:
    first = ask(approvals)
    assert ask(approvals) == first
    assert ask(approvals, CALL._replace(arguments={"to": "Bob"})) != first
    assert ask(approvals, key_id="k2") != first
    assert ask(approvals, CALL._replace(tenant="other")) != first
    assert len(approvals.list()) == 4
    assert [one.tenant for one in approvals.list(tenant="other")] == ["other"]


def test_what_nobody_answered_leaves_the_file_once_its_time_is_over(
    approvals: Approvals, clock: Clock
) -> None:
    name = ask(approvals)
    with closing(sqlite3.connect(approvals.path)) as file:
        ((sealed,),) = file.execute("SELECT sealed FROM approvals").fetchall()
    assert sealed in approvals.path.read_bytes()
    approvals.expire()
    assert approvals.asked(name) is not None
    clock.now += 61
    approvals.expire()
    assert (approvals.get(name).status, approvals.asked(name)) == ("expired", None)
    assert not any(sealed in path.read_bytes() for path in approvals.path.parent.iterdir())


@pytest.mark.parametrize("approve", [True, False])
def test_what_cannot_be_audited_is_not_decided(approvals: Approvals, approve: bool) -> None:
    name = ask(approvals)

    def full_disk(*_: object) -> None:
        raise RetryableError("the disk is full")

    with pytest.raises(RetryableError):
        approvals.decide(name, approve=approve, who="ada", audit=full_disk)
    assert (approvals.get(name).status, approvals.asked(name) is None) == ("pending", False)
    assert not approvals.claim(name)
    said: list[object] = []
    approvals.decide(
        name, approve=approve, who="ada", audit=lambda *entry: said.append((*entry[:3],))
    )
    assert said == [("ada", "approval.approved" if approve else "approval.denied", name)]
    with pytest.raises(ConfigurationError):
        approvals.decide(name, approve=approve, who="bob", audit=full_disk)


def test_what_users_of_clients_decide_is_for_their_session_alone(approvals: Approvals) -> None:
    def of_session(name: str) -> str:
        return approvals.ask(
            CALL, RULE, key_id="k1", route="tools", step_id="01", session=name
        ).approval_id

    assert of_session("s1") == of_session("s1")
    assert len({ask(approvals), of_session("s1"), of_session("s2")}) == 3


def test_an_approval_is_used_once(approvals: Approvals) -> None:
    name = ask(approvals)
    assert not approvals.claim(name)
    approvals.decide(name, approve=True, who="ada")
    assert ask(approvals) == name
    assert [approvals.claim(name), approvals.claim(name)] == [True, False]
    assert approvals.get(name).status == "used"
    assert ask(approvals) != name


def test_approvals_of_calls_that_go_on_together_are_used_all_or_none(approvals: Approvals) -> None:
    first, second = ask(approvals), ask(approvals, key_id="k2")
    approvals.decide(first, approve=True, who="ada")
    assert not approvals.claim(first, second)
    assert approvals.get(first).status == "approved"
    approvals.decide(second, approve=True, who="ada")
    assert [approvals.claim(first, second), approvals.claim(second)] == [True, False]
    assert [approvals.get(one).status for one in (first, second)] == ["used", "used"]


def test_what_a_call_has_is_not_given_to_the_same_call_beside_it(approvals: Approvals) -> None:
    first = ask(approvals)
    again: dict[str, Any] = {"key_id": "k1", "route": "tools", "step_id": "01", "taken": [first]}
    assert approvals.ask(CALL, RULE, **again).approval_id == first  # one person is asked once
    approvals.decide(first, approve=True, who="ada")
    assert approvals.ask(CALL, RULE, **again).approval_id != first


def test_a_denial_stands_for_a_while_for_the_same_call(approvals: Approvals, clock: Clock) -> None:
    name = ask(approvals)
    approvals.decide(name, approve=False, who="ada", reason="Too much.")
    found = approvals.ask(CALL, RULE, key_id="k1", route="tools", step_id="02")
    assert (found.approval_id, found.status, found.reason) == (name, "denied", "Too much.")
    clock.now += 601
    assert ask(approvals) != name


def test_nobody_decides_twice_or_too_late(approvals: Approvals, clock: Clock) -> None:
    first, second = ask(approvals), ask(approvals, key_id="k2")
    approvals.decide(first, approve=True, who="ada")
    with pytest.raises(ConfigurationError, match="it is approved"):
        approvals.decide(first, approve=False, who="bob")
    clock.now += 60
    with pytest.raises(ConfigurationError, match="it is expired"):
        approvals.decide(second, approve=True, who="ada")
    with pytest.raises(ConfigurationError, match="no approval"):
        approvals.decide("nosuch", approve=True, who="ada")


def test_an_approval_that_nobody_uses_ends(approvals: Approvals, clock: Clock) -> None:
    name = ask(approvals)
    approvals.decide(name, approve=True, who="ada")
    clock.now += 601
    assert not approvals.claim(name)
    assert ask(approvals) != name
    assert approvals.get(name).status == "expired"


def test_what_is_asked_is_sealed_and_gone_once_decided(
    approvals: Approvals, tmp_path: Path
) -> None:
    name = ask(approvals)
    assert approvals.asked(name) == {"tool": "pay", "arguments": CALL.arguments}
    file = tmp_path / "state" / "approvals.sqlite"
    written = b"".join(path.read_bytes() for path in file.parent.iterdir())
    assert b"Lovelace" not in written
    assert file.stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigurationError, match="another master key"):
        Approvals(file, b"x" * 32).asked(name)
    approvals.decide(name, approve=False, who="ada")
    assert approvals.asked(name) is None


def test_a_sealed_question_cannot_be_put_under_another_approval(
    approvals: Approvals, tmp_path: Path
) -> None:
    first, second = ask(approvals), ask(approvals, key_id="k2")
    path = tmp_path / "state" / "approvals.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute(
            "UPDATE approvals SET sealed = (SELECT sealed FROM approvals WHERE approval_id = ?) "
            "WHERE approval_id = ?",
            (first, second),
        )
    with pytest.raises(ConfigurationError):
        approvals.asked(second)


def test_without_a_file_nothing_waits(approvals: Approvals, tmp_path: Path) -> None:
    assert approvals.list("all") == ()
    assert not (tmp_path / "state").exists()


def test_old_rows_are_forgotten(approvals: Approvals, clock: Clock) -> None:
    ask(approvals)
    clock.now += 40 * 86400
    assert [one.status for one in approvals.list("all")] == []


def _ask_and_hang(path: Path, sender: Connection) -> None:
    sender.send(ask(Approvals(path, KEY)))
    signal.pause()


def test_a_question_survives_the_death_of_who_asked(tmp_path: Path) -> None:
    path = tmp_path / "approvals.sqlite"
    context = multiprocessing.get_context("forkserver")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_ask_and_hang, args=(path, sender))
    process.start()
    name = receiver.recv()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    approvals = Approvals(path, KEY)
    assert approvals.asked(name) == {"tool": "pay", "arguments": CALL.arguments}
    approvals.decide(name, approve=True, who="ada")
    assert ask(approvals) == name
    assert approvals.claim(name)
