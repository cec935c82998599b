"""The plain listener passes what the other does: webhooks."""

from tests.proxy.api.test_webhooks import *  # noqa: F403 - each test and fixture of that module
