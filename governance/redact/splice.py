"""From findings of several detectors to one list of spans without overlap, and into the text."""

from collections.abc import Sequence
from typing import NamedTuple

from governance.detect.finding import Finding

_RANK = {
    "PRIVATE_KEY": 9,
    "CONNECTION_STRING": 8,
    "JWT": 8,
    "API_KEY": 7,
    "URL_CREDENTIALS": 7,
    "EMAIL_ADDRESS": 6,
    "PASSWORD": 5,
    "CREDIT_CARD": 5,
    "IBAN_CODE": 5,
    "US_SSN": 4,
    "MAC_ADDRESS": 4,
    "IP_ADDRESS": 4,
    "PHONE_NUMBER": 3,
    "DATE_OF_BIRTH": 3,
    "URL": -1,
    "LOCATION": -1,
    "ORGANIZATION": -2,
    "US_BANK_NUMBER": -2,
    "US_DRIVER_LICENSE": -3,
}


class Span(NamedTuple):
    """What will be replaced."""

    entity: str
    start: int
    end: int
    detector: str
    score: float


def resolved(findings: Sequence[Finding]) -> list[Span]:
    """Return non-overlapping spans that cover everything that was found.

    Of overlapping findings the strongest names the type, and the span is the union of all: no
    part of any finding is left over.
    """
    if len(findings) == 1:
        return [_named(findings[0], findings[0].start, findings[0].end)]
    spans: list[Span] = []
    strongest: Finding | None = None
    begin = behind = 0
    for finding in sorted(findings, key=_by_place):
        if strongest is None or finding.start >= behind:
            if strongest is not None:
                spans.append(_named(strongest, begin, behind))
            begin, behind, strongest = finding.start, finding.end, finding
        else:
            behind = max(behind, finding.end)
            if finding[:4] != strongest[:4] and _weight(finding) > _weight(strongest):
                strongest = finding
    if strongest is not None:
        spans.append(_named(strongest, begin, behind))
    return spans


def _by_place(finding: Finding) -> tuple[int, int]:
    return finding.start, -finding.end


def _weight(finding: Finding) -> tuple[int, int, int]:
    rank = _RANK.get(finding.entity, 0)
    return rank, finding.end - finding.start, int(finding.score * 100)


def _named(finding: Finding, start: int, end: int) -> Span:
    return Span(finding.entity, start, end, finding.detector, finding.score)


def spliced(text: str, replacements: Sequence[tuple[int, int, str]]) -> str:
    """Return the text with spans replaced; spans are ordered and do not overlap."""
    if len(replacements) == 1:
        ((start, end, new),) = replacements
        return text[:start] + new + text[end:]
    pieces: list[str] = []
    at = 0
    for start, end, new in replacements:
        pieces += (text[at:start], new)
        at = end
    return "".join((*pieces, text[at:]))
