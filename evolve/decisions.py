"""Decisions in the lake: recorded once per night, approved or rejected by a person, scored when due."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from evolve.evidence import NightSource, measure, plan
from evolve.plan import EvolutionDecision
from evolve.policy import Evolution
from train.registry.registry import AuditHook
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError

UNMEASURED = "unmeasured"
"""Status of what was due when no session could tell: a change may have taken away what it was about."""
_HISTORY = (
    "SELECT * EXCLUDE (document) FROM decisions_latest ORDER BY as_of, recorded_at, decision_id"
)
_KNOWN = """
SELECT * FROM decisions_latest WHERE starts_with(decision_id, $prefix) ORDER BY decision_id LIMIT 2
"""
_SAME_NIGHT = """
SELECT * FROM decisions_latest WHERE policy_hash = $hash AND as_of = $as_of ORDER BY recorded_at LIMIT 1
"""
_DUE = """
SELECT * FROM decisions_latest
WHERE status IN ('nothing', 'approved') AND measured IS NULL AND due_at <= $moment AND policy = $policy
ORDER BY as_of, decision_id
"""
_UNBEGUN = """
SELECT * FROM decisions_latest d
ANTI JOIN interventions i ON i.decision_id = d.decision_id AND i.intervention_id = 'i-' || d.decision_id
WHERE status = 'approved' AND measured IS NULL ORDER BY as_of, decision_id
"""
_LEFT = """
SELECT DISTINCT trajectory_id FROM steps WHERE list_contains($ids, trajectory_id) ORDER BY trajectory_id
"""
_TEXTS = """
SELECT message_form(result.content) AS form, min(left(result.content, 300)) AS text
FROM (SELECT unnest(tool_results) AS result FROM steps WHERE len(tool_results) > 0)
WHERE result.is_error GROUP BY form HAVING list_contains($forms, form) ORDER BY form
"""


class DecisionLake(NightSource, Protocol):
    """A lake that decisions are written to."""

    def append_rows(self, table: str, rows: Sequence[Any]) -> int:
        """Append rows to a table."""
        ...

    def next_append(self, table: str) -> int:
        """Return the number of a table's next numbered append."""
        ...

    def append_as(self, table: str, number: int, rows: Sequence[Any]) -> bool:
        """Append rows as a number, unless another append was that; return whether they are."""
        ...


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """A decision as the lake has it; ``row`` is its latest state."""

    decision: EvolutionDecision
    row: Mapping[str, Any]

    @property
    def policy(self) -> Evolution:
        """The policy that decided, as it was."""
        found: Any = self.decision.document["policy"]
        return Evolution.model_validate(found["document"])

    @property
    def versions(self) -> dict[str, int]:
        """The versions of the tables that were read."""
        found: Any = self.decision.document["table_versions"]
        return dict(found)


@dataclass(frozen=True, slots=True)
class EvidenceLeft:
    """What of a decision's evidence the lake still holds."""

    present: tuple[str, ...]
    """Example trajectories that are there."""
    gone: tuple[str, ...]
    """Those that were erased or have expired."""
    messages: Mapping[str, str]
    """Form of an error's message → one that is there, redacted."""


class DecisionBook:
    """The decisions of an installation."""

    def __init__(
        self,
        lake: DecisionLake,
        audit: AuditHook,
        *,
        actor: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._lake = lake
        self._audit = audit
        self._actor = actor
        self._clock = clock

    def run(self, policy: Evolution, as_of: datetime | None = None) -> RecordedDecision:
        """Score what is due, decide, and record it; a night that was decided is not decided again.

        Raises:
            ConfigurationError: the lake holds no step from before now.
        """
        self._begin_approved()
        decided = plan(self._lake, policy, as_of=as_of, now=self._clock())
        end = _moment(decided, "as_of")
        if self._of_night(policy, end) is None and self._score(policy, end):
            decided = plan(self._lake, policy, as_of=end)
        while True:
            number = self._lake.next_append("decisions")
            if (known := self._of_night(policy, end)) is not None:
                return known
            row = self._row(decided, policy)
            if self._wrote("decided", row, number):
                return _recorded(row)

    def _of_night(self, policy: Evolution, end: datetime) -> RecordedDecision | None:
        asked = {"hash": policy.content_hash, "as_of": end}
        found = self._lake.query(_SAME_NIGHT, parameters=asked).to_pylist()
        return _recorded(found[0]) if found else None

    def get(self, decision_id: str) -> RecordedDecision:
        """Return a decision by its id or the beginning of it.

        Raises:
            ConfigurationError: there is none, or there are several.
        """
        found = self._lake.query(_KNOWN, parameters={"prefix": decision_id}).to_pylist()
        if len(found) != 1:
            said = f"several decisions begin with {decision_id!r}" if found else ""
            raise ConfigurationError(
                f"{said or f'there is no decision {decision_id!r}'}; `headrace evolve history` lists them"
            )
        return _recorded(found[0])

    def history(self) -> list[dict[str, Any]]:
        """Return the present state of every decision, oldest first."""
        return list(self._lake.query(_HISTORY).to_pylist())

    def replayed(self, recorded: RecordedDecision) -> EvolutionDecision:
        """Decide again, from the policy and the table versions of a decision.

        Raises:
            ConfigurationError: the lake does not reach back to these versions any more.
        """
        end = _moment(recorded.decision, "as_of")
        return plan(self._lake, recorded.policy, as_of=end, versions=recorded.versions)

    def evidence_left(self, recorded: RecordedDecision) -> EvidenceLeft:
        """Return what of the evidence is still there."""
        considered: Any = recorded.decision.document["considered"]
        ids = sorted({one for examples in considered["examples"].values() for one in examples})
        forms = sorted(
            {
                cluster["value"].rsplit(": ", 1)[1]
                for cluster in considered["clusters"]
                if cluster["dimension"] == "message"
            }
        )
        left = self._lake.query(_LEFT, parameters={"ids": ids}).to_pylist() if ids else []
        texts = self._lake.query(_TEXTS, parameters={"forms": forms}).to_pylist() if forms else []
        present = tuple(row["trajectory_id"] for row in left)
        gone = tuple(one for one in ids if one not in present)
        return EvidenceLeft(present, gone, {row["form"]: row["text"] for row in texts})

    def approve(self, decision_id: str, *, reason: str | None = None) -> RecordedDecision:
        """Say that a change is carried out; from now on it is on trial, and is scored when due.

        Raises:
            ConfigurationError: there is no such decision, or it is not open.
        """

        def approved(recorded: RecordedDecision) -> dict[str, Any]:
            nights = timedelta(days=recorded.policy.spec.promotion.within_nights)
            due = max(recorded.row["due_at"], _midnight_after(self._clock()) + nights)
            return self._changed(recorded, status="approved", reason=reason, due_at=due)

        row = self._settle(decision_id, approved)
        self._begin(row)
        return _recorded(row)

    def reject(self, decision_id: str, *, reason: str | None = None) -> RecordedDecision:
        """Say that a change is not carried out.

        Raises:
            ConfigurationError: there is no such decision, or it is not open.
        """

        def rejected(recorded: RecordedDecision) -> dict[str, Any]:
            return self._changed(recorded, status="rejected", reason=reason)

        return _recorded(self._settle(decision_id, rejected))

    def _settle(
        self, decision_id: str, change: Callable[[RecordedDecision], dict[str, Any]]
    ) -> dict[str, Any]:
        """Record what became of an open proposal; of those who do at the same moment, the first."""
        while True:
            number = self._lake.next_append("decisions")
            row = change(self._open(decision_id))
            if self._wrote(row["status"], row, number):
                return row

    def _open(self, decision_id: str) -> RecordedDecision:
        found = self.get(decision_id)
        status = found.row["status"]
        if status != "proposed":
            said = "proposes nothing" if status == "nothing" else f"is {status} already"
            raise ConfigurationError(f"decision {found.decision.decision_id} {said}")
        return found

    def _score(self, policy: Evolution, end: datetime) -> int:
        """Score the decisions of a policy that are due; return how many were."""
        asked = {"moment": end, "policy": policy.metadata.name}
        scored = 0
        for row in self._lake.query(_DUE, parameters=asked).to_pylist():
            recorded = _recorded(row)
            expects: Any = recorded.decision.document["expects"]
            nights = recorded.policy.spec.promotion.within_nights
            found = measure(
                self._lake, recorded.policy, signal=expects["signal"], subject=expects["subject"],
                nights=nights, end=row["due_at"],
            )  # fmt: skip
            if found is None and end < row["due_at"] + timedelta(days=nights):
                continue  # its sessions may be judged yet
            fresh = self._changed(
                recorded,
                measured=found,
                met=None if found is None else found >= row["at_least"],
                status=UNMEASURED if found is None else row["status"],
            )
            if row["status"] == "approved":
                self._end(fresh)
            while True:
                number = self._lake.next_append("decisions")
                now = self.get(row["decision_id"]).row
                if now["measured"] is not None or now["status"] == UNMEASURED:
                    break  # another run did
                if self._wrote("scored", fresh, number):
                    break
            scored += 1
        return scored

    def _begin_approved(self) -> None:
        """Begin the trials of what was approved by a process that was killed before it did."""
        for row in self._lake.query(_UNBEGUN).to_pylist():
            self._begin(row)

    def _begin(self, row: Mapping[str, Any]) -> None:
        begun = _intervention(row, begun_at=row["recorded_at"], ended_at=None)
        self._lake.append_rows("interventions", [begun])

    def _end(self, row: Mapping[str, Any]) -> None:
        asked = {"id": _intervention_id(row)}
        sql = "SELECT begun_at FROM interventions_latest WHERE intervention_id = $id"
        (begun,) = self._lake.query(sql, parameters=asked).to_pylist()
        ended = _intervention(row, begun_at=begun["begun_at"], ended_at=row["due_at"])
        self._lake.append_rows("interventions", [ended])

    def _row(self, decided: EvolutionDecision, policy: Evolution) -> dict[str, Any]:
        expects: Any = decided.document["expects"] or {}
        by = expects.get("by")
        return {
            "decision_id": decided.decision_id, "recorded_at": self._clock(),
            "policy": policy.metadata.name, "policy_hash": policy.content_hash,
            "as_of": _moment(decided, "as_of"), "surface": decided.surface,
            "subject": decided.subject, "status": decided.status, "actor": self._actor,
            "reason": None, "metric": expects.get("metric"), "at_least": expects.get("at_least"),
            "due_at": datetime.fromisoformat(by) if by else None, "measured": None, "met": None,
            "document": canonical_json(decided.document).decode(),
        }  # fmt: skip

    def _changed(self, recorded: RecordedDecision, **changes: Any) -> dict[str, Any]:
        fresh = {"recorded_at": self._clock(), "actor": self._actor}
        return {**recorded.row, **fresh, **changes}

    def _wrote(self, action: str, row: Mapping[str, Any], number: int) -> bool:
        """Audit and append a decision's new state; return whether no other append came first."""
        self._note(action, row)
        if self._lake.append_as("decisions", number, [row]):
            return True
        self._note("overtaken", row)
        return False

    def _note(self, action: str, row: Mapping[str, Any]) -> None:
        detail = {"policy": row["policy"], "surface": row["surface"], "status": row["status"]}
        if action == "scored":
            detail["met"] = row["met"]
        self._audit(f"evolution.{action}", row["decision_id"], detail)


def _recorded(row: Mapping[str, Any]) -> RecordedDecision:
    document = json.loads(row["document"])
    return RecordedDecision(EvolutionDecision(row["decision_id"], document), row)


def _moment(decided: EvolutionDecision, name: str) -> datetime:
    return datetime.fromisoformat(str(decided.document[name]))


def _midnight_after(moment: datetime) -> datetime:
    day = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day + timedelta(days=1)


def _intervention_id(row: Mapping[str, Any]) -> str:
    return f"i-{row['decision_id']}"


def _intervention(
    row: Mapping[str, Any], *, begun_at: datetime, ended_at: datetime | None
) -> dict[str, Any]:
    return {
        "intervention_id": _intervention_id(row), "recorded_at": row["recorded_at"],
        "decision_id": row["decision_id"], "surface": row["surface"], "subject": row["subject"],
        "status": "begun" if ended_at is None else "ended", "begun_at": begun_at,
        "ended_at": ended_at, "actor": row["actor"], "met": row["met"],
    }  # fmt: skip
