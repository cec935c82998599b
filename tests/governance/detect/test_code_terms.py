"""Names that are words, terms, months or identifiers, and addresses that are numbers of sections."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from governance.detect import code_terms as in_code
from governance.detect.code_terms import ProgramSigns, is_plain_word, is_term
from governance.detect.names import rules as names
from tests.governance.redaction_support import SCOPE, made

RULES = made(names={"model": None})


def clean(text: str) -> str:
    return RULES.redact_text(text, scope=SCOPE).text


@pytest.mark.parametrize(
    "text",
    [
        "def total(Emin):\n    return self.Emin",
        "Based on code from Mark Dickinson.\n# Mark the node as done",
        "Based on code from Jan Kowalski.\n-rw-r--r-- 1 root 12 Jan  3  1994 x",
    ],
)
def test_the_word_beside_the_name_stays(text: str) -> None:
    last = text.rsplit("\n", 1)[-1]
    assert clean(text).endswith(last)


def test_the_person_goes_wherever_the_name_is_used_as_a_name() -> None:
    done = clean("My name is Mark Dickinson.\nThen Mark came. I asked Mark twice.")
    assert "Mark" not in done
    assert "Dickinson" not in done


def test_terms_and_plain_words() -> None:
    assert is_term("Taylor series", 6)
    assert not is_term("Taylor smiled", 6)
    assert is_plain_word("Mark the node", 0, 4)
    assert not is_plain_word("Mark said so", 0, 4)
    assert ProgramSigns("x = Zed()").around(4, 7)
    assert not ProgramSigns("we met Zed there").around(7, 10)


@pytest.mark.parametrize("text", ["10.0.0.1 and 10.7.0.2", "from 10.0.0.1, 10.7.0.2 and 10.9.0.4"])
def test_every_address_of_an_enumeration_is_found(text: str) -> None:
    assert "10." not in clean(text)


@pytest.mark.parametrize(
    "text",
    [
        "See sections 2.5.5.2 and 2.5.5.3.",
        "OID '1.3.6.1.5.5.7.3.1'",
        "locale sd_IN@devanagari.UTF-8",
        "``@dataclasses.dataclass`` marks it",
        "ip_address('192.0.2.1') gives IPv4Address('192.0.2.1')",
        "groups of 30 to 40 years old",
    ],
)
def test_what_only_looks_like_it_stays(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize("text", ["write to jo@corp.com-", "jo@corp.com-1234", "x@host.internal"])
def test_mailboxes_are_found_beside_dashes(text: str) -> None:
    assert "@" not in clean(text)


_PIECES = st.sampled_from(
    ["a", "Zo", "(", ")", "=", "<", ">", "!", "-", ":", "{", "}", "[", "]", ".", "%", " ", "\n", "self.",
     "def ", "class ", "return", "x1", "_", "\u00e9"]
)  # fmt: skip


@settings(max_examples=500)
@given(st.lists(_PIECES, max_size=7).map("".join))
def test_the_quick_look_misses_no_sign_of_a_program(text: str) -> None:
    if any(sign.search(text) for sign in (in_code._SIGNS, in_code._IDENTIFIER, names.IN_CODE)):
        assert ProgramSigns(text).may_be()
