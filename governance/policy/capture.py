"""The ``spec`` of a Capture policy: how much of an exchange may be kept at all."""

from enum import StrEnum

from pydantic import Field

from governance.policy.selector import Facts, Match, Spec


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


class CaptureRule(Spec):
    """An exception for some traffic."""

    name: str = Field(min_length=1, description="Named in the reasons of a decision.")
    match: Match = Match()
    level: CaptureLevel = CaptureLevel.CONTENT
    without: tuple[CaptureField, ...] = ()


class CaptureSpec(Spec):
    """How much is kept; rules can only take away."""

    level: CaptureLevel = CaptureLevel.CONTENT
    without: tuple[CaptureField, ...] = ()
    failed_attempts: FailedAttempts = FailedAttempts.STEP
    rules: tuple[CaptureRule, ...] = ()

    def matching(self, facts: Facts) -> tuple[CaptureRule, ...]:
        """Return the rules that are about a call with these facts."""
        return tuple(rule for rule in self.rules if rule.match.fits(facts))
