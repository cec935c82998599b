"""Addresses as a whole: from a street or a flat to its town, postcode and country, and who lives there.

Address rules find a street; the lines around it say where it is. Growth is bounded: no address
takes more than eight pieces or 160 characters after its street.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from governance.detect.finding import Finding, Unit
from governance.detect.normalized_text import TextView
from governance.names.words import common, everyday, is_plain

_UPPER = r"A-Z\u00c0-\u00d6\u00d8-\u00de\u0100-\u017f\u0370-\u03ab\u0400-\u042f"
_WORD = rf"[{_UPPER}][^\s\d,.;:()<>\[\]{{}}\"=]{{1,24}}\.?"
_INNER = r"(?:\d{1,2}\.?[oa]\.? ?(?:[A-Z]\b|izq\w*\.?|d(?:ch|t)a\.?|centro)?|(?:[Bb]ajo|[Áá]tico) ?[A-Z]?\b|[Ii]nt\. ?\d{1,3}|[Aa]p(?:to|\.)\.? ?\d{1,4}|m\. ?\d{1,3}|[Ss]cala [A-Z]\b)"
"""A floor and a door: "2º B", which a view shows as "2o B", "int. 3", "m. 3"."""
_FLAT = r"(?i:apt|apartment|suite|ste|unit|flat|floor)\b\.?[ ]?#?[\dA-Z][\w\-]{0,5}\b"
_POSTCODE = (
    r"\d{4} [A-Z]{2}\b|\d{2}-\d{3}(?!\d)|(?:[A-Z]{1,2}[ \-])?\d{4,6}(?:-\d{3,4})?(?!\d)|\d{3} \d{2}(?!\d)|[A-Z]\d[A-Z] ?\d[A-Z]\d\b"
    r"|[A-Z]{1,2}\d[A-Z\d]? \d[A-Z]{2}\b|[AC-FHKNPRTV-Y]\d[\dW] ?[\dAC-FHKNPRTV-Y]{4}\b"
)
_TOWNS_POSTCODE = r"(?:[A-Z]{1,2}-)?(?:\d{5}(?:-\d{3})?|\d{4} ?[A-Z]{2}\b|\d{4}-\d{3}|\d{4}|\d{2}-\d{3}|\d{3} \d{2})"
"""A postcode in front of its town."""
_POSTED = re.compile(
    rf"(?:,[ \t]{{0,2}}|[ \t]?[-|;] |\r?\n[ \t>*|]{{0,8}})(?P<code>{_TOWNS_POSTCODE})[ ,]{{1,2}}(?P<town>[{_UPPER}][^\W\d_]+)"
)
_STREET_WORD = r"[^\W\d_][\w'./\-]{0,24}"
_HOUSE = r"\d{1,5}(?: ?[A-Za-z]\b)?(?:[-/]\d{1,4}[A-Za-z]?)?"
_BEFORE_POSTCODE = re.compile(
    rf"(?:^|[:,;|>\"(\t]|\s{{2}})[ \t]*(?P<street>{_HOUSE}[ ,]{{1,2}}(?:(?:bis|ter) )?(?:{_STREET_WORD} ){{0,5}}{_STREET_WORD}"
    rf"|(?:{_STREET_WORD}[ ,]{{1,2}}){{1,5}}(?:[Nn][o.:]{{0,2}} ?)?{_HOUSE}(?:[ ,]{{1,3}}{_INNER})?)[ \t]*\Z"
)
_YEAR = re.compile(r"(?:19|20)\d\d\Z")
_STATE = r"(?:A[KLRZ]|C[AOT]|D[CE]|FL|GA|HI|I[ADLN]|K[SY]|LA|M[ADEINOST]|N[CDEHJMVY]|O[HKR]|PA|RI|S[CD]|T[NX]|UT|V[AT]|W[AIVY])"
_ENGLISH = re.compile(
    rf"(?<![\w.\-/:,])(?P<street>(?:{_FLAT},? )?\d{{1,5}}[A-Za-z]? (?:{_WORD} ){{0,3}}{_WORD})(?:,[ ]?|\r?\n[ \t>]{{0,8}})"
    rf"(?:{_WORD}(?: {_WORD}){{0,2}}(?:,[ ]?|\r?\n[ \t>]{{0,8}}| )){{1,3}}(?:{_STATE} \d{{5}}(?!\d)|[A-Z]{{1,2}}\d[A-Z\d]? \d[A-Z]{{2}}\b)"
)
"""A house and a street, a town, and then a British or American postcode."""
_GAP = re.compile(r"(?: - |[ \t,.]{0,3})(?:\r?\n[ \t>?*|,]{0,8}){0,2}")
_PIECE = re.compile(
    rf"(?P<flat>{_FLAT}|{_INNER})|(?P<postcode>{_POSTCODE})|(?P<nothing>nan\b)|(?P<region>[A-Z]{{2,3}}\b(?![\w'’]))"
    rf"|(?P<place>{_WORD}(?:[ \-](?:{_WORD}|de|la|le|del|di|da|do|dos|nad|am|an|der|of|u|k)){{0,4}}(?: \([^)\n]{{1,24}}\))?)"
    r"(?=[,.;\n\r>?]|\s|$)"
)
_FLAT_AT = re.compile(rf"(?<!\w){_FLAT}")
_GENERIC = re.compile(
    rf"(?<![\w.\-/:,])\d{{1,6}}[A-Za-z]? (?:\d{{1,5}} )?(?:{_WORD} )(?:[^\s\d,.;:()<>\[\]{{}}\"=]{{1,24}} ){{0,4}}\d{{1,5}}[A-Za-z]?(?=[ \t]*[,\r\n])"
)
_TOLD = re.compile(
    r"(?i:\b(?:live[sd]? (?:at|on)|living at|address(?: is|:|\? it is|\s)|(?:address|offices?) of [^\n]{3,40} is|located at|"
    r"(?:office|restaurant|station|shop|it|party)(?: is|'s) (?:at|on|in)|(?:drops you off|stop|meet me|meet|living) at|"
    r"(?:taxi|sent|new one|return|card|deliver(?:ed)?|ship(?:ped)?|refers) to(?:\? user:)?|here they are:|street:|"
    r"(?:adresse|anschrift|wohnhaft|direcci\u00f3n|domicilio|indirizzo|residenza|residente in|endere\u00e7o|morada|adres|adresi|adr\.)[ ]?:)\s{1,3})"
    r"(?P<street>[^\n,?!;\"<>{}()=]{4,60})"
)
_CORNER = re.compile(
    r"(?i:\bthe corner of )(?P<street>[^\n,?!;:\"<>{}()=]{3,40} and [^\n,?!;:\"<>{}()=.]{3,40})"
)
_STREET = re.compile(
    rf"(?:\d{{1,6}}[A-Za-z]?,? )?(?:\d{{1,6}} )?(?:[^\s\d][^\s\d]{{0,24}} ){{1,6}}\d{{1,6}}[A-Za-z]?(?:\.(?= |$))?(?: (?:St|Ave|Rd)\.)?(?: {_FLAT})?"
    r"|\d{1,6}[A-Za-z]? (?:\d{1,6}[,]? )?(?:[^\s\d][^\s\d]{1,24} ?){2,6}(?=\Z| street| in )"
)
_SENTENCE_END = re.compile(r"(?<![Bb]lvd)(?<![Pp]kwy)(?<=\w{4})\. (?=[A-Z])")
_MONTH = re.compile(r"(?i)\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b")
_NUMBER_BEFORE = re.compile(rf"(?<![\w.])(?:{_FLAT} )?\d{{1,6}}[A-Za-z]?,? \Z")
_FLAT_BEFORE = re.compile(rf"(?<!\w){_FLAT},? \Z")
_STREET_LINE = re.compile(
    r"[ \t>?*|]{0,8}((?:\d{1,6}[^\n:=<>(){}\[\]\"]{3,60}|[^\n:=<>(){}\[\]\"\d]{3,40} \d{1,6}[A-Za-z]?\.?))[ \t,]*\Z"
)
_NAME_LINE = re.compile(
    rf"[ \t>?*|]{{0,8}}([{_UPPER}][^\W\d_A-Z'\-]?[^\W\d_]*\.?(?:[ ]{{1,2}}(?:[{_UPPER}]\.|[{_UPPER}]?[^\W\d_][\w'\-]*)){{1,3}})[ \t]*\Z"
)
_COMPANY = re.compile(
    r"(?i)\b(?:inc|ltd|llc|gmbh|corp|co|company|group|sons|systems|services|data|technologies|"
    r"consulting|solutions|university|bank|explorer|associates|partners|media|labs?|health|and)\b"
)
_DIGIT = re.compile(r"\d")
_MARK = re.compile(r"[\s.#]")
"""What stands in every part of an address that is looked for here."""
_MOST_PIECES = 8
_MOST_CHARACTERS = 160


class Seed(NamedTuple):
    """A span of the view from which an address may grow."""

    start: int
    end: int
    sure: bool = False
    """Whether it is an address even when nothing grows from it."""
    known: bool = False
    """Whether another detector reported it."""


class AddressBlocks:
    """Grows streets to whole addresses; names the person whose lines stand above one."""

    name = "address_blocks"
    version = "blocks-2"
    entities = frozenset({"STREET_ADDRESS"})

    def find(
        self, units: Sequence[Unit], known: Sequence[Sequence[Finding]] = ()
    ) -> list[list[Finding]]:
        """Return the parts of addresses that other rules left out."""
        out: list[list[Finding]] = []
        for place, (view, _, _) in enumerate(units):
            found = known[place] if known else ()
            seeds = self._seeds(view, found) if found or _DIGIT.search(view.text) else ()
            out.append(list(self._found(view, seeds)) if seeds else [])
        return out

    def _found(self, view: TextView, seeds: Sequence[Seed]) -> Iterator[Finding]:
        text = view.text
        spans: list[tuple[int, int]] = []
        for start, end, sure, was_known in seeds:
            if spans and end <= spans[-1][1]:
                continue
            begin, begun = _left(text, start)
            stop, posted = _right(text, end)
            if sure or posted or (begun and stop > end):
                spans.append((begin, stop))
                if (begin, stop) != (start, end) or not was_known:
                    yield Finding("STREET_ADDRESS", *view.span(begin, stop), 0.7, self.name)
                if "\n" in text[begin:stop]:
                    yield from self._names(view, begin)

    @staticmethod
    def _seeds(view: TextView, known: Sequence[Finding]) -> list[Seed]:
        """Return streets that are found already, and flats and numbers that may be part of one."""
        text = view.text
        streets = [
            Seed(*_in_view(view, finding.start, finding.end), sure=True, known=True)
            for finding in known
            if finding.entity == "STREET_ADDRESS" and finding.score >= 0.5
        ]
        if _MARK.search(text) is None or _DIGIT.search(text) is None:
            return streets
        guesses = [
            Seed(*match.span())
            for pattern in (_FLAT_AT, _GENERIC)
            for match in pattern.finditer(text)
        ]
        guesses += [span for match in _CORNER.finditer(text) for span in _corner(match)]
        streets += [span for match in _TOLD.finditer(text) for span in _told(match)]
        streets += [Seed(*m.span("street"), sure=True) for m in _ENGLISH.finditer(text)]
        streets += [span for match in _POSTED.finditer(text) for span in _before_postcode(match)]
        return sorted(streets + guesses, key=lambda seed: (seed.start, -seed.end))

    def _names(self, view: TextView, begin: int) -> Iterator[Finding]:
        """Yield the names of people on the two lines above an address."""
        text = view.text
        end = text.rfind("\n", 0, begin)
        for _ in range(2):
            if end <= 0:
                return
            start = text.rfind("\n", max(0, end - 80), end) + 1
            match = _NAME_LINE.match(text[start:end].rstrip("\r"))
            if match and not _COMPANY.search(match[1]):
                words = match[1].split()
                if not any(word.lower().strip(".") in common() for word in words):
                    span = view.span(start + match.start(1), start + match.end(1))
                    yield Finding("PERSON", *span, 0.6, self.name)
            end = start - 1


def _before_postcode(match: re.Match[str]) -> Iterator[Seed]:
    """Yield what stands before a postcode and its town, when it has a number and a name."""
    text, end = match.string, match.start()
    if _YEAR.match(match["code"]) and "\n" not in match.group():
        return
    if is_plain(match["town"].lower()):
        return
    begin = max(text.rfind("\n", max(0, end - 80), end) + 1, end - 80, 0)
    street = _BEFORE_POSTCODE.search(text[begin:end])
    if street is None:
        return
    words = re.findall(r"[^\W\d_]{2,}", street["street"])
    if any(word.lower() not in common() for word in words):
        yield Seed(begin + street.start("street"), begin + street.end("street"), sure=True)


def _corner(match: re.Match[str]) -> Iterator[Seed]:
    """Yield "the corner of A and B" when both streets are written like names."""
    first, _, second = match["street"].partition(" and ")
    if first[:1].isupper() or first[:1].isdigit() or second[:1].isupper():
        yield Seed(match.start(), match.end(), sure=True)


def _told(match: re.Match[str]) -> Iterator[Seed]:
    """Yield what is said to be an address when it has a number and a name."""
    street = _STREET.match(_SENTENCE_END.split(match["street"], maxsplit=1)[0])
    if street is None or _MONTH.search(street.group()):
        return
    named = [
        word for word in re.findall(r"[^\W\d_]{3,}", street.group()) if word.lower() not in common()
    ]
    if named and (any(word[0].isupper() for word in named) or street.group()[-1:].isdigit()):
        start = match.start("street")
        yield Seed(start, start + len(street.group().rstrip()), sure=True)


def _in_view(view: TextView, start: int, end: int) -> tuple[int, int]:
    """Return the span of the view for one of the original."""
    if view.starts is None or view.ends is None:
        return start, end
    return bisect_left(view.starts, start), bisect_left(view.ends, end) + 1


def _left(text: str, start: int) -> tuple[int, bool]:
    """Return where the address begins, and whether something before its seed belongs to it."""
    window = text[max(0, start - 40) : start]
    for pattern in (_NUMBER_BEFORE, _FLAT_BEFORE):
        before = pattern.search(window)
        if before is not None:
            return start - len(window) + before.start(), True
    line = text.rfind("\n", max(0, start - 80), start) + 1
    if text[line:start].strip(" \t>?*|"):
        match = _STREET_LINE.match(text[line:start].rstrip())
    else:
        above = text.rfind("\n", max(0, line - 82), max(0, line - 1)) + 1
        match = _STREET_LINE.match(text[above : max(0, line - 1)].rstrip("\r"))
        line = above
    if match is not None and _FLAT_AT.match(text, start):
        return line + match.start(1), True
    return start, False


def _right(text: str, end: int) -> tuple[int, bool]:
    """Return where the address ends, and whether a postcode belongs to it."""
    at, good, posted, places = end, end, False, 0
    for _ in range(_MOST_PIECES):
        gap = _GAP.match(text, at)
        piece = _PIECE.match(text, gap.end()) if gap is not None else None
        if gap is None or piece is None or piece.end() - end > _MOST_CHARACTERS:
            break
        kind, parted = piece.lastgroup, "\n" in gap.group() or "," in gap.group()
        if gap.end() == at or (posted and (not parted or kind == "postcode")):
            break
        if kind == "place":
            if all(word.lower().strip(".") in everyday() for word in piece.group().split()):
                break
            places += 1
            follows = text[piece.end() : piece.end() + 1]
            if parted and places == 1 and follows in ("", ",", ".", "\n", "\r", ";"):
                good = piece.end()
        elif kind in ("flat", "postcode"):
            good = piece.end()
            posted |= kind == "postcode"
        at = piece.end()
        if posted:
            break
    return good, posted
