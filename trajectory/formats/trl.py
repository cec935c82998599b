"""TRL's dataset types (1.16): conversational, preference, unpaired preference and prompt-only rows.

Messages have the shape that chat templates take: arguments of tool calls as objects, a tool's name
on its result. What a row has no column for stands as JSON text in one more column, ``headrace``,
which Arrow keeps and trainers leave alone; prompt-only rows have none, because it would hold the
answers.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from trajectory.canonical import JsonObject, JsonValue, canonical_json
from trajectory.dialects.openai_chat.read import read_message
from trajectory.dialects.wire import as_object, objects, parse_json_or_none
from trajectory.formats.document import KEY, Carrier, DocumentFormat, WrittenDocument, need_list
from trajectory.formats.openai_messages import write_message
from trajectory.json_form import FormError
from trajectory.message import Message, ToolResultPart
from trajectory.portable import PortableSignal, PortableStep, Trajectory, split_steps

VERSION = "TRL 1.16"
GOOD = 0.5
"""A reward of at least this is a good answer."""
_LABEL = "label"
_REWARD = "reward"
_SOURCE = "trl"


# Messages.


def chat_messages(messages: Sequence[Message]) -> list[JsonValue]:
    """Return messages as chat templates take them."""
    names: dict[str, str] = {}
    out: list[JsonValue] = []
    for message in messages:
        names |= {call.call_id: call.name for call in message.tool_calls()}
        out.append(_chat_message(message, names))
    return out


def _chat_message(message: Message, names: dict[str, str]) -> JsonObject:
    value = write_message(message)
    if message.role == "tool":
        content = value.get("content")
        value["content"] = content if isinstance(content, str) else json.dumps(content)
        results = [part for part in message.parts if isinstance(part, ToolResultPart)]
        if results and (name := names.get(results[0].call_id)):
            value["name"] = name
        return value
    if value.get("content") is None:
        value["content"] = ""
    calls = message.tool_calls()
    for item, call in zip(objects(value.get("tool_calls")), calls, strict=False):
        raw = call.arguments
        arguments: JsonObject = raw if isinstance(raw, dict) else {"raw": raw}
        item["function"] = {"name": call.name, "arguments": arguments}
    return value


def _read_messages(row: JsonObject, name: str, where: str) -> tuple[Message, ...]:
    return tuple(read_message(item) for item in need_list(row, name, where))


def _tools(row: JsonObject) -> tuple[JsonObject, ...]:
    given = row.get("tools")
    value = parse_json_or_none(given) if isinstance(given, str) else given
    return tuple(objects(value))


def _tool_column(trajectory: Trajectory) -> JsonObject:
    return {"tools": list(trajectory.tools)} if trajectory.tools else {}


# The free place: a column of JSON text.


def _put(row: JsonObject, rest: JsonObject) -> JsonObject | None:
    return {**row, KEY: json.dumps(rest, ensure_ascii=False)}


def _take(row: JsonObject) -> tuple[JsonObject, JsonObject]:
    text = row.get(KEY)
    rest = parse_json_or_none(text) if isinstance(text, str) else None
    if not isinstance(rest, dict):
        return row, {}
    return {name: item for name, item in row.items() if name != KEY}, rest


_COLUMN = Carrier(_put, _take, f"column {KEY}")


# Conversational: the whole conversation, with a reward where there is one.


def _read_conversation(row: JsonObject, where: str) -> Trajectory:
    steps, trailing = split_steps(_read_messages(row, "messages", where))
    return Trajectory(steps, trailing, tools=_tools(row), signals=_reward_of(row, where))


def _reward_of(row: JsonObject, where: str) -> tuple[PortableSignal, ...]:
    value = row.get(_REWARD)
    if value is None:
        return ()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormError(f"{where}: {_REWARD}: expected a number")
    return (PortableSignal(_REWARD, float(value), source=_SOURCE),)


def _write_conversation(trajectory: Trajectory) -> JsonObject:
    row: JsonObject = {
        "messages": chat_messages(trajectory.messages()),
        **_tool_column(trajectory),
    }
    reward = next((one.value for one in trajectory.signals if one.value is not None), None)
    return row if reward is None else {**row, _REWARD: float(reward)}


# Prompt-only: what stands before the first answer.


def _read_prompt(row: JsonObject, where: str) -> Trajectory:
    return Trajectory((), _read_messages(row, "prompt", where), tools=_tools(row))


def _write_prompt(trajectory: Trajectory) -> JsonObject:
    first = trajectory.steps[0].observed if trajectory.steps else trajectory.trailing
    return {"prompt": chat_messages(first), **_tool_column(trajectory)}


# Unpaired preference: the last answer, and whether it is good.


def _read_labelled(row: JsonObject, where: str) -> Trajectory:
    label = row.get(_LABEL)
    if not isinstance(label, bool):
        raise FormError(f"{where}: {_LABEL}: expected true or false")
    steps = _answered(row, "completion", where)
    signal = PortableSignal(_LABEL, 1.0 if label else 0.0, source=_SOURCE)
    steps = (*steps[:-1], replace(steps[-1], signals=(signal,)))
    return Trajectory(steps, tools=_tools(row))


def _answered(row: JsonObject, name: str, where: str) -> tuple[PortableStep, ...]:
    """Return prompt and answer as steps, the answer last."""
    messages = (*_read_messages(row, "prompt", where), *_read_messages(row, name, where))
    steps, trailing = split_steps(messages)
    if not steps or trailing:
        raise FormError(f"{where}: {name}: expected an assistant's message at its end")
    return steps


def _write_labelled(trajectory: Trajectory) -> JsonObject:
    prompt, answer = _prompt_and_answer(trajectory)
    value = judged(trajectory)
    row: JsonObject = {"prompt": chat_messages(prompt), "completion": chat_messages(answer)}
    return {**row, _LABEL: value is not None and value >= GOOD, **_tool_column(trajectory)}


def _prompt_and_answer(trajectory: Trajectory) -> tuple[list[Message], list[Message]]:
    if not trajectory.steps:
        return [], []
    said = [message for step in trajectory.steps[:-1] for message in (*step.observed, step.output)]
    last = trajectory.steps[-1]
    return [*said, *last.observed], [last.output]


def judged(trajectory: Trajectory) -> float | None:
    """Return the reward of the last answer, else of the whole."""
    last = trajectory.steps[-1].signals if trajectory.steps else ()
    values = (one.value for one in (*last, *trajectory.signals) if one.value is not None)
    return next(values, None)


def each_judged(trajectory: Trajectory) -> Iterator[Trajectory]:
    """Return a trajectory cut off after each answer that was judged."""
    for at, step in enumerate(trajectory.steps, 1):
        last = at == len(trajectory.steps)
        values = (*step.signals, *(trajectory.signals if last else ()))
        if any(one.value is not None for one in values):
            kept = trajectory.signals if last else ()
            trailing = trajectory.trailing if last else ()
            yield replace(trajectory, steps=trajectory.steps[:at], signals=kept, trailing=trailing)


CONVERSATIONAL = DocumentFormat(
    "trl-conversational", VERSION, _read_conversation, _write_conversation, _COLUMN
)
PROMPT_ONLY = DocumentFormat("trl-prompt-only", VERSION, _read_prompt, _write_prompt)
UNPAIRED = DocumentFormat("trl-unpaired", VERSION, _read_labelled, _write_labelled, _COLUMN)


# Preference: two answers to one prompt.


def import_preference(row: JsonValue, *, where: str = "row") -> tuple[Trajectory, Trajectory]:
    """Return the chosen and the rejected trajectory of a row.

    Raises:
        FormError: it is no such row.
    """
    if not isinstance(row, dict):
        raise FormError(f"{where}: expected an object, one trl-preference row")
    chosen, rejected = (_side(row, name, where) for name in ("chosen", "rejected"))
    return chosen, rejected


def _side(row: JsonObject, name: str, where: str) -> Trajectory:
    shared = {"prompt", "chosen", "rejected", "tools", KEY}
    side: JsonObject = {
        "prompt": row.get("prompt"),
        "completion": row.get(name),
        _LABEL: name == "chosen",
        **({"tools": row["tools"]} if "tools" in row else {}),
    }
    text = row.get(KEY)
    rest = as_object(parse_json_or_none(text) if isinstance(text, str) else None).get(name)
    if isinstance(rest, dict):
        side[KEY] = json.dumps(rest)
    for other in row.keys() - shared:
        raise FormError(f"{where}: unknown column {other!r}; known: {', '.join(sorted(shared))}")
    try:
        return UNPAIRED.import_document(side, where=where)
    except FormError as error:
        raise FormError(str(error).replace("completion", name)) from None


def export_preference(chosen: Trajectory, rejected: Trajectory) -> JsonObject:
    """Return two trajectories that share everything but the last answer as one row.

    Raises:
        FormError: their prompts differ.
    """
    good, bad = UNPAIRED.export_document(chosen), UNPAIRED.export_document(rejected)
    if canonical_json(good["prompt"]) != canonical_json(bad["prompt"]):
        raise FormError("trl-preference: the two trajectories have different prompts")
    rests = {
        name: rest
        for name, side in (("chosen", good), ("rejected", bad))
        if isinstance(rest := parse_json_or_none(str(side.get(KEY, ""))), dict)
    }
    row: JsonObject = {
        "prompt": good["prompt"],
        "chosen": good["completion"],
        "rejected": bad["completion"],
        **_tool_column(chosen),
    }
    return {**row, KEY: json.dumps(rests, ensure_ascii=False)} if rests else row


def preference_rows(trajectories: Iterable[Trajectory]) -> Iterator[WrittenDocument]:
    """Return a row for each pair of judged answers to one prompt, a better one and a worse one."""
    groups: dict[bytes, list[tuple[float, Trajectory]]] = {}
    for trajectory in trajectories:
        for one in each_judged(trajectory):
            prompt, _ = _prompt_and_answer(one)
            key = canonical_json([message.to_json() for message in prompt])
            groups.setdefault(key, []).append((judged(one) or 0.0, one))
    for group in groups.values():
        group.sort(key=lambda item: item[0], reverse=True)
        for (better, chosen), (worse, rejected) in zip(group, reversed(group), strict=True):
            if better <= worse:
                break
            yield WrittenDocument(export_preference(chosen, rejected))


__all__ = [
    "CONVERSATIONAL",
    "GOOD",
    "PROMPT_ONLY",
    "UNPAIRED",
    "VERSION",
    "chat_messages",
    "each_judged",
    "export_preference",
    "import_preference",
    "preference_rows",
]
