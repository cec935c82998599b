"""The events of streamed answers, by dialect: a text that comes in pieces is restored as one.

An event is given back as those that the client gets: itself, one like it, or what was left of a text
and then itself.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, ClassVar

from proxy.inline.answers import (
    GEMINI_PLACES,
    RUN_BY_PROVIDER,
    CallSurrogates,
    is_of_document,
    moved,
)
from proxy.inline.openai import is_client_call, is_client_kind, tool_of
from proxy.inline.restorer import IssuedSurrogates, TextRestorer

type Event = dict[str, Any]
type Again = Callable[[str], Event]
"""Makes an event that brings a text of its own, to follow others of its kind."""


class _Channel:
    """One text of a stream, in pieces."""

    __slots__ = ("again", "restorer")

    def __init__(self, restorer: TextRestorer) -> None:
        self.restorer = restorer
        self.again: Again | None = None
        """Makes an event like the latest one, for what is left at the end."""


class AnswerEvents(ABC):
    """The events of one stream; each is taken as a value and given back as those that the client gets."""

    named: ClassVar[bool]
    """Events have names, their types."""

    def __init__(self, surrogates: CallSurrogates) -> None:
        self._surrogates = surrogates
        self._channels: dict[Hashable, _Channel] = {}
        self._tools: dict[Hashable, str] = {}
        """Names of the tools that are called, by where their calls stand."""

    @abstractmethod
    def take(self, event: Event) -> list[Event]:
        """Return what the client gets for an event; the same object where nothing changes."""

    def end(self) -> list[Event]:
        """Return what is left of texts that broke off."""
        return [event for key in [*self._channels] for event in self._close(key)]

    def _piece(
        self,
        key: Hashable,
        text: str,
        again: Again,
        *,
        issued: IssuedSurrogates | None = None,
        in_json: bool = False,
    ) -> str:
        """Return what may go on of a piece of a text."""
        channel = self._channels.get(key)
        if channel is None:
            issued = self._surrogates.issued if issued is None else issued
            channel = self._channels[key] = _Channel(TextRestorer(issued, in_json=in_json))
        channel.again = again
        return channel.restorer.feed(text)

    def _said(self, key: Hashable, text: str, again: Again) -> str:
        """Return what may go on of a piece of the answer's text."""
        surrogates = self._surrogates
        return self._piece(key, text, again, issued=surrogates.said, in_json=surrogates.in_json)

    def _close(self, key: Hashable) -> list[Event]:
        """End a text; return an event for what is left of it."""
        channel = self._channels.pop(key, None)
        if channel is None or channel.again is None:
            return []
        rest = channel.restorer.close()
        self._surrogates.count(channel.restorer)
        return [channel.again(rest)] if rest else []

    def _close_all(self, begins: Callable[[Any], bool]) -> list[Event]:
        keys = [key for key in self._channels if begins(key)]
        return [event for key in keys for event in self._close(key)]


class ChatEvents(AnswerEvents):
    """Chunks of chat completions and of completions."""

    named = False

    def __init__(self, surrogates: CallSurrogates) -> None:
        super().__init__(surrogates)
        self._ids: dict[Hashable, Any] = {}
        """Ids of calls, by where they stand: some providers say the same place of each call."""
        self._left: list[Event] = []
        """What is left of calls that others have followed."""
        self._is_named = False
        """An event has said the id of the answer."""

    def take(self, event: Event) -> list[Event]:
        if not self._is_named and event.get("id"):
            self._is_named = True
            self._surrogates.answered(event)
        choices = event.get("choices")
        if not isinstance(choices, list) or not all(isinstance(one, dict) for one in choices):
            return [self._surrogates.value(event)]
        before: list[Event] = []
        out: list[dict[str, Any]] = []
        for choice in choices:
            at = choice.get("index", 0)
            told = self._choice(event, choice, at)
            if choice.get("finish_reason") is not None:
                left = self._close_all(lambda key, at=at: key[0] == at)  # type: ignore[misc]
                before += left
            out.append(told)
        left, self._left = self._left, []
        return [*left, *before, {**event, "choices": out}]

    def _choice(self, event: Event, choice: dict[str, Any], at: Any) -> dict[str, Any]:
        out = dict(choice)
        changed = False
        if isinstance(choice.get("text"), str):
            again = _choice_of(event, at, lambda text: {"text": text})
            out["text"] = self._said((at, "text"), choice["text"], again)
            changed = out["text"] != choice["text"]
        delta = choice.get("delta")
        if isinstance(delta, dict):
            out["delta"] = told = self._delta(event, delta, at)
            changed = changed or told != delta
        if changed and choice.get("logprobs"):
            out["logprobs"] = None
        return out

    def _delta(self, event: Event, delta: dict[str, Any], at: Any) -> dict[str, Any]:
        out = dict(delta)
        for name, one in delta.items():
            if name == "tool_calls" and isinstance(one, list):
                out[name] = [self._call(event, call, at) for call in one]
            elif name == "function_call" and isinstance(one, dict):
                out[name] = self._called(event, {"function": one}, at, None)["function"]
            elif name == "annotations" and isinstance(one, list):
                channel = self._channels.get((at, "content"))
                told = self._surrogates.value(one)
                out[name] = [moved(a, channel.restorer) for a in told] if channel else told
            elif name == "reasoning_details":
                out[name] = one  # may be signed, in a later piece
            elif name == "content" and isinstance(one, list):
                out[name] = [self._part(event, part, at) for part in one]
            elif isinstance(one, str) and name != "role":
                again = _choice_of(event, at, lambda text, name=name: {"delta": {name: text}})  # type: ignore[misc]
                put = self._said if name == "content" else self._piece
                out[name] = put((at, name), one, again)
            else:
                out[name] = self._surrogates.value(one)
        return out

    def _part(self, event: Event, part: Any, at: Any) -> Any:
        """Return a part of content that comes as a list, as Mistral's: its text goes on with what came before."""
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            return self._surrogates.value(part)
        again = _choice_of(event, at, lambda text: {"delta": {"content": text}})
        return {**part, "text": self._said((at, "content"), part["text"], again)}

    def _call(self, event: Event, call: Any, at: Any) -> Any:
        return self._called(event, call, at, call.get("index")) if isinstance(call, dict) else call

    def _called(self, event: Event, call: dict[str, Any], at: Any, place: Any) -> dict[str, Any]:
        """Return a piece of a tool call; the first names the tool."""
        kind = "custom" if "custom" in call else "function"
        inner, field = call.get(kind), "input" if kind == "custom" else "arguments"
        if not isinstance(inner, dict):
            return call
        key = (at, "tool", place)
        name, named = inner.get("name") or None, self._tools.get(key)
        number, known = call.get("id") or None, self._ids.get(key)
        if (name and named and name != named) or (number and known and number != known):
            self._left += self._close(key)  # another call
            self._tools[key] = ""
        if name:
            self._tools[key] = str(name)
        if number:
            self._ids[key] = number
        if not isinstance(inner.get(field), str):
            return call

        def again(text: str) -> Event:
            piece: dict[str, Any] = {field: text}
            if place is None:
                return _choice_of(event, at, lambda _: {"delta": {"function_call": piece}})(text)
            calls = [{"index": place, kind: piece}]
            return _choice_of(event, at, lambda _: {"delta": {"tool_calls": calls}})(text)

        may = self._surrogates.of_tool(self._tools.get(key, ""))
        told = self._piece(key, inner[field], again, issued=may, in_json=kind == "function")
        return {**call, kind: {**inner, field: told}}


def _choice_of(event: Event, at: Any, says: Callable[[str], dict[str, Any]]) -> Again:
    """Return what makes a chunk like another one that brings a text in one choice."""
    same = ("id", "object", "created", "model", "system_fingerprint")

    def again(text: str) -> Event:
        head = {name: event[name] for name in same if name in event}
        return {**head, "choices": [{"index": at, **says(text), "finish_reason": None}]}

    return again


class MessagesEvents(AnswerEvents):
    """Events of Anthropic messages."""

    named = True

    def take(self, event: Event) -> list[Event]:
        at = event.get("index")
        match event.get("type"):
            case "content_block_start":
                block = event.get("content_block")
                left = self._close_all(lambda key: key[0] == at)
                if isinstance(block, dict):
                    run_there = block.get("type") in RUN_BY_PROVIDER
                    self._tools[at] = "" if run_there else str(block.get("name"))
                return [*left, self._surrogates.value(event)]
            case "content_block_delta" if isinstance(event.get("delta"), dict):
                return self._delta(event, event["delta"], at)
            case "content_block_stop":
                left = self._close_all(lambda key: key[0] == at)
                return [*left, event]
            case "message_stop":
                return [*self.end(), event]
        return [self._surrogates.value(event)]

    def _delta(self, event: Event, delta: dict[str, Any], at: Any) -> list[Event]:
        issued: IssuedSurrogates | None
        match delta.get("type"):
            case "text_delta":
                field, issued = "text", self._surrogates.said
            case "input_json_delta":
                field = "partial_json"
                run_there = self._tools.get(at) == ""
                issued = None if run_there else self._surrogates.of_tool(self._tools.get(at, "?"))
            case "thinking_delta" | "signature_delta":
                return [event]
            case "citations_delta":
                of_document = is_of_document(delta.get("citation"))
                return [] if of_document else [self._surrogates.value(event)]
            case _:
                return [self._surrogates.value(event)]
        text = delta.get(field)
        if not isinstance(text, str):
            return [event]

        def again(rest: str) -> Event:
            return {**event, "delta": {**delta, field: rest}}

        in_json = field == "partial_json" or self._surrogates.in_json
        told = self._piece((at, field), text, again, issued=issued, in_json=in_json)
        return [event if told == text else again(told)]


class ResponsesEvents(AnswerEvents):
    """Events of responses; those that are added take numbers, and the ones behind them move up.

    A client that wants the events behind a number gets those, as it counts them. All are read, for a surrogate may
    have begun before it.
    """

    named = True
    _JSON = ("response.function_call_arguments", "response.mcp_call_arguments")

    def __init__(self, surrogates: CallSurrogates) -> None:
        super().__init__(surrogates)
        self._added = 0

    def take(self, event: Event) -> list[Event]:
        told, after = self._take(event), self._surrogates.after
        number = event.get("sequence_number")
        if not isinstance(number, int):
            return told
        if len(told) > 1 or self._added:
            told = [
                {**one, "sequence_number": number + self._added + at} for at, one in enumerate(told)
            ]
            self._added += len(told) - 1
        if after is None:
            return told
        return [one for one in told if one["sequence_number"] > after]

    def _take(self, event: Event) -> list[Event]:
        if isinstance(event.get("response"), dict):
            self._surrogates.answered(event["response"])
        kind = str(event.get("type"))
        name, _, what = kind.rpartition(".")
        if what == "delta" and isinstance(event.get("delta"), str):
            return [self._delta(event, name)]
        if kind == "response.output_item.added":
            item = event.get("item")
            if isinstance(item, dict) and is_client_call(item):
                self._tools[event.get("output_index")] = tool_of(item)
        if kind == "response.output_text.annotation.added":
            channel = self._channels.get(_place(event, "response.output_text"))
            told = self._surrogates.value(event)
            return [moved(told, channel.restorer) if channel else told]
        if what == "done":
            left = self._close(_place(event, name))
            return [*left, self._done(event, name)]
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            return [*self.end(), self._surrogates.value(event)]
        return [self._surrogates.value(event)]

    def _done(self, event: Event, name: str) -> Event:
        """Return the event that says a text again, whole."""
        if not _is_client_text(name) and name not in self._JSON:
            told: Event = self._surrogates.value(event)
            return told
        may = self._may(event, name)
        out = dict(event)
        for field, one in event.items():
            if isinstance(one, str) and field not in ("type", "item_id", "name"):
                out[field] = self._surrogates.text(one, may, in_json=field == "arguments")
        return out

    def _may(self, event: Event, name: str) -> IssuedSurrogates | None:
        """Return what a text may have; None for all."""
        if not _is_client_text(name):
            return None
        return self._surrogates.of_tool(self._tools.get(event.get("output_index"), ""))

    def _delta(self, event: Event, name: str) -> Event:
        def again(text: str) -> Event:
            logprobs: Event = {"logprobs": []} if event.get("logprobs") else {}
            return {**event, "delta": text, **logprobs}

        if name == "response.output_text":
            told = self._said(_place(event, name), event["delta"], again)
            return event if told == event["delta"] else again(told)
        told = self._piece(
            _place(event, name),
            event["delta"],
            again,
            issued=self._may(event, name),
            in_json=name in self._JSON,
        )
        return event if told == event["delta"] else again(told)


class GeminiEvents(AnswerEvents):
    """Chunks of Gemini: each has whole parts, and a text goes on in the next."""

    named = False

    def take(self, event: Event) -> list[Event]:
        candidates = event.get("candidates")
        if not isinstance(candidates, list) or not all(isinstance(c, dict) for c in candidates):
            return [self._surrogates.value(event)]
        before: list[Event] = []
        out = [self._candidate(event, one) for one in candidates]
        for one in candidates:
            if one.get("finishReason") is not None:
                at = one.get("index", 0)
                before += self._close_all(lambda key, at=at: key[0] == at)  # type: ignore[misc]
        return [*before, {**event, "candidates": out}]

    def _candidate(self, event: Event, candidate: dict[str, Any]) -> dict[str, Any]:
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        if not isinstance(content, dict) or not isinstance(parts, list):
            told: dict[str, Any] = self._surrogates.value(candidate)
            return {name: one for name, one in told.items() if name != "groundingMetadata"}
        at = candidate.get("index", 0)
        said = [self._part(event, part, at) for part in parts]
        out = {**candidate, "content": {**content, "parts": said}}
        for name in GEMINI_PLACES & out.keys():
            if name != "groundingMetadata" and said == parts:
                continue
            del out[name]  # grounding comes last, and is about the whole text
        return out

    def _part(self, event: Event, part: Any, at: Any) -> Any:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            return self._surrogates.value(part)
        thought = bool(part.get("thought"))

        def again(text: str) -> Event:
            piece = {"text": text, **({"thought": True} if thought else {})}
            content = {"role": "model", "parts": [piece]}
            head: Event = {n: event[n] for n in ("modelVersion", "responseId") if n in event}
            return {"candidates": [{"content": content, "index": at}], **head}

        put = self._piece if thought else self._said
        return {**part, "text": put((at, thought), part["text"], again)}


class OllamaEvents(AnswerEvents):
    """Lines of Ollama."""

    named = False

    def take(self, event: Event) -> list[Event]:
        out = dict(event)
        message = event.get("message")
        if isinstance(message, dict):
            out["message"] = self._texts(event, message, ("content", "thinking"), inner=True)
        else:
            out = self._texts(event, event, ("response", "thinking"), inner=False)
        if out != event and event.get("logprobs"):
            out["logprobs"] = []
        return [*(self.end() if event.get("done") else []), out]

    def _texts(
        self, event: Event, holder: dict[str, Any], texts: tuple[str, ...], *, inner: bool
    ) -> dict[str, Any]:
        out = {}
        for name, one in holder.items():
            if name not in texts or not isinstance(one, str):
                out[name] = self._surrogates.value(one)
                continue

            def again(text: str, name: str = name) -> Event:
                head: Event = {n: event[n] for n in ("model", "created_at") if n in event}
                said = {"message": {"role": "assistant", name: text}} if inner else {name: text}
                return {**head, **said, "done": False}

            put = self._piece if name == "thinking" else self._said
            out[name] = put((name,), one, again)
        return out


_TEXT_OF_CALL = re.compile(r"response\.(\w+_call)_\w+")


def _is_client_text(name: str) -> bool:
    """Whether the events of a name bring what a call of the client's says."""
    found = _TEXT_OF_CALL.fullmatch(name)
    return found is not None and is_client_kind(found[1])


def _place(event: Event, name: str) -> Hashable:
    """Return where a text of responses stands."""
    part = event.get("content_index", event.get("summary_index"))
    return name, event.get("output_index"), part
