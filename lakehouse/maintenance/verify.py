"""Checks that the lake is what it claims to be: ledger, references, counts, hashes, statistics, files.

Each check is one query whose answer should be no rows. An *error* is a broken promise; a
*notice* is something that can happen in a healthy lake and that a person may want to know.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from pyarrow.fs import FileSelector

from governance.identifiers import Namer
from lakehouse.erasure.removal import unnamed_messages
from lakehouse.maintenance.rewrite import ActiveFile, list_files
from lakehouse.schema.tables import TABLES
from trajectory.message import stored_message

if TYPE_CHECKING:
    from lakehouse.lake import Lake

_EXAMPLES = 3
_NAMED = ["message_id", "content_id", "role", "parts", "name"]
"""What a message's id covers, and the id; older files have no ``name`` and no ``content_id``."""
_FILES = "active files are as the log says"


@dataclass(frozen=True, slots=True)
class Violation:
    """One check that found something."""

    check: str
    severity: str
    """error | notice"""
    table: str
    count: int
    """How many rows or files are concerned."""
    examples: tuple[str, ...]
    """A few of their ids or paths, never content."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was checked and what was found."""

    checks: int
    rows: int
    """Rows in all tables."""
    findings: tuple[Violation, ...]

    @property
    def ok(self) -> bool:
        """Whether no promise is broken."""
        return all(finding.severity != "error" for finding in self.findings)


@dataclass(frozen=True, slots=True)
class _Check:
    name: str
    table: str
    sql: str
    """Gives one column ``id`` with a row for each offence."""
    severity: str = "error"


def _repeated(table: str, key: str) -> str:
    return f"SELECT {key} AS id FROM {table} GROUP BY tenant_id, {key} HAVING count(*) > 1"  # noqa: S608


def _dangling(table: str, key: str, other: str, other_key: str, *, shown: str | None = None) -> str:
    return (
        f"SELECT t.{shown or key} AS id FROM {table} t ANTI JOIN {other} o "  # noqa: S608
        f"ON t.tenant_id = o.tenant_id AND t.{key} = o.{other_key} WHERE t.{key} IS NOT NULL"
    )


_MESSAGE_GONE = """
WITH named AS (
    SELECT tenant_id, step_id, unnest(context_message_ids) AS message_id FROM steps
    UNION ALL
    SELECT tenant_id, step_id, output_message_id FROM steps WHERE output_message_id IS NOT NULL
)
SELECT DISTINCT n.step_id AS id FROM named n ANTI JOIN messages m
ON n.tenant_id = m.tenant_id AND n.message_id = m.message_id
"""

_CHECKS = (
    _Check("each exchange stands once in the ledger", "exchanges",
           _repeated("exchanges", "exchange_id")),
    _Check("each spool record stands once in the ledger", "exchanges",
           "SELECT spool_writer || '/' || spool_segment || '/' || spool_offset AS id FROM exchanges "
           "GROUP BY spool_writer, spool_segment, spool_offset HAVING count(DISTINCT exchange_id) > 1",
           "notice"),
    _Check("each step is stored once", "steps", _repeated("steps", "step_id")),
    _Check("each exchange gives one step at most", "steps", _repeated("steps", "exchange_id")),
    _Check("each stored exchange has its step", "exchanges",
           "SELECT e.exchange_id AS id FROM exchanges e ANTI JOIN steps s "
           "ON e.tenant_id = s.tenant_id AND e.exchange_id = s.exchange_id "
           "WHERE e.disposition = 'stored'"),
    _Check("each step has a ledger row that says stored", "steps",
           "SELECT s.exchange_id AS id FROM steps s ANTI JOIN "
           "(SELECT * FROM exchanges WHERE disposition = 'stored') e "
           "ON e.tenant_id = s.tenant_id AND e.exchange_id = s.exchange_id"),
    _Check("each step has a governance decision", "steps",
           _dangling("steps", "step_id", "governance", "step_id")),
    _Check("each message that a step names is stored", "steps", _MESSAGE_GONE),
    _Check("each harness that a step names is stored", "steps",
           _dangling("steps", "harness_id", "harnesses", "harness_id", shown="step_id")),
    _Check("each step that leans on a parent has it", "steps",
           "SELECT c.step_id AS id FROM steps c ANTI JOIN steps p ON c.tenant_id = p.tenant_id "
           "AND c.parent_step_id = p.step_id WHERE c.context_keep > 0"),
    _Check("tokens belong to steps", "tokens", _dangling("tokens", "step_id", "steps", "step_id")),
    _Check("logprobs are as many as tokens", "tokens",
           "SELECT step_id AS id FROM tokens WHERE len(logprobs) <> len(completion_token_ids) "
           "OR len(loss_mask) <> len(completion_token_ids)"),
    _Check("credits belong to steps", "credits",
           _dangling("credits", "step_id", "steps", "step_id"), "notice"),
    _Check("corrections belong to steps", "corrections",
           "SELECT c.step_id AS id FROM (SELECT * FROM corrections WHERE duplicate_of IS NULL) c "
           "ANTI JOIN steps s ON c.tenant_id = s.tenant_id AND c.step_id = s.step_id", "notice"),
    _Check("links start at steps", "links",
           _dangling("links", "from_step_id", "steps", "step_id"), "notice"),
    _Check("links end at steps", "links",
           _dangling("links", "to_step_id", "steps", "step_id"), "notice"),
    _Check("signals have found their target", "signals",
           "SELECT signal_id AS id FROM signals_placed WHERE trajectory_id IS NULL "
           "AND target_kind IN ('step', 'response', 'trajectory', 'token_span')", "notice"),
    _Check("messages are stored once", "messages", _repeated("messages", "message_id"), "notice"),
    _Check("nothing is kept past its expiry", "governance",
           "SELECT step_id AS id FROM governance WHERE expires_at < now() - INTERVAL 1 DAY "
           "AND NOT legal_hold", "notice"),
    _Check("nothing of an erased person is kept", "governance",
           "SELECT g.step_id AS id FROM (SELECT tenant_id, step_id, unnest(subjects) AS subject "
           "FROM governance) g JOIN (SELECT DISTINCT tenant_id, subject FROM erasures "
           "WHERE status = 'done') e ON g.tenant_id = e.tenant_id AND g.subject = e.subject",
           "notice"),
)  # fmt: skip


def verify(lake: "Lake", *, message_key: bytes | None = None) -> VerifyReport:
    """Check the whole lake.

    Args:
        lake: the lake.
        message_key: the key of message names; with it every message's hash is computed again.
    """
    findings = [finding for name in TABLES for finding in _table_findings(lake, name)]
    checks = 3 * len(TABLES)
    if any(finding.check == _FILES for finding in findings):
        # The rows cannot be asked for while files are lost or damaged.
        return VerifyReport(checks, 0, tuple(findings))
    for check in _CHECKS:
        findings.extend(_rows_found(lake, check))
    checks += len(_CHECKS)
    findings.extend(_unnamed_messages(lake))
    checks += 1
    if message_key is not None:
        findings.extend(_hash_findings(lake, message_key))
        checks += 1
    rows = sum(
        int(lake.query(f"SELECT count(*) AS n FROM {name}")["n"][0].as_py())  # noqa: S608
        for name in TABLES
    )
    return VerifyReport(checks, rows, tuple(findings))


def _rows_found(lake: "Lake", check: _Check) -> Iterator[Violation]:
    counted = f"SELECT count(*) AS n, list(id)[:{_EXAMPLES}] AS ids FROM ({check.sql})"  # noqa: S608
    row = lake.query(counted).to_pylist()[0]
    if row["n"]:
        yield Violation(check.name, check.severity, check.table, row["n"], tuple(row["ids"] or ()))


def _unnamed_messages(lake: "Lake") -> Iterator[Violation]:
    """Look for messages that no step names, as it was stored or as it was corrected."""
    found = unnamed_messages(lake)
    if found:  # a batch that is being written has some: look again when none is
        with suppress(OSError), lake.lease(alone=True):
            found = unnamed_messages(lake)
    if found:
        yield Violation("each message is named by a step", "error", "messages", len(found),
                      tuple(name for _, name in found[:_EXAMPLES]))  # fmt: skip


def _table_findings(lake: "Lake", name: str) -> Iterator[Violation]:
    handle = lake.table(name)
    protocol = handle.protocol()
    if (protocol.min_reader_version, protocol.min_writer_version) != (1, 2):
        yield Violation("tables stay at reader 1 and writer 2", "error", name, 1, ())
    files = lake.location.files()
    wrong = [one.path for one in list_files(handle) if not _as_logged(files, name, one)]
    if wrong:
        yield Violation(_FILES, "error", name, len(wrong),
                      tuple(wrong[:_EXAMPLES]))  # fmt: skip
    allowed = set(TABLES[name].statistics_columns)
    leaking = sorted(set(_columns_with_statistics(files, f"{name}/_delta_log")) - allowed)
    if leaking:
        yield Violation("the log has statistics of our ids and times only", "error", name,
                      len(leaking), tuple(leaking[:_EXAMPLES]))  # fmt: skip


def _as_logged(files: Any, name: str, one: ActiveFile) -> bool:
    try:
        with files.open_input_file(f"{name}/{one.relative}") as file:
            return bool(file.size() == one.size and pq.read_metadata(file).num_rows == one.rows)
    except (OSError, ValueError):
        return False


def _columns_with_statistics(files: Any, log: str) -> Iterator[str]:
    for found in files.get_file_info(FileSelector(log)):
        if found.base_name.endswith(".json"):
            with files.open_input_file(found.path) as commit:
                lines = commit.read().splitlines()
            for line in lines:
                yield from _statistics_of(json.loads(line).get("add", {}).get("stats"))
        elif ".checkpoint" in found.base_name and found.base_name.endswith(".parquet"):
            with files.open_input_file(found.path) as checkpoint:
                table = pq.read_table(checkpoint, columns=["add"])
            for add in table["add"].to_pylist():
                yield from _statistics_of((add or {}).get("stats"))


def _statistics_of(stats: str | None) -> Iterator[str]:
    found = json.loads(stats or "{}")
    for kind in ("minValues", "maxValues"):
        yield from found.get(kind, {})


def _hash_findings(lake: "Lake", message_key: bytes) -> Iterator[Violation]:
    namer = Namer(message_key)
    files = lake.location.files()
    wrong: list[str] = []
    for one in list_files(lake.table("messages")):
        tenant = one.partition["tenant_id"] or ""
        with files.open_input_file(f"messages/{one.relative}") as file:
            for batch in pq.ParquetFile(file).iter_batches(8192, columns=_NAMED):
                wrong += [
                    row["message_id"]
                    for row in batch.to_pylist()
                    if not _is_named(namer, tenant, row)
                ]
    if wrong:
        yield Violation("messages are what their names say", "error", "messages", len(wrong),
                      tuple(wrong[:_EXAMPLES]))  # fmt: skip


def _is_named(namer: Namer, tenant: str, row: dict[str, Any]) -> bool:
    message = stored_message(row["role"], json.loads(row["parts"]), row.get("name"))
    return bool(namer.message_id(tenant, message) == (row.get("content_id") or row["message_id"]))
