"""Keyed hashes over messages: what lets a call be recognised as going on from an earlier one.

Two hashes per message. The *loose* one ignores what clients change when they resend a message
(reasoning, white space at the ends, spacing of arguments, unknown fields); it finds the parent.
The *exact* one covers everything; it decides how much of the parent's conversation may be
referred to instead of stored again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from trajectory.assembly.nodes import shorten
from trajectory.canonical import JsonValue, canonical_json
from trajectory.message import (
    MediaPart,
    Message,
    OpaquePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

_SHORT_BYTES = 12
_LONG_BYTES = 20
_KEY_BYTES_LIMIT = 64
_SYSTEM_ROLES = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class MessageDigest:
    """Both hashes of one message."""

    loose: bytes
    exact: bytes


class Fingerprinter:
    """Makes all keyed hashes of the assembly; nobody without the key can test a guess against them."""

    def __init__(self, key: bytes) -> None:
        """Keep the key."""
        key = key[:_KEY_BYTES_LIMIT]
        self._derived = ("digest", key)
        # To begin with a copy costs half of beginning with the key.
        self._short = blake2b(digest_size=_SHORT_BYTES, key=key)
        self._long = blake2b(digest_size=_LONG_BYTES, key=key)

    def identifier(self, kind: str, *names: str) -> str:
        """Return a public identifier, e.g. of a step, made from ``names``."""
        data = "\0".join((kind, *names)).encode("utf-8", "surrogatepass")
        made = self._long.copy()
        made.update(data)
        return "b2:" + made.hexdigest()

    def short(self, kind: str, *names: str) -> str:
        """Return a short hash for the state, made from ``names``."""
        return shorten(self.digest("\0".join((kind, *names)).encode("utf-8", "surrogatepass")))

    def short_json(self, kind: str, value: JsonValue, *names: str) -> str:
        """Return a short hash of a JSON value within the scope of ``names``."""
        lead = "\0".join((kind, *names, "")).encode("utf-8", "surrogatepass")
        return shorten(self.digest(lead + canonical_json(value)))

    def digest(self, data: bytes) -> bytes:
        """Return the keyed hash of bytes."""
        made = self._short.copy()
        made.update(data)
        return made.digest()

    def message(self, message: Message) -> MessageDigest:
        """Return both hashes of a message, made once for each message object."""
        found: MessageDigest | None = message.derived.get(self._derived)
        if found is None:
            loose = self.digest(_loose_bytes(message))
            extras = _extras(message)
            exact = self.digest(loose + canonical_json(extras)) if extras else loose
            found = message.derived[self._derived] = MessageDigest(loose, exact)
        return found

    def system(self, messages: Sequence[Message]) -> str:
        """Return the hash of the system messages; empty without any."""
        if not messages:
            return ""
        return shorten(self.digest(b"".join(self.message(item).exact for item in messages)))

    def link(self, head: bytes, digest: bytes) -> str:
        """Return the short form of the chain one message after ``head``."""
        return shorten(self.digest(head + digest))


def leading_system_count(context: Sequence[Message]) -> int:
    """Return how many system and developer messages lead the context."""
    count = 0
    while count < len(context) and context[count].role in _SYSTEM_ROLES:
        count += 1
    return count


def _loose_bytes(message: Message) -> bytes:
    pieces = [message.role]
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    pieces.append("\n".join(texts).strip())
    for part in message.parts:
        if isinstance(part, ToolCallPart):
            pieces += ["c", part.call_id, part.name, _json_text(part.arguments)]
        elif isinstance(part, ToolResultPart):
            pieces += ["r", part.call_id, result_text(part.content).strip()]
        elif isinstance(part, MediaPart):
            pieces += ["m", part.sha256 or part.url or ""]
    return "\x1f".join(f"{len(piece)}:{piece}" for piece in pieces).encode("utf-8", "surrogatepass")


def _json_text(value: JsonValue) -> str:
    return canonical_json(value).decode("utf-8", "surrogatepass")


def result_text(content: JsonValue) -> str:
    """Return a tool's answer as text: blocks of text joined, anything else as canonical JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(block, dict) and isinstance(block.get("text"), str) for block in content
    ):
        return "\n".join(str(block["text"]) for block in content if isinstance(block, dict))
    return _json_text(content)


def _extras(message: Message) -> list[JsonValue]:
    """Return what the loose hash leaves out, empty for most messages."""
    extras: list[JsonValue] = []
    texts: list[JsonValue] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif isinstance(part, ReasoningPart):
            extras.append(["reasoning", part.text, part.signature])
        elif isinstance(part, OpaquePart):
            extras.append(["opaque", part.value])
        elif isinstance(part, ToolCallPart) and not part.arguments_valid:
            extras.append(["invalid", part.call_id])
        elif isinstance(part, ToolResultPart) and (
            part.is_error
            or not isinstance(part.content, str)
            or part.content != part.content.strip()
        ):
            extras.append(["result", part.content, part.is_error])
    if len(texts) > 1 or (texts and texts[0] != str(texts[0]).strip()):
        extras.append(["texts", texts])
    if message.name is not None:
        extras.append(["name", message.name])
    if len(message.parts) > 1:
        kinds = [part.type for part in message.parts]
        if kinds != sorted(kinds, key=_USUAL_ORDER.index):
            extras.append(["order", list[JsonValue](kinds)])
    return extras


_USUAL_ORDER = ["reasoning", "text", "media", "tool_call", "tool_result", "opaque"]
