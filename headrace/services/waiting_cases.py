"""Quarantine cases that wait for no person: before each batch, those go on whose answer is there.

A call waits for the consent service, or for an earlier call of its conversation that waits for it; a shadow waits
for the call of which it got a copy.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice

from governance.audit import GOVERNOR
from governance.consent import (
    AWAITS_ANSWER,
    AWAITS_CONVERSATION,
    ConsentLookup,
    EndUserLookup,
    NoAnswerError,
    ask_about,
)
from governance.passes.shadows import AWAITS_CALL, judged_lines
from governance.records import Disposition, QuarantineRecord
from governance.redact.pseudonym import subject_id
from headrace.app.context import AppContext
from headrace.govern.quarantine_store import kept_as
from headrace.services.quarantine import Case, cases, content_of, release
from proxy.spool import SpoolUnavailableError
from trajectory.dialects.hints import with_people
from trajectory.dialects.registry import Dialect
from trajectory.errors import ConfigurationError, RetryableError
from trajectory.exchange import Exchange
from trajectory.reader import read_records

_MOST = 200
"""Cases that go on in one round, of each kind."""


class WaitingCases:
    """Writes held calls into the spool again once what they wait for is there; they are judged anew.

    Promise: an answer that does not come stalls nothing. A round ends at the first question without one, and asks
    about that call last from then on.
    """

    def __init__(
        self, app: AppContext, consents: ConsentLookup, dialects: Sequence[Dialect] = ()
    ) -> None:
        """Look after the cases of an installation.

        Args:
            app: the installation.
            consents: asked about end users, where it is an ``EndUserLookup``.
            dialects: what the settings add to the dialects that everybody knows.
        """
        self._app = app
        self._content = content_of(app)
        self._known = app.lake.known_content()
        self._consents = consents
        self._dialects = dialects
        self._cases: dict[str, Case] | None = None
        """By their ids, in the order in which they are looked at; None before the lake was asked."""

    def note(self, held: Iterable[QuarantineRecord]) -> None:
        """Take note of what a batch held back."""
        if self._cases is not None:
            self._cases |= {row.quarantine_id: asdict(row) for row in held if _waits(row.reason)}

    def go_on(self) -> None:
        """Write into the spool again what waits for nothing any more, as far as there is room.

        Raises:
            RetryableError: the lake or the folder of the spool cannot be used; nothing was lost.
        """
        waiting = self._waiting()
        due = [
            *self._answered(waiting),
            *self._of_answered_conversations(waiting),
            *self._of_judged_calls(waiting),
        ]
        if not due:
            return
        try:
            released = release(self._app, due, GOVERNOR)
        except SpoolUnavailableError:
            return  # the batch makes room, and a later round tries again
        except ConfigurationError as error:
            raise RetryableError(str(error)) from error
        for row in released:
            waiting.pop(row["quarantine_id"])
        if len(released) < len(due):
            # Others closed some, or there was no room for them: they are looked up.
            self._cases = None

    def _waiting(self) -> dict[str, Case]:
        """Return the cases that wait; those whose content is gone were closed, or rested too long."""
        if self._cases is None:
            found = sorted(cases(self._app), key=lambda row: row["started_at"])
            self._cases = {row["quarantine_id"]: row for row in found if _waits(row["reason"])}
        if self._cases:
            there = self._content.names()
            self._cases = {name: row for name, row in self._cases.items() if kept_as(row) in there}
        return self._cases

    def _answered(self, waiting: dict[str, Case]) -> list[Case]:
        """Return the cases about whose end users the service answers now."""
        asked = [row for row in waiting.values() if row["reason"] == AWAITS_ANSWER][:_MOST]
        if asked:
            self._consents.refresh()
        answered = []
        for row in asked:
            exchange = self._whole(row)
            try:
                if exchange is None or not self._ask(exchange, row):
                    # It was changed, or nothing that is kept names the end user: a person has to look at it.
                    waiting[row["quarantine_id"]] = waiting.pop(row["quarantine_id"])
                    continue
            except NoAnswerError:
                waiting[row["quarantine_id"]] = waiting.pop(row["quarantine_id"])
                break
            answered.append(row)
        return answered

    def _ask(self, exchange: Exchange, case: Case) -> bool:
        """Ask about whom a held call's exchange names, or its trace; return whether one of them names its end user."""
        if not isinstance(self._consents, EndUserLookup):
            return True
        note = self._content.notes.of(case["step_id"])
        calls, _ = read_records([exchange], self._dialects)
        for one in calls:
            call = with_people(one, (note and note.people) or ())
            if call.end_user and call.exchange.exchange_id == case["exchange_id"]:
                tenant = call.exchange.client.tenant_id
                key = self._app.secrets.derive(b"pseudonym")
                ask_about(self._consents, tenant, call.people, partial(subject_id, key, tenant))
                return True
        return False

    def _of_answered_conversations(self, waiting: dict[str, Case]) -> list[Case]:
        """Return the cases of conversations in which no call waits for the service any more."""
        rows = [row for row in waiting.values() if row["reason"] == AWAITS_CONVERSATION]
        still = {
            (tenant, name)
            for tenant, names in _awaited_by_tenant(rows).items()
            for name, unanswered in self._known.unanswered(tenant, names).items()
            if not all(one.is_given_up for one in unanswered)
        }
        return self._first(row for row in rows if still.isdisjoint(_awaited(row)))

    def _of_judged_calls(self, waiting: dict[str, Case]) -> list[Case]:
        """Return the cases of shadows whose call is judged by now, and not held."""
        rows = [row for row in waiting.values() if row["reason"] == AWAITS_CALL]
        done = {
            (tenant, name)
            for tenant, names in _awaited_by_tenant(rows).items()
            for name, line in judged_lines(self._known, tenant, names).items()
            if line.disposition != Disposition.QUARANTINED
        }
        return self._first(row for row in rows if _awaited(row) <= done)

    def _first(self, rows: Iterable[Case]) -> list[Case]:
        """Return so many of these cases as go on in one round; a person has to look at what was changed."""
        return list(islice((row for row in rows if self._whole(row) is not None), _MOST))

    def _whole(self, case: Case) -> Exchange | None:
        """Return the exchange of a case; None where it does not open, or what was told beside it."""
        damaged = self._content.notes.damage(case["step_id"])
        return None if damaged else self._content.opened(kept_as(case))


def _waits(reason: str) -> bool:
    return reason in (AWAITS_ANSWER, AWAITS_CONVERSATION, AWAITS_CALL)


def _awaited(row: Case) -> set[tuple[str, str]]:
    """Return what a case waits for, each with its tenant."""
    return {(row["tenant_id"], name) for name in json.loads(row["detail"]).get("awaits", ())}


def _awaited_by_tenant(rows: Iterable[Case]) -> dict[str, set[str]]:
    asked: dict[str, set[str]] = defaultdict(set)
    for tenant, name in (place for row in rows for place in _awaited(row)):
        asked[tenant].add(name)
    return asked
