"""Bodies of model requests, by dialect: their system prompt, their conversation, their tools.

Chat completions, responses and messages say the same in three ways. What artefacts change is spliced
into a body's bytes, and every other byte stays its client's. A call mostly extends the one before it,
so only its new messages are parsed.
"""

from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple, override

from proxy.artifacts.placed_json import (
    DECODER,
    SPACES,
    Edit,
    PlacedValue,
    dumped,
    further_items,
    in_bytes,
    items_of,
    members_of,
    past,
    spliced,
)
from proxy.artifacts.said_texts import INSTRUCTING, SaidTexts, said_in
from proxy.artifacts.system_prompt import SystemPrompt

_KEPT_BYTES = 8_000_000
"""Of the conversations that one route remembers."""
_OPENING_BYTES = 300
"""By which it is told how long a body's prompt is: so many agents share theirs."""
_OPENINGS = 4096
_FIRST_WORDS_BYTES = 150
"""Behind the prompt, by which conversations are told apart."""


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


class ArtifactDecision(NamedTuple):
    """What artefacts add to a call, and by what that was decided."""

    able: tuple[object, ...]
    """The artefacts that were tried."""
    agent: str | None
    cues: tuple[frozenset[str] | bool, ...]
    """What of the conversation decided about each."""
    edits: tuple[Edit, ...]
    labels: tuple[str, ...]
    """``name@version`` of what is added, with ``=id+id`` behind it where facts are shown."""
    counted: tuple[tuple[str, str, str], ...]
    """Route, artefact and outcome of each that was tried."""


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

    def __init__(self, data: bytes) -> None:
        """Read a body.

        Raises:
            ValueError: it is no request of this dialect. So do TypeError and LookupError say.
        """
        self.data = data
        self._appended: list[str] = []
        self.said: SaidTexts
        """The end of the open conversation without instructions; no edit changes it."""
        self.begins: int
        """Where that conversation begins, behind what instructs."""
        self.tools: OfferedTools
        self._cut: int
        self._written: SystemPrompt
        self._listed: PlacedValue | None
        self.decision: ArtifactDecision | None = None
        """What is added to it, once that is decided."""
        self.earlier: ArtifactDecision | None = None
        """What was added to the call before."""
        self._read()
        self.prompt: SystemPrompt = self._written
        """The system prompt with what is replaced in it."""
        self.offered: OfferedTools = self.tools
        """The tools with the definitions that they are given."""

    def extend(self, data: bytes) -> bool:
        """Become the conversation's next call, where that only adds messages; else stay as it is.

        What is there was JSON, and is cut behind a message. So the next call is JSON with the same
        messages and more, if what stands at the cut is further items of a list.

        Raises:
            TypeError: a message is none.
        """
        old, cut = self.data, self._cut
        if not cut or len(data) < len(old) or not data.startswith(old[:cut]):
            return False
        rest = old[cut:]
        if not data.endswith(rest):
            return False
        end = len(data) - len(rest)
        try:
            added = further_items(data[cut:end])
        except (ValueError, RecursionError):
            return False
        self.said = said_in(added, self.said)
        self.data, self._cut = data, end
        self.prompt, self.offered = self._written, self.tools
        self._appended = []
        self.earlier, self.decision = self.decision, None
        return True

    def _read(self) -> None:
        text = self.data.decode("utf-8", "surrogatepass")
        start = past(text, 0)
        members, end = members_of(text, start)
        if text[end:].strip(SPACES):
            raise ValueError("no JSON")
        spoken, tools = members.get(self._spoken), members.get("tools")
        self.said = said_in(self._messages(spoken))
        prompts, home = self._found_prompts(text, members, start + 1)
        cut = begins = 0
        if spoken is not None and isinstance(spoken.value, list):
            begins = max(
                spoken.start, *(one.end for one in (home, *prompts) if one.end < spoken.end)
            )
            # Only behind somebody's words it is sure that no instruction follows.
            cut = len(text[: spoken.end - 1].rstrip(SPACES)) if self.said.texts else 0
        within = "[]" if tools is None else text[tools.start : tools.end]
        self.tools = _read_tools(within, self._inside, self._parameters)
        marks = PlacedValue(begins, cut, None)
        marks, home, *prompts = in_bytes(text, [marks, home, *prompts, *([tools] if tools else [])])
        self.begins, self._cut, _ = marks
        self._listed = None if tools is None else self._placed(prompts.pop())
        self._written = SystemPrompt([self._placed(each) for each in prompts], self._placed(home))

    def _placed(self, span: PlacedValue) -> PlacedValue:
        """Return a span behind the cut with places that count from the end: the cut will move."""
        if not self._cut or span.start < self._cut:
            return span
        return PlacedValue(span.start - len(self.data), span.end - len(self.data), span.value)

    def _messages(self, spoken: PlacedValue | None) -> list[Any]:
        """Return the conversation."""
        if spoken is None or not isinstance(spoken.value, list):
            raise TypeError("no messages")
        return spoken.value

    def _found_prompts(
        self, _text: str, members: Mapping[str, PlacedValue], inside: int
    ) -> tuple[list[PlacedValue], PlacedValue]:
        """Return the contents that are the system prompt.

        Also where one goes in if there is none, with ``%s`` in its place.

        Args:
            _text: of the body, for dialects whose prompt stands deeper in it.
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

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All that was changed; for what extends this body the same bytes in the same places."""
        edits = [*self.prompt.edits]
        if self._appended:
            edits.append(self.prompt.behind(self._appended))
        if self.offered is not self.tools and self._listed is not None:
            edits.append(PlacedValue(self._listed.start, self._listed.end, self.offered.text))
        length = len(self.data)
        edits.sort(key=lambda one: (one.start % length, one.end % length))
        return tuple(
            [
                Edit(start, end, fresh.encode("utf-8", "surrogatepass"))
                for start, end, fresh in edits
            ]
        )

    def sent(self) -> bytes:
        """Return the body with all that was changed."""
        return spliced(self.data, self.edits)


class ChatBody(ModelBody):
    """Chat completions: the leading messages that instruct are the system prompt."""

    path = b"/chat/completions"
    _inside = "function"

    @override
    def _found_prompts(
        self, text: str, members: Mapping[str, PlacedValue], inside: int
    ) -> tuple[list[PlacedValue], PlacedValue]:
        spoken = members[self._spoken]
        found, at = [], spoken.start
        for message in spoken.value:
            if not isinstance(message, dict) or message.get("role") not in INSTRUCTING:
                break
            said, at = members_of(text, past(text, at + 1))
            at = past(text, at)
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
        self._bytes = 0
        self._begins: dict[tuple[Any, ...], int] = {}
        """Where the conversation begins in bodies that open in the same way."""

    def read(self, dialect: type[ModelBody], data: bytes, *whose: str | bytes | None) -> ModelBody:
        """Read a body; the less of it, the more it shares with its conversation's last call.

        Agents mostly share their prompt, so conversations are told apart by what stands behind it.
        Those that are taken for each other cost a parse, and nothing else.

        Raises:
            ValueError: it is no request of this dialect. So do TypeError and LookupError say.
        """
        opening = (dialect, *whose, data[:_OPENING_BYTES])
        at = self._begins.get(opening, 0)
        key = (opening, data[at : at + _FIRST_WORDS_BYTES])
        body = self._kept.pop(key, None)
        self._bytes -= 0 if body is None else len(body.data)
        if body is None or not body.extend(data):
            body = dialect(data)
            if body.begins != at:
                if len(self._begins) >= _OPENINGS:
                    self._begins.clear()
                at = self._begins[opening] = body.begins
                key = (opening, data[at : at + _FIRST_WORDS_BYTES])
                replaced = self._kept.pop(key, None)
                self._bytes -= 0 if replaced is None else len(replaced.data)
        self._kept[key] = body
        self._bytes += len(data)
        while self._bytes > _KEPT_BYTES:
            self._bytes -= len(self._kept.popitem(last=False)[1].data)
        return body
