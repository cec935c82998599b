"""Text that comes back in another conversation: sub-agents, compaction, hand-offs, title makers.

A root whose own words quote an open trajectory belongs to it although no prefix is shared. Texts
are recognised by sketches (see ``trajectory.assembly.sketches``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.assembly.index import StateIndex
from trajectory.assembly.sketches import (
    extents,
    opening_texts,
    quoted_ids,
    sketch,
    text_names,
    whole_name,
)
from trajectory.assembly.state import PendingCall, StepNode, TrajectoryNode
from trajectory.message import Message

AUXILIARY_WINDOW_SECONDS = 5.0
"""How near a title maker starts to the opening that it quotes, or to the end of the first answer."""

_SHARE = 0.75
_OPENINGS = 6
_AFTERWARDS_SECONDS = 0.5

type Fits = Callable[[StepNode], bool]


class EchoKind(StrEnum):
    """What the quotation means; the value is the link's kind."""

    SUBAGENT = "subagent_call"
    COMPACTION = "compaction"
    HANDOFF = "handoff"
    AUXILIARY = "auxiliary"


@dataclass(frozen=True, slots=True)
class Echo:
    """An open trajectory that a root quotes."""

    kind: EchoKind
    node: TrajectoryNode
    step: StepNode | None
    """The step that asked, or whose answer is quoted."""
    opening_is_auxiliary: bool = False
    """The trajectory itself began with the auxiliary call, and the quoting root is the agent's."""


def openings(
    maker: Fingerprinter, scope: str, context: Sequence[Message], *, has_tools: bool
) -> list[list[str]]:
    """Return name and sketch of each stretch of the opening words that others may quote.

    A call without tools may itself quote an opening: what it may quote is kept too, so that the
    agent's call is recognised when it comes later.
    """
    texts = opening_texts(context)
    whole = "\n".join(texts)
    found = [
        whole,
        *(texts[::-1] if len(texts) > 1 else ()),
        *(() if has_tools else extents(whole)),
    ]
    return [
        [whole_name(maker, scope, text), *made]
        for text in list(dict.fromkeys(found))[:_OPENINGS]
        if (made := sketch(maker, scope, text))
    ]


def find_echo(
    index: StateIndex,
    maker: Fingerprinter,
    context: Sequence[Message],
    *,
    scope: str,
    system: str,
    has_tools: bool,
    started: float,
    failed: bool,
    within: TrajectoryNode | None = None,
) -> Echo | None:
    """Return the open trajectory that a root quotes, by the strongest kind of quotation.

    What is quoted counts as taken, but not by a ``failed`` attempt: its repetition quotes again.
    When it is known to which trajectory the root belongs, only that one is looked ``within``.
    """

    def fits(step: StepNode) -> bool:
        # A step's own end may come later: sub-agents start while the answer is streaming.
        inside = within is None or step.trajectory_id == within.trajectory_id
        return inside and step.started <= started

    if told := _quoted_call(index, quoted_ids(maker, scope, context), fits):
        kind = EchoKind.COMPACTION if told.system == system else EchoKind.HANDOFF
        return Echo(kind, _node(index, told), told)
    texts = opening_texts(context)
    names = text_names(maker, scope, texts)
    if not names:
        return None
    if asked := _quoted_orders(index, names, fits):
        if not failed:
            index.drop_orders(*asked)
        return Echo(EchoKind.SUBAGENT, _node(index, asked[0]), asked[0])
    if answered := _quoted_answer(index, names, fits, started):
        node = _node(index, answered)
        kind = EchoKind.COMPACTION if answered.system == system else EchoKind.HANDOFF
        return Echo(kind, node, answered)
    echo = _quoted_opening(
        index,
        names,
        words=sum(len(text.split()) for text in texts),
        system=system,
        has_tools=has_tools,
        started=started,
        within=within,
    )
    if echo is None or failed:
        return echo
    node = echo.node
    node.asides.append(node.system if echo.opening_is_auxiliary else system)
    if echo.opening_is_auxiliary:
        node.system, node.words = system, sum(len(text.split()) for text in texts)
        own = openings(maker, scope, context, has_tools=has_tools)
        index.replace_opening(node, own)
    return echo


def _node(index: StateIndex, step: StepNode) -> TrajectoryNode:
    return index.state.trajectories[step.trajectory_id]


def _quoted_call(index: StateIndex, ids: Sequence[str], fits: Fits) -> StepNode | None:
    """Return the latest step whose tool call's id stands in the words of a written-out history."""
    candidates = [step for name in ids for step in index.by_call.get(name, ()) if fits(step)]
    if len({step.trajectory_id for step in candidates}) != 1:
        return None
    return max(candidates, key=lambda step: (step.ended, step.step_id))


def _quoted_orders(
    index: StateIndex, names: set[str], fits: Fits
) -> tuple[StepNode, PendingCall] | None:
    candidates = [
        (step, pending)
        for step, pending in _under(index.by_orders, names)
        if fits(step) and _share(pending.orders, names) >= _SHARE
    ]
    return max(
        candidates,
        key=lambda item: (_share(item[1].orders, names), item[0].ended, item[0].step_id),
        default=None,
    )


def _quoted_answer(
    index: StateIndex, names: set[str], fits: Fits, started: float
) -> StepNode | None:
    candidates = [
        step
        for step in _under(index.by_answer, names)
        if fits(step)
        and step.ended <= started
        and step.children == 0
        and _share(step.answer, names) >= _SHARE
    ]
    return max(
        candidates,
        key=lambda step: (_share(step.answer, names), step.ended, step.step_id),
        default=None,
    )


def _quoted_opening(
    index: StateIndex,
    names: set[str],
    *,
    words: int,
    system: str,
    has_tools: bool,
    started: float,
    within: TrajectoryNode | None,
) -> Echo | None:
    """Return the trajectory beside which this root is auxiliary, or whose auxiliary began it.

    Attempts at one task open alike too: the two must differ (see :func:`_differ`) and stand close
    together in time; the one without tools, or with words around the quotation, stands beside
    the other.
    """
    candidates = [
        node
        for node in _under(index.by_opening, names)
        if (node is within if within is not None else _is_near(node, started))
        and _likeness(node, names)[1] >= 0.5
        and _differ(node, words, system=system, has_tools=has_tools)
    ]
    fitting = [
        (node, aside)
        for node in candidates
        if not _is_taken(node, system, aside := _is_aside(node, words, has_tools=has_tools))
    ]
    if not fitting:
        return None
    node, aside = max(
        fitting,
        key=lambda item: (
            *_likeness(item[0], names),
            -_distance(item[0], started),
            item[0].trajectory_id,
        ),
    )
    return Echo(EchoKind.AUXILIARY, node, None, opening_is_auxiliary=not aside)


def _likeness(node: TrajectoryNode, names: set[str]) -> tuple[bool, float]:
    """Return whether an opening is quoted word for word, and the best share of a sketch."""
    return max((whole in names, _share(runs, names)) for whole, *runs in node.opening)


def _is_near(node: TrajectoryNode, started: float) -> bool:
    apart = min(abs(started - node.started), abs(started - node.answered))
    return apart <= AUXILIARY_WINDOW_SECONDS


def _differ(node: TrajectoryNode, words: int, *, system: str, has_tools: bool) -> bool:
    """Tell whether two roots differ as an agent's call and an auxiliary one do."""
    tools, length = node.has_tools != has_tools, node.words != words
    if node.system == system:
        return tools and length
    return tools or (not has_tools and length)


def _distance(node: TrajectoryNode, started: float) -> float:
    """Return how far apart in time; calls that start together are nearer than one after the other."""
    return min(abs(started - node.started), abs(started - node.answered) + _AFTERWARDS_SECONDS)


def _is_aside(node: TrajectoryNode, words: int, *, has_tools: bool) -> bool:
    """Tell whether the root stands beside the trajectory rather than the other way round."""
    return node.has_tools if node.has_tools != has_tools else words > node.words


def _is_taken(node: TrajectoryNode, system: str, aside: bool) -> bool:
    """Tell whether the trajectory has this kind of auxiliary call, or the agent's call, already."""
    return system in node.asides if aside else bool(node.asides)


def _share(wanted: Sequence[str], names: set[str]) -> float:
    return sum(name in names for name in wanted) / len(wanted) if wanted else 0.0


def _under[Entry](index: dict[str, list[Entry]], names: set[str]) -> list[Entry]:
    """Return the entries under any of the names, each once."""
    return list(dict.fromkeys(entry for name in names for entry in index.get(name, ())))
