"""Requests of OpenAI's interfaces: chat completions, completions, responses and conversations."""

from collections.abc import Iterator
from typing import Any, ClassVar

from proxy.inline.requests import (
    ARGUMENTS,
    AS_IT_IS,
    OTHER,
    PROTOCOL,
    RESULT,
    SETTINGS,
    TEXT,
    Path,
    WireRequest,
    is_media,
    messages_of,
    objects,
    of_tools,
    text_of,
)
from trajectory.dialects.wire import names

_RUN_BY_PROVIDER = names(
    "web_search_call file_search_call code_interpreter_call image_generation_call mcp_call"
)
_OF_CONVERSATIONS = names("items metadata")
_DEEPEST_PART = 5
"""Keys to a field of a part of an item of responses."""


class ChatRequest(WireRequest):
    """Chat completions."""

    ends = (b"/chat/completions",)

    def _reads(self, value: dict[str, Any]) -> bool:
        return isinstance(value.get("messages"), list)

    def _message(self, at: str) -> dict[str, Any]:
        one = self.value["messages"][int(at)]
        return one if isinstance(one, dict) else {}

    def _place(self, path: Path, kind: str, said: str) -> Path | None:
        if path[0] in ("tools", "functions"):
            return of_tools(path, kind)
        if path[0] == "metadata":
            return OTHER + path
        if kind != "string" or path[0] in SETTINGS:
            return None
        if path[0] != "messages" or len(path) < 3:
            return OTHER + path
        field, rest = path[2], path[3:]
        if path[-1] in PROTOCOL:
            return None
        if field == "content" and is_media(rest, said):
            return AS_IT_IS
        role = self._message(path[1]).get("role")
        if field == "name":
            return None if role in ("tool", "function") else ("participant", "name")
        if field in ("tool_calls", "function_call"):
            if path[-1] == "name":
                return None
            return ARGUMENTS if path[-1] in ("arguments", "input") else OTHER + rest
        if field == "reasoning_details":
            detail = self._message(path[1])[field]
            signed = isinstance(detail, list) and rest and _is_signed(detail[int(rest[0])])
            return AS_IT_IS if signed else TEXT
        if field == "content" and role in ("tool", "function"):
            return RESULT + rest
        return TEXT if not rest or rest[-1] == "text" else OTHER + rest

    def messages(self) -> Iterator[tuple[str, Path, str]]:
        return messages_of(self.value["messages"])

    def is_kept(self) -> bool:
        return self.value.get("store") is True

    def results(self) -> Iterator[tuple[str, Any]]:
        tools: dict[str, str] = {}
        for _, message in objects(self.value["messages"]):
            for _, call in objects(message.get("tool_calls")):
                inner = call.get("function") or call.get("custom")
                if isinstance(inner, dict):
                    tools[str(call.get("id"))] = str(inner.get("name"))
            if message.get("role") in ("tool", "function"):
                name = tools.get(str(message.get("tool_call_id"))) or str(message.get("name"))
                yield name, message.get("content")


def _is_signed(value: Any) -> bool:
    """Whether a block of reasoning has a signature, which holds for its exact text."""
    return isinstance(value, dict) and bool(
        value.get("signature") or value.get("data") or value.get("encrypted_content")
    )


class CompletionRequest(WireRequest):
    """Completions."""

    ends = (b"/completions",)

    def _reads(self, value: dict[str, Any]) -> bool:
        prompt = value.get("prompt")
        texts = prompt if isinstance(prompt, list) else [prompt]
        return all(isinstance(one, str) for one in texts)  # token ids could hold anything

    def _place(self, path: Path, kind: str, said: str) -> Path | None:  # noqa: ARG002
        if kind != "string" or path[0] in SETTINGS:
            return None
        return TEXT if path[0] in ("prompt", "suffix") else OTHER + path

    def messages(self) -> Iterator[tuple[str, Path, str]]:
        prompt = self.value["prompt"]
        if isinstance(prompt, str):
            yield "user", ("prompt",), prompt
        else:
            yield "user", (), "\n".join(prompt)

    def results(self) -> Iterator[tuple[str, Any]]:
        yield from ()


class ResponsesRequest(WireRequest):
    """Responses, with all of their history or the id of the response or conversation that they go on from."""

    ends = (b"/responses",)
    items: ClassVar[str] = "input"
    """The field of what is said."""

    def _reads(self, value: dict[str, Any]) -> bool:
        named = [value.get("previous_response_id"), _conversation(value)]
        if not all(isinstance(one, str | None) for one in named) or all(named):
            return False
        items = value.get("input")
        return _has_all(items) and (
            isinstance(items, str | list) or value.get("prompt") is not None
        )

    def _place(self, path: Path, kind: str, said: str) -> Path | None:
        if path[0] == "tools":
            return of_tools(path, kind)
        if path[0] == "metadata":
            return OTHER + path
        if kind != "string" or path[0] in SETTINGS:
            return None
        if path[0] == "prompt" and path[1:2] != ("variables",):
            return None
        if path[0] == self.items and len(path) > 2:
            field = path[2]
            if path[-1] in PROTOCOL and len(path) <= _DEEPEST_PART:
                return None
            if field in ("name", "namespace", "server_label"):
                kind = str(self.value[self.items][int(path[1])].get("type"))
                return None if "_" in kind else OTHER + path[2:]
            if field in ("content", "output") and is_media(path[3:], said):
                return AS_IT_IS
            if field in ("arguments", "input"):
                return ARGUMENTS
            if field == "output":
                return RESULT + path[3:]
            return TEXT if path[-1] in ("content", "text", "refusal") else OTHER + path[2:]
        if path[0] == "text" and path[-1] in ("name", "type"):
            return None
        return TEXT if path[0] in ("instructions", self.items) else OTHER + path

    def messages(self) -> Iterator[tuple[str, Path, str]]:
        items = self.value.get(self.items)
        if isinstance(items, str):
            yield "user", (self.items,), items
        for at, item in objects(items):
            if "content" in item and item.get("type", "message") == "message":
                yield (
                    str(item.get("role")),
                    *text_of(item.get("content"), (self.items, at, "content")),
                )

    def goes_on_from(self) -> str | None:
        return self.value.get("previous_response_id") or self.conversation()

    def conversation(self) -> str | None:
        return _conversation(self.value) or None

    def is_kept(self) -> bool:
        return self.value.get("store") is not False or self.conversation() is not None

    def results(self) -> Iterator[tuple[str, Any]]:
        tools = {**self.calls}
        for _, item in objects(self.value.get(self.items)):
            kind = str(item.get("type"))
            if is_client_call(item):
                tools[str(item.get("call_id"))] = tool_of(item)
            elif kind.endswith("_call_output"):
                yield tools.get(str(item.get("call_id")), ""), item.get("output")


def _conversation(value: dict[str, Any]) -> Any:
    """Return what a request of responses names as its conversation."""
    named = value.get("conversation")
    return named.get("id", named) if isinstance(named, dict) else named


def _has_all(items: Any) -> bool:
    """Whether items are all there: what they say of themselves, no reference says."""
    return not any(item.get("type") == "item_reference" for _, item in objects(items))


class ConversationRequest(ResponsesRequest):
    """A conversation that the provider keeps: it is begun, described anew, or gets items."""

    ends = (b"/conversations",)
    items = "items"

    def _reads(self, value: dict[str, Any]) -> bool:
        items = value.get("items")  # others that keep conversations at such a path say inputs
        return (
            value.keys() <= _OF_CONVERSATIONS and isinstance(items, list | None) and _has_all(items)
        )

    def conversation(self) -> str | None:
        return None if self.about is None else self.about.id


class SocketRequest(ResponsesRequest):
    """A message of a client on a connection for responses; whoever is answered there goes on from it."""

    def _reads(self, value: dict[str, Any]) -> bool:
        if value.get("type") == "response.create":
            return super()._reads(value)
        return isinstance(value.get("type"), str) and "input" not in value

    def is_kept(self) -> bool:
        return True


_LONGEST_QUESTION = 200


def calls_and_end(response: dict[str, Any]) -> tuple[dict[str, str], str]:
    """Return the tools that a response calls, by the ids of the calls, and the end of what it says."""
    calls: dict[str, str] = {}
    end = ""
    for _, item in objects(response.get("output")):
        if is_client_call(item):
            calls[str(item.get("call_id"))] = tool_of(item)
        for _, part in objects(item.get("content")):
            if item.get("type") == "message" and isinstance(part.get("text"), str):
                end = part["text"][-_LONGEST_QUESTION:]
    return calls, end


def tool_of(item: dict[str, Any]) -> str:
    """Return the name of the tool that an item of responses calls."""
    name = item.get("name")
    return name if isinstance(name, str) else str(item.get("type")).removesuffix("_call")


def is_client_call(item: dict[str, Any]) -> bool:
    """Tell whether an item of responses is a call that the client runs; of an unknown kind it is."""
    return is_client_kind(str(item.get("type")))


def is_client_kind(kind: str) -> bool:
    """Tell whether calls of a kind are run by the client."""
    return kind.endswith("_call") and kind not in _RUN_BY_PROVIDER
