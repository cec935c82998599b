"""What assembly remembers between batches: keyed hashes, identifiers, counters and times, no content.

Bounded three times: trajectories that rested longer than ``idle_seconds`` fall out, then the ones that rested
longest beyond ``max_trajectories`` and beyond ``max_calls``. A trajectory with more than ``max_steps`` steps is
*settled*: the facts that would let it be placed anew go. It keeps its latest steps and open ends as they are. Open
are the last step of each conversation, and every step whose tool calls wait for results.
"""

from dataclasses import dataclass, field, fields
from typing import Any, cast
from weakref import WeakValueDictionary

from trajectory.assembly.call_facts import Fact
from trajectory.assembly.nodes import (
    ChainNode,
    Chains,
    Clue,
    PendingCall,
    StepNode,
    TrajectoryNode,
    lengthen,
    shorten,
)
from trajectory.canonical import JsonObject, JsonValue
from trajectory.errors import IntegrityError

STATE_VERSION = 4
MAX_CALLS = 60_000
"""How many calls are remembered where nobody says otherwise."""
OPEN_ENDS = 16
"""How many open ends a settled trajectory may have, for each step of ``max_steps``."""
_NAME = 8
"""Characters of the names of texts; longer ones of older versions are cut."""


@dataclass(slots=True)
class AssemblerState:
    """All that one assembler remembers; the same state and calls give the same assembly."""

    idle_seconds: float = 6 * 3600.0
    max_trajectories: int = 5_000
    max_calls: int = MAX_CALLS
    """Of all trajectories together; one takes about 5 kB."""
    max_steps: int = 64
    """Of a trajectory, beside its open ends."""
    clock: float = 0.0
    """The latest start of the latest calls, seconds since 1970, by which idleness is told.

    Not of all calls: a machine whose clock was ahead once would end what others say until then."""
    trajectories: dict[str, TrajectoryNode] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)
    """The calls of all trajectories that are not settled, by exchange."""
    chains: Chains = field(default_factory=WeakValueDictionary)
    effects: dict[str, list[list[Any]]] = field(default_factory=dict)
    """What tool servers said of their tools: time and side effect, by hash of server and name."""
    approvals: dict[str, list[tuple[str, str, float]]] = field(default_factory=dict)
    """By step: the steps that asked a person for it, their tenant's short hash, and when the answer came."""

    def to_json(self) -> JsonObject:
        """Return the state as JSON: chains, facts in their order, and the settled trajectories."""
        facts = sorted(self.facts.values(), key=lambda fact: fact.order)
        settled = [node for node in self.trajectories.values() if node.settled]
        return {
            "version": STATE_VERSION,
            "idle_seconds": self.idle_seconds,
            "max_trajectories": self.max_trajectories,
            "max_calls": self.max_calls,
            "max_steps": self.max_steps,
            "clock": self.clock,
            "effects": dict[str, JsonValue](
                {name: [list(said) for said in known] for name, known in self.effects.items()}
            ),
            "approvals": dict[str, JsonValue](
                {name: [list(one) for one in known] for name, known in self.approvals.items()}
            ),
            "chains": _chain_rows(facts),
            "facts": [_fact_row(fact) for fact in facts],
            "trajectories": [_trajectory_row(node) for node in settled],
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> "AssemblerState":
        """Build a state from :meth:`to_json`'s form; an empty object gives one with no memory.

        The assembler that begins with it places the facts again. States of version 1 and 2 held
        trajectories only: these are settled. Before version 4 names knew no application.

        Raises:
            IntegrityError: the value is not such a state, or of another version.
        """
        if not value:
            return cls()
        version = value.get("version")
        if version not in (1, 2, 3, STATE_VERSION):
            raise IntegrityError(
                f"assembly state has version {value.get('version')!r}, this release reads"
                f" {STATE_VERSION}; delete the state to begin with no memory of open sessions"
            )
        try:
            return _state_of(cast(dict[str, Any], value), cast(int, version))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise IntegrityError(
                f"assembly state is damaged ({type(error).__name__}); delete it to begin with no"
                " memory of open sessions"
            ) from None


def _state_of(value: dict[str, Any], version: int) -> AssemblerState:
    state = AssemblerState(
        idle_seconds=float(value["idle_seconds"]),
        max_trajectories=int(value["max_trajectories"]),
        max_calls=int(value.get("max_calls", MAX_CALLS)),
        max_steps=int(value["max_steps"]),
        clock=float(value["clock"]),
    )
    for name, known in value.get("effects", {}).items():
        state.effects[name] = [[0.0, known]] if version < 3 else [list(said) for said in known]
    for name, known in value.get("approvals", {}).items():
        state.approvals[name] = [(start, tenant, at) for start, tenant, at in known]
    for row in value["trajectories"]:
        node = _trajectory_of(row, version)
        state.trajectories[node.trajectory_id] = node
    if version > 2:
        chains = _chains_of(value["chains"], state.chains)
        for row in value["facts"]:
            fact = _fact_of(row, chains)
            state.facts[fact.exchange] = fact
    return state


_FACT_FIELDS = tuple(
    item.name
    for item in fields(Fact)
    if item.name
    not in {
        "head",
        "pending",
        "call",
        "step_id",
        "trajectory_id",
        "look_closer",
        "placement",
        "links",
        "reads",
        "touched",
        "row",
        "is_quiet",
        "stored",
        "stored_in",
        "clues",
        "retold",
    }
)
_FACT_DEFAULTS = Fact("", "", 0.0, 0.0, 0.0)
_STEP_FIELDS = tuple(item.name for item in fields(StepNode) if item.name != "trajectory_id")
_TRAJECTORY_FIELDS = tuple(
    item.name for item in fields(TrajectoryNode) if item.name not in {"steps", "settled"}
)


def _fact_row(fact: Fact) -> JsonValue:
    """Return a fact's row, with how its step was stored where that holds no longer."""
    row, place = _constant_row(fact), fact.placement
    if fact.clues:
        row = {**row, "clues": [*fact.clues]}
    if fact.retold:
        row = {**row, "retold": fact.retold}
    if place is None or (fact.stored_in, fact.stored) == (place.trajectory_id, place.skip):
        return row
    return {**row, "stored": fact.stored, "stored_in": fact.stored_in}


def _constant_row(fact: Fact) -> JsonObject:
    """Return what differs from an empty fact; the row is kept, for this does not change."""
    if fact.row is None:
        row: dict[str, JsonValue] = {
            name: value
            for name, default in _FACT_NAMES
            if (value := getattr(fact, name)) != default
        }
        if fact.head is not None:
            row["head"] = shorten(fact.head.exact)
        if fact.pending:
            row["pending"] = [_pending_row(item) for item in fact.pending]
        fact.row = row
    return fact.row


_FACT_NAMES = tuple((name, getattr(_FACT_DEFAULTS, name)) for name in _FACT_FIELDS)


_CHANGING = frozenset({"stored", "stored_in", "clues", "retold"})
"""What may differ from one writing of a fact's row to the next."""


def _fact_of(row: dict[str, Any], chains: dict[str, ChainNode]) -> Fact:
    rest = {name: value for name, value in row.items() if name not in ("head", "pending")}
    fact = Fact(**rest)
    if "head" in row:
        fact.head = chains[row["head"]]
    fact.pending = [PendingCall(*item) for item in row.get("pending", ())]
    fact.row = {name: row[name] for name in row if name not in _CHANGING}
    return fact


def _chain_rows(facts: list[Fact]) -> list[JsonValue]:
    """Return the nodes of all chains in runs: the node that a run goes on from, then its nodes."""
    seen: set[bytes] = set()
    runs: list[JsonValue] = []
    for fact in facts:
        node = fact.head
        run: list[JsonValue] = []
        while node is not None and node.exact not in seen:
            seen.add(node.exact)
            run.append(_node_row(node))
            node = node.before
        if run:
            run.append("" if node is None else shorten(node.exact))
            runs.append(run[::-1])
    return runs


def _node_row(node: ChainNode) -> JsonValue:
    exact = shorten(node.exact)
    results = node.results - (0 if node.before is None else node.before.results)
    clues: list[JsonValue] = [[*clue] for clue in node.clues] if node.clues else []
    if node.loose == node.exact and not node.is_turn and not results and not clues:
        return exact
    loose = "" if node.loose == node.exact else shorten(node.loose)
    return [exact, loose, node.is_turn, results, *node.calls, *clues]


def _chains_of(runs: list[list[Any]], known: Chains) -> dict[str, ChainNode]:
    found: dict[str, ChainNode] = {}
    for before, *rows in runs:
        node = found[before] if before else None
        for row in rows:
            exact, loose, turn, results, *rest = (
                (row, "", False, 0) if isinstance(row, str) else row
            )
            calls = [item for item in rest if isinstance(item, str)]
            clues = [Clue(*item) for item in rest[len(calls) :]]
            digest = lengthen(exact)
            node = ChainNode(
                lengthen(loose) if loose else digest,
                digest,
                node,
                0 if node is None else node.position + 1,
                bool(turn),
                tuple(calls),
                results + (0 if node is None else node.results),
                tuple(clues) or None,
            )
            found[exact] = known[digest] = node
    return found


def _trajectory_row(node: TrajectoryNode) -> list[JsonValue]:
    row = [_copied(getattr(node, name)) for name in _TRAJECTORY_FIELDS]
    return [*row, [_step_row(step) for step in node.steps]]


def _copied(value: Any) -> JsonValue:
    """Copy what later calls change in place."""
    if isinstance(value, list):
        return [_copied(item) for item in value]
    plain: JsonValue = value
    return plain


def _step_row(step: StepNode) -> list[JsonValue]:
    row: list[JsonValue] = [getattr(step, name) for name in _STEP_FIELDS]
    row[-1] = [_pending_row(item) for item in step.pending]
    return row


def _pending_row(item: PendingCall) -> JsonValue:
    row: list[JsonValue] = [item.call, item.arguments, [*item.names], [*item.orders]]
    return [*row, item.told] if item.told else row


def _trajectory_of(row: list[Any], version: int) -> TrajectoryNode:
    node = TrajectoryNode(*(_first_version(row) if version == 1 else row)[:-1])
    node.settled = True
    node.sessions = [list(pair) for pair in node.sessions]
    node.servers = list(node.servers)
    node.opening = [[name[:_NAME] for name in names] for names in node.opening]
    node.asides = list(node.asides)
    node.steps = [_step_of(values, node.trajectory_id, version) for values in row[-1]]
    return node


def _first_version(row: list[Any]) -> list[Any]:
    """Return a row of version 1, which had one sketch of the opening and no name for it."""
    at = _TRAJECTORY_FIELDS.index("opening")
    return [*row[:at], [["", *row[at]]] if row[at] else [], *row[at + 1 :]]


def _step_of(values: list[Any], trajectory_id: str, version: int) -> StepNode:
    if version < 4:
        at = _STEP_FIELDS.index("dialogue")
        values = [*values[:at], None, *values[at:]]
    if len(values) != len(_STEP_FIELDS):
        raise ValueError("a step has another number of fields")
    pending = [
        PendingCall(call, arguments, names, [order[:_NAME] for order in orders], *told)
        for call, arguments, names, orders, *told in values[-1]
    ]
    step: StepNode = _STEP(*values[:-1], pending, trajectory_id)
    step.answer = [name[:_NAME] for name in step.answer]
    return step


_STEP: Any = StepNode
