"""The plain listener passes what the other does: a certificate of its own."""

from tests.proxy.test_certificate import *  # noqa: F403 - each test and fixture of that module
