"""Text that comes back in another conversation: sub-agents, compaction, hand-offs, title makers.

A root whose own words quote an open trajectory belongs to it although no prefix is shared. Texts
are recognised by *sketches*: of all runs of eight words the four with the smallest hash. A text
that quotes another one in full holds all of its sketch, wherever the quotation stands.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from trajectory.assembly.fingerprint import Fingerprinter
from trajectory.assembly.index import StateIndex
from trajectory.assembly.state import PendingCall, StepNode, TrajectoryNode
from trajectory.canonical import JsonValue
from trajectory.message import Message, TextPart

AUXILIARY_WINDOW_SECONDS = 5.0
"""How near a title maker starts to the opening that it quotes, or to the end of the first answer."""

_RUN = 8
_SKETCH = 4
_WORDS_LIMIT = 4000
_SHORTEST = 12
_SHARE = 0.75


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


def sketch(maker: Fingerprinter, scope: str, text: str) -> list[str]:
    """Return the sketch of a text; empty when it is too short to tell anything."""
    runs = _runs(text)
    chosen = sorted(set(runs), key=lambda run: (zlib.crc32(run.encode("utf-8", "replace")), run))
    return [maker.short("echo", scope, run) for run in chosen[:_SKETCH]]


def _runs(text: str) -> list[str]:
    words = text.split(None, _WORDS_LIMIT)[:_WORDS_LIMIT]
    if len(words) > _RUN:
        return [" ".join(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1)]
    whole = " ".join(words)
    return [whole] if len(whole) >= _SHORTEST else []


def _all_runs(texts: Iterable[str]) -> set[str]:
    runs: set[str] = set()
    for text in texts:
        runs.update(_runs(text))
        for line in text.splitlines():
            words = line.split()
            if len(words) <= _RUN:
                runs.update(_runs(line))
    return runs


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


def find_echo(
    index: StateIndex,
    maker: Fingerprinter,
    context: Sequence[Message],
    *,
    scope: str,
    system: str,
    has_tools: bool,
    started: float,
) -> Echo | None:
    """Return the open trajectory that a root quotes, by the strongest kind of quotation."""
    texts = opening_texts(context)
    names = {maker.short("echo", scope, run) for run in _all_runs(texts)}
    if not names:
        return None
    if asked := _quoted_orders(index, names, started):
        index.drop_orders(*asked)
        return Echo(EchoKind.SUBAGENT, _node(index, asked[0]), asked[0])
    if answered := _quoted_answer(index, names, started):
        node = _node(index, answered)
        kind = EchoKind.COMPACTION if answered.system == system else EchoKind.HANDOFF
        return Echo(kind, node, answered)
    return _quoted_opening(
        index,
        names,
        words=sum(len(text.split()) for text in texts),
        system=system,
        has_tools=has_tools,
        started=started,
    )


def _node(index: StateIndex, step: StepNode) -> TrajectoryNode:
    return index.state.trajectories[step.trajectory_id]


def _quoted_orders(
    index: StateIndex, names: set[str], started: float
) -> tuple[StepNode, PendingCall] | None:
    candidates = [
        (step, pending)
        for step, pending in _under(index.by_orders, names)
        if step.ended <= started and _share(pending.orders, names) >= _SHARE
    ]
    return max(candidates, key=lambda item: (item[0].ended, item[0].step_id), default=None)


def _quoted_answer(index: StateIndex, names: set[str], started: float) -> StepNode | None:
    candidates = [
        step
        for step in _under(index.by_answer, names)
        if step.ended <= started and step.children == 0 and _share(step.answer, names) >= _SHARE
    ]
    return max(candidates, key=lambda step: (step.ended, step.step_id), default=None)


def _quoted_opening(
    index: StateIndex,
    names: set[str],
    *,
    words: int,
    system: str,
    has_tools: bool,
    started: float,
) -> Echo | None:
    """Return the trajectory beside which this root is auxiliary, or whose auxiliary began it.

    Attempts at one task open alike too: the two must differ in their system prompt and stand
    close together in time; the one without tools, or with words around the quotation, stands
    beside the other.
    """
    candidates = [
        node
        for node in _under(index.by_opening, names)
        if _share(node.opening, names) >= 0.5
        and _distance(node, started) <= AUXILIARY_WINDOW_SECONDS
        and node.system != system
        and (node.has_tools != has_tools or (not has_tools and node.words != words))
    ]
    fitting = [
        (node, aside)
        for node in candidates
        if not _is_taken(node, system, aside := _is_aside(node, words, has_tools=has_tools))
    ]
    if not fitting:
        return None
    node, aside = max(
        fitting, key=lambda item: (-_distance(item[0], started), item[0].trajectory_id)
    )
    node.asides.append(system if aside else node.system)
    if not aside:
        node.system, node.words = system, words
    return Echo(EchoKind.AUXILIARY, node, None, opening_is_auxiliary=not aside)


def _distance(node: TrajectoryNode, started: float) -> float:
    return min(abs(started - node.started), abs(started - node.answered))


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
