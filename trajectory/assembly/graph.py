"""Look-ups over the state, held in memory and rebuilt from it: nothing here is stored.

For the fact that is being placed, ``written`` records what each look-up asked for and whose state it met.
So a late fact finds which facts it would have placed otherwise.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from trajectory.assembly.call_facts import Fact
from trajectory.assembly.nodes import PendingCall, StepNode, TrajectoryNode
from trajectory.assembly.state import OPEN_ENDS, AssemblerState

DROPPED = "dropped "
"""Leads the names that a fact took away."""

HELPERS = "helpers "
"""Leads the name under which the sub-agents of a step are looked for."""
SUBAGENT_CALL = "subagent_call"
"""Kind of the link from the step that asked to the sub-agent's first."""

_EFFECTS_LIMIT = 5_000
_EFFECT_TIMES = 4


class NameIndex[Entry]:
    """Entries by name, each name's in the order in which they came; an entry is no list itself."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        """Begin empty."""
        self._entries: dict[str, Entry | list[Entry]] = {}

    def get(self, name: str) -> Sequence[Entry]:
        """Return the entries of a name."""
        found = self._entries.get(name)
        if found is None:
            return ()
        return found if isinstance(found, list) else (found,)

    def under(self, names: Iterable[str]) -> list[Entry]:
        """Return the entries of any of the names, each once."""
        return list(dict.fromkeys(entry for name in names for entry in self.get(name)))

    def add(self, name: str, entry: Entry) -> None:
        """Give an entry a name, once more if it has it."""
        found = self._entries.get(name)
        if found is None:
            self._entries[name] = entry
        elif isinstance(found, list):
            found.append(entry)
        else:
            self._entries[name] = [found, entry]

    def remove(self, name: str, entry: Entry) -> None:
        """Take a name from an entry, once; nothing happens when it does not have it."""
        found = self._entries.get(name)
        if not isinstance(found, list):
            if found == entry:
                del self._entries[name]
            return
        if entry in found:
            found.remove(entry)
        if len(found) == 1:
            self._entries[name] = found[0]


class StateIndex:
    """Finds steps by conversation, context, response, call id and asked arguments."""

    def __init__(self, state: AssemblerState) -> None:
        """Index the settled trajectories of the state, which stays the only truth."""
        self.state = state
        self._reads: list[str] = []
        self._touched: set[str] = set()
        self.steps: dict[str, StepNode] = {}
        self.by_response = NameIndex[StepNode]()
        self.told: dict[str, tuple[tuple[float, str], str]] = {}
        """What models were told by their tools: when first, and hash of the result, by call."""
        self.readers = NameIndex[Fact]()
        """Facts by what they looked for."""
        self.touching = NameIndex[Fact]()
        """Facts by the trajectories that they touched."""
        self.by_step: dict[str, Fact] = {}
        self._helpers = NameIndex[Fact]()
        self._by_dialogue = NameIndex[StepNode]()
        self._by_conversation = NameIndex[StepNode]()
        self._by_context = NameIndex[StepNode]()
        self._failed = NameIndex[StepNode]()
        self._by_call = NameIndex[StepNode]()
        self._by_arguments = NameIndex[tuple[StepNode, PendingCall]]()
        self._by_session = NameIndex[TrajectoryNode]()
        self._by_server: dict[str, set[str]] = {}
        self._by_orders = NameIndex[tuple[StepNode, PendingCall]]()
        self._by_answer = NameIndex[StepNode]()
        self._by_opening = NameIndex[TrajectoryNode]()
        for node in list(state.trajectories.values()):
            if node.settled:
                self._index_trajectory(node)
            else:
                del state.trajectories[node.trajectory_id]

    def conversations(self, name: str) -> Sequence[StepNode]:
        """Return the steps whose context and answer make this chain."""
        self._reads.append(name)
        return self._met(self._by_conversation.get(name))

    def contexts(self, name: str) -> Sequence[StepNode]:
        """Return the steps whose context makes this chain."""
        self._reads.append(name)
        return self._met(self._by_context.get(name))

    def failures(self, name: str) -> Sequence[StepNode]:
        """Return the failed attempts at this context."""
        self._reads.append("failed " + name)
        return self._met(self._failed.get(name))

    def responses(self, name: str) -> Sequence[StepNode]:
        """Return the steps that were answered by this response."""
        self._reads.append(name)
        return self._met(self.by_response.get(name))

    def turns(self, dialogue: str) -> Sequence[StepNode]:
        """Return the steps that are turns of this conversation at the provider."""
        self._reads.append(dialogue)
        return self._met(self._by_dialogue.get(dialogue))

    def calls(self, name: str) -> Sequence[StepNode]:
        """Return the steps that made a tool call of this id."""
        self._reads.append(name)
        return self._met(self._by_call.get(name))

    def arguments(self, name: str) -> Sequence[tuple[StepNode, PendingCall]]:
        """Return the tool calls with these arguments that wait for their dispatch."""
        self._reads.append(name)
        return self._by_arguments.get(name)

    def orders(self, names: Iterable[str]) -> list[tuple[StepNode, PendingCall]]:
        """Return the tool calls whose orders hold one of these names."""
        return self._by_orders.under(self._read(names))

    def answers(self, names: Iterable[str]) -> list[StepNode]:
        """Return the steps whose answer holds one of these names."""
        return self._by_answer.under(names)

    def open_with(self, names: Iterable[str]) -> list[TrajectoryNode]:
        """Return the trajectories whose opening holds one of these names."""
        return self._by_opening.under(names)

    def result_of(self, call: str) -> str | None:
        """Return what a model was told about a tool call."""
        self._reads.append("told " + call)
        told = self.told.get(call)
        return None if told is None else told[1]

    def served(self, server: str | None) -> set[str]:
        """Return the trajectories that a tool session served."""
        if server is None:
            return set()
        self._reads.append("served " + server)
        return self._by_server.get(server, set())

    def effect(self, name: str, at: tuple[float, str]) -> str | None:
        """Return what a server said last of a tool before this moment."""
        self._reads.append(name)
        said = [item for item in self.state.effects.get(name, ()) if (item[0], "~") < at]
        return str(said[-1][1]) if said and said[-1][1] else None

    def session(self, session: str, place: str = "") -> TrajectoryNode | None:
        """Return the trajectory of that name; the one used last when there are several.

        Args:
            session: short hash of the name.
            place: the only application and environment to look in; empty for all of the tenant.
        """
        self._reads.append(session)
        nodes = [
            node
            for node in self._by_session.get(session)
            if not place or not node.place or node.place == place
        ]
        if not nodes:
            return None
        for node in nodes:
            self._touched.add(node.trajectory_id)
        return max(nodes, key=lambda node: (node.last_at, node.trajectory_id))

    def place_of(self, step: StepNode) -> str:
        """Return the application and environment that a step belongs to; empty where nobody knows."""
        return self.state.trajectories[step.trajectory_id].place

    def touch(self, trajectory_id: str) -> None:
        """Write down that the state of a trajectory decides, or is changed."""
        self._touched.add(trajectory_id)

    def _met(self, steps: Sequence[StepNode]) -> Sequence[StepNode]:
        touched = self._touched
        for step in steps:
            touched.add(step.trajectory_id)
        return steps

    def _read(self, names: Iterable[str]) -> Iterable[str]:
        self._reads.extend(names)
        return names

    def learn(self, fact: Fact) -> None:
        """Remember the tools of a server's listing, the latest listings of each."""
        effects = self.state.effects
        for name, effect in fact.listed:
            said = [*effects.pop(name, ()), [fact.turn, effect if effect != "unknown" else ""]]
            said.sort(key=lambda item: item[0])
            same = [said[0]]
            same.extend(new for old, new in pairwise(said) if new[1] != old[1])
            effects[name] = same[-_EFFECT_TIMES:]
        while len(effects) > _EFFECTS_LIMIT:
            del effects[next(iter(effects))]

    def add_fact(self, fact: Fact) -> None:
        """Remember a fact that is to be placed."""
        self.state.facts[fact.exchange] = fact
        self.by_step[fact.step_id] = fact
        for call, result in fact.told:
            if call not in self.told or fact.order < self.told[call][0]:
                self.told[call] = (fact.order, result)

    def written(self, fact: Fact) -> None:
        """Write down what a placed fact read and touched."""
        self.touch_own(fact)
        fact.reads, fact.touched = tuple(dict.fromkeys(self._reads)), tuple(self._touched)
        self.forget_reading()
        for name in fact.reads:
            self.readers.add(name, fact)
        for trajectory_id in fact.touched:
            self.touching.add(trajectory_id, fact)
        for asking in _asking(fact):
            self._helpers.add(asking, fact)

    def touch_own(self, fact: Fact) -> None:
        """Write down that a placed fact is part of its trajectory."""
        if fact.placement is not None:
            self._touched.add(fact.placement.trajectory_id)

    def forget_step(self, step_id: str) -> None:
        """Forget a step of a settled trajectory, if it is known: its call is placed anew."""
        step = self.steps.get(step_id)
        if step is not None:
            self.state.trajectories[step.trajectory_id].steps.remove(step)
            self._remove(step)

    def forget_reading(self) -> None:
        """Forget what was looked up: by the fact that was placed last, or for no fact."""
        self._reads, self._touched = [], set()

    def unwritten(self, fact: Fact) -> None:
        """Forget what a fact read and touched: it is placed anew, or goes."""
        for name in fact.reads:
            self.readers.remove(name, fact)
        for trajectory_id in fact.touched:
            self.touching.remove(trajectory_id, fact)
        for asking in _asking(fact):
            self._helpers.remove(asking, fact)
        fact.reads = fact.touched = ()

    def drop_fact(self, fact: Fact) -> None:
        """Forget a fact."""
        self.unwritten(fact)
        self.state.facts.pop(fact.exchange, None)
        self.by_step.pop(fact.step_id, None)
        for call, _ in fact.told:
            if call in self.told and self.told[call][0] == fact.order:
                del self.told[call]

    def helpers_of(self, step_id: str) -> list[Fact]:
        """Return the first calls of the sub-agents that a step asked for, by time."""
        self._read([HELPERS + step_id])
        found = sorted(self._helpers.get(step_id), key=lambda fact: fact.order)
        for fact in found:
            if fact.placement is not None:
                self.touch(fact.placement.trajectory_id)
        return found

    def add_trajectory(self, node: TrajectoryNode) -> None:
        """Begin a trajectory."""
        self.state.trajectories[node.trajectory_id] = node
        self._add_opening(node)

    def add_session(self, node: TrajectoryNode, source: str, session: str) -> None:
        """Name a trajectory by a session."""
        if [source, session] not in node.sessions:
            node.sessions.append([source, session])
            self._by_session.add(session, node)

    def add_server(self, node: TrajectoryNode, server: str) -> None:
        """Remember that a tool session served a trajectory."""
        if server not in node.servers:
            node.servers.append(server)
        self._by_server.setdefault(server, set()).add(node.trajectory_id)

    def add_step(self, node: TrajectoryNode, step: StepNode) -> None:
        """Add a step to its trajectory; the oldest one falls out when there are too many.

        What a conversation may still go on from stays, whatever other conversations do. A main agent may wait
        while its sub-agents make many steps.
        """
        node.steps.append(step)
        self._add(step)
        if len(node.steps) <= self.state.max_steps:
            return
        node.settled = True
        done = next((at for at, one in enumerate(node.steps) if not one.is_open), None)
        if done is None and len(node.steps) > self.state.max_steps * (1 + OPEN_ENDS):
            done = 0
        if done is not None:
            self._remove(node.steps.pop(done))

    def drop_pending(self, step: StepNode, unwanted: Iterable[PendingCall]) -> None:
        """Forget asked tool calls: their dispatch was seen, or their result came without one."""
        for pending in list(unwanted):
            step.pending.remove(pending)
            self._remove_pending(step, pending)
            self._dropped([pending.arguments, *pending.orders])

    def tell(self, step: StepNode, told: Iterable[PendingCall], at: float) -> None:
        """Write down that results came: a tool may answer at once, and its sub-agent begin later."""
        for pending in list(told):
            if not pending.orders:
                self.drop_pending(step, [pending])
            elif not pending.told:
                pending.told = at
                self._by_arguments.remove(pending.arguments, (step, pending))
                self._dropped([pending.arguments])

    def drop_orders(self, step: StepNode, pending: PendingCall) -> None:
        """Forget what a sub-agent was told: it has begun."""
        for name in pending.orders:
            self._by_orders.remove(name, (step, pending))
        self._dropped(pending.orders)
        pending.orders = []

    def drop_answer(self, step: StepNode) -> None:
        """Forget the sketch of an answer: its own conversation went on."""
        for name in step.answer:
            self._by_answer.remove(name, step)
        self._dropped(step.answer)
        step.answer = []

    def _dropped(self, names: Iterable[str]) -> None:
        """Write down what a fact takes away: one that comes late may have looked for it."""
        self._reads.extend(DROPPED + name for name in names)

    def _remove_pending(self, step: StepNode, pending: PendingCall) -> None:
        self._by_arguments.remove(pending.arguments, (step, pending))
        for name in pending.orders:
            self._by_orders.remove(name, (step, pending))

    def forget_idle(self) -> None:
        """Let trajectories fall out that rested too long, then the oldest beyond the limits."""
        state = self.state
        horizon = state.clock - state.idle_seconds
        nodes = sorted(state.trajectories.values(), key=lambda item: item.last_at)
        excess = len(nodes) - state.max_trajectories
        settled = sum(len(node.steps) for node in nodes if node.settled)
        for position, node in enumerate(nodes):
            fits = len(state.facts) + settled <= state.max_calls
            if node.last_at >= horizon and position >= excess and fits:
                break
            settled -= len(node.steps) if node.settled else 0
            self.settle(node)
            self.remove_trajectory(node)

    def settle(self, node: TrajectoryNode) -> None:
        """Forget the facts of a trajectory; what it is stays."""
        for fact in list(self.touching.get(node.trajectory_id)):
            if fact.placement is not None and fact.placement.trajectory_id == node.trajectory_id:
                self.drop_fact(fact)

    def replace_opening(self, node: TrajectoryNode, opening: list[list[str]]) -> None:
        """Take other opening words: the trajectory began with an auxiliary call."""
        self._remove_opening(node)
        self._dropped(name for names in node.opening for name in names)
        node.opening = opening
        self._add_opening(node)

    def remove_trajectory(self, node: TrajectoryNode) -> None:
        """Forget a trajectory and its steps."""
        del self.state.trajectories[node.trajectory_id]
        for _, session in node.sessions:
            self._by_session.remove(session, node)
        for server in node.servers:
            members = self._by_server.get(server, set())
            members.discard(node.trajectory_id)
            if not members:
                self._by_server.pop(server, None)
        self._remove_opening(node)
        for step in node.steps:
            self._remove(step)

    def _index_trajectory(self, node: TrajectoryNode) -> None:
        for _, session in node.sessions:
            self._by_session.add(session, node)
        for server in node.servers:
            self._by_server.setdefault(server, set()).add(node.trajectory_id)
        self._add_opening(node)
        for step in node.steps:
            self._add(step)

    def _add_opening(self, node: TrajectoryNode) -> None:
        for name in {name for names in node.opening for name in names}:
            self._by_opening.add(name, node)

    def _remove_opening(self, node: TrajectoryNode) -> None:
        for name in {name for names in node.opening for name in names}:
            self._by_opening.remove(name, node)

    def _add(self, step: StepNode) -> None:
        self.steps[step.step_id] = step
        for index, name in self._names(step):
            index.add(name, step)
        for pending in step.pending:
            if not pending.told:
                self._by_arguments.add(pending.arguments, (step, pending))
            for name in pending.orders:
                self._by_orders.add(name, (step, pending))

    def _remove(self, step: StepNode) -> None:
        self.steps.pop(step.step_id, None)
        for index, name in self._names(step):
            index.remove(name, step)
        for pending in step.pending:
            self._remove_pending(step, pending)

    def _names(self, step: StepNode) -> list[tuple[NameIndex[StepNode], str]]:
        names = [(self._by_context, step.context)]
        if step.failure:
            names.append((self._failed, step.context))
        if step.conversation is not None:
            names.append((self._by_conversation, step.conversation))
        if step.response is not None:
            names.append((self.by_response, step.response))
        if step.dialogue is not None:
            names.append((self._by_dialogue, step.dialogue))
        names.extend((self._by_call, call) for call in step.calls)
        names.extend((self._by_answer, name) for name in step.answer)
        return names


def _asking(fact: Fact) -> list[str]:
    """Return the steps that asked for the sub-agent which a fact begins."""
    return [link.from_step_id for link in fact.links if link.kind == SUBAGENT_CALL]
