"""Requests of Anthropic, Gemini and Ollama."""

from collections.abc import Iterator
from typing import Any

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
    is_bytes,
    messages_of,
    objects,
    of_tools,
    text_of,
)
from trajectory.dialects.hints import anthropic_user
from trajectory.dialects.wire import names

_SIGNED = (("thinking",), ("signature",), ("data",))


class MessagesRequest(WireRequest):
    """Anthropic messages; signed blocks of reasoning go as they are, for their signatures hold for each letter."""

    ends = (b"/messages", b"/messages/count_tokens")

    def _reads(self, value: dict[str, Any]) -> bool:
        return isinstance(value.get("messages"), list)

    def _place(self, path: Path, kind: str, said: str) -> Path | None:
        if path[0] == "tools":
            return of_tools(path, kind)
        if path[0] in SETTINGS:
            return AS_IT_IS if path[0] == "mcp_servers" else None
        if path[0] == "messages" and len(path) > 4:
            block = self._block(path[1], path[3])
            if path[4:] in _SIGNED and self._is_signed(path[1], block):
                return AS_IT_IS
            if path[4] == "input":
                return ARGUMENTS + path[5:]
            if kind != "string" or path[-1] in PROTOCOL:
                return None
            if self._is_bytes(block, path[4:], said):
                return AS_IT_IS
            if path[4:] == ("name",) and str(block.get("type")).endswith("tool_use"):
                return None
            if block.get("type") == "tool_result" and path[4] == "content":
                return RESULT + path[5:]
            return TEXT if path[-1] in ("text", "data") else OTHER + path[4:]
        if path[0] == "metadata":
            return OTHER + path
        if kind != "string" or (path[0] in ("messages", "system") and path[-1] in PROTOCOL):
            return None
        texts = path[0] == "system" or path[2:] == ("content",)
        return TEXT if texts else OTHER + path

    def _end_users(self) -> tuple[str | None, ...]:
        return (anthropic_user(self.value)[0],)

    def _is_signed(self, message: str, block: dict[str, Any]) -> bool:
        """Whether a block is reasoning that the provider has signed or sealed."""
        if self.value["messages"][int(message)].get("role") != "assistant":
            return False
        seal = {"thinking": "signature", "redacted_thinking": "data"}.get(str(block.get("type")))
        return seal is not None and bool(block.get(seal))

    @staticmethod
    def _is_bytes(block: dict[str, Any], path: Path, said: str) -> bool:
        """Whether a string within a block is the data of a source that is no text."""
        if path[-2:] != ("source", "data"):
            return False
        holder: Any = block
        for key in path[:-1]:
            holder = holder[int(key)] if isinstance(holder, list) else holder[key]
        return holder.get("type") == "base64" and is_bytes(said)

    def _block(self, message: str, at: str) -> dict[str, Any]:
        blocks = self.value["messages"][int(message)].get("content")
        block = blocks[int(at)] if isinstance(blocks, list) else None
        return block if isinstance(block, dict) else {}

    def messages(self) -> Iterator[tuple[str, Path, str]]:
        return messages_of(self.value["messages"])

    def results(self) -> Iterator[tuple[str, Any]]:
        tools: dict[str, str] = {}
        for _, message in objects(self.value["messages"]):
            for _, block in objects(message.get("content")):
                if block.get("type") == "tool_use":
                    tools[str(block.get("id"))] = str(block.get("name"))
                elif block.get("type") == "tool_result":
                    yield tools.get(str(block.get("tool_use_id")), ""), block.get("content")


class GeminiRequest(WireRequest):
    """Gemini's ``generateContent``; a history that is cached at the provider cannot be restored from."""

    ends = (b":generateContent", b":streamGenerateContent", b":countTokens")

    def _reads(self, value: dict[str, Any]) -> bool:
        if value.get("cachedContent") or value.get("cached_content"):
            return False
        return isinstance(value.get("contents"), list | dict) and "request" not in value

    def _place(self, path: Path, kind: str, said: str) -> Path | None:
        if path[0] == "tools":
            return None if kind != "string" or path[-1] == "name" else OTHER + path
        if path[0] in _GEMINI_SETTINGS:
            return None
        part = path[4:] if path[0] == "contents" and path[2:3] == ("parts",) else path
        match part:
            case ("functionCall" | "function_call", "args", *rest):
                return (*ARGUMENTS, *rest)
            case ("functionResponse" | "function_response", "response", *rest):
                return (*RESULT, *rest)
            case ("inlineData" | "inline_data", "data") if is_bytes(said):
                return AS_IT_IS
        if kind != "string" or path[-1] in _GEMINI_FIELDS:
            return None
        return TEXT if path[-1] == "text" else OTHER + path

    def wants_json(self) -> bool:
        config = self.value.get("generationConfig", self.value.get("generation_config"))
        kinds = ("responseMimeType", "response_mime_type")
        return isinstance(config, dict) and any(
            config.get(one) == "application/json" for one in kinds
        )

    def messages(self) -> Iterator[tuple[str, Path, str]]:
        for at, content in objects(self.value["contents"]):
            path = ("contents", at, "parts")
            yield str(content.get("role", "user")), *text_of(content.get("parts"), path)

    def results(self) -> Iterator[tuple[str, Any]]:
        for _, content in objects(self.value["contents"]):
            for _, part in objects(content.get("parts")):
                told = part.get("functionResponse") or part.get("function_response")
                if isinstance(told, dict):
                    yield str(told.get("name")), told.get("response")


class OllamaRequest(WireRequest):
    """Ollama's chat and generation; tokens of an earlier generation could hold anything."""

    ends = (b"/api/chat", b"/api/generate")

    def _reads(self, value: dict[str, Any]) -> bool:
        said = value.get("messages"), value.get("prompt")
        return not value.get("context") and (isinstance(said[0], list) or isinstance(said[1], str))

    def _place(self, path: Path, kind: str, said: str) -> Path | None:
        if path[0] == "tools":
            return of_tools(path, kind)
        if path[0] == "messages" and path[2:3] == ("tool_calls",):
            if path[-1] in ("name", "id", "type") and len(path) <= _DEEPEST_CALL:
                return None
            return ARGUMENTS + path[6:] if path[5:6] == ("arguments",) else OTHER + path
        if kind != "string" or path[0] in _OLLAMA_SETTINGS:
            return None
        if "images" in path[:3] and is_bytes(said):
            return AS_IT_IS
        if path[0] == "messages" and path[2:] in (("role",), ("tool_name",), ("tool_call_id",)):
            return None
        return TEXT

    def wants_json(self) -> bool:
        return bool(self.value.get("format"))

    def messages(self) -> Iterator[tuple[str, Path, str]]:
        if isinstance(self.value.get("prompt"), str):
            yield "user", ("prompt",), self.value["prompt"]
        for at, message in objects(self.value.get("messages")):
            path = ("messages", at, "content")
            yield str(message.get("role")), *text_of(message.get("content"), path)

    def results(self) -> Iterator[tuple[str, Any]]:
        for _, message in objects(self.value.get("messages")):
            if message.get("role") == "tool":
                name = message.get("tool_name") or message.get("name")
                yield str(name), message.get("content")


_GEMINI_SETTINGS = names("toolConfig tool_config safetySettings safety_settings")
_GEMINI_FIELDS = names(
    "role name id mimeType mime_type thoughtSignature thought_signature responseMimeType type"
)
_OLLAMA_SETTINGS = names("keep_alive think format")
_DEEPEST_CALL = 6
"""Keys to the name of a called function."""
