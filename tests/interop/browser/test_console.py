"""Chromium opens the console's pages over 500 hostile payloads: no script runs, nobody else is asked."""

from pathlib import Path

import pytest
from playwright.sync_api import Playwright

from tests.interop.browser.conftest import chromium
from tests.support.hostile_pages import open_hostile_pages, payloads

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_nothing_captured_runs_in_a_browser_or_asks_another_host(
    tmp_path: Path, playwright: Playwright
) -> None:
    path = chromium()
    assert len({*payloads()}) == 500
    opened = open_hostile_pages(tmp_path / "home", path, playwright)
    assert (opened.scripts_run, opened.foreign_requests) == (0, 0)
    assert len(opened.pages) == 10
    for page in opened.pages:
        assert "<script" not in page.lower()
    shown = [page for page in opened.pages[:8:2] if "<title>Trajectory" in page]
    assert [page.count("evil") >= 500 / 4 for page in shown] == [True] * 4, "the payloads are there"
