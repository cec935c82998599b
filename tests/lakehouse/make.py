"""Makes governed batches for tests: small trajectories with every table filled."""

import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

from governance.records import (
    GovernanceRecord,
    GovernedBatch,
    LedgerRecord,
    QuarantineRecord,
)
from trajectory.canonical import canonical_json, content_hash
from trajectory.message import Message, TextPart
from trajectory.step import (
    Correction,
    Harness,
    Link,
    LinkTo,
    Signal,
    Step,
    StoredMessage,
    Tokens,
    ToolCall,
    ToolResult,
)

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def message(role: str, text: str, *, tenant: str = "acme") -> StoredMessage:
    value = Message(role, (TextPart(text),)).to_json()
    parts = canonical_json(value["parts"]).decode()
    return StoredMessage(tenant, content_hash(value), role, parts, len(text), NOON)


def step(trajectory: str, index: int, **changes: Any) -> Step:
    values: dict[str, Any] = {
        "tenant_id": "acme", "app_id": "shop", "environment": "test", "trajectory_id": trajectory,
        "step_id": f"{trajectory}-s{index}", "step_index": index,
        "parent_step_id": f"{trajectory}-s{index - 1}" if index else None, "branch": 0,
        "kind": "model", "role_in_graph": "agent", "key_source": "header:x-headrace-session",
        "exchange_id": f"{trajectory}-x{index}", "route": "openai", "dialect": "openai.chat",
        "started_at": NOON + timedelta(seconds=index),
        "ended_at": NOON + timedelta(seconds=index + 1), "context_keep": 2 if index else 0,
        "context_message_ids": (message("user", f"{trajectory} asks {index}").message_id,),
        "output_message_id": message("assistant", f"{trajectory} says {index}").message_id,
        "model_requested": "m", "model_served": "m@1", "response_id": f"chatcmpl-{trajectory}-{index}",
        "finish_reason": "stop", "http_status": 200, "input_tokens": 10, "output_tokens": 5,
        "group_id": f"g-{trajectory}",
    }  # fmt: skip
    if index:
        values["context_keep"] = 2 * index
    return Step(**{**values, **changes})


def governed(one: Step, **changes: Any) -> GovernanceRecord:
    values: dict[str, Any] = {
        "tenant_id": one.tenant_id, "step_id": one.step_id, "trajectory_id": one.trajectory_id,
        "decided_at": one.started_at, "started_at": one.started_at, "policy_hash": "b2:policy",
        "decision": "redact", "reasons": ("pii:EMAIL_ADDRESS×1",), "subjects": (),
        "data_classes": ("contact",), "legal_basis": "contract",
        "purposes": ("train_sft", "debug"), "consent_reference": None,
        "retention_class": "default", "expires_at": None, "legal_hold": False,
        "redaction_report": "{}", "redaction_counts": {"EMAIL_ADDRESS": 1},
    }  # fmt: skip
    return GovernanceRecord(**{**values, **changes})


def ledger(one: Step, **changes: Any) -> LedgerRecord:
    values: dict[str, Any] = {
        "tenant_id": one.tenant_id, "exchange_id": one.exchange_id, "app_id": one.app_id,
        "environment": one.environment, "key_id": "k1", "route": one.route, "mode": "base_url",
        "dialect": one.dialect, "started_at": one.started_at, "ended_at": one.ended_at,
        "outcome": "complete", "http_status": 200, "request_bytes": 100, "response_bytes": 50,
        "disposition": "stored", "reasons": (), "trajectory_id": one.trajectory_id,
        "step_id": one.step_id, "policy_hash": "b2:policy", "spool_writer": "w",
        "spool_segment": 0, "spool_offset": zlib.crc32(one.exchange_id.encode()),
    }  # fmt: skip
    return LedgerRecord(**{**values, **changes})


def signal(trajectory: str, value: float, **changes: Any) -> Signal:
    values: dict[str, Any] = {
        "tenant_id": "acme", "signal_id": f"sig-{trajectory}-{value}", "target_kind": "trajectory",
        "target_id": trajectory, "trajectory_id": trajectory, "step_id": None, "name": "success",
        "value": value, "label": None, "rationale": None, "source_kind": "verifier",
        "source": "unit", "source_version": None, "confidence": None, "observed_at": NOON,
        "recorded_at": NOON + timedelta(minutes=1),
    }  # fmt: skip
    return Signal(**{**values, **changes})


def batch(trajectory: str, *, steps: int = 2, reward: float | None = 1.0) -> GovernedBatch:
    """Return a linear trajectory of model steps with its rows in every table."""
    made = [step(trajectory, index) for index in range(steps)]
    messages = [
        message(role, f"{trajectory} {verb} {index}")
        for index in range(steps)
        for role, verb in (("user", "asks"), ("assistant", "says"))
    ]
    return GovernedBatch(
        exchanges=tuple(ledger(one) for one in made),
        messages=tuple(messages),
        steps=tuple(made),
        tokens=tuple(
            Tokens(one.tenant_id, one.trajectory_id, one.step_id, one.started_at, "tok",
                   (1, 2), (3,), (-0.5,), (True,), "m@1", "exact")
            for one in made
        ),
        signals=() if reward is None else (signal(trajectory, reward),),
        links=tuple(
            Link("acme", "prefix", made[i - 1].step_id, made[i].step_id, trajectory, NOON)
            for i in range(1, steps)
        ),
        harnesses=(Harness("acme", f"h-{trajectory}", "be good", "[]", "{}", NOON),),
        governance=tuple(governed(one) for one in made),
        quarantine=(
            QuarantineRecord("acme", f"q-{trajectory}", f"{trajectory}-x9", None, None, NOON, NOON,
                             "read", "not-json", "{}", "b2:policy"),
        ),
    )  # fmt: skip


def correction(one: Step, **changes: Any) -> Correction:
    """Return a correction of a step that says what was stored."""
    values: dict[str, Any] = {
        name: getattr(one, name) for name in Correction.__slots__ if hasattr(one, name)
    }
    links = ()
    if one.parent_step_id is not None:
        place = changes.get("trajectory_id", one.trajectory_id)
        link = LinkTo("prefix", one.parent_step_id, place, NOON, "prefix")
        links = (link,)
    return Correction(**{
        **values, "stored_trajectory_id": one.trajectory_id, "began": one.step_index == 0,
        "recorded_at": NOON, "context_skip": 0, "results_skip": 0, "duplicate_of": None,
        "side_effect": None, "replay_class": None, "links": links, **changes,
    })  # fmt: skip


def tool_step(trajectory: str, index: int, *, failed: bool = False, name: str = "lookup") -> Step:
    """Return the dispatch of a tool as a step of its own."""
    return step(
        trajectory, index, kind="tool", dialect="mcp", context_keep=0, context_message_ids=(),
        output_message_id=None, model_served=None, model_requested=None, response_id=None,
        tool_calls=(ToolCall(f"c{index}", name, "{}"),),
        tool_results=(ToolResult(f"c{index}", '"x"', failed),),
    )  # fmt: skip
