"""A built substrate: its manifest and its items, and whether they may still be learned from."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from train.errors import StaleSubstrateError
from train.substrate.selection import lost_items
from train.substrate.source import LearningSource
from train.substrate.spec import Substrate, SubstrateSpec
from train.types import Item, ScoredItem
from trajectory.canonical import bytes_hash, content_hash
from trajectory.errors import ConfigurationError, IntegrityError

ITEM_SCHEMA = pa.schema(
    [
        pa.field("item_id", pa.string(), nullable=False),
        pa.field("tenant_id", pa.string(), nullable=False),
        pa.field("trajectory_id", pa.string(), nullable=False),
        pa.field("group_id", pa.string(), nullable=False),
        pa.field("session_hint", pa.string()),
        pa.field("harness_id", pa.string()),
        pa.field("started_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("key_source", pa.string(), nullable=False),
        pa.field("capture_level", pa.string(), nullable=False),
        pa.field("model_served", pa.string()),
        pa.field("content_id", pa.string(), nullable=False),
        pa.field("step_ids", pa.list_(pa.string()), nullable=False),
        pa.field("message_ids", pa.list_(pa.string()), nullable=False),
        pa.field("trained", pa.list_(pa.int32()), nullable=False),
        pa.field("leading", pa.int32(), nullable=False),
        pa.field("tools_id", pa.string()),
        pa.field("frames", pa.list_(pa.list_(pa.string())), nullable=False),
        pa.field("context_step_ids", pa.list_(pa.string()), nullable=False),
        pa.field("first_said", pa.int32(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("reward", pa.float64(), nullable=False),
        pa.field("rewarded", pa.bool_(), nullable=False),
        pa.field("signals", pa.string(), nullable=False),
    ]
)


SCORES = ("split", "reward", "rewarded", "signals")


@dataclass(frozen=True, slots=True)
class SubstrateManifest:
    """Everything that says what a substrate is and where it came from."""

    name: str
    version: str
    """The first twelve hexadecimal digits of ``content_hash``."""
    content_hash: str
    """Hash of the rest of the manifest, the items' hash included."""
    path: Path
    """Folder of the substrate; not part of the hash."""
    document: Mapping[str, Any]
    """The YAML document it was built from."""
    table_versions: Mapping[str, int]
    policy_hashes: tuple[str, ...]
    items_hash: str
    """Hash of the bytes of ``items.parquet``."""
    item_ids: tuple[str, ...]
    counts: Mapping[str, int]
    left_out_steps: Mapping[str, int]
    """Reason → steps that gave no item."""
    left_out_items: Mapping[str, int]
    """Reason → items that were made and fell away."""
    evaluation_hashes: Mapping[str, str] = field(default_factory=dict)
    """File of an evaluation set → hash of what it held."""
    quality: Mapping[str, Any] = field(default_factory=dict)
    """What the quality gate asked of how many items, and how far the newest days drift."""

    @property
    def spec(self) -> SubstrateSpec:
        """The document's ``spec``, validated."""
        return Substrate.model_validate(dict(self.document)).spec

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as JSON, without its place on disk."""
        fields = asdict(self)
        del fields["path"]
        for name in ("evaluation_hashes", "quality"):
            if not fields[name]:
                del fields[name]
        return {
            **fields,
            "policy_hashes": list(self.policy_hashes),
            "item_ids": list(self.item_ids),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], *, path: Path) -> "SubstrateManifest":
        """Build a manifest from :meth:`to_json`'s form."""
        fields = {**value, "policy_hashes": tuple(value["policy_hashes"])}
        return cls(**{**fields, "item_ids": tuple(value["item_ids"])}, path=path)


def load_manifest(folder: Path) -> SubstrateManifest:
    """Read the manifest of a substrate folder and check it against its items.

    Raises:
        ConfigurationError: there is no substrate in this folder, or another version built it.
        IntegrityError: the items or the manifest were changed after building.
    """
    try:
        value = json.loads((folder / "manifest.json").read_bytes())
        items = (folder / "items.parquet").read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(
            f"{folder}: no substrate here; build one with `headrace substrate build FILE`"
        ) from None
    except ValueError:  # a full disk, say, cut it off
        raise IntegrityError(
            f"{folder}: its manifest is broken; build the substrate again"
        ) from None
    try:
        manifest = SubstrateManifest.from_json(value, path=folder)
    except (KeyError, TypeError):
        raise _built_elsewhere(folder) from None
    expected = content_hash({**value, "version": "", "content_hash": ""})
    if bytes_hash(items) != manifest.items_hash or expected != manifest.content_hash:
        raise IntegrityError(f"{folder}: changed after it was built; build the substrate again")
    return manifest


def load_items(manifest: SubstrateManifest) -> list[ScoredItem]:
    """Read the items of a substrate, in the order of their ids.

    Raises:
        ConfigurationError: another version of Headrace built it, with other columns.
    """
    file = manifest.path / "items.parquet"
    if pq.read_schema(file).names != ITEM_SCHEMA.names:
        raise _built_elsewhere(manifest.path)
    return [_scored(row) for row in pq.read_table(file).to_pylist()]


def _built_elsewhere(folder: Path) -> ConfigurationError:
    return ConfigurationError(
        f"{folder}: another version of Headrace built this substrate, in another form; "
        "rebuild it with `headrace substrate build FILE`"
    )


def _scored(row: dict[str, Any]) -> ScoredItem:
    scores = {name: row.pop(name) for name in SCORES}
    names = "step_ids", "message_ids", "trained", "context_step_ids"
    lists = {name: tuple(row[name]) for name in names}
    lists["frames"] = tuple(tuple(frame) for frame in row["frames"])
    return ScoredItem(item=Item(**{**row, **lists}), **scores)


def stale_items(source: LearningSource, manifest: SubstrateManifest) -> tuple[str, ...]:
    """Return the ids of items that may no longer be learned from (withdrawn, erased, expired)."""
    return lost_items(source, manifest.path / "items.parquet", manifest.spec.purposes)


def _record_stale(source: LearningSource, manifest: SubstrateManifest, items: int) -> None:
    """Write down once that a substrate is stale, so that everybody who looks sees it."""
    latest = source.query(
        "SELECT * FROM substrates_latest WHERE name = ? AND version = ?",
        parameters=[manifest.name, manifest.version],
    ).to_pylist()
    if latest and not latest[0]["stale"]:
        reason = f"{items} items may no longer be learned from"
        row = {**latest[0], "recorded_at": datetime.now(UTC), "stale": True, "stale_reason": reason}
        source.append_rows("substrates", [row])


def mark_stale(source: LearningSource, manifest: SubstrateManifest) -> bool:
    """Write down that a substrate is stale, if it is; return whether it is."""
    stale = stale_items(source, manifest)
    if stale:
        _record_stale(source, manifest, len(stale))
    return bool(stale)


def require_fresh(source: LearningSource, manifest: SubstrateManifest) -> None:
    """Refuse a substrate if it holds any item that is no longer eligible.

    Raises:
        StaleSubstrateError: naming how many items, never whose.
    """
    stale = stale_items(source, manifest)
    if stale:
        _record_stale(source, manifest, len(stale))
        raise StaleSubstrateError(
            f"substrate {manifest.name} {manifest.version}: {len(stale)} of {len(manifest.item_ids)} items "
            "may no longer be learned from (consent withdrawn, erased or expired); "
            "build it again with `headrace substrate build`"
        )
