"""Held exchanges: what does not open is told of, and ends nothing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.govern.quarantine_store import QuarantineStore
from tests.headrace.installations import chat
from tests.lakehouse.power import Power
from tests.support.killed import killed_while_replacing
from trajectory.errors import IntegrityError

KEY = b"q" * 32


@pytest.mark.parametrize("left", [0, 5, 12, 40])
def test_a_file_that_was_cut_off_expires_like_the_others(tmp_path: Path, left: int) -> None:
    store = QuarantineStore(tmp_path, KEY)
    kept = chat(1, [{"role": "user", "content": "hello"}])
    store.keep([kept])
    assert store.read(kept.exchange_id) == kept
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:left])
    with pytest.raises(IntegrityError, match="does not open"):
        store.read(kept.exchange_id)
    assert store.opened(kept.exchange_id) is None
    later = datetime.now(UTC) + timedelta(days=15)
    assert store.expire(14, later, is_held=lambda one: one is not None) == 1
    assert not [*tmp_path.iterdir()]


def test_whom_it_is_about_and_what_the_gateway_added_comes_back(tmp_path: Path) -> None:
    store = QuarantineStore(tmp_path, KEY)
    kept = replace(
        chat(1, [{"role": "user", "content": "hello"}]),
        capture_note="opt-out",
        served="support@3",
        shadow_of="0" * 32,
        artifacts=("memory@2=f1+f2",),
        subjects=("subject-of-a-surrogate",),
        released_of="1" * 32,
        released_calls=(("2" * 32, "3" * 32),),
    )
    store.keep([kept])
    assert store.read(kept.exchange_id) == kept


def test_what_was_dropped_does_not_come_back_with_the_power(tmp_path: Path) -> None:
    store = QuarantineStore(tmp_path / "held", KEY)
    kept = [chat(number, [{"role": "user", "content": "hello"}]) for number in (1, 2)]
    store.keep(kept)
    with Power(tmp_path / "held") as power:
        assert store.drop([kept[0].exchange_id]) == 1
    power.cut()
    assert store.names() == {kept[1].exchange_id}


def test_what_a_killed_process_left_goes_with_the_next_that_expire_or_are_erased(
    tmp_path: Path,
) -> None:
    store = QuarantineStore(tmp_path, KEY)
    file = tmp_path / f"{'1' * 32}.sealed"
    left = killed_while_replacing(file, "sealed")
    assert store.expire(14) == 0
    assert not left.exists()
    left = killed_while_replacing(file, "sealed")
    assert store.drop(["another"]) == 0
    assert not left.exists()


def test_what_another_process_drops_meanwhile_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = QuarantineStore(tmp_path, KEY)
    kept = chat(1, [{"role": "user", "content": "hello"}])
    store.keep([kept])
    known = store.names()
    monkeypatch.setattr(QuarantineStore, "names", lambda _: known)
    next(tmp_path.iterdir()).unlink()
    assert store.read(kept.exchange_id) is None
