"""The rows of one call, before the quality gate has seen them: step, messages, tokens, harness."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from governance.identifiers import Namer
from governance.policy.capture import CaptureField
from governance.redact.trajectory import CleanCall, CleanMessage
from governance.vocabulary import finish_reason, reason_word
from trajectory.artifact import ARM, MODEL_ARM
from trajectory.assembly.effects import SideEffect, replay_class
from trajectory.assembly.fingerprint import result_text
from trajectory.assembly.result import PlacedCall
from trajectory.call import Call, CallKind
from trajectory.canonical import JsonValue, canonical_json
from trajectory.dialects.reader import mean_logprob
from trajectory.message import Message, ToolCallPart, ToolResultPart, part_json, stored_message
from trajectory.step import Harness, Step, StoredMessage, Tokens, ToolCall, ToolResult

_ERROR_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Draft:
    """The rows that one call would add, before the quality gate has seen them."""

    placed: PlacedCall
    clean: CleanCall
    step: Step
    messages: tuple[StoredMessage, ...]
    """All messages that the step names itself, known to the lake or not."""
    harness: Harness | None
    tokens: Tokens | None
    new: tuple[CleanMessage, ...]
    """What the step names itself, beside its output."""
    context_ids: tuple[str, ...] | None
    """The whole conversation that the step saw; None where part of it is known to the lake alone."""
    context_changed: bool
    """Whether redaction changed anything in it, as far as can be told; unknown counts as changed."""

    @property
    def conversation(self) -> tuple[str, ...] | None:
        """What a child of this step builds on: its whole context and its output."""
        output = self.step.output_message_id
        if self.context_ids is None or output is None:
            return self.context_ids
        return (*self.context_ids, output)


@dataclass(frozen=True, slots=True)
class DeltaBase:
    """What a step's conversation is stored against."""

    parent_step_id: str | None
    keep: int
    before: tuple[str, ...] | None = ()
    """Ids of kept messages that the call itself does not hold; None when only the lake knows them."""
    before_changed: bool = False
    """Whether redaction changed any of those."""


def base_on(
    placed: PlacedCall,
    clean: CleanCall,
    parent_step_id: str | None,
    parent: Draft | None,
    *,
    stored: bool,
) -> DeltaBase:
    """Return how much of the parent's conversation a step leans on.

    A parent in the same batch is compared message by message; one in the lake is trusted as
    assembly placed it; without a stored parent the whole conversation is stored again. A call
    that sent only what is new (``previous_response_id``) cannot do without its parent.
    """
    trusted = min(placed.context_keep, len(clean.context))
    known = parent.conversation if parent is not None else None
    if placed.context_is_delta:
        if parent is None or known is None:
            return DeltaBase(parent_step_id, placed.context_keep, None, before_changed=True)
        keep = min(placed.context_keep, len(known))
        return DeltaBase(parent_step_id, keep, known[:keep], _conversation_changed(parent))
    if parent is not None and known is not None:
        keep = 0
        for mine, theirs in zip(clean.context, known, strict=False):
            if mine.message_id != theirs:
                break
            keep += 1
        return DeltaBase(parent_step_id, keep)
    if parent is not None or (parent_step_id is not None and stored):
        return DeltaBase(parent_step_id, trusted)
    return DeltaBase(parent_step_id, 0)


def draft(
    placed: PlacedCall,
    clean: CleanCall,
    base: DeltaBase,
    *,
    without: frozenset[CaptureField],
    namer: Namer,
) -> Draft:
    """Return the rows of one call."""
    call = placed.call
    tenant = call.exchange.client.tenant_id
    new = clean.context if placed.context_is_delta else clean.context[base.keep :]
    context_ids = None
    state = state_hash(namer, tenant, [message.message for message in clean.context])
    if base.before is not None:
        context_ids = (*base.before, *[message.message_id for message in clean.context])
    changed = base.before_changed or any(one.report.counts for one in clean.context)
    tokens = _tokens(placed, clean, without, context_changed=changed)
    harness = None if CaptureField.TOOLS in without else _harness(call, clean, namer)
    step = _step(placed, clean, base, new, tokens, harness, state)
    written = (*new, *([clean.output] if clean.output else ()))
    messages = {one.message_id: _stored(tenant, one, call.exchange.started_at) for one in written}
    return Draft(
        placed, clean, step, tuple(messages.values()), harness, tokens, new, context_ids, changed
    )


def _conversation_changed(parent: Draft) -> bool:
    output = parent.clean.output
    return parent.context_changed or (output is not None and output.report.changed)


def state_hash(namer: Namer, tenant_id: str, context: Sequence[Message]) -> str | None:
    """Return the name of the state that a step acted on; None when nothing was shown since the last turn.

    The state is the redacted messages since the model last spoke. Two attempts at one task stand in
    the same state when they were shown the same: same tool answers, same words. Ids of tool calls
    differ between attempts and say nothing, so they are left out.
    """
    shown = context[_after_last_turn(context) :]
    if not shown:
        return None
    return namer.name(tenant_id, "state", [_without_call_ids(message) for message in shown])


def _after_last_turn(context: Sequence[Message]) -> int:
    for position in range(len(context) - 1, -1, -1):
        if context[position].role == "assistant":
            return position + 1
    return 0


def _without_call_ids(message: Message) -> JsonValue:
    parts: list[JsonValue] = [
        ["tool_result", part.content, part.is_error]
        if isinstance(part, ToolResultPart)
        else part_json(part)
        for part in message.parts
    ]
    return stored_message(message.role, parts, message.name)


def _stored(tenant: str, clean: CleanMessage, seen_at: datetime) -> StoredMessage:
    return StoredMessage(
        tenant_id=tenant,
        message_id=clean.message_id,
        role=clean.message.role,
        parts=clean.parts,
        characters=len(clean.parts),
        first_seen_at=seen_at,
        name=clean.message.name,
    )


def _step(
    placed: PlacedCall,
    clean: CleanCall,
    base: DeltaBase,
    new: Sequence[CleanMessage],
    tokens: Tokens | None,
    harness: Harness | None,
    state: str | None,
) -> Step:
    call, exchange, fields = placed.call, placed.call.exchange, clean.fields
    started, first, ended = exchange.started_at, exchange.first_byte_at, exchange.ended_at
    return Step(
        tenant_id=exchange.client.tenant_id,
        app_id=exchange.client.app_id,
        environment=exchange.client.environment,
        trajectory_id=placed.trajectory_id,
        step_id=placed.step_id,
        step_index=placed.step_index,
        parent_step_id=base.parent_step_id,
        branch=placed.branch,
        kind=call.kind.value,
        role_in_graph=reason_word(placed.role_in_graph),
        key_source=reason_word(placed.key_source),
        exchange_id=exchange.exchange_id,
        route=exchange.route,
        dialect=call.dialect,
        started_at=started,
        ended_at=ended,
        context_keep=base.keep,
        context_message_ids=tuple(message.message_id for message in new),
        output_message_id=clean.output.message_id if clean.output else None,
        tool_calls=_tool_calls(placed, clean),
        tool_results=_tool_results(placed, clean, new),
        model_requested=fields.model_requested,
        model_served=fields.model_served,
        harness_id=harness.harness_id if harness else None,
        sampling=_json(fields.sampling),
        response_id=fields.response_id,
        finish_reason=finish_reason(call.finish_reason),
        http_status=exchange.response.status if exchange.response else None,
        error=fields.error,
        streamed=call.streamed,
        retry_of=placed.retry_of,
        input_tokens=call.usage.input_tokens,
        output_tokens=call.usage.output_tokens,
        cached_input_tokens=call.usage.cached_input_tokens,
        latency_ms=(ended - started).total_seconds() * 1000 if ended else None,
        time_to_first_token_ms=(first - started).total_seconds() * 1000 if first else None,
        state_hash=state,
        capture_level=_capture_level(call, tokens),
        replay_class=_replay_class(placed),
        session_hint=placed.session_hint,
        group_id=placed.group_id,
        agent_role=fields.agent or fields.acts_as,
        artifacts=_added(call) or None,
        mean_logprob=_mean_logprob(call),
        ext=_json(_ext(placed, clean)),
    )


def _ext(placed: PlacedCall, clean: CleanCall) -> JsonValue:
    """Return the fields that the protocol does not know; server and side effect of a tool."""
    ext = clean.fields.ext
    if clean.fields.tool_server and isinstance(ext, dict):
        ext = {**ext, "tool_server": clean.fields.tool_server}
    shown = [each.partition("=") for each in placed.call.exchange.artifacts if "=" in each]
    if shown and isinstance(ext, dict):
        ext = {**ext, "artifact_facts": {label: [*facts.split("+")] for label, _, facts in shown}}
    for name, mark in (("artifact_arm", ARM), ("model_arm", MODEL_ARM)):
        arms = [
            each.removeprefix(mark)
            for each in placed.call.exchange.artifacts
            if each.startswith(mark)
        ]
        if arms and isinstance(ext, dict):
            ext = {**ext, name: arms[0]}
    if placed.side_effect is not None and isinstance(ext, dict):
        ext = {**ext, "side_effect": placed.side_effect}
    return ext


def _tool_calls(placed: PlacedCall, clean: CleanCall) -> tuple[ToolCall, ...]:
    if placed.call.dispatch is not None:
        arguments = _json(clean.fields.arguments)
        return (ToolCall(placed.step_id, clean.fields.tool_name, arguments),)
    parts = clean.output.message.parts if clean.output else ()
    return tuple(
        ToolCall(part.call_id, part.name, _json(part.arguments), part.arguments_valid)
        for part in parts
        if isinstance(part, ToolCallPart)
    )


def _tool_results(
    placed: PlacedCall, clean: CleanCall, new: Sequence[CleanMessage]
) -> tuple[ToolResult, ...]:
    if (dispatch := placed.call.dispatch) is not None:
        result = _json(clean.fields.result)
        return (ToolResult(placed.step_id, result, dispatch.is_error),)
    return tuple(
        ToolResult(part.call_id, _beginning(part) if part.is_error else None, part.is_error)
        for one in new
        for part in one.message.parts
        if isinstance(part, ToolResultPart)
    )


def _beginning(part: ToolResultPart) -> str:
    """Return what an error begins with, by which its class is told; the message holds the whole."""
    return _json(result_text(part.content)[:_ERROR_CHARACTERS])


def _replay_class(placed: PlacedCall) -> str:
    """Return whether the same call could be made again with a similar answer."""
    call = placed.call
    if placed.side_effect is not None:
        return replay_class(SideEffect(placed.side_effect))
    fixed = call.sampling.get("seed") is not None or call.sampling.get("temperature") == 0
    return "approximate" if call.kind is CallKind.MODEL and fixed else "none"


def _harness(call: Call, clean: CleanCall, namer: Namer) -> Harness | None:
    prompts: list[str] = []
    for one in clean.context:
        if one.message.role not in ("system", "developer"):
            break
        prompts.append(one.message.text())
    if not prompts and not clean.fields.tools:
        return None
    prompt, tools = "\n\n".join(prompts), clean.fields.tools
    tenant = call.exchange.client.tenant_id
    kept = ("harness", namer, tenant, prompt, bool(tools), bool(clean.fields.sampling))
    found: Harness | None = clean.fields.derived.get(kept)
    if found is None:
        found = Harness(
            tenant_id=tenant,
            harness_id=namer.name(tenant, "harness", [prompt, tools, clean.fields.sampling]),
            system_prompt=prompt,
            tools=_json(tools),
            sampling=_json(clean.fields.sampling),
            first_seen_at=call.exchange.started_at,
        )
        clean.fields.derived[kept] = found
    return replace(found, first_seen_at=call.exchange.started_at)


def _tokens(
    placed: PlacedCall,
    clean: CleanCall,
    without: frozenset[CaptureField],
    *,
    context_changed: bool,
) -> Tokens | None:
    """Return the exact tokens that redaction left true; token ids decode to text.

    A changed answer takes all tokens away. A changed context takes the prompt's tokens away, and so does
    what artefacts added to it, which an erasure could not take out of them: what
    stays is the answer, with its context masked.
    """
    call, captured = placed.call, placed.call.tokens
    output = clean.output
    hidden = CaptureField.REASONING in without and call.output is not None
    if captured is None or CaptureField.TOKENS in without or hidden:
        return None
    if output is None or output.report.changed:
        return None
    context_clean = not (context_changed or _tools_changed(clean) or _added(call))
    prompt = captured.prompt_token_ids if context_clean else None
    return Tokens(
        tenant_id=call.exchange.client.tenant_id,
        trajectory_id=placed.trajectory_id,
        step_id=placed.step_id,
        started_at=call.exchange.started_at,
        tokenizer_id=None,
        prompt_token_ids=prompt,
        completion_token_ids=captured.completion_token_ids,
        logprobs=captured.logprobs,
        loss_mask=None,
        model_served=clean.fields.model_served,
        token_fidelity=_fidelity(call, context_clean=context_clean),
    )


def _fidelity(call: Call, *, context_clean: bool) -> str:
    """Return whether tokens are those of the call; a provider that saw surrogates made them of these."""
    if not context_clean:
        return "span_masked"
    return "exact" if call.exchange.subjects is None else "pseudonymised_inline"


def _capture_level(call: Call, tokens: Tokens | None) -> str:
    if tokens is not None:
        return "tokens"
    return "text" if call.tokens is not None or call.mean_logprob is None else "logprobs"


def _mean_logprob(call: Call) -> float | None:
    """Return how sure the model was of its answer; a number gives no text away."""
    told = call.tokens.logprobs if call.tokens is not None else None
    return call.mean_logprob if told is None else mean_logprob(told)


def _added(call: Call) -> tuple[str, ...]:
    """Return the artefacts that added something to a call, ``name@version``."""
    return tuple(
        each.partition("=")[0]
        for each in call.exchange.artifacts
        if not each.startswith((ARM, MODEL_ARM))
    )


def _tools_changed(clean: CleanCall) -> bool:
    """Return whether redaction found anything in the definitions that the prompt also holds."""
    return any(place.path.startswith("/tools") for place in clean.fields.report.places)


def _json(value: JsonValue) -> str:
    return canonical_json(value).decode("utf-8", "replace")
