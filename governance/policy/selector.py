"""Selectors: which traffic a rule is about, by shell-style patterns over known facts."""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from governance.data_classes import DATA_CLASSES
from governance.policy.words import check_glob, check_pattern, check_plain, dialects


def _listed(value: object) -> object:
    """Let one pattern stand for a list of one."""
    for one in value if isinstance(value, list) else (value,):
        if isinstance(one, bool | int | float):
            raise ValueError("YAML reads a number, or yes and no, where a word is meant: quote it")
    return [value] if isinstance(value, str) else value


type _PatternList = Annotated[tuple[str, ...], Field(min_length=1)]
type Patterns = Annotated[
    _PatternList, BeforeValidator(_listed, json_schema_input_type=str | _PatternList)
]
"""One pattern at least: an empty list would read as "nobody" to one and as "everybody" to another."""


def _no_flag(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("YAML reads yes or no where a number is meant; write the number")
    return value


type Number = Annotated[float, BeforeValidator(_no_flag, json_schema_input_type=float)]
type Whole = Annotated[int, BeforeValidator(_no_flag, json_schema_input_type=int)]
type WordOrWhole = Annotated[str | int, BeforeValidator(_no_flag, json_schema_input_type=str | int)]
"""Numbers for which yes and no do not pass as 1 and 0."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What policy may ask about a call; names only, no content."""

    tenant: str = ""
    app: str = ""
    environment: str = ""
    route: str = ""
    dialect: str = ""
    model: str = ""
    upstream: str = ""
    kind: str = ""
    agents: tuple[str, ...] = ()
    """What the calling agent says it is (``x-headrace-agent``, the product of its user agent)."""
    regions: tuple[str, ...] = ()
    """Where the person or the upstream is (``x-headrace-region``, the region in the host's name)."""
    tools: tuple[str, ...] = ()
    """Names of the tools that were called or dispatched."""
    data_classes: tuple[str, ...] = ()
    """Classes of what redaction found; empty until it has run."""


class Spec(BaseModel):
    """Base of everything written in a policy: unknown fields are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class NamedRule(Spec):
    """A rule that reasons and differences name."""

    name: Annotated[str, AfterValidator(check_plain)] = Field(
        min_length=1, description="NamedRule in the reasons of a decision."
    )


def check_names(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse two rules of one name: neither a reason nor a difference could tell them apart."""
    seen: set[str] = set()
    for one in value:
        if one.name in seen:
            raise ValueError(f"two are named {one.name!r}; give each a name of its own")
        seen.add(one.name)
    return value


class Match(Spec):
    """Patterns (``*``, ``?``, ``[…]``) that must all fit; a field left out fits everything."""

    tenant: Patterns = Field(default=(), description="Tenant of the client key.")
    app: Patterns = Field(default=(), description="Application of the client key.")
    environment: Patterns = Field(default=(), description="Environment of the client key.")
    route: Patterns = Field(default=(), description="Name of the gateway's route.")
    provider: Patterns = Field(default=(), description="Upstream, scheme://host:port.")
    agent: Patterns = Field(
        default=(), description="Header x-headrace-agent, or the first product of the user agent."
    )
    region: Patterns = Field(
        default=(),
        description="Header x-headrace-region, or the cloud region in the upstream's host.",
    )
    dialect: Patterns = Field(default=(), description="openai.chat, anthropic.messages, mcp, …")
    model: Patterns = Field(default=(), description="Model that answered, or that was asked for.")
    tool: Patterns = Field(default=(), description="A tool that was called or dispatched.")
    data_class: Patterns = Field(default=(), description="A class of what redaction found.")

    @field_validator("*")
    @classmethod
    def _can_fit(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for pattern in value:
            check_glob(check_plain(pattern))
            if check := _CHECKS.get(info.field_name or ""):
                check(pattern)
        return value

    def fits(self, facts: Facts, *, unknown: Collection[str] = ()) -> bool:
        """Return whether this selector is about a call with these facts.

        Args:
            facts: what is known of the call.
            unknown: fields whose facts nobody knows any more; they fit.
        """
        said = {
            "tenant": (facts.tenant,),
            "app": (facts.app,),
            "environment": (facts.environment,),
            "route": (facts.route,),
            "provider": (facts.upstream,),
            "agent": facts.agents,
            "region": facts.regions,
            "dialect": (facts.dialect,),
            "model": (facts.model,),
            "tool": facts.tools,
            "data_class": facts.data_classes,
        }
        # What is written down decides, not what is left over: a list without patterns fits nothing.
        asked = self.model_fields_set.difference(unknown)
        return all(_any_fits(getattr(self, name), said[name]) for name in asked)


def _says_whom(value: Match) -> Match:
    if not value.model_fields_set:
        raise ValueError(
            "says nothing, so that it would be about everybody: name a tenant, an app or another "
            'fact, or say `tenant: "*"` where everybody is meant'
        )
    return value


type SaidMatch = Annotated[Match, AfterValidator(_says_whom)]
"""A selector that somebody wrote: an empty one is most often a forgotten one."""


def _check_provider(pattern: str) -> None:
    """Refuse what no upstream fits: each is ``scheme://host:port``, or ``stdio://name``."""
    before = re.split(r"[*?[]", pattern, maxsplit=1)[0]
    after = re.split(r"[*?\]]", pattern)[-1]
    begins = any(
        before.startswith(scheme) or (before != pattern and scheme.startswith(before))
        for scheme in _SCHEMES
    )
    ends = not after or after[-1].isdigit() or before.startswith("stdio://")
    path = re.search(r"(?<!/)/(?!/)", pattern)
    if not begins or not ends or path:
        raise ValueError(
            "fits no upstream: one reads https://api.example.com:443, scheme and port included. "
            f"Did you mean *{_host(pattern)}*?"
        )


def _host(pattern: str) -> str:
    """Return what a pattern says of the host."""
    return pattern.partition("://")[2].partition("/")[0].strip("*") or pattern.strip("*")


def _check_region(pattern: str) -> None:
    """Refuse what no region fits: regions are in small letters."""
    if pattern != pattern.lower():
        raise ValueError(
            f"fits no region: regions are in small letters. Did you mean {pattern.lower()}?"
        )
    _check_word(pattern)


def _check_word(pattern: str) -> None:
    """Refuse what no agent and no region fits: they are single words without version."""
    if wrong := re.search(r"[^\w.\-*?\[\]!]", pattern):
        raise ValueError(f"fits nothing: no agent or region has {wrong[0]!r} in its name")


def _check_route(pattern: str) -> None:
    """Refuse what no route's name fits."""
    if wrong := re.search(r"[^a-z0-9_\-*?\[\]!]", pattern):
        raise ValueError(f"fits no route: their names have no {wrong[0]!r}")


def _check_dialect(pattern: str) -> None:
    if not pattern.startswith("import."):
        check_pattern("dialect", pattern, dialects())


def _check_data_class(pattern: str) -> None:
    check_pattern("data class", pattern, DATA_CLASSES)


_SCHEMES = ("http://", "https://", "stdio://")
_CHECKS: dict[str, Callable[[str], None]] = {
    "route": _check_route,
    "provider": _check_provider,
    "agent": _check_word,
    "region": _check_region,
    "dialect": _check_dialect,
    "data_class": _check_data_class,
}
"""What a pattern must be to fit anything, where that is known."""


def _any_fits(patterns: Iterable[str], values: Iterable[str]) -> bool:
    found = tuple(values)
    return any(fnmatchcase(value, pattern) for pattern in patterns for value in found)
