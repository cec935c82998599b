"""Webhooks: who sends them, how they are proved, and which feedback their events become."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from proxy.config.routes import ConfigModel, SecretSource
from trajectory.errors import ConfigurationError

_ENVELOPES = {
    "slack": {
        "token", "team_id", "enterprise_id", "context_team_id", "context_enterprise_id", "api_app_id",
        "event", "type", "event_id", "event_time", "event_context", "authorizations", "authed_users",
        "authed_teams", "is_ext_shared_channel", "challenge",
    },
    "zendesk": {
        "account_id", "detail", "event", "id", "subject", "time", "type", "zendesk_event_version",
    },
}  # fmt: skip
"""The outermost fields of an event, of the senders that put every event into one envelope."""
_SIGNALS = (
    "success", "reward", "correction", "abandoned", "security", "retry", "truncated", "tool_error",
    "test_run", "repeated_question", "edited_output",
)  # fmt: skip
"""Names that views and detectors know; others are free."""

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

    def problems(self, sender: str) -> Iterator[tuple[str, str]]:
        """Yield what cannot be, as field and text: fields that no event has, a name that is misspelt."""
        known = _ENVELOPES.get(sender)
        for name, one in self.expressions.items():
            if known is None or (self.each and name not in ("when", "each")):
                continue  # its events have no common fields, or it looks at an element
            for field in sorted(_outermost(one.parsed) - known):
                valid = ", ".join(sorted(known))
                yield name, f"no event of {sender} has the field {field!r}. Valid: {valid}"
        near = get_close_matches(self.name, _SIGNALS, 1, 0.8)
        if near and self.name not in _SIGNALS:
            yield (
                "name",
                f"signal {self.name!r} is known to nothing here; did you mean {near[0]!r}?",
            )

    @cached_property
    def expressions(self) -> dict[str, Any]:
        """Return the expressions that are given, ready to search, by field."""
        names = ("when", "each", "id", "value", "label", "rationale", "observed_at")
        return {name: _compiled(text) for name in names if (text := getattr(self, name))}


_ELSEWHERE = {
    "subexpression": 1, "index_expression": 1, "projection": 1, "value_projection": 1,
    "filter_projection": 1, "pipe": 1, "flatten": 1, "expref": 0,
}  # fmt: skip
"""Expressions of which only so many first parts look at the event itself."""


def _outermost(node: Any) -> set[str]:
    """Return the fields of the event itself that a parsed expression reads."""
    if node["type"] == "field":
        return {node["value"]}
    parts = node["children"][: _ELSEWHERE.get(node["type"])]
    return {field for part in parts if isinstance(part, dict) for field in _outermost(part)}


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

    def problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield what is wrong though it can be read, as place within the webhook and text."""
        for number, rule in enumerate(self.rules):
            for field, text in rule.problems(self.sender):
                yield ("rules", number, field), text
        try:
            self.secret.secret()
        except ConfigurationError as error:
            yield ("secret",), str(error)
