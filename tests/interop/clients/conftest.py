"""Fixtures of the tests with other people's clients."""

from tests.support.tls import tls

__all__ = ["tls"]
