"""Signals that nobody sent: what a conversation shows by itself about how a step went.

Every rule has a name, a version and a confidence. It gives feedback in the form of the feedback API, so
policy, redaction and the lake treat both alike. A call's clues are kept; its place tells which step they
are about. When a late call moves others, their signals are withdrawn and given anew. Signal names are
fixed words and hold no content.

Clues are fixed words and numbers, no content, and are kept with the hashes. So what follows from
them can be said again when a call that came late moves others to another place.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from trajectory.assembly import Assembler
from trajectory.assembly.assembler import Sender
from trajectory.assembly.call_facts import Fact, Placement
from trajectory.assembly.fingerprint import result_text
from trajectory.assembly.nodes import ChainNode, Clue
from trajectory.assembly.result import Assembly, PlacedFeedback
from trajectory.call import Call
from trajectory.canonical import JsonObject
from trajectory.exchange import ExchangeOutcome, Feedback
from trajectory.message import Message, TextPart, ToolResultPart


@dataclass(frozen=True, slots=True)
class SignalRule:
    """One way of seeing how a step went."""

    name: str
    version: str
    confidence: float
    source_kind: str
    """``rule`` for what programs did, ``human_implicit`` for what a person did."""
    about: str
    """What a signal of this name says."""


SIGNAL_RULES: tuple[SignalRule, ...] = (
    SignalRule("tool_error", "2", 1.0, "rule",
               "A tool failed: the step that asked for it is told, certainly or by the text."),
    SignalRule("test_run", "2", 0.9, "rule",
               "A tool result tells a test summary or an exit code: 1 when all went well."),
    SignalRule("retry", "1", 1.0, "rule", "The client repeated a failed attempt."),
    SignalRule("truncated", "1", 1.0, "rule", "The answer ended at its token limit."),
    SignalRule("abandoned", "3", 0.5, "human_implicit",
               "The client hung up while the answer came, and did not ask again."),
    SignalRule("correction", "2", 0.5, "human_implicit",
               "The person's next words reject the answer."),
    SignalRule("repeated_question", "1", 0.6, "human_implicit",
               "The person asks again what was asked before."),
    SignalRule("edited_output", "2", 0.7, "human_implicit",
               "The client went on from another text than the model's answer."),
)  # fmt: skip
"""All rules; ``source`` of their signals is ``headrace:<name>``."""

WITHDRAWN = "withdrawn"
"""Label of a signal without a value: it only takes back the one that it supersedes."""

_RULES = {rule.name: rule for rule in SIGNAL_RULES}


class ObservedClue(NamedTuple):
    """A clue, and the step that it is about."""

    step_id: str
    clue: Clue


@dataclass(slots=True)
class _Batch:
    """What the signals of one batch have in common."""

    calls: Mapping[str, Call]
    """The calls of the batch by exchange."""
    was: frozenset[str | None]
    """Attempts that others repeated before the batch."""
    now: frozenset[str | None]
    senders: Mapping[str, Sender]
    """By hash of scope, and of tenant: who a call of an earlier batch came from."""


def harvest(assembler: Assembler, assembly: Assembly) -> tuple[PlacedFeedback, ...]:
    """Return the implicit signals of the batch that was just assembled, in the order of its steps.

    To be called once for each batch, before the assembler's state is saved: what was said is part
    of it. The same batches give the same signals with the same ids.
    """
    batch = _common(assembler, assembly)
    found: list[PlacedFeedback] = []
    for fact in assembler.fresh:
        _look(fact, batch.calls[fact.exchange])
    for fact in assembler.fresh:
        told = _findings(fact, fact.placement, batch.now)
        found += _feedback(fact, told, batch)
    for fact, before in _reconsidered(assembler, batch):
        was, now = _findings(fact, before, batch.was), _findings(fact, fact.placement, batch.now)
        if was != now:
            found += _withdrawals(fact, was, batch)
            fact.retold += 1
            found += _feedback(fact, now, batch)
    return tuple(found)


def _common(assembler: Assembler, assembly: Assembly) -> _Batch:
    facts, fresh = assembler.state.facts.values(), assembler.fresh
    places = {fact: fact.placement for fact in (*facts, *fresh)} if _repeats(assembler) else {}
    now = frozenset(place.retry_of for place in places.values() if place is not None)
    before = {fact: said[0] for fact, said in assembler.moved.items()}
    earlier = {**places, **before, **dict.fromkeys(fresh)}
    was = frozenset(place.retry_of for place in earlier.values() if place is not None)
    calls = {placed.call.exchange.first_id: placed.call for placed in assembly.placed}
    return _Batch(calls, was, now, assembler.senders)


def _repeats(assembler: Assembler) -> bool:
    """Return whether the batch has to do with attempts that were repeated: few batches have."""
    places = [fact.placement for fact in (*assembler.fresh, *assembler.moved)]
    places += [said[0] for said in assembler.moved.values()]
    return any(place is not None and place.retry_of is not None for place in places)


def _reconsidered(assembler: Assembler, batch: _Batch) -> Iterator[tuple[Fact, Placement | None]]:
    """Yield calls of earlier batches that may say something else now, with the place they had."""
    for fact, said in assembler.moved.items():
        yield fact, said[0]
    changed = batch.was ^ batch.now
    if not changed:
        return
    new = {*assembler.fresh, *assembler.moved}
    for fact in assembler.state.facts.values():
        if fact.step_id in changed and fact not in new:
            yield fact, fact.placement


def _look(fact: Fact, call: Call) -> None:
    """Write down what a call and its new messages show."""
    fact.clues = [list(clue) for clue in clues_of_call(call)]
    if fact.placement is None or fact.head is None:
        return
    skip = max(fact.placement.skip, fact.system_count)
    for node, message in zip(fact.head.back(), reversed(call.context[skip:]), strict=False):
        if node.clues is None:
            node.clues = tuple(clues_of_message(message))


def _findings(
    fact: Fact, place: Placement | None, repeated: frozenset[str | None]
) -> list[ObservedClue]:
    """Return what a call says of steps, at a place."""
    if place is None or place.duplicate_of is not None:
        return []
    parent, own = place.parent_step_id, fact.step_id
    found = [] if place.retry_of is None else [ObservedClue(place.retry_of, Clue("retry", 1.0))]
    new = list(_new_nodes(fact, place))
    for clue in (Clue(*values) for values in fact.clues):
        if clue.rule == "tool_error":
            found.append(ObservedClue(parent or own, clue))
        elif clue.rule == "repeated_question":
            found += [ObservedClue(parent, clue)] if parent is not None and new else []
        elif clue.rule != "abandoned" or own not in repeated:
            found.append(ObservedClue(own, clue))
    if parent is None:
        return found
    for number, node in enumerate(new):
        last = number == len(new) - 1
        found += [
            ObservedClue(parent, clue)
            for clue in node.clues or ()
            if last or clue.rule != "correction"
        ]
    if place.is_replaced:
        found.append(ObservedClue(parent, Clue("edited_output", 1.0)))
    return found


def _new_nodes(fact: Fact, place: Placement) -> list[ChainNode]:
    """Return the messages that a call adds at a place, in order."""
    if fact.head is None:
        return []
    held = max(place.skip - fact.system_count, 0)
    return [node for node in fact.head.back() if node.position > held][::-1]


def _feedback(fact: Fact, found: Iterable[ObservedClue], batch: _Batch) -> Iterator[PlacedFeedback]:
    for name, finding in _named(fact, found):
        clue, rule = finding.clue, _RULES[finding.clue.rule]
        body: JsonObject = {
            "value": clue.value,
            "confidence": rule.confidence if clue.confidence is None else clue.confidence,
        }
        if clue.label is not None:
            body["label"] = clue.label
        yield _placed(fact, finding, name, body, batch)


def _withdrawals(
    fact: Fact, was: Iterable[ObservedClue], batch: _Batch
) -> Iterator[PlacedFeedback]:
    for name, finding in _named(fact, was):
        body: JsonObject = {"label": WITHDRAWN, "supersedes": name}
        yield _placed(fact, finding, f"{name}:{WITHDRAWN}", body, batch)


def _named(fact: Fact, found: Iterable[ObservedClue]) -> Iterator[tuple[str, ObservedClue]]:
    """Yield findings with their ids: the rule, the call, a number, and how often it was said anew."""
    numbers: dict[str, int] = {}
    again = f":{fact.retold}" if fact.retold else ""
    for finding in found:
        rule = _RULES[finding.clue.rule]
        number = numbers.get(rule.name, 0)
        numbers[rule.name] = number + 1
        yield f"implicit:{rule.name}:{rule.version}:{fact.step_id}:{number}{again}", finding


def _placed(
    fact: Fact, finding: ObservedClue, name: str, body: JsonObject, batch: _Batch
) -> PlacedFeedback:
    rule = _RULES[finding.clue.rule]
    call = batch.calls.get(fact.exchange)
    client, position = batch.senders.get(fact.scope) or batch.senders[fact.tenant]
    if call is not None:
        client, position = call.exchange.client, call.exchange.position
    if fact.placement is None:
        raise ValueError("signals follow from a batch of placed calls")
    feedback = Feedback(
        feedback_id=name,
        client=client,
        received_at=fact.recorded_at,
        target_kind="step",
        target_id=finding.step_id,
        body={
            "name": rule.name,
            "source_kind": rule.source_kind,
            "source": f"headrace:{rule.name}",
            "source_version": rule.version,
            **body,
        },
        position=position,
    )
    return PlacedFeedback(feedback, fact.placement.trajectory_id, finding.step_id)


_TEXT_LIMIT = 20_000
_SHORT_QUESTION = 12
_ERROR_TEXT = re.compile(
    r"^\s*(?:error\b(?!\s+(?:rate|margin|handl|message|budget|log|count))|"
    r"traceback \(most recent call last\)|exception\b|fatal:|panic:|command failed)",
    re.IGNORECASE,
)
_EXIT_CODE = re.compile(
    r"\b(?:exit(?:ed)?(?:[ _]with)?|return(?:ed)?)[ _]*(?:code|status)\W{1,4}(-?\d{1,3})\b",
    re.IGNORECASE,
)
_TEST_COUNT = re.compile(r"\b(\d{1,6}) (passed|failed|errors?)\b")
_UNITTEST = re.compile(r"\bRan (\d{1,6}) tests? in [\d.]+s\s+(OK|FAILED)\b(?: \(([^)]*)\))?")
_GO_TEST = re.compile(r"^(ok|FAIL)\s+\S+\s+[\d.]+s", re.MULTILINE)
_CORRECTION = re.compile(
    r"^\W*(?:no[,.! ](?!\s*(?:thank|problem|worr|need|more|question|idea|rush|doubt|matter))|nope\b"
    r"|wrong\b|that(?:'s| is| was) (?:wrong|not (?!bad\b|a problem)|incorrect)|incorrect\b"
    r"|not what i|you (?:forgot|missed|misunderstood)|i (?:said|meant|asked)|still (?:wrong|broken|fails)"
    r"|(?:it|that) (?:doesn't|does not|didn't|did not) work)",
    re.IGNORECASE,
)
_TRUNCATED = frozenset({"length", "max_tokens", "max_output_tokens", "MAX_TOKENS", "LENGTH"})


def clues_of_call(call: Call) -> Iterator[Clue]:
    """Yield what a call shows beside its messages."""
    if call.dispatch is not None:
        if call.dispatch.is_error:
            yield Clue("tool_error", 1.0, label="dispatch")
        return
    if call.finish_reason in _TRUNCATED:
        yield Clue("truncated", 1.0)
    # Many SDKs hang up at a stream's last word, before HTTP's own end of the body.
    ended = call.streamed and call.finish_reason is not None
    left = call.exchange.outcome is ExchangeOutcome.CLIENT_ABORT and not ended
    if left and call.output is not None:
        yield Clue("abandoned", 1.0)
    if _is_repeated(call):
        yield Clue("repeated_question", 1.0)


def clues_of_message(message: Message) -> Iterator[Clue]:
    """Yield what a message shows: results of tools, or words that reject an answer."""
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            text = result_text(part.content)
            if part.is_error:
                yield Clue("tool_error", 1.0, label="flagged")
            elif _ERROR_TEXT.match(text[:200]):
                yield Clue("tool_error", 1.0, 0.6, "text")
            yield from _test_run(text[-_TEXT_LIMIT:])
    words = _words(message)
    if words is not None and _CORRECTION.match(words[:200]):
        yield Clue("correction", 1.0)


def _test_run(text: str) -> Iterator[Clue]:
    """A tool result tells a test summary or an exit code: 1 when all went well."""
    share = _passed_share(text)
    if share is not None:
        yield Clue("test_run", share, label="summary")
    elif _says_code(text) and (codes := _EXIT_CODE.findall(text)):
        yield Clue("test_run", float(int(codes[-1]) == 0), 0.7, "exit-code")


def _says_code(text: str) -> bool:
    """Return whether a text may tell an exit code: a look that costs less than the pattern.

    At bytes, whose lower case is that of ASCII alone: of a text it costs a hundred times as much.
    """
    small = text.encode("utf-8", "replace").lower()
    says = b"code" in small or b"status" in small
    return says and (b"exit" in small or b"return" in small)


def _passed_share(text: str) -> float | None:
    """Return which share of tests passed, by the last summary of pytest's, unittest's or Go's kind."""
    counts: dict[str, int] = {}
    if " passed" in text or " failed" in text:  # most texts are no summary: patterns cost more
        for number, kind in _TEST_COUNT.findall(text):
            counts[kind.rstrip("s")] = int(number)
    good = counts.get("passed", 0)
    if good + counts.get("failed", 0):
        return good / (good + counts.get("failed", 0) + counts.get("error", 0))
    if "Ran " in text and (runs := _UNITTEST.findall(text)):
        ran, verdict, reasons = runs[-1]
        bad = sum(int(n) for n in re.findall(r"(?:failures|errors)=(\d{1,6})", reasons))
        if int(ran):
            return 1.0 if verdict == "OK" else max(0.0, 1 - max(bad, 1) / int(ran))
    lines = "\n" + text
    if ("\nok" in lines or "\nFAIL" in lines) and (packages := _GO_TEST.findall(text)):
        return packages.count("ok") / len(packages)
    return None


def _is_repeated(call: Call) -> bool:
    """Return whether the person asks again what was asked before."""
    text = _words(call.context[-1]) if call.context else None
    if text is None or len(text) < _SHORT_QUESTION:
        return False
    asked = [_plain(message.text()) for message in call.context if message.role == "user"]
    return asked.count(_plain(text)) > 1


def _words(message: Message) -> str | None:
    """Return what a person wrote; None when the message is no such turn."""
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    return "\n".join(texts).strip() if message.role == "user" and texts else None


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
