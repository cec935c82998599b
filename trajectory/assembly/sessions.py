"""Who calls and under which session name: the identity that the client itself gives."""

from dataclasses import dataclass

from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.assembly.index import StateIndex
from trajectory.assembly.state import StepNode, TrajectoryNode
from trajectory.call import Call, SessionHint

_TOOL_SESSION = "client:mcp-session-id"
_TRACE = "traceparent"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a call says of the session that it belongs to."""

    tenant: str
    """Short hash of the tenant."""
    scope: str
    """Short hash of tenant, application and key: inference never looks beyond it."""
    source: str
    """The strongest source of identity; ``none`` without any."""
    node: TrajectoryNode | None
    """The trajectory of that name, when it is known."""
    previous: StepNode | None
    """The step that the client names as the one before (``previous_response_id``)."""
    sessions: tuple[tuple[str, str], ...]
    """Source and short hash of each session name, strongest first."""
    above: TrajectoryNode | None
    """The trajectory of the session that the client names as the one that started this one."""
    server: str | None
    """Short hash of the tool session."""
    hint: str | None
    """Public keyed hash of the strongest session name."""
    group: str | None
    """Public keyed hash of the group or task that the client named."""

    @property
    def is_nameless(self) -> bool:
        """Tell whether the client names no session (a trace alone is no name)."""
        return all(source == _TRACE for source, _ in self.sessions)

    def is_stranger_to(self, node: TrajectoryNode) -> bool:
        """Tell whether the client names a session, and the trajectory has another name for it."""
        for source, session in self.sessions:
            if source == _TRACE:
                continue
            named = [other for kind, other in node.sessions if kind == source]
            if named and session not in named:
                return True
        return False


def identify(index: StateIndex, maker: Fingerprinter, call: Call) -> Identity:
    """Return the identity that a call's hints give, strongest source first."""
    client = call.exchange.client
    tenant = maker.short("tenant", client.tenant_id)
    scope = scope_name(maker, call)
    named = [hint for hint in call.hints if hint.kind == "session" and hint.source != _TOOL_SESSION]
    sessions = tuple((hint.source, _session(maker, tenant, hint)) for hint in named)
    previous = _previous(index, maker, call, tenant)
    node, source = _known(index, sessions)
    return Identity(
        tenant=tenant,
        scope=scope,
        source=source,
        node=node,
        previous=previous,
        sessions=sessions,
        above=_above(index, maker, call, tenant),
        server=_server(maker, call, scope),
        hint=_public(maker, call, "session", named[:1]),
        group=_public(
            maker,
            call,
            "group",
            [hint for hint in call.hints if hint.kind in ("group", "task")][:1],
        ),
    )


def scope_name(maker: Fingerprinter, call: Call) -> str:
    """Return the short hash of tenant, application and key."""
    client = call.exchange.client
    return maker.short("scope", client.tenant_id, client.app_id, client.key_id)


def _session(maker: Fingerprinter, tenant: str, hint: SessionHint) -> str:
    return maker.short("session", tenant, hint.source, hint.value)


def session_name(maker: Fingerprinter, tenant: str, source: str, value: str) -> str:
    """Return the short hash under which a session name is known."""
    return maker.short("session", tenant, source, value)


def _known(
    index: StateIndex, sessions: tuple[tuple[str, str], ...]
) -> tuple[TrajectoryNode | None, str]:
    """Return the trajectory of the strongest name; a trace alone does not begin one."""
    for source, session in sessions:
        node = index.session(session)
        if node is not None or source != _TRACE:
            return node, source
    return None, sessions[0][0] if sessions else "none"


def _previous(index: StateIndex, maker: Fingerprinter, call: Call, tenant: str) -> StepNode | None:
    for hint in call.hints:
        if hint.kind == "response":
            steps = index.by_response.get(maker.short("response", tenant, hint.value), [])
            return max(steps, key=lambda step: (step.ended, step.step_id), default=None)
    return None


def _above(
    index: StateIndex, maker: Fingerprinter, call: Call, tenant: str
) -> TrajectoryNode | None:
    for hint in call.hints:
        if hint.kind == "parent":
            # ``…-parent-session-id`` names what ``…-session-id`` named, ``…-parent`` a ``…-session``.
            source = hint.source.replace("parent-session", "session").replace("-parent", "-session")
            node = index.session(session_name(maker, tenant, source, hint.value))
            if node is not None:
                return node
    return None


def _server(maker: Fingerprinter, call: Call, scope: str) -> str | None:
    value = next((hint.value for hint in call.hints if hint.source == _TOOL_SESSION), None)
    return None if value is None else maker.short("server", scope, value)


def public_name(maker: Fingerprinter, tenant: str, kind: str, value: str) -> str:
    """Return the stored name of a session or group that a client named ``value``, wherever it did.

    Feedback names it by the same word, and does not say in which header the calls had it.
    """
    return maker.identifier(kind, tenant, value)


def _public(maker: Fingerprinter, call: Call, kind: str, hints: list[SessionHint]) -> str | None:
    if not hints:
        return None
    return public_name(maker, call.exchange.client.tenant_id, kind, hints[0].value)
