"""Rebuilds what each step saw: deltas over the parent chain become whole conversations."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from json import loads
from typing import Any

import pyarrow as pa

from trajectory.message import Message, stored_message

type RunSql = Callable[[str, Sequence[Any] | Mapping[str, Any] | None], pa.Table]
"""Runs SQL with parameters, as :meth:`lakehouse.lake.Lake.query` does."""

type StepKey = tuple[str, str]
"""(tenant_id, step_id)"""


@dataclass(frozen=True, slots=True)
class StepConversation:
    """One step's whole context and its answer, redacted as stored."""

    tenant_id: str
    trajectory_id: str
    step_id: str
    step_index: int
    context_ids: tuple[str, ...]
    """Message ids of the whole context, in order."""
    context: tuple[Message, ...] = field(repr=False)
    output: Message | None = field(repr=False)
    complete: bool = True
    """False when a message or an ancestor is not stored: then the context has holes."""


@dataclass(frozen=True, slots=True)
class StepDelta:
    """How a step's conversation is stored."""

    tenant_id: str
    trajectory_id: str
    step_id: str
    step_index: int
    parent_step_id: str | None
    context_keep: int
    context_message_ids: tuple[str, ...]
    output_message_id: str | None
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class _StoredConversation:
    ids: tuple[str, ...]
    complete: bool


def rebuild(deltas: Mapping[StepKey, StepDelta]) -> dict[StepKey, tuple[tuple[str, ...], bool]]:
    """Return the whole context of every step as message ids, and whether nothing is missing.

    A parent may stand anywhere in ``deltas``; chains of any length are walked without recursion.
    """
    seen: dict[StepKey, _StoredConversation] = {}
    for key in deltas:
        chain = _unseen_chain(key, deltas, seen)
        for link in reversed(chain):
            seen[link] = _context(deltas[link], deltas, seen)
    return {key: (found.ids, found.complete) for key, found in seen.items()}


def _unseen_chain(
    key: StepKey, deltas: Mapping[StepKey, StepDelta], seen: Mapping[StepKey, _StoredConversation]
) -> list[StepKey]:
    chain: list[StepKey] = []
    met: set[StepKey] = set()
    here: StepKey | None = key
    while here is not None and here in deltas and here not in seen and here not in met:
        chain.append(here)
        met.add(here)
        delta = deltas[here]
        parent = delta.parent_step_id
        needed = parent is not None and delta.context_keep > 0
        here = (delta.tenant_id, parent) if needed and parent is not None else None
    return chain


def _context(
    delta: StepDelta,
    deltas: Mapping[StepKey, StepDelta],
    seen: Mapping[StepKey, _StoredConversation],
) -> _StoredConversation:
    if delta.context_keep == 0:
        return _StoredConversation(delta.context_message_ids, complete=True)
    above = (delta.tenant_id, delta.parent_step_id or "")
    parent = seen.get(above)
    if parent is None:
        return _StoredConversation(delta.context_message_ids, complete=False)
    output = deltas[above].output_message_id
    whole = (*parent.ids, output) if output is not None else parent.ids
    kept = whole[: delta.context_keep]
    complete = parent.complete and len(kept) == delta.context_keep
    return _StoredConversation(kept + delta.context_message_ids, complete)


_COLUMNS = (
    "tenant_id, trajectory_id, step_id, step_index, parent_step_id, context_keep, "
    "context_message_ids, output_message_id, started_at"
)
_MANY = "IN (SELECT unnest(?::VARCHAR[]))"
_FEW = 200
"""Up to here the ids stand in the statement itself, so that bloom filters can skip row groups."""
_AROUND = timedelta(hours=1)
"""Most messages of a step are first stored near its start; files are skipped by that."""


def load(
    ask: RunSql,
    *,
    step_ids: Sequence[str] | None = None,
    trajectory_ids: Sequence[str] | None = None,
) -> dict[str, StepConversation]:
    """Return the conversations of the steps named, or of all steps of the trajectories named.

    Args:
        ask: runs SQL over the lake.
        step_ids: steps; their ancestors are read as needed.
        trajectory_ids: trajectories; every step of them is returned.
    """
    if step_ids is not None:
        found = ask(
            "SELECT DISTINCT trajectory_id FROM steps WHERE step_id IN (SELECT unnest(?::VARCHAR[]))",
            [list(step_ids)],
        )
        trajectory_ids = found["trajectory_id"].to_pylist()
    wanted = None if step_ids is None else set(step_ids)
    deltas = _deltas(ask, "trajectory_id", list(trajectory_ids or ()))
    own = set(deltas)
    _add_ancestors(ask, deltas)
    contexts = rebuild(deltas)
    chosen = sorted(
        (
            delta
            for key, delta in deltas.items()
            if key in own and (wanted is None or key[1] in wanted)
        ),
        key=lambda delta: (delta.tenant_id, delta.trajectory_id, delta.step_index, delta.step_id),
    )
    messages = _messages(ask, _named(chosen, contexts), _window(deltas.values()))
    return {
        delta.step_id: _assembled(delta, *contexts[delta.tenant_id, delta.step_id], messages)
        for delta in chosen
    }


def contexts_of(ask: RunSql, trajectory_ids: Sequence[str]) -> dict[StepKey, tuple[str, ...]]:
    """Return the whole context of each step of these trajectories by the ids of its messages.

    Steps whose context has holes are left out.
    """
    deltas = _deltas(ask, "trajectory_id", list(trajectory_ids))
    own = set(deltas)
    _add_ancestors(ask, deltas)
    rebuilt = rebuild(deltas)
    return {key: ids for key in own for ids, complete in [rebuilt[key]] if complete}


def _deltas(ask: RunSql, column: str, values: list[str]) -> dict[StepKey, StepDelta]:
    if not values:
        return {}
    listed = f"IN ({', '.join('?' * len(values))})" if len(values) <= _FEW else _MANY
    table = ask(
        f"SELECT {_COLUMNS} FROM steps WHERE {column} {listed}",  # noqa: S608
        values if len(values) <= _FEW else [values],
    )
    columns = [table[name].to_pylist() for name in _COLUMNS.split(", ")]
    return {
        (row[0], row[2]): StepDelta(*row[:6], tuple(row[6] or ()), *row[7:])  # type: ignore[call-arg]
        for row in zip(*columns, strict=True)
    }


def _add_ancestors(ask: RunSql, deltas: dict[StepKey, StepDelta]) -> None:
    """Read parents that stand in other trajectories, until none is missing or none is found."""
    asked: set[str] = set()
    while True:
        missing = {
            delta.parent_step_id
            for delta in deltas.values()
            if delta.context_keep > 0
            and delta.parent_step_id is not None
            and (delta.tenant_id, delta.parent_step_id) not in deltas
        } - asked
        if not missing:
            return
        asked |= missing
        deltas.update(_deltas(ask, "step_id", sorted(missing)))


def _named(
    chosen: Iterable[StepDelta], contexts: Mapping[StepKey, tuple[tuple[str, ...], bool]]
) -> set[str]:
    names: set[str] = set()
    for delta in chosen:
        names.update(contexts[delta.tenant_id, delta.step_id][0])
        if delta.output_message_id is not None:
            names.add(delta.output_message_id)
    return names


def _window(deltas: Iterable[StepDelta]) -> tuple[datetime, datetime] | None:
    times = [delta.started_at for delta in deltas if delta.started_at is not None]
    return (min(times) - _AROUND, max(times) + _AROUND) if times else None


def _messages(
    ask: RunSql, names: set[str], window: tuple[datetime, datetime] | None
) -> dict[tuple[str, str], Message]:
    """Read messages, first where they probably are, then the rest wherever they are."""
    messages: dict[tuple[str, str], Message] = {}
    if window is not None:
        near = "AND first_seen_at BETWEEN ? AND ?"
        messages.update(_read_messages(ask, sorted(names), near, list(window)))
        names = names - {name for _, name in messages}
    messages.update(_read_messages(ask, sorted(names), "", []))
    return messages


def _read_messages(
    ask: RunSql, names: list[str], condition: str, values: list[Any]
) -> dict[tuple[str, str], Message]:
    if not names:
        return {}
    listed = f"IN ({', '.join('?' * len(names))})" if len(names) <= _FEW else _MANY
    table = ask(
        "SELECT tenant_id, message_id, role, parts, name FROM messages "  # noqa: S608
        f"WHERE message_id {listed} {condition}",
        [*(names if len(names) <= _FEW else [names]), *values],
    )
    messages: dict[tuple[str, str], Message] = {}
    for batch in table.to_batches(max_chunksize=8192):
        columns = [column.to_pylist() for column in batch.columns]
        for tenant, named, role, parts, name in zip(*columns, strict=True):
            if (tenant, named) not in messages:
                stored = stored_message(role, loads(parts), name)
                messages[tenant, named] = Message.from_json(stored)
    return messages


def _assembled(
    delta: StepDelta,
    ids: tuple[str, ...],
    complete: bool,
    messages: Mapping[tuple[str, str], Message],
) -> StepConversation:
    tenant, answer = delta.tenant_id, delta.output_message_id
    context = tuple(messages[tenant, name] for name in ids if (tenant, name) in messages)
    output = None if answer is None else messages.get((tenant, answer))
    whole = complete and len(context) == len(ids) and (answer is None or output is not None)
    return StepConversation(
        tenant_id=tenant,
        trajectory_id=delta.trajectory_id,
        step_id=delta.step_id,
        step_index=delta.step_index,
        context_ids=ids,
        context=context,
        output=output,
        complete=whole,
    )
