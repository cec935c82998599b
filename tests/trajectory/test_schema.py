"""The published types: their JSON Schema, their JSON form, and the test vectors of the document."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trajectory
from tests.golden.trajectories.replay import load
from tests.lakehouse import make
from tests.trajectory.documents import own_trajectory
from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.canonical import canonical_json, content_hash
from trajectory.exchange import Exchange
from trajectory.json_form import FormError, from_json, to_json
from trajectory.message import Message
from trajectory.portable import Trajectory
from trajectory.schema import PUBLISHED, json_schema

ROOT = Path(__file__).resolve().parents[2]
SCHEMA: Any = json_schema()


def fits(kind: str, document: Any) -> None:
    """Check a document against the definition of a type."""
    schema = {**SCHEMA, "$ref": f"#/$defs/{kind}"}
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(
        document
    )


def vectors(name: str) -> list[dict[str, Any]]:
    """Return the vectors that stand in the document under a name."""
    text = (ROOT / "docs" / "protocol.md").read_text("utf-8")
    found = re.search(rf"^```json {name}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return list(json.loads(found[1]))


@pytest.mark.parametrize("vector", vectors("test-vectors"))
def test_vectors_of_canonical_json(vector: dict[str, Any]) -> None:
    assert canonical_json(vector["value"]).hex() == vector["canonical_hex"]
    assert content_hash(vector["value"]) == vector["hash"]


def test_vectors_of_keyed_names() -> None:
    from governance.identifiers import Namer, tenant_key

    message, called, state = vectors("keyed-vectors")
    key = bytes.fromhex(message["key_hex"])
    assert tenant_key(key, message["tenant_id"]).hex() == message["tenant_key_hex"]
    namer = Namer(key)
    for one in (message, called):
        assert namer.message_id(one["tenant_id"], one["message"]) == one["message_id"]
    assert namer.name(state["tenant_id"], state["kind"], state["value"]) == state["name"]


def test_vectors_of_identifiers_and_message_hashes() -> None:
    named, *messages = vectors("assembly-vectors")
    make = Fingerprinter(bytes.fromhex(named["key_hex"]))
    assert make.identifier(named["kind"], *named["names"]) == named["identifier"]
    link = make.digest(b"scope\0s")
    for one in messages:
        digest = make.message(Message.from_json(one["message"]))
        assert (digest.loose.hex(), digest.exact.hex()) == (one["loose_hex"], one["exact_hex"])
        link = make.digest(link + digest.loose)
        assert link.hex() == one["chain_hex"]


def test_the_published_schema_is_a_schema_and_up_to_date() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    published = json.loads((ROOT / "trajectory" / "schema.json").read_text("utf-8"))
    assert published == SCHEMA


def test_every_type_is_published_typed_frozen_and_versioned() -> None:
    nested = {trajectory.ToolCall, trajectory.ToolResult, trajectory.LinkTo}
    for kind in PUBLISHED:
        assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
        assert kind.__name__ in trajectory.__all__
        columns = {field.name: field.default for field in fields(kind)}
        version = columns.get("schema_version", getattr(kind, "schema_version", None))
        assert version == trajectory.SCHEMA_VERSION or kind in nested
    assert trajectory.__all__ == sorted(trajectory.__all__, key=lambda n: (n != n.upper(), n))


@pytest.mark.parametrize("name", ["openai_chat", "anthropic_messages_stream", "mcp"])
def test_exchanges_have_a_json_form_that_fits_and_reads_back(name: str) -> None:
    for exchange in load(name):
        document = to_json(exchange)
        fits("Exchange", document)
        again = from_json(Exchange, json.loads(json.dumps(document)))
        assert replace(again, started_at=exchange.started_at) == exchange


def test_a_trajectory_has_a_json_form_that_fits_and_reads_back() -> None:
    document = to_json(own_trajectory())
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert from_json(Trajectory, json.loads(json.dumps(document))) == own_trajectory()


def test_rows_of_the_lake_fit() -> None:
    step = make.step("t1", 0)
    correction = trajectory.Correction(
        "acme", "s2", "t1", "t2", True, make.NOON, make.NOON, "s1", 1, 0, "agent", "prefix",
        2, 1, 0, None, None, None, None, "read", "approximate",
        (trajectory.LinkTo("fork", "s1", "t1", make.NOON, "prefix"),),
    )  # fmt: skip
    rows = (step, make.tool_step("t1", 1), make.signal("t1", 1.0), make.message("user", "hi"))
    for row in (*rows, correction):
        document = to_json(row)
        fits(type(row).__name__, document)
        assert from_json(type(row), document) == row


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["steps"], 3, "steps: expected a list, found 3"),
        (["steps", 0, "output"], None, r"steps\[0\].output: expected an object, found null"),
        (["steps", 0, "output", "parts", 0, "type"], "song", r"parts\[0\].type: expected one of"),
        (["steps", 0, "usage"], {"input_tokens": "x"}, "usage.input_tokens: expected an integer"),
        (["steps", 0, "usage"], {"wrong": 1}, "usage: unknown field 'wrong'; known: cached"),
        (["schema_version"], 9, "schema_version is 9; this release reads 1"),
        (["steps", 1, "loss_mask"], [1], r"steps\[1\].loss_mask\[0\]: expected true or false"),
    ],
)
def test_errors_name_document_and_field(path: list[Any], value: Any, words: str) -> None:
    document: Any = json.loads(json.dumps(to_json(own_trajectory())))
    inner = document
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    with pytest.raises(FormError, match=r"^a\.jsonl:3.*" + words):
        from_json(Trajectory, document, where="a.jsonl:3")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_reader_refuses_exactly_what_the_schema_refuses(data: st.DataObject) -> None:
    document: Any = json.loads(json.dumps(to_json(own_trajectory())))
    inner, name = document, data.draw(st.sampled_from(sorted(document)))
    while isinstance(inner[name], dict | list) and inner[name] and data.draw(st.booleans()):
        inner = inner[name]
        keys = sorted(inner) if isinstance(inner, dict) else range(len(inner))
        name = data.draw(st.sampled_from(keys))
    inner[name] = data.draw(JSON)
    right = jsonschema.Draft202012Validator(SCHEMA).is_valid(document)
    try:
        from_json(Trajectory, document)
    except FormError:
        assert not right
    else:
        assert right
