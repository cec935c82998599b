"""Checks the audit log against what others know of it, and keeps how far it was found intact.

Others are the note in the lake, the certificates of erasures, the governor's checkpoint and any anchors
that are given. The first look reads the whole log. Each later one reads what is new since: a change of an
older entry is found by :func:`check_whole`, which reads everything again. The governor has that done once a day.
"""

import hmac
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from governance.audit import AuditLog
from governance.audit_entries import BEGINNING, AuditHead, AuditPlace
from governance.certificates import read_certificate, verified
from headrace.app.context import AppContext
from headrace.app.home import Home
from headrace.app.master_key import Secrets
from headrace.govern.checkpoint import CheckpointStore
from headrace.services.anchors import LakeWitness
from lakehouse.storage.location import Location
from lakehouse.storage.notes import Notes
from trajectory.canonical import content_hash
from trajectory.errors import ConfigurationError, IntegrityError
from trajectory.files import locked, read_file, replace_file

_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """How far the audit log was found intact, and when."""

    place: AuditPlace
    """The last entry that was checked."""
    at: float
    """When that was."""
    whole_at: float | None
    """When the whole log was found intact the last time."""
    problem: str | None = None
    """What is wrong; it stays until the whole log was checked and found intact."""


def verified_log(app: AppContext, anchors: Sequence[AuditHead] = ()) -> AuditHead:
    """Check the whole audit log; return its end.

    Raises:
        IntegrityError: the log is not whole.
    """
    check = check_whole(app, anchors)
    if check.problem is not None:
        raise IntegrityError(check.problem)
    return check.place.head


def check_whole(app: AppContext, anchors: Sequence[AuditHead] = ()) -> AuditCheck:
    """Check the whole audit log; return what was found, which is kept too."""
    store, now = CheckStore(app.home, app.secrets), time.time()
    known = store.load() or AuditCheck(BEGINNING, now, None)
    try:
        place = _place_after(app, BEGINNING, [*anchors, known.place.head, *_certified(app)])
        check = AuditCheck(place, now, now)
    except IntegrityError as error:
        check = replace(known, at=now, problem=str(error))
    store.keep(check, is_whole=True)
    return check


def check_new(app: AppContext) -> AuditCheck:
    """Check what is new in the audit log since the last check; all of it where there was none."""
    store, now = CheckStore(app.home, app.secrets), time.time()
    known = store.load()
    if known is None:
        return check_whole(app)
    if known.problem is not None:
        return known
    try:
        place = _place_after(app, known.place, [*_certified(app, since=known.at)])
        check = replace(known, place=place, at=now)
    except IntegrityError as error:
        check = replace(known, at=now, problem=str(error))
    store.keep(check)
    return check


def _place_after(app: AppContext, place: AuditPlace, anchors: Sequence[AuditHead]) -> AuditPlace:
    """Check the log behind a place; return its end.

    Raises:
        IntegrityError: the log is not whole.
    """
    lake = app.settings.lake
    notes = Notes(Location.parse(lake.path, lake.options))
    log = AuditLog(
        app.home.audit / "audit.jsonl",
        app.secrets.derive(b"audit"),
        witness=LakeWitness(notes, app.home.identity),
    )
    end = log.verify_after(place, *anchors)
    if not end.head.sequence and (batches := CheckpointStore(app.home.state).load().batch):
        raise IntegrityError(
            f"there is no audit log, and {batches} batches were governed here: it was deleted. Restore "
            f"{app.home.audit} from a backup and compare."
        )
    return end


def _certified(app: AppContext, since: float = 0.0) -> Iterator[AuditHead]:
    """Yield the ends of the log that this installation's certificates of erasures name."""
    for path in app.home.certificates.glob("*.json"):
        # What is wrong with a certificate, `audit verify-certificate` tells.
        with suppress(IntegrityError, ConfigurationError, KeyError, ValueError, OSError):
            if path.stat().st_mtime < since:
                continue
            said = verified(read_certificate(path), app.certifier.public_key)
            sequence, _, entry_hash = str(said["audit_anchor"]).partition(":")
            yield AuditHead(int(sequence), entry_hash)


class CheckStore:
    """The file that keeps the last check; sealed, so that nobody without the key writes one."""

    def __init__(self, home: Home, secrets: Secrets) -> None:
        """Keep it in the home's folder of state, where the gateway reads it for its metrics."""
        self._path = home.state / "audit-check.json"
        self._key = secrets.derive(b"audit-check")

    def is_whole_due(self) -> bool:
        """Tell whether the whole log was not checked for a day."""
        known = self.load()
        if known is None:
            return True
        last = known.whole_at if known.problem is None else known.at
        return last is None or not 0 <= time.time() - last < _DAY

    def load(self) -> AuditCheck | None:
        """Return the last check; None where there is none of ours."""
        try:
            said = json.loads(read_file(self._path))
            kept = said["check"]
            if not hmac.compare_digest(str(said["sealed"]), content_hash(kept, key=self._key)):
                return None
            place = AuditPlace(AuditHead(**kept["place"]["head"]), kept["place"]["offset"])
            return AuditCheck(**{**kept, "place": place})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def keep(self, check: AuditCheck, *, is_whole: bool = False) -> None:
        """Keep a check; a problem that another one found meanwhile stays, unless this one is of the whole log."""
        kept = asdict(check)
        said = {"check": kept, "sealed": content_hash(kept, key=self._key)}
        with suppress(OSError), locked(self._path.with_suffix(".lock"), wait=True):
            before = self.load()
            if is_whole or before is None or before.problem is None:
                replace_file(self._path, json.dumps(said).encode())
