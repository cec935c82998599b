"""Phone numbers by Google's phone number library, asked only about windows around digits."""

import re
from collections.abc import Iterator

import phonenumbers

from governance.detect.runners import CONTEXT_BOOST, Gate, Hit, supported

CONTEXT = (
    "phone",
    "number",
    "telephone",
    "cell",
    "cellphone",
    "mobile",
    "call",
    "tel",
    "fax",
    "contact",
    "whatsapp",
    "sms",
    "dial",
    "ring",
    "reach",
    "phones",
    "text",
)
REGIONS = ("US", "GB", "DE", "FR", "IL", "IN", "CA", "BR")
_SCORE = 0.4
_LENIENCY = 1
_WINDOW = re.compile(
    r"(?:\+|\(|\d)[\d\-.\s()/\[\]+~x,;]{4,}(?:ext\.?\s?\d{1,6}|x\s?\d{1,6})?(?<=\d)"
)
_LONGEST = 60


class PhoneRunner:
    """Finds phone numbers of the given regions."""

    def __init__(self, regions: tuple[str, ...] = REGIONS) -> None:
        self._regions = regions

    def run(self, gate: Gate, keys: tuple[str, ...]) -> Iterator[Hit]:
        """Yield numbers that are valid in one of the regions; bare digits need context."""
        if not gate.digits:
            return
        text = gate.view.text
        for match in _WINDOW.finditer(text):
            window = match.group()
            if sum(char.isdigit() for char in window) < 7:
                continue
            for start, end in self._spans(text, match.start(), match.end()):
                hit = self._judged(gate, start, end, keys)
                if hit is not None:
                    yield hit

    def _spans(self, text: str, begin: int, stop: int) -> list[tuple[int, int]]:
        """Return the spans of one window, each once; a number that fills it ends the search."""
        left, right = max(0, begin - 2), min(len(text), stop + 12)
        found: set[tuple[int, int]] = set()
        window = text[left:right]
        for region in self._regions:
            for match in phonenumbers.PhoneNumberMatcher(window, region, leniency=_LENIENCY):
                found.add((left + match.start, left + match.end))
            if any(start <= begin and end >= stop for start, end in found):
                break
        return sorted(found)

    def _judged(self, gate: Gate, start: int, end: int, keys: tuple[str, ...]) -> Hit | None:
        text = gate.view.text
        value = text[start:end]
        spoken = supported(gate.words_before(start), CONTEXT) or supported(keys, CONTEXT)
        glued = bool(start) and (text[start - 1].isalnum() or text[start - 1] in "_.#$€£%=")
        if not spoken and (value.isdigit() or (glued and value[0] != "+")):
            return None
        return Hit("PHONE_NUMBER", start, end, _SCORE + (CONTEXT_BOOST if spoken else 0), "phone")
