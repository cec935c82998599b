"""Artefacts: one version with what it says, where each part comes from, and how it differs from another."""

from collections.abc import Mapping
from typing import Any

from headrace.console.page import Page, PageRequest
from headrace.console.pages.trajectories import READERS
from headrace.services.artifacts import difference_of, facts_of, history_of, text_of
from headrace.services.changes import artifact_registry


def _one(asked: PageRequest) -> Mapping[str, Any]:
    artifacts = artifact_registry(asked.console.running, asked.user.name)
    one = artifacts.get(asked.path["artifact"], asked.path["version"])
    against = asked.query.get("against")
    return {
        "name": one.name,
        "version": one.version,
        "status": one.status,
        "versions": [
            {"version": other.version, "status": other.status}
            for other in artifacts.versions(one.name)
        ],
        "text": text_of(one),
        "against": against,
        "difference": difference_of(artifacts.get(one.name, against), one) if against else None,
        "history": history_of(artifacts, one),
        "provenance": one.manifest["provenance"],
        "manifest": facts_of(one),
    }


PAGES = (
    Page(
        path="/artefacts/{artifact}/{version}",
        title="Artefact",
        roles=READERS,
        template="artifact.html",
        data=_one,
        shows_content=True,
        every_tenant=True,
        is_listed=False,
    ),
)
