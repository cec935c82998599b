"""The stored protocol: steps, messages by reference, tokens, signals, links and harnesses.

These are the rows of the lake, after governance: their content is redacted and named by hash.
Design: arXiv 2607.01120 argues for ⟨observation, harness state, action, outcome, reward,
metadata⟩ with late-bound reward; here reward is a :class:`Signal`, never a field of a step.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from trajectory.canonical import JsonObject
from trajectory.version import SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A redacted message, content-addressed: stored once per tenant however often it is resent."""

    tenant_id: str
    message_id: str
    """Hash, keyed by the tenant's salt, of the redacted message's canonical JSON."""
    role: str
    parts: str
    """JSON list of parts (see ``trajectory.message``), redacted."""
    characters: int
    first_seen_at: datetime
    name: str | None = None
    """What the participant called itself, redacted."""
    content_id: str | None = None
    """Hash of what the row holds since a name that was told later went from it; else the id is it."""
    schema_version: ClassVar[int] = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of a step's output, or the dispatch that a tool step stands for."""

    call_id: str
    name: str
    arguments: str
    """JSON, redacted."""
    arguments_valid: bool = True


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool result that this step observed (model step) or produced (tool step)."""

    call_id: str
    content: str | None
    """JSON, redacted. A model step's results stand in its messages already and are not stored twice:
    None there, but for the beginning of an error."""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One decision: what was observed, the action taken, what came of it."""

    tenant_id: str
    app_id: str
    environment: str
    trajectory_id: str
    step_id: str
    step_index: int
    """Position along the path from the root, from 0."""
    parent_step_id: str | None
    branch: int
    """0 for the first child of its parent, counting up for forks."""
    kind: str
    """model | tool"""
    role_in_graph: str
    """agent | auxiliary | discarded | compaction | queued (a look-up brings the answer) | shadow
    (another model's answer that nobody saw)"""
    key_source: str
    """What told that this exchange belongs to this trajectory; ``prefix`` and ``none`` are inferred."""
    exchange_id: str
    route: str
    dialect: str
    started_at: datetime
    ended_at: datetime | None
    context_keep: int
    """How many messages of the parent's conversation (its context plus its output) still lead this one."""
    context_message_ids: tuple[str, ...]
    """What follows them: the messages that are new in this step."""
    output_message_id: str | None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    model_requested: str | None = None
    model_served: str | None = None
    harness_id: str | None = None
    sampling: str = "{}"
    """JSON of the sampling parameters as really sent."""
    response_id: str | None = None
    finish_reason: str | None = None
    http_status: int | None = None
    error: str | None = None
    """Redacted."""
    streamed: bool = False
    retry_of: str | None = None
    """step_id of the failed attempt that this step repeats."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    latency_ms: float | None = None
    time_to_first_token_ms: float | None = None
    state_hash: str | None = None
    """Hash of the redacted observation that this step acted on: what the model was shown since it
    last spoke, ids of tool calls left out. Attempts that were shown the same share it."""
    capture_level: str = "text"
    """tokens | logprobs (the provider told ``mean_logprob``, and no ids) | text"""
    replay_class: str = "none"
    """deterministic | approximate | none"""
    session_hint: str | None = None
    """Keyed hash of the client's own session name; groups trajectories without naming anybody."""
    group_id: str | None = None
    """Task or group that several attempts share."""
    agent_role: str | None = None
    """Who acts: what the agent calls itself, else ``harness_name``."""
    harness_name: str | None = None
    """The agent's harness, whatever its version: the agent's own name, or one of its lineage."""
    harness_version: int | None = None
    """Number of the harness among those of this name, by first sight within tenant and application."""
    artifacts: tuple[str, ...] | None = None
    """What the gateway added to the request, ``name@version``; None where nothing was."""
    mean_logprob: float | None = None
    """Mean natural log of the probability of the answer's tokens, as the model told it."""
    ext: str = "{}"
    """JSON of fields that the protocol does not know, redacted."""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Tokens:
    """Exact tokens of one step. Token ids decode to text, so they follow the redaction decision."""

    tenant_id: str
    trajectory_id: str
    step_id: str
    started_at: datetime
    tokenizer_id: str | None
    prompt_token_ids: tuple[int, ...] | None
    completion_token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    """(len(completion_token_ids),) natural logs."""
    loss_mask: tuple[bool, ...] | None
    """(len(completion_token_ids),); False where redaction masked the span."""
    model_served: str | None
    token_fidelity: str
    """exact | pseudonymised_inline | span_masked | none"""
    schema_version: ClassVar[int] = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Signal:
    """A late-bound reward or piece of feedback; appended, never updated."""

    tenant_id: str
    signal_id: str
    target_kind: str
    """token_span | step | trajectory | session | group"""
    target_id: str
    trajectory_id: str | None
    step_id: str | None
    name: str
    value: float | None
    label: str | None
    rationale: str | None
    """Redacted."""
    source_kind: str
    """env | verifier | human_explicit | human_implicit | judge | rule"""
    source: str
    source_version: str | None
    confidence: float | None
    observed_at: datetime
    recorded_at: datetime
    supersedes: str | None = None
    is_gold: bool = False
    span_unit: str | None = None
    """characters | tokens: what a span of the step's answer is counted in."""
    span_start: int | None = None
    """Counted from 0, in the answer as the client got it."""
    span_end: int | None = None
    app_id: str | None = None
    """Of the client that gave it: a response id means the response of its own application first."""
    environment: str | None = None
    schema_version: ClassVar[int] = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Link:
    """How two steps or trajectories hang together."""

    tenant_id: str
    kind: str
    """prefix | retry | fork | subagent_call | subagent_return | compaction | handoff | tool_dispatch |
    auxiliary | approval | shadow"""
    from_step_id: str
    to_step_id: str
    trajectory_id: str
    recorded_at: datetime
    key_source: str = "prefix"
    schema_version: ClassVar[int] = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class LinkTo:
    """A link that ends at the step it stands with."""

    kind: str
    from_step_id: str
    trajectory_id: str
    recorded_at: datetime
    key_source: str


@dataclass(frozen=True, slots=True)
class Correction:
    """What holds of a stored step since an exchange came that belongs before it; the latest row holds."""

    tenant_id: str
    step_id: str
    trajectory_id: str
    stored_trajectory_id: str
    """The trajectory that it was stored in."""
    began: bool
    """It began the trajectory that it was stored in."""
    started_at: datetime
    """When the step began."""
    recorded_at: datetime
    parent_step_id: str | None
    step_index: int
    branch: int
    role_in_graph: str
    key_source: str
    context_keep: int | None
    """Messages of the parent's conversation that lead this one; None when parent and difference
    stay as they were stored."""
    context_skip: int
    """How many of the stored new messages the parent's conversation holds by now."""
    results_skip: int
    """How many tool results these messages hold."""
    retry_of: str | None
    duplicate_of: str | None
    """The step that this one only repeats: then it counts no longer."""
    session_hint: str | None
    group_id: str | None
    side_effect: str | None
    replay_class: str | None
    """Of a tool step: what follows from its side effect."""
    links: tuple[LinkTo, ...] = ()
    """All links that end at the step."""
    schema_version: ClassVar[int] = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Harness:
    """What surrounded the model: system prompt, tools and sampling defaults, redacted."""

    tenant_id: str
    harness_id: str
    system_prompt: str
    tools: str
    """JSON list of tool definitions."""
    sampling: str
    first_seen_at: datetime
    ext: JsonObject = field(default_factory=dict)
    schema_version: ClassVar[int] = SCHEMA_VERSION


__all__ = [
    "SCHEMA_VERSION",
    "Correction",
    "Harness",
    "Link",
    "LinkTo",
    "Signal",
    "Step",
    "StoredMessage",
    "Tokens",
    "ToolCall",
    "ToolResult",
]
