"""OpenEnv traces: what stands in them, their codes, and how TRL's own code reads them."""

import ast
import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tests.trajectory.documents import own_trajectory
from trajectory.formats.catalog import FORMATS
from trajectory.formats.openenv import export_document, import_document, validate
from trajectory.json_form import FormError
from trajectory.portable import Trajectory


class TurnRecord(NamedTuple):
    """As TRL's, which is not imported here: it starts torch."""

    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    mask: list[int]


def trl_reader() -> Any:
    """Return the function of TRL 1.16 that reads a trace, out of its source."""
    spec = importlib.util.find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    file = Path(spec.origin).parent / "experimental" / "async_grpo" / "openenv_harness.py"
    tree = ast.parse(file.read_text("utf-8"))
    name = "_turns_from_training_trace"
    found = next(one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name)
    found.args.args[0].annotation = found.returns = None
    scope: dict[str, Any] = {"TurnRecord": TurnRecord}
    exec(compile(ast.Module([found], []), str(file), "exec"), scope)  # noqa: S102 - TRL's own source
    return scope[name]


def test_trl_reads_tokens_logprobs_and_masks() -> None:
    document: Any = export_document(own_trajectory())
    trace = SimpleNamespace(turns=[SimpleNamespace(**turn) for turn in document["turns"]])
    (turn,) = trl_reader()(trace)
    assert turn == ([1, 2], [7, 8, 9], [-0.5, -0.25, 0.0], [1, 1, 0])


def test_a_trace_holds_only_steps_with_exact_tokens_and_carries_the_rest() -> None:
    document: Any = export_document(own_trajectory())
    (turn,) = document["turns"]
    assert [message["role"] for message in turn["request"]["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]
    assert turn["response"]["choices"][0]["finish_reason"] == "stop"
    assert turn["metadata"]["sampling_params"] == {"temperature": 0.5}
    assert len(import_document(document).steps) == 3
    del turn["metadata"]["headrace"]
    assert len(import_document(document).steps) == 1


def test_a_trajectory_without_exact_tokens_tells_its_loss() -> None:
    whole = own_trajectory()
    bare = replace(whole, steps=tuple(replace(step, tokens=None) for step in whole.steps))
    (written,) = FORMATS["openenv"].write([bare])
    assert written.document == {"schema_version": 1, "turns": []}
    assert {"steps", "tools", "trailing", "signals"} <= set(written.lost)
    with pytest.raises(FormError, match="x: turns: a trace without a turn"):
        import_document(written.document, where="x")


def test_warnings_do_not_refuse() -> None:
    document: Any = export_document(own_trajectory())
    turn = document["turns"][0]
    turn["loss_mask"] = [0] * 5
    turn["response"]["choices"][0]["finish_reason"] = "length"
    assert {(one.level, one.code) for one in validate(document)} == {
        ("WARN", "nothing_trainable"),
        ("WARN", "truncated_turn"),
    }
    assert isinstance(import_document(json.loads(json.dumps(document))), Trajectory)
    document["turns"].append(turn)
    assert "trace_duplicate_node" in {one.code for one in validate(document)}
