"""Look-ups over the state, held in memory and rebuilt from it: nothing here is stored."""

from collections.abc import Iterable

from trajectory.assembly.state import AssemblerState, PendingCall, StepNode, TrajectoryNode


class StateIndex:
    """Finds steps by conversation, context, response, call id and asked arguments."""

    def __init__(self, state: AssemblerState) -> None:
        """Index the state, which stays the only truth."""
        self.state = state
        self.steps: dict[str, StepNode] = {}
        self.by_conversation: dict[str, list[StepNode]] = {}
        self.by_context: dict[str, list[StepNode]] = {}
        self.by_response: dict[str, list[StepNode]] = {}
        self.by_call: dict[str, list[StepNode]] = {}
        self.by_arguments: dict[str, list[tuple[StepNode, PendingCall]]] = {}
        self.by_session: dict[str, list[TrajectoryNode]] = {}
        self.by_server: dict[str, set[str]] = {}
        self.by_orders: dict[str, list[tuple[StepNode, PendingCall]]] = {}
        self.by_answer: dict[str, list[StepNode]] = {}
        self.by_opening: dict[str, list[TrajectoryNode]] = {}
        for node in state.trajectories.values():
            for _, session in node.sessions:
                self.by_session.setdefault(session, []).append(node)
            for server in node.servers:
                self.by_server.setdefault(server, set()).add(node.trajectory_id)
            self._add_opening(node)
            for step in node.steps:
                self._add(step)

    def add_trajectory(self, node: TrajectoryNode) -> None:
        """Begin a trajectory."""
        self.state.trajectories[node.trajectory_id] = node
        self._add_opening(node)

    def add_session(self, node: TrajectoryNode, source: str, session: str) -> None:
        """Name a trajectory by a session."""
        if [source, session] not in node.sessions:
            node.sessions.append([source, session])
            self.by_session.setdefault(session, []).append(node)

    def session(self, session: str) -> TrajectoryNode | None:
        """Return the trajectory of that name; the one used last when there are several."""
        nodes = self.by_session.get(session)
        return max(nodes, key=lambda node: (node.last_at, node.trajectory_id)) if nodes else None

    def add_server(self, node: TrajectoryNode, server: str) -> None:
        """Remember that a tool session served a trajectory."""
        if server not in node.servers:
            node.servers.append(server)
        self.by_server.setdefault(server, set()).add(node.trajectory_id)

    def add_step(self, node: TrajectoryNode, step: StepNode) -> None:
        """Add a step to its trajectory; the oldest one falls out when there are too many."""
        node.steps.append(step)
        self._add(step)
        if len(node.steps) > self.state.max_steps:
            self._remove(node.steps.pop(0))

    def drop_pending(self, step: StepNode, unwanted: Iterable[PendingCall]) -> None:
        """Forget asked tool calls: their dispatch was seen, or their result came without one."""
        for pending in list(unwanted):
            step.pending.remove(pending)
            self._remove_pending(step, pending)

    def drop_orders(self, step: StepNode, pending: PendingCall) -> None:
        """Forget what a sub-agent was told: it has begun."""
        for name in pending.orders:
            _discard(self.by_orders, name, (step, pending))
        pending.orders = []

    def drop_answer(self, step: StepNode) -> None:
        """Forget the sketch of an answer: its own conversation went on."""
        for name in step.answer:
            _discard(self.by_answer, name, step)
        step.answer = []

    def _remove_pending(self, step: StepNode, pending: PendingCall) -> None:
        _discard(self.by_arguments, pending.arguments, (step, pending))
        for name in pending.orders:
            _discard(self.by_orders, name, (step, pending))

    def forget_idle(self) -> None:
        """Let trajectories fall out that rested too long, then the oldest beyond the limit."""
        state = self.state
        horizon = state.clock - state.idle_seconds
        nodes = sorted(state.trajectories.values(), key=lambda item: item.last_at)
        excess = len(nodes) - state.max_trajectories
        for position, node in enumerate(nodes):
            if node.last_at >= horizon and position >= excess:
                break
            self._forget(node)

    def replace_opening(self, node: TrajectoryNode, opening: list[list[str]]) -> None:
        """Take other opening words: the trajectory began with an auxiliary call."""
        self._remove_opening(node)
        node.opening = opening
        self._add_opening(node)

    def _add_opening(self, node: TrajectoryNode) -> None:
        for name in {name for names in node.opening for name in names}:
            self.by_opening.setdefault(name, []).append(node)

    def _remove_opening(self, node: TrajectoryNode) -> None:
        for name in {name for names in node.opening for name in names}:
            _discard(self.by_opening, name, node)

    def _forget(self, node: TrajectoryNode) -> None:
        del self.state.trajectories[node.trajectory_id]
        for _, session in node.sessions:
            _discard(self.by_session, session, node)
        for server in node.servers:
            members = self.by_server.get(server, set())
            members.discard(node.trajectory_id)
            if not members:
                self.by_server.pop(server, None)
        self._remove_opening(node)
        for step in node.steps:
            self._remove(step)

    def _add(self, step: StepNode) -> None:
        self.steps[step.step_id] = step
        for index, name in self._names(step):
            index.setdefault(name, []).append(step)
        for pending in step.pending:
            self.by_arguments.setdefault(pending.arguments, []).append((step, pending))
            for name in pending.orders:
                self.by_orders.setdefault(name, []).append((step, pending))

    def _remove(self, step: StepNode) -> None:
        self.steps.pop(step.step_id, None)
        for index, name in self._names(step):
            _discard(index, name, step)
        for pending in step.pending:
            self._remove_pending(step, pending)

    def _names(self, step: StepNode) -> list[tuple[dict[str, list[StepNode]], str]]:
        names = [(self.by_context, step.context)]
        if step.conversation is not None:
            names.append((self.by_conversation, step.conversation))
        if step.response is not None:
            names.append((self.by_response, step.response))
        names.extend((self.by_call, call) for call in step.calls)
        names.extend((self.by_answer, name) for name in step.answer)
        return names


def _discard[Entry](index: dict[str, list[Entry]], name: str, entry: Entry) -> None:
    entries = index.get(name, [])
    if entry in entries:
        entries.remove(entry)
    if not entries:
        index.pop(name, None)
