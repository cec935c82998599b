"""Generated worlds of agent sessions with known truth, for the assembly benchmark and its tests.

Sessions share one key, a few system prompts and a limited pool of tasks, so that many of them
open with the very same words. They run interleaved and do what real agents do: tool loops,
parallel tool calls, retries of the SDK and of the application, forks, context compaction,
sub-agents, title makers, tools over MCP.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from trajectory.call import Call, CallKind, SessionHint, ToolDispatch
from trajectory.canonical import JsonObject
from trajectory.exchange import (
    ClientIdentity,
    Exchange,
    ExchangeOutcome,
    HttpRequest,
    HttpResponse,
    SpoolPosition,
)
from trajectory.message import Message, TextPart, ToolCallPart, ToolResultPart

START = datetime(2026, 1, 1, tzinfo=UTC)
CLIENT = ClientIdentity("acme", "agent", "prod", "key-1")
TOOLS: tuple[JsonObject, ...] = ({"type": "function", "function": {"name": "search"}},)
SYSTEM = Message("system", (TextPart("You are a careful assistant. Use your tools."),))
SUB_SYSTEM = Message("system", (TextPart("You are a sub-agent. Report back when done."),))
TITLE_SYSTEM = Message("system", (TextPart("Write a title for this conversation."),))
_WORDS: list[str] = (  # noqa: SIM905 - a list of words reads better as a sentence
    "order invoice refund customer shipping address delay warehouse label parcel payment receipt"
    " contract renewal meeting notes travel booking flight hotel budget report table query index"
).split()


@dataclass(frozen=True, slots=True)
class Mixture:
    """How often sessions do what; each a chance per session or per step."""

    tasks: int = 400
    """Different opening prompts; fewer than sessions, so that openings repeat."""
    steps: tuple[int, int] = (2, 12)
    sdk_retry: float = 0.03
    application_retry: float = 0.02
    fork: float = 0.05
    compaction: float = 0.08
    sub_agent: float = 0.08
    auxiliary: float = 0.3
    chat_only: float = 0.15
    """Sessions without tools: user and model take turns."""
    argument_words: int = 3
    """Words of 24 in a tool's arguments: how often two sessions ask for the very same thing."""
    dispatches: float = 0.5
    """Tool calls that go over MCP and are seen."""


@dataclass(slots=True)
class World:
    """Calls in the order of their start, and the session that each belongs to."""

    calls: list[Call] = field(default_factory=list)
    truth: dict[str, int] = field(default_factory=dict)
    """Session by exchange id."""


def generate(
    sessions: int, *, seed: int = 0, mixture: Mixture | None = None, hints: bool = False
) -> World:
    """Return a world of interleaved sessions; with ``hints`` clients name their session."""
    source = _dice(seed)
    mixture = mixture or Mixture()
    world = World()
    timed: list[tuple[float, int, Call]] = []
    for number in range(sessions):
        actor = _Session(number, _dice(source.random()), mixture, hints)
        for started, call in actor.run(start=source.uniform(0, 60)):
            timed.append((started, number, call))
    timed.sort(key=lambda item: item[0])
    for position, (started, number, call) in enumerate(timed):
        exchange_id = f"{position:032x}"
        exchange = replace(call.exchange, exchange_id=exchange_id)
        del started
        world.calls.append(replace(call, exchange=exchange))
        world.truth[exchange_id] = number
    return world


def _dice(seed: float) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a world, not a secret


class _Session:
    """One agent session, told step by step."""

    def __init__(self, number: int, chance: random.Random, mixture: Mixture, hints: bool) -> None:
        self.number = number
        self.chance = chance
        self.mixture = mixture
        self.hints = hints
        self.clock = 0.0
        self.calls: list[tuple[float, Call]] = []
        self.names = (f"{number}-{position}" for position in range(1_000_000))

    def run(self, start: float) -> Iterator[tuple[float, Call]]:
        """Yield starts and calls of the whole session."""
        self.clock = start
        task = self.chance.randrange(self.mixture.tasks)
        opening = self._text(_dice(task), 30) + f" (task {task})"
        context = [SYSTEM, Message("user", (TextPart(opening),))]
        if self.chance.random() < self.mixture.auxiliary:
            self._auxiliary(opening)
        if self.chance.random() < self.mixture.chat_only:
            self._chat(context)
        else:
            self._loop(context, TOOLS, depth=0)
        yield from self.calls

    def _text(self, chance: random.Random, words: int) -> str:
        return " ".join(chance.choice(_WORDS) for _ in range(words))

    def _auxiliary(self, opening: str) -> None:
        context = [TITLE_SYSTEM, Message("user", (TextPart(f"<message>\n{opening}\n</message>"),))]
        before = self.clock
        self._model(context, Message("assistant", (TextPart(self._text(self.chance, 4)),)), ())
        self.clock = before + self.chance.uniform(0.0, 0.2)

    def _chat(self, context: list[Message]) -> None:
        for _ in range(self.chance.randint(*self.mixture.steps) // 2 + 1):
            output = Message("assistant", (TextPart(self._text(self.chance, 25)),))
            self._model(context, output, ())
            asked = Message("user", (TextPart(self._text(self.chance, 8)),))
            context = [*context, output, asked]
            self.clock += self.chance.uniform(1, 20)

    def _loop(self, context: list[Message], tools: tuple[JsonObject, ...], depth: int) -> str:
        points: list[list[Message]] = []
        for _ in range(self.chance.randint(*self.mixture.steps)):
            context = self._maybe_compact(context, tools)
            if len(points) > 1 and self.chance.random() < self.mixture.fork:
                context = self.chance.choice(points)
            if depth == 0 and self.chance.random() < self.mixture.sub_agent:
                output, results = self._sub_agent(context, tools)
            else:
                output, results = self._tool_step(context, tools)
            context = [*context, output, *results]
            points.append(context)
        answer = self._text(self.chance, 40)
        self._model(context, Message("assistant", (TextPart(answer),)), tools)
        return answer

    def _tool_step(
        self, context: list[Message], tools: tuple[JsonObject, ...]
    ) -> tuple[Message, list[Message]]:
        words = self.mixture.argument_words
        calls = tuple(
            ToolCallPart(
                f"call_{next(self.names)}", "search", {"query": self._text(self.chance, words)}
            )
            for _ in range(1 if self.chance.random() < 0.8 else 2)
        )
        output = Message("assistant", calls)
        self._model(context, output, tools)
        results = []
        for call in calls:
            text = self._text(self.chance, 20)
            if self.chance.random() < self.mixture.dispatches:
                self._dispatch(call, text)
            results.append(Message("tool", (ToolResultPart(call.call_id, text),)))
        return output, results

    def _sub_agent(
        self, context: list[Message], tools: tuple[JsonObject, ...]
    ) -> tuple[Message, list[Message]]:
        prompt = self._text(self.chance, 25)
        call = ToolCallPart(
            f"call_{next(self.names)}", "task", {"prompt": prompt, "kind": "helper"}
        )
        output = Message("assistant", (call,))
        self._model(context, output, tools)
        own = [SUB_SYSTEM, Message("user", (TextPart(prompt),))]
        answer = self._loop(own, tools[:1], depth=1)
        return output, [Message("tool", (ToolResultPart(call.call_id, answer),))]

    def _maybe_compact(
        self, context: list[Message], tools: tuple[JsonObject, ...]
    ) -> list[Message]:
        if len(context) < 8 or self.chance.random() >= self.mixture.compaction:
            return context
        ask = Message("user", (TextPart("Summarise the conversation so far."),))
        summary = self._text(self.chance, 60)
        self._model([*context, ask], Message("assistant", (TextPart(summary),)), tools)
        lead = f"This session continues an earlier one. Its summary:\n\n{summary}\n\nGo on."
        return [context[0], Message("user", (TextPart(lead),))]

    def _model(
        self, context: list[Message], output: Message, tools: tuple[JsonObject, ...]
    ) -> None:
        if self.chance.random() < self.mixture.sdk_retry:
            self._attempt(context, None, tools, retry=0, outcome=ExchangeOutcome.COMPLETE)
            self.clock += self.chance.uniform(0.5, 1.0)
            self._attempt(context, output, tools, retry=1, outcome=ExchangeOutcome.COMPLETE)
            return
        if self.chance.random() < self.mixture.application_retry:
            cut = Message("assistant", (TextPart("Half of an"),))
            self._attempt(context, cut, tools, retry=0, outcome=ExchangeOutcome.UPSTREAM_ABORT)
            self.clock += self.chance.uniform(0.5, 2.0)
        self._attempt(context, output, tools, retry=0, outcome=ExchangeOutcome.COMPLETE)

    def _attempt(
        self,
        context: list[Message],
        output: Message | None,
        tools: tuple[JsonObject, ...],
        *,
        retry: int,
        outcome: ExchangeOutcome,
    ) -> None:
        headers = (("x-stainless-retry-count", str(retry)),)
        status = 200 if output is not None else 500
        exchange = self._exchange("/v1/chat/completions", headers, status, outcome)
        whole = outcome is ExchangeOutcome.COMPLETE and output is not None
        call = Call(
            exchange=exchange,
            dialect="openai.chat",
            kind=CallKind.MODEL,
            context=tuple(context),
            output=output,
            tools=tools,
            response_id=f"chatcmpl-{next(self.names)}" if output is not None else None,
            finish_reason="stop" if whole else None,
            hints=self._hints(),
            retry_count=retry,
        )
        self.calls.append((exchange.started_at.timestamp(), call))
        self.clock += self.chance.uniform(0.05, 1.0)

    def _dispatch(self, asked: ToolCallPart, text: str) -> None:
        exchange = self._exchange("/mcp", (), 200, ExchangeOutcome.COMPLETE)
        result: JsonObject = {"content": [{"type": "text", "text": text}], "isError": False}
        call = Call(
            exchange=exchange,
            dialect="mcp",
            kind=CallKind.TOOL,
            dispatch=ToolDispatch(asked.name, asked.arguments, result, False, "http://tools:1/mcp"),
            hints=(*self._hints(), SessionHint("client:mcp-session-id", f"mcp-{self.number}")),
        )
        self.calls.append((exchange.started_at.timestamp(), call))
        self.clock += self.chance.uniform(0.02, 0.3)

    def _hints(self) -> tuple[SessionHint, ...]:
        if not self.hints:
            return ()
        return (SessionHint("client:x-session-id", f"session-{self.number}"),)

    def _exchange(
        self,
        path: str,
        headers: tuple[tuple[str, str], ...],
        status: int,
        outcome: ExchangeOutcome,
    ) -> Exchange:
        self.clock += 0.001
        started = START + timedelta(seconds=self.clock)
        self.clock += self.chance.uniform(0.3, 3.0)
        return Exchange(
            exchange_id="",
            client=CLIENT,
            route="model",
            mode="base_url",
            upstream="http://model:1",
            started_at=started,
            first_byte_at=started,
            ended_at=START + timedelta(seconds=self.clock),
            request=HttpRequest("POST", path, "", headers, b""),
            response=HttpResponse(status, (), b""),
            outcome=outcome,
            position=SpoolPosition("w", 0, 0),
        )
