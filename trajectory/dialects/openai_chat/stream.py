"""The chunks of a streamed chat completion, joined into the shape of an unstreamed one."""

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.wire import as_integer, as_list, as_object, as_text, objects

_CHUNK_JOINED = frozenset({"choices", "object", "usage"})
_CALL_JOINED = frozenset({"id", "type", "index", "function", "custom"})
_DELTA_JOINED = frozenset({"role", "tool_calls", "function_call"})


def assemble_chunks(chunks: list[JsonObject]) -> JsonObject | None:
    """Return the completion that ``chunks`` make; None when there is no chunk at all."""
    whole: JsonObject = {}
    choices: dict[int, JsonObject] = {}
    for chunk in chunks:
        if "choices" not in chunk and "id" not in chunk:
            continue
        join_head(whole, chunk)
        for piece in objects(chunk.get("choices")):
            index = as_integer(piece.get("index")) or 0
            _join_choice(choices.setdefault(index, {"index": index, "message": {}}), piece)
    if not whole and not choices:
        return None
    for choice in choices.values():
        _finish_message(as_object(choice["message"]))
    whole["choices"] = [choices[index] for index in sorted(choices)]
    return whole


def join_head(whole: JsonObject, chunk: JsonObject) -> None:
    """Take what a chunk says of the whole completion: names once, the latest usage."""
    for name, value in chunk.items():
        # Azure's first chunk names neither id nor model: the first that says something counts.
        if name not in _CHUNK_JOINED and value is not None and not whole.get(name):
            whole[name] = value
    if isinstance(chunk.get("usage"), dict):
        whole["usage"] = chunk["usage"]


def _join_choice(choice: JsonObject, piece: JsonObject) -> None:
    _join_delta(as_object(choice["message"]), as_object(piece.get("delta")))
    for name, value in piece.items():
        if name != "delta":
            join_field(choice, name, value)


def join_field(choice: JsonObject, name: str, value: JsonValue) -> None:
    """Take a field of a choice's chunk: tokens and their log probabilities go on, others count last."""
    if name == "index" or value is None:
        return
    if name == "token_ids" and isinstance(value, list):
        extend(choice, name, value)
    elif name == "logprobs":
        logprobs = as_object(choice.setdefault("logprobs", {}))
        for kind, items in as_object(value).items():
            if isinstance(items, list):
                extend(logprobs, kind, items)
    else:
        choice[name] = value


def extend(target: JsonObject, name: str, items: list[JsonValue]) -> None:
    """Append ``items`` to the list ``target[name]``, which may not be there yet."""
    existing = target.get(name)
    if isinstance(existing, list):
        existing.extend(items)
    else:
        target[name] = list(items)


def _join_delta(message: JsonObject, delta: JsonObject) -> None:
    if isinstance(delta.get("role"), str) and delta["role"]:
        message.setdefault("role", delta["role"])
    for name, value in delta.items():
        if name in _DELTA_JOINED or value is None:
            continue
        existing = message.get(name)
        if name == "content" and (isinstance(value, list) or isinstance(existing, list)):
            message[name] = join_content(existing, value)
            continue
        if isinstance(value, str) and isinstance(existing, str):
            message[name] = existing + value
        elif isinstance(value, list):
            extend(message, name, value)
        else:
            message[name] = value
    if function := as_object(delta.get("function_call")):
        _join_function(as_object(message.setdefault("function_call", {})), function)
    for item in objects(delta.get("tool_calls")):
        _join_tool_call(message, item)


def join_content(content: JsonValue | None, piece: JsonValue) -> list[JsonValue]:
    """Return content with a piece behind it, as Mistral sends them: a text, or a list of parts.

    A text goes on with the text before it, and a thought with the thought.
    """
    whole = _parts_of(content)
    for part in _parts_of(piece):
        _join_part(whole, part)
    return whole


def _parts_of(content: JsonValue | None) -> list[JsonValue]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return as_list(content)


def _join_part(parts: list[JsonValue], part: JsonValue) -> None:
    last = as_object(parts[-1]) if parts else {}
    new = as_object(part)
    kind = as_text(new.get("type"))
    if kind not in ("text", "thinking"):
        parts.append(part)
        return
    if kind != last.get("type"):
        last = {}
        parts.append(last)
    before, more = last.get(kind, ""), new.get(kind)
    last |= new
    if isinstance(before, str) and isinstance(more, str):
        last[kind] = before + more
    else:
        last[kind] = join_content(before, more)


def _join_tool_call(message: JsonObject, item: JsonObject) -> None:
    calls = as_object(message.setdefault("tool_calls", {}))
    index = as_integer(item.get("index"))
    slot = _slot(calls, index, item)
    call = as_object(calls.setdefault(slot, {}))
    for name in ("id", "type"):
        if isinstance(item.get(name), str) and item[name]:
            call.setdefault(name, item[name])
    for name, value in item.items():
        if name not in _CALL_JOINED and value is not None:
            call[name] = value
    for name in ("function", "custom"):
        if piece := as_object(item.get(name)):
            _join_function(as_object(call.setdefault(name, {})), piece)


def _slot(calls: JsonObject, index: int | None, item: JsonObject) -> str:
    """Return where a piece of a tool call goes; some servers number all calls alike.

    A new id with a name begins a new call; what follows without one belongs to the latest.
    """
    if index is None:
        return f"{len(calls)}.0"
    copies = sum(slot.partition(".")[0] == str(index) for slot in calls)
    latest = f"{index}.{max(copies - 1, 0)}"
    known, new = as_object(calls.get(latest)).get("id"), item.get("id")
    named = as_object(item.get("function") or item.get("custom")).get("name")
    return f"{index}.{copies}" if known and new and named and known != new else latest


def _join_function(function: JsonObject, piece: JsonObject) -> None:
    for name, value in piece.items():
        existing = function.get(name)
        if name in ("arguments", "input") and isinstance(value, str):
            function[name] = existing + value if isinstance(existing, str) else value
        elif value is not None and not existing:
            function[name] = value


def _finish_message(message: JsonObject) -> None:
    calls = message.get("tool_calls")
    if isinstance(calls, dict):
        ordered = sorted(calls, key=lambda slot: [int(number) for number in slot.split(".")])
        message["tool_calls"] = [calls[slot] for slot in ordered]


__all__ = ["assemble_chunks", "extend", "join_content", "join_field", "join_head"]
