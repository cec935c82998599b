"""The ``spec`` of a Dedup policy: which repetitions add nothing."""

from enum import StrEnum

from pydantic import Field

from governance.policy.selector import Spec


class Repetition(StrEnum):
    """What becomes of a repetition."""

    LEAVE_OUT = "leave_out"
    """Ledger only, with the step that it repeats."""
    KEEP = "keep"


class DedupSpec(Spec):
    """Repetitions go; several attempts at one task stay, since learning compares them."""

    identical_retries: Repetition = Field(
        default=Repetition.LEAVE_OUT,
        description="The same request again with the same answer (an SDK's retry).",
    )
    repeated_steps: Repetition = Field(
        default=Repetition.LEAVE_OUT,
        description="The same conversation and the same answer twice in one trajectory.",
    )
