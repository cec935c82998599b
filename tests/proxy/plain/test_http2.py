"""The plain listener passes what the other does: HTTP/2, which it hands over with its TLS."""

from tests.proxy.test_http2 import *  # noqa: F403 - each test and fixture of that module
