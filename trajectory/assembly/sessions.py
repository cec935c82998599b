"""Under which session name a call comes: the identity that the client itself gives."""

from collections.abc import Sequence
from dataclasses import dataclass

from trajectory.assembly.facts import Fact
from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.assembly.index import StateIndex
from trajectory.assembly.nodes import StepNode, TrajectoryNode

TOOL_SESSION = "client:mcp-session-id"
_TRACE = "traceparent"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a call's names lead to."""

    fact: Fact
    source: str
    """The strongest source of identity; ``none`` without any."""
    node: TrajectoryNode | None
    """The trajectory of that name, when it is known."""
    previous: StepNode | None
    """The step that the client names as the one before (``previous_response_id``)."""
    above: TrajectoryNode | None
    """The trajectory of the session that the client names as the one that started this one."""

    @property
    def is_nameless(self) -> bool:
        """Tell whether the client names no session (a trace alone is no name)."""
        return all(source == _TRACE for source, _ in self.fact.sessions)

    def is_stranger_to(self, node: TrajectoryNode) -> bool:
        """Tell whether the client names a session, and the trajectory has another name for it."""
        for source, session in self.fact.sessions:
            if source == _TRACE:
                continue
            named = [other for kind, other in node.sessions if kind == source]
            if named and session not in named:
                return True
        return False


def identify(index: StateIndex, fact: Fact) -> Identity:
    """Return what a call's names lead to, strongest source first."""
    if not (fact.sessions or fact.previous or fact.above):
        return Identity(fact, "none", None, None, None)
    node, source = _known(index, fact.sessions)
    previous = None
    if fact.previous is not None:
        steps = [item for item in index.responses(fact.previous) if item.started <= fact.started]
        previous = max(steps, key=lambda step: (step.ended, step.step_id), default=None)
    found = (index.session(name) for name in fact.above)
    above = next((item for item in found if item is not None), None)
    return Identity(fact, source, node, previous, above)


def session_name(maker: Fingerprinter, tenant: str, source: str, value: str) -> str:
    """Return the short hash under which a session name is known."""
    return maker.short("session", tenant, source, value)


def public_name(maker: Fingerprinter, tenant: str, kind: str, value: str) -> str:
    """Return the stored name of a session or group that a client named ``value``, wherever it did.

    Feedback names it by the same word, and does not say in which header the calls had it.
    """
    return maker.identifier(kind, tenant, value)


def _known(index: StateIndex, sessions: Sequence[list[str]]) -> tuple[TrajectoryNode | None, str]:
    """Return the trajectory of the strongest name; a trace alone does not begin one."""
    for source, session in sessions:
        node = index.session(session)
        if node is not None or source != _TRACE:
            return node, source
    return None, sessions[0][0] if sessions else "none"
