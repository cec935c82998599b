"""The ``spec`` of a Quality policy: what steps and substrates must meet, or they go no further."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from governance.policy.selector import Spec


class Column(StrEnum):
    """What an expectation may ask of a step; no column holds text of a client."""

    STEP_ID = "step_id"
    TENANT_ID = "tenant_id"
    KIND = "kind"
    ROLE_IN_GRAPH = "role_in_graph"
    DIALECT = "dialect"
    KEY_SOURCE = "key_source"
    OUTCOME = "outcome"
    HTTP_STATUS = "http_status"
    STEP_INDEX = "step_index"
    FINISHED = "finished"
    """1 when the answer came to its own end, 0 when it was cut off."""
    CONTEXT_MESSAGES = "context_messages"
    OUTPUT_PARTS = "output_parts"
    """Parts of the answer; 0 for an empty one, null for a step without."""
    OUTPUT_CHARACTERS = "output_characters"
    TOOL_CALLS = "tool_calls"
    INVALID_TOOL_ARGUMENTS = "invalid_tool_arguments"
    UNANSWERED_TOOL_RESULTS = "unanswered_tool_results"
    """Tool results in the conversation whose call is not in it."""
    LEFTOVER_FINDINGS = "leftover_findings"
    """Secrets, mail addresses and cards that a second pass still found after redaction."""
    MISSING_MESSAGES = "missing_messages"
    """Messages of the conversation that would not be in the lake."""
    PARENT_MISSING = "parent_missing"
    """1 when the conversation builds on a step that is not in the lake."""
    COMPLETION_TOKENS = "completion_tokens"
    LOGPROBS = "logprobs"
    HIGHEST_LOGPROB = "highest_logprob"
    TOKEN_CODE = "token_code"  # noqa: S105 (no password)
    """OpenEnv's word for what is wrong with the tokens (`logprob_misalign` …); null when nothing."""
    LATENCY_MS = "latency_ms"
    TIME_REVERSED = "time_reversed"
    """1 when the exchange ended before it began."""


class ItemColumn(StrEnum):
    """What an expectation may ask of an item of a substrate; no column holds text of a client."""

    ITEM_ID = "item_id"
    TENANT_ID = "tenant_id"
    SPLIT = "split"
    KEY_SOURCE = "key_source"
    CAPTURE_LEVEL = "capture_level"
    STEPS = "steps"
    """Steps whose answers are learned."""
    MESSAGES = "messages"
    CHARACTERS = "characters"
    """Of all messages together, as stored."""
    REWARD = "reward"
    REWARDED = "rewarded"
    """1 when the reward reaches the substrate's minimum."""
    MISSING_MESSAGES = "missing_messages"
    """Messages of the item that are not in the lake."""
    MISSING_STEPS = "missing_steps"
    MISSING_HARNESS = "missing_harness"
    """1 when the item names a harness that is not in the lake."""
    ANSWERS_MISPLACED = "answers_misplaced"
    """Learned messages that are not the agent's own."""
    LEFTOVER_FINDINGS = "leftover_findings"
    """Secrets, mail addresses and cards that the second pass finds in the item's messages."""
    TOKEN_STEPS = "token_steps"  # noqa: S105 (no password)
    """Learned steps with tokens."""
    TOKEN_CODE = "token_code"  # noqa: S105 (no password)
    """OpenEnv's word for what is wrong with the tokens of a learned step; null when nothing."""


class _Expectation[C: StrEnum](Spec):
    name: str = Field(min_length=1, description="The reason: `quality:NAME`.")
    where: dict[C, tuple[str | int, ...]] = Field(
        default_factory=dict, description="Only rows whose columns have one of these values."
    )


class NotNull[C: StrEnum](_Expectation[C]):
    """Every row has a value."""

    expectation: Literal["expect_column_values_to_not_be_null"]
    column: C


class Null[C: StrEnum](_Expectation[C]):
    """No row has a value."""

    expectation: Literal["expect_column_values_to_be_null"]
    column: C


class Between[C: StrEnum](_Expectation[C]):
    """Values lie between two bounds, both included; null passes."""

    expectation: Literal["expect_column_values_to_be_between"]
    column: C
    min_value: float | None = None
    max_value: float | None = None


class InSet[C: StrEnum](_Expectation[C]):
    """Values are among those listed; null passes."""

    expectation: Literal["expect_column_values_to_be_in_set"]
    column: C
    value_set: tuple[str | int, ...]


class NotInSet[C: StrEnum](_Expectation[C]):
    """Values are none of those listed; null passes."""

    expectation: Literal["expect_column_values_to_not_be_in_set"]
    column: C
    value_set: tuple[str | int, ...]


class Unique[C: StrEnum](_Expectation[C]):
    """No value comes twice; null passes."""

    expectation: Literal["expect_column_values_to_be_unique"]
    column: C


class PairEqual[C: StrEnum](_Expectation[C]):
    """Two columns agree; a pair with a null passes."""

    expectation: Literal["expect_column_pair_values_to_be_equal"]
    column_A: C  # noqa: N815 (the name that Great Expectations gives it)
    column_B: C  # noqa: N815


type ExpectationOf[C: StrEnum] = (
    NotNull[C] | Null[C] | Between[C] | InSet[C] | NotInSet[C] | Unique[C] | PairEqual[C]
)
type Expectation = Annotated[
    NotNull[Column]
    | Null[Column]
    | Between[Column]
    | InSet[Column]
    | NotInSet[Column]
    | Unique[Column]
    | PairEqual[Column],
    Field(discriminator="expectation"),
]
type ItemExpectation = Annotated[
    NotNull[ItemColumn]
    | Null[ItemColumn]
    | Between[ItemColumn]
    | InSet[ItemColumn]
    | NotInSet[ItemColumn]
    | Unique[ItemColumn]
    | PairEqual[ItemColumn],
    Field(discriminator="expectation"),
]


class DriftColumn(StrEnum):
    """Columns of a step whose drift can be judged."""

    KIND = "kind"
    ROLE_IN_GRAPH = "role_in_graph"
    DIALECT = "dialect"
    KEY_SOURCE = "key_source"
    OUTCOME = "outcome"
    HTTP_STATUS = "http_status"
    FINISHED = "finished"
    STEP_INDEX = "step_index"
    TOOL_CALLS = "tool_calls"
    INVALID_TOOL_ARGUMENTS = "invalid_tool_arguments"
    COMPLETION_TOKENS = "completion_tokens"
    LATENCY_MS = "latency_ms"


class ItemDriftColumn(StrEnum):
    """Columns of an item whose drift can be judged."""

    KEY_SOURCE = "key_source"
    CAPTURE_LEVEL = "capture_level"
    REWARDED = "rewarded"
    STEPS = "steps"
    MESSAGES = "messages"
    CHARACTERS = "characters"
    REWARD = "reward"


class _Drift(Spec):
    most: float = Field(
        default=0.25, gt=0, description="Population stability index from which a column fails."
    )
    reference_days: int = Field(default=14, ge=1, description="Length of the reference window.")


class Drift(_Drift):
    """A batch against the tenant's stored steps of the days before it.

    Fewer than 50 steps on either side give no verdict.
    """

    columns: tuple[DriftColumn, ...] = Field(default=tuple(DriftColumn), min_length=1)


class ItemDrift(_Drift):
    """A substrate's newest days against the days before them; fewer than 50 items give no verdict."""

    columns: tuple[ItemDriftColumn, ...] = Field(default=tuple(ItemDriftColumn), min_length=1)
    days: int = Field(default=1, ge=1, description="Length of the window that is judged.")


class SubstrateQuality(Spec):
    """A substrate that fails any of this is refused: it is not written, and nothing learns from it."""

    expectations: tuple[ItemExpectation, ...] = ()
    drift: ItemDrift | None = Field(default=None, description="Left out: drift is not judged.")


class Leftover(StrEnum):
    """What the second pass can look for, with patterns of its own."""

    API_KEY = "API_KEY"
    CONNECTION_STRING = "CONNECTION_STRING"
    CREDIT_CARD = "CREDIT_CARD"
    EMAIL_ADDRESS = "EMAIL_ADDRESS"
    JWT = "JWT"
    PRIVATE_KEY = "PRIVATE_KEY"


class Leftovers(Spec):
    """The second pass over what redaction gave."""

    entities: tuple[Leftover, ...] = Field(
        default=tuple(Leftover),
        description="Entity types that may not be found in redacted output.",
    )


class QualitySpec(Spec):
    """A step that fails any expectation goes to quarantine; the rest of its batch goes on."""

    gate: Literal["great_expectations", "rows"] = Field(
        default="great_expectations",
        description=(
            "`great_expectations` runs the suite as a named, reportable gate over each batch; "
            "`rows` checks the same expectations step by step without it."
        ),
    )
    leftovers: Leftovers = Leftovers()
    expectations: tuple[Expectation, ...] = ()
    drift: Drift | None = Field(
        default=None,
        description=(
            "A batch that drifts is quarantined, tenant by tenant, as `quality:drift:COLUMN`. "
            "Left out: drift is reported only."
        ),
    )
    substrate: SubstrateQuality = SubstrateQuality()
