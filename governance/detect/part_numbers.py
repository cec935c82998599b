"""Digits that look like a person's number and are a thing's: dumps of bytes, part numbers, references of goods."""

import re
from collections.abc import Sequence

from governance.detect.finding import Finding
from governance.detect.matcher import CONTEXT_BOOST

_OF_DIGITS_WORDS = """
    CREDIT_CARD PHONE_NUMBER US_SSN US_ITIN US_BANK_NUMBER US_PASSPORT NATIONAL_ID UK_NHS MEDICAL_LICENSE
    """
_OF_DIGITS = frozenset(_OF_DIGITS_WORDS.split())
"""What is told from its digits."""
_WITHOUT_CHECK = {"PHONE_NUMBER": "phone", "US_SSN": "ssn"}
"""What only its shape tells, and the pattern that looks at the shape alone."""
_BYTES = r"[0-9a-fA-F]{2}(?:[0-9a-fA-F]{2}){0,3}"
_DUMP = re.compile(
    rf"^[ \t]*(?:0x)?[0-9a-fA-F]{{4,16}}(?:[ \t]*[:|][ \t]*|[ \t]+)(?:{_BYTES}[ \t|\-]{{1,3}}){{3,}}{_BYTES}(?![0-9a-fA-F])",
    re.MULTILINE,
)
_FEWEST_LINES = 2
_PART = (
    r"(?:m(?:fr\.? )?p/?n|p/n|part[ _\-]?(?:no\.?|nr\.?|num(?:ber)?|#)|sku|bom|cat(?:alog(?:ue)?)?[ _.\-]?(?:no\.?|num(?:ber)?|#)|item[ _\-]?(?:no\.?|code|number|#)"
    r"|stock[ _\-]?(?:no\.?|code)|order[ _\-]?(?:no\.?|code|number|#)|model[ _\-]?(?:no\.?|number)|ean|gtin|upc|cas(?:[ \-](?:no\.?|nr\.?))?|lot[ _\-]?(?:no\.?|nr\.?)?|batch[ _\-]?(?:no\.?|nr\.?)?"
    r"|art(?:ikel)?\.?[ \-]?(?:nr|nummer|no|n\u00b0|n\.\u00ba|num)\.?|best(?:ell)?\.?-?(?:nr|nummer)\.?|teile-?(?:nr|nummer)\.?|mat(?:erial)?\.?-?(?:nr|nummer)\.?|sachnummer|zeichnungs-?nr\.?|ersatzteil(?:nummer)?"
    r"|r\u00e9f(?:\u00e9rence)?\.?|n\u00b0 (?:de )?(?:pi\u00e8ce|s\u00e9rie|lot|article|commande)|c\u00f3d(?:igo)?\.?|referencia|refer\u00eancia|n\.?\u00ba (?:de )?(?:pieza|pe\u00e7a|art\u00edculo|artigo|pedido|serie|s\u00e9rie)"
    r"|cod(?:ice)?\.?(?: art(?:icolo)?\.?)?|articolo|onderdeel(?:nummer|nr\.?)?|bestelnummer|artikelnummer|nr (?:kat|katalogowy|cz\u0119\u015bci|zam\u00f3wienia)\.?|par\u00e7a no|stok kodu|artikelnr|varenr|varenummer|tuotenumero|reservdels? ?nr|ref(?:erence)?\.?(?: no\.?)?|tracking(?: (?:no\.?|number|#))?)"
)
_LABELLED = re.compile(rf"(?<!\w)(?i:{_PART})[\"']?[ \t]*[:=#]?[ \t]*[\"']?\Z")
_HEADED = re.compile(
    rf"^[^\n]*(?<!\w)(?i:{_PART})(?!\w)[^\n]*(?:[ \t]{{2,}}|[|;,\t])[^\n]*\n", re.MULTILINE
)
_CELL = re.compile(r"\s{2,}|[|;,\t]")
_LABEL_REACH, _ROW, _HEAD_REACH = 40, 160, 2000


def without_parts_of_things(text: str, found: list[Finding]) -> list[Finding]:
    """Return findings without those whose digits belong to a dump of bytes or name goods."""
    if not any(one.entity in _OF_DIGITS for one in found):
        return found
    dumps = _dumps(text)
    return [
        one
        for one in found
        if one.entity not in _OF_DIGITS or not (_within(dumps, one) or _is_of_goods(text, one))
    ]


def _dumps(text: str) -> Sequence[tuple[int, int]]:
    if "0" not in text:
        return ()
    lines = [match.span() for match in _DUMP.finditer(text)]
    return lines if len(lines) >= _FEWEST_LINES else ()


def _within(dumps: Sequence[tuple[int, int]], one: Finding) -> bool:
    return any(start <= one.start and one.end <= end for start, end in dumps)


def _is_of_goods(text: str, one: Finding) -> bool:
    """Whether a shape that nothing else speaks for stands behind a label of goods, or in a table of them."""
    if _WITHOUT_CHECK.get(one.entity) != one.detector:
        return False
    if one.entity == "PHONE_NUMBER" and one.score >= CONTEXT_BOOST + _LEAST:
        return False
    if _LABELLED.search(text, max(0, one.start - _LABEL_REACH), one.start):
        return True
    line = text.rfind("\n", 0, one.start) + 1
    if not line or text[one.start - 1] == "+":
        return False
    end = text.find("\n", one.end, one.end + _ROW)
    row = text[max(line, one.start - _ROW) : end if end >= 0 else one.end + _ROW]
    if len(_CELL.findall(row)) < 2:
        return False
    return _HEADED.search(text, max(0, line - _HEAD_REACH), line) is not None


_LEAST = 0.4
