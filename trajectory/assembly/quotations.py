"""Text that comes back in another conversation: sub-agents, compaction, hand-offs, title makers.

A root whose own words quote an open trajectory belongs to it although no prefix is shared. Texts
are recognised by sketches.

A *sketch* is made of all runs of eight words: the four with the smallest hash. A text that quotes
another one in full holds all of its sketch, wherever the quotation stands. A name for the whole
text stands beside the runs: it tells texts apart that differ in one word.
"""

import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from trajectory.assembly.call_facts import Fact
from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.assembly.graph import SUBAGENT_CALL, StateIndex
from trajectory.assembly.nodes import PendingCall, StepNode, TrajectoryNode
from trajectory.canonical import JsonValue
from trajectory.message import Message, TextPart

AUXILIARY_WINDOW_SECONDS = 5.0
"""How near a title maker starts to the opening that it quotes, or to the end of the first answer."""

_ORDERS_SECONDS = 600.0
"""How long after its tool call was answered a sub-agent may begin."""
_SHARE = 0.75
_AFTERWARDS_SECONDS = 0.5

type Fits = Callable[[StepNode], bool]


class EchoKind(StrEnum):
    """What the quotation means; the value is the link's kind."""

    SUBAGENT = SUBAGENT_CALL
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


def find_echo(
    index: StateIndex, fact: Fact, *, within: TrajectoryNode | None = None
) -> Echo | None:
    """Return the open trajectory that a root quotes, by the strongest kind of quotation.

    What is quoted counts as taken, but not by a failed attempt: its repetition quotes again.
    When it is known to which trajectory the root belongs, only that one is looked ``within``.
    """
    failed, system = bool(fact.failure), fact.system

    def fits(step: StepNode) -> bool:
        # A step's own end may come later: sub-agents start while the answer is streaming.
        inside = within is None or step.trajectory_id == within.trajectory_id
        return inside and step.started <= fact.started

    fact.closer()
    if told := _quoted_call(index, fact.quoted, fits):
        kind = EchoKind.COMPACTION if told.system == system else EchoKind.HANDOFF
        return Echo(kind, _node(index, told), told)
    if not fact.names:
        return None
    names = set(fact.names)
    if asked := _quoted_orders(index, names, fits, fact.started):
        if not failed:
            index.drop_orders(*asked)
        return Echo(EchoKind.SUBAGENT, _node(index, asked[0]), asked[0])
    if answered := _quoted_answer(index, names, fits, fact.started):
        node = _node(index, answered)
        kind = EchoKind.COMPACTION if _shares_system(index, answered, system) else EchoKind.HANDOFF
        return Echo(kind, node, answered)
    echo = _quoted_opening(index, fact, names, within=within)
    if echo is None or failed:
        return echo
    node = echo.node
    node.asides.append(node.system if echo.opening_is_auxiliary else system)
    if echo.opening_is_auxiliary:
        node.system, node.words = system, fact.words
        index.replace_opening(node, list(fact.opening))
    return echo


def _shares_system(index: StateIndex, answered: StepNode, system: str) -> bool:
    """Tell whether an answer, or the conversation that it sums up, had this system prompt."""
    before = index.steps.get(answered.parent_id or "")
    return answered.system == system or (before is not None and before.system == system)


def _node(index: StateIndex, step: StepNode) -> TrajectoryNode:
    return index.state.trajectories[step.trajectory_id]


def _quoted_call(index: StateIndex, ids: Sequence[str], fits: Fits) -> StepNode | None:
    """Return the latest step whose tool call's id stands in the words of a written-out history."""
    candidates = [step for name in ids for step in index.calls(name) if fits(step)]
    if len({step.trajectory_id for step in candidates}) != 1:
        return None
    return max(candidates, key=lambda step: (step.ended, step.step_id))


def _quoted_orders(
    index: StateIndex, names: set[str], fits: Fits, started: float
) -> tuple[StepNode, PendingCall] | None:
    candidates = [
        (step, pending)
        for step, pending in index.orders(names)
        if fits(step)
        and _share(pending.orders, names) >= _SHARE
        and (not pending.told or started - pending.told <= _ORDERS_SECONDS)
    ]
    for step, _ in candidates:
        index.touch(step.trajectory_id)
    return max(
        candidates,
        key=lambda item: (
            _share(item[1].orders, names),
            not item[1].told,
            item[0].ended,
            item[0].step_id,
            item[1].call,
        ),
        default=None,
    )


def _quoted_answer(
    index: StateIndex, names: set[str], fits: Fits, started: float
) -> StepNode | None:
    candidates = [
        step
        for step in index.answers(names)
        if fits(step)
        and step.ended <= started
        and step.children == 0
        and _share(step.answer, names) >= _SHARE
    ]
    for step in candidates:
        index.touch(step.trajectory_id)
    return max(
        candidates,
        key=lambda step: (_share(step.answer, names), step.ended, step.step_id),
        default=None,
    )


def _quoted_opening(
    index: StateIndex, fact: Fact, names: set[str], *, within: TrajectoryNode | None
) -> Echo | None:
    """Return the trajectory beside which this root is auxiliary, or whose auxiliary began it.

    Attempts at one task open alike too: the two must differ (see :func:`_differ`) and stand close
    together in time; the one without tools, or with words around the quotation, stands beside
    the other.
    """
    near = [
        node
        for node in index.open_with(names)
        # Two agents' calls stand beside each other and stay so, whatever comes.
        if not (node.has_tools and fact.has_tools)
        and (node is within if within is not None else is_near(node, fact.started))
        and _likeness(node, names)[1] >= 0.5
    ]
    for node in near:
        index.touch(node.trajectory_id)
    fitting = [
        (node, aside)
        for node in near
        if _differ(node, fact) and not _is_taken(node, fact.system, aside := _is_aside(node, fact))
    ]
    if not fitting:
        return None
    node, aside = max(
        fitting,
        key=lambda item: (
            *_likeness(item[0], names),
            -_distance(item[0], fact.started),
            item[0].trajectory_id,
        ),
    )
    return Echo(EchoKind.AUXILIARY, node, None, opening_is_auxiliary=not aside)


def _likeness(node: TrajectoryNode, names: set[str]) -> tuple[bool, float]:
    """Return whether an opening is quoted word for word, and the best share of a sketch."""
    return max((whole in names, _share(runs, names)) for whole, *runs in node.opening)


def is_near(node: TrajectoryNode, started: float) -> bool:
    """Tell whether a call starts near the opening of a trajectory, or the end of its first answer."""
    apart = min(abs(started - node.started), abs(started - node.answered))
    return apart <= AUXILIARY_WINDOW_SECONDS


def _differ(node: TrajectoryNode, fact: Fact) -> bool:
    """Tell whether two roots differ as an agent's call and an auxiliary one do."""
    tools, length = node.has_tools != fact.has_tools, node.words != fact.words
    if node.system == fact.system:
        return tools and length
    return tools or (not fact.has_tools and length)


def _distance(node: TrajectoryNode, started: float) -> float:
    """Return how far apart in time; calls that start together are nearer than one after the other."""
    return min(abs(started - node.started), abs(started - node.answered) + _AFTERWARDS_SECONDS)


def _is_aside(node: TrajectoryNode, fact: Fact) -> bool:
    """Tell whether the root stands beside the trajectory rather than the other way round."""
    if node.has_tools != fact.has_tools:
        return node.has_tools
    return fact.words > node.words


def _is_taken(node: TrajectoryNode, system: str, aside: bool) -> bool:
    """Tell whether the trajectory has this kind of auxiliary call, or the agent's call, already."""
    return system in node.asides if aside else bool(node.asides)


def _share(wanted: Sequence[str], names: set[str]) -> float:
    return sum(name in names for name in wanted) / len(wanted) if wanted else 0.0


_RUN = 8
_SKETCH = 4
_WORDS_LIMIT = 4000
_SHORTEST = 12
_EXTENTS = 6
_QUOTED_LIMIT = 200_000
_IDS_LIMIT = 256
_NAMES_LIMIT = 1024
_NAME = 8
_OPENINGS = 6
_ID = re.compile(r"[A-Za-z][A-Za-z0-9]*[_-][A-Za-z0-9_-]{11,64}")
_SUMMARY = re.compile(r"<summary>(.*)</summary>", re.DOTALL)
_WHOLE = "\0whole\0"


def sketch(maker: Fingerprinter, scope: str, text: str) -> list[str]:
    """Return the sketch of a text; empty when it is too short to tell anything."""
    return [_name(maker, scope, run) for run in _smallest(set(_runs(text)), _SKETCH)]


def openings(
    maker: Fingerprinter, scope: str, texts: Sequence[str], *, has_tools: bool
) -> list[list[str]]:
    """Return name and sketch of each stretch of the opening words that others may quote.

    A call without tools may itself quote an opening. What it may quote is kept too, so the agent's call is
    recognised when it comes later.
    """
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


def answer_sketch(maker: Fingerprinter, scope: str, text: str) -> list[str]:
    """Return the sketch of an answer; of a summary behind an analysis, only the summary comes back."""
    summary = _SUMMARY.search(text)
    return sketch(maker, scope, summary[1] if summary else text)


def whole_name(maker: Fingerprinter, scope: str, text: str) -> str:
    """Return the name of a whole text, white space aside."""
    return _name(maker, scope, _WHOLE + " ".join(text.split(None, _WORDS_LIMIT)))


def text_names(maker: Fingerprinter, scope: str, texts: Iterable[str]) -> set[str]:
    """Return the names of what these texts hold: runs, short lines, and extents as a whole.

    Of long texts the runs and lines with the smallest checksums are enough: sketches are made of
    the smallest too.
    """
    found: set[str] = set()
    whole: set[str] = set()
    for text in texts:
        found.update(_runs(text))
        for line in text.splitlines():
            if len(line.split()) <= _RUN:
                found.update(_runs(line))
        whole.update(_WHOLE + " ".join(part.split(None, _WORDS_LIMIT)) for part in extents(text))
    chosen = found if len(found) <= _NAMES_LIMIT else set(_smallest(found, _NAMES_LIMIT))
    return {_name(maker, scope, run) for run in chosen | whole}


def extents(text: str) -> list[str]:
    """Return the stretches of a text that may be a quotation: what orders and marks leave over.

    The whole, what follows the first line, the first empty line or the first colon, each also
    without its last line.
    """
    starts = [text, *(text.partition(mark)[2] for mark in ("\n", "\n\n", ": "))]
    found = [*starts, *(start.rpartition("\n")[0] for start in starts)]
    sound = (part.strip() for part in found)
    return list(dict.fromkeys(part for part in sound if len(part) >= _SHORTEST))[:_EXTENTS]


def quoted_ids(maker: Fingerprinter, scope: str, context: Sequence[Message]) -> list[str]:
    """Return the names of all that looks like the id of a tool call in the words of a context."""
    found: dict[str, None] = {}
    for message in context:
        found.update(dict.fromkeys(_ID.findall(message.text()[:_QUOTED_LIMIT])))
    return [maker.short("call", scope, name) for name in list(found)[-_IDS_LIMIT:]]


def opening_texts(context: Sequence[Message]) -> list[str]:
    """Return the user's texts before the model's first turn."""
    texts: list[str] = []
    for message in context:
        if message.role == "assistant":
            break
        if message.role == "user":
            texts.extend(part.text for part in message.parts if isinstance(part, TextPart))
    return texts


def argument_text(value: JsonValue) -> str:
    """Return the longest string in a tool call's arguments: a sub-agent's orders, if any."""
    longest = ""
    level: list[JsonValue] = [value]
    while level:
        item = level.pop()
        if isinstance(item, str) and len(item) > len(longest):
            longest = item
        elif isinstance(item, dict):
            level.extend(item.values())
        elif isinstance(item, list):
            level.extend(item)
    return longest


def _name(maker: Fingerprinter, scope: str, text: str) -> str:
    return maker.short("echo", scope, text)[:_NAME]


def _smallest(runs: set[str], count: int) -> list[str]:
    """Return the runs with the smallest checksums."""
    checked = sorted((zlib.crc32(run.encode("utf-8", "replace")), run) for run in runs)
    return [run for _, run in checked[:count]]


def _runs(text: str) -> list[str]:
    words = text.split(None, _WORDS_LIMIT)[:_WORDS_LIMIT]
    if len(words) > _RUN:
        return [" ".join(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1)]
    whole = " ".join(words)
    return [whole] if len(whole) >= _SHORTEST else []
