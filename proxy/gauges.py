"""What the gateway's metrics say of this moment, and whether it is ready."""

import time
from pathlib import Path

from proxy.routing import Router
from proxy.spool import SpoolWriter, layout
from proxy.spool.states import SpoolState


def spool_gauges(spool: SpoolWriter, directory: Path) -> dict[str, float]:
    """Return how full the spool is and how its disk does."""
    try:
        oldest = layout.oldest(directory)
    except OSError:  # counted where it matters: a record that the disk refuses
        oldest = None
    return {
        "spool_bytes": spool.bytes_on_disk,
        "spool_open": float(spool.state is SpoolState.OPEN),
        "spool_files": spool.files,
        "spool_fill_ratio": round(spool.fill, 4),
        "spool_alarm": float(spool.alarm),
        "spool_oldest_seconds": 0.0 if oldest is None else time.time() - oldest,
        "spool_failures": spool.failures,
    }


def can_record(spool: SpoolWriter | None, router: Router) -> bool:
    """Tell whether calls of all routes pass; those that insist on capture need the spool."""
    if spool is None or not any(plan.mandatory for plan in router.plans):
        return True
    return spool.state in (SpoolState.OPEN, SpoolState.SHEDDING)
