"""Tool calls in model answers: what every dialect's reader of them shares.

An answer is a list of values: one of a whole body, or those of a stream's events. A reader finds the
calls that the client would make in them, and puts a text where one was that is not made.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from proxy.guard.denied_calls import DeniedCall
from proxy.guard.strict_json import AmbiguousJsonError, parse_strictly
from proxy.inline.answers import RUN_BY_PROVIDER
from proxy.inline.openai import is_client_kind
from trajectory.canonical import JsonValue

type Event = dict[str, Any]
type Texts = Mapping[Hashable, str]
"""What stands in a call's place, by the call's key."""

_HOLDERS = frozenset({"toolcalls", "functioncall", "tooluse"})
"""Keys, in small letters and without ``_``, under which some dialect writes calls."""
_KINDS = ("tool_use", "_call", "approval_request")
_WITHIN = ("function.call", "function_call", "tool_call")
_ENDS = b"tool", b"call", b"Tool", b"Call", b"approval_request"
"""One of these stands in every key and type of a call, unless it is written with escapes."""


class UnreadableAnswerError(Exception):
    """An answer whose tool calls nobody can vouch for; says why in fixed words."""


class FoundCall(NamedTuple):
    """A call as the model wrote it."""

    tool: str | None
    """None where the answer names none."""
    arguments: JsonValue
    """Whole; a text where the model wrote JSON."""
    is_written: bool = True
    """The arguments are such a text."""

    def read(self) -> JsonValue:
        """Return the arguments.

        Raises:
            AmbiguousJsonError: they are no JSON that every reader reads alike.
        """
        if not self.is_written:
            return self.arguments
        if not isinstance(self.arguments, str):
            raise AmbiguousJsonError("no text")
        return parse_strictly(self.arguments) if self.arguments.strip() else {}


class AnswerForm(ABC):
    """How one dialect writes answers with calls."""

    named: ClassVar[bool] = False
    """Its events have names, their types."""

    def __init__(self) -> None:
        self.has_spoken = False
        """Text has gone to the client: what stands in a call's place begins a paragraph."""

    @staticmethod
    @abstractmethod
    def takes(value: Event) -> bool:
        """Tell whether an answer or an event is written so."""

    @abstractmethod
    def known(self, value: Event) -> Iterator[Any]:
        """Yield the parts of a value in which calls stand at their places."""

    def begins(self, value: Event) -> bool:
        """Tell whether a call of the client's begins in a value, or goes on."""
        return bool(self.calls([value]))

    def note(self, value: Event) -> None:  # noqa: B027 - not every form has to
        """Take notice of an event that goes to the client."""

    @abstractmethod
    def calls(self, values: Sequence[Event]) -> dict[Hashable, FoundCall]:
        """Return the calls in an answer, each under a key of its own."""

    def unanswered(self, values: Sequence[Event], texts: Texts) -> tuple[str, list[DeniedCall]]:  # noqa: ARG002 - of one form alone
        """Return the id of an answer that its provider keeps, and the denied calls that wait there."""
        return "", []

    @abstractmethod
    def without(self, values: Sequence[Event], texts: Texts) -> list[Event]:
        """Return an answer with texts in the place of calls; the rest as it was."""

    def keep_alive(self) -> Event | None:
        """Return an event that says nothing; None where streams have comments."""
        return None

    def _paragraph(self, text: str, *, behind: bool) -> str:
        return f"\n\n{text}" if behind or self.has_spoken else text


def may_hold_calls(data: bytes) -> bool:
    """Tell whether a body or an event is worth reading: without these words no call is in it."""
    return any(one in data for one in _ENDS) or b"\\u" in data


def is_call_of_client(kind: str) -> bool:
    """Tell whether a block or item of a type is a call that the client makes."""
    if kind.endswith("tool_use"):
        return kind not in RUN_BY_PROVIDER
    return is_client_kind(kind) or kind == "mcp_approval_request"


def stray(value: Any, known: Sequence[Any] = ()) -> bool:
    """Tell whether something that looks like a call stands where no reader looks for one."""
    passed = {id(one) for one in known}
    rest = [value]
    while rest:
        one = rest.pop()
        if id(one) in passed:
            continue
        if isinstance(one, list):
            rest += one
        elif isinstance(one, dict):
            kind = one.get("type")
            if isinstance(kind, str) and _is_call(kind):
                return True
            for key, inner in one.items():
                if inner and isinstance(inner, dict | list) and id(inner) not in passed:
                    if key.lower().replace("_", "") in _HOLDERS:
                        return True
                    rest.append(inner)
    return False


def _is_call(kind: str) -> bool:
    if kind.endswith(_KINDS):
        return is_call_of_client(kind)
    # Events of responses only fill the items that are looked at.
    return any(one in kind for one in _WITHIN) and not kind.startswith("response.")


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, and nothing of what is no list.

    Raises:
        UnreadableAnswerError: something else is in it.
    """
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise UnreadableAnswerError("a list that is none")
    return value
