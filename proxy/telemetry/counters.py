"""Counters of the gateway. They hold numbers, fixed words and host names, no other client data."""

import re
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from trajectory.canonical import JsonValue

MOST_HOSTS = 1000
OTHERS = "others"
_MOST_NAMES = 200
_HOST = re.compile(r"[a-z0-9._:-]{1,253}")


def sound_host(host: str | None) -> str:
    """Return a host name that is safe for metrics; ``-`` if it is not a name."""
    lower = (host or "").lower()
    return lower if _HOST.fullmatch(lower) else "-"


@dataclass(slots=True)
class Entry:
    """One host and port."""

    connections: int = 0
    first_seen: float = 0.0
    last_seen: float = 0.0


class Inventory:
    """Counts connections by host and port; bounded, what comes later counts as ``others``."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, int], Entry] = {}

    def enter(self, host: str, port: int) -> None:
        """Count a connection."""
        place = (sound_host(host), port)
        if place not in self.entries and len(self.entries) >= MOST_HOSTS:
            place = (OTHERS, 0)
        now = time.time()
        entry = self.entries.setdefault(place, Entry(first_seen=now))
        entry.connections += 1
        entry.last_seen = now

    def rows(self) -> list[JsonValue]:
        """Return all hosts, those with the most connections first."""
        ordered = sorted(self.entries.items(), key=lambda item: (-item[1].connections, item[0]))
        return [
            {
                "host": host,
                "port": port,
                "connections": entry.connections,
                "first_seen": round(entry.first_seen, 3),
                "last_seen": round(entry.last_seen, 3),
            }
            for (host, port), entry in ordered
        ]


BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(slots=True)
class Counters:
    """Counts since the process started."""

    exchanges: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By route, mode and outcome."""
    listeners: Counter[str] = field(default_factory=Counter)
    """Calls by the listener that served them: ``plain`` or ``mitmproxy``."""
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By route and status class."""
    refusals: Counter[str] = field(default_factory=Counter)
    """By reason."""
    uncaptured: Counter[str] = field(default_factory=Counter)
    """Exchanges that passed without a full capture, by reason."""
    unlimited: Counter[str] = field(default_factory=Counter)
    """Calls of limited keys that a limit could not count, by reason."""
    served: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Calls by route and registered version that they were given to."""
    artifacts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By route, artefact and outcome: applied, missing, malformed, over_cap, slow, unreadable."""
    inline: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Requests of routes with pseudonymisation, by route and outcome: replaced, clean; unreadable, slow,
    failed or unknown_response, each passed or refused; and history_lost."""
    inline_surrogates: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By route: issued in requests; in answers restored, withheld from a tool, unknown."""
    inline_seconds: float = 0.0
    """What requests waited for their pseudonymisation."""
    guard: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Tool calls of guarded routes, by route and decision; and requests that could not be read."""
    shadows: Counter[str] = field(default_factory=Counter)
    """Copies of calls for another version, by what came of them."""
    webhooks: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Events of webhooks by webhook and what came of them; of accepted ones the pieces of feedback."""
    feedback: int = 0
    spool_expired_segments: int = 0
    """Segments of the spool that were deleted because nobody governed them in time."""
    spool_expired_bytes: int = 0
    elsewhere: int = 0
    """Calls that went to another upstream of their route, because theirs could not be reached."""
    tunnels: int = 0
    """Connections passed on undecrypted."""
    inventory: Inventory = field(default_factory=Inventory)
    """Hosts that clients reached through tunnels that were not opened."""
    tls_failures: Counter[str] = field(default_factory=Counter)
    """Handshakes with clients that failed, by the name that the client wanted to reach; usually a
    client that does not trust the authority, or the base-URL port's own certificate."""
    faults: int = 0
    """Errors of the gateway's own code; each is a bug, and none reaches a client's bytes."""
    noise: int = 0
    """Warnings of mitmproxy; their text is not kept, because it may hold content."""
    request_bytes: int = 0
    response_bytes: int = 0
    durations: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    duration_sum: float = 0.0
    trials: Mapping[str, Mapping[tuple[str, ...], float]] = field(default_factory=dict)
    """Figures of the trials on the ladder, by metric and labels."""
    serving: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Version by model and place (live, canary, shadow), as last published."""
    loop_lag: float = 0.0
    """Seconds by which the event loop was late when last looked at."""

    def tunnelled(self, host: str, port: int) -> None:
        """Count a connection that is passed on unread, and enter its host into the inventory."""
        self.tunnels += 1
        self.inventory.enter(host, port)

    def tls_failed(self, name: str | None) -> None:
        """Count a failed handshake by the name that its client called."""
        failures, host = self.tls_failures, sound_host(name)
        failures[host if host in failures or len(failures) < _MOST_NAMES else OTHERS] += 1

    def observe(self, seconds: float) -> None:
        """Count one exchange's duration."""
        self.duration_sum += seconds
        self.durations[bisect_left(BUCKETS, seconds)] += 1
