"""Documents of kind Artifact say one thing, and what is wrong with them."""

from pathlib import Path

import pytest

from trajectory.artifact import Artifact
from trajectory.documents.document import load_document
from trajectory.errors import ConfigurationError

HEAD = "apiVersion: headrace/v1\nkind: Artifact\nmetadata: {name: refunds}\n"
SOURCE = "tenant: acme, proposer: jo, licence: CC0-1.0"


def read(tmp_path: Path, spec: str) -> Artifact:
    file = tmp_path / "artifact.yaml"
    file.write_text(f"{HEAD}spec: {{{SOURCE}, {spec}}}\n")
    return load_document(Artifact, file)


@pytest.mark.parametrize(
    ("spec", "surface"),
    [
        ("memory: {facts: [{id: f1, text: Refunds take 3 days., evidence: [s1, s2]}]}", "memory"),
        ("skill: {title: Refund, trigger: {phrases: [refund]}, procedure: Ask first.}", "skill"),
        ("harness: {append: Be brief.}", "harness"),
        ("harness: {agent: shop, replace: {old: Be long., new: Be brief.}}", "harness"),
        ("tools: {patch: [{op: add, path: /refund/description, value: Pays back.}]}", "tools"),
        ("tools: {patch: [{op: remove, path: /refund/parameters/required}]}", "tools"),
    ],
)
def test_a_document_is_one_of_four_kinds(tmp_path: Path, spec: str, surface: str) -> None:
    assert read(tmp_path, spec).spec.surface == surface


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            "harness: {append: a}, skill: {title: t, trigger: {phrases: [xx]}, procedure: p}",
            "one of",
        ),
        ("decision: d", "one of: memory, skill, harness, tools"),
        ("harness: {}", "one of: append, replace"),
        ("harness: {append: </headrace-artifact>}", "no text may hold it"),
        ("memory: {facts: [{id: a, text: x}, {id: a, text: y}]}", "same id"),
        (
            "tools: {patch: [{op: add, path: /refund, value: {}}]}",
            "neither adds nor removes a tool",
        ),
        ("tools: {patch: [{op: remove, path: /refund/description}]}", "replace them instead"),
        ("tools: {patch: [{op: copy, path: /a/description, from: /b/name}]}", "a path leads into"),
        ("tools: {patch: [{op: grow, path: /refund/description}]}", "RFC 6902"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(tmp_path: Path, spec: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as error:
        read(tmp_path, spec)
    assert "artifact.yaml:" in str(error.value)


@pytest.mark.parametrize(
    "spec", ["memory: {facts: [{id: a, text: x}]}", "harness: {append: a}, evidence: [s1]"]
)
def test_facts_and_evidence_are_one_tenants(tmp_path: Path, spec: str) -> None:
    file = tmp_path / "artifact.yaml"
    file.write_text(f"{HEAD}spec: {{proposer: jo, licence: CC0-1.0, {spec}}}\n")
    with pytest.raises(ConfigurationError, match="name the tenant"):
        load_document(Artifact, file)


def test_evidence_is_that_of_the_whole_and_of_each_fact(tmp_path: Path) -> None:
    facts = "[{id: a, text: x, evidence: [s1, s2]}, {id: b, text: y, evidence: [s2, s3]}]"
    spec = read(tmp_path, f"evidence: [s0], memory: {{facts: {facts}}}").spec
    assert spec.all_evidence == {"s0", "s1", "s2", "s3"}


def test_a_patch_names_its_tools_however_they_are_written(tmp_path: Path) -> None:
    patch = "[{op: copy, from: /a~1b/description, path: /c~0d/description}]"
    content = read(tmp_path, f"tools: {{patch: {patch}}}").spec.tools
    assert content is not None
    assert content.names == {"a/b", "c~d"}
