"""Tool calls in OpenAI's responses: items of the output, said again whole at the end of a stream."""

from collections.abc import Hashable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from proxy.guard.answer_calls import (
    AnswerForm,
    Event,
    FoundCall,
    Texts,
    UnreadableAnswerError,
    is_call_of_client,
    objects,
)
from proxy.guard.denied_calls import DeniedCall, denied_call
from proxy.inline.openai import tool_of
from trajectory.canonical import JsonValue

_PROTOCOL = frozenset({"type", "id", "call_id", "status", "name", "namespace", "server_label"})
_WRITTEN = {"function_call": "arguments", "mcp_approval_request": "arguments"}
"""Where calls of a type have JSON that the model wrote."""


class ResponsesAnswers(AnswerForm):
    """Responses, whole and as events."""

    named = True

    @staticmethod
    def takes(value: Event) -> bool:
        """Tell by the type of an event, or by the object."""
        if value.get("object") == "response" and "output" in value:
            return True
        return str(value.get("type")).startswith("response.")

    def known(self, value: Event) -> Iterator[Any]:
        """Yield the calls; and the request's own words, which the answer says again."""
        yield from (item for _, item in _items(value) if _is_call(item))
        whole = value.get("response", value)
        if isinstance(whole, dict):
            yield from (whole.get(name) for name in ("tools", "tool_choice", "instructions"))

    def begins(self, value: Event) -> bool:
        """Tell by the items."""
        return any(_is_call(item) for _, item in _items(value))

    def calls(self, values: Sequence[Event]) -> dict[Hashable, FoundCall]:
        """Return the calls; what is said twice must be the same."""
        found: dict[Hashable, FoundCall] = {}
        pieces: dict[Hashable, str] = {}
        whole: dict[Hashable, FoundCall] = {}
        for event in values:
            for at, item in _items(event):
                if _is_call(item):
                    call = _found(item)
                    before = whole.get(at)
                    if before is not None and before != call:
                        raise UnreadableAnswerError("a call that is said in two ways")
                    found[at] = call
                    if event.get("type") != "response.output_item.added":
                        whole[at] = call
                elif at in found:
                    raise UnreadableAnswerError("a call that becomes something else")
            at, (said, is_whole) = event.get("output_index"), _said(event)
            if said is not None and at in found:
                pieces[at] = said if is_whole else pieces.get(at, "") + said
        for at, said in pieces.items():
            if at not in whole and found[at].is_written:
                found[at] = found[at]._replace(arguments=said)
            elif at in whole and not _alike(whole[at], said):
                raise UnreadableAnswerError("arguments that are said in two ways")
        return found

    def unanswered(self, values: Sequence[Event], texts: Texts) -> tuple[str, list[DeniedCall]]:
        """Return the response's id, and the denied calls that its provider keeps."""
        response_id, found = "", dict[DeniedCall, None]()
        for event in values:
            whole = event.get("response", event)
            if isinstance(whole, dict) and whole.get("object") == "response":
                response_id = str(whole.get("id") or "")
            calls = (denied_call(item) for at, item in _items(event) if at in texts)
            found |= dict.fromkeys(one for one in calls if one is not None)
        return response_id, [*found]

    def without(self, values: Sequence[Event], texts: Texts) -> list[Event]:
        """Put a message in the place of a call's item; events are numbered anew."""
        out: list[Event] = []
        for event in values:
            at = event.get("output_index")
            if at is not None and at in texts:
                if event.get("type") == "response.output_item.added":
                    out += _message_events(at, texts[at])
                continue
            holder = event.get("response") if "response" in event else event
            if isinstance(holder, dict) and isinstance(holder.get("output"), list):
                output = [
                    _message(at, texts[at]) if at in texts else item
                    for at, item in enumerate(holder["output"])
                ]
                told = {**holder, "output": output}
                event = {**event, "response": told} if holder is not event else told
            out.append(event)
        numbers = [event["sequence_number"] for event in values if "sequence_number" in event]
        if not numbers:
            return out
        return [{**event, "sequence_number": numbers[0] + n} for n, event in enumerate(out)]


def _items(value: Event) -> Iterator[tuple[Hashable, dict[str, Any]]]:
    """Yield the items that a value says, each with its place in the output."""
    if str(value.get("type")).startswith("response.output_item."):
        if isinstance(item := value.get("item"), dict):
            yield value.get("output_index"), item
        return
    holder = value.get("response", value)
    if isinstance(holder, dict):
        yield from enumerate(objects(holder.get("output")))


def _is_call(item: dict[str, Any]) -> bool:
    return is_call_of_client(str(item.get("type")))


def _found(item: dict[str, Any]) -> FoundCall:
    field = _WRITTEN.get(str(item.get("type")))
    if field is not None:
        return FoundCall(tool_of(item), item.get(field, ""))
    rest: JsonValue = {name: one for name, one in item.items() if name not in _PROTOCOL}
    return FoundCall(tool_of(item), rest, is_written=False)


def _said(event: Event) -> tuple[str | None, bool]:
    """Return what an event brings of a call's arguments, and whether that is all of them."""
    name, _, what = str(event.get("type")).rpartition(".")
    if what not in ("delta", "done") or not name.endswith(("_arguments", "_input")):
        return None, False
    text = next((event[key] for key in ("delta", "arguments", "input") if key in event), None)
    return (text if isinstance(text, str) else None), what == "done"


def _alike(call: FoundCall, said: str) -> bool:
    if call.is_written:
        return call.arguments == said
    given = call.arguments
    return isinstance(given, dict) and given.get("input", said) == said


def _message(at: Hashable, text: str, *, status: str = "completed") -> dict[str, Any]:
    # Providers keep no item of this name: a client that sends it back sends all of it.
    name = blake2b(f"{at} {text}".encode(), digest_size=12).hexdigest()
    content = [{"type": "output_text", "text": text, "annotations": []}] if text else []
    head = {"id": f"msg_{name}", "type": "message", "status": status, "role": "assistant"}
    return {**head, "content": content}


def _message_events(at: Hashable, text: str) -> list[Event]:
    whole = _message(at, text)
    empty = {"type": "output_text", "text": "", "annotations": []}
    place = {"item_id": whole["id"], "output_index": at, "content_index": 0}
    return [
        {
            "type": "response.output_item.added",
            "output_index": at,
            "item": {**whole, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": empty},
        {"type": "response.output_text.delta", **place, "delta": text, "logprobs": []},
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": whole["content"][0]},
        {"type": "response.output_item.done", "output_index": at, "item": whole},
    ]
