"""Errors of governance: a policy that is wrong, and content that may not go on.

ConfigurationError
├── PolicyError      a policy document or bundle is wrong; the text names file, line and field
└── FieldError       a policy asks for what is not there; who has the document tells where
"""

from trajectory.errors import ConfigurationError


class PolicyError(ConfigurationError):
    """A policy document is wrong; every line of the text is ``file:line: field: problem``."""


class FieldError(ConfigurationError):
    """What a field of a ``spec`` asks for is not there."""

    def __init__(self, text: str, field: tuple[str | int, ...] = ()) -> None:
        """Say what is wrong with the field at this path of the document."""
        super().__init__(text, field)
        self.field = field

    def __str__(self) -> str:
        """Return the text alone."""
        return str(self.args[0])
