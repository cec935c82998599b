"""Signals that nobody sent: what a conversation shows by itself about how a step went.

Every rule has a name, a version and a confidence, and gives feedback in the same form as the
feedback API, so that policy, redaction and the lake treat both alike. A rule sees one batch; it
says nothing where the batch does not show enough, and takes back what a later batch refutes. Signal names are fixed words; no content.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from trajectory.assembly.fingerprint import result_text
from trajectory.assembly.shadows import SHADOW
from trajectory.canonical import JsonObject
from trajectory.exchange import ExchangeOutcome, Feedback
from trajectory.message import Message, TextPart, ToolResultPart
from trajectory.placement import Assembly, PlacedCall, PlacedFeedback


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule saw."""

    step_id: str
    """The step that the signal is about."""
    value: float
    confidence: float | None = None
    """Overrides the rule's own confidence."""
    label: str | None = None
    """A fixed word."""
    supersedes: str | None = None
    """Id of the signal that this one replaces."""


type Steps = Mapping[str, PlacedCall]
type Find = Callable[[PlacedCall, Steps], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class SignalRule:
    """One way of seeing how a step went."""

    name: str
    version: str
    confidence: float
    source_kind: str
    """``rule`` for what programs did, ``human_implicit`` for what a person did."""
    find: Find


_TEXT_LIMIT = 20_000
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
_ABANDONED_VERSION = "2"
_TRUNCATED = frozenset({"length", "max_tokens", "max_output_tokens", "MAX_TOKENS", "LENGTH"})


def _tool_error(placed: PlacedCall, _steps: Steps) -> Iterator[Finding]:
    """A tool failed: the step that asked for it is told, certainly or by the text's beginning."""
    dispatch = placed.call.dispatch
    if dispatch is not None:
        if dispatch.is_error:
            yield Finding(placed.parent_step_id or placed.step_id, 1.0, label="dispatch")
        return
    if placed.parent_step_id is None:
        return
    for result in _results(placed):
        if result.is_error:
            yield Finding(placed.parent_step_id, 1.0, label="flagged")
        elif _ERROR_TEXT.match(result_text(result.content)[:200]):
            yield Finding(placed.parent_step_id, 1.0, confidence=0.6, label="text")


def _test_run(placed: PlacedCall, _steps: Steps) -> Iterator[Finding]:
    """A tool result tells a test summary or an exit code: 1 when all went well."""
    if placed.parent_step_id is None:
        return
    for result in _results(placed):
        text = result_text(result.content)[-_TEXT_LIMIT:]
        share = _passed_share(text)
        if share is not None:
            yield Finding(placed.parent_step_id, share, label="summary")
        elif _says_code(text) and (codes := _EXIT_CODE.findall(text)):
            yield Finding(placed.parent_step_id, float(int(codes[-1]) == 0), 0.7, "exit-code")


def _says_code(text: str) -> bool:
    """Return whether a text may tell an exit code: a look that costs less than the pattern."""
    small = text.lower()
    return "code" in small or "status" in small


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


def _retry(placed: PlacedCall, _steps: Steps) -> Iterator[Finding]:
    """The client repeated a failed attempt."""
    if placed.retry_of is not None:
        yield Finding(placed.retry_of, 1.0)


def _truncated(placed: PlacedCall, _steps: Steps) -> Iterator[Finding]:
    """The answer ended at its token limit."""
    if placed.call.finish_reason in _TRUNCATED:
        yield Finding(placed.step_id, 1.0)


def _abandoned(placed: PlacedCall, steps: Steps) -> Iterator[Finding]:
    """The client hung up while the answer came, and did not ask again.

    When it asks again in a later batch, what was said is taken back.
    """
    call = placed.call
    if placed.retry_of is not None and placed.retry_of not in steps:
        earlier = _feedback_id("abandoned", _ABANDONED_VERSION, placed.retry_of, 0)
        yield Finding(placed.retry_of, 0.0, label="asked-again", supersedes=earlier)
    if call.exchange.outcome is not ExchangeOutcome.CLIENT_ABORT or call.output is None:
        return
    if not any(other.retry_of == placed.step_id for other in steps.values()):
        yield Finding(placed.step_id, 1.0)


def _correction(placed: PlacedCall, _steps: Steps) -> Iterator[Finding]:
    """The person's next words reject the answer."""
    text = _next_words(placed)
    if text is not None and placed.parent_step_id and _CORRECTION.match(text[:200]):
        yield Finding(placed.parent_step_id, 1.0)


def _repeated_question(placed: PlacedCall, _steps: Steps) -> Iterator[Finding]:
    """The person asks again what was asked before."""
    text = _next_words(placed)
    if text is None or placed.parent_step_id is None or len(text) < 12:
        return
    asked = [_plain(message) for message in placed.call.context if message.role == "user"]
    if asked.count(" ".join(text.lower().split())) > 1:
        yield Finding(placed.parent_step_id, 1.0)


def _edited_output(placed: PlacedCall, _steps: Steps) -> Iterator[Finding]:
    """The client went on from another text than the model's answer."""
    if placed.answer_replaced and placed.parent_step_id is not None:
        yield Finding(placed.parent_step_id, 1.0)


def _results(placed: PlacedCall) -> Iterator[ToolResultPart]:
    for message in placed.new_messages:
        yield from (part for part in message.parts if isinstance(part, ToolResultPart))


def _next_words(placed: PlacedCall) -> str | None:
    """Return what the user wrote after the model's answer; None when the step is no such turn."""
    if placed.parent_step_id is None or not placed.new_messages:
        return None
    last = placed.new_messages[-1]
    texts = [part.text for part in last.parts if isinstance(part, TextPart)]
    return "\n".join(texts).strip() if last.role == "user" and texts else None


def _plain(message: Message) -> str:
    return " ".join(message.text().lower().split())


SIGNAL_RULES: tuple[SignalRule, ...] = (
    SignalRule("tool_error", "2", 1.0, "rule", _tool_error),
    SignalRule("test_run", "2", 0.9, "rule", _test_run),
    SignalRule("retry", "1", 1.0, "rule", _retry),
    SignalRule("truncated", "1", 1.0, "rule", _truncated),
    SignalRule("abandoned", _ABANDONED_VERSION, 0.5, "human_implicit", _abandoned),
    SignalRule("correction", "2", 0.5, "human_implicit", _correction),
    SignalRule("repeated_question", "1", 0.6, "human_implicit", _repeated_question),
    SignalRule("edited_output", "2", 0.7, "human_implicit", _edited_output),
)
"""All rules; ``source`` of their signals is ``headrace:<name>``."""


def harvest(
    assembly: Assembly, rules: tuple[SignalRule, ...] = SIGNAL_RULES
) -> tuple[PlacedFeedback, ...]:
    """Return the implicit signals of one batch, in the order of its steps.

    Repeatable: the same assembly gives the same signals with the same ids.
    """
    steps = {placed.step_id: placed for placed in assembly.placed}
    found: list[PlacedFeedback] = []
    for placed in assembly.placed:
        if placed.duplicate_of is not None or placed.role_in_graph == SHADOW:
            continue
        for rule in rules:
            for number, finding in enumerate(rule.find(placed, steps)):
                found.append(_feedback(rule, finding, placed, number))
    return tuple(found)


def _feedback(
    rule: SignalRule, finding: Finding, placed: PlacedCall, number: int
) -> PlacedFeedback:
    exchange = placed.call.exchange
    confidence = rule.confidence if finding.confidence is None else finding.confidence
    body: JsonObject = {
        "name": rule.name,
        "value": finding.value,
        "source_kind": rule.source_kind,
        "source": f"headrace:{rule.name}",
        "source_version": rule.version,
        "confidence": confidence,
    }
    if finding.label is not None:
        body["label"] = finding.label
    if finding.supersedes is not None:
        body["supersedes"] = finding.supersedes
    seen_at = exchange.ended_at or exchange.started_at
    feedback = Feedback(
        feedback_id=_feedback_id(rule.name, rule.version, placed.step_id, number),
        client=exchange.client,
        received_at=seen_at,
        target_kind="step",
        target_id=finding.step_id,
        body=body,
        position=exchange.position,
    )
    return PlacedFeedback(feedback, placed.trajectory_id, finding.step_id)


def _feedback_id(name: str, version: str, step_id: str, number: int) -> str:
    return f"implicit:{name}:{version}:{step_id}:{number}"


__all__ = ["SIGNAL_RULES", "Finding", "SignalRule", "harvest"]
