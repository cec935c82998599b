"""Under which session name a call comes: the identity that the client itself gives."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trajectory.assembly.call_facts import Fact
from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.assembly.graph import StateIndex
from trajectory.assembly.nodes import StepNode, TrajectoryNode
from trajectory.assembly.result import PlacedFeedback
from trajectory.dialects.hints import VALUE_LIMIT
from trajectory.exchange import ClientIdentity, Feedback

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

    The client names that step's response, or the conversation whose latest turn it is.
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


SESSION_SOURCES = (
    "header:x-headrace-session",
    "import",
    "url",
    "client:conversation",
    "client:gen_ai.conversation.id",
    "client:session.id",
    "client:metadata.session_id",
    "client:metadata.user_id",
    "client:x-claude-code-session-id",
    "client:x-session-id",
    "client:session-id",
    "client:session_id",
    "client:thread-id",
    "traceparent",
    "baggage",
)
"""Where a session name that feedback gives may have come from, strongest first."""

_STORED = re.compile(r"b2:[0-9a-f]{40}")


def place_feedback(
    index: StateIndex, maker: Fingerprinter, feedback: Sequence[Feedback]
) -> tuple[PlacedFeedback, ...]:
    """Resolve each piece once, in the order of arrival; what is not remembered keeps empty ids.

    What is delivered again under its own name changes nothing: the first one stands.
    """
    unique: dict[tuple[str, str], Feedback] = {}
    for item in sorted(feedback, key=lambda one: (one.received_at, one.feedback_id)):
        name = item.client.tenant_id, item.feedback_id
        if item.is_said_anew:
            unique.pop(name, None)
        unique.setdefault(name, item)
    return tuple(_place(index, maker, item) for item in unique.values())


def _place(index: StateIndex, maker: Fingerprinter, item: Feedback) -> PlacedFeedback:
    tenant = maker.short("tenant", item.client.tenant_id)
    if item.target_kind == "response":
        steps = index.by_response.get(maker.short("response", tenant, item.target_id))
        place = place_name(maker, item.client)
        # Another application's may have the same id; who judges with a key of its own means any.
        own = [step for step in steps if index.place_of(step) == place]
        step = max(own or steps, key=lambda step: (step.ended, step.step_id), default=None)
        return _resolved(index, item, tenant, step)
    if item.target_kind == "step":
        # Clients know a step by its id here, or by the exchange's as ``x-headrace-step`` gives it.
        made = maker.identifier("step", item.target_id)
        step = index.steps.get(item.target_id) or index.steps.get(made)
        return _resolved(index, item, tenant, step)
    if item.target_kind == "trajectory":
        node = index.state.trajectories.get(item.target_id)
        known = node is not None and node.tenant == tenant
        return PlacedFeedback(item, item.target_id if known else None, None)
    if item.target_kind == "session":
        return _by_session(index, maker, item, tenant)
    return PlacedFeedback(item, None, None, _stored_name(maker, item))


def _stored_name(maker: Fingerprinter, item: Feedback) -> str:
    """Return the name that steps carry of the session or group; readers of the lake know that one."""
    if _STORED.fullmatch(item.target_id):
        return item.target_id
    said = item.target_id.strip()[:VALUE_LIMIT]
    return public_name(maker, item.client, item.target_kind, said)


def _resolved(
    index: StateIndex, item: Feedback, tenant: str, step: StepNode | None
) -> PlacedFeedback:
    if step is None or index.state.trajectories[step.trajectory_id].tenant != tenant:
        return PlacedFeedback(item, None, None)
    return PlacedFeedback(item, step.trajectory_id, step.step_id)


def _by_session(
    index: StateIndex, maker: Fingerprinter, item: Feedback, tenant: str
) -> PlacedFeedback:
    place = place_name(maker, item.client)
    for source in SESSION_SOURCES:
        node = index.session(session_name(maker, tenant, source, item.target_id), place)
        if node is not None:
            return PlacedFeedback(item, node.trajectory_id, None)
    return PlacedFeedback(item, None, None, _stored_name(maker, item))
