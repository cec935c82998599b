"""Making facts of calls: everything that assembly hashes of their content is hashed here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from trajectory.assembly.call_facts import Fact
from trajectory.assembly.effects import SideEffect, ToolEffects
from trajectory.assembly.fingerprint import (
    Fingerprinter,
    MessageDigest,
    leading_system_count,
    result_text,
)
from trajectory.assembly.nodes import ChainNode, PendingCall, shorten
from trajectory.assembly.quotations import (
    answer_sketch,
    argument_text,
    opening_texts,
    openings,
    quoted_ids,
    sketch,
    text_names,
)
from trajectory.assembly.sessions import TOOL_SESSION, place_name, public_name, session_name
from trajectory.call import ELSEWHERE, Call, CallKind, SessionHint, ToolDispatch
from trajectory.canonical import JsonValue
from trajectory.dialects.agents import hand_off_target
from trajectory.dialects.wire import header
from trajectory.exchange import ClientIdentity, ExchangeOutcome
from trajectory.message import Message, OpaquePart, ToolCallPart, ToolResultPart

_ENDINGS_LIMIT = 6
_NAMES_LIMIT = 10_000
_LATELY = 2_000
"""Conversations whose chains are kept at hand."""
_TURN_MESSAGES = 8
"""A call mostly adds fewer messages than this to the one before it."""
_AUXILIARY_SECONDS = 2.0
"""How long a call that may be auxiliary waits for the one that it quotes."""
_TRACED = "otlp"
"""Mode of exchanges that were read from a trace export (``trajectory.telemetry``)."""

_SEPARATORS = "_-./:"
_PARENTS = {"client:x-codex-parent-thread-id": "client:thread-id"}
"""Where a parent's name does not follow from the header of its own."""
_DIALOGUE = "client:conversation"


@dataclass(frozen=True, slots=True)
class _ConversationChain:
    """A conversation as a chain."""

    context: tuple[Message, ...]
    systems: int
    system: str
    head: ChainNode
    opening: bytes
    """Loose hashes of what was said before the model's first turn."""
    is_opening: bool = field(kw_only=True)
    """The model has not spoken yet."""


def _is_handed_over(context: Sequence[Message]) -> bool:
    """Tell whether the model's last turn called a tool that hands over to another agent."""
    last = next((one for one in reversed(context) if one.role == "assistant"), None)
    return last is not None and any(hand_off_target(part) for part in last.tool_calls())


class FactMaker:
    """Makes facts; facts that share a conversation's beginning share its chain."""

    def __init__(
        self,
        make: Fingerprinter,
        chains: WeakValueDictionary[bytes, ChainNode],
        rules: Mapping[str, SideEffect],
    ) -> None:
        """Hash with ``make``; ``rules`` are what the operator says of tools, by pattern."""
        self._make = make
        self._chains = chains
        self._effects = ToolEffects(make, rules)
        self._tools: dict[tuple[str, str], list[str]] = {}
        self._clients: dict[ClientIdentity, tuple[str, str, str]] = {}
        self._lately: dict[tuple[str, int], _ConversationChain] = {}
        """Conversations by scope and their last message, as an object; each keeps its messages."""

    def fact(self, call: Call) -> Fact | None:
        """Return the fact of a call; None when it says nothing that assembly needs."""
        if call.kind is CallKind.MODEL:
            return self._model(call)
        if call.kind is CallKind.TOOL and call.dispatch is not None:
            return self._dispatch(call, call.dispatch)
        if call.kind is CallKind.CONTROL and call.tools:
            fact = self._any(call, "tools")
            fact.listed = self._effects.listed(call)
            return fact
        return None

    def seed(self, scope: str) -> ChainNode:
        """Return the node before the first message of every conversation of a scope."""
        digest = self._make.digest(b"scope\0" + scope.encode())
        known = self._chains.get(digest)
        if known is None:
            known = self._chains[digest] = ChainNode(digest, digest, None, 0, False, ())
        return known

    def name(self, fact: Fact) -> None:
        """Give a fact the identifiers that follow from its exchange."""
        fact.step_id = self._make.identifier("step", fact.exchange)
        fact.trajectory_id = self._make.identifier("trajectory", fact.exchange)

    def _any(self, call: Call, kind: str) -> Fact:
        exchange = call.exchange
        client = exchange.client
        if client not in self._clients:
            self._clients[client] = (
                self._make.short("tenant", client.tenant_id),
                self._make.short("scope", client.tenant_id, client.app_id, client.key_id),
                place_name(self._make, client),
            )
        tenant, scope, place = self._clients[client]
        started = exchange.started_at.timestamp()
        ended = (exchange.ended_at or exchange.started_at).timestamp()
        fact = Fact(exchange.first_id, kind, started, ended, _turn(call, started, ended))
        fact.tenant, fact.scope, fact.place, fact.call = tenant, scope, place, call
        self.name(fact)
        if call.hints:
            self._identity(call, fact)
        return fact

    def _identity(self, call: Call, fact: Fact) -> None:
        """Write down what the client itself says of its session."""
        make, tenant = self._make, fact.tenant
        named = [
            hint for hint in call.hints if hint.kind == "session" and hint.source != TOOL_SESSION
        ]
        fact.sessions = [
            [hint.source, session_name(make, tenant, hint.source, hint.value)] for hint in named
        ]
        fact.hint = self._public(call, "session", named[:1])
        groups = [hint for hint in call.hints if hint.kind in ("group", "task")]
        fact.group = self._public(call, "group", groups[:1])
        for hint in call.hints:
            if hint.source == _DIALOGUE:
                fact.dialogue = make.short("dialogue", fact.place, hint.value)
            if hint.source == TOOL_SESSION and fact.server is None:
                fact.server = make.short("server", fact.scope, hint.value)
            elif hint.kind == "response" and fact.previous is None:
                fact.previous = make.short("response", tenant, hint.value)
            elif hint.kind == "agent":
                fact.is_helper = True
            elif hint.kind == "parent":
                # ``…-parent-session-id`` names what ``…-session-id`` named, ``…-parent`` a ``…-session``.
                source = _PARENTS.get(hint.source) or hint.source.replace(
                    "parent-session", "session"
                )
                source = source.replace("-parent", "-session")
                above = session_name(make, tenant, source, hint.value)
                fact.above = (*fact.above, above)

    def _public(self, call: Call, kind: str, hints: list[SessionHint]) -> str | None:
        if not hints:
            return None
        return public_name(self._make, call.exchange.client, kind, hints[0].value)

    def _model(self, call: Call) -> Fact:
        make, fact = self._make, self._any(call, "model")
        context, scope = call.context, fact.scope
        seed = self.seed(scope)
        chained = self._chained(context, scope, seed)
        fact.system_count, fact.system, fact.head = chained.systems, chained.system, chained.head
        if chained.opening and fact.group is None:
            tenant = call.exchange.client.tenant_id
            fact.task = make.identifier("task", tenant, chained.opening.hex())
        if call.output is not None:
            output = make.message(call.output)
            loose = shorten(output.loose)
            same = output.exact == output.loose
            fact.output = [loose, loose if same else shorten(output.exact)]
        fact.request = shorten(make.digest(seed.loose + call.exchange.request.body))
        fact.has_tools = bool(call.tools)
        fact.is_look_up = call.exchange.request.method == "GET"
        fact.retry = _retry(call)
        fact.failure = _failure(call)
        fact.is_queued = call.output is None and not fact.failure and _is_elsewhere(call)
        if call.response_id is not None:
            fact.response = make.short("response", fact.tenant, call.response_id)
        fact.told = self._told(call, scope)
        fact.is_handed_over = _is_handed_over(context)
        if not fact.failure and call.output is not None:
            asked = call.output.tool_calls()
            fact.pending = [self._pending(part, scope) for part in asked]
            fact.calls = [make.short("call", scope, one.call_id) for one in asked if _tells(one)]
            if not asked:
                text = call.output.text()
                fact.answer = answer_sketch(make, scope, text)
                if not text:
                    fact.calls = _compactions(make, scope, [call.output])
        fact.look_closer = self._look_closer
        return fact

    def _look_closer(self, fact: Fact) -> None:
        if fact.call is None:
            return
        texts = opening_texts(fact.call.context)
        make, scope = self._make, fact.scope
        fact.opening = openings(make, scope, texts, has_tools=fact.has_tools)
        fact.words = sum(len(text.split()) for text in texts)
        fact.names = sorted(text_names(make, scope, texts))
        context = fact.call.context
        fact.quoted = [*quoted_ids(make, scope, context), *_compactions(make, scope, context)]

    def _chained(
        self, context: tuple[Message, ...], scope: str, seed: ChainNode
    ) -> _ConversationChain:
        """Return the chain over a conversation; what a call before it sent is not walked again."""
        before = self._longest_before(context, scope)
        if before is None:
            count = leading_system_count(context)
            system = self._make.system(context[:count])
            before = _ConversationChain(context[:count], count, system, seed, b"", is_opening=True)
        node, opening, is_opening = before.head, [before.opening], before.is_opening
        for message in context[len(before.context) :]:
            digest = self._make.message(message)
            is_opening = is_opening and message.role != "assistant"
            if is_opening:
                opening.append(digest.loose)
            node = self._next(node, message, digest, scope)
        found = _ConversationChain(
            context, before.systems, before.system, node, b"".join(opening), is_opening=is_opening
        )
        if context:
            if len(self._lately) >= _LATELY:
                self._lately.clear()
            self._lately[scope, id(context[-1])] = found
        return found

    def _longest_before(
        self, context: tuple[Message, ...], scope: str
    ) -> _ConversationChain | None:
        """Return the chain over most of a conversation, where a call lately sent just that."""
        for length in range(len(context), max(0, len(context) - _TURN_MESSAGES), -1):
            found = self._lately.get((scope, id(context[length - 1])))
            if found is None or found.systems == len(found.context):
                continue  # of system messages alone more may follow
            if found.context == context[:length]:
                return found
        return None

    def _next(
        self, node: ChainNode, message: Message, digest: MessageDigest, scope: str
    ) -> ChainNode:
        exact = self._make.digest(node.exact + digest.exact)
        known = self._chains.get(exact)
        if known is not None:
            return known
        same = node.exact == node.loose and digest.exact == digest.loose
        loose = exact if same else self._make.digest(node.loose + digest.loose)
        asked = message.tool_calls() if message.role == "assistant" else ()
        calls = tuple(self._make.short("call", scope, one.call_id) for one in asked if _tells(one))
        turn = message.role == "assistant"
        results = node.results + sum(isinstance(part, ToolResultPart) for part in message.parts)
        made = ChainNode(loose, exact, node, node.position + 1, turn, calls, results)
        self._chains[exact] = made
        return made

    def _told(self, call: Call, scope: str) -> list[list[str]]:
        told: list[list[str]] = []
        for message in reversed(call.context):
            if message.role == "assistant":
                break
            for part in message.parts:
                if isinstance(part, ToolResultPart):
                    name = self._make.short("call", scope, part.call_id)
                    told.append([name, self._result(part.content)])
        return told

    def _pending(self, part: ToolCallPart, scope: str) -> PendingCall:
        make = self._make
        return PendingCall(
            call=make.short("call", scope, part.call_id),
            arguments=make.short_json("arguments", part.arguments, scope),
            names=self._tool_names(scope, part.name),
            orders=sketch(make, scope, argument_text(part.arguments)),
        )

    def _tool_names(self, scope: str, name: str) -> list[str]:
        """Return the hashes of a tool's name and its endings, made once for each name."""
        known = self._tools.get((scope, name))
        if known is None:
            if len(self._tools) >= _NAMES_LIMIT:
                self._tools.clear()
            known = [self._make.short("tool", scope, end) for end in _endings(name)]
            self._tools[scope, name] = known
        return known

    def _dispatch(self, call: Call, dispatch: ToolDispatch) -> Fact:
        fact = self._any(call, "tool")
        fact.arguments = self._make.short_json("arguments", dispatch.arguments, fact.scope)
        fact.name = self._make.short("tool", fact.scope, dispatch.name)
        fact.result = self._result(_result_content(dispatch))
        fact.effect, fact.usual_effect = self._effects.said(call, dispatch)
        fact.effect_name = self._effects.name(call, dispatch.server, dispatch.name)
        return fact

    def _result(self, content: JsonValue) -> str:
        """Return the hash by which a tool's answer is compared with what the model was told."""
        return self._make.short("result", result_text(content).strip())


def _compactions(make: Fingerprinter, scope: str, messages: Sequence[Message]) -> list[str]:
    """Return names of sealed summaries: what stands for a conversation and goes on in its place."""
    values = [
        part.value
        for message in messages
        for part in message.parts
        if isinstance(part, OpaquePart) and isinstance(part.value, dict)
    ]
    return [
        make.short("call", scope, "compaction", sealed)
        for value in values
        if value.get("type") == "compaction"
        and isinstance(sealed := value.get("encrypted_content") or value.get("content"), str)
    ]


def _tells(part: ToolCallPart) -> bool:
    """Tell whether a tool call's id names this call alone: where a dialect has none, we count."""
    name, _, number = part.call_id.rpartition(":")
    return bool(part.call_id) and not (name == part.name and number.isdecimal())


def _endings(name: str) -> list[str]:
    """Return the name and its endings after a separator (clients write ``mcp__server__tool``)."""
    endings = [name]
    for position, character in enumerate(name):
        if character in _SEPARATORS and name[position + 1 : position + 2].isalnum():
            endings.append(name[position + 1 :])
    return endings[:_ENDINGS_LIMIT]


def _result_content(dispatch: ToolDispatch) -> JsonValue:
    result = dispatch.result
    return result["content"] if isinstance(result, dict) and "content" in result else result


def _turn(call: Call, started: float, ended: float) -> float:
    """Return when a call is placed: at its start, or a little later when it may be auxiliary.

    A title maker often starts a moment before the call whose opening it quotes. Nothing can go
    on from a call before it has ended, so waiting until then changes nothing else. A span that
    tells of a call waits too: what passed through the gateway goes before what is told of it.
    """
    if call.exchange.mode == _TRACED:
        return max(ended, started)
    opens = call.kind is CallKind.MODEL and not call.tools
    if not opens or any(message.role == "assistant" for message in call.context):
        return started
    return min(max(ended, started), started + _AUXILIARY_SECONDS)


def _retry(call: Call) -> int:
    said = header(call.exchange.request.headers, "x-stainless-retry-count")
    return call.retry_count if said is not None or call.retry_count else -1


def _is_elsewhere(call: Call) -> bool:
    return call.ext.get("answer") == ELSEWHERE


def _failure(call: Call) -> str:
    """Return how an attempt failed; empty when it has an answer to go on from."""
    status = None if call.exchange.response is None else call.exchange.response.status
    if status is not None and status >= 400:
        return "error"
    broken = call.exchange.outcome is not ExchangeOutcome.COMPLETE
    if broken and call.finish_reason is None:
        return "cut"
    if call.output is None and call.error is None and _is_elsewhere(call):
        return ""
    if call.output is None:
        return "cut" if broken or status is None else "error"
    if call.error is not None and call.finish_reason is None:
        return "cut"
    return ""
