"""The audit log: appends, survives restarts, and notices every kind of tampering."""

import json
import resource
import signal
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import pytest

from governance.audit import AuditLog
from governance.audit_entries import BEGINNING, GENESIS, AuditHead
from trajectory.errors import IntegrityError, RetryableError

KEY = b"a" * 32


def filled(path: Path, count: int = 5) -> AuditLog:
    log = AuditLog(path, KEY)
    for number in range(count):
        log.append(
            actor="me", action="policy.changed", subject=f"b2:{number}", detail={"n": number}
        )
    return log


def test_entries_chain_and_verify(tmp_path: Path) -> None:
    log = filled(tmp_path / "audit.jsonl")
    entries = list(log.entries())
    assert [entry.sequence for entry in entries] == [1, 2, 3, 4, 5]
    assert entries[0].previous_hash == GENESIS
    assert [e.previous_hash for e in entries[1:]] == [e.entry_hash for e in entries[:-1]]
    assert log.verify() == log.head() == AuditHead(5, entries[-1].entry_hash)


def test_a_missing_log_is_empty(tmp_path: Path) -> None:
    assert AuditLog(tmp_path / "none.jsonl", KEY).verify() == AuditHead(0, GENESIS)


def test_another_process_goes_on_where_one_stopped(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    filled(path, 2)
    filled(path, 2)
    assert AuditLog(path, KEY).verify().sequence == 4


@pytest.mark.parametrize(
    ("tamper", "problem"),
    [
        (lambda lines: [lines[0], *lines[2:]], "audit.jsonl:2"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "audit.jsonl:1"),
        (lambda lines: [*lines[:2], lines[1], *lines[2:]], "audit.jsonl:3"),
        (lambda lines: [lines[0].replace('"me"', '"you"'), *lines[1:]], "audit.jsonl:1"),
        (lambda lines: [*lines[:3], "garbage", *lines[3:]], "audit.jsonl:4"),
    ],
)
def test_tampering_is_noticed(
    tmp_path: Path, tamper: Callable[[list[str]], list[str]], problem: str
) -> None:
    path = tmp_path / "audit.jsonl"
    log = filled(path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(tamper(lines)) + "\n")
    with pytest.raises(IntegrityError, match=problem):
        log.verify()


def test_a_forged_chain_needs_the_key(tmp_path: Path) -> None:
    filled(tmp_path / "audit.jsonl")
    with pytest.raises(IntegrityError, match="changed"):
        AuditLog(tmp_path / "audit.jsonl", b"b" * 32).verify()


def test_a_cut_log_is_noticed_by_an_anchor(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = filled(path, 3)
    earlier = (tmp_path / "audit.head").read_bytes()
    filled(path, 2)
    anchor = log.head()
    log.append(actor="me", action="x", subject="y")
    assert log.verify(anchor).sequence == 6
    path.write_text("\n".join(path.read_text().splitlines()[:3]) + "\n")
    (tmp_path / "audit.head").write_bytes(earlier)
    assert log.verify().sequence == 3
    with pytest.raises(IntegrityError, match="anchor"):
        log.verify(anchor)


def test_a_cut_log_is_noticed_here_too(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = filled(path)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    with pytest.raises(IntegrityError, match="entries 4 to 5 cut off"):
        log.verify()
    log.append(actor="me", action="policy.changed", subject="b2:later")
    assert [entry.action for entry in log.entries()][3:] == ["audit.cut", "policy.changed"]
    with pytest.raises(IntegrityError, match=r"audit.jsonl:4: .* entries 4 to 5 had been cut off"):
        log.verify()


def test_what_tells_of_a_cut_may_be_behind(tmp_path: Path) -> None:
    log = filled(tmp_path / "audit.jsonl", 2)
    behind = (tmp_path / "audit.head").read_bytes()
    log.append(actor="me", action="policy.changed", subject="b2:2")
    (tmp_path / "audit.head").write_bytes(behind)  # killed before it was told
    assert log.verify().sequence == 3
    log.append(actor="me", action="policy.changed", subject="b2:3")
    assert [entry.action for entry in log.entries()] == ["policy.changed"] * 4


@pytest.mark.parametrize("damage", ["gone", "empty", "emptied", "half", "forged"])
def test_what_tells_of_a_cut_must_be_there(tmp_path: Path, damage: str) -> None:
    log, head = filled(tmp_path / "audit.jsonl", 2), tmp_path / "audit.head"
    said = head.read_bytes()
    forged = said.replace(b'"sequence": 2', b'"sequence": 9')
    damaged = {"empty": b"", "emptied": b"{}", "half": said[:20], "forged": forged}
    head.unlink()
    if damage in damaged:
        head.write_bytes(damaged[damage])
    with pytest.raises(IntegrityError, match=r"audit\.head is gone, or was not written here"):
        log.verify()
    log.append(actor="me", action="policy.changed", subject="b2:later")
    assert [entry.action for entry in log.entries()][2:] == ["audit.headless", "policy.changed"]
    with pytest.raises(IntegrityError, match=r"audit\.jsonl:3: .*audit\.head was gone"):
        log.verify()


@pytest.mark.parametrize("left", [1, 40, -1])
def test_what_a_killed_process_left_of_an_entry_is_cut_back_and_told(
    tmp_path: Path, left: int
) -> None:
    path = tmp_path / "audit.jsonl"
    log = filled(path, 2)
    told, whole = (tmp_path / "audit.head").read_bytes(), path.read_bytes()
    filled(path, 1)
    begun = path.read_bytes()[len(whole) :][:left]
    path.write_bytes(whole + begun)
    (tmp_path / "audit.head").write_bytes(told)  # nobody was told of the third
    assert log.verify().sequence == log.head().sequence == 2
    log.append(actor="me", action="policy.changed", subject="b2:later")
    torn, last = list(log.entries())[2:]
    assert (torn.action, json.loads(torn.detail)) == ("audit.torn", {"bytes": len(begun)})
    assert (last.subject, log.verify().sequence) == ("b2:later", 4)


def test_the_first_entry_may_be_torn_too(tmp_path: Path) -> None:
    log = filled(tmp_path / "audit.jsonl", 0)
    (tmp_path / "audit.jsonl").write_bytes(b'{"action": "pol')
    log.append(actor="me", action="policy.changed", subject="b2:0")
    assert [entry.action for entry in log.entries()] == ["audit.torn", "policy.changed"]
    assert log.verify().sequence == 2


def test_a_full_disk_leaves_no_half_entry(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = filled(path, 2)
    before = path.read_bytes()
    limits, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.SIG_IGN
    handler = signal.signal(signal.SIGXFSZ, ignored)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, limits[1]))
    try:
        with pytest.raises(RetryableError, match="could not be written"):
            log.append(actor="me", action="policy.changed", subject="b2:2")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    log.append(actor="me", action="policy.changed", subject="b2:2")
    assert log.verify().sequence == 3


def test_nothing_is_appended_to_a_changed_end(tmp_path: Path) -> None:
    filled(tmp_path / "other.jsonl", 1)
    last = json.loads((tmp_path / "other.jsonl").read_text())
    (tmp_path / "other.jsonl").write_text(json.dumps({**last, "actor": "you"}) + "\n")
    with pytest.raises(IntegrityError, match="changed"):
        AuditLog(tmp_path / "other.jsonl", KEY).append(actor="me", action="x", subject="y")


def test_who_takes_the_end_of_the_last_entry_away_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = filled(path, 2)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(IntegrityError, match="entry 2 cut off"):
        log.verify()
    log.append(actor="me", action="policy.changed", subject="b2:later")
    actions = [entry.action for entry in log.entries()]
    assert actions[1:] == ["audit.cut", "audit.torn", "policy.changed"]
    with pytest.raises(IntegrityError, match="entry 2 had been cut off"):
        log.verify()


class FileWitness:
    """A witness in a file of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self) -> bytes | None:
        return self._path.read_bytes() if self._path.exists() else None

    def put(self, data: bytes) -> None:
        self._path.write_bytes(data)


@pytest.mark.parametrize("regrown", [0, 2, 9])
def test_a_log_that_was_deleted_with_its_head_is_noticed_by_the_witness(
    tmp_path: Path, regrown: int
) -> None:
    path, witness = tmp_path / "audit.jsonl", FileWitness(tmp_path / "note")
    log = AuditLog(path, KEY, witness=witness)
    for number in range(4):
        log.append(actor="me", action="policy.changed", subject=f"b2:{number}")
    assert log.verify().sequence == 4
    path.unlink()
    (tmp_path / "audit.head").unlink()
    filled(path, regrown)
    with pytest.raises(IntegrityError, match=r"entry 4 that the lake.s note tells of"):
        AuditLog(path, KEY, witness=witness).verify()
    begun_again = AuditLog(path, KEY, witness=witness)
    for number in range(2):
        begun_again.append(actor="me", action="policy.changed", subject=f"b2:later {number}")
    actions = [entry.action for entry in begun_again.entries()]
    assert actions == ["policy.changed"] * regrown + ["audit.cut"] + ["policy.changed"] * 2
    with pytest.raises(IntegrityError, match="had been cut off"):
        AuditLog(path, KEY).verify()


@pytest.mark.parametrize("note", [b"", b"{}", b"half", b'{"sequence": 9, "entry_hash": "b2:0"}'])
def test_a_note_that_nobody_with_the_key_wrote_says_nothing(tmp_path: Path, note: bytes) -> None:
    witness = FileWitness(tmp_path / "note")
    log = filled(tmp_path / "audit.jsonl")
    witness.put(note)
    log = AuditLog(tmp_path / "audit.jsonl", KEY, witness=witness)
    assert log.verify().sequence == 5
    log.append(actor="me", action="policy.changed", subject="b2:later")
    assert AuditLog(tmp_path / "audit.jsonl", KEY, witness=witness).verify().sequence == 6


def _write(path: str) -> None:
    filled(Path(path), 20)


def test_processes_share_a_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    workers = [get_context("spawn").Process(target=_write, args=(str(path),)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert AuditLog(path, KEY).verify().sequence == 40


def test_the_file_is_private(tmp_path: Path) -> None:
    filled(tmp_path / "audit.jsonl", 1)
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o077 == 0


def test_what_follows_a_verified_place_is_verified_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = filled(path)
    place = log.verify_after(BEGINNING)
    assert log.verify_after(place) == place
    log.append(actor="me", action="x", subject="y")
    later = log.verify_after(place)
    assert (later.head, later.offset) == (log.head(), path.stat().st_size)
    with pytest.raises(IntegrityError, match="anchor"):
        log.verify_after(place, AuditHead(6, "b2:other"))
    path.write_bytes(path.read_bytes().replace(b'"b2:1"', b'"b2:9"'))
    assert log.verify_after(later) == later, "an older entry is not read again"
    with pytest.raises(IntegrityError, match=r"audit\.jsonl:2"):
        log.verify()
    path.write_bytes(path.read_bytes().replace(b'"y"', b'"z"'))
    with pytest.raises(IntegrityError, match=r"audit\.jsonl:6"):
        log.verify_after(place)


@pytest.mark.parametrize("damage", ["gone", "cut", "moved"])
def test_a_verified_place_that_is_no_longer_there_is_noticed(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "audit.jsonl"
    log = filled(path)
    place = log.verify_after(BEGINNING)
    lines = path.read_bytes().splitlines(keepends=True)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"".join(lines[:-1] if damage == "cut" else [*lines[1:], *lines[:1]]))
    with pytest.raises(IntegrityError, match="entry 5, which was verified earlier"):
        log.verify_after(place)


def test_another_key_is_told_and_a_damaged_log_tells_nothing(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    filled(path)
    assert not AuditLog(path, KEY).is_of_another_key()
    assert AuditLog(path, b"b" * 32).is_of_another_key()
    path.write_text("no entry\n")
    assert not AuditLog(path, b"b" * 32).is_of_another_key()
    path.unlink()
    path.mkdir()
    assert not AuditLog(path, b"b" * 32).is_of_another_key()
