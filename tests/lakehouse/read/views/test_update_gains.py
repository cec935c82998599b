"""What an update cost and brought equals a count by hand; without a comparison it is not measured."""

import json
import math
import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import scipy.stats

from tests.lakehouse import make
from tests.lakehouse.credit.worlds import bound
from tests.lakehouse.read.views.test_scorecards import Z, price, share

NEW, BASE = "m@2", "m@1"


def model(version: str, base: str | None) -> dict[str, Any]:
    return {
        "name": "m", "version": version, "recorded_at": make.NOON, "run_id": f"r{version}",
        "path": "p", "base": base, "status": "live", "gate": "{}",
    }  # fmt: skip


def run(version: str, hours: float) -> dict[str, Any]:
    return {
        "run_id": f"r{version}", "recorded_at": make.NOON, "recipe": "sft", "substrate": "s",
        "substrate_version": "1", "base_model": "b", "started_at": make.NOON, "status": "done",
        "seed": 1, "metrics": "{}", "manifest": json.dumps({"cost": {"device_hours": hours}}),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_gain_and_cost_equal_a_count_by_hand(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 (no secret)
    served = {
        name: [
            (draw.choice([None, 0.0, 1.0]), draw.randint(1, 5000))
            for _ in range(draw.choice([3, 20, 60]))
        ]
        for name in (NEW, BASE)
    }
    steps, signals = [], []
    for name, cases in served.items():
        for number, (success, tokens) in enumerate(cases):
            one = make.step(f"{name}-{number}", 0, model_served=name)
            steps.append(replace(one, input_tokens=0, output_tokens=tokens))
            if success is not None:
                signals.append(make.signal(one.trajectory_id, success))
    session = bound(
        steps=steps, signals=signals, prices=[price(NEW), price(BASE)],
        models=[model("2", BASE), model("1", "folder")], runs=[run("2", 1.5)],
    )  # fmt: skip
    rows = {row["model"]: row for row in session.query("SELECT * FROM update_gains").to_pylist()}
    assert rows[BASE]["state"] == "not measured"
    assert rows[BASE]["reason"]
    assert rows[BASE]["gain"] is None

    n, rate, low, high = share([said == 1.0 for said, _ in served[NEW] if said is not None])
    m, base_rate, base_low, base_high = share(
        [said == 1.0 for said, _ in served[BASE] if said is not None]
    )
    row = rows[NEW]
    assert (row["judged"], row["base_judged"], row["device_hours"]) == (n, m, 1.5)
    if rate is None or base_rate is None or low is None or base_low is None:
        assert row["state"] == "not measured"
        return
    assert high is not None
    assert base_high is not None
    gain = rate - base_rate
    expected = {
        "gain": gain,
        "gain_low": gain - math.hypot(rate - low, base_high - base_rate),
        "gain_high": gain + math.hypot(high - rate, base_rate - base_low),
    }
    if gain > 0:
        expected["device_hours_per_success"] = 1.5 / (gain * n)
    else:
        assert row["device_hours_per_success"] is None
    new, old = ([tokens * 3.0 / 1e6 for _, tokens in served[name]] for name in (NEW, BASE))
    change = np.mean(new) - np.mean(old)
    wide = Z * math.hypot(scipy.stats.sem(new), scipy.stats.sem(old))
    expected |= {
        "cost_change": float(change),
        "cost_change_low": float(change - wide),
        "cost_change_high": float(change + wide),
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected, abs=1e-9)


def test_costs_in_two_currencies_are_not_compared() -> None:
    steps = [make.step(f"t{name}", 0, model_served=name) for name in (NEW, BASE)]
    steps = [replace(one, started_at=one.started_at + timedelta(seconds=1)) for one in steps]
    session = bound(
        steps=steps, models=[model("2", BASE)], runs=[run("2", 1.0)],
        prices=[price(NEW), {**price(BASE), "currency": "USD"}],
    )  # fmt: skip
    (row,) = session.query("SELECT * FROM update_gains").to_pylist()
    assert (row["cost_change"], row["gain"], row["state"]) == (None, None, "not measured")
