"""Clues: what a call or a message shows by itself of how a step went, wherever its place is.

Clues are fixed words and numbers, no content, and are kept with the hashes. So what follows from
them can be said again when a call that came late moves others to another place.
"""

import re
from collections.abc import Iterator

from trajectory.assembly.chain import Clue
from trajectory.assembly.fingerprint import result_text
from trajectory.call import Call
from trajectory.exchange import ExchangeOutcome
from trajectory.message import Message, TextPart, ToolResultPart

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
    if call.exchange.outcome is ExchangeOutcome.CLIENT_ABORT and call.output is not None:
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


__all__ = ["clues_of_call", "clues_of_message"]
