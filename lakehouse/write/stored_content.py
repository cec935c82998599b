"""Which content the lake holds already: governance's ``KnownContent``, exact after deletions too."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from governance.consent import AWAITS_ANSWER, AWAITS_USER
from governance.policy.consent import Purpose
from governance.records import GovernanceRecord
from governance.redact.report import NamePart
from governance.stored_content import (
    HARNESS_TEXTS,
    NAMES_OF_STEPS,
    SIGNAL_TEXTS,
    STEP_TEXTS,
    LedgerLine,
    StepContent,
    StoredText,
    StoredTrajectory,
    UnansweredCall,
    as_message,
    is_about_feedback,
    name_parts_of_reports,
)
from lakehouse.erasure.removal import together
from lakehouse.read.conversations import contexts_of
from lakehouse.write.stored_ids import IdIndex, RewrittenMessages, WithheldPurposes, withheld_name
from trajectory.assembly.assembler import SHADOW
from trajectory.assembly.placer import STANDS_ON
from trajectory.message import Message, stored_message

if TYPE_CHECKING:
    from lakehouse.lake import Lake


NAMED_BY = {
    "messages": "message_id",
    "harnesses": "harness_id",
    "steps": "step_id",
    "signals": "signal_id",
}
"""Tables whose rows governance asks for, with the columns that name them."""


class LakeKnownContent:
    """Remembers, per active file, a 64-bit hash of each stored message, harness, step and signal.

    A file that leaves the table (erasure, retention, compaction) takes its ids with it. Files of other
    writers are seen at the next query. So no deleted row counts as stored. A batch of a thousand ids meets a false match among ten million with odds of
    about one in two thousand million.
    """

    def __init__(self, lake: "Lake") -> None:
        self._lake = lake
        self._tables = {table: IdIndex(lake, table, column) for table, column in NAMED_BY.items()}
        self._withheld = WithheldPurposes(lake, "governance", "reasons")
        self._rewritten = RewrittenMessages(lake, "messages", "message_id")

    def withheld(self, tenant_id: str, trajectory_ids: Collection[str]) -> dict[str, set[str]]:
        """Return the purposes that these trajectories lost for their later calls, by trajectory."""
        asked = {
            withheld_name(trajectory, purpose): (trajectory, purpose.value)
            for trajectory in trajectory_ids
            for purpose in Purpose
        }
        found: dict[str, set[str]] = {}
        for name in self._withheld.known(tenant_id, asked):
            trajectory, purpose = asked[name]
            found.setdefault(trajectory, set()).add(purpose)
        return found

    def ledger(self, tenant_id: str, exchange_ids: Collection[str]) -> dict[str, LedgerLine]:
        """Return where these exchanges ended, by those that are in the ledger."""
        lines = self._by_name(_LEDGER, tenant_id, exchange_ids)
        held = [name for name, row in lines.items() if row["disposition"] == "quarantined"]
        dropped = self._by_name(_DROPPED, tenant_id, held)
        return {
            name: LedgerLine("dropped" if name in dropped else row["disposition"], row["step_id"])
            for name, row in lines.items()
        }

    def copies(self, tenant_id: str, step_ids: Collection[str]) -> dict[str, set[str]]:
        """Return the stored steps of shadows of these steps, by those that have some."""
        found: dict[str, set[str]] = defaultdict(set)
        for row in self._rows(_COPIES, tenant_id, sorted(step_ids)):
            found[row["name"]].add(row["to_step_id"])
        return found

    def standing_on(self, tenant_id: str, step_ids: Collection[str]) -> dict[str, set[str]]:
        """Return the stored steps that took over from these, or that their agent started, by those with some."""
        found: dict[str, set[str]] = defaultdict(set)
        if step_ids:
            asked = {"tenant": tenant_id, "kinds": [*STANDS_ON], "names": sorted(step_ids)}
            for row in self._lake.query(_STANDING, asked).to_pylist():
                found[row["name"]].add(row["to_step_id"])
        return found

    def unanswered(
        self, tenant_id: str, trajectory_ids: Collection[str]
    ) -> dict[str, list[UnansweredCall]]:
        """Return the calls of these trajectories that wait for the consent service, by trajectory.

        One that was released waits until it is judged again; a stored one whose user was told late, until it has
        another decision.
        """
        rows = self._rows(_UNANSWERED, tenant_id, sorted(trajectory_ids))
        released = sorted({row["released_as"] for row in rows if row["status"] == "released"})
        judged = self._by_name(_LEDGER, tenant_id, released)
        found: dict[str, list[UnansweredCall]] = defaultdict(list)
        for row in rows:
            if row["status"] == "released" and row["released_as"] in judged:
                continue
            is_given_up = row["status"] == "dropped"
            call = UnansweredCall(row["exchange_id"], row["started_at"], is_given_up)
            found[row["trajectory_id"]].append(call)
        for row in self._awaiting(tenant_id, sorted(trajectory_ids)):
            call = UnansweredCall(row["step_id"], row["started_at"], is_given_up=False)
            found[row["trajectory_id"]].append(call)
        return found

    def _awaiting(self, tenant_id: str, trajectory_ids: Sequence[str]) -> list[dict[str, Any]]:
        if not trajectory_ids:
            return []
        found = self._lake.query(_AWAITING, {"tenant": tenant_id, "names": [*trajectory_ids]})
        return list(found.to_pylist())

    def held(self, tenant_id: str, names: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the held calls of these steps and trajectories, by step or trajectory.

        Each stands by its step, with the exchange that is kept of it; with an empty name where it was released
        and is not judged yet.
        """
        rows = self._rows(_HELD, tenant_id, sorted(names))
        released = {row["released_as"] for row in rows if row["status"] == "released"}
        judged = self._by_name(_LEDGER, tenant_id, released - {None})
        found: dict[str, dict[str, str]] = defaultdict(dict)
        for row in rows:
            if row["status"] == "held":
                kept_as = row["part_of"] or row["exchange_id"]
            elif row["released_as"] is not None and row["released_as"] not in judged:
                kept_as = ""
            else:
                continue
            for name in {row["step_id"], row["trajectory_id"]}.intersection(names):
                found[name][row["step_id"]] = kept_as
        return found

    def said_already(self, tenant_id: str, said: Collection[StepContent]) -> dict[StepContent, str]:
        """Return the first stored step that says each of these, where there is one.

        Hardly ever is an answer stored already: only then is the lake asked, for the trajectory.
        """
        answers = self.known_messages(tenant_id, {one.output_message_id for one in said})
        asked = {one for one in said if one.output_message_id in answers}
        known = self.known_trajectories(tenant_id, {one.trajectory_id for one in asked})
        asked = {one for one in asked if one.trajectory_id in known}
        if not asked:
            return {}
        rows = self._lake.query(
            "SELECT step_id, trajectory_id, output_message_id FROM steps WHERE tenant_id = ? "
            "AND trajectory_id IN (SELECT unnest(?::VARCHAR[])) "
            "AND output_message_id IN (SELECT unnest(?::VARCHAR[])) "
            "AND role_in_graph <> 'discarded' ORDER BY started_at, step_id",
            parameters=[
                tenant_id,
                sorted({one.trajectory_id for one in asked}),
                sorted({one.output_message_id for one in asked}),
            ],
        ).to_pylist()
        contexts = contexts_of(
            self._lake.query,
            sorted({row["trajectory_id"] for row in rows}),
        )
        found: dict[StepContent, str] = {}
        for row in rows:
            context = contexts.get((tenant_id, row["step_id"]))
            if context is not None:
                one = StepContent(row["trajectory_id"], row["output_message_id"], context)
                found.setdefault(one, row["step_id"])
        return {one: found[one] for one in asked if one in found}

    def known_messages(self, tenant_id: str, message_ids: Collection[str]) -> set[str]:
        """Return those of ``message_ids`` that the tenant's table ``messages`` holds."""
        return self._tables["messages"].known(tenant_id, message_ids)

    def decisions(self, tenant_id: str, step_ids: Collection[str]) -> list[GovernanceRecord]:
        """Return the decision that holds for each of ``step_ids`` that is stored."""
        return self._decided(tenant_id, "step_id", step_ids)

    def decisions_in(
        self, tenant_id: str, trajectory_ids: Collection[str]
    ) -> list[GovernanceRecord]:
        """Return the decision that holds for each step of these trajectories."""
        rows = self._decided(tenant_id, "trajectory_id", trajectory_ids)
        return [row for row in rows if not is_about_feedback(row)]

    def _decided(
        self, tenant_id: str, column: str, names: Collection[str]
    ) -> list[GovernanceRecord]:
        if not names:
            return []
        rows = self._lake.query(
            "SELECT * FROM governance WHERE tenant_id = ? "  # noqa: S608 - a column's name
            f"AND {column} IN (SELECT unnest(?::VARCHAR[])) QUALIFY row_number() OVER "
            "(PARTITION BY tenant_id, step_id ORDER BY decided_at DESC) = 1 ORDER BY step_id",
            parameters=[tenant_id, sorted(names)],
        ).to_pylist()
        return [_decision(row) for row in rows]

    def known_harnesses(self, tenant_id: str, harness_ids: Collection[str]) -> set[str]:
        """Return those of ``harness_ids`` that the tenant's table ``harnesses`` holds."""
        return self._tables["harnesses"].known(tenant_id, harness_ids)

    def known_steps(self, tenant_id: str, step_ids: Collection[str]) -> set[str]:
        """Return those of ``step_ids`` that the tenant's table ``steps`` holds."""
        return self._tables["steps"].known(tenant_id, step_ids)

    def known_trajectories(self, tenant_id: str, trajectory_ids: Collection[str]) -> set[str]:
        """Return those of ``trajectory_ids`` that have a step in the tenant's table ``steps``."""
        if not trajectory_ids:
            return set()
        found = self._lake.query(
            "SELECT DISTINCT trajectory_id FROM steps WHERE tenant_id = ? "
            "AND trajectory_id IN (SELECT unnest(?::VARCHAR[]))",
            parameters=[tenant_id, sorted(trajectory_ids)],
        )
        return set(found["trajectory_id"].to_pylist())

    def known_signals(self, tenant_id: str, signal_ids: Collection[str]) -> set[str]:
        """Return those of ``signal_ids`` that the tenant's table ``signals`` holds."""
        return self._tables["signals"].known(tenant_id, signal_ids)

    def trajectories_of(self, tenant_id: str, names: Collection[str]) -> dict[str, set[str]]:
        """Return the trajectories that have a stored step in each of these: session, group, trajectory, step …"""
        found: dict[str, set[str]] = defaultdict(set)
        for row in self._rows(_MEMBERS, tenant_id, sorted(names)):
            found[row["name"]].add(row["trajectory_id"])
        return found

    def trajectories(
        self, tenant_id: str, trajectory_ids: Collection[str]
    ) -> dict[str, StoredTrajectory]:
        """Return the texts that are stored of trajectories, as they are or were before corrections."""
        there = together(self._lake, tenant_id, [*trajectory_ids])
        names = sorted({name for some in there.values() for name in some})
        steps: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self._rows(_STEPS, tenant_id, names):
            steps[row["trajectory_id"]].append(row)
        every = [row for rows in steps.values() for row in rows]
        own = {row["step_id"]: _own(row) for row in every}
        said = {name for some in own.values() for name in some}
        messages = self._by_name(_MESSAGES, tenant_id, said)
        around = {row["harness_id"] for row in every} - {None}
        harnesses = self._by_name(_HARNESSES, tenant_id, around)
        exact = self._by_name(_TOKENS, tenant_id, own)
        signals: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self._rows(_SIGNALS, tenant_id, names):
            signals[row["trajectory_id"]].append(row)
        found = {}
        for trajectory_id, some in there.items():
            rows = [row for name in some for row in steps[name]]
            if rows:
                texts = [*_texts(rows, own, messages, harnesses)]
                texts += [_feedback(row) for name in some for row in signals[name]]
                days = [(row["step_id"], exact[row["step_id"]]["event_date"]) for row in rows
                        if row["step_id"] in exact]  # fmt: skip
                found[trajectory_id] = StoredTrajectory(tuple(texts), tuple(days))
        return found

    def naming(self, tenant_id: str, names: Collection[str]) -> dict[str, set[str]]:
        """Return the stored steps that name these messages or harnesses, by message and harness."""
        found: dict[str, set[str]] = defaultdict(set)
        for row in self._rows(_NAMING, tenant_id, sorted(names)):
            found[row["name"]].add(row["step_id"])
        return found

    def people_in(self, tenant_id: str, message_ids: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return whom messages name that were rewritten when a name was told, by message.

        A rewritten message holds marks, which tell nobody. The decisions on all steps that name it
        have its people in common.
        """
        rewritten = self._rewritten.known(tenant_id, message_ids)
        found: dict[str, tuple[str, ...]] = {}
        for name, steps in self.naming(tenant_id, rewritten).items() if rewritten else ():
            subjects = [row.subjects for row in self.decisions(tenant_id, steps)]
            every = dict.fromkeys(one for some in subjects for one in some)
            common = [one for one in every if all(one in some for some in subjects)]
            found[name] = tuple(common or every)
        return found

    def name_parts(
        self, tenant_id: str, trajectory_ids: Collection[str]
    ) -> dict[str, tuple[NamePart, ...]]:
        """Return the parts of names that were found in trajectories, by those that have some."""
        found = self._lake.query(
            "SELECT trajectory_id, redaction_report FROM governance WHERE tenant_id = ? "
            "AND trajectory_id IN (SELECT unnest(?::VARCHAR[])) "
            "AND contains(redaction_report, '\"names\"') ORDER BY decided_at",
            parameters=[tenant_id, sorted(trajectory_ids)],
        )
        return name_parts_of_reports(
            zip(*(column.to_pylist() for column in found.columns), strict=True)
        )

    def _by_name(
        self, sql: str, tenant_id: str, names: Collection[str]
    ) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in self._rows(sql, tenant_id, sorted(names))}

    def _rows(self, sql: str, tenant_id: str, names: Sequence[str]) -> list[dict[str, Any]]:
        if not names:
            return []
        found = self._lake.query_stored(sql, parameters={"tenant": tenant_id, "names": [*names]})
        return list(found.to_pylist())


def _rows_of(table: str, key: str, columns: str, *, by: str | None = None) -> str:
    """Return the statement that reads rows of a tenant by their key or by another column."""
    return (
        f"SELECT {key} AS name, event_date, {columns} FROM {table} "  # noqa: S608
        f"WHERE tenant_id = $tenant AND {by or key} IN (SELECT unnest($names::VARCHAR[])) ORDER BY {key}"
    )


_IDS = "step_id, trajectory_id, context_message_ids, output_message_id, harness_id, "
_STEPS = _rows_of("steps", "step_id", _IDS + ", ".join(STEP_TEXTS), by="trajectory_id")
_MESSAGES = _rows_of("messages", "message_id", "role, parts, name AS called")
_HARNESSES = _rows_of("harnesses", "harness_id", ", ".join(HARNESS_TEXTS))
_TOKENS = _rows_of("tokens", "step_id", "started_at")
_SIGNALS = f"""
WITH places AS (
    SELECT trajectory_id, unnest([
        ('session', session_hint), ('group', group_id), ('response', response_id), ('step', step_id)
    ]) AS target
    FROM steps WHERE tenant_id = $tenant AND trajectory_id IN (SELECT unnest($names::VARCHAR[]))
), about AS (
    SELECT signal_id, trajectory_id FROM signals
    WHERE tenant_id = $tenant AND trajectory_id IN (SELECT unnest($names::VARCHAR[]))
    UNION
    SELECT s.signal_id, p.trajectory_id FROM signals s
    JOIN places p ON p.target = (s.target_kind, s.target_id)
    WHERE s.tenant_id = $tenant AND s.trajectory_id IS NULL
)
SELECT signal_id AS name, event_date, about.trajectory_id, {", ".join(SIGNAL_TEXTS)}
FROM signals JOIN about USING (signal_id) WHERE tenant_id = $tenant ORDER BY signal_id
"""  # noqa: S608
"""What was said of trajectories, of their sessions and groups, and of steps before they were known."""
_NAMED = " UNION ALL ".join(
    f"SELECT {column} AS name, trajectory_id FROM steps WHERE tenant_id = $tenant"  # noqa: S608 - a column's name
    for column in NAMES_OF_STEPS
)
_MEMBERS = f"""
SELECT DISTINCT name, trajectory_id FROM ({_NAMED})
WHERE name IN (SELECT unnest($names::VARCHAR[]))
"""  # noqa: S608 - fixed names
_STATE_OF_CASE = (
    "QUALIFY row_number() OVER "
    "(PARTITION BY quarantine_id ORDER BY status = 'held', recorded_at DESC, status) = 1"
)
"""A case that was closed is held no more, whatever the clock said: one that is held again is another case."""
_UNANSWERED = f"""
SELECT exchange_id, trajectory_id, started_at, status,
       json_extract_string(detail, '$.released_as') AS released_as
FROM quarantine WHERE tenant_id = $tenant AND reason = '{AWAITS_ANSWER}'
AND trajectory_id IN (SELECT unnest($names::VARCHAR[]))
{_STATE_OF_CASE}
ORDER BY started_at, exchange_id
"""  # noqa: S608
_AWAITING = f"""
SELECT step_id, trajectory_id, started_at FROM (
    SELECT * FROM governance
    WHERE tenant_id = $tenant AND trajectory_id IN (SELECT unnest($names::VARCHAR[]))
    QUALIFY row_number() OVER (PARTITION BY step_id ORDER BY decided_at DESC) = 1
) WHERE decision = 'quarantine'
AND len(list_filter(reasons, lambda one: starts_with(one, '{AWAITS_USER}'))) > 0
"""  # noqa: S608
_HELD = f"""
SELECT exchange_id, part_of, step_id, trajectory_id, status,
       json_extract_string(detail, '$.released_as') AS released_as
FROM quarantine WHERE tenant_id = $tenant AND step_id IS NOT NULL AND (
    step_id IN (SELECT unnest($names::VARCHAR[])) OR trajectory_id IN (SELECT unnest($names::VARCHAR[]))
)
{_STATE_OF_CASE}
ORDER BY started_at, exchange_id
"""  # noqa: S608
_LEDGER = _rows_of("exchanges", "exchange_id", "disposition, step_id")
_DROPPED = """
SELECT exchange_id AS name FROM quarantine
WHERE tenant_id = $tenant AND exchange_id IN (SELECT unnest($names::VARCHAR[])) AND status = 'dropped'
"""
_COPIES = f"""
SELECT from_step_id AS name, to_step_id FROM links WHERE tenant_id = $tenant AND kind = '{SHADOW}'
AND from_step_id IN (SELECT unnest($names::VARCHAR[]))
"""  # noqa: S608
_STANDING = """
SELECT from_step_id AS name, to_step_id FROM links WHERE tenant_id = $tenant
AND list_contains($kinds::VARCHAR[], kind) AND from_step_id IN (SELECT unnest($names::VARCHAR[]))
"""
_NAMING = """
SELECT DISTINCT name, step_id FROM (
    SELECT step_id, unnest(list_append(context_message_ids, output_message_id)) AS name
    FROM steps WHERE tenant_id = $tenant
    UNION ALL
    SELECT step_id, harness_id FROM steps WHERE tenant_id = $tenant
) WHERE name IN (SELECT unnest($names::VARCHAR[]))
"""


def _own(step: Mapping[str, Any]) -> list[str]:
    """Return the messages that a step names itself."""
    names = [*step["context_message_ids"], step["output_message_id"]]
    return [name for name in names if name is not None]


def _texts(
    steps: Sequence[dict[str, Any]],
    own: Mapping[str, Sequence[str]],
    messages: Mapping[str, dict[str, Any]],
    harnesses: Mapping[str, dict[str, Any]],
) -> Iterator[StoredText]:
    """Yield the texts of a trajectory's steps, of the messages they name, and of what is around them."""
    named_by: dict[str, list[str]] = defaultdict(list)
    for step in steps:
        for name in own[step["step_id"]]:
            named_by[name].append(step["step_id"])
    for name, by in named_by.items():
        row = messages.get(name)
        if row is not None:
            said = stored_message(row["role"], json.loads(row["parts"]), row["called"])
            message = Message.from_json(said)
            yield StoredText("messages", name, row["event_date"], message, tuple(by))
    for step in steps:
        name = step["step_id"]
        yield StoredText("steps", name, step["event_date"], _texts_of(step, STEP_TEXTS), (name,))
    for name in sorted({step["harness_id"] for step in steps} - {None}):
        if (row := harnesses.get(name)) is not None:
            text = _texts_of(row, HARNESS_TEXTS)
            yield StoredText("harnesses", name, row["event_date"], text, ())


def _feedback(signal: Mapping[str, Any]) -> StoredText:
    """Return the texts of a signal; it is erased with the people of its whole trajectory."""
    texts = _texts_of(signal, SIGNAL_TEXTS)
    return StoredText("signals", signal["name"], signal["event_date"], texts, ())


def _texts_of(row: Mapping[str, Any], columns: Sequence[str]) -> Message:
    return as_message({name: row[name] for name in columns if row[name] is not None})


def _decision(row: dict[str, Any]) -> GovernanceRecord:
    said = {one.name: row[one.name] for one in fields(GovernanceRecord)}
    lists = {name: tuple(value) for name, value in said.items() if isinstance(value, list)}
    return GovernanceRecord(
        **{**said, **lists, "redaction_counts": dict(said["redaction_counts"] or ())}
    )
