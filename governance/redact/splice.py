"""From findings of several detectors to one list without overlap, and into the text."""

from collections.abc import Sequence
from operator import itemgetter

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
    "OPAQUE_DATA": -8,
    "ENCODED_DATA": -9,
}

_START = itemgetter(1)


def resolved(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings that do not overlap and cover everything that was found.

    Of overlapping ones the strongest names the type, and the span is the union of all: no part of
    any finding is left over.
    """
    if len(findings) == 1:
        return [*findings]
    spans: list[Finding] = []
    strongest: Finding | None = None
    begin = behind = 0
    for finding in sorted(findings, key=_START):
        _, start, end, _, _ = finding
        if strongest is None or start >= behind:
            if strongest is not None:
                spans.append(_over(strongest, begin, behind))
            begin, behind, strongest = start, end, finding
        else:
            if end > behind:
                behind = end
            if _is_stronger(finding, strongest):
                strongest = finding
    if strongest is not None:
        spans.append(_over(strongest, begin, behind))
    return spans


def _is_stronger(one: Finding, other: Finding) -> bool:
    """Whether one finding tells the type before another: by rank, then by length, then by score."""
    entity, start, end, score, _ = one
    other_entity, other_start, other_end, other_score, _ = other
    if entity != other_entity:
        rank, other_rank = _RANK.get(entity, 0), _RANK.get(other_entity, 0)
        if rank != other_rank:
            return rank > other_rank
    longer = end - start - other_end + other_start
    return longer > 0 if longer else int(score * 100) > int(other_score * 100)


def _over(finding: Finding, start: int, end: int) -> Finding:
    if finding.start == start and finding.end == end:
        return finding
    return finding._replace(start=start, end=end)


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
