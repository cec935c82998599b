"""The log of processes that run for days: each line with its time, unless somebody adds or needs none.

One event is one line: line ends and what steers a terminal are shown as escapes.
"""

import logging
import os
import sys
import time
from datetime import UTC, datetime

from headrace.app.output import note, one_line

_TIME = "%Y-%m-%d %H:%M:%S"


class _Line(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return a record as one line, whatever was put into it."""
        return one_line(super().formatMessage(record))


def start_log() -> None:
    """Give what the rooms of this process log its time (UTC), as :func:`log` does."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Line("%(asctime)s %(message)s" if _timed() else "%(message)s", _TIME))
    logging.basicConfig(handlers=[handler])


def log(text: str) -> None:
    """Print a line on standard error, with its time (UTC) where it goes into a file."""
    said = one_line(text)
    note(f"{datetime.now(UTC):{_TIME}} {said}" if _timed() else said)


def _timed() -> bool:
    """Tell whether a line needs its time: at a terminal it does not, and journald knows it."""
    return not sys.stderr.isatty() and "JOURNAL_STREAM" not in os.environ
