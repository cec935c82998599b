"""The ``spec`` of a Quality policy: expectations that every step must meet before it is stored."""

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
    LATENCY_MS = "latency_ms"
    TIME_REVERSED = "time_reversed"
    """1 when the exchange ended before it began."""


class _Expectation(Spec):
    name: str = Field(min_length=1, description="The reason in the quarantine: `quality:NAME`.")
    where: dict[Column, tuple[str | int, ...]] = Field(
        default_factory=dict, description="Only steps whose columns have one of these values."
    )


class NotNull(_Expectation):
    """Every step has a value."""

    expectation: Literal["expect_column_values_to_not_be_null"]
    column: Column


class Null(_Expectation):
    """No step has a value."""

    expectation: Literal["expect_column_values_to_be_null"]
    column: Column


class Between(_Expectation):
    """Values lie between two bounds, both included; null passes."""

    expectation: Literal["expect_column_values_to_be_between"]
    column: Column
    min_value: float | None = None
    max_value: float | None = None


class InSet(_Expectation):
    """Values are among those listed; null passes."""

    expectation: Literal["expect_column_values_to_be_in_set"]
    column: Column
    value_set: tuple[str | int, ...]


class NotInSet(_Expectation):
    """Values are none of those listed; null passes."""

    expectation: Literal["expect_column_values_to_not_be_in_set"]
    column: Column
    value_set: tuple[str | int, ...]


class Unique(_Expectation):
    """No value comes twice in a batch; null passes."""

    expectation: Literal["expect_column_values_to_be_unique"]
    column: Column


class PairEqual(_Expectation):
    """Two columns agree; a pair with a null passes."""

    expectation: Literal["expect_column_pair_values_to_be_equal"]
    column_A: Column  # noqa: N815 (the name that Great Expectations gives it)
    column_B: Column  # noqa: N815


type Expectation = Annotated[
    NotNull | Null | Between | InSet | NotInSet | Unique | PairEqual,
    Field(discriminator="expectation"),
]


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
