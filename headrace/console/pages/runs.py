"""Runs: one training with its curves, what was measured with intervals, and its gate; live while it runs."""

import json
import math
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException

from headrace.console.page import Page, PageRequest
from headrace.console.users import ROLES

_CURVES = ("loss", "eval_loss", "reward", "rewards/margins", "kl", "grad_norm", "learning_rate")
_POINTS = 200
"""Points of a curve at most."""
_ONE = """
SELECT run_id, recipe, status, substrate, substrate_version, base_model, started_at, ended_at,
       recorded_at, seed, manifest
FROM runs_latest WHERE run_id = $id
"""
_MODELS = (
    "SELECT name, version, status FROM models_latest WHERE run_id = $id ORDER BY name, version"
)


def _run(asked: PageRequest) -> Mapping[str, Any]:
    found = asked.rows(_ONE, id=asked.path["run_id"])
    if not found:
        raise HTTPException(404)
    (row,) = found
    manifest = json.loads(row.pop("manifest") or "{}")
    return {
        "run": row,
        **curves_of(asked, row["run_id"]),
        "models": asked.rows(_MODELS, id=row["run_id"]),
        "evaluation": manifest.get("evaluation"),
        "gate": manifest.get("gate"),
        "manifest": manifest,
        "is_live": row["status"] == "running",
    }


def curves_of(asked: PageRequest, run_id: str) -> Mapping[str, Any]:
    """Return the curves of a run, and its last step; none of what is no run's name."""
    from train.runs.curves import curve, read_metrics

    # A name that stands in the lake is a run's; what a URL says never becomes a path.
    known = asked.rows("SELECT run_id FROM runs_latest WHERE run_id = $id", id=run_id)
    folders = [asked.console.running.home.runs / one["run_id"] for one in known]
    records = [record for one in folders for record in read_metrics(one / "metrics.jsonl")]
    curves = {name: curve(records, name) for name in _CURVES}
    return {
        "curves": {name: _thinned(points) for name, points in curves.items() if len(points) > 1},
        "step": records[-1]["step"] if records else None,
    }


def _thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    finite = [point for point in points if math.isfinite(point[1])]
    every = max(1, math.ceil(len(finite) / _POINTS))
    return [*finite[:-1:every], *finite[-1:]]


PAGES = (
    Page(
        path="/runs/{run_id}",
        title="Run",
        roles=ROLES,
        template="run.html",
        data=_run,
        every_tenant=True,
        is_listed=False,
    ),
)
