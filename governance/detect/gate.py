"""What many patterns ask of one text, answered once: which of them can find anything there."""

import re

from governance.detect.normalized_text import TextView

_WORD = re.compile(r"\w+")
_SECTIONS = re.compile(r"(?i:section|version|chapter|release|rfc)")
_TAUGHT_IN_CODE = re.compile(r"(?i:ip(?:v[46])?_?(?:address|network|interface))\(")
_DIGITS_IN_A_ROW = re.compile(rb"[0-9]+")
_NO_DIGITS = bytes(code for code in range(256) if not 48 <= code < 58)
_DIGITS_GATE = re.compile(rb"[0-9](?:[ .\-/()]{0,2}[0-9]){4}")
_CONTEXT_WORDS = 6


class Gate:
    """What is asked of one view many times, answered once."""

    __slots__ = (
        "_sections", "_teaches", "_words", "count_of_digits", "digits", "digits_in_a_row", "lowered", "view", "wide",
    )  # fmt: skip

    def __init__(self, view: TextView) -> None:
        self.view = view
        data = view.data
        self.lowered = data.decode("latin-1").lower()
        """The view in small letters, for literals."""
        self.count_of_digits = 0 if data.isalpha() else len(data.translate(None, _NO_DIGITS))
        self.digits = self.count_of_digits > 4 and _DIGITS_GATE.search(data) is not None
        """Whether there is a run of digits."""
        self.wide = not view.text.isascii() and max(view.text) > "\xff"
        """Whether there are letters beyond Latin-1."""
        self.digits_in_a_row = 0
        """How many digits stand next to each other at most; not counted where there is no run of them."""
        if self.digits:
            self.digits_in_a_row = max(map(len, _DIGITS_IN_A_ROW.findall(data)))
        self._words: dict[int, tuple[str, ...]] | None = None
        self._teaches: bool | None = None
        self._sections: bool | None = None

    def teaches_addresses(self) -> bool:
        """Whether the text is a program about IP addresses, which shows them by examples."""
        if self._teaches is None:
            self._teaches = _TAUGHT_IN_CODE.search(self.view.text) is not None
        return self._teaches

    def has_sections(self) -> bool:
        """Whether the text speaks of anything that has numbers with dots."""
        if self._sections is None:
            self._sections = _SECTIONS.search(self.view.text) is not None
        return self._sections

    def words_before(self, start: int) -> tuple[str, ...]:
        """Return the lower-case words before an offset of the view, and the one at it."""
        if self._words is None:
            self._words = {}
        words = self._words.get(start)
        if words is None:
            left = self.view.text[max(0, start - 120) : start + 24].lower()
            cut = min(start, 120)
            before = _WORD.findall(left, 0, cut)[-_CONTEXT_WORDS + 1 :]
            at = _WORD.match(left, cut)
            words = (*before, at.group()) if at else tuple(before)
            self._words[start] = words
        return words
