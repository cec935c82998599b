"""Lineage: what a model or an artefact came from, and what came of a trajectory."""

from collections.abc import Mapping
from typing import Any

from headrace.console.page import Page, PageRequest
from headrace.console.users import ROLES
from headrace.services.lineage import VersionLineage, lineage_of

_SHOWN = 500
"""Trajectories that a page lists; `headrace lineage --json` lists all."""


def _lineage(asked: PageRequest) -> Mapping[str, Any]:
    what = asked.query.get("of", "").strip()
    found = lineage_of(asked.console.running, what) if what else None
    if isinstance(found, VersionLineage):
        shown = {
            "label": found.label,
            "kind": found.kind,
            "run_id": found.run_id,
            "substrate": found.substrate,
            "ancestors": found.ancestors,
            "decision": found.decision,
            "steps": found.steps,
            "people": found.people,
            "trajectories": found.trajectories[:_SHOWN],
            "trajectories_in_all": len(found.trajectories),
        }
        return {"of": what, "back": shown, "on": None}
    return {"of": what, "back": None, "on": found}


PAGES = (
    Page(
        path="/lineage",
        title="Lineage",
        roles=ROLES,
        template="lineage.html",
        data=_lineage,
        every_tenant=True,
    ),
)
