"""The second pass: finds what has a shape, stays quiet on what only looks alike."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.policy.quality import Leftover
from governance.quality import leftovers
from governance.quality.leftovers import LeftoverCheck

CHECK = LeftoverCheck(tuple(Leftover), allow=["Help@Shop.com"])


@pytest.mark.parametrize(
    "text",
    [
        "write to jo.doe+x@corp-mail.co.uk now",
        '{"card": 4111111111111111}',
        "4111 1111 1111 1111",
        "5500-0000-0000-0004",
        "sk-proj-abcdEFGH1234567890",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijkl",
        "-----BEGIN RSA PRIVATE KEY-----",
        "postgres://admin:hunter2@db/prod",
    ],
)
def test_finds(text: str) -> None:
    assert CHECK.count(text) == 1


@pytest.mark.parametrize(
    "text",
    [
        "<EMAIL_ADDRESS_3f9a1c> and <CREDIT_CARD_9c1f0a>",
        "ask help@shop.com",
        "user_ab@mail.invalid",
        "4111 1111 1111 1112",
        "1763693691123 and 1732180800",
        "0.4111111111111111",
        "id-4111111111111111-x",
        "order 4111111111111111-b",
        "https://example.com/a:b",
        "@decorator and a @ b",
        "task-sk-1 desk-lamp",
    ],
)
def test_stays_quiet(text: str) -> None:
    assert CHECK.count(text) == 0


def test_looks_only_for_what_policy_names() -> None:
    assert LeftoverCheck([Leftover.JWT]).count("jo@corp.com") == 0


@pytest.mark.parametrize(
    "text",
    ["a." * 40_000, "@" * 80_000, "4 " * 40_000, "a@" * 40_000, "eyJ" * 30_000, "://a:" * 16_000],
)
def test_hostile_text_costs_little(text: str) -> None:
    before = time.process_time()
    CHECK.count(text)
    assert time.process_time() - before < 3  # takes hundredths; what is not linear takes longer


def test_a_card_after_a_letter_or_a_point_is_no_card() -> None:
    check = LeftoverCheck([Leftover.CREDIT_CARD])
    assert check.count("4111 1111 1111 1111") == 1
    assert check.count("(4111111111111111)") == 1
    assert check.count("0.4111111111111111") == 0
    assert check.count("x4111111111111111") == 0


@pytest.mark.parametrize("pattern", list(Leftover))
def test_no_pattern_reaches_over_the_end_of_a_line(pattern: Leftover) -> None:
    lines = [
        "a@",
        "b.com",
        "postgres://u:",
        "p@h",
        "-----BEGIN",
        "PRIVATE KEY",
        "4111 1111",
        "1111 1111",
    ]
    check = LeftoverCheck([pattern])
    assert check.count("\n".join(lines)) == sum(map(check.count, lines))


PIECES = (
    "4", "11", "4111111111111111", "4111 1111-1111 1111", "-", "_", " ", "sk-", "proj", "AKIA", "ASIA",
    "IOSFODNN7EXAMPLE", "ghp_", "gho_", "github_pat_", "xoxb-", "AIza", "hf_", "glpat-", "sk_live_",
    "hr_abcdef0_", "a" * 20, "Ab0" * 11, "jo@corp.com", "@", "postgres://a:b", "://", "eyJhbGciOiJI",
    ".eyJzdWIiOiIx", ".abcdefghij", "-----BEGIN ", "RSA PRIVATE KEY", "\n", "é", "\ud800", "x",
)  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_a_text_that_is_passed_over_holds_nothing(text: str) -> None:
    for entity, pattern in leftovers._PATTERNS.items():
        if pattern.search(text):
            assert leftovers._POSSIBLE[entity](text)
