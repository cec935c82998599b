"""Builds a substrate: a named, versioned selection of what may be learned from, without content.

A substrate is a folder ``<name>/<version>/`` of ``items.parquet`` (ids, splits, rewards),
``manifest.json`` (from which table versions and policies, how much, why the rest fell away),
``README.md`` (dataset card) and ``croissant.json``. The same lake and document give the same
bytes; the version is the beginning of their hash. Content is fetched by message id when a
run needs it, so erasing a person in the lake erases them here too.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.rewards import Reward
from train.errors import StaleSubstrateError
from train.registry.model_card import dataset_card, dataset_croissant
from train.substrate.dedup import Examined, near_duplicates, texts_of
from train.substrate.items import Item
from train.substrate.iteration import Origin, Walker, walk_part
from train.substrate.quality import SubstrateGate
from train.substrate.selection import item_rewards, permitted_steps
from train.substrate.source import LearningSource, Progress, silent
from train.substrate.spec import Substrate, SubstrateSpec
from trajectory.canonical import bytes_hash, canonical_json, content_hash
from trajectory.errors import ConfigurationError, IntegrityError

_READ_TABLES = (
    "steps",
    "tokens",
    "messages",
    "signals",
    "governance",
    "consents",
    "erasures",
    "harnesses",
)

_ITEM_SCHEMA = pa.schema(
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
        pa.field("split", pa.string(), nullable=False),
        pa.field("reward", pa.float64(), nullable=False),
        pa.field("rewarded", pa.bool_(), nullable=False),
        pa.field("signals", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class ScoredItem:
    """An item of a substrate: what to learn from, on which side of the split, how good it was."""

    item: Item
    split: Literal["train", "holdout"]
    reward: float
    rewarded: bool
    """Whether the reward reaches the substrate's minimum."""
    signals: str
    """JSON object name → value."""


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


def build_substrate(
    source: LearningSource,
    substrate: Substrate,
    *,
    out: Path,
    progress: Progress = silent,
    walker: Walker | None = None,
    base: Path | None = None,
    gate: SubstrateGate | None = None,
) -> SubstrateManifest:
    """Build a substrate into ``out/<name>/<version>/`` and register it in the lake.

    The same lake content and document give the same bytes and the same version; building it
    again changes nothing. A substrate may be empty: its manifest says why.

    Args:
        source: the lake.
        substrate: what to select.
        out: folder of all substrates.
        progress: called with each stage.
        base: folder that the document's evaluation sets are relative to; by default the current.
        walker: walks the lake's parts elsewhere; without one, the whole is walked here.
        gate: what the items must meet; without one, they are not judged.

    Raises:
        SubstrateRefusedError: the gate does not let it pass; nothing was written.
    """
    spec = substrate.spec
    examined = Examined(spec.evaluation, base or Path()) if spec.evaluation else None
    versions = source.versions()
    progress("select", 0, None)
    items: list[Item] = []
    origins: dict[str, Origin] = {}
    left_out_steps: Counter[str] = Counter()
    for walked in walker(spec, versions) if walker else [walk_part(source, spec, as_of=versions)]:
        items.extend(walked.items)
        origins.update(walked.origins)
        left_out_steps.update(walked.left_out)
        progress("select", len(items), None)
    progress("score", 0, len(items))
    scored, left_out_items = _score(
        items,
        item_rewards(source, items, spec.reward, as_of=versions),
        spec,
        partial(_unlike, source, examined),
    )
    report = None if gate is None else gate.require(substrate.metadata.name, source, scored)
    progress("write", 0, len(scored))
    used = {origins[step].policy_hash for entry in scored for step in entry.item.step_ids}
    manifest = _write(
        SubstrateManifest(
            name=substrate.metadata.name,
            version="",
            content_hash="",
            path=out,
            document=substrate.model_dump(mode="json"),
            table_versions={name: versions[name] for name in _READ_TABLES if name in versions},
            policy_hashes=tuple(sorted(policy for policy in used if policy)),
            items_hash="",
            item_ids=tuple(entry.item.item_id for entry in scored),
            counts=_counts(scored),
            left_out_steps=dict(sorted(left_out_steps.items())),
            left_out_items=dict(sorted(left_out_items.items())),
            evaluation_hashes=examined.hashes if examined else {},
            quality={} if report is None else report.to_json(),
        ),
        scored,
        out,
    )
    _register(source, manifest, scored, origins)
    progress("done", len(scored), len(scored))
    return manifest


def _score(
    items: Sequence[Item],
    rewards: Mapping[str, Reward],
    spec: SubstrateSpec,
    unlike: "_Keep",
) -> tuple[list[ScoredItem], Counter[str]]:
    left_out: Counter[str] = Counter()
    scored: list[ScoredItem] = []
    for item in items:
        found = rewards[item.item_id]
        if found.value is None:
            left_out["no_reward"] += 1
            continue
        scored.append(
            ScoredItem(
                item=item,
                split=spec.split.side(item),
                reward=found.value,
                rewarded=spec.reward.is_rewarded(found.value),
                signals=canonical_json(dict(found.components)).decode(),
            )
        )
    for keep in (_without_duplicates, unlike, _decontaminated, _capped):
        scored = keep(scored, spec, left_out)
    return sorted(scored, key=lambda entry: entry.item.item_id), +left_out


type _Keep = Callable[[list[ScoredItem], SubstrateSpec, Counter[str]], list[ScoredItem]]


def _unlike(
    source: LearningSource,
    examined: Examined | None,
    scored: list[ScoredItem],
    spec: SubstrateSpec,
    left_out: Counter[str],
) -> list[ScoredItem]:
    """Leave out near-duplicates, and of the training side what holds examined texts."""
    if spec.near_duplicates is None and examined is None:
        return scored
    texts = texts_of(source, [entry.item for entry in scored])
    kept = scored
    if spec.near_duplicates is not None:
        near = near_duplicates(kept, texts, spec.near_duplicates)
        kept = [entry for entry in kept if entry.item.item_id not in near]
        left_out["near_duplicate"] += len(near)
    if examined is not None:
        before = len(kept)
        kept = [
            entry
            for entry in kept
            if entry.split == "holdout" or not examined.holds(texts[entry.item.item_id].whole)
        ]
        left_out["evaluation_overlap"] += before - len(kept)
    return kept


def _without_duplicates(
    scored: list[ScoredItem], spec: SubstrateSpec, left_out: Counter[str]
) -> list[ScoredItem]:
    if spec.duplicates == "keep":
        return scored
    first: dict[str, ScoredItem] = {}
    for entry in sorted(scored, key=lambda entry: (entry.item.started_at, entry.item.item_id)):
        first.setdefault(entry.item.content_id, entry)
    left_out["duplicate"] += len(scored) - len(first)
    return list(first.values())


def _decontaminated(
    scored: list[ScoredItem], spec: SubstrateSpec, left_out: Counter[str]
) -> list[ScoredItem]:
    if not spec.decontaminate:
        return scored
    held = {_question(entry.item) for entry in scored if entry.split == "holdout"}
    clean = [e for e in scored if e.split == "holdout" or _question(e.item) not in held]
    left_out["contaminated"] += len(scored) - len(clean)
    return clean


def _question(item: Item) -> tuple[str, ...]:
    """What the model was asked; a system prompt that names the time makes no other question of it."""
    return (item.tenant_id, *item.beginning)


def _capped(
    scored: list[ScoredItem], spec: SubstrateSpec, left_out: Counter[str]
) -> list[ScoredItem]:
    caps = spec.caps
    limits = (
        ("cap_group", caps.per_group, lambda item: (item.tenant_id, item.group_id)),
        ("cap_harness", caps.per_harness, lambda item: (item.tenant_id, item.harness_id)),
        ("cap_tenant", caps.per_tenant, lambda item: item.tenant_id),
        ("cap_total", caps.total, lambda item: None),  # noqa: ARG005
    )
    taken: Counter[Any] = Counter()
    kept: list[ScoredItem] = []
    for entry in sorted(scored, key=lambda entry: _draw(spec.seed, entry.item.item_id)):
        keys = [
            (reason, limit, (reason, key(entry.item))) for reason, limit, key in limits if limit
        ]
        full = next((reason for reason, limit, key in keys if taken[key] >= limit), None)
        if full is not None:
            left_out[full] += 1
            continue
        taken.update(key for _, _, key in keys)
        kept.append(entry)
    return kept


def _draw(seed: int, item_id: str) -> bytes:
    return blake2b(f"{seed}:{item_id}".encode(), digest_size=8).digest()


def _counts(scored: Sequence[ScoredItem]) -> dict[str, int]:
    train = [entry for entry in scored if entry.split == "train"]
    return {
        "items": len(scored),
        "train": len(train),
        "holdout": len(scored) - len(train),
        "rewarded_train": sum(entry.rewarded for entry in train),
        "rewarded_holdout": sum(e.rewarded for e in scored if e.split == "holdout"),
        "steps": sum(len(entry.item.step_ids) for entry in scored),
        "groups": len({(entry.item.tenant_id, entry.item.group_id) for entry in scored}),
        "tenants": len({entry.item.tenant_id for entry in scored}),
    }


def _write(
    manifest: SubstrateManifest, scored: Sequence[ScoredItem], out: Path
) -> SubstrateManifest:
    items = _parquet(scored)
    manifest = replace(manifest, items_hash=bytes_hash(items))
    content = content_hash({**manifest.to_json(), "version": "", "content_hash": ""})
    version = content.removeprefix("b2:")[:12]
    folder = out / manifest.name / version
    manifest = replace(manifest, content_hash=content, version=version, path=folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "items.parquet").write_bytes(items)
    (folder / "README.md").write_text(dataset_card(manifest.to_json()), encoding="utf-8")
    croissant = dataset_croissant(manifest.to_json(), _ITEM_SCHEMA.names)
    (folder / "croissant.json").write_text(croissant, encoding="utf-8")
    # Last, so that a folder with a manifest is whole.
    (folder / "manifest.json").write_bytes(canonical_json(manifest.to_json()))
    return manifest


def _parquet(scored: Sequence[ScoredItem]) -> bytes:
    rows = [{**asdict(entry.item), **_scores(entry)} for entry in scored]
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(rows, schema=_ITEM_SCHEMA)
    pq.write_table(table, sink, compression="zstd", store_schema=False)
    return bytes(sink.getvalue())


def _scores(entry: ScoredItem) -> dict[str, Any]:
    names = ("split", "reward", "rewarded", "signals")
    return {name: getattr(entry, name) for name in names}


def _register(
    source: LearningSource,
    manifest: SubstrateManifest,
    scored: Sequence[ScoredItem],
    origins: Mapping[str, Origin],
) -> None:
    known = source.query(
        "SELECT count(*) AS n FROM substrates WHERE name = ? AND version = ?",
        parameters=[manifest.name, manifest.version],
    )
    if known["n"][0].as_py():
        return
    rows = [
        {
            "tenant_id": entry.item.tenant_id,
            "substrate": manifest.name,
            "version": manifest.version,
            "item_id": entry.item.item_id,
            "trajectory_id": entry.item.trajectory_id,
            "step_id": step_id,
            "split": entry.split,
            "weight": 1.0,
            "reward": entry.reward,
            "group_id": entry.item.group_id,
            "exchange_id": origins[step_id].exchange_id,
            "policy_hash": origins[step_id].policy_hash,
        }
        for entry in scored
        for step_id in entry.item.step_ids
    ]
    if rows:
        source.append_rows("substrate_items", rows)
    now = datetime.now(UTC)
    summary = {key: value for key, value in manifest.to_json().items() if key != "item_ids"}
    source.append_rows(
        "substrates",
        [
            {
                "name": manifest.name,
                "version": manifest.version,
                "built_at": now,
                "recorded_at": now,
                "items": len(scored),
                "manifest": canonical_json(summary).decode(),
                "content_hash": manifest.content_hash,
                "stale": False,
            }
        ],
    )


def load_manifest(folder: Path) -> SubstrateManifest:
    """Read the manifest of a substrate folder and check it against its items.

    Raises:
        ConfigurationError: there is no substrate in this folder.
        IntegrityError: the items or the manifest were changed after building.
    """
    try:
        value = json.loads((folder / "manifest.json").read_bytes())
        items = (folder / "items.parquet").read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(
            f"{folder}: no substrate here; build one with `headrace substrate build FILE`"
        ) from None
    manifest = SubstrateManifest.from_json(value, path=folder)
    expected = content_hash({**value, "version": "", "content_hash": ""})
    if bytes_hash(items) != manifest.items_hash or expected != manifest.content_hash:
        raise IntegrityError(f"{folder}: changed after it was built; build the substrate again")
    return manifest


def load_items(manifest: SubstrateManifest) -> list[ScoredItem]:
    """Read the items of a substrate, in the order of their ids."""
    rows = pq.read_table(manifest.path / "items.parquet").to_pylist()
    return [_scored(row) for row in rows]


def _scored(row: dict[str, Any]) -> ScoredItem:
    scores = {name: row.pop(name) for name in ("split", "reward", "rewarded", "signals")}
    lists = {name: tuple(row[name]) for name in ("step_ids", "message_ids", "trained")}
    lists["frames"] = tuple(tuple(frame) for frame in row["frames"])
    return ScoredItem(item=Item(**{**row, **lists}), **scores)


def stale_items(source: LearningSource, manifest: SubstrateManifest) -> tuple[str, ...]:
    """Return the ids of items that may no longer be learned from (withdrawn, erased, expired)."""
    permitted = permitted_steps(source, manifest.spec.purposes)
    return tuple(
        entry.item.item_id
        for entry in load_items(manifest)
        if any((entry.item.tenant_id, step) not in permitted for step in entry.item.step_ids)
    )


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
    """Refuse a substrate of which anything may no longer be learned from.

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
