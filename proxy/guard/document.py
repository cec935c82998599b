"""Documents of kind ``Action``: which tool calls go on, wait for a person, or are refused, in YAML."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from proxy.guard.conditions import ArgumentCondition, ArgumentTest
from proxy.guard.json_path import JsonPath
from proxy.guard.rules import (
    STRICTEST,
    ActionRule,
    ActionRules,
    Approver,
    CallBudget,
    Ruling,
    Severity,
)
from trajectory.assembly.effects import SideEffect
from trajectory.documents.document import NAME_PATTERN, Document, StrictModel

ALL = "*"


def _sound_path(text: str) -> str:
    JsonPath.parse(text)
    return text


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str | int | float | bool) else value


def _sound_pattern(pattern: str) -> str:
    if not pattern or pattern != pattern.strip() or "[" in pattern:
        raise ValueError("write a name, or a pattern of * and ?")
    return pattern


type Pattern = Annotated[str, AfterValidator(_sound_pattern)]
type Patterns = Annotated[tuple[Pattern, ...], BeforeValidator(_listed)]
type SaidPatterns = Annotated[tuple[Pattern, ...], Field(min_length=1), BeforeValidator(_listed)]
"""One pattern at least: an empty list would fit every call."""
type Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_listed)]
type Scalars = Annotated[tuple[str | int | float | bool, ...], BeforeValidator(_listed)]


class ArgumentMatch(StrictModel):
    """What must hold of a call's arguments: one path, one test."""

    path: Annotated[str, AfterValidator(_sound_path)] = Field(
        description="`$.amount`, `$.items[*].url`, `$..url`; JSON in a text is looked into."
    )
    one_of: Scalars | None = Field(default=None, description="It equals one of these.")
    none_of: Scalars | None = Field(default=None, description="It equals none of these.")
    like: Texts | None = Field(
        default=None, description="It fits one of these patterns of `*` and `?`."
    )
    unlike: Texts | None = Field(default=None, description="It fits none of these patterns.")
    contains: Texts | None = Field(
        default=None, description="One of these texts stands in it, in any case."
    )
    above: float | None = Field(default=None, description="It is a number above this.")
    below: float | None = Field(default=None, description="It is a number below this.")
    longer: int | None = Field(
        default=None, ge=0, description="It has more characters or items than this."
    )
    inside: Texts | None = Field(
        default=None, description="It is a path in one of these folders; `.` for relative paths."
    )
    outside: Texts | None = Field(
        default=None, description="It is a path in none of these folders, or may be."
    )
    hosts: Texts | None = Field(
        default=None, description="It is a URL of one of these hosts; `*.example.com` is a pattern."
    )
    other_hosts: Texts | None = Field(
        default=None, description="It is a URL of another host, or may be."
    )
    present: bool | None = Field(default=None, description="There is such an argument, or none.")

    @model_validator(mode="after")
    def _has_one_test(self) -> Self:
        if len(self._tests()) != 1:
            raise ValueError(f"say exactly one of: {', '.join(ArgumentTest)}")
        if any(value == () for value in self._tests().values()):
            raise ValueError("an empty list fits nothing")
        return self

    def _tests(self) -> dict[ArgumentTest, Any]:
        found = {test: getattr(self, test.value) for test in ArgumentTest}
        return {test: value for test, value in found.items() if value is not None}

    def condition(self) -> ArgumentCondition:
        """Return it as the guard applies it."""
        ((test, value),) = self._tests().items()
        against = value if isinstance(value, tuple) else (value,)
        return ArgumentCondition(JsonPath.parse(self.path), test, against)


class CallMatch(StrictModel):
    """Which calls a rule is about: all that is said must hold; what is not said fits every call."""

    tools: SaidPatterns = Field(
        default=(),
        description=(
            "Names of tools, or patterns of `*` and `?`. For rules that stop calls, case and "
            "`-`, `.`, `/`, `:` and `_` make no difference."
        ),
    )
    effects: Annotated[tuple[SideEffect, ...], BeforeValidator(_listed)] = Field(
        default=(),
        min_length=1,
        description=(
            "What the tool leaves behind. A tool of which nobody said it counts as all of them for "
            "rules that stop calls, and as none for those that allow them."
        ),
    )
    arguments: Annotated[tuple[ArgumentMatch, ...], Field(min_length=1)] = ()
    tenants: SaidPatterns = ()
    apps: SaidPatterns = Field(default=(), description="Apps of client keys: the role of an agent.")
    environments: SaidPatterns = ()


def _says_which(value: CallMatch) -> CallMatch:
    if not any(value.model_dump().values()):
        raise ValueError(
            'says nothing, so that it would be about every call: name tools, or say `tools: "*"`'
        )
    return value


class BudgetSpec(StrictModel):
    """How many calls may go on in a time, over all sessions."""

    calls: int = Field(ge=0, le=1_000_000_000)
    seconds: int = Field(default=3600, ge=1, le=31_622_400)
    per: Literal["key", "tenant", "tool"] = Field(
        default="key", description="Who shares it; `tool`: each tool of a tenant has its own."
    )


class RuleSpec(StrictModel):
    """One rule."""

    name: str = Field(pattern=NAME_PATTERN)
    match: Annotated[CallMatch, AfterValidator(_says_which)] = CallMatch()
    decision: Ruling = Field(
        description=(
            "`deny` and `hold` stop calls, `limit` those beyond a budget; `allow` lets them through where "
            "`otherwise` does not; `dry-run` counts and records them, and they go on."
        )
    )
    severity: Severity = Severity.MEDIUM
    reason: str = Field(
        default="", max_length=300, description="What the agent is told, so that it can go on."
    )
    budget: BudgetSpec | None = None
    wait_seconds: float = Field(
        default=300, ge=1, le=86_400, description="How long a held call waits for a person."
    )
    approver: Approver = Field(
        default=Approver.OPERATOR,
        description=(
            "Who decides a held call; `client`: the user of the MCP client may, by `elicitation/create`, "
            "and an operator still can."
        ),
    )

    @model_validator(mode="after")
    def _budget_belongs_to_limit(self) -> Self:
        if (self.budget is not None) is not (self.decision is Ruling.LIMIT):
            raise ValueError("limit has a budget, and nothing else has")
        return self

    @model_validator(mode="after")
    def _allows_what_it_names(self) -> Self:
        if self.decision is Ruling.ALLOW and "match" not in self.model_fields_set:
            raise ValueError("allow needs a match: without one it would undo `otherwise`")
        return self

    @model_validator(mode="after")
    def _approver_belongs_to_hold(self) -> Self:
        if self.approver is Approver.CLIENT and self.decision is not Ruling.HOLD:
            raise ValueError("approver: client is for calls that are held; nobody decides others")
        return self

    def rule(self) -> ActionRule:
        """Return it as the guard applies it."""
        match = self.match
        budget = None
        if self.budget is not None:
            budget = CallBudget(self.budget.calls, self.budget.seconds, self.budget.per)
        return ActionRule(
            name=self.name,
            ruling=self.decision,
            severity=self.severity,
            reason=self.reason,
            tools=match.tools,
            effects=frozenset(match.effects),
            conditions=tuple(one.condition() for one in match.arguments),
            tenants=match.tenants,
            apps=match.apps,
            environments=match.environments,
            budget=budget,
            seconds=self.wait_seconds,
            approver=self.approver,
        )


class ActionSpec(StrictModel):
    """Rules for the tool calls of some routes."""

    routes: Patterns = Field(
        default=(),
        description="Routes of the gateway with `kind: tool`; `*` for all of them.",
    )
    answers: Patterns = Field(
        default=(),
        description=(
            "Routes of models: the tool calls in their answers are judged before the agent sees "
            "them; `*` for all of them."
        ),
    )
    taps: Patterns = Field(
        default=(),
        description=(
            "Names of stdio servers that `headrace tap` runs, or patterns of `*` and `?`."
        ),
    )
    otherwise: Literal["allow", "hold", "deny"] = Field(
        default="allow", description="What becomes of calls that no rule is about."
    )
    on_failure: Literal["refuse", "pass"] = Field(
        default="refuse",
        description="What becomes of calls that cannot be read or judged; `pass` is counted.",
    )
    effects: dict[Pattern, SideEffect] = Field(
        default_factory=dict, description="What tools leave behind, by name or pattern."
    )
    rules: tuple[RuleSpec, ...] = ()

    @model_validator(mode="after")
    def _guards_something(self) -> Self:
        if not (self.routes or self.answers or self.taps):
            raise ValueError("name routes, answers or taps")
        return self

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        names = [rule.name for rule in self.rules]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two rules have the name {min(twice)}")
        return self


class Action(Document):
    """Which tool calls go on, which wait for a person, and which are refused."""

    kind: Literal["Action"]
    spec: ActionSpec


def rules_of(documents: Iterable[Action]) -> ActionRules | None:
    """Return what documents say together, the strictest first; None where there is none."""
    specs = [document.spec for document in documents]
    if not specs:
        return None
    otherwise = min((Ruling(spec.otherwise) for spec in specs), key=STRICTEST.index)
    return ActionRules(
        rules=tuple(rule.rule() for spec in specs for rule in spec.rules),
        effects=tuple(pair for spec in specs for pair in spec.effects.items()),
        otherwise=otherwise,
        passes=all(spec.on_failure == "pass" for spec in specs),
    )
