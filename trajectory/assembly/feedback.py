"""Resolving what feedback is about, through what the state remembers."""

import re
from collections.abc import Sequence

from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.assembly.index import StateIndex
from trajectory.assembly.nodes import StepNode
from trajectory.assembly.sessions import place_name, public_name, session_name
from trajectory.dialects.hints import VALUE_LIMIT
from trajectory.exchange import Feedback
from trajectory.placement import PlacedFeedback

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
    """Resolve each piece once, in the order of arrival; what is not remembered keeps empty ids."""
    unique = {(item.client.tenant_id, item.feedback_id): item for item in feedback}
    ordered = sorted(unique.values(), key=lambda item: (item.received_at, item.feedback_id))
    return tuple(_place(index, maker, item) for item in ordered)


def _place(index: StateIndex, maker: Fingerprinter, item: Feedback) -> PlacedFeedback:
    tenant = maker.short("tenant", item.client.tenant_id)
    if item.target_kind == "response":
        steps = index.by_response.get(maker.short("response", tenant, item.target_id))
        step = max(steps, key=lambda step: (step.ended, step.step_id), default=None)
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
