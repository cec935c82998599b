"""What a query of the lake may end in, for those who ask it without DuckDB."""

from trajectory.errors import ConfigurationError


class QueryError(ConfigurationError):
    """The query cannot be answered as it was asked; the text is DuckDB's own where the SQL is wrong."""


class PastGoneError(QueryError):
    """An earlier state cannot be read any more."""
