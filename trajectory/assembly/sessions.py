"""Under which session name a call comes: the identity that the client itself gives."""

from dataclasses import dataclass

from trajectory.assembly.facts import Fact
from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.assembly.index import StateIndex
from trajectory.assembly.nodes import StepNode, TrajectoryNode
from trajectory.exchange import ClientIdentity

TOOL_SESSION = "client:mcp-session-id"
_TRACE = "traceparent"
_ACROSS_APPS = frozenset({_TRACE, "baggage"})
"""W3C trace context leads from one application to the next; any other name is one application's."""


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
    node, source = _known(index, fact)
    found = (index.session(name, fact.place) or index.session(name) for name in fact.above)
    above = next((item for item in found if item is not None), None)
    return Identity(fact, source, node, _previous(index, fact), above)


def _previous(index: StateIndex, fact: Fact) -> StepNode | None:
    """Return the step that a call with only the new messages goes on from.

    The client names its response, or the conversation of which it is the latest turn.
    """
    if fact.previous is not None:
        steps = index.responses(fact.previous)
    elif fact.dialogue is not None:
        steps = [step for step in index.turns(fact.dialogue) if not step.failure]
    else:
        return None
    earlier = [
        step
        for step in steps
        if step.started <= fact.started
        # Small servers number their responses, or draw the numbers from few.
        and index.place_of(step) in ("", fact.place)
    ]
    if fact.is_look_up:  # the call that asked; others may have looked for the answer too
        return min(earlier, key=lambda step: (step.started, step.step_id), default=None)
    return max(earlier, key=lambda step: (step.ended, step.step_id), default=None)


def session_name(maker: Fingerprinter, tenant: str, source: str, value: str) -> str:
    """Return the short hash under which a session name is known."""
    return maker.short("session", tenant, source, value)


def place_name(maker: Fingerprinter, client: ClientIdentity) -> str:
    """Return the short hash of a client's application and environment."""
    return maker.short("place", client.tenant_id, client.app_id, client.environment)


def public_name(maker: Fingerprinter, client: ClientIdentity, kind: str, value: str) -> str:
    """Return the stored name of a session or group that a client named ``value``, wherever it did.

    Feedback names it by the same word, and does not say in which header the calls had it. Equal
    names of sessions in two applications or environments are two sessions; a group is its tenant's.
    """
    place = (client.app_id, client.environment) if kind == "session" else ()
    return maker.identifier(kind, client.tenant_id, *place, value)


def _known(index: StateIndex, fact: Fact) -> tuple[TrajectoryNode | None, str]:
    """Return the trajectory of the strongest name; a trace alone does not begin one."""
    for source, session in fact.sessions:
        node = index.session(session, "" if source in _ACROSS_APPS else fact.place)
        if node is not None or source != _TRACE:
            return node, source
    return None, fact.sessions[0][0] if fact.sessions else "none"
