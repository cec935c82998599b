"""Bodies of model requests, by dialect: their system prompt, their conversation, their tools.

Chat completions, responses and messages say the same in three ways. An edit changes the parsed body
in place, and only where it says so.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

SAID_CHARACTERS = 4000
"""Of the conversation's end so much tells what it is about."""
_INSTRUCTING = frozenset({"system", "developer"})


class ModelBody(ABC):
    """A model request's body."""

    path: ClassVar[bytes]
    """How the path of its requests ends."""
    _parameters: ClassVar[str] = "parameters"
    """Where a definition of a tool has its schema."""

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value

    @abstractmethod
    def append(self, text: str) -> None:
        """Put a text behind the system prompt."""

    @abstractmethod
    def _prompts(self) -> Iterator[tuple[Any, Any]]:
        """Yield where each text of the system prompt stands: a container, and its key there."""

    @abstractmethod
    def _messages(self) -> list[Any]:
        """Return the conversation."""

    @property
    def system(self) -> str:
        """The system prompt."""
        return "\n\n".join(holder[key] for holder, key in self._prompts())

    def replace(self, old: str, new: str) -> bool:
        """Put another text in the place of the first such one in the system prompt."""
        for holder, key in self._prompts():
            if old in holder[key]:
                holder[key] = holder[key].replace(old, new, 1)
                return True
        return False

    def said(self) -> str:
        """Return the end of the open conversation, without instructions."""
        found: list[str] = []
        length = 0
        for message in reversed(self._messages()):
            if not isinstance(message, dict) or message.get("role") in _INSTRUCTING:
                continue
            for holder, key in reversed([*_texts(message, "content")]):
                found.append(holder[key][-SAID_CHARACTERS:])
                length += len(found[-1])
            if length >= SAID_CHARACTERS:
                break
        return "\n".join(reversed(found))[-SAID_CHARACTERS:]

    def _definitions(self) -> Iterator[dict[str, Any]]:
        """Yield the definitions of functions, as the dialect writes them."""
        tools = self.value.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                yield tool

    def tools(self) -> dict[str, dict[str, Any]]:
        """Return description and parameters of each tool that is offered."""
        return {
            tool["name"]: {
                "description": tool.get("description", ""),
                "parameters": tool.get(self._parameters, {}),
            }
            for tool in self._definitions()
        }

    def define(self, tools: dict[str, dict[str, Any]]) -> None:
        """Give some tools other definitions."""
        for tool in self._definitions():
            told = tools.get(tool["name"])
            if told is not None:
                tool["description"] = told["description"]
                tool[self._parameters] = told["parameters"]


def _texts(holder: dict[str, Any], key: str) -> Iterator[tuple[Any, Any]]:
    """Yield where the texts of a content stand: it is one itself, or has parts."""
    content = holder.get(key)
    if isinstance(content, str):
        yield holder, key
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part, "text"


def _add(holder: dict[str, Any], key: str, text: str) -> None:
    """Put a text behind a content."""
    content = holder.get(key)
    if isinstance(content, list):
        content.append({"type": "text", "text": text})
    elif isinstance(content, str):
        holder[key] = f"{content}\n\n{text}" if content else text
    elif content is None:
        holder[key] = text
    else:
        raise ValueError("no content")


class ChatBody(ModelBody):
    """Chat completions: the leading messages that instruct are the system prompt."""

    path = b"/chat/completions"

    def _messages(self) -> list[Any]:
        messages = self.value["messages"]
        if not isinstance(messages, list):
            raise TypeError("messages are no list")
        return messages

    def _instructions(self) -> list[dict[str, Any]]:
        found = []
        for message in self._messages():
            if not isinstance(message, dict) or message.get("role") not in _INSTRUCTING:
                break
            found.append(message)
        return found

    def _prompts(self) -> Iterator[tuple[Any, Any]]:
        for message in self._instructions():
            yield from _texts(message, "content")

    def append(self, text: str) -> None:
        instructions = self._instructions()
        if instructions:
            _add(instructions[-1], "content", text)
        else:
            self._messages().insert(0, {"role": "system", "content": text})

    def _definitions(self) -> Iterator[dict[str, Any]]:
        tools = self.value.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            function = tool.get("function") if isinstance(tool, dict) else None
            if isinstance(function, dict) and isinstance(function.get("name"), str):
                yield function


class ResponsesBody(ModelBody):
    """Responses: the system prompt is ``instructions``, which the answer repeats."""

    path = b"/responses"

    def _messages(self) -> list[Any]:
        given = self.value.get("input")
        if isinstance(given, str):
            return [{"role": "user", "content": given}]
        return given if isinstance(given, list) else []

    def _prompts(self) -> Iterator[tuple[Any, Any]]:
        yield from _texts(self.value, "instructions")

    def append(self, text: str) -> None:
        _add(self.value, "instructions", text)


class MessagesBody(ModelBody):
    """Messages: the system prompt is ``system``, a text or a list of blocks."""

    path = b"/messages"
    _parameters = "input_schema"

    def _messages(self) -> list[Any]:
        messages = self.value["messages"]
        if not isinstance(messages, list):
            raise TypeError("messages are no list")
        return messages

    def _prompts(self) -> Iterator[tuple[Any, Any]]:
        yield from _texts(self.value, "system")

    def append(self, text: str) -> None:
        _add(self.value, "system", text)


BODIES: tuple[type[ModelBody], ...] = (ChatBody, ResponsesBody, MessagesBody)
