"""ATIF: identical documents back, documents of our own that Harbor's validators accept."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trajectory.documents import own_trajectory
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError
from trajectory.formats.atif import export_document, import_document
from trajectory.message import Message, ToolCallPart, ToolResultPart

DOCUMENT: dict[str, Any] = {
    "schema_version": "ATIF-v1.8",
    "session_id": "run-1",
    "agent": {
        "name": "terminal-agent",
        "version": "2.0.1",
        "model_name": "m",
        "tool_definitions": [{"type": "function", "function": {"name": "sh", "parameters": {}}}],
        "extra": {"temperature": 0.7},
    },
    "notes": "a note",
    "steps": [
        {"step_id": 1, "source": "system", "message": "You have a shell."},
        {
            "step_id": 2,
            "timestamp": "2026-01-01T00:00:00Z",
            "source": "user",
            "message": [
                {"type": "text", "text": "What is this?"},
                {"type": "image", "source": {"media_type": "image/png", "path": "images/1.png"}},
            ],
        },
        {
            "step_id": 3,
            "timestamp": "2026-01-01T00:00:01.500+00:00",
            "source": "agent",
            "model_name": "m-2",
            "reasoning_effort": 0.5,
            "message": "",
            "reasoning_content": "Look.",
            "tool_calls": [
                {"tool_call_id": "c1", "function_name": "sh", "arguments": {"cmd": "ls"}},
                {
                    "tool_call_id": "c2",
                    "function_name": "sh",
                    "arguments": {},
                    "extra": {"timeout": 3},
                },
            ],
            "observation": {
                "results": [
                    {"source_call_id": "c1", "content": "a.txt"},
                    {"content": None, "extra": {"score": 1.0}},
                    {
                        "source_call_id": "c2",
                        "content": "x",
                        "subagent_trajectory_ref": [{"trajectory_id": "sub"}],
                    },
                ]
            },
            "metrics": {
                "prompt_tokens": 520,
                "completion_tokens": 3,
                "cached_tokens": 0,
                "cost_usd": 0.00045,
                "prompt_token_ids": [1, 2],
                "completion_token_ids": [7, 8, 9],
                "logprobs": [-0.1, -0.25, 0.0],
                "extra": {"reasoning_tokens": 1},
            },
            "llm_call_count": 1,
        },
        {
            "step_id": 4,
            "source": "agent",
            "message": "It is a file.",
            "tool_calls": [],
            "is_copied_context": False,
            "extra": {"signals": [{"name": "success", "value": 1.0, "source_kind": "verifier"}]},
        },
    ],
    "final_metrics": {"total_steps": 4, "total_cost_usd": 1},
    "extra": {"signals": [{"name": "reward", "value": 0.5, "source_kind": "verifier"}], "x": []},
    "subagent_trajectories": [
        {
            "schema_version": "ATIF-v1.8",
            "trajectory_id": "sub",
            "agent": {"name": "s", "version": "1"},
            "steps": [{"step_id": 1, "source": "agent", "message": "done"}],
        }
    ],
}


def test_a_document_comes_back_identical_and_is_understood() -> None:
    trajectory = import_document(DOCUMENT)
    assert canonical_json(export_document(trajectory)) == canonical_json(DOCUMENT)
    first, second = trajectory.steps
    assert [message.role for message in first.observed] == ["system", "user"]
    assert first.output.tool_calls()[0] == ToolCallPart("c1", "sh", {"cmd": "ls"})
    assert first.tokens is not None
    assert first.tokens.logprobs == (-0.1, -0.25, 0.0)
    assert first.usage.input_tokens == 520
    assert second.observed[0] == Message("tool", (ToolResultPart("c1", "a.txt"),))
    assert second.signals[0].value == 1.0
    assert trajectory.signals[0].name == "reward"


def test_what_the_protocol_knows_needs_no_patch() -> None:
    plain = {
        "schema_version": "ATIF-v1.8",
        "session_id": "s",
        "agent": {"name": "a", "version": "1"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "hi"},
            {
                "step_id": 2,
                "timestamp": "2026-01-01T00:00:00Z",
                "source": "agent",
                "message": "hello",
                "tool_calls": [{"tool_call_id": "c", "function_name": "f", "arguments": {"a": 1}}],
                "observation": {"results": [{"source_call_id": "c", "content": "ok"}]},
                "metrics": {"prompt_tokens": 1, "completion_tokens": 2},
            },
        ],
    }
    assert import_document(plain).ext == {}


TEXT = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=5,
)
STEP = st.fixed_dictionaries(
    {"source": st.sampled_from(["system", "user", "agent"]), "message": TEXT},
    optional={
        "timestamp": TEXT,
        "tool_calls": st.lists(
            st.fixed_dictionaries(
                {"tool_call_id": TEXT, "function_name": TEXT, "arguments": JSON},
                optional={"extra": JSON},
            ),
            max_size=2,
        ),
        "observation": st.fixed_dictionaries(
            {
                "results": st.lists(
                    st.fixed_dictionaries({"content": JSON}, optional={"source_call_id": TEXT}),
                    max_size=2,
                )
            }
        ),
        "metrics": st.dictionaries(st.sampled_from(["prompt_tokens", "cost_usd", "x"]), JSON),
        "reasoning_content": TEXT,
        "unknown": JSON,
    },
)


@settings(max_examples=100, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=4), st.dictionaries(TEXT, JSON, max_size=2))
def test_any_document_comes_back_identical(
    steps: list[dict[str, Any]], more: dict[str, Any]
) -> None:
    document = {**more, "schema_version": "ATIF-v1.6", "agent": {"name": "a"}, "steps": steps}
    assert canonical_json(export_document(import_document(document))) == canonical_json(document)


def test_what_is_no_atif_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not an ATIF document"):
        import_document({"messages": []})


def test_our_own_trajectory_survives_the_way_out_and_in() -> None:
    document = export_document(own_trajectory())
    assert [step["source"] for step in document["steps"]] == [  # type: ignore[index,union-attr,call-overload]
        "system",
        "user",
        "agent",
        "agent",
        "agent",
        "user",
    ]
    assert canonical_json(export_document(import_document(document))) == canonical_json(document)
    again = import_document(document)
    assert again.steps[0].output == own_trajectory().steps[0].output
    assert again.steps[2].signals == own_trajectory().steps[2].signals
