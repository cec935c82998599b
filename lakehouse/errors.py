"""What a query of the lake may end in, for those who ask it without DuckDB; what stores say, in one line."""

import re

from trajectory.errors import ConfigurationError

_CALLS = re.compile(r"\n +0: (?s:.*)")
"""A backtrace as Rust writes it."""


class QueryError(ConfigurationError):
    """The query cannot be answered as it was asked; the text is DuckDB's own where the SQL is wrong."""


class PastGoneError(QueryError):
    """An earlier state cannot be read any more."""


def in_one_line(error: Exception) -> str:
    """Return what delta-rs, Arrow or a disk says, without the calls that Rust lists behind it."""
    return " ".join(_CALLS.sub("", str(error)).split())
