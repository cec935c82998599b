"""What the gate sees of a step: numbers, fixed words and hashes, no text of a client."""

import math
from collections.abc import Collection
from dataclasses import dataclass

from governance.passes.drafts import Draft
from governance.quality.leftovers import LeftoverCheck
from trajectory.call import CallKind
from trajectory.exchange import ExchangeOutcome
from trajectory.formats.openenv import fatal_code
from trajectory.message import ToolCallPart, ToolResultPart


@dataclass(frozen=True, slots=True)
class StepFacts:
    """One row of the projection; its fields are the columns of ``governance.policy.quality``."""

    step_id: str
    tenant_id: str
    kind: str
    role_in_graph: str
    dialect: str
    key_source: str
    outcome: str
    http_status: int | None
    step_index: int
    finished: int
    context_messages: int
    output_parts: int | None
    output_characters: int | None
    tool_calls: int
    invalid_tool_arguments: int
    unanswered_tool_results: int
    leftover_findings: int
    missing_messages: int
    parent_missing: int
    completion_tokens: int | None
    logprobs: int | None
    highest_logprob: float | None
    token_code: str | None
    latency_ms: float | None
    time_reversed: int

    @property
    def key(self) -> str:
        """By what a failing row is named."""
        return self.step_id


def step_facts(
    draft: Draft,
    *,
    leftovers: LeftoverCheck,
    messages: Collection[str],
    parents: Collection[str],
) -> StepFacts:
    """Return the projection of one draft.

    Args:
        draft: the rows that the step would add.
        leftovers: the second pass over redacted text.
        messages: ids of messages that are in the lake or come with this batch.
        parents: ids of steps that are in the lake or come with this batch.
    """
    step, output, exchange = draft.step, draft.clean.output, draft.placed.call.exchange
    named = [*step.context_message_ids, *([step.output_message_id] if output else [])]
    logprobs = draft.tokens.logprobs if draft.tokens else None
    return StepFacts(
        step_id=step.step_id,
        tenant_id=step.tenant_id,
        kind=step.kind,
        role_in_graph=step.role_in_graph,
        dialect=step.dialect,
        key_source=step.key_source,
        outcome=exchange.outcome.value,
        http_status=step.http_status,
        step_index=step.step_index,
        finished=int(_finished(draft)),
        context_messages=step.context_keep + len(step.context_message_ids),
        output_parts=len(output.message.parts) if output else None,
        output_characters=len(output.message.text()) if output else None,
        tool_calls=len(step.tool_calls),
        invalid_tool_arguments=sum(not call.arguments_valid for call in step.tool_calls),
        unanswered_tool_results=_unanswered(draft),
        leftover_findings=_left(draft, leftovers),
        missing_messages=sum(name not in messages for name in named),
        parent_missing=int(step.context_keep > 0 and step.parent_step_id not in parents),
        completion_tokens=len(draft.tokens.completion_token_ids) if draft.tokens else None,
        logprobs=len(logprobs) if logprobs is not None else None,
        highest_logprob=_highest(logprobs),
        token_code=_token_code(draft),
        latency_ms=step.latency_ms,
        time_reversed=int(step.ended_at is not None and step.ended_at < step.started_at),
    )


def _finished(draft: Draft) -> bool:
    """Return whether the answer came to its own end; a client may hang up once it has it."""
    call = draft.placed.call
    if call.kind is CallKind.MODEL:
        return call.finish_reason is not None
    answered = call.dispatch is not None and call.dispatch.result is not None
    return answered or call.exchange.outcome is ExchangeOutcome.COMPLETE


def _unanswered(draft: Draft) -> int:
    """Return how many tool results answer no call; calls that only the lake holds cannot be asked."""
    if draft.placed.context_is_delta:
        return 0
    asked: set[str] = set()
    strangers = 0
    for one in draft.clean.context:
        for part in one.message.parts:
            if isinstance(part, ToolCallPart):
                asked.add(part.call_id)
            elif isinstance(part, ToolResultPart) and part.call_id not in asked:
                strangers += 1
    return strangers


def _left(draft: Draft, leftovers: LeftoverCheck) -> int:
    step = draft.step
    texts = [step.error or "", step.ext, step.response_id or ""]
    small = "\n".join((step.sampling, step.model_requested or "", step.model_served or ""))
    in_names = leftovers.count_once(small, small)
    if draft.placed.call.dispatch is not None:
        texts += [call.name + " " + call.arguments for call in step.tool_calls]
        texts += [result.content or "" for result in step.tool_results]
    if draft.harness is not None:
        in_names += leftovers.count_once(f"tools {draft.harness.harness_id}", draft.harness.tools)
    in_messages = sum(
        leftovers.count_once(row.message_id, f"{row.parts}\n{row.name}" if row.name else row.parts)
        for row in draft.messages
    )
    # No pattern reaches over the end of a line, so the texts can be looked through as one.
    return in_names + in_messages + leftovers.count("\n".join(texts))


def _token_code(draft: Draft) -> str | None:
    tokens = draft.tokens
    if tokens is None:
        return None
    return fatal_code(tokens.prompt_token_ids, tokens.completion_token_ids, tokens.logprobs)


def _highest(logprobs: tuple[float, ...] | None) -> float | None:
    if not logprobs:
        return None
    return max(logprobs) if all(map(math.isfinite, logprobs)) else math.inf
