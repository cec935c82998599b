"""Tool environments to learn in: what tools answered in governed traffic, served again to a model.

A replayed environment knows only the calls that were recorded, by tool and canonical arguments. A call that it
does not know is a miss, and the model is told so. The whole episode then counts as unscorable, because nobody
knows the tool's answer.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from train.chat import ChatMessage
from trajectory.canonical import canonical_json

_RESERVED = ("reset", "get_reward")


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call of a tool and its answer, as a trajectory has them."""

    tool: str
    arguments: str = field(repr=False)
    """Canonical JSON."""
    answer: str = field(repr=False)


class MissedCallError(LookupError):
    """The model called a tool in a way that was never recorded."""


def recorded_calls(messages: Sequence[ChatMessage]) -> list[RecordedCall]:
    """Return the calls of a conversation that were answered in it, in order.

    Calls and answers are matched by call id; an answer without an id belongs to the first call
    before it that has none yet.
    """
    open_calls: dict[str, tuple[str, str]] = {}
    found: list[RecordedCall] = []
    for message in messages:
        for call in message.get("tool_calls", ()):
            function = call["function"]
            open_calls[call["id"]] = (function["name"], canonical(function["arguments"]))
        if message["role"] != "tool":
            continue
        call_id = message.get("tool_call_id") or next(iter(open_calls), "")
        asked = open_calls.pop(call_id, None)
        if asked is not None:
            found.append(RecordedCall(*asked, answer=message["content"]))
    return found


def canonical(arguments: Any) -> str:
    """Return arguments in the one form in which equal ones are equal."""
    return canonical_json(arguments).decode()


class RecordedTools:
    """Recorded tool answers, by tenant, tool and canonical arguments.

    One tenant's answers are never given to another's tasks. Where a tool answered the same call in
    several ways, the most frequent answer is served. Of equally frequent ones it is the first in lexical
    order, so every run chooses alike.
    """

    def __init__(self, calls: Iterable[tuple[str, RecordedCall]]) -> None:
        answers: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
        for tenant, call in calls:
            answers[tenant, call.tool, call.arguments][call.answer] += 1
        self._answers = {key: _most_frequent(counts) for key, counts in answers.items()}
        self.ambiguous = sum(len(counts) > 1 for counts in answers.values())
        """Calls that were answered in more than one way."""

    def __len__(self) -> int:
        return len(self._answers)

    def answer(self, tenant: str, tool: str, arguments: Mapping[str, Any]) -> str:
        """Return the recorded answer.

        Raises:
            MissedCallError: this call was never recorded.
        """
        try:
            return self._answers[tenant, tool, canonical(dict(arguments))]
        except KeyError:
            raise MissedCallError(f"no recorded answer of {tool} to these arguments") from None


def _most_frequent(counts: Counter[str]) -> str:
    return min(counts, key=lambda answer: (-counts[answer], answer))


class Tools(Protocol):
    """The tools of one episode."""

    def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Answer a call.

        Raises:
            MissedCallError: nobody ever asked this.
        """
        ...


def replay_environment(
    begin: Callable[[Mapping[str, Any]], Tools], tools: Sequence[Mapping[str, Any]]
) -> type:
    """Return an environment class for TRL's trainers: one method per tool, answers from the record.

    :func:`has_missed` says of an instance whether its episode called what was never recorded.

    Args:
        begin: returns the tools of an episode of a row.
        tools: definitions.

    Raises:
        ValueError: a tool has a name that TRL keeps for itself.
    """

    def reset(self: Any, **row: Any) -> None:
        """Begin an episode."""
        self._tools = begin(row)
        self._missed = False

    methods: dict[str, Any] = {"reset": reset, "_missed": False}
    for name in tool_names(tools):
        if is_reserved(name):
            raise ValueError(f"a tool cannot be called {name!r} in a replayed environment")
        methods[name] = _method(name)
    return type("ReplayEnvironment", (), methods)


def has_missed(world: Any) -> bool:
    """Whether an episode called something that was never recorded; TRL takes what is public for tools."""
    return bool(getattr(world, "_missed", False))


def is_reserved(name: str) -> bool:
    """Tell whether TRL keeps a tool's name for itself, so that no environment can offer it."""
    return name in _RESERVED or name.startswith("_")


def _method(name: str) -> Any:
    def call(self: Any, /, **arguments: Any) -> str:
        try:
            answer: str = self._tools.call(name, arguments)
        except MissedCallError:
            self._missed = True
            raise
        return answer

    call.__name__ = name
    return call


def tool_names(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of tool definitions, each once."""
    return list(dict.fromkeys(tool["function"]["name"] for tool in tools))


def tools_key(tools: Sequence[Mapping[str, Any]]) -> str:
    """Return what is equal for equal tool definitions."""
    return json.dumps(list(tools), sort_keys=True)
