"""Webhooks: who sends them, how they are proved, and which feedback their events become."""

import re
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from proxy.config.routes import ConfigModel, SecretSource

type Target = Literal["session", "trajectory", "response", "step", "group"]


def _compiled(text: str) -> Any:
    """Return a JMESPath expression, ready to search.

    Raises:
        ValueError: it is none; the text says where.
    """
    # Not at import: every command reads the settings, and few installations have webhooks.
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        return jmespath.compile(text)
    except JMESPathError as error:
        raise ValueError(f"not a JMESPath expression: {' '.join(str(error).split())}") from None


class WebhookRule(ConfigModel):
    """What one kind of event says; each expression is JMESPath over the event's JSON."""

    when: str
    """Expression: the rule is for the events for which it is true."""
    each: str = ""
    """Expression: a list of which each element is an event of its own, like ``commits``; ``when`` still
    looks at the whole, all others at the element."""
    target: Target = "session"
    """What the feedback is about."""
    id: str
    """Expression: the text that names it."""
    match: str = ""
    """Regular expression that takes the name out of that text: its first group."""
    name: str = Field(min_length=1, max_length=200)
    """Name of the signal."""
    value: str = ""
    """Expression: a number, true or false, or a word that ``values`` knows."""
    values: dict[str, float] = Field(default_factory=dict)
    """Number by word; an event with another word says nothing."""
    label: str = ""
    """Expression: a word instead of a number, or beside it."""
    rationale: str = ""
    """Expression: a text, redacted as comments are."""
    observed_at: str = ""
    """Expression: an ISO 8601 time, or seconds since 1970; without it the time of arrival."""
    source_kind: Literal["env", "verifier", "human_explicit", "human_implicit", "judge", "rule"] = (
        "env"
    )
    """Who judged."""

    @field_validator("when", "each", "id", "value", "label", "rationale", "observed_at")
    @classmethod
    def _sound_expression(cls, value: str) -> str:
        if value:
            _compiled(value)
        return value

    @field_validator("match")
    @classmethod
    def _sound_pattern(cls, value: str) -> str:
        try:
            groups = re.compile(value).groups
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        if value and groups != 1:
            raise ValueError("match needs exactly one group: the name is what it holds")
        return value

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.when and self.id):
            raise ValueError("a rule needs when and id")
        if not (self.value or self.label or self.rationale):
            raise ValueError("a rule needs one of: value, label, rationale")
        if self.values and not self.value:
            raise ValueError("values belong to value: it says the word that they are looked up by")
        return self

    @cached_property
    def expressions(self) -> dict[str, Any]:
        """Return the expressions that are given, ready to search, by field."""
        names = ("when", "each", "id", "value", "label", "rationale", "observed_at")
        return {name: _compiled(text) for name in names if (text := getattr(self, name))}


class Webhook(ConfigModel):
    """One sender of events, at ``/headrace/v1/webhooks/<name>``."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    """Name in its address and in metrics."""
    sender: Literal["github", "gitlab", "zendesk", "slack", "standard"]
    """By whose scheme a request is proved; ``standard`` is that of Standard Webhooks."""
    secret: SecretSource
    """What the sender signs with, or GitLab's token; never written into settings."""
    client_key: str = Field(pattern=r"^[0-9a-f]{12}$")
    """Id of the client key for whose tenant and app the feedback counts (``headrace keys list``)."""
    rules: tuple[WebhookRule, ...] = Field(min_length=1, max_length=100)
    """What its events say. All rules that fit count; an event that none fits has no effect."""
