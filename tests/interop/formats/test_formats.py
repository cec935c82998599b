"""Harbor's and OpenEnv's own models accept our documents; OpenInference's own spans become steps."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.headrace.pipelines import pipeline
from tests.interop.formats.conftest import run
from tests.proxy.gateway_process import SPOOL_KEY, GatewayProcess
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json
from tests.trajectory.documents import own_trajectory
from tests.trajectory.formats.test_atif import DOCUMENT
from trajectory.canonical import canonical_json
from trajectory.formats import atif, openenv, traces
from trajectory.telemetry.spans import decode_export, encode_json


def broken(change: dict[str, Any]) -> Any:
    trace: Any = openenv.export_document(own_trajectory())
    trace["turns"][0] |= change
    return trace


BROKEN = [
    ({"prompt_token_ids": []}, "no_prompt_ids"),
    ({"prompt_token_ids": [-1, 2]}, "invalid_token_id"),
    ({"per_token_logps": [-0.5]}, "logprob_misalign"),
    ({"per_token_logps": [0.5, -0.25, 0.0]}, "positive_logprob"),
    ({"loss_mask": [1]}, "length_mismatch"),
    ({"loss_mask": [0, 0, 2, 1, 0]}, "invalid_loss_mask"),
    ({"loss_mask": [1, 0, 1, 1, 0]}, "trainable_prompt"),
]


def test_their_own_models_accept_and_refuse_what_we_do(python: str) -> None:
    right = openenv.export_document(own_trajectory())
    wrong = [broken(change) for change, _ in BROKEN]
    documents = {
        "atif": [DOCUMENT, atif.export_document(own_trajectory()), {**DOCUMENT, "steps": []}],
        "openenv": [right, *wrong],
    }
    told = json.loads(run(python, "validate.py", given=json.dumps(documents)))
    assert told["atif"][:2] == ["", ""]
    assert told["atif"][2] != ""
    accepted, *refused = told["openenv"]
    assert accepted == ""
    assert [one.level for one in openenv.validate(right)] == []
    for error, document, (_, code) in zip(refused, wrong, BROKEN, strict=True):
        assert code in error
        found = openenv.validate(document)
        assert code in {one.code for one in found if one.level == "FATAL"}


def provider(request: ReceivedRequest) -> Reply:
    """Ask for the tool first, then answer with what it said."""
    messages = json.loads(request.body)["messages"]
    message: dict[str, Any] = {"role": "assistant", "content": f"It is {messages[-1]['content']}."}
    if messages[-1]["role"] != "tool":
        function = {"name": "add", "arguments": '{"a": 1, "b": 1}'}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        }
    reason = "tool_calls" if "tool_calls" in message else "stop"
    return as_json(
        {
            "id": f"chatcmpl-{len(messages)}",
            "object": "chat.completion",
            "created": 1,
            "model": "m-1",
            "choices": [{"index": 0, "finish_reason": reason, "message": message}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
        }
    )


@pytest.mark.slow
def test_openinference_spans_of_a_real_agent_become_steps_and_documents(
    python: str, tmp_path: Path
) -> None:
    with Upstream(provider) as upstream, GatewayProcess(tmp_path) as gateway:
        run(
            python,
            "instrumented.py",
            f"{upstream.url}/v1",
            f"{gateway.url}/v1/traces",
            gateway.key,
        )
        (exchange,) = gateway.exchanges(1)
    carried = pipeline(tmp_path, spool_key=SPOOL_KEY)
    while carried.run_batch() is not None:
        pass
    steps = carried.lake.query("select * from steps order by step_index").to_pylist()
    assert [step["dialect"] for step in steps] == ["openinference"] * 2
    assert steps[1]["parent_step_id"] == steps[0]["step_id"]
    assert steps[1]["context_keep"] == 3
    assert [step["response_id"] for step in steps] == ["chatcmpl-2", "chatcmpl-4"]
    assert {step["key_source"] for step in steps} == {"client:session.id"}
    assert json.loads(steps[0]["sampling"]) == {"max_tokens": 9, "temperature": 0.5}
    assert steps[0]["tool_calls"][0]["arguments"] == '{"a":1,"b":1}'
    assert (steps[1]["input_tokens"], steps[1]["output_tokens"]) == (7, 2)

    spans = decode_export(exchange.request.body, "application/x-protobuf")
    (document,) = traces.split_traces(encode_json(spans), "x")
    trajectory = traces.OPENINFERENCE_FORMAT.import_document(document)
    assert [message.role for message in trajectory.messages()] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert trajectory.session_id == "session-7"
    again = traces.OPENINFERENCE_FORMAT.export_document(trajectory)
    assert canonical_json(again) == canonical_json(document)
