"""Cards: what a person and a machine read about a substrate or a model before they trust it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any


def table(counts: Mapping[str, Any], *, first: str, second: str) -> str:
    """Return a two-column Markdown table; ``none`` when there is nothing to show."""
    if not counts:
        return "none"
    rows = [f"| {name} | {value} |" for name, value in counts.items()]
    return "\n".join([f"| {first} | {second} |", "| --- | ---: |", *rows])


def dataset_card(manifest: Mapping[str, Any]) -> str:
    """Return the dataset card (Markdown) of a substrate, from its manifest."""
    spec = manifest["document"]["spec"]
    return f"""# Substrate {manifest["name"]}, version {manifest["version"]}

{manifest["document"]["metadata"]["description"] or "A selection of governed agent trajectories."}

Purposes that every step must allow: {", ".join(spec["purposes"])}.
Selection: `{spec["where"]}`. Reward: {_reward(spec["reward"])}.
The items name messages and steps of the lake by id; this folder holds no content.

## Items
{table(manifest["counts"], first="count", second="items")}

## Steps that gave no item
{table(manifest["left_out_steps"], first="reason", second="steps")}

## Items that fell away
{table(manifest["left_out_items"], first="reason", second="items")}

## Made from
{table(manifest["table_versions"], first="table", second="version")}

Policies: {", ".join(manifest["policy_hashes"]) or "none"}.
Content hash: `{manifest["content_hash"]}`.
"""


def _reward(reward: Mapping[str, Any]) -> str:
    terms = " + ".join(f"{weight} × {name}" for name, weight in reward["signals"].items())
    least = "more than 0" if reward["minimum"] is None else f"at least {reward['minimum']}"
    return f"{terms}; rewarded with {least}"


def dataset_croissant(manifest: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Return Croissant 1.0 metadata (JSON-LD) of a substrate."""
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"items/{name}",
            "name": name,
            "source": {"fileObject": {"@id": "items.parquet"}, "extract": {"column": name}},
        }
        for name in columns
    ]
    document = {
        "@context": {
            "@vocab": "https://schema.org/",
            "cr": "http://mlcommons.org/croissant/",
            "sc": "https://schema.org/",
            "conformsTo": "http://purl.org/dc/terms/conformsTo",
        },
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": manifest["name"],
        "version": manifest["version"],
        "description": manifest["document"]["metadata"]["description"],
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": "items.parquet",
                "name": "items.parquet",
                "contentUrl": "items.parquet",
                "encodingFormat": "application/x-parquet",
                "description": f"hash {manifest['items_hash']}",
            }
        ],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "items", "field": fields}],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
