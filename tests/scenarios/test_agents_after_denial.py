"""Agents of official SDKs whose tool call is denied go on and finish."""

import pytest

from benchmarks.guard_agents import finished_agents


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("listener", ["plain", "mitmproxy"])
def test_agents_finish_after_a_denial(listener: str) -> None:
    found = finished_agents(listener)
    assert len(found) == 20
    assert {name for name, done in found.items() if not done} == set()
