"""OpenAI responses: items in, items out, and a stream of typed, numbered events."""

import time
from collections import OrderedDict
from typing import Any

from examples.practice.engine import Token
from examples.practice.turns import CallPiece, CallStart, Piece, TextPiece
from examples.practice.wire.openai_chat import openai_error
from examples.practice.wire.shape import (
    Answer,
    Ask,
    WireError,
    event,
    need,
    new_id,
    sampling_of,
    text_of,
)

_KEPT_CONVERSATIONS = 4096
_TEXT_KINDS = ("input_text", "output_text", "text")


class OpenAIResponses:
    """``POST /v1/responses``; remembers conversations for ``previous_response_id``."""

    name = "openai.responses"

    def __init__(self) -> None:
        self._conversations: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()

    def read(self, body: dict[str, Any]) -> Ask:
        """Read a request."""
        messages = self._earlier(body.get("previous_response_id"))
        if body.get("instructions"):
            messages = [{"role": "system", "content": str(body["instructions"])}, *messages]
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if not isinstance(items, list) or not items:
            raise WireError(400, "invalid_request_error", "input: field required")
        for item in items:
            _add(messages, item)
        return Ask(
            model=need(body, "model", str),
            messages=messages,
            with_tools=bool(body.get("tools")) and body.get("tool_choice") != "none",
            sampling=sampling_of(body, max_tokens=body.get("max_output_tokens")),
            stream=bool(body.get("stream")),
            body=body,
        )

    def writer(self, ask: Ask, _tokenizer: Any) -> "_ResponsesWriter":
        """Return what writes the answer."""
        return _ResponsesWriter(ask, self)

    def error(self, error: WireError) -> dict[str, Any]:
        """Return OpenAI's error body."""
        return openai_error(error)

    def remember(self, response_id: str, ask: Ask, answer: Answer) -> None:
        """Keep a conversation, unless the client forbade it; the oldest ones are forgotten."""
        if ask.body.get("store") is False:
            return
        said: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.calls:
            said["tool_calls"] = [
                {"function": {"name": call.name, "arguments": call.arguments}}
                for call in answer.calls
            ]
        # Instructions hold for one response only, as the API has it.
        kept = ask.messages[1:] if ask.body.get("instructions") else ask.messages
        self._conversations[response_id] = [*kept, said]
        while len(self._conversations) > _KEPT_CONVERSATIONS:
            self._conversations.popitem(last=False)

    def _earlier(self, response_id: Any) -> list[dict[str, Any]]:
        if response_id is None:
            return []
        if response_id not in self._conversations:
            raise WireError(
                400,
                "invalid_request_error",
                f"Previous response with id '{response_id}' not found.",
                code="previous_response_not_found",
            )
        return list(self._conversations[response_id])


def _add(messages: list[dict[str, Any]], item: Any) -> None:
    """Append one input item; a text and calls of one turn become one assistant message."""
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if kind == "message":
        messages.append(
            {"role": item.get("role"), "content": text_of(item.get("content"), kinds=_TEXT_KINDS)}
        )
    elif kind == "function_call":
        call = {"function": {"name": item["name"], "arguments": item["arguments"]}}
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": ""})
        messages[-1] = {
            **messages[-1],
            "tool_calls": [*messages[-1].get("tool_calls", []), call],
        }
    elif kind == "function_call_output":
        messages.append({"role": "tool", "content": text_of(item.get("output"), kinds=_TEXT_KINDS)})
    elif kind != "reasoning":
        raise WireError(400, "invalid_request_error", f"input item type {kind!r} is not supported")


class _ResponsesWriter:
    """Writes responses; items are numbered in the order in which the model began them."""

    def __init__(self, ask: Ask, memory: OpenAIResponses) -> None:
        self._ask = ask
        self._memory = memory
        self._id = new_id("resp_")
        self._created = time.time()
        self._number = 0
        self._items: list[dict[str, Any]] = []

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return a ``response``."""
        if answer.text or not answer.calls:
            self._items.append(_message_item(answer.text))
        self._items.extend(_call_item(call.name, call.arguments) for call in answer.calls)
        self._memory.remember(self._id, self._ask, answer)
        return self._response(answer, done=True)

    def start(self, answer: Answer) -> bytes:
        """Return the events that announce the response."""
        response = self._response(answer, done=False)
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def token(self, _token: Token, pieces: list[Piece]) -> bytes:
        """Return the events of the pieces."""
        return b"".join(self._piece(piece) for piece in pieces)

    def end(self, answer: Answer) -> bytes:
        """Close the last item and the response."""
        events = b"" if self._items else self._open(_message_item("", status="in_progress"))
        events += self._close_item()
        self._memory.remember(self._id, self._ask, answer)
        response = self._response(answer, done=True)
        return events + self._event(f"response.{response['status']}", response=response)

    def _piece(self, piece: Piece) -> bytes:
        events = b""
        match piece:
            case TextPiece(text=text):
                if not self._items or self._items[-1]["type"] != "message":
                    events += self._close_item()
                    events += self._open(_message_item("", status="in_progress"))
                self._items[-1]["content"][0]["text"] += text
                events += self._event(
                    "response.output_text.delta", **self._part(), delta=text, logprobs=[]
                )
            case CallStart(name=name):
                events += self._close_item()
                events += self._open(_call_item(name, "", status="in_progress"))
            case CallPiece(text=text):
                self._items[-1]["arguments"] += text
                events += self._event(
                    "response.function_call_arguments.delta", **self._place(), delta=text
                )
        return events

    def _open(self, item: dict[str, Any]) -> bytes:
        self._items.append(item)
        shown = {**item, "content": []} if item["type"] == "message" else item
        place = {"output_index": len(self._items) - 1}
        events = self._event("response.output_item.added", **place, item=shown)
        if item["type"] == "message":
            part = item["content"][0]
            events += self._event("response.content_part.added", **self._part(), part=part)
        return events

    def _close_item(self) -> bytes:
        if not self._items:
            return b""
        item = self._items[-1]
        item["status"] = "completed"
        if item["type"] == "message":
            part = item["content"][0]
            events = self._event(
                "response.output_text.done", **self._part(), text=part["text"], logprobs=[]
            )
            events += self._event("response.content_part.done", **self._part(), part=part)
        else:
            facts = {"name": item["name"], "arguments": item["arguments"]}
            events = self._event("response.function_call_arguments.done", **self._place(), **facts)
        place = {"output_index": len(self._items) - 1}
        return events + self._event("response.output_item.done", **place, item=item)

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1}

    def _part(self) -> dict[str, Any]:
        return {**self._place(), "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return event(data, name=kind)

    def _response(self, answer: Answer, *, done: bool) -> dict[str, Any]:
        body, cut = self._ask.body, answer.ended_by == "length"
        status = ("incomplete" if cut else "completed") if done else "in_progress"
        return {
            "id": self._id,
            "object": "response",
            "created_at": int(self._created),
            "completed_at": int(time.time()) if done else None,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if done and cut else None,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "metadata": body.get("metadata") or {},
            "model": answer.model,
            "output": self._items if done else [],
            "parallel_tool_calls": True,
            "previous_response_id": body.get("previous_response_id"),
            "reasoning": {"effort": None, "summary": None},
            "store": body.get("store") is not False,
            "temperature": self._ask.sampling.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            "top_p": self._ask.sampling.top_p,
            "truncation": "disabled",
            "usage": _usage(answer) if done else None,
            "user": body.get("user"),
        }


def _message_item(text: str, *, status: str = "completed") -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"id": new_id("msg_"), "type": "message", "status": status, "role": "assistant"}
    return {**item, "content": [part]}


def _call_item(name: str, arguments: str, *, status: str = "completed") -> dict[str, Any]:
    ids = {"id": new_id("fc_"), "call_id": new_id("call_")}
    return {**ids, "type": "function_call", "status": status, "name": name, "arguments": arguments}


def _usage(answer: Answer) -> dict[str, Any]:
    prompt, completion = len(answer.prompt), len(answer.tokens)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + completion,
    }
