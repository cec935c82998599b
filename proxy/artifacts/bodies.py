"""Bodies of model requests, by dialect: their system prompt, their conversation, their tools.

Chat completions, responses and messages say the same in three ways. What artefacts change is spliced
into a body's text, and every other byte stays its client's. A call mostly extends the one before it,
so only its new messages are parsed.
"""

from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any, ClassVar, override

from proxy.artifacts.placed_json import (
    DECODER,
    SPACES,
    PlacedValue,
    dumped,
    items_of,
    members_of,
    past,
)
from proxy.artifacts.said_texts import INSTRUCTING, SaidTexts, said_in
from proxy.artifacts.system_prompt import SystemPrompt

_KEPT_CHARACTERS = 8_000_000
"""Of the conversations that one route remembers."""
_KEY_CHARACTERS = 300


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
        value = DECODER.decode(self.text)
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
        for item in items_of(self.text, PlacedValue(0, len(self.text), self._tools)):
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
        self.said: SaidTexts
        """The end of the open conversation without instructions; no edit changes it."""
        self.tools: OfferedTools
        self._cut: int
        self._written: SystemPrompt
        self._listed: PlacedValue | None
        if before is None or not self._extends(before):
            self._read()
        self.prompt: SystemPrompt = self._written
        """The system prompt with what is replaced in it."""
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
            between = f"[0{new[cut : len(new) - rest]}]"
            (_, *added), end = DECODER.raw_decode(between)
        except ValueError:
            return False
        if end < len(between):
            return False
        self._cut = len(new) - rest
        self._written = before._written
        self._listed, self.tools = before._listed, before.tools
        self.said = said_in(added, before.said)
        return True

    def _read(self) -> None:
        text = self.text
        start = past(text, 0)
        members, end = members_of(text, start)
        if text[end:].strip(SPACES):
            raise ValueError("no JSON")
        spoken, tools = members.get(self._spoken), members.get("tools")
        self.said = said_in(self._messages(spoken))
        prompts, home = self._found_prompts(members, start + 1)
        # Only behind somebody's words it is sure that no instruction follows.
        listed = spoken is not None and isinstance(spoken.value, list) and self.said.texts
        self._cut = len(text[: spoken.end - 1].rstrip(SPACES)) if listed and spoken else 0
        self._written = SystemPrompt([self._placed(each) for each in prompts], self._placed(home))
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

    def append(self, escaped: str) -> None:
        """Put a text behind the system prompt.

        Args:
            escaped: the text as JSON, without its quotes.

        Raises:
            ValueError: the prompt is neither a text nor a list of parts.
        """
        if not self.prompt.takes_blocks:
            raise ValueError("no content")
        self._appended.append(escaped)

    def sent(self) -> str:
        """Return the body with all that was changed."""
        edits = [*self.prompt.edits]
        if self._appended:
            edits.append(self.prompt.behind(self._appended))
        if self.offered is not self.tools and self._listed is not None:
            edits.append(PlacedValue(self._listed.start, self._listed.end, self.offered.text))
        text, length, at = self.text, len(self.text), 0
        pieces: list[str] = []
        for start, end, fresh in sorted(
            [(one[0] % length, one[1] % length, one[2]) for one in edits]
        ):
            pieces += (text[at:start], fresh)
            at = end
        return "".join((*pieces, text[at:]))


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
            if not isinstance(message, dict) or message.get("role") not in INSTRUCTING:
                break
            said, at = members_of(self.text, past(self.text, at + 1))
            at = past(self.text, at)
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
