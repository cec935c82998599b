"""The log of processes that run for days: each line with its time, unless somebody adds or needs none."""

import logging
import os
import sys
import time
from datetime import UTC, datetime

from headrace.app.output import note

_TIME = "%Y-%m-%d %H:%M:%S"


class _Line(logging.Formatter):
    converter = staticmethod(time.gmtime)


def start_log() -> None:
    """Give what the rooms of this process log its time (UTC), as :func:`log` does."""
    if _timed():
        handler = logging.StreamHandler()
        handler.setFormatter(_Line("%(asctime)s %(message)s", _TIME))
        logging.basicConfig(handlers=[handler])


def log(text: str) -> None:
    """Print a line on standard error, with its time (UTC) where it goes into a file."""
    note(f"{datetime.now(UTC):{_TIME}} {text}" if _timed() else text)


def _timed() -> bool:
    """Tell whether a line needs its time: at a terminal it does not, and journald knows it."""
    return not sys.stderr.isatty() and "JOURNAL_STREAM" not in os.environ
