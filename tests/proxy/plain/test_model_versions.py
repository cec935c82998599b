"""The plain listener passes what the other does: model versions."""

from tests.proxy.routes.test_model_versions import *  # noqa: F403 - each test and fixture of that module
