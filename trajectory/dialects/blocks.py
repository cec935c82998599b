"""Conversations whose messages are lists of content blocks, as Anthropic and Bedrock send them.

The two name things differently and mean the same:

- a system prompt beside the messages;
- results of tools among a user's blocks;
- a tool's input streamed as pieces of text;
- usage that counts cached input apart.
"""

from collections.abc import Callable
from functools import cache
from itertools import groupby

from trajectory.call import Usage
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.reader import call_fields
from trajectory.dialects.resends import one_object, read_list
from trajectory.dialects.wire import (
    as_integer,
    as_list,
    as_object,
    as_text,
    names,
    objects,
    parse_json_or_none,
    without,
)
from trajectory.message import (
    Message,
    OpaquePart,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    is_note,
)

_USE_READ = names("id toolUseId name input type partial_input partialInput cache_control")

type Blocks = Callable[[JsonValue | None], list[Part]]


def read_conversation(request: JsonObject, blocks: Blocks) -> tuple[Message, ...]:
    """Return system prompt and messages; tool results become messages of their own."""
    messages: list[Message] = []
    if system := blocks(request.get("system")):
        messages.append(Message("system", tuple(system)))
    messages = list(one_object(messages))
    messages += read_list(_turns_of(blocks), objects(request.get("messages")))
    return tuple(messages)


@cache
def _turns_of(blocks: Blocks) -> Callable[[JsonObject], list[Message]]:
    """Return what reads one item; its name tells whose blocks it reads."""

    def turns(item: JsonObject) -> list[Message]:
        role = as_text(item.get("role")) or "user"
        return _split_results(role, blocks(item.get("content")))

    turns.__qualname__ = f"turns of {blocks.__module__}.{blocks.__qualname__}"
    return turns


def _split_results(role: str, parts: list[Part]) -> list[Message]:
    messages: list[Message] = []
    rest: list[Part] = []
    for part in parts:
        if isinstance(part, ToolResultPart):
            if rest:
                messages.append(Message(role, tuple(rest)))
                rest = []
            messages.append(Message("tool", (part,)))
        elif messages and not rest and is_note(part):
            messages[-1] = Message("tool", (*messages[-1].parts, part))
        else:
            rest.append(part)
    if rest or not messages:
        messages.append(Message(role, tuple(rest)))
    return messages


def read_blocks(
    content: JsonValue | None,
    parts: Callable[[JsonObject], list[Part]],
    *,
    left_out: Callable[[JsonObject], bool],
) -> list[Part]:
    """Return the parts of a content, which is text or blocks; some blocks give no part."""
    if isinstance(content, str):
        return [TextPart(content)] if content else []
    found: list[Part] = []
    for block in as_list(content):
        if not isinstance(block, dict):
            found.append(OpaquePart(block))
        elif not left_out(block):
            found += parts(block)
    return _join_cited(found)


def cited_text(text: str, citations: JsonValue) -> list[Part]:
    """Return a text with its sources as a note beside it."""
    cited: JsonObject = {"text": text, "citations": citations}
    return [TextPart(text), OpaquePart({"type": "citations", "cited": [cited]})]


def _cited(part: Part) -> list[JsonValue]:
    value = part.value if isinstance(part, OpaquePart) and is_note(part) else None
    return as_list(value.get("cited")) if isinstance(value, dict) else []


def _join_cited(parts: list[Part]) -> list[Part]:
    """Join the blocks of a cited answer: it is cut wherever a source begins, even within a word."""
    if not any(isinstance(part, OpaquePart) and _cited(part) for part in parts):
        return parts
    found: list[Part] = []
    for is_text, run in groupby(parts, lambda one: isinstance(one, TextPart) or bool(_cited(one))):
        said = list(run)
        cited = [item for part in said for item in _cited(part)]
        if is_text and cited:
            words = "".join(part.text for part in said if isinstance(part, TextPart))
            said = [TextPart(words), OpaquePart({"type": "citations", "cited": cited})]
        found += said
    return found


def tool_use(use: JsonObject, identifier: str, partial: str) -> list[Part]:
    """Return a tool call; its input is text under ``partial`` where a stream broke off in it."""
    call_id, name = as_text(use.get(identifier)) or "", as_text(use.get("name")) or ""
    given, valid = use.get("input", {}), True
    if isinstance(use.get(partial), str):
        given, valid = use[partial], False
    call = ToolCallPart(call_id, name, given, valid)
    if use.keys() <= _USE_READ:
        return [call]
    return [call, *call_fields(call_id, without(use, _USE_READ))]


def finished_input(use: JsonObject, partial: str) -> JsonObject:
    """Parse a streamed input; what does not parse (a stream cut off) stays under ``partial``."""
    raw = use.get(partial)
    if not isinstance(raw, str):
        return use
    rest = {name: value for name, value in use.items() if name != partial}
    if not raw:
        return {**rest, "input": rest.get("input", {})}
    parsed = parse_json_or_none(raw)
    return use if parsed is None else {**rest, "input": parsed}


def cached_usage(usage: JsonObject, fresh: str, read: str, written: str, made: str) -> Usage:
    """Return usage where cached input is counted apart, under the names of these fields."""
    new, cached = as_integer(usage.get(fresh)), as_integer(usage.get(read))
    total = None if new is None else new + (cached or 0) + (as_integer(usage.get(written)) or 0)
    return Usage(
        input_tokens=total,
        output_tokens=as_integer(usage.get(made)),
        cached_input_tokens=cached,
        reasoning_tokens=as_integer(
            as_object(usage.get("output_tokens_details")).get("thinking_tokens")
        ),
    )
