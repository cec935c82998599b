"""From a test case to the assembly that the governor judges."""

from datetime import datetime, timedelta

from governance.trial.cases import CaseCall, GivenMessage, GivenToolCall
from trajectory.assembly.result import Assembly, PlacedCall
from trajectory.call import Call, CallKind, TokenCapture
from trajectory.exchange import (
    ClientIdentity,
    Exchange,
    HttpRequest,
    HttpResponse,
    SpoolPosition,
)
from trajectory.message import Message, Part, TextPart, ToolCallPart, ToolResultPart


def assembly_of(given: CaseCall, now: datetime) -> Assembly:
    """Return the calls of a case, one trajectory for each attempt and each look-alike."""
    task = "group" if given.attempts > 1 else None
    sessions = [(given, task)] * given.attempts
    sessions += [(_like(given, at), f"other-{at}") for at in range(1, given.look_alikes + 1)]
    placed: list[PlacedCall] = []
    for attempt, (said, group) in enumerate(sessions):
        for repeat in range(given.repeats):
            call = call_of(said, now, number=len(placed))
            placed.append(
                PlacedCall(
                    call=call,
                    trajectory_id=f"trajectory-{attempt}",
                    step_id=f"step-{attempt}-{repeat}",
                    step_index=0,
                    parent_step_id=None,
                    branch=repeat,
                    role_in_graph="discarded" if call.output is None else "agent",
                    key_source="none",
                    context_keep=0,
                    new_messages=call.context,
                    duplicate_of=f"step-{attempt}-0" if repeat else None,
                    group_id=group,
                )
            )
    return Assembly(tuple(placed), (), (), ())


def _like(given: CaseCall, number: int) -> CaseCall:
    """Return a case that asks almost the same: its last message ends in full stops."""
    *before, last = given.messages
    asked = last.model_copy(update={"content": f"{last.content}{'.' * number}"})
    return given.model_copy(update={"messages": (*before, asked)})


def call_of(given: CaseCall, now: datetime, number: int = 0) -> Call:
    """Return the call that a case describes."""
    started = now - timedelta(days=given.captured_days_ago) + timedelta(milliseconds=number)
    tokens = None
    if given.tokens:
        count = given.tokens if given.logprobs is None else given.logprobs
        ids = tuple(range(given.tokens))
        tokens = TokenCapture((0, 1), ids, tuple(-0.5 for _ in range(count)))
    return Call(
        exchange=Exchange(
            exchange_id=f"{number:032x}",
            client=ClientIdentity(
                given.tenant, given.app, given.environment, "key", tuple(given.purposes)
            ),
            route=given.route,
            mode="base_url",
            upstream=given.provider,
            started_at=started,
            first_byte_at=started + timedelta(milliseconds=1),
            ended_at=started + timedelta(milliseconds=2),
            request=HttpRequest(
                "POST",
                "/v1/chat/completions",
                "",
                tuple((name.lower(), value) for name, value in given.headers.items()),
                b"",
            ),
            response=HttpResponse(given.http_status, (), b""),
            outcome=given.outcome,
            position=SpoolPosition("trial", 0, number),
        ),
        dialect="openai.chat",
        kind=CallKind.MODEL,
        context=tuple(_message(one, at) for at, one in enumerate(given.messages)),
        output=_answer(given),
        tools=given.tools,
        model_requested=given.model,
        model_served=given.model,
        finish_reason=given.finish_reason,
        tokens=tokens,
        end_user=given.end_user,
        error=given.error,
        ext=given.ext,
    )


def _answer(given: CaseCall) -> Message | None:
    parts: list[Part] = [] if given.answer is None else [TextPart(given.answer)]
    parts += [_tool_call(one, f"answer-{at}") for at, one in enumerate(given.tool_calls)]
    return Message("assistant", tuple(parts)) if parts else None


def _message(given: GivenMessage, at: int) -> Message:
    if given.role == "tool":
        return Message("tool", (ToolResultPart(f"call-{at - 1}-0", given.content),))
    parts: list[Part] = []
    if given.content:
        parts.append(TextPart(str(given.content)))
    parts += [_tool_call(one, f"{at}-{place}") for place, one in enumerate(given.tool_calls)]
    return Message(given.role, tuple(parts))


def _tool_call(given: GivenToolCall, name: str) -> ToolCallPart:
    return ToolCallPart(f"call-{name}", given.name, given.arguments, given.valid)
