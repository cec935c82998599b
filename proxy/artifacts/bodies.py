"""Bodies of model requests, by dialect: their system prompt, their conversation, their tools.

Chat completions, responses and messages say the same in three ways. What artefacts change is spliced
into a body's text, and every other byte stays its client's. A call mostly extends the one before it,
so only its new messages are parsed.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple, override

SAID_CHARACTERS = 4000
"""So much of a conversation's end tells what it is about; a text that begins within it counts whole."""
_KEPT_CHARACTERS = 8_000_000
"""Of the conversations that one route remembers."""
_KEY_CHARACTERS = 300
_INSTRUCTING = frozenset({"system", "developer"})
_EMPTY_LINE = r"\n\n"
_SPACES = " \t\n\r"
_SPACE = re.compile(f"[{_SPACES}]*")
_WORD = re.compile(r"\w+")


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text; upper and lower case are alike."""
    return frozenset(_WORD.findall(text.casefold()))


class PlacedValue(NamedTuple):
    """A JSON value, and where it stands in a text."""

    start: int
    end: int
    value: Any


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _past(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None  # noqa: S101 - it matches nothing too
    return found.end()


def _members(text: str, at: int) -> tuple[dict[str, PlacedValue], int]:
    """Return the values of an object that begins here, by name, and where it ends.

    Raises:
        ValueError: it is none, or a name stands in it twice: then readers differ about it.
    """
    found: dict[str, PlacedValue] = {}
    if text[at] != "{":
        raise ValueError("no object")
    at = _past(text, at + 1)
    more = text[at] != "}"
    while more:
        if text[at] != '"':
            raise ValueError("no JSON")
        name, at = _DECODER.raw_decode(text, at)
        at = _past(text, at)
        if text[at] != ":" or name in found:
            raise ValueError("no JSON, or a name stands twice")
        start = _past(text, at + 1)
        value, end = _DECODER.raw_decode(text, start)
        found[name] = PlacedValue(start, end, value)
        at = _past(text, end)
        if more := text[at] == ",":
            at = _past(text, at + 1)
    if text[at] != "}":
        raise ValueError("no JSON")
    return found, at + 1


def _items(text: str, within: PlacedValue) -> list[PlacedValue]:
    """Return where the items of a list stand that has been parsed."""
    found: list[PlacedValue] = []
    at = within.start
    for _ in within.value:
        start = _past(text, at + 1)
        value, end = _DECODER.raw_decode(text, start)
        found.append(PlacedValue(start, end, value))
        at = _past(text, end)
    return found


class SaidText:
    """One text of a conversation, upper and lower case alike."""

    def __init__(self, text: str) -> None:
        self.text = text[-SAID_CHARACTERS:].casefold()

    @cached_property
    def words(self) -> frozenset[str]:
        """Its words."""
        return words_of(self.text)


class SaidTexts(NamedTuple):
    """The end of a conversation."""

    texts: tuple[SaidText, ...]
    """The latest first."""
    length: int
    """In characters."""


_NOTHING_SAID = SaidTexts((), 0)


class OfferedTools:
    """The list of tools of a request."""

    def __init__(self, text: str, inside: str | None, parameters: str) -> None:
        """Read it.

        Args:
            text: the JSON list.
            inside: the name under which a tool has its definition, where it is not one itself.
            parameters: the name of the schema in a definition.
        """
        self.text = text
        self._inside = inside
        self._parameters = parameters

    @cached_property
    def _tools(self) -> list[Any]:
        value = _DECODER.decode(self.text)
        return value if isinstance(value, list) else []

    def _definition(self, tool: Any) -> dict[str, Any] | None:
        found = tool.get(self._inside) if self._inside and isinstance(tool, dict) else tool
        return found if isinstance(found, dict) and isinstance(found.get("name"), str) else None

    @cached_property
    def definitions(self) -> dict[str, dict[str, Any]]:
        """Description and parameters of each tool."""
        found = [each for each in map(self._definition, self._tools) if each is not None]
        return {
            each["name"]: {
                "description": each.get("description", ""),
                "parameters": each.get(self._parameters, {}),
            }
            for each in found
        }

    def defined(self, told: Mapping[str, Mapping[str, Any]]) -> "OfferedTools":
        """Return the list with other definitions of some tools; the other tools stay as written."""
        at = 0
        pieces: list[str] = []
        for item in _items(self.text, PlacedValue(0, len(self.text), self._tools)):
            before = self._definition(item.value)
            if before is None or (after := told.get(before["name"])) is None:
                continue
            fresh = {
                **before,
                "description": after["description"],
                self._parameters: after["parameters"],
            }
            tool = {**item.value, self._inside: fresh} if self._inside else fresh
            pieces += (self.text[at : item.start], dumped(tool))
            at = item.end
        return OfferedTools("".join((*pieces, self.text[at:])), self._inside, self._parameters)


_read_tools = lru_cache(maxsize=64)(OfferedTools)
"""Most calls of an agent offer the same tools."""
dumped = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
"""Returns a value as JSON; a ValueError says that it holds a number that JSON has not."""


class ModelBody:
    """A model request's body: what has been read of it, and what is changed."""

    path: ClassVar[bytes]
    """How the path of its requests ends."""
    _spoken: ClassVar[str] = "messages"
    """The name of the conversation."""
    _prompt: ClassVar[str] = "system"
    """The name of the system prompt."""
    _inside: ClassVar[str | None] = None
    _parameters: ClassVar[str] = "parameters"

    def __init__(self, text: str, before: "ModelBody | None" = None) -> None:
        """Read a body.

        Args:
            text: of the body.
            before: one that it may extend; what both have in common is not parsed again.

        Raises:
            ValueError: it is no request of this dialect. So do TypeError and LookupError say.
        """
        self.text = text
        self._appended: list[str] = []
        self._replaced: dict[int, Any] = {}
        self.said: SaidTexts
        """The end of the open conversation without instructions; no edit changes it."""
        self.tools: OfferedTools
        self._cut: int
        self._prompts: list[PlacedValue]
        self._home: PlacedValue
        self._listed: PlacedValue | None
        if before is None or not self._extends(before):
            self._read()
        self.offered: OfferedTools = self.tools
        """The tools with the definitions that they are given."""

    def _extends(self, before: "ModelBody") -> bool:
        """Take over what an earlier call says too, where this one only adds messages to its end.

        The earlier text was JSON, and was cut behind a message. So this one is JSON with the same
        messages and more, if what stands at the cut is further items of a list.
        """
        old, new, cut = before.text, self.text, before._cut
        rest = len(old) - cut
        if not cut or len(new) < len(old) or not new.startswith(old[:cut]):
            return False
        if not new.endswith(old[cut:]):
            return False
        try:
            _, *added = _DECODER.decode(f"[0{new[cut : len(new) - rest]}]")
        except ValueError:
            return False
        self._cut = len(new) - rest
        self._prompts, self._home = before._prompts, before._home
        self._listed, self.tools = before._listed, before.tools
        self.said = _said(added, before.said)
        return True

    def _read(self) -> None:
        text = self.text
        start = _past(text, 0)
        members, end = _members(text, start)
        if text[end:].strip(_SPACES):
            raise ValueError("no JSON")
        spoken, tools = members.get(self._spoken), members.get("tools")
        self.said = _said(self._messages(spoken))
        prompts, home = self._found_prompts(members, start + 1)
        # Only behind somebody's words it is sure that no instruction follows.
        listed = spoken is not None and isinstance(spoken.value, list) and self.said.texts
        self._cut = len(text[: spoken.end - 1].rstrip(_SPACES)) if listed and spoken else 0
        self._prompts = [self._placed(each) for each in prompts]
        self._home = self._placed(home)
        self._listed = None if tools is None else self._placed(tools)
        within = "[]" if tools is None else text[tools.start : tools.end]
        self.tools = _read_tools(within, self._inside, self._parameters)

    def _placed(self, span: PlacedValue) -> PlacedValue:
        """Return a span behind the cut with places that count from the end: the cut will move."""
        if not self._cut or span.start < self._cut:
            return span
        return PlacedValue(span.start - len(self.text), span.end - len(self.text), span.value)

    def _messages(self, spoken: PlacedValue | None) -> list[Any]:
        """Return the conversation."""
        if spoken is None or not isinstance(spoken.value, list):
            raise TypeError("no messages")
        return spoken.value

    def _found_prompts(
        self, members: Mapping[str, PlacedValue], inside: int
    ) -> tuple[list[PlacedValue], PlacedValue]:
        """Return the contents that are the system prompt.

        Also where one goes in if there is none, with ``%s`` in its place.

        Args:
            members: of the body.
            inside: where the first of them could stand.
        """
        more = "," if members else ""
        home = PlacedValue(inside, inside, f'"{self._prompt}":%s{more}')
        return [members[self._prompt]] if self._prompt in members else [], home

    @property
    def system(self) -> str:
        """The system prompt as its client wrote it, with what was replaced."""
        return "\n\n".join(
            text
            for at, span in enumerate(self._prompts)
            for text in _texts(self._replaced.get(at, span.value))
        )

    def append(self, escaped: str) -> None:
        """Put a text behind the system prompt.

        Args:
            escaped: the text as JSON, without its quotes.

        Raises:
            ValueError: the prompt is neither a text nor a list of parts.
        """
        if self._prompts and not isinstance(self._prompts[-1].value, str | list | None):
            raise ValueError("no content")
        self._appended.append(escaped)

    def replace(self, old: str, new: str) -> bool:
        """Put another text in the place of the first such one in the system prompt."""
        for at, span in enumerate(self._prompts):
            content = self._replaced.get(at, span.value)
            if isinstance(content, str) and old in content:
                self._replaced[at] = content.replace(old, new, 1)
                return True
            for number, part in enumerate(content if isinstance(content, list) else ()):
                if old in next(_texts([part]), ""):
                    fresh = {**part, "text": part["text"].replace(old, new, 1)}
                    self._replaced[at] = [*content[:number], fresh, *content[number + 1 :]]
                    return True
        return False

    def sent(self) -> str:
        """Return the body with all that was changed."""
        edits: list[tuple[int, int, str]] = []
        if self._appended and not self._prompts:
            home = self._home
            edits.append((home.start, home.end, home.value % _behind(None, self._appended)))
        for at, (start, end, written) in enumerate(self._prompts):
            content = self._replaced.get(at, written)
            behind = self._appended and at == len(self._prompts) - 1
            added = _behind(content, self._appended) if behind else ""
            if at in self._replaced:
                text = dumped(content)
                edits.append((start, end, text[:-1] + added + text[-1]))
            elif behind:
                edits.append(
                    (start if content is None else end - 1, end - (content is not None), added)
                )
        if self.offered is not self.tools and self._listed is not None:
            edits.append((self._listed.start, self._listed.end, self.offered.text))
        length, at = len(self.text), 0
        pieces: list[str] = []
        for start, end, text in sorted(
            (start % length, end % length, text) for start, end, text in edits
        ):
            pieces += (self.text[at:start], text)
            at = end
        return "".join((*pieces, self.text[at:]))


def _behind(content: Any, appended: Sequence[str]) -> str:
    """Return what goes in before the end of a content, or in the place of none."""
    if isinstance(content, list):
        parts = [f'{{"type":"text","text":"{text}"}}' for text in appended]
        return ",".join(("", *parts) if content else parts)
    if content is None:
        return f'"{_EMPTY_LINE.join(appended)}"'
    return _EMPTY_LINE.join(("", *appended) if content else appended)


def _texts(content: Any) -> Iterator[str]:
    """Yield the texts of a content: it is one itself, or has parts."""
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


def _said(messages: Sequence[Any], before: SaidTexts = _NOTHING_SAID) -> SaidTexts:
    """Return the last texts of a conversation, without instructions."""
    found: list[SaidText] = []
    length = 0
    for message in reversed(messages):
        if length >= SAID_CHARACTERS:
            break
        if isinstance(message, dict) and message.get("role") not in _INSTRUCTING:
            for text in reversed([*_texts(message.get("content"))]):
                if text and length < SAID_CHARACTERS:
                    found.append(SaidText(text))
                    length += len(found[-1].text)
    texts = (*found, *before.texts)
    length += before.length
    while texts and length - len(texts[-1].text) >= SAID_CHARACTERS:
        length -= len(texts[-1].text)
        texts = texts[:-1]
    return SaidTexts(texts, length)


class ChatBody(ModelBody):
    """Chat completions: the leading messages that instruct are the system prompt."""

    path = b"/chat/completions"
    _inside = "function"

    @override
    def _found_prompts(
        self, members: Mapping[str, PlacedValue], inside: int
    ) -> tuple[list[PlacedValue], PlacedValue]:
        spoken = members[self._spoken]
        found, at = [], spoken.start
        for message in spoken.value:
            if not isinstance(message, dict) or message.get("role") not in _INSTRUCTING:
                break
            said, at = _members(self.text, _past(self.text, at + 1))
            at = _past(self.text, at)
            found.append(said["content"])
        more = "," if spoken.value else ""
        home = '{"role":"system","content":%s}' + more
        return found, PlacedValue(spoken.start + 1, spoken.start + 1, home)


class ResponsesBody(ModelBody):
    """Responses: the system prompt is ``instructions``, which the answer repeats."""

    path = b"/responses"
    _spoken = "input"
    _prompt = "instructions"

    def _messages(self, spoken: PlacedValue | None) -> list[Any]:
        given = None if spoken is None else spoken.value
        if isinstance(given, str):
            return [{"role": "user", "content": given}]
        return given if isinstance(given, list) else []


class MessagesBody(ModelBody):
    """Messages: the system prompt is ``system``, a text or a list of blocks."""

    path = b"/messages"
    _parameters = "input_schema"


BODIES: tuple[type[ModelBody], ...] = (ChatBody, ResponsesBody, MessagesBody)


class Conversations:
    """The last call of each conversation of a route."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], ModelBody] = OrderedDict()
        self._characters = 0

    def read(self, dialect: type[ModelBody], text: str, *whose: str | bytes | None) -> ModelBody:
        """Read a body; the less of it, the more it shares with its conversation's last call.

        Conversations that are taken for each other cost a parse, and nothing else.

        Raises:
            ValueError: it is no request of this dialect. So do TypeError and LookupError say.
        """
        key = (dialect, *whose, text[:_KEY_CHARACTERS])
        before = self._kept.pop(key, None)
        self._characters -= 0 if before is None else len(before.text)
        body = self._kept[key] = dialect(text, before)
        self._characters += len(text)
        while self._characters > _KEPT_CHARACTERS:
            self._characters -= len(self._kept.popitem(last=False)[1].text)
        return body
