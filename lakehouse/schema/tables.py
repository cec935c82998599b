"""The tables of the lake: columns, partitions, comments and which columns hold content.

Each table has one :class:`TableSpec`. The Arrow and Delta schemas, the comments that other readers see
and the data dictionary are made from it. It also names the columns of which Delta keeps statistics, never
content. Tables stay at Delta reader 1 / writer 2.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from lakehouse.schema.columns import CONTENT_TABLES, REGISTRY_TABLES, ColumnSpec

LAKE_VERSION = 14
"""Version of the whole set of tables; stored with each table, raised by a migration."""

VERSION_PROPERTY = "headrace.lakeVersion"
_STATISTICS = frozenset({
    "trajectory_id", "step_id", "message_id", "exchange_id", "harness_id", "substrate", "run_id",
    "started_at", "recorded_at", "first_seen_at", "built_at",
})  # fmt: skip
"""Our own keyed names and times: what files are skipped by. Nothing that a client can choose."""


HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The name of a partition's folder for rows without a value."""
LOG_RETENTION = "interval 30 days"
"""How long the tables' logs keep old commits, unless maintenance or an erasure takes them away."""


@dataclass(frozen=True)
class TableSpec:
    """One table of the lake."""

    name: str
    comment: str
    columns: tuple[ColumnSpec, ...]
    """Without ``event_date``, which is added from ``date_column``."""
    date_column: str | None
    """The UTC day of this column is the partition ``event_date``; None when the table has no days."""
    partition_by: tuple[str, ...]
    sort_by: tuple[str, ...]
    """How compaction orders rows within a partition."""

    @cached_property
    def arrow(self) -> Any:
        """The Arrow schema, comments as field metadata."""
        fields = [
            pa.field(c.name, c.type, nullable=c.nullable, metadata={"comment": c.comment})
            for c in self.columns
        ]
        if self.date_column is not None:
            comment = f"UTC day of {self.date_column}; partition"
            fields.append(
                pa.field("event_date", pa.date32(), nullable=False, metadata={"comment": comment})
            )
        return pa.schema(fields)

    @cached_property
    def content_columns(self) -> tuple[str, ...]:
        """Columns that hold (redacted) content or people's pseudonyms: no statistics of them."""
        return tuple(c.name for c in self.columns if c.content)

    @cached_property
    def statistics_columns(self) -> tuple[str, ...]:
        """Columns whose minimum and maximum the Delta log may hold."""
        return tuple(c.name for c in self.columns if c.name in _STATISTICS)

    @cached_property
    def bloom_columns(self) -> tuple[str, ...]:
        """Identifier columns that point look-ups ask for."""
        names = {c.name for c in self.columns}
        wanted = ("trajectory_id", "step_id", "message_id", "exchange_id", "harness_id")
        return tuple(name for name in wanted if name in names)

    @property
    def configuration(self) -> dict[str, str]:
        """The Delta table properties."""
        return {
            "delta.dataSkippingStatsColumns": ",".join(self.statistics_columns),
            "delta.checkpointInterval": "20",
            "delta.logRetentionDuration": LOG_RETENTION,
            "delta.deletedFileRetentionDuration": "interval 7 days",
            VERSION_PROPERTY: str(LAKE_VERSION),
        }


def _spec(
    name: str,
    comment: str,
    date_column: str | None,
    sort_by: tuple[str, ...],
    *,
    tenant: bool = True,
) -> TableSpec:
    partition_by = (("tenant_id",) if tenant else ()) + (("event_date",) if date_column else ())
    columns = CONTENT_TABLES.get(name) or REGISTRY_TABLES[name]
    return TableSpec(name, comment, columns, date_column, partition_by, sort_by)


_BY_STEP = ("trajectory_id", "step_id")

_SPECS = (
    _spec("messages", "Redacted messages, stored once per tenant and named by their content",
          "first_seen_at", ("first_seen_at", "message_id")),
    _spec("harnesses", "System prompt, tools and sampling defaults around a model, redacted",
          "first_seen_at", ("harness_id",)),
    _spec("tokens", "Exact token ids of steps, as the engine reported them",
          "started_at", _BY_STEP),
    _spec("steps", "One row per decision: a model call or a tool dispatch",
          "started_at", ("trajectory_id", "step_index", "step_id")),
    _spec("links", "How steps and trajectories hang together", "recorded_at", ("trajectory_id",)),
    _spec("corrections", "What holds of steps since an exchange came late that belongs before them",
          "started_at", _BY_STEP),
    _spec("signals", "Late-bound rewards and feedback; appended, never updated",
          "recorded_at", ("trajectory_id", "target_id")),
    _spec("governance", "Which policy decided what about a step, for whom, for what, until when",
          "started_at", _BY_STEP),
    _spec("quarantine", "What may not go on, and why", "started_at", ("exchange_id",)),
    _spec("exchanges", "The ledger: one row of metadata per captured exchange, never content",
          "started_at", ("started_at", "exchange_id")),
    _spec("consents", "Consent given or withdrawn, per pseudonymous subject and purpose",
          None, ("subject", "recorded_at")),
    _spec("erasures", "Erasures that were asked for and what they removed",
          None, ("subject", "recorded_at")),
    _spec("substrates", "Named, versioned selections of training data",
          None, ("name", "version"), tenant=False),
    _spec("substrate_items", "Which step stands in which substrate, with split and weight",
          None, ("substrate", "version", "item_id")),
    _spec("runs", "Training runs; the latest row of a run_id is its state",
          None, ("run_id", "recorded_at"), tenant=False),
    _spec("models", "Model versions and what their gates said; the latest row is the state",
          None, ("name", "version", "recorded_at"), tenant=False),
    _spec("artifacts", "Versions of artefacts and where they come from; the latest row is the state",
          None, ("name", "version", "recorded_at"), tenant=False),
    _spec("credits", "Step-level advantages, computed from rewards; appended, the latest holds",
          "recorded_at", ("trajectory_id", "position")),
    _spec("harness_versions", "Versions of each agent's harness, numbered by first sight",
          None, ("app_id", "harness_name", "harness_version")),
    _spec("decisions", "What the control plane decided and what came of it; the latest row holds",
          None, ("policy", "as_of", "recorded_at"), tenant=False),
    _spec("interventions", "Changes that a person approved or began; the latest row is the state",
          None, ("intervention_id", "recorded_at"), tenant=False),
    _spec("prices", "What models cost, as a price table or a person says", None, ("model", "valid_from")),
)  # fmt: skip

TABLES: dict[str, TableSpec] = {spec.name: spec for spec in _SPECS}

BATCH_TABLES: tuple[str, ...] = (
    "messages", "harnesses", "tokens",
    "steps", "links", "corrections", "signals", "governance", "quarantine",
    "exchanges",
)  # fmt: skip
"""Tables of a governed batch in the order of their commits. Rows come before what names them; the ledger is last
and marks the batch as whole."""

LEDGER = "exchanges"
