"""Where calls belong: the result of assembly, which governance turns into stored rows."""

from dataclasses import dataclass, field
from datetime import datetime

from trajectory.call import Call
from trajectory.exchange import Feedback
from trajectory.message import Message


@dataclass(frozen=True, slots=True)
class PlacedCall:
    """A call with its place in a trajectory. Content is still raw."""

    call: Call
    trajectory_id: str
    step_id: str
    step_index: int
    parent_step_id: str | None
    branch: int
    role_in_graph: str
    key_source: str
    context_keep: int
    """Leading messages of the parent's conversation (context plus output) that this call resends."""
    new_messages: tuple[Message, ...]
    """The rest of ``call.context``: what this call adds."""
    answer_replaced: bool = False
    """The client went on from another text than the parent's answer."""
    retry_of: str | None = None
    duplicate_of: str | None = None
    """step_id of a stored step with the same context and the same output: nothing new to store."""
    session_hint: str | None = None
    """Keyed hash of the strongest session name that the client sent."""
    source_trajectory_id: str | None = None
    """The trajectory of another session that this one stands on: its history was taken over, or it started this one."""
    group_id: str | None = None
    side_effect: str | None = None
    """What a dispatched tool does to the world (see ``trajectory.assembly.effects``); None for models."""
    context_is_delta: bool = False
    """The client sent only ``new_messages`` and named the response before (``previous_response_id``):
    ``call.context`` does not hold the ``context_keep`` messages of the parent's conversation."""
    problem: str | None = None
    """Why it may not be judged (fixed words, never content); None where it may."""


@dataclass(frozen=True, slots=True)
class PlacedLink:
    """A link between two placed calls of one tenant."""

    tenant_id: str
    kind: str
    from_step_id: str
    to_step_id: str
    trajectory_id: str
    recorded_at: datetime
    key_source: str


@dataclass(frozen=True, slots=True)
class PlacedCorrection:
    """What now holds of a call that an earlier batch placed otherwise: others came late."""

    tenant_id: str
    step_id: str
    started_at: datetime
    trajectory_id: str
    stored_trajectory_id: str
    began: bool
    """It began the trajectory that it was stored in."""
    step_index: int
    parent_step_id: str | None
    branch: int
    role_in_graph: str
    key_source: str
    context_keep: int
    context_skip: int | None
    """How many of the step's stored context messages the parent's conversation holds now; None
    when it holds fewer than before, and the stored difference stays."""
    results_skip: int
    """How many tool results stand in what it holds now."""
    retry_of: str | None
    duplicate_of: str | None
    session_hint: str | None
    group_id: str | None
    side_effect: str | None
    links: tuple[PlacedLink, ...]
    """All links that end at the step."""


@dataclass(frozen=True, slots=True)
class PlacedPeople:
    """Whom a call belongs to, as a span of its trace told."""

    tenant_id: str
    step_id: str
    end_user: str | None = field(repr=False)
    """None where the call itself names one, beside whom the others stand."""
    also_named: tuple[str, ...] = field(repr=False)
    before: tuple[str, ...] = field(repr=False)
    """Whom earlier batches took it to belong to, who may be others; nobody where the call itself names one."""

    @property
    def people(self) -> tuple[str, ...]:
        """Return all of them, the end user first."""
        return (*([self.end_user] if self.end_user else []), *self.also_named)


@dataclass(frozen=True, slots=True)
class PlacedFeedback:
    """Feedback whose target is known (or not yet: then the ids are None and it is stored as it came)."""

    feedback: Feedback
    trajectory_id: str | None
    step_id: str | None
    target: str | None = None
    """Stored name of the session or group that it is about, as steps carry it."""
    was_held: bool = False
    """It waited in quarantine with a call that is judged again now."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """One batch after assembly."""

    placed: tuple[PlacedCall, ...]
    """Model and tool calls, ordered by start time."""
    unplaced: tuple[Call, ...]
    """Control and opaque calls: they get a ledger row, opaque ones a quarantine row too."""
    links: tuple[PlacedLink, ...]
    feedback: tuple[PlacedFeedback, ...]
    corrections: tuple[PlacedCorrection, ...] = ()
    """What changed about calls of earlier batches."""
    people: tuple[PlacedPeople, ...] = ()
    """Whom calls of this batch or of earlier ones belong to, where this batch told it."""
