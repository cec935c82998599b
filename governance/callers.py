"""Which agent called and in which region, from what a request says of itself and its upstream."""

import re
from collections.abc import Iterable
from functools import lru_cache

from trajectory.exchange import Headers

_PRODUCT = re.compile(r"\s*([A-Za-z][\w.\-]{1,60})(?:/|\s|$)")
_WORD = re.compile(r"[A-Za-z0-9][\w.\-]{0,60}\Z")
_REGION = re.compile(
    r"(?<![a-z0-9])((?:us|eu|ap|sa|ca|me|af|il|mx|asia|europe|northamerica|southamerica|australia|africa)"
    r"-(?:gov-)?[a-z]{2,14}-?\d{1,2}"
    r"|(?:west|north|east|south|central)(?:europe|us\d?|india|asia)|(?:uk|france|germany|sweden|norway|"
    r"switzerland|japan|brazil|canada|australia)(?:west|north|east|south|central|southeast)(?:central)?"
    r"|eu|us)(?=[.\-:/]|$)"
)


def agents_of(headers: Headers) -> tuple[str, ...]:
    """Return ``x-headrace-agent`` and the product that the user agent names first."""
    found = [value for name, value in headers if name == "x-headrace-agent"]
    return _agents(tuple(found), tuple(value for name, value in headers if name == "user-agent"))


def regions_of(headers: Headers, upstream: str) -> tuple[str, ...]:
    """Return ``x-headrace-region`` and the cloud region that the upstream's host names."""
    found = tuple(value for name, value in headers if name == "x-headrace-region")
    return _regions(found, upstream)


@lru_cache(maxsize=1024)
def _agents(said: tuple[str, ...], user_agents: tuple[str, ...]) -> tuple[str, ...]:
    products = [_PRODUCT.match(value) for value in user_agents]
    return _words([*said, *(product[1] for product in products if product is not None)])


@lru_cache(maxsize=1024)
def _regions(said: tuple[str, ...], upstream: str) -> tuple[str, ...]:
    return _words([*map(str.lower, said), *_REGION.findall(upstream.lower())])


def _words(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value.strip() for value in values if _WORD.match(value.strip())))
