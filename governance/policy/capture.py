"""The ``spec`` of a Capture policy: how much of an exchange may be kept at all."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, model_validator

from governance.policy.selector import (
    Facts,
    Match,
    NamedRule,
    SaidMatch,
    Spec,
    check_names,
)


class CaptureLevel(StrEnum):
    """How much may be kept, loosest first; of several matching rules the strictest wins."""

    CONTENT = "content"
    """Redacted content and metadata."""
    METADATA = "metadata"
    """One line in the ledger, no content."""


class CaptureField(StrEnum):
    """A part of a call that a policy can leave out although the rest is kept."""

    REASONING = "reasoning"
    TOKENS = "tokens"
    TOOLS = "tools"
    """Tool definitions and system prompt as a harness (the conversation keeps its own messages)."""
    SAMPLING = "sampling"
    ERROR = "error"
    RESPONSE_ID = "response_id"
    EXT = "ext"
    """Fields that the dialect does not know."""
    RATIONALE = "rationale"
    """Free text of feedback."""


class FailedAttempts(StrEnum):
    """What becomes of a call that failed without any usable output (HTTP 500, a broken stream)."""

    STEP = "step"
    """Stored as a step whose role is ``discarded``: retries can be studied."""
    METADATA = "metadata"
    """Ledger only."""


class CaptureRule(NamedRule):
    """An exception for some traffic."""

    match: SaidMatch = Match()
    level: CaptureLevel = CaptureLevel.CONTENT
    without: tuple[CaptureField, ...] = ()

    @model_validator(mode="after")
    def _takes_away(self) -> Self:
        if self.level is CaptureLevel.CONTENT and not self.without:
            raise ValueError("takes nothing away: say level: metadata, or what to keep it without")
        return self


class CaptureSpec(Spec):
    """How much is kept; rules can only take away."""

    level: CaptureLevel = CaptureLevel.CONTENT
    without: tuple[CaptureField, ...] = ()
    failed_attempts: FailedAttempts = FailedAttempts.STEP
    rules: Annotated[tuple[CaptureRule, ...], AfterValidator(check_names)] = ()

    def matching(self, facts: Facts) -> tuple[CaptureRule, ...]:
        """Return the rules that are about a call with these facts."""
        return tuple(rule for rule in self.rules if rule.match.fits(facts))
