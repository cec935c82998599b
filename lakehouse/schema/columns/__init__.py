"""The columns of every table, with their types, comments and whether they hold content."""

from lakehouse.schema.columns.capture import (
    CORRECTIONS,
    HARNESSES,
    LINKS,
    MESSAGES,
    SIGNALS,
    STEPS,
    TOKENS,
)
from lakehouse.schema.columns.column import ColumnSpec
from lakehouse.schema.columns.decisions import EXCHANGES, GOVERNANCE, QUARANTINE
from lakehouse.schema.columns.registries import (
    ARTIFACTS,
    CONSENTS,
    CREDITS,
    DECISIONS,
    ERASURES,
    HARNESS_VERSIONS,
    INTERVENTIONS,
    MODELS,
    PRICES,
    RUNS,
    SUBSTRATE_ITEMS,
    SUBSTRATES,
)

__all__ = ["CONTENT_TABLES", "REGISTRY_TABLES", "ColumnSpec"]

CONTENT_TABLES: dict[str, tuple[ColumnSpec, ...]] = {
    "messages": MESSAGES,
    "harnesses": HARNESSES,
    "tokens": TOKENS,
    "steps": STEPS,
    "links": LINKS,
    "corrections": CORRECTIONS,
    "signals": SIGNALS,
    "governance": GOVERNANCE,
    "quarantine": QUARANTINE,
    "exchanges": EXCHANGES,
}
"""Tables of a governed batch; their columns are those of the record dataclasses."""

REGISTRY_TABLES: dict[str, tuple[ColumnSpec, ...]] = {
    "consents": CONSENTS,
    "erasures": ERASURES,
    "substrates": SUBSTRATES,
    "substrate_items": SUBSTRATE_ITEMS,
    "runs": RUNS,
    "models": MODELS,
    "artifacts": ARTIFACTS,
    "credits": CREDITS,
    "prices": PRICES,
    "harness_versions": HARNESS_VERSIONS,
    "decisions": DECISIONS,
    "interventions": INTERVENTIONS,
}
"""Tables that rooms append to row by row."""
