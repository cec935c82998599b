"""Answers on their way back: surrogates become values again, for those who may have them.

What goes to the client is restored. A tool call's arguments are restored where the tool may have
values, or has said them itself; else the tool gets the surrogate. What restoring would make wrong
(log probabilities of a text's tokens, places in a document) is moved with the text or taken out.
Signed reasoning passes as it is: its signature holds for each letter.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from proxy.clients.credentials import RawFields
from proxy.inline.kept_histories import KeptHistory
from proxy.inline.openai import is_client_call, tool_of
from proxy.inline.requests import BareRequest, WireRequest, is_json
from proxy.inline.restorer import MOST_NAMED, IssuedSurrogates, TextRestorer

type Receivers = Mapping[str, frozenset[str] | None]
"""``tool:NAME`` for each tool that may have values, with the entity types that it may have; None for all.
``tool:*`` stands for every tool that is not named."""
ALL_TOOLS = "tool:*"
_NO_TYPES: frozenset[str] = frozenset()
EARNED_NOTHING: Mapping[str, Collection[str]] = MappingProxyType({})
_CALLED = frozenset({"function", "custom", "functionCall", "function_call", "toolUse"})
"""Fields that hold what a call of a client's tool says."""
_SAID = frozenset({"content", "text", "response"})
"""Fields of the answer's text."""
_THOUGHT = re.compile("reasoning|summary")
RUN_BY_PROVIDER = frozenset({"server_tool_use", "mcp_tool_use"})
"""Anthropic's blocks of tools that the provider runs itself."""


class CallSurrogates:
    """The surrogates of one call, and who may have what they stand for."""

    def __init__(
        self,
        request: WireRequest,
        issued: IssuedSurrogates,
        to: Receivers,
        told: bytes,
        *,
        earned: Mapping[str, Collection[str]] = EARNED_NOTHING,
        keep: Callable[["CallSurrogates", dict[str, Any]], None] | None = None,
        inner: Callable[[str], "CallSurrogates | None"] | None = None,
    ) -> None:
        """Restore by what a route allows.

        Args:
            request: as its client wrote it.
            issued: what its provider saw.
            to: the tools that may have values, and of which types.
            told: the request as its provider got it.
            earned: surrogates that tools may have for what they said before this request.
            keep: told of an object that another request may go on from.
            inner: takes the name of a request in the file or the batch that is looked up, or the id
                of an object in a list, and returns its surrogates.
        """
        self._request = request
        self._told = told
        self._earned = earned
        self._keep = keep
        self._inner = inner
        self._to = to
        self._tools: dict[str, IssuedSurrogates] = {}
        self.issued = issued
        self.in_json = request.wants_json()
        """The text for the client is JSON, whose strings need escapes."""
        self.said = IssuedSurrogates(issued.values) if self.in_json else issued
        """What this text may have: what it says in strings stays in them."""
        self.restored = 0
        """Values that the answer brought back."""
        self.withheld = 0
        """Surrogates that a tool call kept."""
        self.unknown = 0
        """How much looked like a surrogate and was none of this call."""
        self.invented: dict[str, None] = {}
        """What did, the first few."""

    @property
    def looked_up(self) -> KeptHistory | None:
        """What is known of what the request asks for, and its provider keeps."""
        return self._request.before if isinstance(self._request, BareRequest) else None

    @property
    def after(self) -> int | None:
        """The number of the event behind which the request wants a stream; None for all of it."""
        about = self._request.about
        return None if about is None else about.after

    @property
    def asks_for_list(self) -> bool:
        """Whether the request asks for a list of what its provider keeps."""
        return isinstance(self._request, BareRequest) and self._request.asks_for_list

    def inner(self, name: str) -> "CallSurrogates | None":
        """Return the surrogates of a part of what is looked up; None where it is not known."""
        return None if self._inner is None else self._inner(name)

    def add(self, other: "CallSurrogates") -> None:
        """Count what a part of what is looked up got back."""
        self._add(other)

    def _add(self, counted: "CallSurrogates | TextRestorer") -> None:
        self.restored += counted.restored
        self.withheld += counted.withheld
        self.unknown += counted.unknown
        if counted.invented:
            self.invented = dict([*{**self.invented, **counted.invented}.items()][:MOST_NAMED])

    def of_tool(self, name: str) -> IssuedSurrogates:
        """Return what a tool may have."""
        found = self._tools.get(name)
        if found is None:
            types = self._to.get(f"tool:{name}", self._to.get(ALL_TOOLS, _NO_TYPES))
            found = self._tools[name] = (
                self.issued
                if types is None
                else self.issued.only(self._earned_by(name) | self.issued.of_types(types))
            )
        return found

    def earned(self) -> dict[str, tuple[str, ...]]:
        """Return the surrogates that tools may have for what they said so far, by their names."""
        tools = self._request.tools() | self._earned.keys()
        found = {tool: tuple(sorted(self._earned_by(tool))) for tool in sorted(tools)}
        return {tool: names for tool, names in found.items() if names}

    def _earned_by(self, tool: str) -> frozenset[str]:
        return self._said_by(tool) | frozenset(self._earned.get(tool, ()))

    def answered(self, answer: dict[str, Any]) -> None:
        """Take an object as its provider wrote it, however much of it there is so far."""
        if self._keep is not None:
            self._keep(self, answer)

    def _said_by(self, tool: str) -> frozenset[str]:
        """Return the surrogates that stand for what a tool said itself.

        They were put there. One that the tool wrote because a call brought it earns nothing; nor do digits that
        happen to hold somebody's PIN.
        """
        raw = self._request.said_by(tool)
        if not raw:
            return frozenset()
        request = type(self._request)(self._told)
        request.calls = self._request.calls
        told = request.said_by(tool)
        return frozenset(name for name in self.issued.values if told.count(name) > raw.count(name))

    # Whole values.

    def text(
        self, text: str, issued: IssuedSurrogates | None = None, *, in_json: bool = False
    ) -> str:
        """Return a whole text restored."""
        issued = self.issued if issued is None else issued
        if not issued.may_hold(text):
            return text
        restorer = TextRestorer(issued, in_json=in_json)
        told = restorer.feed(text) + restorer.close()
        self.count(restorer)
        return told

    def count(self, restorer: TextRestorer) -> None:
        """Count what a restorer did."""
        self._add(restorer)

    def fields(self) -> RawFields:
        """Return what headers say of an answer that has been restored: what its model invented or tore."""
        names = ", ".join(self.invented).encode()
        return ((b"x-headrace-unknown-surrogates", names),) if names else ()

    def value(self, value: Any, issued: IssuedSurrogates | None = None) -> Any:
        """Return a value of JSON restored: an answer, an event, or a part of one.

        With ``issued`` it is what a call says: nothing in it belongs to the protocol, whatever it
        looks like.
        """
        if isinstance(value, str):
            if issued is not None and value in issued.numbers and value in issued.values:
                return json.loads(self.text(value, issued))
            return self.text(value, issued)
        if isinstance(value, list):
            return [self.value(one, issued) for one in value]
        if not isinstance(value, dict):
            return value
        if issued is not None:
            return {self.text(key, issued): self.value(one, issued) for key, one in value.items()}
        kind = str(value.get("type"))
        if kind in ("thinking", "redacted_thinking") or _is_signed_detail(value):
            return value
        if "reasoningContent" in value:  # Converse's, which may be signed
            return value
        if kind.endswith("tool_use") and kind not in RUN_BY_PROVIDER:
            told = self.value(value.get("input"), self.of_tool(str(value.get("name"))))
            return {**value, "input": told}
        if is_client_call(value):
            return self._client_call(value)
        if "arguments" in value:
            return self._called(value, self.issued if kind.startswith("mcp_") else None)
        is_said = self.in_json and not (_THOUGHT.search(kind) or value.get("thought"))
        out = {
            self.text(key): self._called(one)
            if key in _CALLED and isinstance(one, dict)
            else self.text(one, self.said, in_json=self._is_json(one))
            if is_said and key in _SAID and isinstance(one, str)
            else self.value(one)
            for key, one in value.items()
        }
        self._right(value, out)
        return out

    def _is_json(self, text: str) -> bool:
        """Whether a text of the answer is JSON; where many have said something, each tells by itself."""
        if isinstance(self._request, BareRequest) and self._request.asks_for_items:
            return is_json(text)
        return self.in_json

    def _called(
        self, called: dict[str, Any], may: IssuedSurrogates | None = None
    ) -> dict[str, Any]:
        """Return what a call says, for the tool that it names or for those who ``may`` have it."""
        may = self.of_tool(str(called.get("name"))) if may is None else may
        out = dict(called)
        for name, one in called.items():
            if name == "arguments" and isinstance(one, str):
                out[name] = self.text(one, may, in_json=True)
            elif name not in ("id", "type", "name"):
                out[name] = self.value(one, may)
        return out

    def _client_call(self, item: dict[str, Any]) -> dict[str, Any]:
        """Return an item of responses that is a call."""
        told = self._called(item, self.of_tool(tool_of(item)))
        return {**told, **{name: item[name] for name in ("call_id", "status") if name in item}}

    def _right(self, value: dict[str, Any], out: dict[str, Any]) -> None:
        """Move or take out what a restored text beside it would make wrong."""
        for name in ("text", "content", "delta"):
            text = value.get(name)
            if isinstance(text, str) and isinstance(value.get("annotations"), list):
                restorer = TextRestorer(self.said, in_json=self._is_json(text))
                restorer.feed(text)
                out["annotations"] = [moved(one, restorer) for one in out["annotations"]]
            if isinstance(text, str) and out[name] != text and value.get("logprobs"):
                out["logprobs"] = [] if isinstance(value["logprobs"], list) else None
        message = value.get("message")
        content = value.get("content")
        if isinstance(content, dict) and out["content"] != content:  # Gemini's
            for name in GEMINI_PLACES & out.keys():
                del out[name]
        if value.get("logprobs") and isinstance(message, dict) and out["message"] != message:
            out["logprobs"] = None
        if isinstance(value.get("citations"), list):
            out["citations"] = [one for one in out["citations"] if not is_of_document(one)]


GEMINI_PLACES = {"logprobsResult", "groundingMetadata", "citationMetadata"}
"""What a candidate of Gemini says of tokens and bytes of its text."""


def _is_signed_detail(value: dict[str, Any]) -> bool:
    """Whether this is a block of reasoning with a signature, as routers pass it on."""
    return str(value.get("type")).startswith("reasoning.") and bool(
        value.get("signature") or value.get("data")
    )


def is_of_document(citation: Any) -> bool:
    """Whether a citation says places in a document, which the provider has in another form."""
    if not isinstance(citation, dict):
        return False
    place = citation.get("location")  # Converse's
    return "start_char_index" in citation or (isinstance(place, dict) and "documentChar" in place)


def moved(annotation: Any, restorer: TextRestorer) -> Any:
    """Return an annotation with its places where the text is now."""
    if not isinstance(annotation, dict):
        return annotation
    out = {}
    for name, one in annotation.items():
        if name in ("start_index", "end_index") and isinstance(one, int):
            out[name] = restorer.shifted(one)
        else:
            out[name] = moved(one, restorer)
    return out
