"""Running one pattern over a view: RE2 first, then the check of what it found."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import re2

from governance.detect.names.file_names import in_file_name
from governance.detect.normalized_text import TextView, view_of
from governance.detect.rules import accounts as account_rules
from governance.detect.rules import checks, password_checks
from governance.detect.rules import passwords as password_rules
from governance.detect.rules.rule import Rule

_WORD = re.compile(r"\w+")
_SECTIONS = re.compile(r"(?i:section|version|chapter|release|rfc)")
_TAUGHT_IN_CODE = re.compile(r"(?i:ip(?:v[46])?_?(?:address|network|interface))\(")
_DIGITS_IN_A_ROW = re.compile(rb"[0-9]+")
_NO_DIGITS = bytes(code for code in range(256) if not 48 <= code < 58)
_DIGITS_GATE = re.compile(rb"[0-9](?:[ .\-/()]{0,2}[0-9]){4}")
CONTEXT_BOOST = 0.35
CONTEXT_FLOOR = 0.4
_CONTEXT_WORDS = 6


def compiled(regex: str, *, ignore_case: bool = True) -> Any:
    """Compile for RE2 on Latin-1 bytes.

    Raises:
        re2.error: RE2 cannot run it (lookaround, backreference).
    """
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.dot_nl = True
    return re2.compile(b"(?m)" + regex.encode("latin-1"), options)


def compiled_together(patterns: Sequence[Any]) -> Any:
    """Return a set of compiled patterns; the place behind the last one matches every text.

    None where they are too large for RE2 together.
    """
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    together = re2.Set.SearchSet(options)
    for pattern in patterns:
        flags = b"s" if pattern.options.case_sensitive else b"si"
        together.Add(b"(?" + flags + b")" + pattern.pattern)
    together.Add(b"")
    try:
        together.Compile()
    except re2.error:
        return None
    return together


def compiled_wide(regex: str, *, ignore_case: bool = True) -> Any:
    """Compile for RE2 on text of any script, read as views read it."""
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    return re2.compile("(?m)" + view_of(regex).text, options)


class Gate:
    """What is asked of one view many times, answered once."""

    __slots__ = (
        "_sections", "_teaches", "_words", "count_of_digits", "digits", "digits_in_a_row", "lowered", "view", "wide",
    )  # fmt: skip

    def __init__(self, view: TextView) -> None:
        self.view = view
        data = view.data
        self.lowered = data.lower().decode("latin-1")
        """The view in small letters (of ASCII), for literals."""
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


def supported(words: tuple[str, ...], context: tuple[str, ...]) -> bool:
    """Whether a word around speaks for the entity: short context words whole, longer ones within."""
    if not words:
        return False
    joined = " ".join(words)
    for wanted in context:
        if " " in wanted or len(wanted) > 3 or wanted > "\u0e00":
            if wanted in joined:
                return True
        elif wanted in words:
            return True
    return False


@dataclass(frozen=True, slots=True)
class Hit:
    """A span of the view with its score, before thresholds."""

    entity: str
    start: int
    end: int
    score: float
    source: str


@dataclass(frozen=True, slots=True)
class Runner:
    """One compiled pattern."""

    rule: Rule
    pattern: Any
    left: re.Pattern[str] | None
    right: re.Pattern[str] | None
    spans: Callable[[Gate, int, int], Iterator[tuple[int, int, bool | None]]] | None = None
    """Takes over from ``check`` where the value may be a part of the match."""

    @classmethod
    def of(cls, rule: Rule) -> "Runner":
        """Compile a rule."""
        return cls(
            rule=rule,
            pattern=(compiled_wide if rule.wide else compiled)(
                rule.regex, ignore_case=rule.ignore_case
            ),
            left=re.compile(f"[{rule.left}]") if rule.left else None,
            right=re.compile(f"[{rule.right}]") if rule.right else None,
            spans=_SPANS.get(rule.name),
        )

    def run(self, gate: Gate, keys: tuple[str, ...]) -> Iterator[Hit]:
        """Yield what the pattern finds, scores raised by context."""
        rule = self.rule
        text = gate.view.text
        for match in self.pattern.finditer(text if rule.wide else gate.view.data):
            start, end = match.span(rule.group)
            if start >= end or not self._free(text, start, end):
                continue
            if rule.around is not None and not rule.around(text, start, end):
                continue
            if rule.not_in_queries and _PARAMETER.search(text, max(0, start - 40), start):
                continue
            if self.spans is not None:
                candidates = self.spans(gate, start, end)
            else:
                verdict = rule.check(text[start:end]) if rule.check is not None else None
                candidates = iter(((start, end, verdict),))
            for begin, stop, verdict in candidates:
                score = self._score(gate, begin, verdict, keys)
                if score > 0:
                    yield Hit(rule.entity, begin, stop, score, rule.name)

    def _free(self, text: str, start: int, end: int) -> bool:
        if self.left is not None and start and self.left.match(text, start - 1):
            return False
        return self.right is None or self.right.match(text, end) is None

    def _score(self, gate: Gate, start: int, verdict: bool | None, keys: tuple[str, ...]) -> float:
        rule = self.rule
        if verdict is False or (rule.against and not set(keys).isdisjoint(rule.against)):
            return 0.0
        if rule.against and any(w in rule.against for w in gate.words_before(start)[-3:-1]):
            return 0.0
        score = 1.0 if verdict is True and rule.score < 1 else rule.score
        if score == 1 or not rule.context:
            return score
        if supported(gate.words_before(start), rule.context) or supported(keys, rule.context):
            return min(1.0, max(score + CONTEXT_BOOST, CONTEXT_FLOOR))
        return score


_PARAMETER = re.compile(r"[?&][\w.\-\[\]]{1,36}=\Z")
_GROUP = re.compile(r"\d+")
_ISSUERS = "23456"
_MOST_CARD_DIGITS = 19


def _card_spans(gate: Gate, start: int, end: int) -> Iterator[tuple[int, int, bool | None]]:
    """Find card numbers within a run of digit groups, which may hold other numbers beside them."""
    text = gate.view.text
    groups = [match.span() for match in _GROUP.finditer(text, start, end)]
    digits = "".join(text[begin:stop] for begin, stop in groups)
    at = first = 0
    sure = False
    while first < len(groups):
        stop = _card_end(digits, at, groups, first) if digits[at] in _ISSUERS else None
        if stop is None:
            stop = first + 1
        else:
            yield groups[first][0], groups[stop - 1][1], True
            sure = True
        at += sum(finish - begin for begin, finish in groups[first:stop])
        first = stop
    if not sure and len(digits) <= _MOST_CARD_DIGITS:
        yield start, end, checks.card(text[start:end])


def _card_end(digits: str, at: int, groups: list[tuple[int, int]], first: int) -> int | None:
    """Return the group behind the longest card number that begins with group ``first``."""
    size, found = 0, None
    for last in range(first, min(len(groups), first + _MOST_CARD_DIGITS)):
        size += groups[last][1] - groups[last][0]
        if size > _MOST_CARD_DIGITS:
            break
        if size >= 13 and checks.issued_card(digits[at : at + size]):
            found = last + 1
    return found


def _iban_spans(gate: Gate, start: int, end: int) -> Iterator[tuple[int, int, bool | None]]:
    text = gate.view.text
    stop = checks.iban_end(text[start:end])
    if stop is not None:
        yield start, start + stop, True


def _key_block_spans(gate: Gate, start: int, end: int) -> Iterator[tuple[int, int, bool | None]]:
    """Take a private key up to its END line or, when that is missing, up to the end of the text."""
    text = gate.view.text
    closing = text.find("-----END", end)
    if closing >= 0:
        line = text.find("-----", closing + 8)
        yield start, line + 5 if line >= 0 else len(text), True
    else:
        yield start, len(text), True


_NEXT_FIELD = re.compile(r"&[\w.\-\[\]]{1,40}=|[.,;:)\]}]+$")


def _trimmed(value: str) -> str:
    """Return a secret up to the next field of a query string and without the sentence's own marks."""
    following = _NEXT_FIELD.search(value)
    return value[: following.start()] if following and following.start() >= 4 else value


def _value_spans(gate: Gate, start: int, end: int) -> Iterator[tuple[int, int, bool | None]]:
    value = _trimmed(gate.view.text[start:end])
    if not _TEST_PASSED.search(gate.view.text, max(0, start - 8), start):
        yield start, start + len(value), checks.secret_value(value)


_TEST_PASSED = re.compile(r"\bPASS(?:ED)?:? {0,2}\Z")
_IN_CALL = re.compile(r"[(,]\s{0,20}[\w.]{1,40}(?:=|:\s?)\Z")
_FIRST_ARGUMENT = re.compile(r"[,)}]")


def _label_spans(gate: Gate, start: int, end: int) -> Iterator[tuple[int, int, bool | None]]:
    """Take a password behind a label, where a word is no argument of a program."""
    text = gate.view.text
    value = _trimmed(text[start:end])
    stop = start + len(value)
    if value.isalpha() and text[start - 1] not in "\"'`":
        if _FIRST_ARGUMENT.match(text, stop) and _IN_CALL.search(text, max(0, start - 64), start):
            return
        if text[start - 2 : start] == "= ":
            return  # a variable is set
    if not _TEST_PASSED.search(text, max(0, start - 8), start):
        yield start, stop, password_checks.labelled(value)


_ENDS_CLAUSE = re.compile(
    r"[\"'`*]{0,3}(?:[.,;!?)]|\s*(?:$|\n)| (?:and|but|for|now|please|gesetzt|ge\xe4ndert|und|et|y|e|i|seit)\b)"
)


def _told_spans(gate: Gate, start: int, end: int) -> Iterator[tuple[int, int, bool | None]]:
    """Take a password that a sentence tells; a word only at the end of its clause."""
    text = gate.view.text
    value = _trimmed(text[start:end])
    stop = start + len(value)
    if value.isalpha() and not _ENDS_CLAUSE.match(text, stop):
        return
    yield start, stop, password_checks.told(value)


_SHELL_GOES_ON = re.compile(r"[|;&<>)]")


def _option_spans(gate: Gate, start: int, end: int) -> Iterator[tuple[int, int, bool | None]]:
    """Take an argument of a command line: where it is not quoted, up to what the shell reads."""
    text = gate.view.text
    value = text[start:end]
    if text[start - 1] not in "\"'":
        following = _SHELL_GOES_ON.search(value)
        value = value[: following.start()] if following else value
        value = value.rstrip(".,:")
    if len(value) >= 3:
        yield start, start + len(value), password_checks.option(value)


_REVERSED = re.compile(r"(?:\.[0-9a-f]){0,30}\.(?:in-addr|ip6)\.arpa|\.\d+\.\d|\.\d{1,9}[\"')&]")
_OUTLINE = re.compile(
    r"\b(?i:sections?|versions?|chapters?|releases?|rfc[ -]?\d{1,5})[ ,:]{1,2}"
    r"(?:\d{1,5}(?:\.\d{1,5}){0,5}(?:, | and | or | to ){1,2}){0,4}\Z"
)
"""Numbers of sections and versions before what looks like an address."""


_IS_VERSION = re.compile(
    r"(?i:[a-z]/|[=~><]=\s?|[a-z]-v?|\bv\.?\s?"
    r"|(?:version|release|firmware|build|revision|oid|update|upgrade[ds]?|downgrade[ds]?|fileversion|productversion)"
    r"(?: is| was| number| no\.?)?[\"']?[ :=]{1,3}[\"']?(?:(?:from|to) )?v?(?:\d+(?:\.\d+)+ (?:to|->) )?)\Z"
)
_OF_VERSION = re.compile(
    r"(?i:\.(?:tar|t?gz|zip|whl|exe|deb|rpm|msi|so|dll|jar|dmg|pkg|apk|nupkg|tgz)\b|(?:-(?:alpha|beta|rc|snapshot|release))"
    r"| (?:released|release|is out|(?:is|was) (?:affected|available|vulnerable)|fixes|or (?:later|newer|higher)))"
)
"""What makes four numbers a version."""
_PORT = re.compile(r":\d{2,5}\b")
"""What stands behind an address, and behind no version."""


def _ip_spans(gate: Gate, start: int, end: int) -> Iterator[tuple[int, int, bool | None]]:
    """Take an address unless it is turned round, or an example that a program is shown with."""
    text = gate.view.text
    value = text[start:end]
    if not checks.ip_address(value) or _REVERSED.match(text, end):
        return
    if text[start - 1 : start] == "." and text[start - 2 : start - 1].isdigit():
        return
    if not _PORT.match(text, end) and (
        _IS_VERSION.search(text, max(0, start - 40), start) or _OF_VERSION.match(text, end)
    ):
        return
    if gate.has_sections() and _OUTLINE.search(text, max(0, start - 60), start):
        return
    if not (gate.teaches_addresses() and checks.documentation(value)):
        yield start, end, True


_ADDRESS_BEFORE = re.compile(r"\w{2,12}://[^\s\"']{1,200}\Z")


def _home_spans(gate: Gate, start: int, end: int) -> Iterator[tuple[int, int, bool | None]]:
    """Take an account from the path of its home folder, not from an address on the web."""
    text = gate.view.text
    before = _ADDRESS_BEFORE.search(text, max(0, start - 220), start)
    if before and not before.group().startswith("file:"):
        return
    value = text[start:end].rstrip(".-")
    name = value
    if value[0] in "\n ":  # C:\Users\nina was read as if it had a line's end
        name = gate.view.original[gate.view.span(start, start + 1)[1] - 1] + value[1:]
    yield start, start + len(value), account_rules.person_account(name.strip())


def _told_account_spans(gate: Gate, start: int, end: int) -> Iterator[tuple[int, int, bool | None]]:
    """Take an account behind its label, where it is no argument or variable of a program."""
    text = gate.view.text
    value = text[start:end].rstrip(".-")
    stop = start + len(value)
    if text[start - 1] not in "\"'":
        if _FIRST_ARGUMENT.match(text, stop) and _IN_CALL.search(text, max(0, start - 64), start):
            return
        if text[stop : stop + 1] in ("(", "[", "{", "/", "\\", ":"):
            return
    yield start, stop, account_rules.told_account(value)


def _file_spans(gate: Gate, start: int, end: int) -> Iterator[tuple[int, int, bool | None]]:
    """Take somebody's name within the name of a file."""
    found = in_file_name(gate.view.text[start:end])
    if found is not None:
        yield start + found[0], start + found[1], None


_SPANS = {
    "told_name_file": _file_spans,
    "told_name_folder": _file_spans,
    "account_home": _home_spans,
    "account_windows_home": _home_spans,
    "account_label": _told_account_spans,
    "ipv4": _ip_spans,
    "ipv6": _ip_spans,
    "ipv6_in_full": _ip_spans,
    "assigned_secret": _value_spans,
    "told_secret": _value_spans,
    "labelled_password": _label_spans,
    "wide_password": _label_spans,
    "told_password": _told_spans,
    "password_option": _option_spans,
    **{rule.name: _option_spans for rule in password_rules.PASSWORDS if "command_" in rule.name},
    "card": _card_spans,
    "iban": _iban_spans,
    "private_key": _key_block_spans,
    "putty_key": _key_block_spans,
}
