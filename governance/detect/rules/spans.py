"""Which part of a match is the value, for patterns that match more than it or several at once."""

import re
from collections.abc import Iterator, Mapping

from governance.detect.gate import Gate
from governance.detect.names.file_names import in_file_name
from governance.detect.rules import account_checks, checks, password_checks
from governance.detect.rules.rule import Spans

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


_IBAN_BEGINS = re.compile(r"(?<![^\W_])[A-Za-z]{2}\d{2}")


def _iban_spans(gate: Gate, start: int, end: int) -> Iterator[tuple[int, int, bool | None]]:
    """Find the numbers in a run of letters and digits: a word between two of them may belong to it too."""
    text = gate.view.text
    while start < end:
        stop = checks.iban_end(text[start:end])
        if stop is not None:
            yield start, start + stop, True
        following = _IBAN_BEGINS.search(text, start + (stop or 1), end)
        start = following.start() if following else end


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
    yield start, start + len(value), account_checks.person_account(name.strip())


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
    yield start, stop, account_checks.told_account(value)


def _file_spans(gate: Gate, start: int, end: int) -> Iterator[tuple[int, int, bool | None]]:
    """Take somebody's name within the name of a file."""
    found = in_file_name(gate.view.text[start:end])
    if found is not None:
        yield start + found[0], start + found[1], None


SPANS: Mapping[str, Spans] = {
    "account_of_a_folder": _home_spans,
    "account_of_a_label": _told_account_spans,
    "card": _card_spans,
    "iban": _iban_spans,
    "ip_address": _ip_spans,
    "name_of_a_file": _file_spans,
    "password_of_a_label": _label_spans,
    "password_of_a_sentence": _told_spans,
    "password_of_an_option": _option_spans,
    "private_key": _key_block_spans,
    "secret_value": _value_spans,
}
"""The named checks of a rule in YAML that also say which part of a match is the value."""
