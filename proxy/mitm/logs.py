"""Keeps content out of logs: what mitmproxy logs is counted, never repeated."""

import logging

from proxy.telemetry.counters import Counters

_log = logging.getLogger("proxy.mitmproxy")
_KEPT = 100


class LogSilencer(logging.Handler):
    """Takes all records of mitmproxy. Their texts and errors may quote headers and bodies."""

    def __init__(self, counters: Counters) -> None:
        super().__init__(logging.WARNING)
        self._counters = counters

    def emit(self, record: logging.LogRecord) -> None:
        """Count a record; the first ones leave a line that says where it came from."""
        self._counters.noise += 1
        if self._counters.noise <= _KEPT:
            kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else "-"
            _log.warning("%s at %s:%d (%s)", record.levelname, record.name, record.lineno, kind)


def muffle(counters: Counters) -> LogSilencer:
    """Route mitmproxy's and asyncio's records into a muffler; return it."""
    handler = LogSilencer(counters)
    for name in ("mitmproxy", "asyncio", "hpack", "h2"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(logging.WARNING)
        logger.propagate = False
    return handler


def unmuffle() -> None:
    """Give the loggers back."""
    for name in ("mitmproxy", "asyncio", "hpack", "h2"):
        logger = logging.getLogger(name)
        logger.handlers[:] = []
        logger.setLevel(logging.NOTSET)
        logger.propagate = True
