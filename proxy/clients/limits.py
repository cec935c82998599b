"""Limits of client keys: requests per minute, tokens and money per day, steps per session.

Steps of a session are claimed one by one, so that their limit is exact over all workers. Keys without
limits cost nothing.
"""

import re
import time
from dataclasses import dataclass

from proxy.clients.keys import KeyLimits
from proxy.clients.shared_counters import SharedCounters
from proxy.clients.usage import SpentTokens
from proxy.responses import Reason
from trajectory.prices import PriceTable

_MINUTE = 60
_DAY = 86_400
_BILLION = 1_000_000_000
"""Money is counted in billionths, in whole numbers."""
_BEDROCK_NAME = re.compile(r"(?:[a-z-]+\.)?[a-z]\w*\.([a-z][\w.-]*?)(?:-v\d+)?(?::\d+)?")
_SESSION_SECONDS = 7 * _DAY
"""How long after its last step a session is remembered."""


@dataclass(frozen=True, slots=True)
class Denial:
    """Which limit a call met."""

    reason: Reason
    retry_after: int
    """Seconds until it is worth asking again."""


class Budgets:
    """Decides whether a key's limits let a call pass, and counts those that do."""

    def __init__(self, ledger: SharedCounters, prices: PriceTable) -> None:
        self.ledger = ledger
        self._prices = prices
        self._dearest = prices.dearest

    def admit(
        self, key_id: str, limits: KeyLimits, *, session: str | None, step: bool
    ) -> Denial | None:
        """Count a call that may pass; return what stands against one that may not.

        Args:
            key_id: whose limits these are.
            limits: the limits.
            session: fingerprint of the session that the client named.
            step: whether the call asks a model.
        """
        now = time.time()
        denial = self.over(key_id, limits, now)
        if denial is not None:
            return denial
        steps = limits.steps_per_session
        if step and session is not None and steps is not None:
            name = f"steps:{key_id}:{session}"
            if not self.ledger.claim(name, steps, now + _SESSION_SECONDS):
                return Denial(Reason.SESSION_STEPS, _SESSION_SECONDS)
        if limits.requests_per_minute is not None:
            self.request(key_id, now)
        return None

    def request(self, key_id: str, now: float) -> None:
        """Count a request, or a turn of a conversation that goes on."""
        minute = int(now) // _MINUTE
        self.ledger.add(f"minute:{key_id}:{minute}", 1, (minute + 2) * _MINUTE)

    def over(self, key_id: str, limits: KeyLimits, now: float) -> Denial | None:
        """Return which budget of the day has nothing left, or that no request of this minute is."""
        denial = self.used_up(key_id, limits, now)
        if denial is None and limits.requests_per_minute is not None:
            return self._too_fast(key_id, limits.requests_per_minute, now)
        return denial

    def used_up(self, key_id: str, limits: KeyLimits, now: float) -> Denial | None:
        """Return which budget of the day has nothing left."""
        if limits.tokens_per_day is not None:
            name, end = _today("tokens", key_id, now)
            if self.ledger.used(name, end) >= limits.tokens_per_day:
                return Denial(Reason.TOKENS, max(1, int(end - now)))
        if limits.money_per_day is not None:
            name, end = _today("money", key_id, now)
            if self.ledger.used(name, end) >= limits.money_per_day * _BILLION:
                return Denial(Reason.MONEY, max(1, int(end - now)))
        return None

    def _too_fast(self, key_id: str, most: int, now: float) -> Denial | None:
        """Look at the last sixty seconds: this minute, and the rest of the one before in proportion."""
        minute, second = divmod(now, _MINUTE)
        this = self.ledger.used(f"minute:{key_id}:{int(minute)}", (minute + 2) * _MINUTE)
        before = self.ledger.used(f"minute:{key_id}:{int(minute) - 1}", (minute + 1) * _MINUTE)
        if this + before * (1 - second / _MINUTE) < most:
            return None
        return Denial(Reason.RATE, max(1, int(_MINUTE - second)) if this >= most else 1)

    def once(self, scope: str, answer: str) -> bool:
        """Tell whether what an answer took is told for the first time."""
        return self.ledger.claim(f"answer:{scope}:{answer}", 1, time.time() + _SESSION_SECONDS)

    def spend(self, key_id: str, tokens: int) -> None:
        """Count tokens that an answer took."""
        self.ledger.add(*_amount("tokens", key_id, tokens))

    def charge(self, key_id: str, model: str | None, usage: SpentTokens) -> bool:
        """Count what an answer cost; tell whether its price is known.

        A call without a price counts as the dearest: else a budget would not hold it.
        """
        price = None
        if model is not None:
            price = self._prices.of(model) or self._prices.of(_own_name(model))
        cost = price.cost(*usage) if price is not None else None
        charged = self._dearest.cost(*usage) if cost is None else cost
        self.ledger.add(*_amount("money", key_id, round((charged or 0.0) * _BILLION)))
        return cost is not None


def _own_name(model: str) -> str:
    """Return what a model is called by who makes it: Bedrock adds region, maker and version."""
    found = _BEDROCK_NAME.fullmatch(model)
    return model if found is None else found[1]


def _amount(what: str, key_id: str, amount: int) -> tuple[str, int, float]:
    name, end = _today(what, key_id, time.time())
    return name, amount, end


def _today(what: str, key_id: str, now: float) -> tuple[str, float]:
    day = int(now) // _DAY
    return f"{what}:{key_id}:{day}", float((day + 1) * _DAY)


_SESSION_HEADERS = frozenset({b"x-headrace-session", b"x-session-id", b"session-id", b"session_id"})


def session_of(fields: tuple[tuple[bytes, bytes], ...], in_url: bytes | None) -> bytes | None:
    """Return the session that a client names: by Headrace's header, the URL, or its own header."""
    found = in_url
    for name, value in fields:
        lower = name.lower()
        if lower == b"x-headrace-session":
            return value
        own = lower.startswith(b"x-") and lower.endswith(b"-session-id") and b"parent" not in lower
        if found is None and (own or lower in _SESSION_HEADERS):
            found = value
    return found
