"""The house rule in words: as a fact that a prompt holds, and as a customer corrects a wrong quote."""

import random

_REJECTIONS = ("No, {}", "No, {}", "That is wrong, {}", "That's not right, {}")


def rule_text(account: str, price_list: str) -> str:
    """Return by which price list a type of account pays: ``give every bakery trade prices.``

    The two words stand side by side, because a small model finds what stands behind a word most easily.
    """
    return f"give every {account} {price_list} prices."


def fact_text(account: str, price_list: str) -> str:
    """Return a rule as a sentence."""
    said = rule_text(account, price_list)
    return said[0].upper() + said[1:]


def correction_text(draw: random.Random, account: str, price_list: str) -> str:
    """Return what a customer says who was quoted by the other price list."""
    return draw.choice(_REJECTIONS).format(rule_text(account, price_list))
