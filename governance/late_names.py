"""Names that are told later: they go from what is stored of their trajectory already.

A conversation comes in many batches. When a new message gives somebody or something away, the stored
texts of its trajectory are redacted once more, together with all that the new calls say; what changes
is written into the rows that hold it. Marks of redaction stay as they are, so that a second time
changes nothing.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from governance.identifiers import Namer
from governance.judged import Judged, found_in
from governance.records import Decision, GovernanceRecord, Rewrite
from governance.redact.report import Redacted
from governance.redact.trajectory import TrajectoryRedaction
from governance.stored_content import KnownContent, StoredText, StoredTrajectory
from trajectory.canonical import JsonObject
from trajectory.message import Message, OpaquePart, stored_message


def gives_away(one: Judged) -> bool:
    """Whether redaction found something in what a call adds to a trajectory that may be stored."""
    placed, clean = one.placed, one.clean
    if clean is None or not (placed.step_index or placed.context_keep or placed.parent_step_id):
        return False
    new = clean.context if placed.context_is_delta else clean.context[placed.context_keep :]
    return bool(found_in(clean, new).report.counts)


class LateNames:
    """Rewrites what is stored of one trajectory."""

    def __init__(self, known: KnownContent, namer: Namer, redaction: TrajectoryRedaction) -> None:
        """Redact as a redaction of the trajectory does."""
        self._known = known
        self._namer = namer
        self._redaction = redaction
        self._tenant = redaction.scope.tenant_id

    def rewrites(
        self, stored: StoredTrajectory, group: Sequence[Judged], now: datetime
    ) -> tuple[list[Rewrite], list[GovernanceRecord]]:
        """Return what becomes of stored rows, and the decisions that name whom they hold.

        Args:
            stored: what is stored of the trajectory.
            group: its calls in this batch.
            now: the moment of the decisions.

        Raises:
            RedactionError: it cannot be told; none of the calls may be stored.
        """
        calls = [one.placed.call for one in group]
        again = self._redaction.once_more(calls, [text.message for text in stored.texts])
        changed = [
            (text, redacted)
            for text, redacted in zip(stored.texts, again, strict=True)
            if redacted.message is not text.message
        ]
        changed = self._with_all_who_name(changed, stored)
        if not changed:
            return [], []
        rewrites = [self._rewrite(text, redacted.message) for text, redacted in changed]
        return [*rewrites, *self._tokens(stored)], self._decisions(changed, now)

    def _with_all_who_name(
        self, changed: Sequence[tuple[StoredText, Redacted]], stored: StoredTrajectory
    ) -> list[tuple[StoredText, Redacted]]:
        """Return what changed, each message with the steps of every trajectory that share it.

        A prompt that other trajectories share is left out: what it says comes from the operator, and
        one user's name must not change what everybody was told.
        """
        own = {text.name for text in stored.texts if text.table == "steps"}
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

    def _tokens(self, stored: StoredTrajectory) -> Iterator[Rewrite]:
        """Yield the exact tokens, which decode to the text as it was, and the steps that name them."""
        for step_id, day in stored.tokens:
            yield Rewrite(self._tenant, "tokens", step_id, day, {})
            yield Rewrite(self._tenant, "steps", step_id, day, {"capture_level": "text"})

    def _decisions(
        self, changed: Sequence[tuple[StoredText, Redacted]], now: datetime
    ) -> list[GovernanceRecord]:
        """Return the decisions on the steps that hold what was changed, with whom it names."""
        people: dict[str, dict[str, None]] = {}
        for text, redacted in changed:
            for step_id in text.step_ids:
                people.setdefault(step_id, {}).update(dict.fromkeys(redacted.subjects))
        rows = self._known.decisions(self._tenant, people)
        return [
            replace(
                row,
                decided_at=now,
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
