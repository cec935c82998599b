"""Errors of governance: a policy that is wrong, and content that may not go on.

ConfigurationError
└── PolicyError      a policy document or bundle is wrong; the text names file, line and field
"""

from trajectory.errors import ConfigurationError


class PolicyError(ConfigurationError):
    """A policy document is wrong; every line of the text is ``file:line: field: problem``."""
