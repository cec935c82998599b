"""Builds a substrate: a named, versioned selection of what may be learned from, without content.

A substrate is a folder ``<name>/<version>/`` of four files: ``items.parquet`` (ids, splits, rewards),
``manifest.json``, ``README.md`` (dataset card) and ``croissant.json``. The manifest names the versions
of tables and policies, how much there is, and why the rest fell away. The same lake and document give the same
bytes; the version is the beginning of their hash. Content is fetched by message id when a
run needs it, so erasing a person in the lake erases them here too.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.errors import PastGoneError
from lakehouse.rewards import Reward
from train.registry.model_card import dataset_card, dataset_croissant
from train.substrate.content import CORRECTION, corrections_of
from train.substrate.dedup import EvaluationTexts, near_duplicates, texts_of
from train.substrate.iteration import Origin, Walker, walk_part
from train.substrate.manifest import ITEM_SCHEMA, SCORES, SubstrateManifest
from train.substrate.quality import SubstrateGate
from train.substrate.selection import item_rewards
from train.substrate.source import LearningSource, Progress, frame_of, silent
from train.substrate.spec import Substrate, SubstrateSpec
from train.types import Item, ScoredItem
from trajectory.canonical import bytes_hash, canonical_json, content_hash
from trajectory.errors import RetryableError
from trajectory.files import READABLE, locked, make_folders, replace_file

_BUILDS = 3
"""How often a build begins when files of the lake go away under it."""
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
    again changes nothing. A substrate may be empty: its manifest says why. An erasure waits until
    it is built, and then marks it. Where a name that was told later takes files of the lake away, it
    begins again with the lake as it is then.

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
        PastGoneError: files of the lake went away again and again.
        RetryableError: they could not be read again and again.
    """
    with source.lease():
        for _ in range(_BUILDS - 1):
            with suppress(PastGoneError, RetryableError):
                return _build(source, substrate, out, progress, walker, base, gate)
        return _build(source, substrate, out, progress, walker, base, gate)


def _build(
    source: LearningSource,
    substrate: Substrate,
    out: Path,
    progress: Progress,
    walker: Walker | None,
    base: Path | None,
    gate: SubstrateGate | None,
) -> SubstrateManifest:
    spec = substrate.spec
    examined = EvaluationTexts(spec.evaluation, base or Path()) if spec.evaluation else None
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
    rewards = item_rewards(source, items, spec.reward, as_of=versions)
    corrected = corrections_of(source, items, as_of=versions)
    scored, left_out_items = _score(items, rewards, spec, corrected.keys())
    kept = _selected(source, scored, spec, examined, left_out_items)
    by_id = {entry.item.item_id: entry for entry in scored}
    report = None
    if gate is not None:
        entries = [by_id[name] for name in kept["item_id"]]
        report = gate.require(substrate.metadata.name, source, entries)
    progress("write", 0, kept.height)
    steps = _steps(kept, origins)
    manifest = _write(
        SubstrateManifest(
            name=substrate.metadata.name,
            version="",
            content_hash="",
            path=out,
            document=substrate.model_dump(mode="json"),
            table_versions={name: versions[name] for name in _READ_TABLES if name in versions},
            policy_hashes=tuple(
                policy for policy in steps["policy_hash"].unique().sort() if policy
            ),
            items_hash="",
            item_ids=tuple(kept["item_id"]),
            counts=_counts(kept),
            left_out_steps=dict(sorted(left_out_steps.items())),
            left_out_items=dict(sorted((+left_out_items).items())),
            evaluation_hashes=examined.hashes if examined else {},
            quality={} if report is None else report.to_json(),
        ),
        kept,
        out,
    )
    with locked(manifest.path.parent / "lock", wait=True):
        _register(source, manifest, steps)
    progress("done", kept.height, kept.height)
    return manifest


def _score(
    items: Sequence[Item],
    rewards: Mapping[str, Reward],
    spec: SubstrateSpec,
    corrected: Collection[tuple[str, str]],
) -> tuple[list[ScoredItem], Counter[str]]:
    """Give each item its side, its reward, and how many of its steps a person corrected.

    An item without a reward is left out.
    """

    def signals(item: Item, components: Mapping[str, float]) -> str:
        said = dict(components)
        steps = sum((item.tenant_id, step) in corrected for step in item.step_ids)
        if steps:
            said[CORRECTION] = float(steps)
        return canonical_json(said).decode()

    found = ((item, rewards[item.item_id]) for item in items)
    scored = [
        ScoredItem(
            item=item,
            split=spec.split.side(item),
            reward=reward.value,
            rewarded=spec.reward.is_rewarded(reward.value),
            signals=signals(item, reward.components),
        )
        for item, reward in found
        if reward.value is not None
    ]
    return scored, Counter(no_reward=len(items) - len(scored))


def _selected(
    source: LearningSource,
    scored: Sequence[ScoredItem],
    spec: SubstrateSpec,
    examined: EvaluationTexts | None,
    left_out: Counter[str],
) -> pl.DataFrame:
    """Return the items that stay, by id, and count under ``left_out`` why the others fell away."""
    frame = _frame(scored)

    def keep(reason: str, kept: pl.DataFrame) -> None:
        nonlocal frame
        left_out[reason] += frame.height - kept.height
        frame = kept

    if spec.duplicates == "drop":
        first = frame.sort("started_at", "item_id")
        keep("duplicate", first.unique("content_id", keep="first", maintain_order=True))
    if spec.near_duplicates is not None or examined is not None:
        ids = frozenset(frame["item_id"])
        entries = [entry for entry in scored if entry.item.item_id in ids]
        texts = texts_of(source, [entry.item for entry in entries])
        if spec.near_duplicates is not None:
            near = near_duplicates(entries, texts, spec.near_duplicates)
            keep("near_duplicate", frame.filter(~pl.col("item_id").is_in(near)))
        if examined is not None:
            train = frame.filter(split="train")["item_id"]
            held = [name for name in train if examined.holds(texts[name].whole)]
            keep("evaluation_overlap", frame.filter(~pl.col("item_id").is_in(held)))
    if spec.decontaminate:
        held_out = frame.filter(split="holdout").select(_QUESTION)
        asked = _QUESTION.is_in(held_out["question"].implode())
        keep("contaminated", frame.filter((pl.col("split") == "holdout") | ~asked))
    return _capped(frame, spec, left_out).sort("item_id")


def _frame(scored: Sequence[ScoredItem]) -> pl.DataFrame:
    """Return scored items as a frame with the columns of ``items.parquet``."""
    columns = {
        name: [getattr(entry if name in SCORES else entry.item, name) for entry in scored]
        for name in ITEM_SCHEMA.names
    }
    return frame_of(pa.table(columns, schema=ITEM_SCHEMA))


_QUESTION = pl.concat_str(
    "tenant_id",
    pl.col("message_ids")
    .list.slice(pl.col("leading"), (pl.col("first_said") - pl.col("leading")).clip(0))
    .list.join(" "),
    separator=" ",
).alias("question")
"""What the agent was asked first; a system prompt that names the time makes no other question of it."""


def _capped(frame: pl.DataFrame, spec: SubstrateSpec, left_out: Counter[str]) -> pl.DataFrame:
    """Keep what the caps leave room for, in the order of the draw.

    An item that one cap refuses takes no room under another one. So each item depends on all
    before it, and the caps are the one cut that goes row by row.
    """
    caps = spec.caps
    limits = {
        reason: (most, columns)
        for reason, most, columns in (
            ("cap_group", caps.per_group, ["tenant_id", "group_id"]),
            ("cap_harness", caps.per_harness, ["tenant_id", "harness_id"]),
            ("cap_tenant", caps.per_tenant, ["tenant_id"]),
            ("cap_total", caps.total, []),
        )
        if most
    }
    if not limits:
        return frame
    taken: Counter[Any] = Counter()
    kept: list[str] = []
    drawn = sorted(frame.to_dicts(), key=lambda row: _draw(spec.seed, row["item_id"]))
    for row in drawn:
        keys = {
            reason: (reason, *(row[name] for name in columns))
            for reason, (_, columns) in limits.items()
        }
        full = next((one for one, (most, _) in limits.items() if taken[keys[one]] >= most), None)
        if full is not None:
            left_out[full] += 1
            continue
        taken.update(keys.values())
        kept.append(row["item_id"])
    return frame.filter(pl.col("item_id").is_in(kept))


def _draw(seed: int, item_id: str) -> bytes:
    return blake2b(f"{seed}:{item_id}".encode(), digest_size=8).digest()


def _counts(items: pl.DataFrame) -> dict[str, int]:
    train, holdout = items.filter(split="train"), items.filter(split="holdout")
    return {
        "items": items.height,
        "train": train.height,
        "holdout": holdout.height,
        "rewarded_train": int(train["rewarded"].sum()),
        "rewarded_holdout": int(holdout["rewarded"].sum()),
        "steps": int(items["step_ids"].list.len().sum()),
        "groups": items.select("tenant_id", "group_id").n_unique(),
        "tenants": items["tenant_id"].n_unique(),
    }


def _write(manifest: SubstrateManifest, kept: pl.DataFrame, out: Path) -> SubstrateManifest:
    items = _parquet(kept)
    manifest = replace(manifest, items_hash=bytes_hash(items))
    content = content_hash({**manifest.to_json(), "version": "", "content_hash": ""})
    version = content.removeprefix("b2:")[:12]
    folder = out / manifest.name / version
    manifest = replace(manifest, content_hash=content, version=version, path=folder)
    make_folders(folder)
    files = {
        "items.parquet": items,
        "README.md": dataset_card(manifest.to_json()).encode(),
        "croissant.json": dataset_croissant(manifest.to_json(), ITEM_SCHEMA.names).encode(),
        # Last, so that a folder with a manifest is whole.
        "manifest.json": canonical_json(manifest.to_json()),
    }
    for name, data in files.items():
        replace_file(folder / name, data, READABLE)  # a run may be reading those built before
    return manifest


def _parquet(items: pl.DataFrame) -> bytes:
    sink = pa.BufferOutputStream()
    table = items.select(ITEM_SCHEMA.names).to_arrow().cast(ITEM_SCHEMA)
    pq.write_table(table, sink, compression="zstd", store_schema=False)
    return bytes(sink.getvalue())


def _steps(items: pl.DataFrame, origins: Mapping[str, Origin]) -> pl.DataFrame:
    """Return one row for each learned step of the items, with where it came from."""
    columns = "tenant_id", "item_id", "trajectory_id", "split", "reward", "group_id", "step_ids"
    came = {"step_id": [*origins]} | {
        name: [getattr(origin, name) for origin in origins.values()] for name in Origin._fields
    }
    steps = items.select(columns).explode("step_ids").rename({"step_ids": "step_id"})
    known = pl.DataFrame(came, schema=dict.fromkeys(came, pl.String))
    return steps.join(known, on="step_id", how="left", maintain_order="left")


def _register(source: LearningSource, manifest: SubstrateManifest, steps: pl.DataFrame) -> None:
    """Write what is missing of a substrate's rows: a build may have been killed between the two."""
    known = source.query(
        "SELECT (SELECT count(*) FROM substrates WHERE name = $name AND version = $version) AS whole, "
        "(SELECT count(*) FROM substrate_items WHERE substrate = $name AND version = $version) AS items",
        parameters={"name": manifest.name, "version": manifest.version},
    ).to_pylist()[0]
    if known["whole"]:
        return
    if not steps.is_empty() and not known["items"]:
        named = steps.with_columns(
            substrate=pl.lit(manifest.name), version=pl.lit(manifest.version), weight=pl.lit(1.0)
        )
        source.append_rows("substrate_items", named.to_dicts())
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
                "items": len(manifest.item_ids),
                "manifest": canonical_json(summary).decode(),
                "content_hash": manifest.content_hash,
                "stale": False,
            }
        ],
    )
