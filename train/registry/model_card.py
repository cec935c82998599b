"""Cards of substrates and models: for people, and a bill of materials for machines."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any
from uuid import NAMESPACE_URL, uuid5


def table(counts: Mapping[str, Any], *, first: str, second: str) -> str:
    """Return a two-column Markdown table; ``none`` when there is nothing to show."""
    if not counts:
        return "none"
    rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in counts.items()]
    return "\n".join([f"| {first} | {second} |", "| --- | ---: |", *rows])


def _cell(value: object) -> str:
    """Return a value as one cell: tenants and evaluators give names that Markdown or HTML would act on."""
    return escape(" ".join(str(value).split()), quote=False).replace("|", "\\|")


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


def model_card(manifest: Mapping[str, Any]) -> str:
    """Return the model card (Markdown) from the manifest of a model version."""
    label = f"{manifest['name']}@{manifest['version']}"
    if manifest.get("origin") == "adopted":
        return f"# {label}\n\nAdopted as it was; not trained here.\n"
    data, training = manifest["data"], manifest["training"]
    return f"""# {label}

Recipe `{manifest["recipe"]["metadata"]["name"]}` on base `{manifest["base"]}`, run `{manifest["run_id"]}`.
Gate: {"passed" if manifest["gate_passed"] else "not passed"}.

## Evaluation
{_evaluation(manifest.get("evaluation"))}{_replay(manifest.get("replay"))}{_agreement(manifest.get("agreement"))}{_beside(manifest)}

## Data
Substrate `{data["substrate"]}` version `{data["substrate_version"]}` (`{data["content_hash"]}`).

{table(data["rows"], first="rows", second="count")}

Rows dropped by reason: {_reasons(data["dropped"])}.
Items not used by reason: {_reasons(data["fallen"])}.

## Training
{table(training, first="fact", second="value")}

## Intended use and limits
The agent whose traffic it learned from, on tasks like those it was evaluated on. It learned only
from steps whose governance allowed it at the time of the run; `manifest.json` names table
versions and policies, `items.parquet` the items.
"""


def _evaluation(evaluation: Mapping[str, Any] | None) -> str:
    if evaluation is None:
        return "Not evaluated."
    gain, percent = evaluation["gain"], round(100 * evaluation["confidence"])
    lines = [
        f"{evaluation['tasks']} tasks, {evaluation['attempts']} attempts per model. Success "
        f"{evaluation['base']['estimate']:.3f} → {evaluation['candidate']['estimate']:.3f}; gain "
        f"{gain['estimate']:+.3f}, {percent} % interval {gain['low']:+.3f} to {gain['high']:+.3f} "
        f"({gain['method']}, paired by task).{_wider(evaluation['look'], evaluation['gain_at_look'])}"
    ]
    rows = {
        name: f"{found['base']:.3f} → {found['candidate']:.3f}"
        for name, found in evaluation["slices"].items()
    }
    if rows:
        lines.append(table(rows, first="slice", second="success"))
    unknown = evaluation.get("base_unknown", 0), evaluation.get("candidate_unknown", 0)
    if any(unknown):
        lines.append(
            f"Nobody knows how {unknown[0]} attempts of the base and {unknown[1]} of the candidate would "
            "have ended; they count as not solved."
        )
    return "\n\n".join(lines)


def _agreement(agreement: Mapping[str, Any] | None) -> str:
    if agreement is None:
        return ""
    share, at_look = agreement["share"], agreement["share_at_look"]
    return (
        f"\n\nIt prefers the rewarded attempt of {agreement['tasks']} held-out tasks in {share['estimate']:.3f} of the "
        f"pairs, each task counted once (95 % interval {share['low']:.3f} to {share['high']:.3f}; chance is "
        f"0.5).{_wider(agreement['look'], at_look)}"
    )


def _wider(look: int, interval: Mapping[str, Any]) -> str:
    """Return by which interval the gate judges a later candidate."""
    if look == 1:
        return ""
    return (
        f"\n\nIt is the candidate number {look} since one passed or what serves changed, so the gate "
        f"judges by a wider interval: {interval['low']:+.3f} to {interval['high']:+.3f}."
    )


def _beside(manifest: Mapping[str, Any]) -> str:
    """Return what was measured against the version that served, and from the base."""
    lines = []
    if (wins := manifest.get("wins")) is not None:
        rate = wins["rate"]
        lines.append(
            f"Against `{wins['against']}`, which served: {wins['wins']} tasks won, {wins['losses']} lost, "
            f"{wins['ties']} alike (share won {rate['low']:.3f} to {rate['high']:.3f})."
        )
    if (suite := manifest.get("regression")) is not None:
        lines.append(f"Of {suite['mastered']} tasks that must stay solved {suite['broken']} broke.")
    if (divergence := manifest.get("divergence")) is not None:
        kl = divergence["kl"]
        lines.append(
            f"KL from the base {kl['estimate']:.3f} nats per token ({kl['low']:.3f} to "
            f"{kl['high']:.3f}, {divergence['tokens']} held-out tokens)."
        )
    return "".join(f"\n\n{line}" for line in lines)


def _replay(replay: Mapping[str, Any] | None) -> str:
    """Return how episodes in the replayed environment went."""
    if replay is None:
        return ""
    rows = {name: _reasons(found["ended"]) for name, found in replay["episodes"].items()}
    diverged = {name: _reasons(found["diverged"]) for name, found in replay["episodes"].items()}
    ends = table(rows, first="replayed episodes of", second="ended")
    first = table(diverged, first="replayed episodes of", second="first divergence from the record")
    return f"\n\n{ends}\n\n{first}"


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in counts.items()) or "none"


def bill_of_materials(manifest: Mapping[str, Any]) -> str:
    """Return a CycloneDX 1.6 ML-BOM of a model version."""
    label = f"{manifest['name']}@{manifest['version']}"
    components = [_data_component(manifest["data"])] if "data" in manifest else []
    libraries = manifest.get("code", {}).get("libraries", {})
    components += [
        {"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
        for name, version in sorted(libraries.items())
        if version
    ]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, manifest['weights_hash'] + label)}",
        "version": 1,
        "metadata": {
            "timestamp": manifest["registered_at"],
            "component": {
                "type": "machine-learning-model",
                "bom-ref": label,
                "name": manifest["name"],
                "version": manifest["version"],
                "modelCard": {"modelParameters": _parameters(manifest)},
                "properties": [
                    {"name": "headrace:weights_hash", "value": manifest["weights_hash"]},
                    {"name": "headrace:base", "value": str(manifest.get("base", "-"))},
                    {"name": "headrace:run", "value": str(manifest.get("run_id", "-"))},
                ],
            },
        },
        "components": components,
    }
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _parameters(manifest: Mapping[str, Any]) -> dict[str, Any]:
    scores = manifest.get("makes") == "reward_model"
    parameters: dict[str, Any] = {"task": "text-classification" if scores else "text-generation"}
    if "data" in manifest:
        parameters["datasets"] = [{"ref": _data_reference(manifest["data"])}]
    return parameters


def _data_reference(data: Mapping[str, Any]) -> str:
    return f"substrate:{data['substrate']}@{data['substrate_version']}"


def _data_component(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "data",
        "bom-ref": _data_reference(data),
        "name": data["substrate"],
        "version": data["substrate_version"],
        "data": [{"type": "dataset", "name": data["substrate"]}],
        "properties": [{"name": "headrace:content_hash", "value": data["content_hash"]}],
    }
