"""Tool calls in the answers of chat completions, Gemini and Ollama: beside the text, in lists."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from proxy.guard.answer_calls import (
    AnswerForm,
    Event,
    FoundCall,
    Texts,
    UnreadableAnswerError,
    objects,
)

_CALLING = ("tool_calls", "function_call")
_HEAD = ("id", "object", "created", "model", "system_fingerprint")


class ChatAnswers(AnswerForm):
    """Chat completions, whole and in chunks."""

    @staticmethod
    def takes(value: Event) -> bool:
        """Tell by the choices."""
        return isinstance(value.get("choices"), list)

    def known(self, value: Event) -> Iterator[Any]:
        """Yield the lists of calls in all choices."""
        for choice in objects(value.get("choices")):
            for name in ("message", "delta"):
                if isinstance(said := choice.get(name), dict):
                    yield from (said[one] for one in _CALLING if said.get(one))

    def note(self, value: Event) -> None:
        """Note whether text was in it."""
        for choice in objects(value.get("choices")):
            delta = choice.get("delta")
            if isinstance(delta, dict) and delta.get("content"):
                self.has_spoken = True

    def calls(self, values: Sequence[Event]) -> dict[Hashable, FoundCall]:
        """Return the calls, joined of their pieces."""
        found: dict[Hashable, FoundCall] = {}
        for _, key, piece in _Pieces().of(values):
            kind = "custom" if "custom" in piece else "function"
            inner = piece.get(kind)
            if not isinstance(inner, dict):
                raise UnreadableAnswerError("a call that says nothing")
            before = found.get(key)
            name, said = inner.get("name") or None, inner.get("arguments", inner.get("input"))
            tool = name if before is None or before.tool is None else before.tool
            if tool is not None and not isinstance(tool, str):
                raise UnreadableAnswerError("a name that is none")
            if kind == "custom":
                before_said = before.arguments if before else {"input": ""}
                assert isinstance(before_said, dict)  # noqa: S101 - so it was made here
                text = f"{before_said['input']}{said or ''}"
                found[key] = FoundCall(tool, {"input": text}, is_written=False)
            elif isinstance(said, dict | list):  # as some servers write them
                found[key] = FoundCall(tool, said, is_written=False)
            else:
                text = f"{before.arguments if before else ''}{said or ''}"
                found[key] = FoundCall(tool, text)
        return found

    def without(self, values: Sequence[Event], texts: Texts) -> list[Event]:
        """Put texts into the content; where no call is left the answer simply stops."""
        pieces: dict[int, list[tuple[Hashable, dict[str, Any]]]] = {}
        kept: dict[Any, list[Hashable]] = {}
        lost: dict[Any, list[Hashable]] = {}
        for holder, key, piece in _Pieces().of(values):
            pieces.setdefault(id(holder), []).append((key, piece))
            places = (lost if key in texts else kept).setdefault(key[0], [])
            if key not in places:
                places.append(key)
        out: list[Event] = []
        for event in values:
            choices = []
            before: list[Event] = []
            for choice in objects(event.get("choices")):
                at = choice.get("index", 0)
                told = dict(choice)
                for name in ("message", "delta"):
                    said = choice.get(name)
                    if isinstance(said, dict) and id(said) in pieces:
                        told[name] = _kept(said, pieces[id(said)], texts, kept.get(at, []))
                        told.pop("logprobs", None)
                ends = choice.get("finish_reason") is not None or "message" in choice
                if at in lost and ends:
                    text = "\n\n".join(texts[key] for key in lost.pop(at))
                    if isinstance(message := told.get("message"), dict):
                        told["message"] = self._spoken(message, text)
                    else:
                        before.append(self._chunk(event, at, text))
                    for name in ("finish_reason", "stop_reason"):
                        if not kept.get(at) and choice.get(name) in _CALLING:
                            told[name] = "stop"
                choices.append(told)
            out += [*before, {**event, "choices": choices} if "choices" in event else event]
        for at, keys in lost.items():  # it broke off
            out.append(self._chunk(values[-1], at, "\n\n".join(texts[key] for key in keys)))
        return out

    def _spoken(self, message: dict[str, Any], text: str) -> dict[str, Any]:
        content = message.get("content")
        if isinstance(content, list):
            return {**message, "content": [*content, {"type": "text", "text": text}]}
        told = self._paragraph(text, behind=bool(content))
        return {**message, "content": f"{content or ''}{told}"}

    def _chunk(self, event: Event, at: Any, text: str) -> Event:
        head = {name: event[name] for name in _HEAD if name in event}
        delta = {"content": self._paragraph(text, behind=False)}
        return {**head, "choices": [{"index": at, "delta": delta, "finish_reason": None}]}


class _Pieces:
    """Tells the calls of a stream apart: some servers say the same place of each."""

    def __init__(self) -> None:
        self._ids: dict[tuple[Any, Any], Any] = {}
        self._copies: dict[tuple[Any, Any], int] = {}

    def of(
        self, values: Sequence[Event]
    ) -> Iterator[tuple[dict[str, Any], tuple[Any, Any, int], dict[str, Any]]]:
        """Yield each piece with what holds it and the key of its call, the choice first."""
        for event in values:
            for choice in objects(event.get("choices")):
                at = choice.get("index", 0)
                for said in (choice.get("message"), choice.get("delta")):
                    if not isinstance(said, dict):
                        continue
                    for number, piece in enumerate(objects(said.get("tool_calls"))):
                        yield said, self._key(at, piece.get("index", number), piece), piece
                    if isinstance(called := said.get("function_call"), dict):
                        yield said, (at, None, 0), {"function": called}

    def _key(self, at: Any, place: Any, piece: dict[str, Any]) -> tuple[Any, Any, int]:
        here, new = (at, place), piece.get("id") or None
        inner = piece.get("function") or piece.get("custom") or {}
        known = self._ids.get(here)
        if known and new and known != new and isinstance(inner, dict) and inner.get("name"):
            self._copies[here] = self._copies.get(here, 0) + 1
        if new:
            self._ids[here] = new
        return at, place, self._copies.get(here, 0)


def _kept(
    said: dict[str, Any],
    pieces: list[tuple[Any, dict[str, Any]]],
    texts: Texts,
    kept: list[Hashable],
) -> dict[str, Any]:
    """Return a message without the calls that are not made; the others move up."""
    out = {name: one for name, one in said.items() if name not in _CALLING}
    calls = []
    for key, piece in pieces:
        if key in texts:
            continue
        if key[1] is None:
            out["function_call"] = said["function_call"]
        else:
            moves = "index" in piece and key[2] == 0
            calls.append({**piece, "index": kept.index(key)} if moves else piece)
    if calls:
        out["tool_calls"] = calls
    return out


class GeminiAnswers(AnswerForm):
    """Gemini, whole, as chunks and as one array: each call comes in one part."""

    @staticmethod
    def takes(value: Event) -> bool:
        """Tell by the candidates."""
        return isinstance(value.get("candidates"), list)

    def known(self, value: Event) -> Iterator[Any]:
        """Yield the calls."""
        yield from (call for *_, call in _gemini_calls([value]))

    def note(self, value: Event) -> None:
        """Note whether text was in it."""
        for _, part in _gemini_parts(value):
            self.has_spoken = self.has_spoken or bool(part.get("text") and not part.get("thought"))

    def calls(self, values: Sequence[Event]) -> dict[Hashable, FoundCall]:
        """Return the calls."""
        found: dict[Hashable, FoundCall] = {}
        for key, _, call in _gemini_calls(values):
            if call.get("willContinue") or call.get("partialArgs"):
                raise UnreadableAnswerError("arguments in pieces")
            name = call.get("name")
            tool = name if isinstance(name, str) else None
            found[key] = FoundCall(tool, call.get("args") or {}, is_written=False)
        return found

    def without(self, values: Sequence[Event], texts: Texts) -> list[Event]:
        """Put a part of text where the call's part was."""
        instead = {id(part): texts[key] for key, part, _ in _gemini_calls(values) if key in texts}
        out = []
        behind = False
        for event in values:
            candidates = []
            for candidate in objects(event["candidates"]) if "candidates" in event else ():
                content = candidate.get("content")
                told: list[Any] = []
                for part in objects(content.get("parts")) if isinstance(content, dict) else ():
                    text = instead.get(id(part))
                    # What a signature holds for is gone.
                    told.append(
                        part if text is None else {"text": self._paragraph(text, behind=behind)}
                    )
                    behind = behind or bool(told[-1].get("text"))
                if told and isinstance(content, dict):
                    candidate = {**candidate, "content": {**content, "parts": told}}
                candidates.append(candidate)
            out.append({**event, "candidates": candidates} if "candidates" in event else event)
        return out

    def keep_alive(self) -> Event:
        """Return a chunk with an empty text: not all clients pass over comments."""
        return {"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": ""}]}}]}


def _gemini_parts(value: Event) -> Iterator[tuple[Hashable, dict[str, Any]]]:
    for number, candidate in enumerate(objects(value.get("candidates"))):
        content = candidate.get("content")
        if isinstance(content, dict):
            for at, part in enumerate(objects(content.get("parts"))):
                yield (candidate.get("index", number), at), part


def _gemini_calls(
    values: Sequence[Event],
) -> Iterator[tuple[Hashable, dict[str, Any], dict[str, Any]]]:
    for number, event in enumerate(values):
        for key, part in _gemini_parts(event):
            for name in ("functionCall", "function_call"):
                if isinstance(call := part.get(name), dict):
                    yield (number, key), part, call


class OllamaAnswers(AnswerForm):
    """Ollama's chat: lines, or one object; each call comes whole."""

    @staticmethod
    def takes(value: Event) -> bool:
        """Tell by the message, or by the text that is generated."""
        return isinstance(value.get("done"), bool)

    def known(self, value: Event) -> Iterator[Any]:
        """Yield the list of calls."""
        message = value.get("message")
        if isinstance(message, dict) and message.get("tool_calls"):
            yield message["tool_calls"]

    def note(self, value: Event) -> None:
        """Note whether text was in it, and what the answer is called."""
        message = value.get("message")
        self.has_spoken = self.has_spoken or bool(
            isinstance(message, dict) and message.get("content")
        )

    def calls(self, values: Sequence[Event]) -> dict[Hashable, FoundCall]:
        """Return the calls."""
        found: dict[Hashable, FoundCall] = {}
        for number, event in enumerate(values):
            for calls in self.known(event):
                for at, call in enumerate(objects(calls)):
                    inner = call.get("function")
                    if not isinstance(inner, dict):
                        raise UnreadableAnswerError("a call that says nothing")
                    name, said = inner.get("name"), inner.get("arguments")
                    tool = name if isinstance(name, str) else None
                    found[number, at] = FoundCall(tool, said or {}, isinstance(said, str))
        return found

    def without(self, values: Sequence[Event], texts: Texts) -> list[Event]:
        """Put texts behind the content."""
        out = []
        for number, event in enumerate(values):
            message = event.get("message")
            lost = [key for key in texts if isinstance(key, tuple) and key[0] == number]
            if isinstance(message, dict) and lost:
                calls = objects(message.get("tool_calls"))
                left = [one for at, one in enumerate(calls) if (number, at) not in texts]
                said = {name: one for name, one in message.items() if name != "tool_calls"}
                text = "\n\n".join(texts[key] for key in lost)
                content = said.get("content") or ""
                said["content"] = f"{content}{self._paragraph(text, behind=bool(content))}"
                event = {**event, "message": {**said, **({"tool_calls": left} if left else {})}}
            out.append(event)
        return out

    def keep_alive(self) -> Event:
        """Return a line with an empty text."""
        return {"model": "", "message": {"role": "assistant", "content": ""}, "done": False}
