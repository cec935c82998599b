"""The ``spec`` of a Dedup policy: which repetitions add nothing."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from governance.policy.selector import Number, Spec, Whole


class Repetition(StrEnum):
    """What becomes of a repetition."""

    LEAVE_OUT = "leave_out"
    """Ledger only, with the step that it repeats."""
    KEEP = "keep"


class NearDuplicates(Spec):
    """Steps that say almost the same as a better one: almost the same conversation and answer."""

    threshold: Number = Field(
        default=0.8,
        ge=0.5,
        le=1,
        description=(
            "Least Jaccard similarity of shingles, of the conversation and of the answer. "
            "Conversations may differ by some letters, and beyond them by as much as answers share."
        ),
    )
    shingle: Whole = Field(
        default=8, ge=4, le=16, description="Bytes of normalised text in one shingle."
    )
    scope: Literal["tenant", "app"] = Field(
        default="tenant", description="Within which steps are compared; never across tenants."
    )
    keep: Literal["earliest", "latest", "longest"] = Field(
        default="earliest",
        description=(
            "The representative that stays; of equally long ones the earlier. One that is already "
            "stored and not the best any more stays as a row and is no longer eligible."
        ),
    )


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
    near_duplicates: NearDuplicates | None = Field(
        default=None,
        description=(
            "Which steps of other trajectories say almost the same as a better one, and go; "
            "attempts at one task (one group) all stay. Left out: near-duplicates are kept."
        ),
    )
