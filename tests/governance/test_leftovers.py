"""The second pass: finds what has a shape, stays quiet on what only looks alike."""

import time

import pytest

from governance.policy.quality import Leftover
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
