"""Rules on tool calls: one call in, one judgement out; no protocol, no clock, no file.

Rules that stop a call (deny, hold, limit, dry-run) look at it as the most lenient receiver could; rules
that allow one, as every receiver does. The strictest that matches decides, whatever the order.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from proxy.guard.conditions import ArgumentCondition, fits
from proxy.guard.json_path import UnsearchedValuesError, inner_json
from proxy.guard.strict_json import folded
from trajectory.assembly.effects import SideEffect
from trajectory.canonical import JsonValue

_SOUND_NAME = re.compile(r"[A-Za-z0-9_./:-]{1,256}")
_ALIKE = re.compile(r"[-./:_]+")
_NAMES = ("name", "tool", "toolname", "method", "function", "functionname", "action", "command")
_INPUTS = ("arguments", "args", "input", "params", "parameters", "kwargs", "toolinput", "payload")
"""How calls within calls are written, folded and without ``_`` and ``-``."""
_MOST_INNER = 4_000
"""Objects in which another call is looked for; each costs a look at all rules."""


class Ruling(StrEnum):
    """What becomes of a call, the strictest first."""

    DENY = "deny"
    HOLD = "hold"
    LIMIT = "limit"
    """It goes on until the rule's budget is used up."""
    ALLOW = "allow"
    DRY_RUN = "dry-run"
    """It goes on; the match is counted and recorded."""


STRICTEST = (Ruling.DENY, Ruling.HOLD, Ruling.LIMIT, Ruling.ALLOW)


class Severity(StrEnum):
    """How much harm a call that a rule is about could do."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def weight(self) -> float:
        """Return it as a number from 0 to 1."""
        return (list(Severity).index(self) + 1) / 4


class Approver(StrEnum):
    """Who may decide a held call."""

    OPERATOR = "operator"
    CLIENT = "client"
    """The user of the MCP client that waits, and an operator."""


class RequestedCall(NamedTuple):
    """A tool call as it would reach its server."""

    tool: str
    arguments: JsonValue
    tenant: str = ""
    app: str = ""
    environment: str = ""
    effect: SideEffect = SideEffect.UNKNOWN
    """What the protocol says that it leaves behind; rules of the document go before."""


@dataclass(frozen=True, slots=True)
class CallBudget:
    """How many calls may go on in a time."""

    calls: int
    seconds: int
    per: str = "key"
    """key | tenant | tool: who shares it."""


@dataclass(frozen=True, slots=True)
class ActionRule:
    """One rule."""

    name: str
    ruling: Ruling
    severity: Severity = Severity.MEDIUM
    reason: str = ""
    """What the agent is told."""
    tools: tuple[str, ...] = ()
    """Patterns of tools' names; none: every tool."""
    effects: frozenset[SideEffect] = frozenset()
    """What a tool may leave behind; none: whatever."""
    conditions: tuple[ArgumentCondition, ...] = ()
    tenants: tuple[str, ...] = ()
    apps: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    budget: CallBudget | None = None
    seconds: float = 300.0
    """How long a held call waits for a person."""
    approver: Approver = Approver.OPERATOR

    def matches(self, call: RequestedCall, effects: frozenset[SideEffect]) -> bool:
        """Tell whether it is about a call; ``effects`` are all that the tool may have."""
        who = (
            (self.tenants, call.tenant),
            (self.apps, call.app),
            (self.environments, call.environment),
        )
        if not all(not wanted or any(fits(one, is_) for one in wanted) for wanted, is_ in who):
            return False
        if self.ruling is Ruling.ALLOW:
            return self._surely(call, effects)
        if self.tools and not _may_be(call.tool, self.tools):
            return False
        if self.effects and not effects & (self.effects | {SideEffect.UNKNOWN}):
            return False
        return all(one.answer(call.arguments).possibly for one in self.conditions)

    def _surely(self, call: RequestedCall, effects: frozenset[SideEffect]) -> bool:
        if self.tools and not any(fits(one, call.tool) for one in self.tools):
            return False
        if self.effects and not effects <= self.effects:
            return False
        return all(one.answer(call.arguments).surely for one in self.conditions)


UNREADABLE = ActionRule(
    "unreadable", Ruling.DENY, reason="Its name or arguments cannot be read for certain."
)


class CallJudgement(NamedTuple):
    """What becomes of a call, and why."""

    ruling: Ruling
    rule: ActionRule | None
    """The strictest that matched; None where none did."""
    watched: tuple[ActionRule, ...] = ()
    """Rules on trial that matched."""

    @property
    def strictness(self) -> tuple[int, bool]:
        """By which the strictest comes first: a person who is no operator decides less strictly."""
        by_client = self.rule is not None and self.rule.approver is Approver.CLIENT
        return STRICTEST.index(self.ruling), by_client


@dataclass(frozen=True, slots=True)
class ActionRules:
    """All rules for one route."""

    rules: tuple[ActionRule, ...]
    effects: tuple[tuple[str, SideEffect], ...] = ()
    """What tools leave behind, by pattern; the operator's word."""
    otherwise: Ruling = Ruling.ALLOW
    """What becomes of calls that no rule is about."""
    passes: bool = False
    """What cannot be read goes on; else it is refused."""

    def judge(self, call: RequestedCall) -> CallJudgement:
        """Return what becomes of a call: the strictest of what its own and inner calls meet."""
        effects = self.effects_of(call)
        found = self._judge(call, effects)
        try:
            inner_calls = [*_inner_calls(call)]
        except UnsearchedValuesError:
            return found if self.passes else CallJudgement(Ruling.DENY, UNREADABLE, found.watched)
        for inner in inner_calls:
            met = self._judge(inner, self._said_of(inner.tool) or effects)
            watched = tuple(dict.fromkeys((*found.watched, *met.watched)))
            stricter = met.strictness < found.strictness
            # What no rule is about is the outer call's affair: data may look like a call.
            found = (met if stricter and met.rule else found)._replace(watched=watched)
        return found

    def _judge(self, call: RequestedCall, effects: frozenset[SideEffect]) -> CallJudgement:
        met = [rule for rule in self.rules if rule.matches(call, effects)]
        watched = tuple(rule for rule in met if rule.ruling is Ruling.DRY_RUN)
        deciding = (
            CallJudgement(one.ruling, one, watched)
            for one in met
            if one.ruling is not Ruling.DRY_RUN
        )
        otherwise = CallJudgement(self.otherwise, None, watched)
        return min(deciding, key=lambda one: one.strictness, default=otherwise)

    def effects_of(self, call: RequestedCall) -> frozenset[SideEffect]:
        """Return all that a tool may leave behind, by the name it has for lenient receivers."""
        return self._said_of(call.tool) or frozenset([call.effect])

    def _said_of(self, tool: str) -> frozenset[SideEffect]:
        return frozenset(effect for pattern, effect in self.effects if _may_be(tool, (pattern,)))


def is_sound_name(name: str) -> bool:
    """Tell whether a tool's name is one that looks like no other."""
    return _SOUND_NAME.fullmatch(name) is not None


@lru_cache(4096)
def alike(name: str) -> str:
    """Return what names have in common that lenient servers take for one: case, width, separators."""
    return _ALIKE.sub("_", folded(name))


@lru_cache(4096)
def _may_be(tool: str, patterns: tuple[str, ...]) -> bool:
    """Tell whether a lenient server could take a tool for one that the patterns name."""
    return any(fits(alike(one), alike(tool)) for one in patterns)


def _inner_calls(call: RequestedCall) -> Iterator[RequestedCall]:
    """Yield what looks like the call of another tool within a call's arguments.

    Raises:
        UnsearchedValuesError: one may stand in what nobody looked through.
    """
    rest: list[JsonValue] = [call.arguments]
    seen = 0
    while rest:
        value = rest.pop()
        if isinstance(value, str):
            value = inner_json(value)
        if isinstance(value, list):
            rest += [one for one in value if isinstance(one, str | list | dict)]
        elif isinstance(value, dict):
            seen += 1
            if seen > _MOST_INNER:
                raise UnsearchedValuesError
            rest += value.values()
            plain = {alike(key).replace("_", ""): one for key, one in value.items()}
            names = [plain[key] for key in _NAMES if key in plain]
            given = next((plain[key] for key in _INPUTS if key in plain), value)
            for name in names:
                if isinstance(name, str):
                    text = inner_json(given) if isinstance(given, str) else given
                    yield call._replace(tool=name, arguments=text, effect=SideEffect.UNKNOWN)
