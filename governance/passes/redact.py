"""Second pass: every string of a trajectory's calls is redacted, together.

A conversation comes in many batches. When a new message gives a person or a secret away, the stored texts of its trajectory are
redacted again, together with the new calls. What changes is written into the rows that hold it. Marks of redaction
stay as they are, so that a second time changes nothing.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from governance.executor import InlineRedaction, RedactionExecutor, RedactionRequest
from governance.identifiers import Namer
from governance.passes.calls import AdmittedCall, EndedCall, RedactedCall, held
from governance.records import Decision, GovernanceRecord, Rewrite
from governance.redact.report import NamePart, RedactedMessage, RedactionScope
from governance.redact.trajectory import CallRedactor, TrajectoryRedaction
from governance.stored_content import KnownContent, StoredText, StoredTrajectory
from trajectory.canonical import JsonObject
from trajectory.errors import ConfigurationError, RetryableError
from trajectory.message import Message, OpaquePart, stored_message

type _NameParts = Mapping[tuple[str, str], tuple[NamePart, ...]]
"""Parts of names by tenant and trajectory."""
type _Row = tuple[str, str, str]
"""Tenant, table and name of a stored row."""


class RedactedBatch(NamedTuple):
    """What the pass makes of a batch."""

    calls: list[RedactedCall]
    """In the order of the admitted calls."""
    ended: list[EndedCall]
    """Calls that could not be redacted."""
    rewrites: list[Rewrite]
    """What becomes of stored rows that hold what was found now to be a name."""
    late_decisions: list[GovernanceRecord]
    """Decisions that say whom those rows name."""
    not_rewritten: dict[tuple[str, str], str]
    """Tenants and trajectories whose stored texts could not be redacted by whom they belong to, with the reason."""


class RedactionPass:
    """Redacts the calls of a batch, one trajectory at once."""

    def __init__(
        self, redactor: CallRedactor, executor: RedactionExecutor, namer: Namer, known: KnownContent
    ) -> None:
        """Redact trajectories by ``executor``.

        Args:
            redactor: for calls that are tried on their own.
            executor: where whole trajectories are redacted.
            namer: names redacted content.
            known: what the lake already holds.
        """
        self._redactor = redactor
        self._executor = executor
        self._namer = namer
        self._known = known

    def redact(
        self,
        admitted: Sequence[AdmittedCall],
        now: datetime,
        late: Mapping[tuple[str, str], tuple[str, ...]],
    ) -> RedactedBatch:
        """Redact calls, and the stored texts of their trajectories that these give away.

        Args:
            admitted: the calls.
            now: the moment of decisions.
            late: by tenant and trajectory the ids of people to whom stored calls belong, told now.
        """
        groups: dict[RedactionScope, list[AdmittedCall]] = defaultdict(list)
        for one in admitted:
            groups[RedactionScope(one.tenant_id, one.placed.trajectory_id)].append(one)
        name_parts = self._name_parts(admitted)
        together = self._redact_together(groups, name_parts)
        clean: dict[str, RedactedCall] = {}
        ended: list[EndedCall] = []
        for scope, group in groups.items():
            for one in group:
                try:
                    redaction = together.get(scope) or self._redact_alone(scope, one, name_parts)
                    clean[one.step_id] = _redacted(one, redaction)
                except Exception as error:  # noqa: BLE001 (fail closed: hold the call back)
                    ended.append(held(one, "redact", [_failure(error)]))
        not_rewritten: dict[tuple[str, str], str] = {}
        rows = self._rewrite_stored(clean, ended, now, late, not_rewritten)
        calls = [clean[one.step_id] for one in admitted if one.step_id in clean]
        return RedactedBatch(calls, ended, rows.rewrites, rows.decisions, not_rewritten)

    def _redact_together(
        self, groups: Mapping[RedactionScope, Sequence[AdmittedCall]], name_parts: _NameParts
    ) -> dict[RedactionScope, TrajectoryRedaction]:
        """Redact each trajectory at once; where that fails, each of its calls is tried on its own."""
        started: dict[RedactionScope, TrajectoryRedaction] = {}
        requests: list[RedactionRequest] = []
        for scope, group in groups.items():
            redaction = self._redaction(scope, name_parts)
            try:
                said = redaction.gather(one.placed.call for one in group)
            except Exception:  # noqa: BLE001, S112 (fail closed: tried, and held, call by call)
                continue
            started[scope] = redaction
            requests.append(RedactionRequest(redaction.scope, said))
        try:
            answers = self._executor.redact_all(requests)
        except ConfigurationError:  # a worker that has another policy, or none, by now
            answers = InlineRedaction(self._redactor).redact_all(requests)
        done: dict[RedactionScope, TrajectoryRedaction] = {}
        for (scope, redaction), answer in zip(started.items(), answers, strict=True):
            if answer is not None:
                redaction.fill(answer)
                done[scope] = redaction
        return done

    def _redact_alone(
        self, scope: RedactionScope, one: AdmittedCall, name_parts: _NameParts
    ) -> TrajectoryRedaction:
        redaction = self._redaction(scope, name_parts)
        redaction.prepare([one.placed.call])
        return redaction

    def _redaction(self, scope: RedactionScope, name_parts: _NameParts) -> TrajectoryRedaction:
        before = name_parts.get((scope.tenant_id, scope.trajectory_id), ())
        return TrajectoryRedaction(self._redactor, self._namer, scope, before)

    def _name_parts(self, admitted: Sequence[AdmittedCall]) -> _NameParts:
        """Return parts of names that earlier batches found, for calls that may say no more than them."""
        asked: dict[str, set[str]] = defaultdict(set)
        for one in admitted:
            placed = one.placed
            is_alone = placed.call.dispatch is not None or placed.context_is_delta
            if is_alone or (placed.step_index > 0 and placed.context_keep == 0):
                asked[one.tenant_id].add(placed.trajectory_id)
        return {
            (tenant, name): parts
            for tenant, names in asked.items()
            for name, parts in self._known.name_parts(tenant, names).items()
        }

    def _rewrite_stored(
        self,
        clean: dict[str, RedactedCall],
        ended: list[EndedCall],
        now: datetime,
        late: Mapping[tuple[str, str], tuple[str, ...]],
        not_rewritten: dict[tuple[str, str], str],
    ) -> "RewrittenRows":
        """Take what calls give away from the stored rows of their trajectories; hold what that fails for."""
        rows = RewrittenRows()
        groups: dict[str, dict[str, list[RedactedCall]]] = defaultdict(lambda: defaultdict(list))
        for one in clean.values():
            groups[one.tenant_id][one.placed.trajectory_id].append(one)
        for tenant, trajectory in late:
            groups[tenant].setdefault(trajectory, [])
        for tenant, trajectories in groups.items():
            asked = [
                name
                for name, group in trajectories.items()
                if (tenant, name) in late or any(map(_gives_away, group))
            ]
            stored = self._known.trajectories(tenant, asked) if asked else {}
            for name, texts in stored.items():
                group = trajectories[name]
                try:
                    redaction = self._of_stored(tenant, name, group, late.get((tenant, name), ()))
                    names = LateNames(self._known, self._namer, redaction, rows)
                    names.rewrite(texts, group, now)
                except RetryableError:
                    raise
                except Exception as error:  # noqa: BLE001 (fail closed: hold the calls back)
                    ended += [held(one, "redact", [_failure(error)]) for one in group]
                    for one in group:
                        del clean[one.step_id]
                    if (tenant, name) in late:
                        not_rewritten[tenant, name] = _failure(error)
        return rows

    def _of_stored(
        self, tenant: str, trajectory: str, group: Sequence[RedactedCall], people: tuple[str, ...]
    ) -> TrajectoryRedaction:
        """Return the redaction of the stored texts of a trajectory, which belongs to these people, too."""
        if not people:
            return group[0].redaction
        if group:
            scope = group[0].redaction.scope
        else:
            parts = self._known.name_parts(tenant, [trajectory]).get(trajectory, ())
            scope = RedactionScope(tenant, trajectory, name_parts=parts)
        scope = replace(scope, people=tuple(dict.fromkeys((*scope.people, *people))))
        return TrajectoryRedaction(self._redactor, self._namer, scope, scope.name_parts)


def _redacted(one: AdmittedCall, redaction: TrajectoryRedaction) -> RedactedCall:
    return RedactedCall(
        placed=one.placed,
        admission=one.admission,
        end_user=one.end_user,
        named=one.named,
        withheld=one.withheld,
        redaction=redaction,
        clean=redaction.clean(one.placed.call, one.admission.without),
    )


def _failure(error: Exception) -> str:
    return f"redaction:{type(error).__name__}"


def _gives_away(one: RedactedCall) -> bool:
    """Whether redaction found something in what a call adds to a trajectory that may be stored."""
    placed, clean = one.placed, one.clean
    if not (placed.step_index or placed.context_keep or placed.parent_step_id):
        return False
    new = clean.context if placed.context_is_delta else clean.context[placed.context_keep :]
    reports = [
        clean.fields.report,
        *(one.report for one in (*new, clean.output) if one is not None),
    ]
    return any(report.changed for report in reports)


class RewrittenRows:
    """What becomes of stored rows in one batch.

    Trajectories share rows, attempts at one task their first words. Each trajectory sees a row as those before it
    left it, and the row is written once.
    """

    def __init__(self) -> None:
        self._messages: dict[_Row, Message] = {}
        self._rewrites: dict[_Row, Rewrite] = {}
        self._decisions: dict[tuple[str, str], GovernanceRecord] = {}

    @property
    def rewrites(self) -> list[Rewrite]:
        """One for each row that changes."""
        return [*self._rewrites.values()]

    @property
    def decisions(self) -> list[GovernanceRecord]:
        """One for each step that holds such a row."""
        return [*self._decisions.values()]

    def as_left(self, tenant: str, text: StoredText) -> StoredText:
        """Return stored texts as they are by now; the same where nothing has changed."""
        message = self._messages.get((tenant, text.table, text.name))
        return text if message is None else text._replace(message=message)

    def decided(self, row: GovernanceRecord) -> GovernanceRecord:
        """Return the decision that holds by now, in place of the stored one."""
        return self._decisions.get((row.tenant_id, row.step_id), row)

    def add(
        self,
        messages: Mapping[_Row, Message],
        rewrites: Iterable[Rewrite],
        decisions: Iterable[GovernanceRecord],
    ) -> None:
        """Take what becomes of rows of one more trajectory."""
        self._messages |= messages
        for one in rewrites:
            row = (one.tenant_id, one.table, one.name)
            before = self._rewrites.get(row, one)
            self._rewrites[row] = replace(one, values={**before.values, **one.values})
        self._decisions |= {(row.tenant_id, row.step_id): row for row in decisions}


class LateNames:
    """Rewrites what is stored of one trajectory."""

    def __init__(
        self,
        known: KnownContent,
        namer: Namer,
        redaction: TrajectoryRedaction,
        rows: RewrittenRows,
    ) -> None:
        """Redact as a redaction of the trajectory does; what it changes is added to ``rows``."""
        self._known = known
        self._namer = namer
        self._redaction = redaction
        self._tenant = redaction.scope.tenant_id
        self._rows = rows

    def rewrite(
        self, stored: StoredTrajectory, group: Sequence[RedactedCall], now: datetime
    ) -> None:
        """Add what becomes of stored rows, and the decisions that name whom they hold.

        Args:
            stored: what is stored of the trajectory.
            group: its calls in this batch.
            now: the moment of the decisions.

        Raises:
            RedactionError: it cannot be told; none of the calls may be stored, and nothing was added.
        """
        calls = [one.placed.call for one in group]
        texts = [self._rows.as_left(self._tenant, text) for text in stored.texts]
        again = self._redaction.once_more(calls, [text.message for text in texts])
        changed = [
            (text, redacted)
            for text, redacted in zip(texts, again, strict=True)
            if redacted.message is not text.message
        ]
        changed = self._with_all_who_name(changed, texts)
        if not changed:
            return
        decisions = self._decisions(changed, now)
        rewrites = [self._rewrite(text, redacted.message) for text, redacted in changed]
        for one in (stored, *self._others(decisions, texts)):
            rewrites += self._tokens(one)
        messages = {
            (self._tenant, text.table, text.name): redacted.message for text, redacted in changed
        }
        self._rows.add(messages, rewrites, decisions)

    def _with_all_who_name(
        self, changed: Sequence[tuple[StoredText, RedactedMessage]], stored: Sequence[StoredText]
    ) -> list[tuple[StoredText, RedactedMessage]]:
        """Return what changed, each message with the steps of every trajectory that share it.

        A prompt that other trajectories share is left out. It comes from the operator, and one user's name must
        not change what everybody was told.
        """
        own = {text.name for text in stored if text.table == "steps"}
        asked = {text.name for text, _ in changed if text.table != "steps"}
        naming = self._known.naming(self._tenant, asked) if asked else {}
        return [
            (text._replace(step_ids=tuple(sorted({*text.step_ids, *steps}))), redacted)
            for text, redacted in changed
            for steps in [naming.get(text.name, set())]
            if not _is_prompt(text) or steps <= own
        ]

    def _rewrite(self, text: StoredText, message: Message) -> Rewrite:
        if text.table == "messages":
            parts = message.canonical_parts().decode("utf-8", "replace")
            values: JsonObject = {
                "role": message.role,
                "parts": parts,
                "name": message.name,
                "characters": len(parts),
                "content_id": self._namer.message_id(
                    self._tenant, stored_message(message.role, json.loads(parts), message.name)
                ),
            }
        else:
            values = _columns(text.message, message)
        return Rewrite(self._tenant, text.table, text.name, text.event_date, values)

    def _others(
        self, decisions: Iterable[GovernanceRecord], texts: Iterable[StoredText]
    ) -> Iterator[StoredTrajectory]:
        """Yield the other trajectories in which a message changed."""
        own = {text.name for text in texts if text.table == "steps"}
        names = {row.trajectory_id for row in decisions if row.step_id not in own}
        if names:
            yield from self._known.trajectories(self._tenant, names).values()

    def _tokens(self, stored: StoredTrajectory) -> Iterator[Rewrite]:
        """Yield the exact tokens, which decode to the text as it was, and the steps that name them."""
        for step_id, day in stored.tokens:
            yield Rewrite(self._tenant, "tokens", step_id, day, {})
            yield Rewrite(self._tenant, "steps", step_id, day, {"capture_level": "text"})

    def _decisions(
        self, changed: Sequence[tuple[StoredText, RedactedMessage]], now: datetime
    ) -> list[GovernanceRecord]:
        """Return the decisions on the steps that hold what was changed, with whom it names."""
        people: dict[str, dict[str, None]] = {}
        for text, redacted in changed:
            for step_id in text.step_ids:
                people.setdefault(step_id, {}).update(dict.fromkeys(redacted.subjects))
        rows = map(self._rows.decided, self._known.decisions(self._tenant, people))
        return [
            replace(
                row,
                decided_at=row.decided_again(now),
                decision=Decision.REDACT.value if row.decision == Decision.ALLOW else row.decision,
                subjects=tuple(dict.fromkeys((*row.subjects, *people[row.step_id]))),
            )
            for row in rows
        ]


def _is_prompt(text: StoredText) -> bool:
    return text.table == "harnesses" or text.message.role in ("system", "developer")


def _columns(was: Message, now: Message) -> JsonObject:
    """Return the columns that changed."""
    (old,), (new,) = was.parts, now.parts
    if not (isinstance(old, OpaquePart) and isinstance(new, OpaquePart)):
        raise TypeError("a stored row came back as something else")
    if not (isinstance(old.value, dict) and isinstance(new.value, dict)):
        raise TypeError("a stored row came back as something else")
    return {key: value for key, value in new.value.items() if value != old.value.get(key)}
