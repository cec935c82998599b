"""Home: is it healthy, what came of late, what did it cost, what waits for a person."""

import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from headrace.app.installation import Address, addresses, gateway_config
from headrace.app.output import moment
from headrace.console.page import Page, PageRequest
from headrace.console.users import ROLES
from headrace.services.approvals import approvals
from headrace.services.audit_check import CheckStore
from headrace.services.four_eyes import may_see, requests_of
from headrace.services.lake_report import spool_lag
from headrace.services.request_store import WAITING
from trajectory.errors import HeadraceError

_DAYS = """
SELECT CAST(started_at AS DATE) AS day, count(*) AS exchanges,
       count(*) FILTER (disposition = 'stored') AS stored,
       count(*) FILTER (disposition = 'quarantined') AS held
FROM exchanges WHERE started_at >= now() - INTERVAL 14 DAY GROUP BY ALL ORDER BY day
"""
_NEWEST = "SELECT max(started_at) AS at FROM exchanges WHERE started_at <= now()"
_KEPT_BACK = "SELECT count(*) AS cases FROM quarantined WHERE status = 'held'"
_NOW = """
SELECT (SELECT count(*) FROM steps WHERE started_at >= now() - INTERVAL 1 DAY) AS steps_today,
       (SELECT count(*) FROM steps WHERE started_at >= now() - INTERVAL 1 DAY
        AND (error IS NOT NULL OR http_status >= 400)) AS failed_today
"""
_SPEND = """
SELECT currency, sum(cost) FILTER (s.started_at >= now() - INTERVAL 1 DAY) AS today, sum(cost) AS week
FROM step_costs c JOIN steps s ON s.tenant_id = c.tenant_id AND s.step_id = c.step_id
WHERE s.started_at >= now() - INTERVAL 7 DAY AND cost IS NOT NULL GROUP BY currency ORDER BY week DESC
"""
_HELD = """
SELECT reason, count(*) AS cases, min(started_at) AS oldest FROM quarantined
WHERE status = 'held' GROUP BY reason ORDER BY cases DESC, reason LIMIT 10
"""
_PROPOSED = """
SELECT decision_id, recorded_at, policy, surface, subject FROM decisions_latest
WHERE status = 'proposed' ORDER BY recorded_at DESC, decision_id LIMIT 10
"""
_CANDIDATES = """
SELECT name, version, recorded_at FROM models_latest WHERE status = 'candidate'
ORDER BY recorded_at DESC, name, version LIMIT 10
"""


def _home(asked: PageRequest) -> Mapping[str, Any]:
    (now,) = asked.recent(2, _NOW)
    (kept_back,) = asked.rows(_KEPT_BACK)
    everything = asked.reads_every_tenant
    (last,) = asked.recent(2, _NEWEST)
    if last["at"] is None:
        (last,) = asked.rows(_NEWEST)
    newest = last["at"]
    freshness = None if newest is None else (datetime.now(UTC) - newest).total_seconds()
    return {
        "lake": {
            **now,
            "held": kept_back["cases"],
            "newest_exchange_at": newest,
            "freshness_s": freshness,
        },
        "days": asked.recent(15, _DAYS),
        "spend": asked.recent(8, _SPEND),
        "machine": _machine(asked) if everything else None,
        "waiting": {
            "held": asked.rows(_HELD),
            "calls": _calls(asked),
            "requests": _requests(asked),
            "decisions": asked.rows(_PROPOSED) if everything else [],
            "candidates": asked.rows(_CANDIDATES) if everything else [],
        },
    }


def _calls(asked: PageRequest) -> Mapping[str, Any]:
    """Return how many tool calls wait, and since when."""
    tenant = None if asked.reads_every_tenant else asked.tenant
    found = approvals(asked.console.running, tenant=tenant)
    oldest = min((one.created for one in found), default=None)
    return {"waiting": len(found), "oldest": moment(oldest)}


def _requests(asked: PageRequest) -> int:
    """Return how many acts wait for a second person, of those that the user may see."""
    known = requests_of(asked.console.running).list(WAITING)
    return sum(may_see(asked.user, one) for one in known)


def _machine(asked: PageRequest) -> Mapping[str, Any]:
    """Return the state of this machine's processes, which belong to no tenant."""
    running = asked.console.running
    config = gateway_config(running.settings, running.home)
    try:
        lag = spool_lag(running.settings, running.home, running.secrets)
        waiting: dict[str, int | str | None] = {
            "records": lag.records,
            "bytes": lag.bytes,
            "error": None,
        }
    except (HeadraceError, OSError) as error:
        waiting = {"records": None, "bytes": None, "error": type(error).__name__}
    check = CheckStore(running.home, running.secrets).load()
    return {
        "gateway": {name: _answers(place) for name, place in addresses(config).items()},
        "spool": waiting,
        "audit": None
        if check is None
        else {"is_intact": check.problem is None, "whole_checked_at": moment(check.whole_at)},
    }


def _answers(place: Address) -> bool:
    host = place.for_clients.rpartition(":")[0].strip("[]")
    try:
        socket.create_connection((host, place.port), timeout=0.5).close()
    except OSError:
        return False
    return True


PAGES = (
    Page(
        path="/home",
        title="Home",
        roles=ROLES,
        template="home.html",
        data=_home,
        looks_again=30,
    ),
)
