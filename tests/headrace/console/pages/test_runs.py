"""Runs: curves and intervals are drawn, and a page of a run that goes on looks again by itself."""

import json

from headrace.console.page import Console
from headrace.services.changes import model_registry
from tests.headrace.console.conftest import client_of, run_of


def interval(estimate: float, low: float, high: float) -> dict[str, object]:
    return {"estimate": estimate, "low": low, "high": high, "method": "wilson"}


def test_a_run_that_ended_has_curves_and_intervals(console: Console) -> None:
    evaluation = {
        "tasks": 40, "confidence": 0.95, "base": interval(0.5, 0.4, 0.6),
        "candidate": interval(0.7, 0.6, 0.8), "gain": interval(0.2, 0.05, 0.35),
        "reward_gain": interval(0.1, 0.0, 0.2),
    }  # fmt: skip
    findings = [{"rule": "minimum_gain", "passed": True, "measured": 0.05, "required": 0.0}]
    gate = {"passed": True, "findings": findings}
    console.running.lake.append_rows("runs", [run_of("r0002", evaluation=evaluation, gate=gate)])
    folder = console.running.home.runs / "r0002"
    folder.mkdir(parents=True)
    lines = [{"step": step, "loss": 2.0 / step} for step in range(1, 500)]
    lines.append({"step": 500, "loss": float("nan")})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    client = client_of(console, ("viewer", "*"))
    page = client.get("/runs/r0002").text
    assert page.count("<polyline") == 1
    assert page.count('class="interval"') == 4
    assert "minimum_gain" in page
    assert "http-equiv" not in page
    points = client.get("/runs/r0002.json").json()["curves"]["loss"]
    assert len(points) <= 200
    assert (points[0], points[-1]) == ([1, 2.0], [499, 2.0 / 499])
    assert 'href="/runs/r0002"' in client.get("/runs").text


def test_a_run_that_goes_on_is_looked_at_again(console: Console) -> None:
    console.running.lake.append_rows("runs", [run_of("r0003", "running")])
    client = client_of(console, ("viewer", "*"))
    assert 'hx-get="/runs/r0003?looking=1"' in client.get("/runs/r0003").text
    for name in ("..", "..%2F..%2Fsecrets", "nosuch"):
        assert client.get(f"/runs/{name}").status_code in (303, 404)


def test_a_model_shows_the_curves_of_its_training_and_leads_to_its_trial(console: Console) -> None:
    console.running.lake.append_rows("runs", [run_of("r0004")])
    folder = console.running.home.runs / "r0004"
    folder.mkdir(parents=True)
    lines = [{"step": step, "loss": 2.0 / step} for step in range(1, 5)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    weights = console.running.home.root / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    made = model_registry(console.running, "night").register(
        "bulbs", weights, {"origin": "adopted", "run_id": "r0004"}, passed=True
    )
    client = client_of(console, ("viewer", "*"))
    assert client.get(f"/models/bulbs/{made.version}.json").json()["curves"]["loss"][0] == [1, 2.0]
    assert "<polyline" in client.get(f"/models/bulbs/{made.version}").text
    assert 'href="/trials/model.shop.0001"' in client.get("/models/shop/0001").text
