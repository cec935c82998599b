"""A shop whose model is on trial: sessions in the lake as the gateway draws them, and what carries the trial on."""

import json
import random
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.evolve_traffic import TENANTS, Rows, ShopSession
from evolve.decisions import DecisionBook
from evolve.ladder import Examiner, ExamResult, TrialRoute, TrialRunner
from evolve.policy import Exam, Ladder
from evolve.trial_files import Surface, TrialFiles
from lakehouse.lake import Lake
from train.registry.artifacts import ArtifactRegistry
from train.registry.versions import ModelRegistry
from trajectory.canonical import canonical_json
from trajectory.files import append_line

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
LADDER = Ladder(
    rungs=("gate", "canary", "live"), canary=0.25, settle_minutes=0, guards=("tool_errors", "refusals"),
    max_days=5, watch_days=3,
)  # fmt: skip


def passes(kind: Surface, name: str, version: str, *, control: str, exam: Exam) -> ExamResult:
    """Let every candidate pass its exam."""
    return ExamResult(True, ())


class Shop:
    """An installation with one model: version 0001 serves, 0002 is a candidate."""

    def __init__(self, home: Path, *, route_shadow: float = 0.0) -> None:
        self.home = home
        self.now = NOW
        self.route_shadow = route_shadow
        self.examine: Examiner = passes
        self.lake = Lake.open(str(home / "lake"))
        self.models = ModelRegistry(home / "models", source=self.lake, audit=self.note)
        self.artifacts = ArtifactRegistry(home / "artifacts", source=self.lake, audit=self.note)
        self.files = TrialFiles(home / "trials")
        self.runner = TrialRunner(
            self.files,
            {"model": (home / "models", self.models),
             "artifact": (home / "artifacts", self.artifacts)},
            self.lake, self.note, actor="ladder", routes=self.routes, clock=lambda: self.now,
            decisions=DecisionBook(self.lake, self.note, actor="ladder", clock=lambda: self.now),
            examine=lambda *who, **more: self.examine(*who, **more),
        )  # fmt: skip

    def fill(self) -> "Shop":
        """Register what there is."""
        for weights in ("one", "two", "three"):
            folder = self.home / weights
            folder.mkdir()
            (folder / "model.safetensors").write_bytes(weights.encode())
            self.models.register(
                "shop",
                folder,
                {"origin": "adopted", "gate": {"findings": []}},
                passed=weights != "three",
            )
        self.models.promote("shop", "0001", actor="ann")
        return self

    def routes(self, kind: str, name: str) -> list[TrialRoute]:
        """Both are on one route."""
        return [TrialRoute("model", self.route_shadow)]

    def note(self, action: str, subject: str, detail: Mapping[str, Any]) -> None:
        """Keep an entry as an audit log does: on disk before the change counts."""
        append_line(self.home / "audit.jsonl", canonical_json([action, subject, detail]).decode())

    def audited(self, action: str) -> list[str]:
        """Return the entries of an action."""
        lines = (self.home / "audit.jsonl").read_text().splitlines()
        return [line for line in lines if f'"{action}"' in line]

    def day(
        self,
        candidate: float,
        control: float,
        *,
        sessions: int = 300,
        share: float = 0.25,
        broken: float = 0.0,
        tenant: str | None = None,
        late: bool = False,
        down: bool = False,
    ) -> None:
        """Let a day pass; shares of sessions that fail by arm, ``broken`` by tool errors of the candidate.

        Failures that are judged ``late`` have no judgement yet. Where the candidate is ``down``, the live
        version answers the sessions that were drawn for it.
        """
        draw, rows = random.Random(f"{self.now} {candidate}"), Rows()  # noqa: S311 - no secret
        pointer = self.models.live("shop")
        assert pointer is not None
        tried = self.models.trials("shop").get("canary")
        for number in range(sessions):
            canary = tried is not None and draw.random() < share
            label = tried.label if canary and tried is not None and not down else pointer.label
            of_candidate = label != "shop@0001"
            one = ShopSession(
                f"{self.now:%d%H%M}-{number}", tenant or draw.choice(TENANTS), "refund",
                self.now + timedelta(seconds=draw.randrange(80_000)), model=label,
            )  # fmt: skip
            one.success = draw.random() >= (candidate if of_candidate else control)
            if of_candidate and draw.random() < broken:
                one.errors = {"refund": "the request timed out"}
            begun = len(rows.steps)
            one.add_to(rows)
            if tried is not None:
                arm = f"{tried.label} {'canary' if canary else 'control'}"
                drawn(rows, begun, "model_arm", arm)
            if late and not one.success:
                rows.signals.pop()
        rows.write(self.lake)
        self.now += timedelta(days=1)

    def shown(self, label: str, candidate: float, control: float, sessions: int = 200) -> None:
        """Let a day pass on which half of the sessions are drawn for an artefact."""
        draw, rows = random.Random(f"{self.now} {label}"), Rows()  # noqa: S311 - no secret
        for number in range(sessions):
            arm = draw.choice(("canary", "control"))
            one = ShopSession(
                f"{self.now:%d%H%M}-{number}", "acme", "ask",
                self.now + timedelta(seconds=draw.randrange(80_000)), model="shop@0001",
            )  # fmt: skip
            one.success = draw.random() >= (candidate if arm == "canary" else control)
            begun = len(rows.steps)
            one.add_to(rows)
            drawn(rows, begun, "artifact_arm", f"{label} {arm}")
        rows.write(self.lake)
        self.now += timedelta(days=1)

    def unnamed(self, sessions: int) -> None:
        """Let as many sessions pass that name none: the gateway draws nothing for them."""
        rows = Rows()
        for number in range(sessions):
            one = ShopSession(
                f"{self.now:%d%H%M}-n{number}", "acme", "refund", self.now, model="shop@0001"
            )
            one.add_to(rows)
        rows.write(self.lake)

    def copies(self, number: int, *, failed: float = 0.0) -> None:
        """Let copied calls be answered by the shadow."""
        draw, rows = random.Random(number), Rows()  # noqa: S311 - no secret
        for at in range(number):
            one = ShopSession(
                f"copy-{self.now:%d%H}-{at}", "acme", "ask", self.now + timedelta(seconds=at),
                model="shop@0002",
            )  # fmt: skip
            one.add_to(rows)
            status = 500 if draw.random() < failed else 200
            rows.steps[-1] = replace(rows.steps[-1], role_in_graph="shadow", http_status=status)
        rows.write(self.lake)


def drawn(rows: Rows, begun: int, name: str, arm: str) -> None:
    """Write into the steps from a number on what their session was drawn for."""
    ext = json.dumps({name: arm})
    rows.steps[begun:] = [replace(one, ext=ext) for one in rows.steps[begun:]]


if __name__ == "__main__":  # a process of its own that a test kills
    shop = Shop(Path(sys.argv[1]))
    shop.now = datetime.fromisoformat(sys.argv[2])
    shop.runner.step()
