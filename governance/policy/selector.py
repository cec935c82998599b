"""Selectors: which traffic a rule is about, by shell-style patterns over known facts."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from governance.data_classes import DATA_CLASSES


def _listed(value: object) -> object:
    """Let one pattern stand for a list of one."""
    return [value] if isinstance(value, str) else value


type _PatternList = Annotated[tuple[str, ...], Field(min_length=1)]
type Patterns = Annotated[
    _PatternList, BeforeValidator(_listed, json_schema_input_type=str | _PatternList)
]
"""One pattern at least: an empty list would read as "nobody" to one and as "everybody" to another."""


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

    model_config = ConfigDict(extra="forbid", frozen=True)


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

    @field_validator("data_class")
    @classmethod
    def _classes_exist(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            if not any(fnmatchcase(name, pattern) for name in DATA_CLASSES):
                raise ValueError(f"unknown data class. Valid: {', '.join(DATA_CLASSES)}")
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


def _any_fits(patterns: Iterable[str], values: Iterable[str]) -> bool:
    found = tuple(values)
    return any(fnmatchcase(value, pattern) for pattern in patterns for value in found)
