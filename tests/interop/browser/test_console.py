"""Chromium opens the console's pages over 500 hostile payloads: none of their scripts runs, nobody else is asked."""

import re
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
    assert len(opened.pages) == 12
    for page in opened.pages:
        sources = re.findall(r"<script([^>]*)>", page.lower())
        assert len(sources) == page.lower().count("<script") == 3
        assert all('src="/static/' in one and "sha384-" in one for one in sources)
    shown = [page for page in opened.pages[:8:2] if "<title>Trajectory" in page]
    assert [page.count("evil") >= 500 / 4 for page in shown] == [True] * 4, "the payloads are there"
