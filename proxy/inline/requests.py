"""Requests by their dialects: which strings say something, and which belong to the protocol.

Everything is looked into but what names things of the protocol itself: roles, types, ids, names of
models and tools, signatures, and bytes of media. An unknown field is looked into.
"""

import json
import re
from abc import ABC, abstractmethod
from binascii import a2b_base64
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from proxy.inline.kept_histories import KeptHistory
from proxy.inline.kept_objects import KeptObject
from proxy.request_json import check_values
from trajectory.dialects.hints import people_in
from trajectory.dialects.wire import as_text, names
from trajectory.exchange import Headers

type Path = tuple[str, ...]

TEXT = ("parts", "0", "text")
ARGUMENTS = ("parts", "0", "arguments")
RESULT = ("parts", "0", "content")
"""Where redaction at rest finds such a string: its keys tell detectors something."""
OTHER = ("parts", "0", "value")
PROTOCOL = names(
    "type role id call_id tool_call_id tool_use_id object status media_type mime_type format detail"
    " signature encrypted_content encrypted_index cache_control file_id item_id"
)
"""Fields of messages and their parts that say nothing."""
AS_IT_IS: Path = ()
"""Where nothing is looked at whatever it says: what is signed, bytes of media, credentials."""
SETTINGS = names(
    "stream stream_options tool_choice service_tier reasoning reasoning_effort thinking include"
    " truncation modalities parallel_tool_calls previous_response_id conversation mcp_servers"
    " context_management container betas anthropic_version store background"
)
"""Fields of requests that say nothing."""
_URLS = names("url image_url file_url file_data")
_BYTES = re.compile(r"(data:[^,\s]{0,100};base64,)?([A-Za-z0-9+/_\-\s]*={0,2}\s*)")
_URL_SAFE = str.maketrans("-_", "+/")
_WORD = re.compile(r"[!-?A-~]*")
"""Of the protocol: a role, a type, an id. An address of mail, a name or a sentence is none."""
_KEY = re.compile(r"[A-Za-z_$][\w.$/:-]*|[0-9]{1,7}", re.ASCII)
_NUMBERS = names("seed maximum minimum exclusiveMaximum exclusiveMinimum created")
"""Fields whose numbers may be long, and are nobody's."""
_TOOL_FIELDS = names("name type server_url server_label headers authorization strict")


class InnerRequest(NamedTuple):
    """A request within another one."""

    read: Callable[[bytes], "WireRequest"]
    raw: bytes


class UnreadableRequestError(Exception):
    """A request's body cannot be read; nothing in it could be replaced."""


class WireRequest(ABC):
    """One request, parsed."""

    ends: ClassVar[tuple[bytes, ...]]
    """How the paths of its requests end."""
    inner: Sequence[InnerRequest] = ()
    """Requests that it hands in for later; each is looked into by itself."""

    def __init__(self, body: bytes) -> None:
        """Parse a body.

        Raises:
            UnreadableRequestError: it is no JSON object of this dialect, or goes on with a history
                that only the provider has and that nothing names.
        """
        try:
            check_values(body)
            self.text = body.decode()
            value = json.loads(self.text, parse_constant=_refuse, object_pairs_hook=_object)
        except (ValueError, RecursionError):
            raise UnreadableRequestError from None
        if not isinstance(value, dict) or not self._reads(value):
            raise UnreadableRequestError
        self.value: dict[str, Any] = value
        self.calls: Mapping[str, str] = {}
        """Names of tools, by the ids of calls that only the provider has."""
        self.about: KeptObject | None = None
        """What its path names of what the provider keeps."""

    @abstractmethod
    def _reads(self, value: dict[str, Any]) -> bool:
        """Tell whether a body is what it should be, with all of its history."""

    def place(self, path: Path, kind: str, said: str) -> Path | None:
        """Return where redaction at rest would see a literal; None where it is the protocol's.

        Args:
            path: its keys in the body.
            kind: string, number or key.
            said: what it says.
        """
        where = self._place(path, kind, said)
        if where is not None:
            return where or None
        if kind == "string":
            is_protocol = path == ("model",) or _WORD.fullmatch(said) is not None
        elif kind == "key":
            is_protocol = _KEY.fullmatch(said) is not None
        else:
            is_protocol = path[-1] in _NUMBERS
        return None if is_protocol else OTHER + path

    @abstractmethod
    def _place(self, path: Path, kind: str, said: str) -> Path | None:
        """Return where a literal is looked at; None where the protocol has a word, a key or a setting."""

    @abstractmethod
    def messages(self) -> Iterator[tuple[str, Path, str]]:
        """Yield role, place and text of each message; of one that is not just a text the last text."""

    @abstractmethod
    def results(self) -> Iterator[tuple[str, Any]]:
        """Yield what tools said: the name of each tool, and its result."""

    def said(self) -> list[tuple[Path, str]]:
        """Return the texts of the conversation in order, each with its place."""
        return [(path, text) for _, path, text in self.messages()]

    def people(self, headers: Headers) -> tuple[str, ...]:
        """Return the ids that the client gives of its end user, the strongest first."""
        return people_in(headers, self._end_users(), self.value)

    def _end_users(self) -> tuple[str | None, ...]:
        """Return those that stand in fields of the dialect."""
        return as_text(self.value.get("user")), as_text(self.value.get("safety_identifier"))

    def wants_json(self) -> bool:
        """Tell whether the answer's text is to be JSON."""
        value = self.value
        inner = [value.get(name) for name in ("text", "output_config")]
        asked = [value.get("response_format"), value.get("output_format")]
        asked += [one.get("format") for one in inner if isinstance(one, dict)]
        return any(
            str(one.get("type")).startswith("json") for one in asked if isinstance(one, dict)
        )

    def beginning(self) -> str:
        """Return what the conversation began with: the first words of its user."""
        first = ""
        for role, _, text in self.messages():
            first = first or text
            if role == "user":
                return text
        return first

    def goes_on_from(self) -> str | None:
        """Return the id of what the provider keeps and it goes on with; None where it has all of it."""
        return None

    def conversation(self) -> str | None:
        """Return the id of the conversation at the provider that it adds to; None where it adds to none."""
        return None

    def is_kept(self) -> bool:
        """Tell whether another request may go on from its answer."""
        return False

    def uses(self) -> Collection[str]:
        """Return the ids of files at the provider that it names."""
        return {*_files(self.value)} if '"file_id"' in self.text else ()

    def named(self, told: str) -> str | None:  # noqa: ARG002
        """Return what its client knows its answer by, in a batch; ``told`` is it as its provider gets it."""
        return None

    def written(self, told: str, inner: Sequence[bytes]) -> bytes:  # noqa: ARG002
        """Return the body as its provider gets it; ``inner`` are the requests in it."""
        return told.encode()

    def tools(self) -> frozenset[str]:
        """Return the names of the tools that said something, in results or in their definitions."""
        named = [name for name, _ in self.results()]
        for tools in self._definitions():
            named += [str(one["name"]) for one in _definitions(tools) if "name" in one]
        return frozenset(named)

    def _definitions(self) -> list[Any]:
        """Return where tools are defined."""
        return [self.value.get(field) for field in ("tools", "functions")]

    def said_by(self, tool: str) -> str:
        """Return what a tool said itself in this conversation: its results, and its definition."""
        results = [value for name, value in self.results() if name == tool]
        defined = [
            one
            for tools in self._definitions()
            for one in _definitions(tools)
            if one.get("name") == tool
        ]
        return "\n".join(_strings([results, defined]))


def _refuse(_: str) -> float:
    raise ValueError("not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; of two fields of one name nobody knows which the provider reads."""
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a field stands twice")
    return out


class RequestWithoutConversation(WireRequest):
    """A request about something that a provider keeps: nobody says anything in it, no tool has answered."""

    def messages(self) -> Iterator[tuple[str, Path, str]]:
        yield from ()

    def results(self) -> Iterator[tuple[str, Any]]:
        yield from ()


class BareRequest(RequestWithoutConversation):
    """A request without a body; it may ask for an answer that its provider keeps."""

    ends = ()

    def __init__(self, body: bytes) -> None:  # noqa: ARG002
        """Read nothing."""
        super().__init__(b"{}")
        self.before: KeptHistory | None = None
        """What is known of what it asks for."""

    def goes_on_from(self) -> str | None:
        return (None if self.about is None else self.about.id) or None

    def is_kept(self) -> bool:
        return self.before is not None or self.asks_for_list

    def written(self, told: str, inner: Sequence[bytes]) -> bytes:  # noqa: ARG002
        return b""

    def wants_json(self) -> bool:
        return self.asks_for_items or (self.before is not None and self.before.in_json)

    @property
    def asks_for_list(self) -> bool:
        """Whether it asks for a list of what its provider keeps."""
        return self.about is not None and not self.about.id

    @property
    def asks_for_items(self) -> bool:
        """Whether it asks for what several have said, some of it in JSON."""
        about = self.about
        return about is not None and (
            about.kind == "conversations" or about.part in ("input_items", "messages")
        )

    def _reads(self, value: dict[str, Any]) -> bool:  # noqa: ARG002
        return True

    def _place(self, path: Path, kind: str, said: str) -> Path | None:  # noqa: ARG002
        return None


def _definitions(tools: Any) -> Iterator[dict[str, Any]]:
    """Yield what may be the definition of one tool, however a dialect holds it."""
    for _, one in objects(tools):
        yield one
        for inner in one.values():
            yield from (inner,) if isinstance(inner, dict) else _definitions(inner)


def _files(value: Any) -> Iterator[str]:
    """Yield the ids of files that a value names."""
    if isinstance(value, dict):
        named = value.get("file_id")
        if isinstance(named, str):
            yield named
    if isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _files(one)


def _strings(value: Any) -> Iterator[str]:
    """Yield the texts of a value, its keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from _strings(one)


def objects(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a list, each with its place."""
    for at, one in enumerate(value if isinstance(value, list) else ()):
        if isinstance(one, dict):
            yield str(at), one


def text_of(value: Any, path: Path) -> tuple[Path, str]:
    """Return the text of a content, where it is one or its last part is."""
    if isinstance(value, str):
        return path, value
    parts = [*objects(value)]
    if not parts:
        return path, ""
    at, last = parts[-1]
    text = last.get("text")
    # With other parts beside it, a text answers no question.
    place = (*path, at, "text") if len(parts) == 1 else ()
    return (place, text) if isinstance(text, str) else ((), "")


def messages_of(value: Any) -> Iterator[tuple[str, Path, str]]:
    """Yield the role of each message, and its text with its place."""
    for at, message in objects(value):
        yield (
            str(message.get("role")),
            *text_of(message.get("content"), ("messages", at, "content")),
        )


def is_json(text: str) -> bool:
    """Whether a text is JSON that is walked as JSON, so that values in it need escapes."""
    stripped = text.strip(" \t\r\n")
    if stripped[:1] not in ("{", "[", '"') or stripped[-1:] not in ("}", "]", '"'):
        return False
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def is_media(path: Path, said: str) -> bool:
    """Whether a string is the bytes of a picture, a voice or a file."""
    if not path:
        return False
    if path[-2:] == ("input_audio", "data"):
        return is_bytes(said)
    return path[-1] in _URLS and said.startswith("data:") and is_bytes(said)


def is_bytes(said: str) -> bool:
    """Whether a string is base64, by itself or in a URL, of something that is no text."""
    found = _BYTES.fullmatch(said)
    if found is None:
        return False
    try:
        a2b_base64(found[2].translate(_URL_SAFE) + "==").decode()
    except UnicodeDecodeError:
        return True
    except ValueError:
        return False
    return False


def of_tools(path: Path, kind: str) -> Path | None:
    """Return the place of a string in the definitions of tools."""
    if kind != "string":
        return None
    direct = path[2:-1] in ((), ("function",), ("custom",), ("headers",))
    named = path[-1] in _TOOL_FIELDS or path[2:3] == ("headers",)
    if not direct or not named:
        return OTHER + path
    return None if path[-1] in ("name", "type", "strict") else AS_IT_IS
