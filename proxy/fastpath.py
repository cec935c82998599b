"""Speed overrides of mitmproxy, for exactly the version they were measured with."""

import asyncio
from collections.abc import Callable

from mitmproxy.master import Master


def new_event_loop(enabled: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the event loop."""
    return None


def apply(master: Master, *, enabled: bool) -> None:
    """Put the overrides in place."""


def revert() -> None:
    """Take the overrides out."""
