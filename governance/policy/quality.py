"""The ``spec`` of a Quality policy: what steps and substrates must meet, or they go no further."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from governance.policy import words
from governance.policy.selector import NamedRule, Number, Spec, Whole, WordOrWhole, check_names


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


TEXT_COLUMNS = frozenset(
    {
        *("step_id", "tenant_id", "kind", "role_in_graph", "dialect", "key_source", "outcome"),
        *("token_code", "item_id", "split", "capture_level"),
    }
)
"""Columns of words; all others are numbers."""
_FLAGS = frozenset({"finished", "parent_missing", "time_reversed", "rewarded", "missing_harness"})
"""Numbers that are 0 or 1."""
_BELOW_ZERO = frozenset({"highest_logprob", "latency_ms", "reward"})
"""Numbers that may be below 0; all others count something."""


def _vocabulary(column: str) -> tuple[str, ...] | None:
    """Return the words that a column can hold; None where they are not known beforehand."""
    match column:
        case "kind":
            return words.KINDS
        case "role_in_graph":
            return words.ROLES
        case "outcome":
            return words.outcomes()
        case "token_code":
            return words.TOKEN_CODES
        case "split":
            return words.SPLITS
        case "capture_level":
            return words.CAPTURE_LEVELS
        case _:
            return None


def _check_value(column: str, value: str | int) -> None:
    """Refuse a value that a column never holds.

    Raises:
        ValueError: it never does.
    """
    if column not in TEXT_COLUMNS:
        if isinstance(value, str):
            raise ValueError(f"{column} is a number, which no text equals; write it without quotes")
        if column in _FLAGS and value not in (0, 1):
            raise ValueError(f"{column} is 0 or 1")
        return
    if isinstance(value, int):
        raise ValueError(f"{column} is a word, which no number equals")
    words.check_plain(value)
    known = _vocabulary(column)
    if column == "dialect" and not value.startswith("import."):
        known = words.dialects()
    if column == "key_source" and not value.startswith("client:"):
        known = words.KEY_SOURCES
    if known is not None and value not in known:
        raise ValueError(words.unknown(f"value of {column}", value, known))


def _check_values(column: str, values: Iterable[str | int]) -> None:
    for value in values:
        _check_value(column, value)


type _Values = Annotated[tuple[WordOrWhole, ...], Field(min_length=1)]


class _Expectation[C: StrEnum](NamedRule):
    name: Annotated[str, AfterValidator(words.check_plain)] = Field(
        min_length=1, description="The reason: `quality:NAME`."
    )
    where: dict[C, _Values] = Field(
        default_factory=dict, description="Only rows whose columns have one of these values."
    )

    @field_validator("where")
    @classmethod
    def _some_row_is_meant(cls, value: dict[C, _Values]) -> dict[C, _Values]:
        for column, wanted in value.items():
            _check_values(column, wanted)
        return value


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
    min_value: Number | None = None
    max_value: Number | None = None

    @field_validator("column")
    @classmethod
    def _is_a_number(cls, value: C) -> C:
        if value in TEXT_COLUMNS:
            raise ValueError(f"{value} is a word, which lies between no numbers")
        return value

    @model_validator(mode="after")
    def _can_fail(self) -> Self:
        low, high = self.min_value, self.max_value
        if low is None and high is None:
            raise ValueError("has no bound, so that it never fails: give min_value or max_value")
        if low is not None and high is not None and low > high:
            raise ValueError("min_value is above max_value, so that every row fails")
        if self.column not in _BELOW_ZERO and (low is None or low <= 0):
            if high is None:
                raise ValueError(f"{self.column} is never below 0, so that it never fails")
            if high < 0:
                raise ValueError(f"{self.column} is never below 0, so that every row fails")
            if self.column in _FLAGS and high >= 1:
                raise ValueError(f"{self.column} is 0 or 1, so that it never fails")
        return self


class InSet[C: StrEnum](_Expectation[C]):
    """Values are among those listed; null passes."""

    expectation: Literal["expect_column_values_to_be_in_set"]
    column: C
    value_set: _Values

    @field_validator("value_set")
    @classmethod
    def _some_value_fails(cls, value: _Values, info: ValidationInfo) -> _Values:
        if column := info.data.get("column"):
            _check_values(column, value)
            every = (0, 1) if column in _FLAGS else _vocabulary(column)
            if every is not None and {*value} >= {*every}:
                raise ValueError(f"lists all that {column} can be, so that it never fails")
        return value


class NotInSet[C: StrEnum](_Expectation[C]):
    """Values are none of those listed; null passes."""

    expectation: Literal["expect_column_values_to_not_be_in_set"]
    column: C
    value_set: _Values

    @field_validator("value_set")
    @classmethod
    def _some_value_fails(cls, value: _Values, info: ValidationInfo) -> _Values:
        if column := info.data.get("column"):
            _check_values(column, value)
        return value


class Unique[C: StrEnum](_Expectation[C]):
    """No value comes twice; null passes."""

    expectation: Literal["expect_column_values_to_be_unique"]
    column: C


class PairEqual[C: StrEnum](_Expectation[C]):
    """Two columns agree; a pair with a null passes."""

    expectation: Literal["expect_column_pair_values_to_be_equal"]
    column_A: C  # noqa: N815 (the name that Great Expectations gives it)
    column_B: C  # noqa: N815

    @field_validator("column_B")
    @classmethod
    def _are_alike(cls, value: C, info: ValidationInfo) -> C:
        other = info.data.get("column_A")
        if other == value:
            raise ValueError("is column_A again, so that it never fails")
        if other is not None and (other in TEXT_COLUMNS) != (value in TEXT_COLUMNS):
            raise ValueError(f"one of {other} and {value} is a number, the other a word")
        return value


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
    most: Number = Field(
        default=0.25,
        gt=0,
        le=10,
        description="Population stability index from which a column fails.",
    )
    reference_days: Whole = Field(
        default=14, ge=1, le=3650, description="Length of the reference window."
    )


class Drift(_Drift):
    """A batch against the tenant's stored steps of the days before it.

    Fewer than 50 steps on either side give no verdict.
    """

    columns: tuple[DriftColumn, ...] = Field(default=tuple(DriftColumn), min_length=1)


class ItemDrift(_Drift):
    """A substrate's newest days against the days before them; fewer than 50 items give no verdict."""

    columns: tuple[ItemDriftColumn, ...] = Field(default=tuple(ItemDriftColumn), min_length=1)
    days: Whole = Field(
        default=1, ge=1, le=3650, description="Length of the window that is judged."
    )


class SubstrateQuality(Spec):
    """A substrate that fails any of this is refused: it is not written, and nothing learns from it."""

    expectations: Annotated[tuple[ItemExpectation, ...], AfterValidator(check_names)] = ()
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
        min_length=1,
        description="Entity types that may not be found in redacted output.",
    )


class QualitySpec(Spec):
    """A step that fails any expectation goes to quarantine; the rest of its batch goes on."""

    leftovers: Leftovers = Leftovers()
    expectations: Annotated[tuple[Expectation, ...], AfterValidator(check_names)] = ()
    drift: Drift | None = Field(
        default=None,
        description=(
            "A batch that drifts is quarantined, tenant by tenant, as `quality:drift:COLUMN`. "
            "Left out: drift is reported only."
        ),
    )
    substrate: SubstrateQuality = SubstrateQuality()
