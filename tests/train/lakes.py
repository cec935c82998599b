"""Lakes for tests: agent sessions of two model steps with a tool between, as governance leaves them."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from governance.records import GovernanceRecord, GovernedBatch, LedgerRecord
from lakehouse.lake import Lake
from trajectory.canonical import canonical_json, content_hash
from trajectory.message import Message, TextPart, ToolCallPart, ToolResultPart
from trajectory.step import Harness, Signal, Step, StoredMessage, Tokens

START = datetime(2026, 11, 1, 12, tzinfo=UTC)
PURPOSES = ("debug", "train_sft", "train_preference", "train_rl")
TOOL = {"type": "function", "function": {"name": "price", "parameters": {"type": "object"}}}


@dataclass(frozen=True, slots=True)
class Session:
    """One agent session: a question, a tool call, its result, an answer, a reward."""

    number: int
    reward: float | None = 1.0
    tenant: str = "acme"
    group: str | None = None
    purposes: tuple[str, ...] = PURPOSES
    subject: str = "b2:subject-1"
    answer: str | None = None
    question: str | None = None
    lamps: int | None = None
    """What its tool call asks for; its number when None."""
    tokens: tuple[Tokens, ...] = ()
    """Exact tokens of its steps, when the engine gave them."""
    clock: bool = False
    """Its system prompt names the time: each step sends the whole history anew under another one."""

    @property
    def trajectory(self) -> str:
        return f"t{self.number:05d}"

    def messages(self) -> tuple[Message, ...]:
        """System, question, tool call, tool result, answer."""
        call = f"call-{self.number}"
        question = self.question or f"What do {self.number} lamps cost?"
        lamps = self.number if self.lamps is None else self.lamps
        return (
            self.system(0),
            Message("user", (TextPart(question),)),
            Message("assistant", (ToolCallPart(call, "price", {"lamps": lamps}),)),
            Message("tool", (ToolResultPart(call, f'{{"total": {2 * lamps}}}'),)),
            Message("assistant", (TextPart(self.answer or f"They cost {2 * self.number}."),)),
        )

    def system(self, index: int) -> Message:
        """The system prompt of a step."""
        told = f" It is 12:{self.number:02}:{10 + index}." if self.clock else ""
        return Message("system", (TextPart(f"You help in a shop.{told}"),))

    def message_ids(self) -> tuple[str, ...]:
        return tuple(_message_id(self.tenant, message) for message in self.messages())

    def step(self, index: int) -> Step:
        """The step that asked for the tool (0) or that answered (1)."""
        ids = self.message_ids()
        later = (_message_id(self.tenant, self.system(1)), *ids[1:4])
        resent = self.clock and index == 1
        moment = START + timedelta(minutes=self.number, seconds=index)
        return Step(
            tenant_id=self.tenant,
            app_id="app",
            environment="test",
            trajectory_id=self.trajectory,
            step_id=f"{self.trajectory}-{index}",
            step_index=index,
            parent_step_id=None if index == 0 else f"{self.trajectory}-0",
            branch=0,
            kind="model",
            role_in_graph="agent",
            key_source="header:x-headrace-session",
            exchange_id=f"{self.trajectory}-e{index}",
            route="practice",
            dialect="openai.chat",
            started_at=moment,
            ended_at=moment,
            context_keep=0 if index == 0 or resent else 3,
            context_message_ids=ids[:2] if index == 0 else later if resent else ids[3:4],
            output_message_id=ids[2] if index == 0 else ids[4],
            model_served="practice@0001",
            harness_id=f"h-{self.trajectory}-{index}" if self.clock else "h1",
            http_status=200,
            group_id=self.group,
            capture_level="tokens" if self.tokens else "text",
        )


def _message_id(tenant: str, message: Message) -> str:
    return content_hash([tenant, message.to_json()])


def batch(*sessions: Session, extra_steps: tuple[Step, ...] = ()) -> GovernedBatch:
    """Return the governed batch of some sessions."""
    steps = [session.step(index) for session in sessions for index in (0, 1)] + list(extra_steps)
    of = {session.trajectory: session for session in sessions}
    messages = {
        (session.tenant, _message_id(session.tenant, message)): message
        for session in sessions
        for message in (*session.messages(), session.system(1))
    }
    return GovernedBatch(
        exchanges=tuple(_ledger(step) for step in steps),
        messages=tuple(
            StoredMessage(
                tenant_id=tenant,
                message_id=message_id,
                role=message.role,
                parts=canonical_json(message.to_json()["parts"]).decode(),
                characters=len(message.text()),
                first_seen_at=START,
            )
            for (tenant, message_id), message in messages.items()
        ),
        steps=tuple(steps),
        tokens=tuple(tokens for session in sessions for tokens in session.tokens),
        signals=tuple(_signal(s) for s in sessions if s.reward is not None),
        harnesses=tuple(
            Harness(
                tenant, harness, "You help in a shop.", canonical_json([TOOL]).decode(), "{}", START
            )
            for tenant, harness in sorted({(s.tenant_id, s.harness_id or "h1") for s in steps})
        ),
        governance=tuple(_governance(step, of[step.trajectory_id]) for step in steps),
    )


def _ledger(step: Step) -> LedgerRecord:
    return LedgerRecord(
        tenant_id=step.tenant_id,
        exchange_id=step.exchange_id,
        app_id=step.app_id,
        environment=step.environment,
        key_id="k1",
        route=step.route,
        mode="base_url",
        dialect=step.dialect,
        started_at=step.started_at,
        ended_at=step.ended_at,
        outcome="complete",
        http_status=step.http_status,
        request_bytes=10,
        response_bytes=10,
        disposition="stored",
        reasons=(),
        trajectory_id=step.trajectory_id,
        step_id=step.step_id,
        policy_hash="b2:policy",
        spool_writer="w",
        spool_segment=0,
        spool_offset=0,
    )


def _signal(session: Session) -> Signal:
    moment = START + timedelta(minutes=session.number, seconds=9)
    return Signal(
        tenant_id=session.tenant,
        signal_id=f"s-{session.trajectory}",
        target_kind="response",
        target_id=f"resp-{session.number}",
        trajectory_id=session.trajectory,
        step_id=f"{session.trajectory}-1",
        name="success",
        value=session.reward,
        label=None,
        rationale=None,
        source_kind="verifier",
        source="test",
        source_version=None,
        confidence=None,
        observed_at=moment,
        recorded_at=moment,
    )


def _governance(step: Step, session: Session) -> GovernanceRecord:
    return GovernanceRecord(
        tenant_id=step.tenant_id,
        step_id=step.step_id,
        trajectory_id=step.trajectory_id,
        decided_at=step.started_at,
        started_at=step.started_at,
        policy_hash="b2:policy",
        decision="allow",
        reasons=(),
        subjects=(session.subject,),
        data_classes=(),
        legal_basis="consent",
        purposes=session.purposes,
        consent_reference=None,
        retention_class="standard",
        expires_at=None,
        legal_hold=False,
        redaction_report="{}",
    )


def lake_of(folder: Path, *sessions: Session, extra_steps: tuple[Step, ...] = ()) -> Lake:
    """Return a new lake that holds some sessions."""
    lake = Lake.open(str(folder))
    lake.append(batch(*sessions, extra_steps=extra_steps), app_id="test", version=0)
    return lake


def variant(session: Session, index: int, **changes: object) -> Step:
    """Return a step of a session with some fields changed."""
    return replace(session.step(index), **changes)  # type: ignore[arg-type]
