"""The shop: its two price lists never agree, and its rule treats accounts evenly."""

from collections import Counter

import pytest

from examples.practice.shop import (
    EARLIER_RULE,
    HOUSE_RULE,
    LARGEST_QUANTITY,
    PRICES,
    money,
    total_cents,
)


def test_the_lists_never_agree() -> None:
    for item in PRICES:
        for quantity in range(1, LARGEST_QUANTITY + 1):
            retail = total_cents(item, quantity, "retail")
            assert retail != total_cents(item, quantity, "trade")


def test_both_lists_are_used_alike_and_earlier_accounts_are_others() -> None:
    assert set(Counter(HOUSE_RULE.values()).values()) == {3}
    assert set(Counter(EARLIER_RULE.values()).values()) == {30}
    assert not set(HOUSE_RULE) & set(EARLIER_RULE)


def test_money_and_refusals() -> None:
    assert money(total_cents("mugs", 7, "trade")) == "44.80"
    assert money(5) == "0.05"
    with pytest.raises(KeyError):
        total_cents("rockets", 1, "trade")
    with pytest.raises(ValueError, match="unknown price list 'gold'"):
        total_cents("mugs", 1, "gold")
    with pytest.raises(ValueError, match="at least 1"):
        total_cents("mugs", 0, "trade")
