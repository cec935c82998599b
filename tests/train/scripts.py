"""Sessions written turn by turn, as lakes hold them: who says what, which tools are called."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from governance.records import GovernedBatch
from lakehouse.lake import Lake
from tests.train.lakes import START, Session, batch
from trajectory.canonical import canonical_json, content_hash
from trajectory.message import Message, Part, TextPart, ToolCallPart, ToolResultPart
from trajectory.step import Harness, Step, StoredMessage, ToolCall

OWNER = "You help in a shop. Refunds are paid within 14 days. Confirm with the customer before you call cancel_order."


def tool(name: str, description: str = "", **properties: Any) -> dict[str, Any]:
    """Return a definition as chat completions write it; all properties are required."""
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


TOOLS = (
    tool("get_order", "Looks up one order.", order={"type": "string"}),
    tool("verify_identity", "Checks who the customer is.", code={"type": "string"}),
    tool(
        "refund", "Pays back. Only for delivered orders.",
        order={"type": "string"},
        amount={"type": "number", "minimum": 0, "maximum": 50},
        reason={"type": "string", "enum": ["damaged", "late"]},
    ),
    tool("cancel_order", "Cancels an order.", order={"type": "string"}),
    tool("delete_account", "Deletes an account.", account={"type": "string"}),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Script:
    """One session: a person's words as text, calls as (name, arguments, answer), answers as ``> text``."""

    number: int
    turns: Sequence[str | tuple[str, dict[str, Any], str]]
    person: str | None = None
    mentioned: tuple[str, ...] = ()
    """Whom its first step names beside that person, or as whom it knows the same one, too."""
    success: float | None = 1.0
    tenant: str = "acme"
    purposes: tuple[str, ...] = ("evolve",)
    owner: str = OWNER
    tools: tuple[dict[str, Any], ...] = TOOLS

    @property
    def trajectory(self) -> str:
        return f"t{self.number:05d}"

    def rounds(self) -> list[tuple[list[Message], Message]]:
        """Return what each step was told anew, and what it said."""
        told: list[Message] = [Message("system", (TextPart(self.owner),))]
        found = []
        for at, turn in enumerate(self.turns):
            if isinstance(turn, tuple):
                name, arguments, answer = turn
                call = f"call-{self.number}-{at}"
                part: Part = ToolCallPart(call, name, arguments)
                found.append((told, Message("assistant", (part,))))
                told = [Message("tool", (ToolResultPart(call, answer),))]
            elif turn.startswith("> "):
                found.append((told, Message("assistant", (TextPart(turn[2:]),))))
                told = []
            else:
                told = [*told, Message("user", (TextPart(turn),))]
        return found


def lake_of_scripts(folder: Path, *scripts: Script) -> Lake:
    """Return a new lake that holds some sessions."""
    lake = Lake.open(str(folder))
    for at, script in enumerate(scripts):
        lake.append(_batch(script), app_id="test", version=at)
    return lake


def _batch(script: Script) -> GovernedBatch:
    base = Session(
        script.number, reward=script.success, tenant=script.tenant, purposes=script.purposes,
        subject=script.person or f"b2:subject-{script.number}",
    )  # fmt: skip
    made = batch(base)
    rounds = script.rounds()
    steps, messages = [], {}
    harness = f"h-{content_hash([script.owner, list(script.tools)])}"
    kept = 0
    for index, (told, said) in enumerate(rounds):
        for message in (*told, said):
            messages[_id(script.tenant, message)] = message
        calls = tuple(
            ToolCall(part.call_id, part.name, canonical_json(part.arguments).decode())
            for part in said.parts
            if isinstance(part, ToolCallPart)
        )
        steps.append(_step(base, script, index, told, said, kept, calls, harness))
        kept += len(told) + 1
    governed = {record.step_id: record for record in made.governance}
    first = governed[f"{script.trajectory}-0"]
    exchange = made.exchanges[0]
    return replace(
        made,
        steps=tuple(steps),
        exchanges=tuple(
            replace(exchange, exchange_id=step.exchange_id, step_id=step.step_id) for step in steps
        ),
        governance=tuple(
            replace(
                first,
                step_id=step.step_id,
                started_at=step.started_at,
                subjects=first.subjects if at else (*first.subjects, *script.mentioned),
            )
            for at, step in enumerate(steps)
        ),
        messages=tuple(
            StoredMessage(
                script.tenant, name, message.role,
                canonical_json(message.to_json()["parts"]).decode(), len(message.text()), START,
            )
            for name, message in messages.items()
        ),
        signals=tuple(replace(one, step_id=steps[-1].step_id) for one in made.signals),
        harnesses=(
            Harness(
                script.tenant, harness, script.owner,
                canonical_json(list(script.tools)).decode(), "{}", START,
            ),
        ),
    )  # fmt: skip


def _step(
    base: Session, script: Script, index: int, told: Sequence[Message], said: Message, kept: int,
    calls: tuple[ToolCall, ...], harness: str,
) -> Step:  # fmt: skip
    return replace(
        base.step(0),
        step_id=f"{script.trajectory}-{index}",
        step_index=index,
        parent_step_id=None if index == 0 else f"{script.trajectory}-{index - 1}",
        exchange_id=f"{script.trajectory}-e{index}",
        started_at=base.step(index).started_at,
        context_keep=kept,
        context_message_ids=tuple(_id(script.tenant, message) for message in told),
        output_message_id=_id(script.tenant, said),
        tool_calls=calls,
        harness_id=harness,
    )


def _id(tenant: str, message: Message) -> str:
    return content_hash([tenant, message.to_json()])
