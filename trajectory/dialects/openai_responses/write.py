"""Answers as OpenAI responses write them: items, and a stream of typed, numbered events."""

from collections.abc import Sequence

from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.openai_chat.write import token_fields
from trajectory.dialects.wire import as_object, as_text, objects
from trajectory.dialects.writer import (
    EVENTS,
    AnsweredRequest,
    AnswerStream,
    CallPiece,
    CallStart,
    ModelAnswer,
    Piece,
    SampledToken,
    TextPiece,
    WireResponse,
    arguments_text,
    as_events,
    as_json,
    ended,
    event,
    in_pieces,
)
from trajectory.message import OpaquePart, Part, ReasoningPart, TextPart, ToolCallPart, is_note

RESPONSE_ID = "resp_"
CALL_ID = "call_"
_ECHOED = (
    "instructions",
    "max_output_tokens",
    "metadata",
    "previous_response_id",
    "temperature",
    "top_p",
    "user",
)
_REASONING_ID = "rs_"
_ARGUMENTS = {"function_call": "arguments", "custom_tool_call": "input"}
"""Where a call of this type has what the model wrote."""


def write(answer: ModelAnswer, asked: AnsweredRequest) -> WireResponse:
    """Return the answer whole, or as the events that the request asks for."""
    if asked.body.get("stream") is not True:
        return as_json(whole(answer, asked.body))
    stream = ResponsesStream(answer, asked.body)
    events = stream.opening()
    for item in _items(answer, asked.body):
        events += stream.item(item)
    return as_events([*events, *stream.closing(answer)])


def open_stream(begun: ModelAnswer, asked: AnsweredRequest) -> AnswerStream | None:
    """Return what writes the answer as it grows; None where the request wants it whole."""
    return ResponsesStream(begun, asked.body) if asked.body.get("stream") is True else None


def whole(answer: ModelAnswer, request: JsonObject) -> JsonObject:
    """Return a ``response``."""
    return _response(answer, request, [*_items(answer, request)], done=True)


class ResponsesStream:
    """Writes a response as it grows: items follow each other, and each event has a number."""

    content_type = EVENTS

    def __init__(self, begun: ModelAnswer, request: JsonObject) -> None:
        """Begin the answer that ``begun`` names, to a request with this body."""
        self._begun = begun
        self._request = request
        self._number = 0
        self._index = -1
        self._item: JsonObject = {}
        """The item that is open."""

    def start(self) -> bytes:
        """Return the events that announce the response."""
        return b"".join(self.opening())

    def take(self, pieces: Sequence[Piece], token: SampledToken | None = None) -> bytes:  # noqa: ARG002 - tokens come with the last event
        """Return the events of the pieces."""
        events: list[bytes] = []
        for piece in pieces:
            events += self._events(piece)
        return b"".join(events)

    def end(self, answer: ModelAnswer) -> bytes:
        """Close the last item and the response; items that did not grow come whole."""
        events = self._closed()
        for item in _items(answer, self._request)[self._index + 1 :]:
            events += self.item(item)
        return b"".join([*events, *self.closing(answer)])

    def opening(self) -> list[bytes]:
        """Return the events that announce the response."""
        response = _response(self._begun, self._request, [], done=False)
        kinds = ("response.created", "response.in_progress")
        return [self._event(kind, response=response) for kind in kinds]

    def item(self, item: JsonObject) -> list[bytes]:
        """Return the events of a finished item."""
        begun: JsonObject = {**item, "status": "in_progress"} if "status" in item else {**item}
        text = ""
        if item["type"] == "message":
            parts = objects(item["content"])
            text = "".join(str(part["text"]) for part in parts)
            begun["content"] = [{**part, "text": ""} for part in parts]
        elif (argument := _ARGUMENTS.get(str(item["type"]))) is not None:
            text = str(item[argument])
            begun[argument] = ""
        events = self._open(begun)
        for piece in in_pieces(text):
            events += self._grow(piece)
        self._item = item
        return [*events, *self._closed()]

    def closing(self, answer: ModelAnswer) -> list[bytes]:
        """Return the event that holds the finished response."""
        items = _items(answer, self._request)
        response = _response(answer, self._request, [*items], done=True)
        return [self._event(f"response.{response['status']}", response=response)]

    def _events(self, piece: Piece) -> list[bytes]:
        name = f"{_id_stem(self._begun)}_{self._index + 1}"
        match piece:
            case TextPiece(text=text):
                opened: list[bytes] = []
                if self._item.get("type") != "message":
                    opened = self._open({**_message(TextPart(""), name), "status": "in_progress"})
                return [*opened, *self._grow(text)]
            case CallStart(call_id=call_id, name=function):
                call = _call(ToolCallPart(call_id, function, ""), name, self._request)
                return self._open({**call, "status": "in_progress"})
            case CallPiece(text=text):
                return self._grow(text)

    def _open(self, item: JsonObject) -> list[bytes]:
        events = self._closed()
        self._index += 1
        self._item = item
        shown = {**item, "content": []} if item["type"] == "message" else item
        place: JsonObject = {"output_index": self._index}
        events.append(self._event("response.output_item.added", **place, item=shown))
        if item["type"] == "message":
            [part] = objects(item["content"])
            events.append(self._event("response.content_part.added", **self._part(), part=part))
        return events

    def _grow(self, text: str) -> list[bytes]:
        kind = str(self._item["type"])
        if kind == "message":
            [part] = objects(self._item["content"])
            part["text"] = str(part["text"]) + text
            fields: JsonObject = {**self._part(), "delta": text, "logprobs": []}
            return [self._event("response.output_text.delta", **fields)]
        argument = _ARGUMENTS[kind]
        self._item[argument] = str(self._item[argument]) + text
        return [self._event(f"response.{kind}_{argument}.delta", **self._place(), delta=text)]

    def _closed(self) -> list[bytes]:
        """Return the events that close the open item, if there is one."""
        item, kind = self._item, str(self._item.get("type"))
        if not item:
            return []
        if item.get("status") == "in_progress":
            item = {**item, "status": "completed"}
        events: list[bytes] = []
        if kind == "message":
            [part] = objects(item["content"])
            fields: JsonObject = {**self._part(), "text": part["text"], "logprobs": []}
            events = [
                self._event("response.output_text.done", **fields),
                self._event("response.content_part.done", **self._part(), part=part),
            ]
        elif kind in _ARGUMENTS:
            fields = {name: item[name] for name in ("name", _ARGUMENTS[kind])}
            done = f"response.{kind}_{_ARGUMENTS[kind]}.done"
            events = [self._event(done, **self._place(), **fields)]
        place: JsonObject = {"output_index": self._index}
        events.append(self._event("response.output_item.done", **place, item=item))
        self._item = {}
        return events

    def _place(self) -> JsonObject:
        return {"output_index": self._index, "item_id": self._item.get("id")}

    def _part(self) -> JsonObject:
        return {**self._place(), "content_index": 0}

    def _event(self, kind: str, **fields: JsonValue) -> bytes:
        payload: JsonObject = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return event(payload, kind)


def _items(answer: ModelAnswer, request: JsonObject) -> list[JsonObject]:
    items: list[JsonObject] = []
    for part in answer.message.parts:
        if is_note(part):
            _noted(part, items[-1] if items else {})
            continue
        item = _item(part, f"{_id_stem(answer)}_{len(items)}", request)
        if item is not None:
            items.append(item)
    return items


def _id_stem(answer: ModelAnswer) -> str:
    return answer.response_id.removeprefix(RESPONSE_ID)


def _noted(part: Part, item: JsonObject) -> None:
    """Put back into an item what was noted of it: sources, phase, fields of a call."""
    note = as_object(part.value if isinstance(part, OpaquePart) else None)
    if item.get("type") == "message":
        texts = objects(item.get("content"))
        if texts and isinstance(note.get("annotations"), list):
            texts[-1]["annotations"] = note["annotations"]
        if note.get("phase"):
            item["phase"] = note["phase"]
    elif note.get("call_id") == item.get("call_id"):
        item.update(as_object(note.get("fields")))


def _item(part: Part, name: str, request: JsonObject) -> JsonObject | None:
    if isinstance(part, TextPart):
        return _message(part, name)
    if isinstance(part, ReasoningPart):
        return _reasoning(part, name)
    if isinstance(part, ToolCallPart):
        return _call(part, name, request)
    if isinstance(part, OpaquePart) and isinstance(part.value, dict) and part.value.get("type"):
        return part.value
    return None


def _message(part: TextPart, name: str) -> JsonObject:
    text: JsonObject = {"type": "output_text", "text": part.text, "annotations": []}
    head: JsonObject = {"id": f"msg_{name}", "type": "message", "status": "completed"}
    return {**head, "role": "assistant", "content": [{**text, "logprobs": []}]}


def _reasoning(part: ReasoningPart, name: str) -> JsonObject:
    """Return a reasoning item; its signature is the item's own id or the sealed content."""
    proof = part.signature or ""
    own = proof.startswith(_REASONING_ID)
    item: JsonObject = {"id": proof if own else f"{_REASONING_ID}{name}", "type": "reasoning"}
    item["summary"] = [{"type": "summary_text", "text": part.text}] if part.text else []
    if proof and not own:
        item["encrypted_content"] = proof
    return item


def _call(part: ToolCallPart, name: str, request: JsonObject) -> JsonObject:
    kinds = {
        (as_text(tool.get("type")), as_text(tool.get("name")))
        for tool in objects(request.get("tools"))
    }
    head: JsonObject = {"id": f"fc_{name}", "call_id": part.call_id, "status": "completed"}
    namespace, _, function = part.name.rpartition(".")
    if ("namespace", namespace) in kinds:
        head = {**head, "namespace": namespace}
    else:
        function = part.name
    if ("custom", part.name) in kinds or _is_custom(request, namespace, function):
        item: JsonObject = {"type": "custom_tool_call", "name": function, "input": part.arguments}
        return {**head, **item}
    if (part.name, None) in kinds and isinstance(part.arguments, dict):
        return {**head, "type": f"{part.name}_call", **part.arguments}
    arguments = arguments_text(part.arguments)
    return {**head, "type": "function_call", "name": function, "arguments": arguments}


def _is_custom(request: JsonObject, namespace: str, name: str) -> bool:
    return any(
        tool.get("type") == "custom" and tool.get("name") == name
        for space in objects(request.get("tools"))
        if space.get("type") == "namespace" and space.get("name") == namespace
        for tool in objects(space.get("tools"))
    )


def _response(
    answer: ModelAnswer, request: JsonObject, items: list[JsonValue], *, done: bool
) -> JsonObject:
    cut = ended(answer) == "length"
    status = ("incomplete" if cut else "completed") if done else "in_progress"
    return {
        **{name: request.get(name) for name in _ECHOED},
        "id": answer.response_id,
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if done and cut else None,
        "model": answer.model,
        "output": items,
        "parallel_tool_calls": request.get("parallel_tool_calls") is not False,
        "tool_choice": request.get("tool_choice") or "auto",
        "tools": request.get("tools") or [],
        "usage": _usage(answer) if done else None,
        **(token_fields(answer, request) if done else {}),
    }


def _usage(answer: ModelAnswer) -> JsonObject:
    usage = answer.usage
    given, made = usage.input_tokens or 0, usage.output_tokens or 0
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": usage.cached_input_tokens or 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": given + made,
    }
