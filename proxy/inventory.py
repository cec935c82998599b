"""The inventory: which hosts clients reach past the gateway's eyes. Names and counts, no content."""

import re
import time
from dataclasses import dataclass

from trajectory.canonical import JsonValue

MOST_HOSTS = 1000
OTHERS = "others"
_HOST = re.compile(r"[a-z0-9._:-]{1,253}")


def sound_host(host: str | None) -> str:
    """Return a host's name as it may stand in metrics; what is no name becomes ``-``."""
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
