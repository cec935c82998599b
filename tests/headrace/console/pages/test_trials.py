"""Trials: both arms with intervals, and what the e-values show; a trial that goes on is looked at again."""

from dataclasses import replace

import pytest

from evolve.detectors import Counted
from evolve.trial import SUCCESS, ArmComparison, Arms
from evolve.trial_files import TrialFiles
from headrace.console.page import Console
from tests.headrace.console.conftest import client_of, trial_of


def test_a_trial_shows_its_arms_and_what_is_shown_by_now(console: Console) -> None:
    files = TrialFiles(console.running.home.trials)
    arms = Arms(Counted(40, 30), Counted(40, 4))
    found = {
        SUCCESS: ArmComparison(arms, harm=(8.0, 9.0, 8.0)),
        "latency": ArmComparison(arms, no_worse=(4.0, 4.0, 4.0)),
    }
    state = trial_of("shop", "0008")
    files.write(replace(state, comparisons=found))
    client = client_of(console, ("viewer", "*"))
    told = client.get(f"/trials/{state.trial_id}.json").json()
    candidate, control = told["arms"]
    assert (candidate["arm"], candidate["version"]) == ("candidate", "shop@0008")
    assert (candidate["sessions"], candidate["right"], control["right"]) == (40, 0.25, 0.9)
    assert 0 < candidate["low"] < 0.25 < candidate["high"] < control["low"] < 0.9
    success, latency = told["comparisons"]
    assert (success["is_worse"], success["is_no_worse"]) == (True, False)
    assert (latency["is_worse"], latency["is_no_worse"]) == (False, True)
    needed = 1 / state.ladder.false_promotions
    assert latency["e_no_worse"] > latency["e_no_worse_needed"] == pytest.approx(needed)
    page = client.get(f"/trials/{state.trial_id}").text
    assert page.count('class="interval"') == 2
    assert f'content="5; url=/trials/{state.trial_id}?looking=1"' in page
    assert f'href="/trials/{state.trial_id}"' in client.get("/trials").text
    files.write(replace(state, outcome="harm", reasons=("success is worse",)))
    page = client.get(f"/trials/{state.trial_id}").text
    assert "looking" not in page
    assert "success is worse" in page
    assert client.get("/trials/nosuch.json").status_code == 404
