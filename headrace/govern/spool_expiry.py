"""Deletes ungoverned spool segments beyond ``gateway.spool.max_age_hours``; audits each deletion."""

from datetime import UTC, datetime, timedelta

from governance.audit import PROCESS, AuditLog
from headrace.app.home import Home
from headrace.app.installation import gateway_config
from headrace.app.settings import Settings
from proxy.spool.expiry import SpoolSweep, expire, noted
from proxy.spool.layout import size
from trajectory.canonical import JsonObject

EXPIRED = "spool.expired"


def sweep_raw(
    settings: Settings, home: Home, audit: AuditLog, *, dry_run: bool = False
) -> SpoolSweep:
    """Delete raw captures beyond ``gateway.spool.max_age_hours``, and write down what went.

    Deletions by the gateway since the last sweep are audited too. With ``dry_run`` nothing is deleted.
    """
    spool = gateway_config(settings, home).spool
    gone = expire(spool.directory, spool.max_age_hours * 3600, dry_run=dry_run)
    if dry_run:
        return gone
    with noted(spool.directory) as notes:
        for note in notes:
            audit.append(
                actor=f"{PROCESS}retention",
                action=EXPIRED,
                subject="spool",
                detail={
                    "segments": note["segments"],
                    "bytes": note["bytes"],
                    "last_written": _when(note["last_written"]),
                    "deleted_at": _when(note["at"]),
                },
            )
    return gone


def sealed_captures(settings: Settings, home: Home) -> JsonObject:
    """Return what lies sealed in the spool, and when the last of it is gone at the latest."""
    spool = gateway_config(settings, home).spool
    found = size(spool.directory)
    latest = datetime.now(UTC) + timedelta(hours=spool.max_age_hours, seconds=spool.segment_seconds)
    return {"files": found.files, "bytes": found.bytes, "gone_by": latest.isoformat()}


def _when(seconds: object) -> str:
    return datetime.fromtimestamp(float(str(seconds)), UTC).isoformat()
