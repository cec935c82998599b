"""Bedrock: requests of Converse and of Claude by ``invoke``, and the events of their streams."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

from proxy.inline.answers import CallSurrogates, is_of_document
from proxy.inline.dialects import MessagesRequest
from proxy.inline.events import AnswerEvents, Event, MessagesEvents
from proxy.inline.requests import (
    ARGUMENTS,
    AS_IT_IS,
    OTHER,
    RESULT,
    TEXT,
    Path,
    WireRequest,
    is_bytes,
    objects,
    text_of,
)
from proxy.request_json import dumped
from trajectory.dialects.event_stream import EventStreamDecoder, encode_message
from trajectory.dialects.wire import names

_SETTINGS = names("inferenceConfig guardrailConfig performanceConfig promptVariables serviceTier")
_PROTOCOL = names("role name toolUseId type format status signature")
_PRELUDE_BYTES = 12


class ConverseRequest(WireRequest):
    """Converse; signed blocks of reasoning go as they are."""

    ends = (b"/converse", b"/converse-stream")

    def _reads(self, value: dict[str, Any]) -> bool:
        return isinstance(value.get("messages"), list)

    def _place(self, path: Path, kind: str, said: str) -> Path | None:
        if path[0] == "messages" and len(path) > 4:
            return self._of_block(path, kind, said)
        if path[0] == "toolConfig":
            named = path[-2:] in (("toolSpec", "name"), ("tool", "name"), ("cachePoint", "type"))
            return None if kind != "string" or named else OTHER + path
        if path[0] == "promptVariables":
            return TEXT if kind == "string" else OTHER + path
        if kind != "string" or path[0] in _SETTINGS or path[-1] in _PROTOCOL:
            return None
        return TEXT if path[-1] == "text" else OTHER + path

    def _of_block(self, path: Path, kind: str, said: str) -> Path | None:
        match path[4:]:
            case ("toolUse", "input", *rest):
                return (*ARGUMENTS, *rest)
            case ("toolResult", "content", *rest) if not (
                rest[-1:] == ["bytes"] and is_bytes(said)
            ):
                return (*RESULT, *rest)
            case ("reasoningContent", *_) if self._is_signed(path[1], path[3]):
                return AS_IT_IS
        if path[-1] == "bytes" and is_bytes(said):
            return AS_IT_IS
        if kind != "string" or path[-1] in _PROTOCOL - {"name"} or path[4:] == ("toolUse", "name"):
            return None
        return TEXT if path[-1] == "text" else OTHER + path[4:]

    def _is_signed(self, message: str, at: str) -> bool:
        holder = self.value["messages"][int(message)]
        told = holder["content"][int(at)]["reasoningContent"]
        return holder.get("role") == "assistant" and is_signed(told)

    def _definitions(self) -> list[Any]:
        config = self.value.get("toolConfig")
        return [config.get("tools")] if isinstance(config, dict) else []

    def messages(self) -> Iterator[tuple[str, Path, str]]:
        for at, message in objects(self.value["messages"]):
            path = ("messages", at, "content")
            yield str(message.get("role")), *text_of(message.get("content"), path)

    def results(self) -> Iterator[tuple[str, Any]]:
        tools: dict[str, str] = {}
        for _, message in objects(self.value["messages"]):
            for _, block in objects(message.get("content")):
                called, told = block.get("toolUse"), block.get("toolResult")
                if isinstance(called, dict):
                    tools[str(called.get("toolUseId"))] = str(called.get("name"))
                if isinstance(told, dict):
                    yield tools.get(str(told.get("toolUseId")), ""), told.get("content")


class InvokeRequest(MessagesRequest):
    """Claude's messages by ``invoke``; what other models take there cannot be read."""

    ends = (b"/invoke", b"/invoke-with-response-stream")

    def _reads(self, value: dict[str, Any]) -> bool:
        return super()._reads(value) and "anthropic_version" in value


def is_signed(reasoning: Any) -> bool:
    """Whether a block of reasoning has a signature, or is sealed."""
    if not isinstance(reasoning, dict):
        return False
    text = reasoning.get("reasoningText")
    return "redactedContent" in reasoning or (
        isinstance(text, dict) and bool(text.get("signature"))
    )


_KIND = ":event-type"


class ConverseEvents(AnswerEvents):
    """Events of ``converse-stream``, each with its type beside its payload."""

    named = False

    def take(self, event: Event) -> list[Event]:
        at = event.get("contentBlockIndex")
        match event.get(_KIND):
            case "contentBlockStart":
                left = self._close_all(lambda key: key[0] == at)
                start = event.get("start")
                used = start.get("toolUse") if isinstance(start, dict) else None
                self._tools[at] = str(used.get("name")) if isinstance(used, dict) else ""
                return [*left, self._surrogates.value(event)]
            case "contentBlockDelta" if isinstance(event.get("delta"), dict):
                return self._delta(event, event["delta"], at)
            case "contentBlockStop":
                left = self._close_all(lambda key: key[0] == at)
                return [*left, event]
            case "messageStop":
                return [*self.end(), event]
        return [self._surrogates.value(event)]

    def _delta(self, event: Event, delta: dict[str, Any], at: Any) -> list[Event]:
        used = delta.get("toolUse")
        if isinstance(delta.get("text"), str):
            told = self._said(
                (at, "text"), delta["text"], lambda rest: _with(event, {"text": rest})
            )
            return [event if told == delta["text"] else _with(event, {**delta, "text": told})]
        if isinstance(used, dict) and isinstance(used.get("input"), str):
            may = self._surrogates.of_tool(self._tools.get(at, ""))

            def again(rest: str) -> Event:
                return _with(event, {"toolUse": {**used, "input": rest}})

            told = self._piece((at, "input"), used["input"], again, issued=may, in_json=True)
            return [event if told == used["input"] else again(told)]
        if "reasoningContent" in delta:
            return [event]  # its signature comes in a later piece
        if is_of_document(delta.get("citation")):
            return []
        return [self._surrogates.value(event)]


def _with(event: Event, delta: dict[str, Any]) -> Event:
    return {**event, "delta": delta}


class EventStreamRestorer:
    """Restores an AWS event stream; a message that does not change passes byte for byte.

    After damage the rest goes on as it came: nothing tells where a message begins.
    """

    def __init__(self, surrogates: CallSurrogates, *, is_invoked: bool) -> None:
        """Restore Converse's events, or with ``is_invoked`` those that a model's own stream holds."""
        self._is_invoked = is_invoked
        self._stream: AnswerEvents = (MessagesEvents if is_invoked else ConverseEvents)(surrogates)
        self._surrogates = surrogates
        self._pending = bytearray()
        self._is_damaged = False

    def feed(self, data: bytes) -> bytes:
        """Return all messages that ``data`` completes, as the client gets them."""
        if self._is_damaged:
            return data
        self._pending += data
        out: list[bytes] = []
        while len(self._pending) >= _PRELUDE_BYTES:
            size = int.from_bytes(self._pending[:4], "big")
            raw = bytes(self._pending[:size])
            decoder = EventStreamDecoder()
            messages = decoder.feed(raw)
            if decoder.problem is not None or size < _PRELUDE_BYTES:
                self._is_damaged = True
                out.append(self._left())
                break
            if not messages:
                break
            del self._pending[:size]
            headers = messages[0].headers
            texts = {name: one for name, one in headers.items() if isinstance(one, str)}
            out.append(self._message(raw, texts, messages[0].payload) if texts == headers else raw)
        return b"".join(out)

    def close(self) -> bytes:
        """Return what is left when the stream has ended."""
        left = b"" if self._is_damaged else b"".join(map(self._written, self._stream.end()))
        return left + self._left()

    def _left(self) -> bytes:
        raw = bytes(self._pending)
        self._pending.clear()
        return raw

    def _message(self, raw: bytes, headers: dict[str, str], payload: bytes) -> bytes:
        try:
            value = json.loads(payload)
            if not isinstance(value, dict):
                return raw
            if headers.get(":message-type") != "event":
                told = self._surrogates.value(value)
                return raw if told == value else encode_message(headers, dumped(told))
            event = self._event(headers.get(_KIND, ""), value)
            if event is None:
                return raw
            said = self._stream.take(event)
        except (ValueError, RecursionError):
            return raw
        return raw if said == [event] else b"".join(map(self._written, said))

    def _event(self, kind: str, value: dict[str, Any]) -> Event | None:
        """Return the event that a message holds."""
        if not self._is_invoked:
            return {**value, _KIND: kind}
        held = value.get("bytes")
        event = json.loads(b64decode(held, validate=True)) if isinstance(held, str) else None
        return event if isinstance(event, dict) else None

    def _written(self, event: Event) -> bytes:
        headers = {_KIND: "chunk", ":content-type": "application/json", ":message-type": "event"}
        if self._is_invoked:
            return encode_message(headers, dumped({"bytes": b64encode(dumped(event)).decode()}))
        headers[_KIND] = event[_KIND]
        return encode_message(
            headers, dumped({name: one for name, one in event.items() if name != _KIND})
        )
