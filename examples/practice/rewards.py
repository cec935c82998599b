"""The practice floor's reward function for live training: scores an episode as the verifier would.

It reads the order from the customer's own words (redacted or not: an order is no personal data) and
knows the shop's prices and house rule; what the recorded agent answered it never sees.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from examples.practice.shop import HOUSE_RULE, PRICES, total_cents
from examples.practice.verifier import amounts, decided

_ACCOUNTS = "|".join(map(re.escape, HOUSE_RULE))
_ITEMS = "|".join(sorted(map(re.escape, PRICES), key=len, reverse=True))
_ACCOUNT = re.compile(rf"\bAccount type ({_ACCOUNTS})\b|\b({_ACCOUNTS}) account\b")
_ORDER = re.compile(rf"\b(\d+) ({_ITEMS})\b")


def success(
    prompt: Sequence[Mapping[str, Any]], completion: Sequence[Mapping[str, Any]]
) -> float | None:
    """Return 1 when the episode's last words state the right total and no other amount, else 0.

    None when the prompt holds no order that can be read.
    """
    wanted = _ordered(prompt)
    if wanted is None:
        return None
    account, item, quantity = wanted
    right = total_cents(item, quantity, HOUSE_RULE[account])
    return float(amounts(_last_words(completion)) - {quantity * 100} == {right})


def decision(
    prompt: Sequence[Mapping[str, Any]], completion: Sequence[Mapping[str, Any]]
) -> float | None:
    """Return 1 when a desk without tools gives the trade price to whom the house rule gives it, else 0.

    None when the prompt holds no order that can be read.
    """
    wanted = _ordered(prompt)
    if wanted is None:
        return None
    return float(decided(_last_words(completion)) == (HOUSE_RULE[wanted[0]] == "trade"))


def _ordered(prompt: Sequence[Mapping[str, Any]]) -> tuple[str, str, int] | None:
    return order("\n".join(str(m["content"]) for m in prompt if m["role"] == "user"))


def _last_words(completion: Sequence[Mapping[str, Any]]) -> str:
    last = completion[-1] if completion else {}
    return str(last.get("content") or "") if last.get("role") == "assistant" else ""


def order(text: str) -> tuple[str, str, int] | None:
    """Return account, item and quantity as a customer's text orders them."""
    account, wanted = _ACCOUNT.search(text), _ORDER.search(text)
    if account is None or wanted is None:
        return None
    return account[1] or account[2], wanted[2], int(wanted[1])
