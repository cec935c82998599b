"""The errors of Headrace, as a tree; every text ends with what to do next.

    HeadraceError
    ├── ConfigurationError (ValueError)   a setting, policy or argument is wrong        → exit 2
    │   └── DocumentError                 a YAML document is wrong: file, line, field
    ├── WorkError (RuntimeError)          the work was tried and failed                 → exit 3
    │   └── RetryableError                the same work may succeed when tried again
    └── IntegrityError (RuntimeError)     stored data is not what it claims to be       → exit 3

Rooms derive their own from these (``PolicyError(ConfigurationError)`` in governance, say).
"""


class HeadraceError(Exception):
    """Base of all errors that Headrace raises on purpose; ``exit_code`` is what the CLI ends with."""

    exit_code = 3


class ConfigurationError(HeadraceError, ValueError):
    """A setting, policy document or argument is wrong; the text says where and what is valid."""

    exit_code = 2


class DocumentError(ConfigurationError):
    """A YAML document is wrong; every line of the text is ``file:line: field: problem``."""


class WorkError(HeadraceError, RuntimeError):
    """The work was tried and failed; nothing that was captured is lost by it."""


class RetryableError(WorkError):
    """The work failed for a reason that may pass (a conflicting commit, a full disk)."""


class IntegrityError(HeadraceError, RuntimeError):
    """Stored data is not what it claims to be (a bad checksum, a broken hash chain)."""
