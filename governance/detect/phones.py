"""Phone numbers: digit groups judged by the metadata of Google's phone number library.

The library's own matcher costs 100 ms per kilobyte of numbers; here each run of digit groups is
tried against one pattern for all regions, and the shape of the groups has its say.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import ahocorasick
import phonenumbers

from governance.detect.gate import Gate
from governance.detect.matcher import CONTEXT_BOOST, Hit
from governance.detect.normalized_text import TextView
from governance.detect.phone_words import (
    HINTS,
    NUMBERED_THINGS,
    TELLS_PHONE,
    asks_to_call,
    said_in_script,
)
from governance.detect.rules.rule import Rule

REGIONS = (
    "US", "GB", "DE", "FR", "IL", "IN", "CA", "BR", "AT", "CH", "BE", "NL", "SE", "FI", "RO", "TR", "AU", "NZ", "JP", "KR", "ZA",
)  # fmt: skip
_SCORE = 0.4
_KINDS = (
    "fixed_line", "mobile", "toll_free", "premium_rate", "shared_cost", "personal_number", "voip",
    "pager", "uan", "voicemail",
)  # fmt: skip
_GROUP = re.compile(r"\d+")
_DIGITS_AND_SEPARATORS = re.compile(r"\d[\d \t\-.()/\[\]~]{5,}\d")
_RUN = re.compile(r"\d+(?:[ \t\-.()/\[\]~]{1,3}\d+)*")
_EXTENSION = re.compile(r"[ ,;]{0,2}(?:ext|extension|x|#)[.:]?[ ]?\d{1,6}(?!\d)", re.IGNORECASE)
_DATE = re.compile(r"(?:\d{4}[-./ ]\d{1,2}[-./ ]\d{1,2}|\d{1,2}[-./ ]\d{1,2}[-./ ]\d{2,4})\Z")
_DECIMAL = re.compile(r"\d+\.\d+\Z")
_FRACTION = re.compile(r"\.\d{1,2}(?!\d)")
_HEX_GOES_ON = re.compile(r"-[0-9a-fA-F]*\d")
_AFTER = ("erreichbar", "office", "fax", "mobile", "cell", "desk", "home", "work", "phone", "tel")
_SAID_AFTER = re.compile(rf"\)?[\s\-,(]{{1,3}}(?:{'|'.join(_AFTER)})\b", re.IGNORECASE)
_AMERICAN = re.compile(r"(?:1[-. ])?(?:\(\d{3}\) ?|\d{3}[-.])\d{3}[-. ]\d{4}\Z")
_FEWEST, _MOST = 7, 15
_MOST_GROUPS = 7
_FAMILIAR = ((3, 3, 4), (1, 3, 3, 4))
"""Lengths of the groups of an American number, without and with the country code."""
_QUOTES = "'\""
"""Between them ``%`` stands for anything: ``LIKE '%4155550132%'``."""
_NEAR = 200
"""Words further away than so many characters have no say."""


class _Group(NamedTuple):
    start: int
    end: int


class _PhoneContext:
    """Where words stand that may say of digits near them that they are a phone number."""

    _words = ahocorasick.Automaton()
    for _word in TELLS_PHONE.union(HINTS, _AFTER):
        _words.add_word(_word, len(_word) - 1)
    _words.make_automaton()

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    @cached_property
    def _starts(self) -> list[int]:
        return sorted(last - before for last, before in self._words.iter(self._gate.lowered))

    def any_near(self, start: int) -> bool:
        """Whether there is one near a place; the text is searched when it is first asked of."""
        at = bisect_left(self._starts, start - _NEAR)
        return at < len(self._starts) and self._starts[at] <= start + _NEAR


@lru_cache(maxsize=512)
def _international(country_code: int) -> re.Pattern[str] | None:
    """Return what national numbers of a country code look like; None when nobody has that code."""
    regions = phonenumbers.COUNTRY_CODE_TO_REGION_CODE.get(country_code, ())
    patterns = [_national(region) for region in regions if region != "001"]
    return re.compile(rf"0?(?:{'|'.join(patterns)})\Z") if patterns else None


@lru_cache(maxsize=512)
def _national(region: str) -> str:
    metadata = phonenumbers.PhoneMetadata.metadata_for_region(region)
    kinds = (getattr(metadata, kind) for kind in _KINDS)
    return "|".join(
        f"(?:{kind.national_number_pattern})"
        for kind in kinds
        if kind is not None and kind.national_number_pattern
    )


def _prefixed(region: str) -> str:
    metadata = phonenumbers.PhoneMetadata.metadata_for_region(region)
    prefix = (metadata.national_prefix if metadata is not None else None) or ""
    return rf"(?:{prefix})?(?:{_national(region)})"


def is_valid_anywhere(value: str) -> bool:
    """Whether a whole value is a valid number: with its country's code, or an American one."""
    digits = "".join(_GROUP.findall(value))
    for written, region in ((f"+{digits}", None), (digits, "US")):
        try:
            if phonenumbers.is_valid_number(phonenumbers.parse(written, region)):
                return True
        except phonenumbers.NumberParseException:
            continue
    return False


class PhoneRunner:
    """Finds numbers of any country when written with +, and national ones of some regions."""

    rule = Rule("phone", "PHONE_NUMBER", "", _SCORE, digits=True)
    pattern = None

    def __init__(self, regions: tuple[str, ...] = REGIONS) -> None:
        self._valid = re.compile("(?:" + "|".join(map(_prefixed, regions)) + r")\Z")
        for country_code in phonenumbers.COUNTRY_CODE_TO_REGION_CODE:
            _international(country_code)  # now, at the start, and not when the first text comes

    def run(self, gate: Gate, keys: tuple[str, ...]) -> Iterator[Hit]:
        """Yield numbers; those without the shape of a phone number need context."""
        text = gate.view.text
        beside, is_told = _PhoneContext(gate), not TELLS_PHONE.isdisjoint(keys)
        for run in _runs(text):
            at = 0
            while at < len(run):
                taken = self._longest(gate, run, at, keys, None if is_told else beside)
                if taken is None:
                    at += 1
                    continue
                last, score = taken
                start = _opening(text, run[at].start)
                end = run[last].end
                if text[end : end + 1] == ")" and "(" in text[start:end]:
                    end += 1
                extension = _EXTENSION.match(text, end)
                yield Hit(
                    "PHONE_NUMBER", start, extension.end() if extension else end, score, "phone"
                )
                at = last + 1

    def _longest(
        self,
        gate: Gate,
        run: list[_Group],
        at: int,
        keys: tuple[str, ...],
        beside: _PhoneContext | None,
    ) -> tuple[int, float] | None:
        """Return the last group and the score of the longest number that begins at a group.

        Where nothing ``beside`` can say that it is one, only shapes that speak for themselves are
        judged; None where the keys say so.
        """
        text = gate.view.text
        start = run[at].start
        plus = text[max(0, start - 2) : start].rstrip("(").endswith("+")
        if not plus and _glued_left(text, start):
            return None
        digits, ends = 0, []
        for last in range(at, min(len(run), at + _MOST_GROUPS)):
            digits += run[last].end - run[last].start
            if digits > _MOST + 2:
                break
            if digits >= _FEWEST and not _glued_right(text, run[last].end):
                ends.append(last)
        if not ends:
            return None
        if not plus and len(ends) == 1 and _is_date(text, run[at : ends[0] + 1]):
            return None
        in_script = (
            gate.wide
            and (said_in_script(text, start) or _is_chinese(text, start, run[ends[0]].end))
        ) or asks_to_call(text, start)
        may_be_said = in_script or beside is None or beside.any_near(start)
        spoken: bool | None = None
        for last in reversed(ends):
            groups = run[at : last + 1]
            if not (may_be_said or plus or _may_speak_for_itself(text, groups)):
                continue
            verdict = self._verdict(gate.view, groups, plus)
            if verdict is None:
                continue
            if spoken is None:
                spoken = in_script or (
                    may_be_said
                    and (
                        _spoken(gate.words_before(start), keys, groups)
                        or _SAID_AFTER.match(text, run[last].end) is not None
                    )
                )
            if spoken or verdict:
                return last, _SCORE + (CONTEXT_BOOST if spoken else 0)
        return None

    def _verdict(self, view: TextView, groups: list[_Group], plus: bool) -> bool | None:
        """True for a phone number by itself, False where only context makes it one, None for none."""
        text = view.text
        digits = "".join(text[group.start : group.end] for group in groups)
        if plus and len(groups) == 2 and _FRACTION.match(text, groups[0].end):
            return None
        if len(set(digits)) == 1:
            return None  # it holds the place of one
        if plus or (digits.startswith("00") and len(digits) > 10):
            return _plus_verdict(digits if plus else digits[2:])
        written = text[_opening(text, groups[0].start) : groups[-1].end]
        if _AMERICAN.match(written):
            return True
        if len(digits) > _MOST or _DATE.match(written) or _DECIMAL.match(written):
            return None
        valid = self._valid.match(digits) is not None
        if not valid:
            return False if 7 <= len(digits) <= 11 and _phone_like(groups) else None
        if len(groups) == 1:
            return _spelled(view, *groups[0]) and _like_a_number(digits)
        return len(digits) > 8 and _shaped(written, groups)


def _may_speak_for_itself(text: str, groups: list[_Group]) -> bool:
    """False only where no verdict of ``PhoneRunner`` is True; said from lengths, without any pattern."""
    if len(groups) == 1:
        return True
    start = groups[0].start
    if text[start] == "0" or (start and text[start - 1] in "(+"):
        return True
    return tuple(group.end - group.start for group in groups) in _FAMILIAR


def _is_date(text: str, groups: list[_Group]) -> bool:
    """Whether groups are written like a date, which ``PhoneRunner`` never takes for a phone number."""
    start = _opening(text, groups[0].start)
    return len(groups) == 3 and _DATE.match(text[start : groups[-1].end]) is not None


def _spoken(before: tuple[str, ...], keys: tuple[str, ...], groups: list[_Group]) -> bool:
    """Whether the words before (or the keys) say that this is a phone number."""
    if any(word in TELLS_PHONE for word in (*before, *keys)):
        return True
    near = before[-5:-1]
    digits = sum(group.end - group.start for group in groups)
    if digits < 10 and len(groups) == 1:
        return False
    return any(
        word in HINTS and not (word.startswith("number") and thing in NUMBERED_THINGS)
        for thing, word in pairwise(("", *near)[-4:])
    )


_CHINESE_MOBILE = re.compile(r"1[3-9]\d{9}\Z")
_BEHIND_HAN = re.compile(r"[\u4e00-\u9fff](?<![号號码碼单單])[^\w\n]{0,4}\Z")


def _is_chinese(text: str, start: int, end: int) -> bool:
    """Whether eleven digits in a Chinese sentence are a mobile's."""
    if _CHINESE_MOBILE.match(text[start:end]) is None:
        return False
    return _BEHIND_HAN.search(text, max(0, start - 6), start) is not None


def _spelled(view: TextView, start: int, end: int) -> bool:
    """Whether digits stand apart in the text as it came: 2 1 2 5 5 5 0 1 2 3."""
    return view.starts is not None and view.starts[end - 1] - view.starts[start] > end - start


def _like_a_number(digits: str) -> bool:
    """Whether digits that stand apart are a number at full length, and no row of a table or count."""
    steps = {(int(b) - int(a)) % 10 for a, b in pairwise(digits)}
    return len(digits) in (10, 11) and len(set(digits)) >= 4 and len(steps) > 2


def _plus_verdict(digits: str) -> bool | None:
    for length in (1, 2, 3):
        pattern = _international(int(digits[:length]))
        if pattern is not None:
            valid = pattern.match(digits[length:]) is not None
            return True if valid or 10 <= len(digits) <= _MOST else None
    return None


def _shaped(written: str, groups: list[_Group]) -> bool:
    """Whether the groups look like a national number: trunk prefix, brackets or 3-3-4."""
    lengths = tuple(group.end - group.start for group in groups)
    if written[0] in "(0" and all(length > 1 for length in lengths):
        return True
    return lengths in _FAMILIAR


def _phone_like(groups: list[_Group]) -> bool:
    return len(groups) <= 5 and all(group.end - group.start >= 2 for group in groups[1:])


def _runs(text: str) -> Iterator[list[_Group]]:
    """Yield runs of digit groups, long enough for a number, with only separators of phones between them."""
    for marks in _DIGITS_AND_SEPARATORS.finditer(text):
        for run in _RUN.finditer(text, *marks.span()):
            start, end = run.span()
            if end - start >= _FEWEST:
                yield [_Group(*group.span()) for group in _GROUP.finditer(text, start, end)]


def _opening(text: str, start: int) -> int:
    """Return where a number begins, its bracket and plus included."""
    if start and text[start - 1] == "(":
        start -= 1
    if start and text[start - 1] == "+":
        start -= 1
    return start


def _glued_left(text: str, start: int) -> bool:
    before = text[start - 1] if start else " "
    if before == "(":
        before = text[start - 2] if start > 1 else " "
    return (
        (before.isalnum() and before < "\u2e80")
        or before in "_#$€£"
        or (before == "%" and text[max(0, start - 2) : start - 1] not in _QUOTES)
        or (before in ".-/" and start > 1 and text[start - 2].isalnum())
    )


def _glued_right(text: str, end: int) -> bool:
    after = text[end : end + 2]
    if not after:
        return False
    head = after[0]
    if head in "xe":
        return _EXTENSION.match(text, end) is None
    return (
        (head.isalnum() and head < "\u2e80")
        or head == "_"
        or (head == "%" and after[1:] not in _QUOTES)
        or (head in ".:" and after[1:].isdigit())
        or (head == "-" and _HEX_GOES_ON.match(text, end) is not None)
    )
