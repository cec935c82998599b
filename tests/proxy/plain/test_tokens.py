"""The plain listener passes what the other does: tokens."""

from tests.proxy.recording.test_tokens import *  # noqa: F403 - each test and fixture of that module
